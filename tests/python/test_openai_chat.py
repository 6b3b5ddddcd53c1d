"""The official openai client, sync and async, against Chat Completions and Completions of the scripted server: plain answers
and streams, its accumulator, choices, log-probabilities, reasoning, usage, headers."""

import asyncio
import json
import unittest

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

import scripted
from scripted import call, plain, say, token

TEXT = "Leaves are green: 葉は緑 🍃, naïve café."
THOUGHT = "Chlorophyll absorbs red.\nAnd blue."
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
SCRIPTS = {
    "text": TEXT,
    "lines": "first line\nsecond line\nthird line",
    "thought": [token("<think>"), f"\n{THOUGHT}\n", token("</think>"), f"\n\n{TEXT}"],
    "only thought": {"pieces": [token("<think>"), THOUGHT], "end": None},
    "call": ["I will look.\n", call("weather", city="Genève", days=3)],
    "two calls": [call("weather", city="Rome"), "\n", call("weather", city="Oslo", days=1)],
    "thought call": [token("<think>"), f"\n{THOUGHT}\n", token("</think>"), "\n\n", call("weather", city="Rome")],
    "choices": {"choices": [["alpha"], [token("<think>"), "\nbeta thinks\n", token("</think>"), "\n\nbeta"],
                            [call("weather", city="gamma")]]},
    "nothing": "",
    "typed": ["It says ", plain("<think>a</think><tool_call>{}</tool_call>"), "."],
}


def client(url, kind=openai.OpenAI, **kw):
    return kind(base_url=url + "/v1", api_key="none", **{"max_retries": 0, "timeout": scripted.CALL_S, **kw})


def seen(choice):
    """What a user of the client sees of a choice, however it came."""
    message = choice.message
    return {"content": message.content or "", "reasoning": getattr(message, "reasoning_content", None) or "",
            "tool_calls": [(c.function.name, c.function.arguments) for c in message.tool_calls or []],
            "finish": choice.finish_reason, "role": message.role}


