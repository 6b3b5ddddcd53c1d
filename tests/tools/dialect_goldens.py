#!/usr/bin/env python3
"""Writes tests/data/dialects/round_trips/NAME.json: a conversation with calls and results as a client sends it, and
what Jinja2 renders of it, in transformers' environment, once it has the shape that the family's template wants.

    pip install jinja2==3.1.6
    tests/tools/dialect_goldens.py ../shared/data/templates

The shapes are written down here by hand for each template, from reading it. Templates come from the folder named, from
tests/data/templates or, where a family has none there, from tests/data/dialects/templates. Of templates under licences
that this repository cannot carry only a digest of the rendering is kept.
"""

import copy
import hashlib
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Its name."},
                                         "days": {"type": "integer", "description": "How many."}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "get_time", "description": "Time of a zone.", "parameters": {
        "type": "object", "properties": {"zone": {"type": "string", "description": "Of tz."},
                                         "utc": {"type": "boolean", "description": "In UTC?"}},
        "required": ["zone"]}}},
]
WEATHER = {"city": "Zürich \"north\"", "days": 2}
TIME = {"utc": True, "zone": "Europe/Zurich"}
THOUGHT, LAST_THOUGHT = "Two calls are needed.", "Both have answered."
TEXT, ANSWER = "Let me look.", "It is noon, and 4 C."
RESULTS = {"call_a1B2": "4 C, wind \"calm\"", "call_c3D4": "12:00"}

CALLS_IN_WORDS = json.dumps([{"name": "get_weather", "arguments": WEATHER}, {"name": "get_time", "arguments": TIME}],
                            ensure_ascii=False)

# What a client sends: arguments as text, reasoning in two spellings, parts, results in another order than the calls.
CLIENT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather in Zürich, and the time?"}]},
    {"role": "assistant", "content": TEXT, "reasoning": THOUGHT, "tool_calls": [
        {"id": "call_a1B2", "type": "function",
         "function": {"name": "get_weather", "arguments": json.dumps(WEATHER, ensure_ascii=False)}},
        {"id": "call_c3D4", "type": "function", "function": {"name": "get_time", "arguments": json.dumps(TIME)}}]},
    {"role": "tool", "tool_call_id": "call_c3D4", "content": [{"type": "text", "text": RESULTS["call_c3D4"]}]},
    {"role": "tool", "tool_call_id": "call_a1B2", "content": RESULTS["call_a1B2"]},
    {"role": "assistant", "content": ANSWER, "reasoning_content": LAST_THOUGHT},
]


def nine(name):
    return "".join(DIGITS[b % 62] for b in hashlib.sha256(name.encode()).digest()[:9])


def describe(example=None):
    """Tools in words, for templates that know none."""
    out = "You may call tools. These are they, one JSON object a line:\n"
    out += "".join(json.dumps(t["function"], ensure_ascii=False) + "\n" for t in TOOLS) + "\n"
    if example:
        return (out + "To call a tool, write its name and its arguments in exactly this format, and nothing behind it:\n"
                + example + "\nThe results come in the next message. If no tool is needed, answer in plain text.")
    return (out + "To call a tool, write a JSON object of its name and its arguments and nothing else, as in\n"
            '{"name": "example_tool", "arguments": {"argument": "value"}}\n'
            "To call several at once, write a JSON array of such objects and nothing else. The results come in the next "
            "message. If no tool is needed, answer in plain text.")


def call(i, name, arguments, ids):
    client = ["call_a1B2", "call_c3D4"][i]
    native = {"as": client, "nine": nine(client), "kimi": f"functions.{name}:{i}"}[ids]
    return {"id": native, "type": "function", "function": {"name": name, "arguments": arguments}}


