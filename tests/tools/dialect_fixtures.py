#!/usr/bin/env python3
"""Writes tests/data/dialects/NAME.json: what models of each dialect write, and what it means.

Usage: tests/tools/dialect_fixtures.py   (nothing but the standard library; gives the same bytes again)

Each family's format is written down here once, as a function from calls to text, from the published templates and
model cards; Barg's parser is not asked. A file holds

  added      the added tokens of the family's tokenizer that are markers; `special` ones are never shown
  reasoning  the markers of reasoning, empty if it has none
  as_text    the outputs are also read by a tokenizer to which no marker is a token
  outputs    name; output: text, or a list of texts in which {"plain": ...} is spelled by ordinary tokens even where
             it looks like a marker; inside: the prompt ended in an open reasoning block; natural: the model ended;
             expect: the events, neighbours joined; or malformed: words that must survive somewhere

The test cuts each output at every character itself.
"""

import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "dialects"


def tool(name, properties, required=()):
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    return {"type": "function", "function": {"name": name, "description": "What " + name + " does.",
                                             "parameters": parameters}}


STRING = {"type": "string"}
TOOLS = [
    tool("get_weather", {"city": STRING, "days": {"type": "integer"}}, ["city"]),
    tool("get_time", {"zone": STRING, "utc": {"type": "boolean"}}, ["zone"]),
    tool("make_event", {"title": STRING, "when": {"type": "object"}, "guests": {"type": "array"},
                        "note": {"type": ["string", "null"]}}, ["title"]),
    tool("list_users", {}),
    tool("run_code", {"code": STRING, "lang": STRING}, ["code"]),
    tool("set_value", {"number": {"type": "number"}, "count": {"type": "integer"}, "flag": {"type": "boolean"},
                       "label": STRING, "list": {"type": "array"}, "choice": {"anyOf": [{"type": "integer"}, STRING]}}),
]

OSLO = ("get_weather", {"city": "Oslo"})
LIMA = ("get_weather", {"city": "Lima", "days": 3})
TIME = ("get_time", {"zone": "Europe/Oslo", "utc": True})
USERS = ("list_users", {})
EVENT = ("make_event", {"guests": [{"name": "Ann", "tags": []}, {"name": "Bob", "tags": ["x", "y"]}], "note": None,
                        "title": "Stand-up", "when": {"day": "Monday", "hours": [9, 10.5], "at": {"deep": {"er": [[1], []]}}}})
UNICODE = ("get_weather", {"city": "Zürich – 東京 🌧️ é ﷽"})
VALUES = ("set_value", {"number": -1.5, "count": 12, "flag": False, "label": "007", "list": [1, "two", None]})
MARS = ("fly_to_mars", {"speed": "fast"})


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def plain(text):
    return {"plain": text}


def text(t):
    return {"text": t}


def reasoning(t):
    return {"reasoning": t}


