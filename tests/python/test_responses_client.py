"""The official openai client's Responses API, sync and async, against the scripted server: every event is parsed strictly by
the client's own models; what its accumulator makes of a stream is what an unstreamed answer says; stored answers, background
work, cancel, replay, counting."""

import asyncio
import json
import typing
import unittest

import openai
import pydantic
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent

import scripted
from scripted import call, plain, say, token

TEXT = "Leaves are green: 葉は緑 🍃, naïve café."
THOUGHT = "Chlorophyll absorbs red.\nAnd blue."
WEATHER = {"type": "function", "name": "weather", "description": "Weather of a city.", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Applies a patch.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
FILES = {"type": "namespace", "name": "mcp__files", "description": "Files.",
         "tools": [{"type": "function", "name": "read", "strict": False, "parameters": {"type": "object", "properties": {}}}]}
SCRIPTS = {
    "text": TEXT,
    "thought": [token("<think>"), f"\n{THOUGHT}\n", token("</think>"), f"\n\n{TEXT}"],
    "call": ["I will look.\n", call("weather", city="Genève", days=3)],
    "two calls": [call("weather", city="Rome"), "\n", call("weather", city="Oslo", days=1)],
    "thought call": [token("<think>"), f"\n{THOUGHT}\n", token("</think>"), "\n\n", call("weather", city="Rome")],
    "patch": [call("apply_patch", input="*** Begin\n+naïve \"x\"\n")],
    "read": [call("mcp__files__read")],
    "yes": '{"fine": true, "answer": "yes"}',
    "stranger": [call("nobody", a=1)],
    "nothing": "",
    "only thought": {"pieces": [token("<think>"), THOUGHT], "end": None},
    "typed": ["It says ", plain("<think>a</think><tool_call>{}</tool_call>"), "."],
    "long": {"pieces": ["word " * 400]},
}
# By its type, because a union tries them all.
EVENTS = {typing.get_args(model.model_fields["type"].annotation)[0]: model for model in typing.get_args(typing.get_args(ResponseStreamEvent)[0])}
SCRIPT_TOOLS = {"patch": [PATCH], "read": [FILES], "call": [WEATHER], "two calls": [WEATHER], "thought call": [WEATHER],
                "stranger": [WEATHER]}


def client(url, kind=openai.OpenAI, **kw):
    return kind(base_url=url + "/v1", **{"api_key": "none", "max_retries": 0, "timeout": scripted.CALL_S, **kw})


def items(response):
    """What a user sees of the output, without ids."""
    out = []
    for item in response.output:
        if item.type == "message":
            out.append(("message", item.status, "".join(p.text for p in item.content)))
        elif item.type == "reasoning":
            out.append(("reasoning", "".join(p.text for p in item.content or [])))
        elif item.type == "function_call":
            out.append(("function_call", item.name, getattr(item, "namespace", None), item.arguments))
        else:
            out.append((item.type, item.name, item.input))
    return out


class Sync(scripted.Case):
    SCRIPTS = SCRIPTS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.c = client(cls.server.url)
        cls.addClassCleanup(cls.c.close)

    def body(self, script, **kw):
        if script == "only thought":  # it has no end
            kw.setdefault("max_output_tokens", 40)
        return {"model": "scripted", "input": say(script), "temperature": 0, "tools": SCRIPT_TOOLS.get(script, []), **kw}

    def create(self, script, **kw):
        return self.c.responses.create(**self.body(script, **kw))

    def raw_events(self, script, **kw):
        status, _, events = self.stream("/v1/responses", self.body(script, **kw))
        self.assertEqual(status, 200, events)
        return events

    def test_text(self):
        answer = self.create("text")
        self.assertEqual(answer.output_text, TEXT)
        self.assertEqual(answer.status, "completed")
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)
        self.assertGreaterEqual(answer.completed_at, answer.created_at)

    def test_every_event_parses_strictly(self):
        for script in SCRIPTS:
            for more in ({}, {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 2}):
                with self.subTest(script=script, more=bool(more)):
                    events = self.raw_events(script, **more)
                    for number, (name, data) in enumerate(events):
                        self.assertEqual(name, data["type"])
                        self.assertEqual(data["sequence_number"], number)
                        EVENTS[name].model_validate_json(json.dumps(data), strict=True)
                    self.assertEqual([e for e, _ in events[:2]], ["response.created", "response.in_progress"])
                    self.assertIn(events[-1][0], ("response.completed", "response.incomplete"))

    def test_streams_add_up_to_unstreamed_answers(self):
        for script in SCRIPTS:
            with self.subTest(script=script):
                whole = self.create(script)
                with self.c.responses.stream(**self.body(script)) as stream:
                    events = list(stream)
                final = events[-1].response
                self.assertEqual(items(final), items(whole))
                self.assertEqual(final.status, whole.status)
                self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
                if final.status == "completed":
                    self.assertEqual(items(stream.get_final_response()), items(whole))

    def test_deltas_add_up_to_done(self):
        for script in SCRIPTS:
            with self.subTest(script=script):
                text, done = {}, {}
                for _, data in self.raw_events(script):
                    kind = data["type"]
                    if kind.endswith(".delta"):
                        key = data["output_index"]
                        text[key] = text.get(key, "") + data["delta"]
                    elif kind.endswith((".text.done", "text.done", "arguments.done", "input.done")):
                        done[data["output_index"]] = data.get("text", data.get("arguments", data.get("input")))
                self.assertEqual({k: v for k, v in done.items() if v}, text)

    def test_reasoning(self):
        answer = self.create("thought")
        self.assertEqual([i.type for i in answer.output], ["reasoning", "message"])
        self.assertIn("Chlorophyll", answer.output[0].content[0].text)
        self.assertGreater(answer.usage.output_tokens_details.reasoning_tokens, 0)
        self.assertEqual(answer.output_text.strip(), TEXT)

    def test_calls(self):
        answer = self.create("two calls")
        calls = [i for i in answer.output if i.type == "function_call"]
        self.assertEqual([(c.name, json.loads(c.arguments)) for c in calls],
                         [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo", "days": 1})])
        self.assertEqual(len({c.call_id for c in calls}), 2)
        self.assertEqual(len({c.id for c in calls}), 2)

    def test_custom_and_namespaced_calls(self):
        self.assertEqual(items(self.create("patch")), [("custom_tool_call", "apply_patch", "*** Begin\n+naïve \"x\"\n")])
        [item] = items(self.create("read"))
        self.assertEqual(item[:3], ("function_call", "read", "mcp__files"))

    def test_markers_that_a_user_typed_are_text(self):
        self.assertEqual(items(self.create("typed", tools=[WEATHER])),
                         [("message", "completed", "It says <think>a</think><tool_call>{}</tool_call>.")])

    def test_a_turn_with_a_tool_result(self):
        first = self.create("call")
        [called] = [i for i in first.output if i.type == "function_call"]
        history = [*say("call"), *[i.model_dump(exclude_none=True) for i in first.output],
                   {"type": "function_call_output", "call_id": called.call_id, "output": "snow"}, *say("text")]
        self.assertEqual(self.create("text", input=history).output_text, TEXT)
        linked = self.create("text", previous_response_id=first.id, input=[
            {"type": "function_call_output", "call_id": called.call_id, "output": [{"type": "input_text", "text": "snow"}]},
            *say("text")])
        self.assertEqual(linked.output_text, TEXT)
        self.assertEqual(linked.previous_response_id, first.id)

    def test_stateless_reasoning_comes_back(self):
        first = self.create("thought", store=False, include=["reasoning.encrypted_content"])
        sealed = first.output[0].encrypted_content
        self.assertTrue(sealed)
        self.assertNotIn("Chlorophyll", sealed)
        history = [*say("thought"), {"type": "reasoning", "id": first.output[0].id, "summary": [], "encrypted_content": sealed},
                   {"role": "assistant", "content": TEXT}, *say("text")]
        status, headers, _ = self.post("/v1/responses", {"model": "scripted", "input": history})
        self.assertEqual(status, 200)
        self.assertNotIn("x-barg-ignored", headers)
        history[1]["encrypted_content"] = sealed[:-4] + "AAAA"
        status, headers, _ = self.post("/v1/responses", {"model": "scripted", "input": history})
        self.assertEqual((status, "encrypted_content" in headers.get("x-barg-ignored", "")), (200, True))

    def test_a_cut_answer_is_incomplete(self):
        answer = self.create("long", max_output_tokens=5)
        self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertEqual(answer.usage.output_tokens, 5)
        with self.c.responses.stream(**self.body("long", max_output_tokens=5)) as stream:
            self.assertEqual(list(stream)[-1].type, "response.incomplete")

    def test_logprobs(self):
        answer = self.create("text", include=["message.output_text.logprobs"], top_logprobs=2)
        part = answer.output[0].content[0]
        self.assertEqual(b"".join(bytes(p.bytes) for p in part.logprobs).decode(), TEXT)
        self.assertTrue(all(len(p.top_logprobs) <= 2 for p in part.logprobs))
        for script in SCRIPTS:
            with self.subTest(script=script), self.c.responses.stream(**self.body(script, include=["message.output_text.logprobs"])) as stream:
                streamed, final = {}, None
                for event in stream:
                    if event.type == "response.output_text.delta":
                        streamed.setdefault(event.output_index, []).extend(event.logprobs)
                    final = getattr(event, "response", final)
                for index, item in enumerate(final.output):
                    if item.type != "message":
                        continue
                    entries = item.content[0].logprobs
                    self.assertEqual(b"".join(bytes(p.bytes) for p in entries).decode(), item.content[0].text)
                    self.assertEqual([(p.token, p.logprob) for p in streamed[index]], [(p.token, p.logprob) for p in entries])

    def test_kept_answers(self):
        answer = self.create("text", metadata={"a": "b"})
        again = self.c.responses.retrieve(answer.id)
        self.assertEqual(again.to_dict(), answer.to_dict())
        listed = self.c.responses.input_items.list(answer.id)
        self.assertEqual([i.role for i in listed.data], ["user"])
        status, _, raw = self.get(f"/v1/responses/{answer.id}/input_items")
        ResponseItemList.model_validate_json(json.dumps(raw), strict=True)
        self.c.responses.delete(answer.id)
        with self.assertRaises(openai.NotFoundError):
            self.c.responses.retrieve(answer.id)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create("text", previous_response_id=answer.id)
        self.assertEqual(caught.exception.code, "previous_response_not_found")

    def test_references(self):
        first = self.create("text")
        follow = self.create("text", input=[{"type": "item_reference", "id": first.output[0].id}, *say("text")])
        self.assertEqual(follow.output_text, TEXT)
        with self.assertRaises(openai.BadRequestError):
            self.create("text", input=[{"type": "item_reference", "id": "msg_" + "f" * 28}])

    def test_background(self):
        answer = self.create("text", background=True)
        self.assertIn(answer.status, ("queued", "in_progress", "completed"))
        scripted.wait_until(lambda: self.c.responses.retrieve(answer.id).status == "completed", "background work ends")
        self.assertEqual(self.c.responses.retrieve(answer.id).output_text, TEXT)
        self.assertEqual(self.c.responses.cancel(answer.id).status, "completed")

    def test_a_background_stream_is_resumed(self):
        with self.c.responses.create(**self.body("long", background=True, stream=True)) as stream:
            begun = [next(iter(stream)) for _ in range(3)]
        id = begun[0].response.id
        rest = list(self.c.responses.retrieve(id, stream=True, starting_after=2))
        self.assertEqual(rest[0].sequence_number, 3)
        self.assertEqual(rest[-1].type, "response.completed")
        self.assertEqual(rest[-1].response.output_text, "word " * 400)
        with self.c.responses.stream(response_id=id, starting_after=2) as stream:
            self.assertEqual(stream.get_final_response().output_text, "word " * 400)

    def test_parse(self):
        class Answer(pydantic.BaseModel):
            fine: bool
            answer: typing.Literal["yes", "no"]
        kw = {"model": "scripted", "input": say("yes"), "text_format": Answer, "temperature": 0}
        response = self.c.responses.parse(**kw)
        self.assertEqual(response.output_parsed, Answer(fine=True, answer="yes"))
        forced = self.c.responses.parse(**{**kw, "input": say("text")}, reasoning={"effort": "none"})
        self.assertIsInstance(forced.output_parsed, Answer)
        self.assertEqual(response.text.format.type, "json_schema")
        self.assertEqual(response.text.format.name, "Answer")
        with self.c.responses.stream(**kw) as stream:
            self.assertEqual(stream.get_final_response().output_parsed, response.output_parsed)
        after = self.c.responses.create(model="scripted", input=say("text"), previous_response_id=response.id, temperature=0)
        self.assertEqual((after.text.format.type, after.output_text), ("text", self.SCRIPTS["text"]))

    def test_counting(self):
        for script in ("text", "call"):
            body = self.body(script)
            body.pop("temperature")
            counted = self.c.responses.input_tokens.count(**body).input_tokens
            self.assertEqual(counted, self.create(script).usage.input_tokens)

    def test_a_probe_with_nothing_to_say(self):
        answer = self.c.responses.create(model="scripted", input="", max_output_tokens=1)
        self.assertIn(answer.status, ("completed", "incomplete"))

    def test_objects_parse_strictly(self):
        for script in SCRIPTS:
            status, _, raw = self.post("/v1/responses", self.body(script))
            self.assertEqual(status, 200)
            Response.model_validate_json(json.dumps(raw), strict=True)


class Async(scripted.Case):
    SCRIPTS = SCRIPTS

    def test_stream_and_answer(self):
        async def go():
            async with client(self.url, openai.AsyncOpenAI) as c:
                body = {"model": "scripted", "input": say("thought"), "temperature": 0}
                async with c.responses.stream(**body) as stream:
                    streamed = await stream.get_final_response()
                return items(streamed), items(await c.responses.create(**body))
        streamed, whole = asyncio.run(go())
        self.assertEqual(streamed, whole)


class Keys(scripted.Case):
    SCRIPTS = SCRIPTS
    OPTIONS = ["--api-key", "alice,bob"]

    def test_answers_belong_to_their_key(self):
        alice, bob = (client(self.url, api_key=key) for key in ("alice", "bob"))
        answer = alice.responses.create(model="scripted", input=say("text"))
        self.assertEqual(alice.responses.retrieve(answer.id).id, answer.id)
        for use in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel):
            with self.assertRaises(openai.NotFoundError):
                use(answer.id)
        alice.close()
        bob.close()


class Off(scripted.Case):
    SCRIPTS = SCRIPTS
    OPTIONS = ["--responses-store-bytes", "0"]

    def test_nothing_is_stored(self):
        status, _, answer = self.post("/v1/responses", {"input": say("text"), "store": True})
        self.assertEqual((status, answer["store"]), (200, False))
        self.assertEqual(self.get(f"/v1/responses/{answer['id']}")[0], 404)
        self.assertEqual(self.post("/v1/responses", {"input": say("text"), "background": True})[0], 400)


if __name__ == "__main__":
    unittest.main()