def shape(reasoning="reasoning_content", ids="as", ordered=True, names=False, layout="whole", described=None,
          thought_with_calls=False, system_tools=False):
    """The conversation as a template wants it. layout: whole; single (a call a message); split (text apart, the
    reasoning with it or with the calls); single+split; folded (Gemma); words (no tools at all)."""
    system = "Be brief." if described is None else "Be brief.\n\n" + described
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Weather in Zürich, and the time?"}]
    if system_tools:
        messages[0]["tools"] = json.dumps([t["function"] for t in TOOLS], ensure_ascii=False)
    calls = [call(0, "get_weather", WEATHER, ids), call(1, "get_time", TIME, ids)]
    results = []
    for i, c in enumerate(calls):
        client = ["call_a1B2", "call_c3D4"][i]
        results.append({"role": "tool", "tool_call_id": c["id"], "content": RESULTS[client]})
        if names:
            results[-1]["name"] = c["function"]["name"]

    def assistant(content, thought, **more):
        m = {"role": "assistant", "content": content, **more}
        if thought is None or reasoning is None:
            return m
        if reasoning == "parts":
            m["content"] = [{"type": "thinking", "thinking": thought}] + ([{"type": "text", "text": content}] if content else [])
        elif isinstance(reasoning, tuple):  # in the content, between these
            m["content"] = f"{reasoning[0]}\n{thought}\n{reasoning[1]}\n\n{content}"
        elif reasoning == "thinking, not beside content" and "tool_calls" in m:
            m.update(content="", thinking=thought + ("\n\n" + content if content else ""))
        else:
            m[reasoning.split(",")[0]] = thought
        return m

    thoughts = (None, THOUGHT) if thought_with_calls else (THOUGHT, None)
    if layout == "words":
        told = "\n\n".join(f"Result of the tool {c['function']['name']}:\n{r['content']}" for c, r in zip(calls, results))
        messages += [assistant(TEXT + "\n\n" + CALLS_IN_WORDS, THOUGHT), {"role": "user", "content": told}]
    elif layout == "folded":
        responses = [{"name": c["function"]["name"], "response": r["content"]} for c, r in zip(calls, results)]
        messages += [assistant(TEXT, thoughts[0]), assistant("", thoughts[1], tool_calls=calls, tool_responses=responses)]
    elif layout.startswith("single"):
        if layout == "single+split":
            messages.append(assistant(TEXT, THOUGHT))
        for i, (c, r) in enumerate(zip(calls, results)):
            first = i == 0 and layout == "single"
            messages += [assistant(TEXT if first else "", THOUGHT if first else None, tool_calls=[c]), r]
    else:
        if layout == "split":
            messages += [assistant(TEXT, thoughts[0]), assistant("", thoughts[1], tool_calls=calls)]
        else:
            messages.append(assistant(TEXT, THOUGHT, tool_calls=calls))
        messages += results if ordered else results[::-1]
    return messages + [assistant(ANSWER, LAST_THOUGHT)]


def case(dialect, template, shaped, turn_start, turn_end, says=("reasoning", "text"), ids=None, digest=False,
         file=None, **more):
    """says: what of the calling turn comes back before the calls."""
    words = {"reasoning": {"reasoning": THOUGHT}, "text": {"text": TEXT}, "both": {"reasoning": THOUGHT + "\n\n" + TEXT},
             "text and calls": {"text": TEXT + "\n\n" + CALLS_IN_WORDS}}
    events = [words[w] for w in says]
    written = (("get_weather", WEATHER), ("get_time", TIME))
    for i, (name, arguments) in enumerate(written if more.get("calls", 2) else ()):
        events.append({"call": name, "arguments": arguments})
        if ids:
            events[-1]["id"] = ids[i]
    return {"file": file or dialect, "dialect": dialect, "template": template, "shaped": shaped, "turn_start": turn_start,
            "turn_end": turn_end, "expect": events, "digest": digest, **more}