class Family:
    """name; write(calls) -> output (text or list); ids(calls) -> native ids."""

    def __init__(self, name, write, added=(), special=True, think=None, as_text=True, ids=None, say=None, mention=None,
                 trailing=True, leading=True, dialect=None, unknown=True, keeps_reasoning=False):
        self.name, self.write, self.think, self.ids = name, write, think, ids
        self.dialect = dialect or name
        self.added = [{"text": a, "special": special} for a in added]
        self.as_text, self.trailing, self.leading = as_text, trailing, leading
        self.say = say or (lambda t: t)
        self.mention = mention                  # a call whose markers are tokens
        self.unknown = unknown                  # undeclared names are calls too
        self.keeps_reasoning = keeps_reasoning  # as text
        self.outputs = []

    def calls(self, calls):
        ids = self.ids(calls) if self.ids else [None] * len(calls)
        declared = {t["function"]["name"] for t in TOOLS}
        events = []
        for (name, arguments), native in zip(calls, ids):
            event = {"call": name, "arguments": arguments}
            if native is not None:
                event["id"] = native
            if name not in declared:
                event["declared"] = False
            events.append(event)
        return events

    def add(self, name, output, expect=None, **more):
        row = {"name": name, "output": output}
        if expect is not None:
            row["expect"] = expect
        row.update(more)
        self.outputs.append(row)

    def common(self, inside_string):
        """`inside_string`: a hostile string value, with closing tags as the family would write them in a string."""
        say, write = self.say, self.write
        self.add("plain text", say("Paris is the capital of France.\n\n- one {\n- two [x] <b> }"),
                 [text("Paris is the capital of France.\n\n- one {\n- two [x] <b> }")])
        self.add("one call", write([OSLO]), self.calls([OSLO]))
        self.add("parallel calls", write([OSLO, TIME]), self.calls([OSLO, TIME]))
        self.add("three calls, one tool twice, one without arguments", write([LIMA, USERS, OSLO]),
                 self.calls([LIMA, USERS, OSLO]))
        self.add("nested JSON", write([EVENT]), self.calls([EVENT]))
        self.add("unicode", write([UNICODE]), self.calls([UNICODE]))
        self.add("empty arguments", write([USERS]), self.calls([USERS]))
        self.add("values of every type", write([VALUES]), self.calls([VALUES]))
        hostile = ("run_code", {"code": inside_string, "lang": "c"})
        self.add("quotes and closing tags inside strings", write([hostile]), self.calls([hostile]))
        if self.leading:
            head = [say("Let me look that up for you.\n")] + flat(write([OSLO, USERS]))
            self.add("text before calls", head, [text("Let me look that up for you.")] + self.calls([OSLO, USERS]))
        if self.trailing:
            whole = [say("First: ")] + flat(write([OSLO])) + [say("\nThat was it.")]
            self.add("text around a call", whole, [text("First:")] + self.calls([OSLO]) + [text("That was it.")])
        if self.unknown:
            self.add("unknown name among valid ones", write([OSLO, MARS, USERS]), self.calls([OSLO, MARS, USERS]))
        if self.think and not self.keeps_reasoning:
            o, c = self.think
            self.add("reasoning, then an answer", [o + "The user wants one word.\nPerhaps two." + c, say("Paris.")],
                     [reasoning("The user wants one word.\nPerhaps two."), text("Paris.")])
            self.add("reasoning before calls", [o + "I need the weather & the time." + c] + flat(write([OSLO, TIME])),
                     [reasoning("I need the weather & the time.")] + self.calls([OSLO, TIME]))
            self.add("reasoning is cut", [o + "I wonder whether { \"name\": this"],
                     [reasoning("I wonder whether { \"name\": this")], natural=False)
        if self.mention:
            self.add("markers in user text", ["You wrote: ", plain(self.mention), " and I only quote it."],
                     [text("You wrote: " + self.mention + " and I only quote it.")], tokens_only=True)

    def quoted(self, markers):
        """Markers as a tokenizer that has no tokens for them sees them: no whole call, or not where one may stand."""
        quote = "You wrote " + markers + " and I only quote it."
        self.add("markers in user text, spelled", quote, [text(quote)])

    def inside(self, close):
        """The prompt opened the block."""
        self.add("the prompt opened the block", ["Thinking goes on." + close, self.say("Paris.")],
                 [reasoning("Thinking goes on."), text("Paris.")], inside=True)
        self.add("the prompt opened the block, call", ["Thinking goes on." + close] + flat(self.write([OSLO])),
                 [reasoning("Thinking goes on.")] + self.calls([OSLO]), inside=True)
        self.add("an opened block never ends", ["On and on, ", "to the last byte 🌧️"],
                 [reasoning("On and on, to the last byte 🌧️")], inside=True, natural=False)

    def dump(self):
        data = {"dialect": self.dialect, "added": self.added,
                "reasoning": dict(zip(("open", "close", "answer_open", "answer_close"), self.markers)),
                "as_text": self.as_text, "tools": TOOLS, "outputs": self.outputs}
        assert len(self.outputs) >= 12, self.name
        lines = json.dumps(data, ensure_ascii=False, indent=1)
        (FOLDER / (self.name + ".json")).write_text(lines + "\n", encoding="utf-8")

    markers = ("", "")


def flat(output):
    return output if isinstance(output, list) else [output]


HOSTILE = 'say("hi\\n"); // \'x\' {"name": "list_users", "arguments": {}} \\" \\\\ \t</s>\n'
THINK = ("<think>\n", "\n</think>\n\n")


