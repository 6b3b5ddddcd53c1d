"""Calls that break off in their arguments, through Chat Completions, Responses and Messages: a call all the same (a stream has
sent its beginning), marked as half of one, and told alike by streamed and unstreamed answers."""

import json
import re
import unittest

import scripted
from scripted import call, joined, say, token, unstreamed

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
BROKEN = [token("<tool_call>"), '\n{"name": "weather", "arguments": {"city": "Oslo", "days": many}}\n', token("</tool_call>")]
NOTE = "the arguments of a tool call broke off: weather"
CUT_NOTE = "the answer ended inside a tool call: weather"
CUT = 28  # tokens: inside the arguments


class BrokenCalls(scripted.Case):
    SCRIPTS = {"broken": BROKEN, "beside": [call("now"), "\n", *BROKEN], "whole": call("weather", city="Oslo", days=12345678)}

    def chat_choices(self, script, **fields):
        """The one choice, unstreamed and streamed, the latter put together."""
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
                 {"type": "function", "function": {"name": "now"}}]
        answer = self.chat(script, tools=tools, **fields)
        chunks = self.chat_stream(script, tools=tools, **fields)
        last = [c for chunk in chunks for c in chunk["choices"]][-1]
        for read, choice in ((unstreamed(answer), answer["choices"][0]), (joined(chunks), last)):
            ids = [i for i, _, _ in read["tool_calls"]]
            yield read, [ids.index(i) for i in choice.get("incomplete_tool_calls", [])], choice.get("tool_parse_error")

    def test_chat(self):
        for read, incomplete, note in self.chat_choices("broken"):
            [(_, name, arguments)] = read["tool_calls"]
            self.assertEqual((name, read["finish"], incomplete, note), ("weather", "stop", [0], NOTE))
            self.assertTrue(arguments.startswith('{"city": "Oslo"'), arguments)
            self.assertRaises(ValueError, json.loads, arguments)
            self.assertIn("many}}", read["content"])
        for read, incomplete, note in self.chat_choices("beside"):
            self.assertEqual([name for _, name, _ in read["tool_calls"]], ["now", "weather"])
            self.assertEqual((read["finish"], incomplete, note), ("tool_calls", [1], NOTE))
        for read, incomplete, note in self.chat_choices("whole", max_tokens=CUT):
            self.assertEqual((read["finish"], incomplete, note), ("length", [0], CUT_NOTE))
        for read, incomplete, note in self.chat_choices("whole"):
            self.assertEqual((read["finish"], incomplete, note), ("tool_calls", [], None))
        for name in ("broken", "beside", "whole"):
            plain, streamed = self.chat_choices(name)
            for read in (plain[0], streamed[0]):
                read["tool_calls"] = [c[1:] for c in read["tool_calls"]]
            self.assertEqual(plain, streamed)

    def responses(self, script, **fields):
        tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}, {"type": "function", "name": "now"}]
        body = {"input": say(script), "temperature": 0, "tools": tools, "store": False, **fields}
        status, _, answer = self.post("/v1/responses", body)
        self.assertEqual(status, 200, answer)
        status, _, events = self.stream("/v1/responses", body)
        self.assertEqual(status, 200, events)
        final = [data for event, data in events if event in ("response.completed", "response.incomplete")][-1]["response"]
        done = [data["item"] for event, data in events if event == "response.output_item.done"]
        self.assertEqual(done, final["output"])
        for response in (answer, final):
            calls = [(i["name"], i["status"], i["arguments"]) for i in response["output"] if i["type"] == "function_call"]
            yield calls, response["status"], response.get("tool_parse_error"), json.dumps(response["output"])

    def test_responses(self):
        for calls, status, note, output in self.responses("broken"):
            [(name, state, arguments)] = calls
            self.assertEqual((name, state, status, note), ("weather", "incomplete", "completed", NOTE))
            self.assertRaises(ValueError, json.loads, arguments)
            self.assertIn("many}}", output)
        for calls, status, note, _ in self.responses("beside"):
            self.assertEqual(([c[:2] for c in calls], status, note), ([("now", "completed"), ("weather", "incomplete")], "completed", NOTE))
        for calls, status, note, _ in self.responses("whole", max_output_tokens=CUT):
            self.assertEqual(([c[:2] for c in calls], status, note), ([("weather", "incomplete")], "incomplete", CUT_NOTE))
        for calls, status, note, _ in self.responses("whole"):
            self.assertEqual(([c[:2] for c in calls], status, note), ([("weather", "completed")], "completed", None))

    def messages(self, script, max_tokens=100):
        tools = [{"name": "weather", "input_schema": PARAMETERS}, {"name": "now", "input_schema": {"type": "object"}}]
        body = {"model": "scripted", "max_tokens": max_tokens, "temperature": 0, "messages": say(script), "tools": tools}
        status, _, answer = self.post("/v1/messages", body)
        self.assertEqual(status, 200, answer)
        status, _, events = self.stream("/v1/messages", body)
        self.assertEqual(status, 200, events)
        uses = [b for b in answer["content"] if b["type"] == "tool_use"]
        yield [(u["id"], u["name"], u["input"]) for u in uses], answer["stop_reason"], answer
        starts = {data["index"]: data["content_block"] for event, data in events if event == "content_block_start"}
        inputs = {index: "" for index in starts}
        for event, data in events:
            if event == "content_block_delta" and data["delta"]["type"] == "input_json_delta":
                inputs[data["index"]] += data["delta"]["partial_json"]
        [last] = [data for event, data in events if event == "message_delta"]
        yield [(b["id"], b["name"], inputs[i]) for i, b in starts.items() if b["type"] == "tool_use"], last["delta"]["stop_reason"], last

    def test_messages(self):
        wanted = {("broken", 100): (["weather"], [0], "end_turn", NOTE), ("beside", 100): (["now", "weather"], [1], "tool_use", NOTE),
                  ("whole", CUT): (["weather"], [0], "max_tokens", CUT_NOTE), ("whole", 100): (["weather"], [], "tool_use", None)}
        for (script, limit), (names, incomplete, reason, note) in wanted.items():
            for uses, stop, holder in self.messages(script, limit):
                ids = [u[0] for u in uses]
                self.assertEqual([u[1] for u in uses], names)
                self.assertEqual([ids.index(i) for i in holder.get("incomplete_tool_uses", [])], incomplete)
                self.assertEqual((stop, holder.get("tool_parse_error")), (reason, note))
        (plain, _, answer), (streamed, _, _) = self.messages("broken")
        self.assertEqual(plain[0][2], {"city": "Oslo"}, "the members that are complete")
        self.assertTrue(re.match(r'\{"city": "Oslo"', streamed[0][2]))
        self.assertIn("many}}", json.dumps(answer["content"]))


if __name__ == "__main__":
    unittest.main()
