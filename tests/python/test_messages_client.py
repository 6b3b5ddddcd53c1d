"""The official `anthropic` client against a model that says what scripts say: what its accumulator makes of a stream is the
unstreamed message, block by block, sync and async; histories go back as the client made them; errors are its exceptions."""

import asyncio
import base64
import json
import random
import re
import typing
import unittest

import anthropic
import pydantic
from anthropic.types import Message, RawMessageStreamEvent

import scripted
from scripted import call, plain, say, token

TOOLS = [{"name": "weather", "description": "Weather of a city.",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}},
         {"name": "now", "description": "The time.", "input_schema": {"type": "object"}}]
# By its type, because a union tries them all.
EVENTS = {typing.get_args(model.model_fields["type"].annotation)[0]: model for model in typing.get_args(typing.get_args(RawMessageStreamEvent)[0])}
THINK = [token("<think>"), "\nHm — 🍃.\n", token("</think>"), "\n\n"]


def dump(message):
    """A message without what differs between two answers: the id, and the tool ids that are made of it."""
    out = message.to_dict()
    out.pop("id")
    out.pop("stop_details", None)  # of refusals, which there are none; the accumulator makes it a null
    for ours in ("tool_parse_error", "incomplete_tool_uses"):  # beside the message: the accumulator has no place for them
        out.pop(ours, None)
    for block in out["content"]:
        if block["type"] == "tool_use":
            assert re.fullmatch(r"toolu_[A-Za-z0-9_-]+", block.pop("id"))
    cached = out["usage"].pop("cache_read_input_tokens")
    out["usage"]["input_tokens"] += cached
    return out