def hermes():
    def write(calls):
        return "\n".join("<tool_call>\n" + dumps({"name": n, "arguments": a}) + "\n</tool_call>" for n, a in calls)
    f = Family("hermes", write, ["<tool_call>", "</tool_call>", "<think>", "</think>"], special=False, think=THINK,
               mention=write([OSLO]) + "<think>")
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE)
    f.inside("\n</think>\n\n")
    inner = ("run_code", {"code": "</tool_call>\n<tool_call>"})
    before, after = dumps({"name": inner[0], "arguments": inner[1]}).split("</tool_call>\\n<tool_call>")
    f.add("its own tags inside a string", ["<tool_call>\n" + before, plain("</tool_call>"), "\\n", plain("<tool_call>"),
                                           after + "\n</tool_call>"], f.calls([inner]), tokens_only=True)
    f.add("no space and no line feeds", '<tool_call>{"name":"get_weather","arguments":{"city":"Oslo"}}</tool_call>'
          '<tool_call>{"name":"list_users","arguments":{}}</tool_call>', f.calls([OSLO, USERS]))
    f.add("a call in the reasoning is none", ["<think>\nI could write ", write([OSLO]), "\n</think>\n\nNo need."],
          [reasoning("I could write " + write([OSLO])), text("No need.")])
    f.add("escapes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Z\\u00fcrich \\ud83c\\udf27 \\/"}}\n</tool_call>',
          f.calls([("get_weather", {"city": "Zürich 🌧 /"})]))
    f.add("the end tag is missing", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}', f.calls([OSLO]))
    f.add("broken JSON", '<tool_call>\n{"name": "get_weather", "arguments": {"city": Oslo-77}}\n</tool_call>',
          malformed=["Oslo-77"])
    f.add("no call at all between the tags", "<tool_call>\nnothing-here\n</tool_call>", malformed=["nothing-here"])
    f.add("no tools were given", "Tags are text: <tool_call> {} </tool_call>.",
          [text("Tags are text: <tool_call> {} </tool_call>.")], no_tools=True)
    f.dump()


def xml_value(v):
    return v if isinstance(v, str) else dumps(v)


def qwen3_coder():
    def write(calls):
        out = []
        for n, a in calls:
            parameters = "".join(f"<parameter={k}>\n{xml_value(v)}\n</parameter>\n" for k, v in a.items())
            out.append(f"<tool_call>\n<function={n}>\n{parameters}</function>\n</tool_call>")
        return "\n".join(out)
    # <function= is no token, and models do write it without the outer tag: only the outer one is a marker of its own.
    f = Family("qwen3_coder", write, ["<tool_call>", "</tool_call>", "<think>", "</think>"], special=False, think=THINK,
               mention="<tool_call>list_users</tool_call></think>")
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "<parameter=x> </parameter> </b>")
    f.inside("\n</think>\n\n")
    f.add("Python's spelling of values", "<tool_call>\n<function=set_value>\n<parameter=flag>\nTrue\n</parameter>\n"
          "<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>",
          f.calls([("set_value", {"flag": True, "count": 3})]))
    f.add("a value that is not of its type", "<tool_call>\n<function=set_value>\n<parameter=count>\nmany\n</parameter>\n"
          "<parameter=label>\n42\n</parameter>\n<parameter=unheard_of>\n42\n</parameter>\n</function>\n</tool_call>",
          f.calls([("set_value", {"count": "many", "label": "42", "unheard_of": "42"})]))
    lines = ("run_code", {"code": "\n  indented\n\nlast line  "})
    f.add("line feeds of a value stay", write([lines]), f.calls([lines]))
    f.add("everything on one line", "<tool_call><function=get_weather><parameter=city>Oslo</parameter></function></tool_call>",
          f.calls([OSLO]))
    f.add("no function in the call", "<tool_call>\njust-words\n</tool_call>", malformed=["just-words"])
    f.dump()


def llama3_json():
    def write(calls):
        return "; ".join(dumps({"name": n, "parameters": a}) for n, a in calls)
    f = Family("llama3_json", write, ["<|python_tag|>"], trailing=False, leading=False)
    f.common(HOSTILE)
    f.add("behind the python tag", ["<|python_tag|>", write([OSLO])], f.calls([OSLO]))
    f.add("text, then the python tag", ["Let me look.", "<|python_tag|>", write([OSLO, USERS])],
          [text("Let me look.")] + f.calls([OSLO, USERS]))
    answer = '{"answer": 42, "unit": {"name": "none"}}'
    f.add("an answer in JSON is no call", answer, [text(answer)])
    quoted = 'For example {"name": "get_weather", "parameters": {"city": "Oslo"}} would be a call.'
    f.add("a call in the middle of a text is none", quoted, [text(quoted)])
    f.add("markers in user text", ["You wrote ", plain("<|python_tag|>"), '{"name": "list_users", "parameters": {}}'],
          [text('You wrote <|python_tag|>{"name": "list_users", "parameters": {}}')], tokens_only=True)
    f.add("broken JSON", '{"name": "get_weather", "parameters": {"city": Oslo-77}}', malformed=["Oslo-77"])
    f.dump()


