"""What real clients send, to the letter: shapes/*.json are requests of agents, front ends and libraries. Each is accepted,
and its answer has what that client depends on. A shape names its client, endpoint, headers, body and the checks below."""

import json
import pathlib
import unittest

import scripted
from scripted import call, joined, token

TEXT = "Leaves are green. 🍃"
THINK = [token("<think>"), "\nLook first.\n", token("</think>"), "\n\n"]
ARGUMENTS = {"add": {"a": 4, "b": 5}, "now": {}, "execute_command": {"command": "ls", "requires_approval": False}}
SHAPES = sorted((pathlib.Path(__file__).parent / "shapes").glob("*.json"))


class Shapes(scripted.Case):
    FAMILY = "qwen3"
    OPTIONS = ["--api-key", "key"]
    SCRIPTS = {
        "text": TEXT,
        "bash": [*THINK, "I will list them.\n", call("Bash", command="ls -la", timeout=1000)],
        "shell": [*THINK, call("shell", command=["ls", "-la"])],
        "add": call("add", **ARGUMENTS["add"]),
        "thought shell": [*THINK, call("execute_command", **ARGUMENTS["execute_command"])],
        "thought now": [*THINK, call("now")],
    }

    def answer_of(self, shape):
        """Answers as checks take them: JSON, or the list of (event, data)."""
        ask = self.stream if shape["body"].get("stream") else self.post
        status, headers, answer = ask(shape["endpoint"], shape["body"], shape["headers"])
        self.assertEqual(status, 200, answer)
        self.assertTrue(headers.get("x-request-id"))
        return answer

    def check(self, name, answer):
        getattr(self, "check_" + name.replace(" ", "_"))(answer)

    # ---- chat

    def chunks(self, events):
        self.assertTrue(all(event is None for event, _ in events))
        self.assertEqual(events[-1][1], "[DONE]")
        return [data for _, data in events[:-1]]

    def check_chat_stream(self, events):
        chunks = self.chunks(events)
        self.assertEqual(len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}), 1)
        self.assertEqual(chunks[0]["choices"][0]["delta"].get("role"), "assistant")
        self.assertIn(joined(chunks)["finish"], ("stop", "length", "tool_calls"))

    def check_finished(self, events):
        self.assertEqual((joined(self.chunks(events))["content"], joined(self.chunks(events))["finish"]), (TEXT, "stop"))

    def check_reasoning_content(self, events):
        self.assertEqual(joined(self.chunks(events))["reasoning"].strip(), "Look first.")

    def check_tool_calls_deltas(self, events):
        answer = joined(self.chunks(events))
        [(_, name, arguments)] = answer["tool_calls"]
        self.assertEqual((json.loads(arguments), answer["finish"]), (ARGUMENTS[name], "tool_calls"))

    def check_usage_chunk(self, events):
        last = self.chunks(events)[-1]
        self.assertEqual(last["choices"], [])
        self.check_usage(last)

    def check_no_usage_before_the_end(self, events):
        self.assertTrue(all(c.get("usage") is None for c in self.chunks(events)[:-1]))

    def check_cached_tokens(self, events):
        self.assertGreaterEqual(self.chunks(events)[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def check_usage(self, answer):
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertGreater(usage["completion_tokens"], 0)

    def check_chat_answer(self, answer):
        choice = answer["choices"][0]
        self.assertEqual((choice["message"]["role"], choice["message"]["content"], choice["finish_reason"]), ("assistant", TEXT, "stop"))

    def check_logprobs(self, answer):
        self.assertEqual(b"".join(bytes(e["bytes"]) for e in answer["choices"][0]["logprobs"]["content"]).decode(), TEXT)

    def check_completion_stream(self, events):
        self.assertTrue("".join(c["text"] for data in self.chunks(events) for c in data["choices"]).startswith(TEXT))

    def check_exactly_24_tokens(self, events):
        self.assertEqual(self.chunks(events)[-1]["usage"]["completion_tokens"], 24)

    # ---- Messages

    def check_messages_order(self, events):
        self.assertTrue(all(event == data["type"] for event, data in events))
        kinds = [kind for kind, _ in events if kind != "ping"]
        self.assertEqual((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))
        start = events[0][1]["message"]
        self.assertEqual((start["type"], start["role"], start["content"], start["stop_reason"]), ("message", "assistant", [], None))
        opened, count = None, 0
        for kind, data in events[1:]:
            if kind == "content_block_start":
                self.assertIsNone(opened, "a block ends before the next one begins")
                self.assertEqual(data["index"], count)
                opened, count = count, count + 1
            elif kind in ("content_block_delta", "content_block_stop"):
                self.assertEqual(data["index"], opened)
                opened = None if kind == "content_block_stop" else opened
        self.assertIsNone(opened)
        self.assertNotIn("[DONE]", [data for _, data in events])

    def blocks(self, events):
        out = []
        for kind, data in events:
            if kind == "content_block_start":
                out.append({**data["content_block"], "pieces": ""})
            elif kind == "content_block_delta":
                delta = data["delta"]
                out[-1]["pieces"] += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        return out

    def check_tool_use(self, events):
        thinking, *_, use = self.blocks(events)
        self.assertEqual((thinking["type"], thinking["pieces"].strip()), ("thinking", "Look first."))
        self.assertEqual((use["type"], use["name"], use["input"]), ("tool_use", "Bash", {}))
        self.assertTrue(use["id"].startswith("toolu_"))
        self.assertEqual(json.loads(use["pieces"]), {"command": "ls -la", "timeout": 1000})
        self.assertEqual(events[-2][1]["delta"]["stop_reason"], "tool_use")

    def check_text(self, events):
        self.assertEqual("".join(b["pieces"] for b in self.blocks(events) if b["type"] == "text"), TEXT)
        self.assertEqual(events[-2][1]["delta"], {"stop_reason": "end_turn", "stop_sequence": None})

    def check_cache_usage(self, events):
        usage = events[0][1]["message"]["usage"]
        for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            self.assertIsInstance(usage[key], int, key)
        self.assertGreater(events[-2][1]["usage"]["output_tokens"], 0)

    def check_input_tokens(self, answer):
        self.assertGreater(answer["input_tokens"], 50)

    def check_message(self, answer):
        self.assertEqual((answer["type"], answer["role"], answer["stop_reason"]), ("message", "assistant", "max_tokens"))

    # ---- Responses

    def check_responses_order(self, events):
        events = [e for e in events if e[1] != "[DONE]"]
        self.assertTrue(all(event == data["type"] for event, data in events))
        self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
        self.assertEqual((events[0][0], events[-1][0]), ("response.created", "response.completed"))
        added = [data["output_index"] for kind, data in events if kind == "response.output_item.added"]
        done = [data["output_index"] for kind, data in events if kind == "response.output_item.done"]
        self.assertEqual((added, done), (list(range(len(added))), list(range(len(added)))))
        self.assertEqual(len(events[-1][1]["response"]["output"]), len(added))

    def final(self, events):
        return [data for kind, data in events if kind == "response.completed"][0]["response"]

    def check_function_call(self, events):
        item = self.final(events)["output"][-1]
        self.assertEqual((item["type"], item["name"], json.loads(item["arguments"])), ("function_call", "shell", {"command": ["ls", "-la"]}))
        self.assertTrue(item["call_id"])
        self.assertIn("response.reasoning_text.delta", {kind for kind, _ in events})

    def check_output_text(self, events):
        self.assertEqual("".join(d["delta"] for kind, d in events if kind == "response.output_text.delta"), TEXT)

    def check_response_usage(self, events):
        usage = self.final(events)["usage"]
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        self.assertIn("cached_tokens", usage["input_tokens_details"])
        self.assertIn("reasoning_tokens", usage["output_tokens_details"])

    def check_response(self, answer):
        self.assertEqual((answer["object"], answer["status"]), ("response", "incomplete"))


def add_test(path):
    shape = json.loads(path.read_text())

    def test(self):
        answer = self.answer_of(shape)
        for name in shape["depends_on"]:
            with self.subTest(name):
                self.check(name, answer)
    test.__doc__ = shape["client"]
    setattr(Shapes, "test_" + path.stem, test)


for shape_path in SHAPES:
    add_test(shape_path)


class Lists(scripted.Case):
    OPTIONS = ["--api-key", "key"]

    def test_models_as_front_ends_read_them(self):
        for headers in ({"Authorization": "Bearer key"}, {"x-api-key": "key", "Authorization": "Bearer key"}):
            status, _, answer = self.get("/v1/models", headers)
            self.assertEqual((status, answer["object"], answer["data"][0]["id"]), (200, "list", "scripted"))
            self.assertGreater(answer["data"][0]["max_model_len"], 0)

    def test_there_are_shapes_of_each_client(self):
        names = " ".join(path.stem for path in SHAPES)
        for client in ("claude_code", "codex", "cline", "continue", "open_webui", "langchain", "litellm"):
            self.assertIn(client, names)


if __name__ == "__main__":
    unittest.main()