IM = ("<|im_start|>assistant", "<|im_end|>")
THINK = ("<think>", "</think>")
APRIEL = ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]")
KIMI = ["functions.get_weather:0", "functions.get_time:1"]
DEEPSEEK = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
DEEPSEEK_TURN = ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")
V31 = ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>example_tool<｜tool▁sep｜>{\"argument\": \"value\"}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>")
R1 = ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>example_tool\n```json\n{\"argument\": \"value\"}\n"
      "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>")
CASES = [
    case("hermes", "Qwen-Qwen3-0.6B.jinja", shape(), *IM),
    case("hermes", "Qwen-Qwen2.5-7B-Instruct.jinja", shape(), *IM, says=["text"], file="hermes_qwen25"),
    case("qwen3_coder", "Qwen3-Coder.jinja", shape(), *IM, says=["text"]),
    case("seed_oss", "ByteDance-Seed-OSS.jinja", shape(), "<seed:bos>assistant", "<seed:eos>"),
    case("llama3_json", "meta-llama-Llama-3.1-8B-Instruct.jinja", shape(layout="single+split"),
         "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", says=["text"], digest=True,
         specials={"bos_token": "<|begin_of_text|>"}),
    case("pythonic", "pythonic.jinja", shape(), "<|header_start|>assistant<|header_end|>\n\n", "<|eot|>", says=["text"],
         specials={"bos_token": "<|begin_of_text|>"}),
    case("mistral", "mistralai-Mistral-Nemo-Instruct-2407.jinja", shape(ids="nine", ordered=False), "[/INST]", "</s>", says=[],
         ids=[nine("call_a1B2"), nine("call_c3D4")], file="mistral_old", specials={"bos_token": "<s>", "eos_token": "</s>"}),
    case("mistral", "mistralai-Ministral-3-14B-Reasoning-2512.jinja", shape(reasoning="parts"), "", "</s>",
         specials={"bos_token": "<s>", "eos_token": "</s>"}),
    case("deepseek_v3", "llama-cpp-deepseek-r1.jinja", shape(layout="split", described=describe(R1)), *DEEPSEEK_TURN,
         says=["text"], specials=DEEPSEEK, no_tools_variable=True),
    case("deepseek_v31", "deepseek-ai-DeepSeek-V3.1.jinja", shape(described=describe(V31)), *DEEPSEEK_TURN, says=["text"],
         specials=DEEPSEEK),
    case("deepseek_dsml", "deepseek-ai-DeepSeek-V4.jinja", shape(), *DEEPSEEK_TURN, specials=DEEPSEEK, thinking=True,
         variables={"thinking": True, "enable_thinking": True}),
    case("glm", "GLM-4.6.jinja", shape(), "<|assistant|>", ""),
    case("kimi_k2", "Kimi-K2-Instruct.jinja", shape(ids="kimi", names=True), "<|im_assistant|>assistant<|im_middle|>",
         "<|im_end|>", says=["text"], ids=KIMI),
    case("minimax_m2", "minimax_m2.jinja", shape(), "]~b]ai\n", "[e~["),
    case("harmony", "harmony.jinja", shape(reasoning="thinking, not beside content", layout="single"),
         "<|start|>assistant", "", says=["both"], effort="high", variables={"reasoning_effort": "high"}),
    case("gemma4", "google-gemma-4-31B-it-interleaved.jinja", shape(layout="folded", thought_with_calls=True),
         "<|turn>model\n", "<turn|>", says=["text", "reasoning"], digest=True, specials={"bos_token": "<bos>"}, thinking=True, variables={"enable_thinking": True}),
    case("granite3", "granite3.jinja", shape(), "<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>",
         says=["text"]),
    case("phi4_mini", "phi4_mini.jinja", shape(system_tools=True), "<|assistant|>", "<|end|>", says=["text"],
         specials={"eos_token": "<|endoftext|>"}),
    case("command_r7b", "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
         shape(layout="split", thought_with_calls=True, ordered=False), "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>",
         says=["text", "reasoning"], ids=["0", "1"], digest=True, specials={"bos_token": "<BOS_TOKEN>"}, thinking=True,
         variables={"enable_thinking": True}),
    # What follows the last message is its own, and long.
    case("command_r", "CohereForAI-c4ai-command-r-plus-tool_use.jinja", shape(), "<|CHATBOT_TOKEN|>", "<|START_OF_TURN_TOKEN|>",
         says=["text"], digest=True, specials={"bos_token": "<BOS_TOKEN>"}, tail=800),
    case("functionary_v31", "meetkai-functionary-medium-v3.1.jinja", shape(),
         "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eom_id|>", says=["text"],
         specials={"bos_token": "<|begin_of_text|>"}),
    case("gigachat", "GigaChat3.1-10B-A1.8B.jinja", shape(layout="single"), "assistant<|role_sep|>\n", "<|message_sep|>",
         says=["text"], digest=True, specials={"bos_token": "<s>"}),
    case("tool_calls_list", "unsloth-Apriel-1.5.jinja", shape(reasoning=APRIEL), "<|assistant|>\n", "\n<|end|>",
         digest=True, specials={"bos_token": "<s>", "eos_token": "</s>"}),
    # Shows no calls: in the history they are words, which are no calls of the dialect. Drops the reasoning of all turns but
    # the last, so prompts differ from the calling turn on.
    case("lfm2", "LFM2.5-Instruct.jinja", shape(reasoning=THINK, layout="words"), *IM, says=["reasoning", "text and calls"],
         calls=0, tail=600, digest=True, specials={"bos_token": "<|startoftext|>"}),
    case("mcp_xml", "mcp_xml.jinja", shape(), *IM),
    case("nemotron_json", "nemotron_json.jinja", shape(reasoning=None), "<SPECIAL_11>Assistant\n", "<SPECIAL_12>", says=["text"]),
    case("olmo3", "olmo3.jinja", shape(reasoning=None), "<|im_start|>assistant\n", "<|im_end|>", says=["text"]),
    case("generic", "HuggingFaceTB-SmolLM3-3B.jinja", shape(reasoning=THINK, layout="words", described=describe()), *IM),
]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def render(source, context):
    """transformers' environment; mutable, for templates that append to lists."""
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                              extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)
    env.globals["raise_exception"] = refuse
    return env.from_string(source).render(**context)


def main(folders):
    assert jinja2.__version__ == "3.1.6", jinja2.__version__
    for c in CASES:
        source = next(p for f in folders if (p := pathlib.Path(f) / c["template"]).exists())
        context = {"messages": copy.deepcopy(c["shaped"]), "tools": None if c.get("no_tools_variable") else TOOLS,
                   "documents": None, "add_generation_prompt": False, **c.get("specials", {}), **c.get("variables", {})}
        out = render(source.read_text(encoding="utf-8"), context)
        row = {"dialect": c["dialect"], "template": c["template"], "specials": c.get("specials", {}), "tools": TOOLS,
               "messages": CLIENT}
        for option in ("thinking", "effort", "calls", "tail"):
            if option in c:
                row[option] = c[option]
        if c["digest"]:
            row["rendered_sha256"] = hashlib.sha256(out.encode()).hexdigest()
        else:
            row["rendered"] = out
        row.update(turn_start=c["turn_start"], turn_end=c["turn_end"], expect=c["expect"])
        path = DATA / "dialects" / "round_trips" / (c["file"] + ".json")
        path.write_text(json.dumps(row, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main([DATA / "dialects" / "templates", DATA / "templates"] + sys.argv[1:])