def python_value(v):
    if isinstance(v, str):
        return dumps(v)
    if isinstance(v, bool) or v is None:
        return str(v)
    if isinstance(v, list):
        return "[" + ", ".join(python_value(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ", ".join(dumps(k) + ": " + python_value(x) for k, x in v.items()) + "}"
    return repr(v)


def python_calls(calls, separator=", "):
    return separator.join(n + "(" + ", ".join(f"{k}={python_value(v)}" for k, v in a.items()) + ")" for n, a in calls)


def pythonic():
    def write(calls):
        return "[" + python_calls(calls) + "]"
    f = Family("pythonic", write, ["<|python_start|>", "<|python_end|>"], trailing=False, leading=False)
    f.common(HOSTILE + ")]")
    f.add("between markers", ["<|python_start|>", write([OSLO, USERS]), "<|python_end|>"], f.calls([OSLO, USERS]))
    f.add("single quotes", "[run_code(code='it\\'s \"so\"\\n', lang='c')]",
          f.calls([("run_code", {"code": "it's \"so\"\n", "lang": "c"})]))
    f.add("spaces", '[ get_weather( city = "Oslo" ) , list_users( ) ]', f.calls([OSLO, USERS]))
    for name, t in [("a list is no call", "[1, 2, 3] is a list."), ("a link is no call", "[the docs](https://example.com)"),
                    ("a call in the middle of a text is none", 'Write [get_weather(city="Oslo")] to call.')]:
        f.add(name, t, [text(t)])
    quoted = "<|python_start|>[list_users()]<|python_end|>"
    f.add("markers in user text", ["You wrote ", plain(quoted), "."], [text("You wrote " + quoted + ".")],
          tokens_only=True)
    f.add("broken call", "[get_weather(city=Oslo-77)]", malformed=["Oslo-77"])
    f.dump()


def lfm2():
    def write(calls):
        return "<|tool_call_start|>[" + python_calls(calls) + "]<|tool_call_end|>"
    f = Family("lfm2", write, ["<|tool_call_start|>", "<|tool_call_end|>"], mention=write([OSLO]))
    f.common(HOSTILE + ")]")
    f.add("broken call", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def olmo3():
    def write(calls):
        return "<function_calls>" + python_calls(calls, "\n") + "</function_calls>"
    f = Family("olmo3", write, ["<function_calls>", "</function_calls>"], special=False, trailing=True, mention=write([OSLO]))
    f.common(HOSTILE + ")")
    f.add("line feeds around", "<function_calls>\n" + python_calls([OSLO, TIME], "\n") + "\n</function_calls>",
          f.calls([OSLO, TIME]))
    f.quoted("<function_calls> and </function_calls>")
    f.add("broken call", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def nine(i):
    return "abcDEF%03d" % i


def mistral_old():
    def write(calls):
        return "[TOOL_CALLS]" + dumps([{"name": n, "arguments": a, "id": nine(i)} for i, (n, a) in enumerate(calls)])
    f = Family("mistral_old", write, ["[TOOL_CALLS]"], dialect="mistral", ids=lambda calls: [nine(i) for i in range(len(calls))],
               trailing=False, mention=write([OSLO]))
    f.common(HOSTILE + "]")
    f.add("no ids", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
          [{"call": "get_weather", "arguments": {"city": "Oslo"}}])
    f.add("the id comes first", '[TOOL_CALLS][{"id": "abcDEF123", "name": "get_weather", "arguments": {"city": "Oslo"}}]',
          [{"call": "get_weather", "arguments": {"city": "Oslo"}, "id": "abcDEF123"}])
    f.add("broken JSON", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": Oslo-77}}]', malformed=["Oslo-77"])
    f.dump()


def mistral():
    def write(calls):
        return "".join(f"[TOOL_CALLS]{n}[ARGS]{dumps(a)}" for n, a in calls)
    f = Family("mistral", write, ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
               think=("[THINK]", "[/THINK]"), trailing=False, mention=write([OSLO]))
    f.markers = ("[THINK]", "[/THINK]")
    f.common(HOSTILE)
    f.inside("[/THINK]")
    f.add("with ids", '[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{"city": "Oslo"}[TOOL_CALLS]list_users[CALL_ID]abcDEF124[ARGS]{}',
          [{"call": "get_weather", "arguments": {"city": "Oslo"}, "id": "abcDEF123"},
           {"call": "list_users", "arguments": {}, "id": "abcDEF124"}])
    f.add("broken JSON", '[TOOL_CALLS]get_weather[ARGS]{"city": Oslo-77}', malformed=["Oslo-77"])
    f.dump()


DS = ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"]


def deepseek_v3():
    def write(calls):
        body = "\n".join(f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{dumps(a)}\n```<｜tool▁call▁end｜>"
                         for n, a in calls)
        return "<｜tool▁calls▁begin｜>" + body + "<｜tool▁calls▁end｜>"
    f = Family("deepseek_v3", write, DS + ["<think>", "</think>"], special=False, think=THINK, trailing=False,
               mention=write([OSLO]))
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "```")
    f.inside("\n</think>\n\n")
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def deepseek_v31():
    def write(calls):
        body = "".join(f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{dumps(a)}<｜tool▁call▁end｜>" for n, a in calls)
        return "<｜tool▁calls▁begin｜>" + body + "<｜tool▁calls▁end｜>"
    f = Family("deepseek_v31", write, DS + ["<think>", "</think>"], special=False, think=("<think>", "</think>"),
               trailing=False, mention=write([OSLO]))
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE)
    f.inside("</think>")
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def deepseek_dsml():
    def write(calls, tag="tool_calls"):
        out = f"<｜DSML｜{tag}>\n"
        for n, a in calls:
            out += f'<｜DSML｜invoke name="{n}">\n'
            for k, v in a.items():
                kind = "true" if isinstance(v, str) else "false"
                out += f'<｜DSML｜parameter name="{k}" string="{kind}">{xml_value(v)}</｜DSML｜parameter>\n'
            out += "</｜DSML｜invoke>\n"
        return out + f"</｜DSML｜{tag}>"
    f = Family("deepseek_dsml", write, ["<think>", "</think>"], special=False, think=("<think>", "</think>"),
               trailing=False)
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "</parameter> </invoke>")
    f.inside("</think>")
    f.add("the older tag", write([OSLO, TIME], "function_calls"), f.calls([OSLO, TIME]))
    typed = ('<｜DSML｜tool_calls>\n<｜DSML｜invoke name="set_value">\n<｜DSML｜parameter name="label" string="true">42'
             '</｜DSML｜parameter>\n<｜DSML｜parameter name="choice" string="false">42</｜DSML｜parameter>\n'
             '</｜DSML｜invoke>\n</｜DSML｜tool_calls>')
    f.add("string says what a value is", typed, f.calls([("set_value", {"label": "42", "choice": 42})]))
    f.add("no invoke in the block", "<｜DSML｜tool_calls>\njust-words\n</｜DSML｜tool_calls>", malformed=["just-words"])
    f.add("a think tag in user text", ["You wrote ", plain("</think>"), "."], [text("You wrote </think>.")],
          tokens_only=True)
    f.dump()


def glm():
    def write(calls, newline="\n"):
        out = []
        for n, a in calls:
            pairs = "".join(f"<arg_key>{k}</arg_key>{newline}<arg_value>{xml_value(v)}</arg_value>{newline}"
                            for k, v in a.items())
            out.append(f"<tool_call>{n}{newline}{pairs}</tool_call>")
        return newline.join(out)
    f = Family("glm", write, ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                               "<think>", "</think>"], special=False, think=("\n<think>", "</think>\n"),
               mention=write([OSLO]))
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE)
    f.add("no line feeds", write([OSLO, TIME, USERS], ""), f.calls([OSLO, TIME, USERS]))
    f.add("a value that is not of its type", "<tool_call>set_value\n<arg_key>count</arg_key>\n<arg_value>many</arg_value>\n"
          "<arg_key>label</arg_key>\n<arg_value>42</arg_value>\n</tool_call>",
          f.calls([("set_value", {"count": "many", "label": "42"})]))
    inner = ("run_code", {"code": "a</arg_value>b"})
    f.add("its own tags inside a value", ["<tool_call>run_code\n<arg_key>code</arg_key>\n<arg_value>a", plain("</arg_value>"),
                                          "b</arg_value>\n</tool_call>"], f.calls([inner]), tokens_only=True)
    f.add("a key without a value", "<tool_call>get_weather\n<arg_key>city-77</arg_key>\n</tool_call>", malformed=["city-77"])
    f.dump()


def kimi_ids(calls):
    return [f"functions.{n}:{i}" for i, (n, _) in enumerate(calls)]


def kimi_k2():
    def write(calls):
        body = "".join(f"<|tool_call_begin|>{i}<|tool_call_argument_begin|>{dumps(a)}<|tool_call_end|>"
                       for i, (_, a) in zip(kimi_ids(calls), calls))
        return "<|tool_calls_section_begin|>" + body + "<|tool_calls_section_end|>"
    f = Family("kimi_k2", write, ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                                  "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<think>", "</think>"],
               special=False, think=("<think>", "</think>"), ids=kimi_ids, trailing=False, mention=write([OSLO]))
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE)
    later = write([OSLO]).replace(":0<", ":12<")
    f.add("the index goes on from earlier turns", later,
          [{"call": "get_weather", "arguments": {"city": "Oslo"}, "id": "functions.get_weather:12"}])
    dotted = "<|tool_calls_section_begin|><|tool_call_begin|>functions.a.b-c:0<|tool_call_argument_begin|>{}" \
             "<|tool_call_end|><|tool_calls_section_end|>"
    f.add("a dot in the name", dotted, [{"call": "a.b-c", "arguments": {}, "id": "functions.a.b-c:0", "declared": False}])
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def minimax_calls(calls):
    out = "<minimax:tool_call>\n"
    for n, a in calls:
        out += f'<invoke name="{n}">\n'
        out += "".join(f'<parameter name="{k}">{xml_value(v)}</parameter>\n' for k, v in a.items()) + "</invoke>\n"
    return out + "</minimax:tool_call>"


def minimax_m2():
    write = minimax_calls
    f = Family("minimax_m2", write, ["<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"], special=False,
               think=THINK, mention=write([OSLO]))
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "</param> </b>")
    f.inside("\n</think>\n\n")
    f.add("one block each", write([OSLO]) + "\n" + write([USERS]), f.calls([OSLO, USERS]))
    f.add("no invoke in the block", "<minimax:tool_call>\njust-words\n</minimax:tool_call>", malformed=["just-words"])
    f.dump()