class Sync(scripted.Case):
    SCRIPTS = SCRIPTS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.c = client(cls.server.url)
        cls.addClassCleanup(cls.c.close)

    def create(self, script, **kw):
        return self.c.chat.completions.create(**{"model": "scripted", "messages": say(script), "temperature": 0, **kw})

    def accumulated(self, script, **kw):
        kw = {"model": "scripted", "messages": say(script), "temperature": 0, **kw}
        with self.c.chat.completions.stream(**kw) as stream:
            events = list(stream)
            return events, stream.current_completion_snapshot

    def test_plain(self):
        answer = self.create("text")
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.model, "scripted")
        self.assertEqual(seen(answer.choices[0]), {"content": TEXT, "reasoning": "", "tool_calls": [], "finish": "stop", "role": "assistant"})
        self.assertIsNone(answer.choices[0].message.tool_calls)
        self.assertIsNone(answer.choices[0].message.refusal)

    def test_the_accumulator_gives_the_unstreamed_answer(self):
        for script in sorted(SCRIPTS):
            for tools in (openai.omit, [WEATHER]):
                with self.subTest(script, tools=tools is not openai.omit):
                    kw = {"tools": tools, "max_tokens": 60, "n": 3 if script == "choices" else 1}
                    answer = self.create(script, **kw)
                    _, snapshot = self.accumulated(script, stream_options={"include_usage": True}, **kw)
                    self.assertEqual([seen(c) for c in snapshot.choices], [seen(c) for c in answer.choices])
                    self.assertEqual([c.index for c in snapshot.choices], list(range(len(answer.choices))))
                    self.assertEqual(snapshot.usage.completion_tokens, answer.usage.completion_tokens)
                    self.assertEqual(snapshot.usage.completion_tokens_details, answer.usage.completion_tokens_details)
                    self.assertEqual(snapshot.usage.prompt_tokens, answer.usage.prompt_tokens)

    def test_events_of_the_accumulator(self):
        events, _ = self.accumulated("two calls", tools=[WEATHER])
        done = [e for e in events if e.type == "tool_calls.function.arguments.done"]
        self.assertEqual([(e.index, e.name) for e in done], [(0, "weather"), (1, "weather")])
        self.assertEqual("".join(e.arguments_delta for e in events if e.type == "tool_calls.function.arguments.delta" and e.index == 1),
                         done[1].arguments)
        events, _ = self.accumulated("text")
        self.assertEqual("".join(e.delta for e in events if e.type == "content.delta"), TEXT)
        self.assertEqual([e.content for e in events if e.type == "content.done"], [TEXT])

    def test_chunks(self):
        chunks = list(self.create("text", stream=True, stream_options={"include_usage": True}))
        self.assertEqual(len({(c.id, c.created, c.model, c.object) for c in chunks}), 1)
        first, last = chunks[0].choices[0], chunks[-2].choices[0]
        self.assertEqual((first.delta.role, first.delta.content, first.finish_reason), ("assistant", "", None))
        self.assertEqual((last.delta.content, last.finish_reason), (None, "stop"))
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.total_tokens > 0), ([], True))
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))
        self.assertTrue(all(c.choices for c in self.create("text", stream=True)))
        state = ChatCompletionStreamState()
        for chunk in chunks:
            state.handle_chunk(chunk)
        self.assertEqual(state.get_final_completion().choices[0].message.content, TEXT)

    def test_reasoning(self):
        answer = self.create("thought")
        message = answer.choices[0].message
        self.assertEqual(message.content.strip(), TEXT)
        self.assertEqual(message.reasoning_content.strip(), THOUGHT)
        self.assertEqual(message.reasoning, message.reasoning_content)
        details = answer.usage.completion_tokens_details
        self.assertGreater(details.reasoning_tokens, 3)
        self.assertLess(details.reasoning_tokens, answer.usage.completion_tokens)
        deltas = [c.choices[0].delta for c in self.create("thought", stream=True)]
        self.assertEqual("".join(getattr(d, "reasoning_content", None) or "" for d in deltas), message.reasoning_content)
        self.assertEqual("".join(getattr(d, "reasoning", None) or "" for d in deltas), message.reasoning_content)

    def test_reasoning_that_is_cut_stays_reasoning(self):
        choice = self.create("only thought", max_tokens=40).choices[0]
        self.assertEqual(choice.finish_reason, "length")
        self.assertFalse(choice.message.content)
        self.assertTrue(choice.message.reasoning_content.startswith(THOUGHT))

    def test_reasoning_can_be_left_out(self):
        for effort in ({"reasoning_effort": "none"}, {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}):
            with self.subTest(effort):
                message = self.create("text", **effort).choices[0].message
                self.assertEqual(message.content, TEXT)
        message = self.create("thought", extra_body={"include_reasoning": False}).choices[0].message
        self.assertEqual(message.content.strip(), TEXT)
        self.assertFalse(getattr(message, "reasoning_content", None))

    def test_a_thinking_budget_ends_it(self):
        answer = self.create("thought", extra_body={"thinking_token_budget": 4})
        self.assertLessEqual(answer.usage.completion_tokens_details.reasoning_tokens, 8)
        self.assertEqual(answer.choices[0].message.content.strip(), TEXT)

    def test_markers_that_a_user_typed(self):
        message = self.create("typed", tools=[WEATHER]).choices[0].message
        self.assertEqual(message.content, "It says <think>a</think><tool_call>{}</tool_call>.")
        self.assertIsNone(message.tool_calls)

    def test_choices(self):
        for stream in (False, True):
            if stream:
                _, answer = self.accumulated("choices", n=3, tools=[WEATHER])
            else:
                answer = self.create("choices", n=3, tools=[WEATHER])
            a, b, c = (seen(choice) for choice in answer.choices)
            self.assertEqual((a["content"], a["reasoning"], a["tool_calls"]), ("alpha", "", []))
            self.assertEqual((b["content"].strip(), b["reasoning"].strip(), b["tool_calls"]), ("beta", "beta thinks", []))
            self.assertEqual((c["content"], [(n, json.loads(a)) for n, a in c["tool_calls"]]), ("", [("weather", {"city": "gamma"})]))
            self.assertEqual([x["finish"] for x in (a, b, c)], ["stop", "stop", "tool_calls"])

    def test_logprobs(self):
        for script in ("text", "thought", "call"):
            with self.subTest(script):
                answer = self.create(script, logprobs=True, top_logprobs=2, tools=[WEATHER])
                entries = answer.choices[0].logprobs.content
                self.assertEqual(b"".join(bytes(e.bytes) for e in entries).decode(), answer.choices[0].message.content)
                _, snapshot = self.accumulated(script, logprobs=True, top_logprobs=2, tools=[WEATHER])
                self.assertEqual([(e.token, e.logprob) for e in snapshot.choices[0].logprobs.content],
                                 [(e.token, e.logprob) for e in entries])
        entries = self.create("text", logprobs=True).choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(e.bytes) for e in entries).decode(), TEXT)
        self.assertTrue(all(e.top_logprobs == [] for e in entries))

    def test_content_is_null_where_there_are_only_calls(self):
        """Streamed and put together by the client's accumulator, as unstreamed."""
        for script, content in (("two calls", None), ("thought call", None), ("call", "I will look."), ("text", TEXT), ("nothing", "")):
            for kw in ({"tools": [WEATHER]}, {"tools": [WEATHER], "logprobs": True, "extra_body": {"return_token_ids": True}}):
                with self.subTest(script, **kw):
                    self.assertEqual(self.create(script, **kw).choices[0].message.content, content)
                    _, snapshot = self.accumulated(script, **kw)
                    self.assertEqual(snapshot.choices[0].message.content, content)
        self.assertEqual(self.accumulated("nothing")[1].choices[0].message.content, "")
        functions = {"functions": [WEATHER["function"]]}
        self.assertIsNone(self.create("thought call", **functions).choices[0].message.content)
        state = ChatCompletionStreamState()
        for chunk in self.create("thought call", stream=True, **functions):
            state.handle_chunk(chunk)
        self.assertIsNone(state.current_completion_snapshot.choices[0].message.content)

    def test_stop_strings(self):
        for stop in ("second", ["line\nthird", "nothing like it"], "d l"):
            whole = SCRIPTS["lines"]
            want = whole[:whole.index(stop if isinstance(stop, str) else stop[0])]
            with self.subTest(stop):
                answer = self.create("lines", stop=stop)
                self.assertEqual((answer.choices[0].message.content, answer.choices[0].finish_reason), (want, "stop"))
                _, snapshot = self.accumulated("lines", stop=stop)
                self.assertEqual(snapshot.choices[0].message.content, want)

    def test_length(self):
        for stream in (False, True):
            answer = self.accumulated("call", max_tokens=25)[1] if stream else self.create("call", max_tokens=25)
            self.assertEqual(answer.choices[0].finish_reason, "length")
        with self.assertRaises(openai.LengthFinishReasonError):
            with self.c.chat.completions.stream(model="scripted", messages=say("text"), max_tokens=2) as stream:
                stream.get_final_completion()

    def test_completions(self):
        answer = self.c.completions.create(model="scripted", prompt=["[[script text]]", "[[script lines]]"], max_tokens=80)
        self.assertEqual([c.text for c in answer.choices], [TEXT, SCRIPTS["lines"]])
        chunks = list(self.c.completions.create(model="scripted", prompt="[[script text]]", max_tokens=80, stream=True))
        self.assertEqual("".join(c.choices[0].text for c in chunks), TEXT)
        # Completions are what the model says, markers and all.
        raw = self.c.completions.create(model="scripted", prompt="[[script call]]", max_tokens=80).choices[0].text
        self.assertIn("<tool_call>", raw)

    def test_raw_responses(self):
        raw = self.c.chat.completions.with_raw_response.create(model="scripted", messages=say("text"), extra_body={"made_up": 1})
        self.assertEqual(raw.status_code, 200)
        self.assertEqual(raw.headers["content-type"].split(";")[0], "application/json")
        self.assertEqual(raw.headers["x-request-id"], raw.request_id)
        self.assertIn("made_up", raw.headers["x-barg-ignored"])
        self.assertEqual(raw.parse().choices[0].message.content, TEXT)
        with self.c.chat.completions.with_streaming_response.create(model="scripted", messages=say("text"), stream=True) as raw:
            self.assertEqual(raw.headers["content-type"].split(";")[0], "text/event-stream")
            self.assertEqual(raw.headers["cache-control"], "no-cache")
            lines = list(raw.iter_lines())
        self.assertEqual([line for line in lines if line][-1], "data: [DONE]")

    def test_request_ids(self):
        self.assertEqual(self.create("text", extra_headers={"X-Request-Id": "mine-1"})._request_id, "mine-1")
        self.assertNotEqual(self.create("text")._request_id, self.create("text")._request_id)

    def test_models(self):
        [model] = self.c.models.list().data
        self.assertEqual((model.id, model.object), ("scripted", "model"))
        self.assertGreater(self.c.models.retrieve("scripted").max_model_len, 0)


