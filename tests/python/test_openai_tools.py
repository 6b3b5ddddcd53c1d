"""Tools through the official openai client, for one family of models after the other, each found from its template alone:
plain and streamed answers agree, calls are typed by their schema, histories with calls and results are rendered, and a
conversation comes to its end. The client's own tool helpers parse what it gets."""

import json
import unittest
from typing import List, Optional

import openai
from pydantic import BaseModel

import scripted
from scripted import FAMILIES, call, plain, say, token


class weather(BaseModel):
    """Weather of a city."""
    city: str
    days: int
    units: Optional[str] = None


class search(BaseModel):
    query: str
    tags: List[str]


def loose(tool):
    """The client's tool without `strict`, which needs constrained decoding."""
    tool["function"]["strict"] = False
    return tool


def tools():
    return [loose(openai.pydantic_function_tool(weather)), loose(openai.pydantic_function_tool(search)),
            {"type": "function", "function": {"name": "now"}}]


HARD = {"query": 'say "hi" <b>&</b>\n\t{"a": [1, 2]} naïve 日本語 🍃', "tags": ["x", "ÿ", ""]}
SIMPLE = ("weather", {"city": "Genève", "days": 3})
CALLS = {
    "one": [SIMPLE],
    "empty": [("now", {})],
    "hard": [("search", HARD)],
    "two": [SIMPLE, ("search", {"query": "leaf", "tags": []})],
    "same twice": [SIMPLE, ("weather", {"city": "Oslo", "days": -1})],
    "empty first": [("now", {}), SIMPLE],
    "unknown": [("no_such_tool", {"x": "1"})],
    "unknown beside": [("no_such_tool", {"x": "1"}), SIMPLE],
}
SINGLE = {"harmony"}  # one call, then the model waits