def harmony():
    def call(n, a):
        return f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{dumps(a)}<|call|>"

    def write(calls):
        return "<|start|>assistant".join(call(n, a) for n, a in calls)

    def final(t):
        return "<|channel|>final<|message|>" + t
    f = Family("harmony", write, ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>",
                                  "<|return|>"], as_text=False, trailing=False, leading=False, say=final,
               think=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"))
    f.common(HOSTILE)
    f.add("a preamble before a call", "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant" + call(*OSLO),
          [text("Let me look.")] + f.calls([OSLO]))
    f.add("the recipient stands in the role", " to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>"
          '{"city": "Oslo"}<|call|>', f.calls([OSLO]))
    f.add("no constraint", '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Oslo"}<|call|>',
          f.calls([OSLO]))
    f.add("several analyses", "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>"
          " Two.<|end|><|start|>assistant" + final("Paris."), [reasoning("One. Two."), text("Paris.")])
    quoted = "<|channel|>commentary to=functions.list_users<|message|>{}<|call|>"
    f.add("markers in user text", [final("You wrote "), plain(quoted), "."], [text("You wrote " + quoted + ".")])
    f.add("broken JSON", '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": Oslo-77}<|call|>',
          malformed=["Oslo-77"])
    f.dump()


def gemma_value(v):
    if isinstance(v, str):
        return '<|"|>' + v + '<|"|>'
    if isinstance(v, list):
        return "[" + ",".join(gemma_value(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ",".join(k + ":" + gemma_value(x) for k, x in v.items()) + "}"
    return dumps(v)


def gemma4():
    def write(calls):
        return "".join("<|tool_call>call:" + n + gemma_value(a) + "<tool_call|>" for n, a in calls)
    f = Family("gemma4", write, ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"],
               think=("<|channel>thought\n", "<channel|>"), mention=write([OSLO]))
    f.markers = ("<|channel>thought\n", "<channel|>")
    f.common(HOSTILE + "}")
    f.inside("<channel|>")
    inner = ("run_code", {"code": 'x<|"|>}<tool_call|>y'})
    f.add("its own tags inside a string", ['<|tool_call>call:run_code{code:<|"|>x', plain('<|"|>}<tool_call|>'),
                                           'y<|"|>}<tool_call|>'], f.calls([inner]), tokens_only=True)
    f.add("broken call", "<|tool_call>call:get_weather{city:Oslo-77<tool_call|>", malformed=["Oslo-77"])
    f.dump()


def granite3():
    def write(calls):
        return "<|tool_call|>" + dumps([{"name": n, "arguments": a} for n, a in calls])
    f = Family("granite3", write, ["<|tool_call|>"], trailing=False, think=("<think>", "</think>"), mention=write([OSLO]))
    f.markers = ("<think>", "</think>", "<response>", "</response>")
    f.common(HOSTILE + "]")
    f.add("thoughts and response", "<think>Briefly.</think><response>Paris.</response>",
          [reasoning("Briefly."), text("Paris.")])
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def phi4_mini():
    def items(calls):
        return dumps([{"name": n, "arguments": a} for n, a in calls])

    def write(calls):
        return "<|tool_call|>" + items(calls) + "<|/tool_call|>"
    f = Family("phi4_mini", write, ["<|tool_call|>", "<|/tool_call|>"], mention=write([OSLO]))
    f.common(HOSTILE + "]")
    f.add("functools", "functools" + items([OSLO, USERS]), f.calls([OSLO, USERS]))
    f.add("a word is no call", "functools is a module of Python.", [text("functools is a module of Python.")])
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def command_r7b():
    def write(calls):
        items = [dumps({"tool_call_id": str(i), "tool_name": n, "parameters": a}) for i, (n, a) in enumerate(calls)]
        return "<|START_ACTION|>[\n    " + ",\n    ".join(items) + "\n]<|END_ACTION|>"

    def response(t):
        return "<|START_RESPONSE|>" + t + "<|END_RESPONSE|>"
    f = Family("command_r7b", write, ["<|START_ACTION|>", "<|END_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>",
                                    "<|START_RESPONSE|>", "<|END_RESPONSE|>"],
               think=("<|START_THINKING|>", "<|END_THINKING|>"), trailing=False, leading=False, say=response,
               ids=lambda calls: [str(i) for i in range(len(calls))], mention=None)
    f.markers = ("<|START_THINKING|>", "<|END_THINKING|>")
    f.common(HOSTILE + "]")
    f.inside("<|END_THINKING|>")
    f.add("text without its markers", "Paris.", [text("Paris.")])
    f.add("markers in user text", ["<|START_RESPONSE|>You wrote ", plain(write([OSLO])), ".<|END_RESPONSE|>"],
          [text("You wrote " + write([OSLO]) + ".")], tokens_only=True)
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def command_r():
    def write(calls):
        items = json.dumps([{"tool_name": n, "parameters": a} for n, a in calls], indent=4, ensure_ascii=False)
        return "Action:\n```json\n" + items + "```"
    f = Family("command_r", write, trailing=False)
    f.common(HOSTILE + "]```")
    f.quoted('Action: ```json [{"tool_name": "list_users", "parameters": {}}]```')
    f.add("the word alone is no call", "Action: none.\nAction:\n```json\n{}\n```",
          [text("Action: none.\nAction:\n```json\n{}\n```")])
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def seed_oss():
    def write(calls):
        out = []
        for n, a in calls:
            parameters = "".join(f"<parameter={k}>{xml_value(v)}</parameter>\n" for k, v in a.items())
            out.append(f"<seed:tool_call>\n<function={n}>\n{parameters}</function>\n</seed:tool_call>")
        return "\n".join(out)
    f = Family("seed_oss", write, ["<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"],
               special=False, think=("<seed:think>", "</seed:think>"),
               mention="<seed:tool_call>list_users</seed:tool_call></seed:think>")
    f.markers = ("<seed:think>", "</seed:think>")
    f.common(HOSTILE + "<parameter=x> </b>")
    f.inside("</seed:think>")
    f.dump()


def functionary_v31():
    def write(calls):
        return "".join(f"<function={n}>{dumps(a)}</function>" for n, a in calls)
    f = Family("functionary_v31", write)
    f.common(HOSTILE)
    f.quoted("<function=list_users> and </function>")
    own = ("run_code", {"code": "</function><function=x>"})
    f.add("its own tags inside a string", write([own]), f.calls([own]))
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def tool_calls_list():
    def write(calls):
        return "<tool_calls>" + dumps([{"name": n, "arguments": a, "id": nine(i)} for i, (n, a) in enumerate(calls)]) \
               + "</tool_calls>"
    f = Family("tool_calls_list", write, ["<tool_calls>", "</tool_calls>"], special=False, mention=write([OSLO]),
               ids=lambda calls: [nine(i) for i in range(len(calls))],
               think=("Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n"))
    f.markers = ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]", "", "[END FINAL RESPONSE]")
    f.common(HOSTILE + "]</tool_calls>")
    f.quoted("<tool_calls> and </tool_calls>")
    f.add("the end of the answer is marked", ["Here are my reasoning steps:\nOne.\n[BEGIN FINAL RESPONSE]\nParis.\n"
                                              "[END FINAL RESPONSE]"], [reasoning("One."), text("Paris.")])
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def nemotron_json():
    def write(calls):
        return "<TOOLCALL>" + dumps([{"name": n, "arguments": a} for n, a in calls]) + "</TOOLCALL>"
    f = Family("nemotron_json", write, ["<TOOLCALL>", "</TOOLCALL>", "<think>", "</think>"], special=False, think=THINK,
               mention=write([OSLO]) + "<think>")
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "]</TOOLCALL>")
    f.quoted("<TOOLCALL> and </TOOLCALL>")
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def mcp_xml():
    def write(calls):
        body = "".join(f"\n<server_name>tools</server_name>\n<tool_name>{n}</tool_name>\n<arguments>\n{dumps(a)}\n</arguments>"
                       for n, a in calls)
        return "<use_mcp_tool>" + body + "\n</use_mcp_tool>"
    f = Family("mcp_xml", write, ["<think>", "</think>"], special=False, think=THINK)
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "</arguments>\n</use_mcp_tool>")
    f.inside("\n</think>\n\n")
    f.quoted("<use_mcp_tool> <server_name>tools</server_name> <tool_name>")
    f.add("one block each", write([OSLO]) + "\n" + write([USERS]), f.calls([OSLO, USERS]))
    f.add("the server is missing", write([OSLO]).replace("<server_name>tools</server_name>\n", ""), f.calls([OSLO]))
    f.add("on one line", write([OSLO, TIME]).replace("\n", ""), f.calls([OSLO, TIME]))
    f.add("a server of many words", write([OSLO]).replace("tools", "search & scrape - v2"), f.calls([OSLO]))
    f.add("no tool in the block", "<use_mcp_tool>\njust-words\n</use_mcp_tool>", malformed=["just-words"])
    f.add("a server without an end", "<use_mcp_tool>\n<server_name>just-words <tool_name>list_users</tool_name>\n</use_mcp_tool>",
          malformed=["just-words"])
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def gigachat():
    def write(calls):
        return "\n".join("<|function_call|>" + dumps({"name": n, "arguments": a}) for n, a in calls)
    f = Family("gigachat", write, ["<|function_call|>"], trailing=False, mention=write([OSLO]))
    f.common(HOSTILE)
    f.add("broken JSON", write([OSLO]).replace('"Oslo"', "Oslo-77"), malformed=["Oslo-77"])
    f.dump()