class Client(scripted.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.c = anthropic.Anthropic(base_url=cls.server.url, api_key="key", max_retries=0, timeout=scripted.CALL_S)
        cls.addClassCleanup(cls.c.close)

    def ask(self, script, **kw):
        body = {"temperature": kw.pop("temperature", 0), **kw.pop("extra_body", {})}  # the client has no such parameter any more
        return {"model": "scripted", "max_tokens": 300, "messages": say(script), "extra_body": body, **kw}

    def plain(self, script, **kw):
        return self.c.messages.create(**self.ask(script, **kw))

    def streamed(self, script, **kw):
        with self.c.messages.stream(**self.ask(script, **kw)) as stream:
            return stream.get_final_message()

    def both(self, script, **kw):
        """The message; the same streamed or not, sync or async."""
        message, streamed = self.plain(script, **kw), self.streamed(script, **kw)
        self.assertEqual(dump(streamed), dump(message))

        async def asynchronous():
            async with anthropic.AsyncAnthropic(base_url=self.url, api_key="key", max_retries=0) as c:
                async with c.messages.stream(**self.ask(script, **kw)) as stream:
                    return await stream.get_final_message(), await c.messages.create(**self.ask(script, **kw))
        for other in asyncio.run(asynchronous()):
            self.assertEqual(dump(other), dump(message))
        return message


class Qwen3(Client):
    FAMILY = "qwen3"
    OPTIONS = ["--api-key", "key"]
    SCRIPTS = {
        "text": "Leaves are green: \"🍃\", \\ and \u2028.", "nothing": "",
        "thought": [*THINK, "Yes."],
        "calls": [*THINK, "I look.\n", call("weather", city="Genève \"x\" \\", days=3), "\n", call("now")],
        "only call": [call("now")],
        "one call": [call("weather", city="Rome", days=2)],
        "unknown": [call("nobody", a=1), "\n", call("weather", city="Rome")],
        "typed": ["He wrote ", plain("<tool_call>"), " himself."],
        "broken": [token("<tool_call>"), "\n{\"name\": weather, oops}\n", token("</tool_call>"), "tail"],
        "open thought": [token("<think>"), "\nand on and on"],
        "device": {"pieces": ["one two three"], "fail_after": 2},
        "slow": {"pieces": ["one two three four five six"], "delay_ms": 30},
    }

    def blocks(self, message):
        return [b.type for b in message.content]

    def test_text(self):
        message = self.both("text")
        self.assertEqual((self.blocks(message), message.content[0].text), (["text"], self.SCRIPTS["text"]))
        self.assertEqual((message.stop_reason, message.stop_sequence), ("end_turn", None))

    def test_nothing(self):
        self.assertEqual(self.both("nothing").content, [])

    def test_thinking(self):
        message = self.both("thought")
        self.assertEqual(self.blocks(message), ["thinking", "text"])
        self.assertEqual(message.content[0].thinking.strip(), "Hm — 🍃.")
        self.assertTrue(message.content[0].signature)
        self.assertEqual(message.content[1].text.strip(), "Yes.")
        self.assertGreater(message.usage.output_tokens_details.thinking_tokens, 0)

    def test_thinking_may_be_left_out(self):
        for kw in ({"thinking": {"type": "adaptive", "display": "omitted"}}, {"extra_body": {"include_reasoning": False}}):
            message = self.both("thought", **kw)
            self.assertEqual((self.blocks(message), message.content[0].text.strip()), (["text"], "Yes."))
            self.assertGreater(message.usage.output_tokens_details.thinking_tokens, 0)

    def test_calls(self):
        message = self.both("calls", tools=TOOLS)
        self.assertEqual(self.blocks(message), ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual([(b.name, b.input) for b in message.content[2:]],
                         [("weather", {"city": "Genève \"x\" \\", "days": 3}), ("now", {})])
        self.assertEqual(message.stop_reason, "tool_use")
        self.assertNotEqual(message.content[2].id, message.content[3].id)

    def test_a_call_alone(self):
        message = self.both("only call", tools=TOOLS)
        self.assertEqual((self.blocks(message), message.content[0].input), (["tool_use"], {}))

    def test_an_unknown_name_passes_beside_its_neighbour(self):
        message = self.both("unknown", tools=TOOLS)
        uses = [b.to_dict() for b in message.content if b.type == "tool_use"]
        self.assertEqual([(b["name"], b.get("undeclared", False)) for b in uses], [("nobody", True), ("weather", False)])

    def test_markers_that_a_user_typed(self):
        self.assertEqual(self.both("typed", tools=TOOLS).content[0].text, "He wrote <tool_call> himself.")

    def test_a_malformed_call_is_text(self):
        message = self.both("broken", tools=TOOLS)
        self.assertIn("oops", message.content[0].text)
        self.assertEqual((self.blocks(message), message.stop_reason), (["text"], "end_turn"))
        self.assertTrue(message.to_dict()["tool_parse_error"])

    def test_without_tools_nothing_is_a_call(self):
        for kw in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": {"type": "none"}}):
            self.assertEqual(self.both("only call", **kw).stop_reason, "end_turn")

    def test_one_call_at_a_time(self):
        message = self.both("calls", tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
        self.assertEqual([b.name for b in message.content if b.type == "tool_use"], ["weather"])

    def test_cut_anywhere_streams_and_bodies_agree(self):
        for cut in range(1, 60, 3):
            with self.subTest(cut):
                message = self.plain("calls", tools=TOOLS, max_tokens=cut)
                self.assertEqual(dump(self.streamed("calls", tools=TOOLS, max_tokens=cut)), dump(message))
                self.assertIn(message.stop_reason, ("max_tokens", "tool_use"))

    def test_an_open_thought_stays_one(self):
        message = self.both("open thought", max_tokens=6)
        self.assertEqual((self.blocks(message), message.stop_reason), (["thinking"], "max_tokens"))

    def test_stop_sequences(self):
        message = self.both("text", stop_sequences=["green", "never"])
        self.assertEqual((message.stop_reason, message.stop_sequence, message.content[0].text), ("stop_sequence", "green", "Leaves are "))

    def test_events_of_the_helper(self):
        with self.c.messages.stream(**self.ask("calls", tools=TOOLS)) as stream:
            kinds = [event.type for event in stream]
        for kind in ("thinking", "signature", "text", "input_json", "content_block_stop", "message_stop"):
            self.assertIn(kind, kinds)
        with self.c.messages.stream(**self.ask("text")) as stream:
            self.assertEqual("".join(stream.text_stream), self.SCRIPTS["text"])

    def test_every_event_parses_strictly(self):
        for script in ("text", "nothing", "thought", "calls", "unknown", "broken"):
            for cut in (3, 20, 300):
                with self.subTest(script, cut=cut):
                    body = {"model": "scripted", "max_tokens": cut, "messages": say(script), "tools": TOOLS, "temperature": 0}
                    headers = {"x-api-key": "key"}
                    for name, data in self.stream("/v1/messages", body, headers)[2]:
                        self.assertEqual(name, data["type"])
                        EVENTS[name].model_validate_json(json.dumps(data), strict=True)
                    Message.model_validate_json(json.dumps(self.post("/v1/messages", body, headers)[2]), strict=True)

    def test_the_tool_helper_runs_to_the_end(self):
        @anthropic.beta_tool
        def weather(city: str, days: int) -> str:
            """Weather of a city.

            Args:
                city: which
                days: how many
            """
            seen.append((city, days))
            return "sun [[script text]]"
        seen = []
        runner = self.c.beta.messages.tool_runner(model="scripted", max_tokens=300, tools=[weather], messages=say("one call"))
        messages = list(runner)
        self.assertEqual((seen, [m.stop_reason for m in messages]), ([("Rome", 2)], ["tool_use", "end_turn"]))
        self.assertEqual(messages[-1].content[0].text, self.SCRIPTS["text"])

    def test_parse(self):
        class Answer(pydantic.BaseModel):
            fine: bool
            answer: typing.Literal["yes", "no"]
        message = self.c.messages.parse(model="scripted", max_tokens=120, messages=say("text"), output_format=Answer)
        self.assertIsInstance(message.parsed_output, Answer)
        self.both("text", output_config={"format": {"type": "json_schema", "schema": Answer.model_json_schema()}})

    def test_a_call_that_is_asked_for_comes(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": TOOLS[0]["name"]}):
            message = self.both("one call", tools=TOOLS, tool_choice=choice)
            self.assertEqual({b.type for b in message.content} - {"thinking"}, {"tool_use"})

    def test_a_conversation_goes_back_as_it_came(self):
        messages = say("calls")
        first = self.plain("calls", tools=TOOLS)
        messages.append({"role": "assistant", "content": first.content})  # the client's own objects
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "sun"},
            {"type": "tool_result", "tool_use_id": first.content[3].id, "content": [{"type": "text", "text": "noon"}], "is_error": True},
            {"type": "text", "text": "[[script text]]"}]})
        response = self.c.messages.with_raw_response.create(**self.ask("", tools=TOOLS, messages=messages))
        self.assertEqual(response.parse().content[0].text, self.SCRIPTS["text"])
        self.assertNotIn("signature", response.headers.get("x-barg-ignored", ""))
        changed = json.loads(json.dumps([m if isinstance(m["content"], str) else {**m, "content": [
            b if isinstance(b, dict) else b.to_dict() for b in m["content"]]} for m in messages]))
        changed[1]["content"][0]["thinking"] += "!"
        response = self.c.messages.with_raw_response.create(**self.ask("", tools=TOOLS, messages=changed))
        self.assertIn("messages.1.content.0.signature", response.headers["x-barg-ignored"])

    def test_usage_and_counting(self):
        kw = {"system": "You are a leaf. " * 40, "tools": TOOLS}
        counted = self.c.messages.count_tokens(model="scripted", messages=say("text"), **kw).input_tokens
        for message in (self.plain("text", **kw), self.streamed("text", **kw)):
            usage = message.usage
            self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens, counted)
        self.assertGreater(usage.cache_read_input_tokens, usage.input_tokens)

    def test_errors(self):
        bad = ({"temperature": 9}, {"tools": TOOLS, "tool_choice": {"type": "any"}, "output_config": {"format": {"type": "json_schema", "schema": {}}}},
               {"output_config": {"format": {"type": "json_schema", "schema": {"type": "strnig"}}}})
        for kw in bad:
            for ask in (self.plain, self.streamed):
                with self.assertRaises(anthropic.BadRequestError) as caught:
                    ask("text", **kw)
                error = caught.exception
                self.assertEqual((error.body["type"], error.body["error"]["type"]), ("error", "invalid_request_error"))
                self.assertEqual(error.body["request_id"], error.request_id)
                self.assertIn(next(reversed(kw)), error.message)
        with self.assertRaises(anthropic.NotFoundError):
            self.plain("text", model="nobody")
        with self.assertRaises(anthropic.AuthenticationError):
            self.c.with_options(api_key="wrong").messages.create(**self.ask("text"))
        with self.assertRaises(anthropic.APIStatusError) as caught:
            self.streamed("device")
        self.assertEqual(caught.exception.body["error"]["type"], "api_error")

    def test_bearer_tokens_are_keys_too(self):
        with anthropic.Anthropic(base_url=self.url, auth_token="key", api_key=None, max_retries=0) as c:
            self.assertEqual(c.messages.create(**self.ask("text")).stop_reason, "end_turn")

    def test_request_ids(self):
        message = self.plain("text")
        self.assertTrue(message._request_id)
        self.assertTrue(message.id.startswith("msg_"))

    def test_models(self):
        models = self.c.models.list()
        self.assertEqual([m.id for m in models], ["scripted"])
        one = self.c.models.retrieve("scripted")
        self.assertEqual((one.type, one.display_name, one.lifecycle), ("model", "scripted", "active"))
        with self.assertRaises(anthropic.NotFoundError):
            self.c.models.retrieve("nobody")

    def test_a_retry_finds_its_answer(self):
        kw = {"extra_headers": {"Idempotency-Key": "k1"}}
        first, again = (self.c.messages.create(**self.ask("slow"), **kw) for _ in range(2))
        self.assertEqual(first.id, again.id)
        kw = {"extra_headers": {"Idempotency-Key": "k2"}}
        with self.c.messages.stream(**self.ask("slow"), **kw) as stream:
            next(iter(stream))  # and leaves in the middle
        with self.c.messages.stream(**self.ask("slow"), **kw) as stream:
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, "one two three four five six")
        with self.assertRaises(anthropic.ConflictError):
            self.c.messages.create(**self.ask("text"), **kw)


