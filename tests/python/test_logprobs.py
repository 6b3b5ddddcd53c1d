"""Log-probabilities of a message are those of the tokens of its text, in every family, streamed or not: the bytes of the
entries, joined, are the text. Reasoning, calls, markers and layout have none. Standard library only."""

import unittest

import scripted
from scripted import FAMILIES, call, joined, plain, raw, say, token, unstreamed

CITY = "Genève \"x\" 🍃"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
FLAT = [{"type": "function", "name": "weather", "parameters": TOOLS[0]["function"]["parameters"]}]


def text_of(entries):
    return b"".join(bytes(e["bytes"]) for e in entries).decode(errors="replace")


class Entries(scripted.Case):
    def check_chat(self, script, **fields):
        body = {"logprobs": True, "top_logprobs": 1, "tools": TOOLS, **fields}
        whole, streamed = unstreamed(self.chat(script, **body)), joined(self.chat_stream(script, **body))
        self.assertEqual(text_of(whole["logprobs"]), whole["content"], script)
        self.assertEqual(streamed["logprobs"], whole["logprobs"], script)
        return whole

    def check_responses(self, script, **fields):
        body = {"input": say(script), "temperature": 0, "tools": FLAT, "include": ["message.output_text.logprobs"], "top_logprobs": 1,
                **fields}
        status, _, whole = self.post("/v1/responses", body)
        self.assertEqual(status, 200, whole)
        parts = [(i, item["content"][0]) for i, item in enumerate(whole["output"]) if item["type"] == "message"]
        for _, part in parts:
            self.assertEqual(text_of(part["logprobs"]), part["text"], script)
        _, _, events = self.stream("/v1/responses", body)
        streamed = {}
        for kind, data in events:
            if kind == "response.output_text.delta":
                streamed[data["output_index"]] = streamed.get(data["output_index"], []) + data["logprobs"]
        self.assertEqual(streamed, {i: part["logprobs"] for i, part in parts}, script)
        final = events[-1][1]["response"]["output"]
        self.assertEqual([item["content"] for item in final if item["type"] == "message"], [[part] for _, part in parts])

    def check(self, script, **fields):
        self.check_responses(script, **{"max_output_tokens" if k == "max_tokens" else k: v for k, v in fields.items()})
        return self.check_chat(script, **fields)


class Qwen3(Entries):
    CALL = call("weather", city=CITY)
    THOUGHT = [token("<think>"), "\nHm — 🍃.\n", token("</think>"), "\n\n"]
    SCRIPTS = {
        "text": "Leaves: 葉は緑 🍃, naïve.\n", "thought": [*THOUGHT, "Yes."], "call": [*THOUGHT, "I look. \n", CALL, "\nSo be it."],
        "only call": [CALL], "open thought": [token("<think>"), "\non and on"], "space": ["\n\n", CALL, "\n \n"],
        "broken": ["a ", token("<tool_call>"), "\n{\"name\": weather, oops}\n", token("</tool_call>"), " tail"],
        "typed": ["It says ", plain("<think>a</think><tool_call>{}</tool_call>"), "."], "bytes": ["a", *raw(0xFF), "b", *raw(0xE8, 0x91)],
        "nothing": "",
    }

    def test_whatever_is_said(self):
        for script in self.SCRIPTS:
            for more in ({}, {"include_reasoning": False}, {"separate_reasoning": False}, {"stop": ["look", "aïv"]}):
                with self.subTest(script=script, more=more):
                    if "stop" in more:  # it may end inside a token
                        body = {"logprobs": True, "tools": TOOLS, **more}
                        whole = unstreamed(self.chat(script, **body))
                        self.assertTrue(text_of(whole["logprobs"]).startswith(whole["content"]))
                        self.assertEqual(joined(self.chat_stream(script, **body))["logprobs"], whole["logprobs"])
                    else:
                        self.check(script, **more)

    def test_wherever_it_is_cut(self):
        for script in ("thought", "call", "broken"):
            for cut in range(1, 40, 2):
                with self.subTest(script=script, cut=cut):
                    self.check(script, max_tokens=cut)

    def test_a_message_without_text_has_none(self):
        for script in ("only call", "nothing"):
            answer = self.chat(script, logprobs=True, tools=TOOLS)
            self.assertIsNone(answer["choices"][0]["logprobs"])
            self.assertTrue(all(c["choices"][0]["logprobs"] is None for c in self.chat_stream(script, logprobs=True, tools=TOOLS)))

    def test_ids_are_those_of_all_tokens(self):
        for script in ("thought", "call"):
            body = {"tools": TOOLS, "return_token_ids": True, "logprobs": True}
            answer = self.chat(script, **body)
            ids = answer["choices"][0]["token_ids"]
            self.assertEqual(len(ids), answer["usage"]["completion_tokens"])
            self.assertEqual([i for c in self.chat_stream(script, **body) for i in c["choices"][0].get("token_ids", [])], ids)


def of_family(name):
    family = FAMILIES[name]
    calls = [("weather", {"city": CITY})]

    class Family(Entries):
        FAMILY = name
        SCRIPTS = {"text": "Leaves: 葉は緑 🍃.", "calls": family.script(*calls), "around": family.script(*calls, before="I look.\n", after="\nDone.")}

        def test_all(self):
            for script in self.SCRIPTS:
                self.check(script)
    return Family


for _name in FAMILIES:
    if _name != "qwen3":
        globals()["Family_" + _name] = of_family(_name)


if __name__ == "__main__":
    unittest.main()