class Async(scripted.Case, unittest.IsolatedAsyncioTestCase):
    SCRIPTS = SCRIPTS

    async def asyncSetUp(self):
        self.c = client(self.url, openai.AsyncOpenAI)

    async def asyncTearDown(self):
        await self.c.close()

    async def create(self, script, **kw):
        return await self.c.chat.completions.create(**{"model": "scripted", "messages": say(script), "temperature": 0, **kw})

    async def test_plain_and_stream(self):
        for script in ("text", "thought", "two calls", "thought call"):
            with self.subTest(script):
                answer = await self.create(script, tools=[WEATHER])
                async with self.c.chat.completions.stream(model="scripted", messages=say(script), temperature=0,
                                                          tools=[WEATHER]) as stream:
                    final = await stream.get_final_completion()
                self.assertEqual(seen(final.choices[0]), seen(answer.choices[0]))

    async def test_many_at_once(self):
        names = ["text", "lines", "thought", "call", "two calls", "nothing"] * 8
        alone = {name: seen((await self.create(name, tools=[WEATHER])).choices[0]) for name in set(names)}
        answers = await asyncio.gather(*(self.create(name, tools=[WEATHER]) for name in names))
        for name, answer in zip(names, answers):
            self.assertEqual(seen(answer.choices[0]), alone[name])

    async def test_chunks(self):
        text = ""
        async for chunk in await self.create("text", stream=True):
            text += chunk.choices[0].delta.content or ""
        self.assertEqual(text, TEXT)


if __name__ == "__main__":
    unittest.main()
