"""The official `openai` client against a running server (BARG_URL): every shape it parses, every error it maps.

Run by tests/end_to_end/run.py, or by hand: BARG_URL=http://127.0.0.1:8000 python -m unittest test_openai_client
The model may be any: nothing here depends on what it says, only on how the answer is put."""

import json
import os
import unittest
import urllib.request

import openai

BASE = os.environ.get("BARG_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("BARG_API_KEY", "none")
HI = [{"role": "user", "content": "Hello there"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def client(**kw):
    return openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=120, **kw)


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = client()
        cls.model = cls.c.models.list().data[0].id

    def chat(self, **kw):
        kw = {"max_tokens": 12, "temperature": 0, **kw}
        return self.c.chat.completions.create(model=self.model, messages=kw.pop("messages", HI), **kw)

    def complete(self, **kw):
        kw = {"max_tokens": 12, "temperature": 0, "prompt": "The leaf is", **kw}
        return self.c.completions.create(model=self.model, **kw)


class Models(Base):
    def test_list_and_get(self):
        models = self.c.models.list()
        self.assertGreater(len(models.data), 0)
        one = self.c.models.retrieve(self.model)
        self.assertEqual((one.id, one.object), (self.model, "model"))
        self.assertGreater(one.max_model_len, 0)


class Chat(Base):
    def test_plain(self):
        r = self.chat()
        self.assertTrue(r.id.startswith("chatcmpl-"))
        self.assertEqual(r.object, "chat.completion")
        self.assertEqual(r.model, self.model)
        self.assertEqual(r.choices[0].message.role, "assistant")
        self.assertIsInstance(r.choices[0].message.content, str)
        self.assertIn(r.choices[0].finish_reason, ("stop", "length"))
        u = r.usage
        self.assertEqual(u.total_tokens, u.prompt_tokens + u.completion_tokens)
        self.assertGreaterEqual(u.prompt_tokens_details.cached_tokens, 0)
        self.assertTrue(r._request_id)

    def test_stream_equals_plain_and_carries_usage(self):
        plain = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[0].choices[0].delta.content, "")
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, plain.choices[0].message.content)
        finishes = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
        self.assertEqual(finishes, [plain.choices[0].finish_reason])
        self.assertEqual([c for c in chunks if not c.choices], chunks[-1:])
        self.assertEqual(chunks[-1].usage.completion_tokens, plain.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens, plain.usage.prompt_tokens)
        self.assertEqual(len({(c.id, c.created, c.model, c.system_fingerprint) for c in chunks}), 1)

    def test_stream_helper_accumulates(self):
        with self.c.chat.completions.stream(model=self.model, messages=HI, max_tokens=8, temperature=0, n=2) as stream:
            for _ in stream:
                pass
            final = stream.current_completion_snapshot  # the final one refuses a finish_reason of length
        self.assertEqual([c.index for c in final.choices], [0, 1])
        self.assertEqual(final.choices[0].message.content, final.choices[1].message.content)

    def test_no_usage_unless_asked(self):
        self.assertTrue(all(c.usage is None and c.choices for c in self.chat(stream=True)))

    def test_n_choices(self):
        r = self.chat(n=3, temperature=1, seed=7)
        self.assertEqual([c.index for c in r.choices], [0, 1, 2])
        one = self.chat(n=1, temperature=1, seed=7)
        self.assertEqual(one.choices[0].message.content, r.choices[0].message.content)
        self.assertEqual(one.usage.prompt_tokens, r.usage.prompt_tokens)

    def test_seed_repeats(self):
        texts = [self.chat(temperature=1.5, seed=s, max_tokens=24).choices[0].message.content for s in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_logprobs(self):
        r = self.chat(logprobs=True, top_logprobs=3)
        content = r.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(e.bytes) for e in content).decode(errors="replace"), r.choices[0].message.content)
        self.assertGreater(len(content), 0)
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertGreaterEqual(entry.top_logprobs[0].logprob, entry.top_logprobs[1].logprob)
        streamed = [e for c in self.chat(logprobs=True, top_logprobs=3, stream=True)
                    if c.choices and c.choices[0].logprobs for e in c.choices[0].logprobs.content]
        self.assertEqual(streamed, content)
        bare = self.chat(logprobs=True).choices[0].logprobs.content
        self.assertEqual([e.logprob for e in bare], [e.logprob for e in content])
        self.assertEqual(bare[0].top_logprobs, [])

    def test_max_tokens_and_finish_reason(self):
        r = self.chat(max_tokens=3, extra_body={"ignore_eos": True})
        self.assertEqual((r.choices[0].finish_reason, r.usage.completion_tokens), ("length", 3))
        r = self.chat(max_tokens=None, max_completion_tokens=2, extra_body={"ignore_eos": True})
        self.assertEqual(r.usage.completion_tokens, 2)
        self.assertEqual(self.chat(max_tokens=65535, stop=["e", "a", " "]).choices[0].finish_reason, "stop")

    def test_what_clients_send_besides(self):
        r = self.chat(user="me", metadata={"a": "b"}, store=False, tools=[], parallel_tool_calls=True,
                      response_format={"type": "text"}, reasoning_effort="low", frequency_penalty=0.1,
                      presence_penalty=0.1, logit_bias={"5": -100}, top_p=0.9,
                      messages=[{"role": "system", "content": "Be brief."},
                                {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
                                {"role": "assistant", "content": "Three"}, {"role": "user", "content": "four"}])
        self.assertIsInstance(r.choices[0].message.content, str)


class Tools(Base):
    """What any model does with them: it may call or not, the answer is well formed either way."""

    def test_given(self):
        r = self.chat(tools=TOOLS, max_tokens=24, extra_body={"ignore_eos": True})
        message = r.choices[0].message
        self.assertTrue(message.content or message.tool_calls)
        for call in message.tool_calls or []:
            self.assertTrue(call.id and call.function.name)
            json.loads(call.function.arguments)
        with self.c.chat.completions.stream(model=self.model, messages=HI, max_tokens=24, temperature=0, tools=TOOLS,
                                            extra_body={"ignore_eos": True}) as stream:
            stream.until_done()
            streamed = stream.current_completion_snapshot.choices[0]
        self.assertEqual(streamed.message.content or "", message.content or "")
        self.assertEqual([c.function for c in streamed.message.tool_calls or []], [c.function for c in message.tool_calls or []])
        self.assertEqual(streamed.finish_reason, r.choices[0].finish_reason)

    def test_a_history_with_calls(self):
        history = [*HI, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "20 degrees"}]
        self.assertGreater(self.chat(messages=history, tools=TOOLS).usage.prompt_tokens, self.chat(tools=TOOLS).usage.prompt_tokens)

    def test_reasoning_options_are_accepted(self):
        for options in ({"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"extra_body": {"thinking_token_budget": 3}},
                        {"extra_body": {"include_reasoning": False, "chat_template_kwargs": {"enable_thinking": True}}}):
            r = self.chat(**options)
            self.assertGreaterEqual(r.usage.completion_tokens_details.reasoning_tokens, 0)
            self.assertLessEqual(r.usage.completion_tokens_details.reasoning_tokens, r.usage.completion_tokens)


class Responses(Base):
    """On a real model: nothing here depends on what it says."""

    def body(self, **kw):
        return {"model": self.model, "input": "Hello there", "max_output_tokens": 12, "temperature": 0, **kw}

    def test_plain_streamed_stored_and_continued(self):
        plain = self.c.responses.create(**self.body())
        self.assertIn(plain.status, ("completed", "incomplete"))
        self.assertEqual([i.type for i in plain.output], ["message"])
        self.assertEqual(plain.usage.total_tokens, plain.usage.input_tokens + plain.usage.output_tokens)
        with self.c.responses.stream(**self.body()) as stream:
            events = list(stream)
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        final = events[-1].response
        self.assertEqual((final.output_text, final.status), (plain.output_text, plain.status))
        self.assertEqual(final.usage.output_tokens, plain.usage.output_tokens)
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), plain.output_text)
        self.assertEqual(self.c.responses.retrieve(plain.id).output_text, plain.output_text)
        # The conversation goes on as if its client had sent all of it again.
        linked = self.c.responses.create(**self.body(previous_response_id=plain.id, input="And then?"))
        whole = [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": plain.output_text}, {"role": "user", "content": "And then?"}]
        spelled = self.c.responses.create(**self.body(input=whole, store=False))
        self.assertEqual((linked.output_text, linked.usage.input_tokens), (spelled.output_text, spelled.usage.input_tokens))
        self.assertEqual(self.c.responses.input_tokens.count(model=self.model, input=whole).input_tokens, spelled.usage.input_tokens)
        self.c.responses.delete(plain.id)
        with self.assertRaises(openai.NotFoundError):
            self.c.responses.retrieve(plain.id)

    def test_it_is_what_chat_says(self):
        chat = self.chat(messages=HI, max_tokens=12)
        answer = self.c.responses.create(**self.body(input=HI, include=["message.output_text.logprobs"]))
        self.assertEqual(answer.output_text, chat.choices[0].message.content)
        self.assertEqual(answer.usage.input_tokens, chat.usage.prompt_tokens)
        entries = answer.output[0].content[0].logprobs
        self.assertEqual(b"".join(bytes(e.bytes) for e in entries).decode(errors="replace"), answer.output_text)

    def test_background_work_is_cancelled_by_its_id(self):
        queued = self.c.responses.create(**self.body(background=True, max_output_tokens=200, extra_body={"ignore_eos": True}))
        self.assertEqual(queued.status, "queued")
        self.assertIn(self.c.responses.cancel(queued.id).status, ("cancelled", "completed", "incomplete"))


class Completions(Base):
    def test_prompts_in_all_shapes(self):
        self.assertEqual(self.complete().object, "text_completion")
        r = self.complete(prompt=["one", "two"], n=2, temperature=1, seed=3)
        self.assertEqual([c.index for c in r.choices], [0, 1, 2, 3])
        ids = self.complete(prompt=[5, 6, 7], extra_body={"return_token_ids": True})
        self.assertEqual(ids.usage.prompt_tokens, 3)
        self.assertEqual(len(ids.choices[0].token_ids), ids.usage.completion_tokens)
        self.assertEqual(len(self.complete(prompt=[[5, 6], [7]]).choices), 2)

    def test_logprobs_and_echo(self):
        plain = self.complete()
        r = self.complete(logprobs=2, echo=True)
        choice, lp = r.choices[0], r.choices[0].logprobs
        self.assertEqual(choice.text, "The leaf is" + plain.choices[0].text)
        self.assertEqual(len(lp.tokens), r.usage.prompt_tokens + r.usage.completion_tokens)
        self.assertEqual(len(lp.tokens), len(lp.token_logprobs))
        self.assertIsNone(lp.token_logprobs[0])
        self.assertTrue(all(v is not None and v <= 0 for v in lp.token_logprobs[1:]))
        self.assertTrue(all(2 <= len(t) <= 3 for t in lp.top_logprobs[1:]))
        self.assertEqual(lp.text_offset[0], 0)
        self.assertEqual(sorted(lp.text_offset), lp.text_offset)
        for token, offset in zip(lp.tokens, lp.text_offset):
            if not token.startswith("bytes:"):
                self.assertEqual(choice.text[offset:offset + len(token)], token)
        again = self.complete(logprobs=2, echo=True).choices[0].logprobs
        self.assertEqual(again.token_logprobs, lp.token_logprobs, "a warm prefix gives the same values")

    def test_scoring_only(self):
        r = self.complete(max_tokens=0, echo=True, logprobs=1)
        self.assertEqual(r.choices[0].text, "The leaf is")
        self.assertEqual(r.usage.completion_tokens, 0)
        self.assertEqual(len(r.choices[0].logprobs.tokens), r.usage.prompt_tokens)

    def test_stream_equals_plain(self):
        for kw in ({}, {"echo": True}, {"echo": True, "logprobs": 1}, {"logprobs": 0}):
            plain = self.complete(**kw).choices[0]
            chunks = list(self.complete(stream=True, **kw))
            self.assertEqual("".join(c.choices[0].text for c in chunks), plain.text, kw)
            if "logprobs" in kw:
                joined = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.tokens]
                offsets = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.text_offset]
                self.assertEqual(joined, plain.logprobs.tokens)
                self.assertEqual(offsets, plain.logprobs.text_offset)

    def test_stop(self):
        full = self.complete(max_tokens=40, extra_body={"ignore_eos": True}).choices[0].text
        stop = full[10:13]
        for stream in (False, True):
            r = self.complete(max_tokens=40, stop=stop, stream=stream, extra_body={"ignore_eos": True})
            parts = list(r) if stream else [r]
            text = "".join(p.choices[0].text for p in parts)
            self.assertEqual(text, full[:full.index(stop)])
            self.assertEqual(parts[-1].choices[0].finish_reason, "stop")
            self.assertEqual(parts[-1].choices[0].stop_reason, stop)
        kept = self.complete(max_tokens=40, stop=stop,
                             extra_body={"ignore_eos": True, "include_stop_str_in_output": True})
        self.assertEqual(kept.choices[0].text, full[:full.index(stop)] + stop)

    def test_banned_and_allowed_tokens(self):
        r = self.complete(temperature=1, seed=1, extra_body={"allowed_token_ids": [9, 10], "return_token_ids": True,
                                                            "ignore_eos": True})
        self.assertLessEqual(set(r.choices[0].token_ids), {9, 10})
        r = self.complete(logit_bias={"11": 100}, extra_body={"return_token_ids": True, "ignore_eos": True})
        self.assertEqual(set(r.choices[0].token_ids), {11})