class KimiK2(Client):
    FAMILY = "kimi_k2"
    SCRIPTS = {"one": [call("weather", "kimi_k2", city="Rome")], "text": "Fine."}

    def test_the_models_ids_come_back(self):
        message = self.both("one", tools=TOOLS)
        [use] = [b for b in message.content if b.type == "tool_use"]
        encoded = use.id.split("_", 2)[2]
        self.assertEqual(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)), b"functions.weather:0")
        messages = say("one") + [{"role": "assistant", "content": message.content},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sun [[script text]]"}]}]
        self.assertEqual(self.plain("", tools=TOOLS, messages=messages).content[0].text, "Fine.")


class Cuts(Client):
    """Arguments that break off: the body holds what the client's own parser makes of the same bytes."""
    FAMILY = "qwen3"
    ARGUMENTS = ['{"a": 1, "b": [1, -2.5e3, null, true', '{"q": "x \\"y\\" é", "l": [{"z": "open', '{"n": 12', '{"n": -', '{"t": tru', '{"k', '{"k":', "{",
                 '{"a": {"b": {}}, "c": [[1], [', '{"s": "\\u00e9\\n", "u": "\\ud83d']
    SCRIPTS = {str(i): [token("<tool_call>"), '\n{"name": "f", "arguments": ' + text] for i, text in enumerate(ARGUMENTS)}

    def test_every_cut(self):
        from jiter import from_json
        tools = [{"name": "f", "input_schema": {"type": "object"}}]
        seen = 0
        for i, _ in enumerate(self.ARGUMENTS):
            for cut in random.Random(i).sample(range(8, 40), 6):
                with self.subTest(i=i, cut=cut):
                    body = self.plain(str(i), tools=tools, max_tokens=cut)
                    status, _, events = self.stream("/v1/messages", self.ask(str(i), tools=tools, max_tokens=cut))
                    pieces = "".join(d["delta"].get("partial_json", "") for kind, d in events if kind == "content_block_delta")
                    inputs = [b.input for b in body.content if b.type == "tool_use"]
                    if inputs:
                        seen += 1
                        self.assertEqual(inputs, [from_json(pieces.encode(), partial_mode=True) if pieces else {}])
        self.assertGreater(seen, 10)


if __name__ == "__main__":
    unittest.main()