def is_json(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


class Families:
    """The tests of one family; FAMILY names it."""

    @classmethod
    def setUpClass(cls):
        family = FAMILIES[cls.FAMILY]
        cls.cases = {k: v for k, v in CALLS.items() if len(v) == 1 or cls.FAMILY not in SINGLE}
        cls.SCRIPTS = {name: family.script(*calls) for name, calls in cls.cases.items()}
        cls.SCRIPTS["text"] = cls.text("Sunny, 20 °C.")
        cls.SCRIPTS["open end"] = {"pieces": [family.calls([SIMPLE])[:-14]], "end": family.eos}
        super().setUpClass()
        cls.c = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=scripted.CALL_S)
        cls.addClassCleanup(cls.c.close)

    @classmethod
    def text(cls, words):
        return words

    def create(self, messages, **kw):
        messages = say(messages) if isinstance(messages, str) else messages
        return self.c.chat.completions.create(**{"model": "scripted", "temperature": 0, "messages": messages, "tools": tools(), **kw})

    def accumulate(self, script, **kw):
        kw = {"tools": tools(), **kw}
        with self.c.chat.completions.stream(model="scripted", temperature=0, messages=say(script), **kw) as stream:
            return stream.get_final_completion()

    @staticmethod
    def calls(message):
        return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]

    def test_calls(self):
        for name, wanted in self.cases.items():
            with self.subTest(name):
                answer = self.create(name)
                message = answer.choices[0].message
                self.assertEqual(self.calls(message), wanted)
                self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
                self.assertFalse((message.content or "").strip())
                ids = [c.id for c in message.tool_calls]
                self.assertEqual(len(set(ids)), len(ids))
                self.assertTrue(all(c.type == "function" and c.id for c in message.tool_calls))

    def test_streamed_equals_unstreamed(self):
        for name in self.cases:
            with self.subTest(name):
                plain_message, choice = self.create(name).choices[0].message, self.accumulate(name).choices[0]
                self.assertEqual([(c.function.name, c.function.arguments) for c in choice.message.tool_calls],
                                 [(c.function.name, c.function.arguments) for c in plain_message.tool_calls])
                self.assertEqual((choice.message.content or "", choice.finish_reason), (plain_message.content or "", "tool_calls"))

    def test_the_helper_parses(self):
        if "two" in self.cases:
            first, second = self.accumulate("two").choices[0].message.tool_calls
            self.assertEqual(first.function.parsed_arguments, weather(city="Genève", days=3))
            self.assertEqual(second.function.parsed_arguments, search(query="leaf", tags=[]))
        else:
            [first] = self.accumulate("one").choices[0].message.tool_calls
            self.assertEqual(first.function.parsed_arguments, weather(city="Genève", days=3))

    def test_without_tools_nothing_is_a_call(self):
        for off in ({"tools": openai.omit}, {"tools": []}, {"tool_choice": "none"}):
            with self.subTest(off):
                answer = self.create("one", **off)
                self.assertIsNone(answer.choices[0].message.tool_calls)
                self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_a_conversation(self):
        messages = say("one", text="What is the weather? ")
        message = self.create(messages).choices[0].message
        messages.append(message)  # as the client's examples do: the object itself
        for c in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": c.id, "content": f'{{"degrees": 20}} [[script text]]'})
        answer = self.create(messages)
        self.assertEqual(answer.choices[0].message.content, "Sunny, 20 °C.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_a_call_that_breaks_off_is_not_lost(self):
        unparsed = json.loads(json.dumps(tools()))  # else the client parses what it got, which is half a call
        for stream in (False, True):
            choice = (self.accumulate if stream else self.create)("open end", tools=unparsed).choices[0]
            shown = (choice.message.content or "") + "".join(c.function.name + c.function.arguments for c in choice.message.tool_calls or [])
            self.assertIn("weather", shown)
            self.assertIn("Gen", shown)
            whole = [c for c in choice.message.tool_calls or [] if is_json(c.function.arguments)]
            self.assertEqual(choice.finish_reason, "tool_calls" if whole else "stop")

    def test_cut_by_length(self):
        for cut in (5, 12, 20):
            answer = self.create("one", max_tokens=cut)
            self.assertEqual(answer.choices[0].finish_reason, "length")


class Hermes(Families, scripted.Case):
    FAMILY = "hermes"


class Qwen3(Families, scripted.Case):
    FAMILY = "qwen3"


class Qwen3Coder(Families, scripted.Case):
    FAMILY = "qwen3_coder"


class Llama3Json(Families, scripted.Case):
    FAMILY = "llama3_json"


class Mistral(Families, scripted.Case):
    FAMILY = "mistral"

    def test_its_ids_come_back(self):
        self.assertRegex(self.create("one").choices[0].message.tool_calls[0].id, r"[A-Za-z0-9]{9}")

    def test_foreign_ids_are_rendered(self):
        messages = say("one") + [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1234567890abcdef", "type": "function",
                                                                   "function": {"name": "now", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1234567890abcdef", "content": "[[script text]]"}]
        self.assertEqual(self.create(messages).choices[0].message.content, "Sunny, 20 °C.")


class DeepSeekV31(Families, scripted.Case):
    FAMILY = "deepseek_v31"


class KimiK2(Families, scripted.Case):
    FAMILY = "kimi_k2"

    def test_its_ids_come_back(self):
        self.assertIn("functions.weather:0", self.create("one").choices[0].message.tool_calls[0].id)


class Glm45(Families, scripted.Case):
    FAMILY = "glm45"


class Harmony(Families, scripted.Case):
    FAMILY = "harmony"

    @classmethod
    def text(cls, words):
        return ["<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>", words]

    def test_channels(self):
        message = self.create("text").choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("Think.", "Sunny, 20 °C."))


SHELL = 'ls -l "a b"\n\t| wc  # naïve 🍃 {}'


class Choice(scripted.Case):
    """What the client's helpers ask for and tool_choice, on one family."""
    FAMILY = "qwen3"
    SCRIPTS = {"one": call("weather", city="Rome", days=1), "two": call("weather", city="Rome", days=1) + "\n" + call("now"),
               "text": "Sunny.", "around": ["Before. ", call("now"), "\nAfter."],
               "closing": [token("<tool_call>"), '\n{"name": "search", "arguments": {"query": "a', plain("</tool_call>"),
                           'b", "tags": []}}\n', token("</tool_call>")],
               "broken": [token("<tool_call>"), '\n{"name": weather, oops}\n', token("</tool_call>"), "tail"],
               "partial": '{"name": "weather", "arguments": {}}', "shell": call("shell", input=SHELL),
               "whole": call("weather", city="Rome", days=1, units=None), "json": '{"city": "Rome", "days": 1, "units": null}'}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.c = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=scripted.CALL_S)
        cls.addClassCleanup(cls.c.close)

    def create(self, script, **kw):
        return self.c.chat.completions.create(**{"model": "scripted", "temperature": 0, "messages": say(script), "tools": tools(), **kw})

    def test_a_call_that_is_asked_for_comes(self):
        off = {"enable_thinking": False}
        for script in ("text", "whole"):
            message = self.create(script, tool_choice={"type": "function", "function": {"name": "now"}}, extra_body=off).choices[0].message
            self.assertEqual([(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls], [("now", {})])
            self.assertIsNone(message.content)
            choice = self.create(script, tool_choice="required", max_tokens=200, extra_body=off).choices[0]
            self.assertTrue(choice.message.tool_calls)
            for c in choice.message.tool_calls:
                json.loads(c.function.arguments)
        self.assertEqual(self.create("whole", tool_choice="required").choices[0].finish_reason, "tool_calls")

    def test_parse(self):
        ask = {"model": "scripted", "temperature": 0}
        message = self.c.chat.completions.parse(messages=say("json"), response_format=weather, **ask).choices[0].message
        self.assertEqual(message.parsed, weather(city="Rome", days=1, units=None))
        tools_ = [openai.pydantic_function_tool(weather)]
        message = self.c.chat.completions.parse(messages=say("whole"), tools=tools_, **ask).choices[0].message
        self.assertEqual(message.tool_calls[0].function.parsed_arguments, weather(city="Rome", days=1, units=None))
        with self.c.chat.completions.stream(messages=say("json"), response_format=weather, **ask) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, weather(city="Rome", days=1, units=None))

    def test_a_constraint_beside_a_required_call_is_refused(self):
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.create("one", stream=stream, tool_choice="required", response_format={"type": "json_object"})
            self.assertEqual((caught.exception.code, caught.exception.param), ("invalid_value", "tool_choice"))
            self.assertIn("response_format", str(caught.exception))

    def test_a_tool_that_is_not_there(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create("one", tool_choice={"type": "function", "function": {"name": "nothing"}})
        self.assertIn("tool_choice", caught.exception.param)

    def test_allowed_tools(self):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "weather"}}]}}
        message = self.create("one", tool_choice=allowed).choices[0].message
        self.assertEqual(message.tool_calls[0].function.name, "weather")

    def test_one_call_at_a_time(self):
        message = self.create("two", parallel_tool_calls=False).choices[0].message
        self.assertEqual([c.function.name for c in message.tool_calls], ["weather"])
        self.assertEqual(len(self.create("two", parallel_tool_calls=True).choices[0].message.tool_calls), 2)

    def test_text_around_a_call(self):
        message = self.create("around").choices[0].message
        self.assertIn("Before.", message.content)
        self.assertIn("After.", message.content)
        self.assertEqual([c.function.name for c in message.tool_calls], ["now"])

    def test_a_closing_tag_inside_a_string(self):
        [c] = self.create("closing").choices[0].message.tool_calls
        self.assertEqual(json.loads(c.function.arguments), {"query": "a</tool_call>b", "tags": []})

    def test_a_malformed_call_is_text(self):
        choice = self.create("broken").choices[0]
        self.assertIsNone(choice.message.tool_calls)
        self.assertIn("oops", choice.message.content)
        self.assertIn("tail", choice.message.content)
        self.assertEqual(choice.finish_reason, "stop")

    def test_json_that_is_an_answer(self):
        self.assertEqual(self.create("partial").choices[0].message.content, self.SCRIPTS["partial"])

    def prompt_of(self, messages, **kw):
        messages = [m if isinstance(m, dict) else m.to_dict() for m in messages]
        status, _, answer = self.post("/v1/explain", {"messages": messages, **kw})
        self.assertEqual(status, 200, answer)
        return answer["prompts"][0]["text"]

    def test_custom_tools(self):
        kw = {"tools": [{"type": "custom", "custom": {"name": "shell", "description": "Runs a command."}}, *tools()]}
        choice = self.create("shell", **kw).choices[0]
        [c] = choice.message.tool_calls
        self.assertEqual((c.type, c.custom.name, c.custom.input, choice.finish_reason), ("custom", "shell", SHELL, "tool_calls"))
        self.assertRegex(c.id, r"^call_[A-Za-z0-9]{24}$")
        pieces = [p for chunk in self.create("shell", stream=True, **kw)
                  for p in chunk.to_dict()["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual((pieces[0]["type"], pieces[0]["custom"]["name"]), ("custom", "shell"))
        self.assertTrue(pieces[0]["id"])
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(p["custom"]["input"] for p in pieces), SHELL)
        for p in pieces[1:]:
            self.assertEqual((set(p), set(p["custom"])), ({"index", "custom"}, {"input"}))
        messages = say("shell") + [choice.message, {"role": "tool", "tool_call_id": c.id, "content": "3 lines [[script text]]"}]
        prompt = self.prompt_of(messages, **kw)
        self.assertIn("Runs a command.", prompt)
        self.assertIn(call("shell", input=SHELL), prompt)
        self.assertIn("3 lines", prompt)
        self.assertEqual(self.create("shell", messages=messages, **kw).choices[0].message.content, "Sunny.")

    def test_legacy_functions(self):
        kw = {"tools": openai.omit, "functions": [{"name": "weather", "description": "Weather of a city.",
                                                   "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
                                                  {"name": "now"}]}
        choice = self.create("one", **kw).choices[0]
        function = choice.message.function_call
        self.assertEqual((function.name, json.loads(function.arguments)), ("weather", {"city": "Rome", "days": 1}))
        self.assertEqual((choice.finish_reason, choice.message.tool_calls, choice.message.content), ("function_call", None, None))
        deltas = [d for chunk in self.create("one", stream=True, **kw) if (d := chunk.choices[0].delta.function_call)]
        self.assertEqual([d.name for d in deltas if d.name], ["weather"])
        self.assertGreater(len(deltas), 2)
        self.assertEqual("".join(d.arguments or "" for d in deltas), function.arguments)
        self.assertEqual(self.create("two", **kw).choices[0].message.function_call.name, "weather", "one call, the first")
        off = self.create("one", function_call="none", **kw).choices[0]
        self.assertEqual((off.message.function_call, off.finish_reason), (None, "stop"))
        messages = say("one") + [choice.message, {"role": "function", "name": "weather", "content": "20 degrees [[script text]]"}]
        prompt = self.prompt_of(messages, functions=kw["functions"])
        self.assertIn("Weather of a city.", prompt)
        self.assertIn(call("weather", city="Rome", days=1), prompt)
        self.assertIn("20 degrees", prompt)
        self.assertEqual(self.create("one", messages=messages, **kw).choices[0].message.content, "Sunny.")


if __name__ == "__main__":
    unittest.main()