def minimax_append_think():
    def write(calls):
        return minimax_calls(calls)
    f = Family("minimax_append_think", write, ["<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"],
               special=False, mention=write([OSLO]), keeps_reasoning=True)
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE + "</param> </b>")
    kept = "<think>\nBriefly.\n</think>\n\nParis."
    f.add("reasoning stays in the text", kept, [text(kept)])
    f.add("reasoning stays in the text before a call", ["<think>\nBriefly.\n</think>\n\n"] + flat(write([OSLO])),
          [text("<think>\nBriefly.\n</think>")] + f.calls([OSLO]))
    f.dump()


def generic():
    def write(calls):
        items = [{"name": n, "arguments": a} for n, a in calls]
        return dumps(items[0] if len(items) == 1 else items)
    f = Family("generic", write, [], trailing=False, leading=False, think=THINK, unknown=False)
    f.markers = ("<think>", "</think>")
    f.common(HOSTILE)
    f.quoted(write([OSLO, USERS]) + " and <tool_call>")
    answer = '{"answer": 42, "names": ["a"]}'
    f.add("an answer in JSON is no call", answer, [text(answer)])
    f.add("a list is no call", "[1, 2, 3]", [text("[1, 2, 3]")])
    quoted = 'For example {"name": "get_weather", "arguments": {"city": "Oslo"}} would be a call.'
    f.add("a call in the middle of a text is none", quoted, [text(quoted)])
    f.add("an undeclared name is no call", write([MARS]), [text(write([MARS]))])
    f.add("a list of one", '[{"name": "list_users", "arguments": {}}]', f.calls([USERS]))
    f.add("space around", '\n {\n  "name": "get_weather",\n  "arguments": {\n    "city": "Oslo"\n  }\n}\n', f.calls([OSLO]))
    f.add("broken JSON", '{"name": "get_weather", "arguments": {"city": Oslo-77}}', malformed=["Oslo-77"])
    f.dump()


if __name__ == "__main__":
    for family in (hermes, qwen3_coder, seed_oss, llama3_json, functionary_v31, pythonic, lfm2, olmo3, mistral_old, mistral,
                   deepseek_v3, deepseek_v31, deepseek_dsml, glm, kimi_k2, minimax_m2, minimax_append_think, harmony,
                   gemma4, granite3, phi4_mini, command_r7b, command_r, tool_calls_list, nemotron_json, mcp_xml, gigachat, generic):
        family()