class Errors(Base):
    def check(self, kind, status, code, param, **kw):
        for stream in (False, True):
            with self.assertRaises(kind) as caught:
                self.chat(stream=stream, **kw)
            e = caught.exception
            self.assertEqual((e.status_code, e.code, e.param), (status, code, param))
            self.assertTrue(e.request_id)
            self.assertTrue(e.body["message"])

    def test_bad_values(self):
        self.check(openai.BadRequestError, 400, "invalid_value", "temperature", temperature=3)
        self.check(openai.BadRequestError, 400, "invalid_value", "messages", messages=[])
        self.check(openai.BadRequestError, 400, "invalid_value", "stop", stop="")
        self.check(openai.BadRequestError, 400, "invalid_value", "messages[0].role",
                   messages=[{"role": "nobody", "content": "x"}])

    def test_unsupported(self):
        self.check(openai.BadRequestError, 400, "unsupported_parameter", "modalities", modalities=["text", "audio"])
        self.check(openai.BadRequestError, 400, "unsupported_parameter", "bad_words", extra_body={"bad_words": ["x"]})

    def test_context_length(self):
        limit = self.c.models.retrieve(self.model).max_model_len
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt=[5] * (limit + 1))
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertIn(f"maximum context length is {limit} tokens", str(caught.exception))
        self.assertIn(f"{limit + 1} tokens", str(caught.exception))

    def test_unknown_model_and_url(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.c.chat.completions.create(model="no-such-model", messages=HI)
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        with self.assertRaises(openai.NotFoundError):
            self.c.models.retrieve("no/such/model")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.c.moderations.create(model=self.model, input="x")
        self.assertEqual(caught.exception.code, "unknown_url")
        with self.assertRaisesRegex(openai.BadRequestError, "computes no embeddings"):
            self.c.embeddings.create(model=self.model, input="x")

    def test_request_id_is_ours(self):
        r = self.chat(extra_headers={"X-Request-Id": "my-id.1"})
        self.assertEqual(r._request_id, "my-id.1")

    def test_leaving_a_stream_cancels(self):
        with self.c.chat.completions.create(model=self.model, messages=HI, stream=True, max_tokens=200,
                                            extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        for _ in range(2000):
            request = urllib.request.Request(BASE + "/metrics", headers={"Authorization": "Bearer " + KEY})
            with urllib.request.urlopen(request) as answer:
                text = answer.read().decode()
            running = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
            if running and running[0].endswith(" 0"):
                return
        self.fail("the request went on after its client had left")


if __name__ == "__main__":
    unittest.main()
