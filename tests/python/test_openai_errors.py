"""What the official openai client makes of our errors: the right exception class, status, code, parameter and request id; what
it retries and when; time limits; and that a client which goes away takes its request with it."""

import asyncio
import time
import unittest

import openai

import scripted
from scripted import say, wait_until

ENDLESS = {"pieces": ["on and "], "end": None, "delay_ms": 5}


def make(url, kind=openai.OpenAI, **kw):
    return kind(base_url=url + "/v1", **{"api_key": "key", "max_retries": 0, "timeout": scripted.CALL_S, **kw})


class Case(scripted.Case):
    def make(self, **kw):
        """A client that is closed when the test ends: until then the server may wait for it to read its refusal."""
        client = make(self.url, **kw)
        self.addCleanup(client.close)
        return client


class Errors(Case):
    SCRIPTS = {"hi": "Hello.", "broken": {"pieces": ["one two three"], "fail_after": 2}, "endless": ENDLESS,
               "slow": {"pieces": ["late"], "first_delay_ms": 1500}}
    OPTIONS = ["--api-key", "key", "--max-model-len", "2048", "--max-body-bytes", "100000"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.c = make(cls.server.url)
        cls.addClassCleanup(cls.c.close)

    def caught(self, kind, script="hi", client=None, **kw):
        with self.assertRaises(kind) as caught:
            answer = (client or self.c).chat.completions.create(**{"model": "scripted", "messages": say(script), **kw})
            for _ in answer if kw.get("stream") else ():
                pass
        return caught.exception

    def check(self, kind, status, code, param, **kw):
        for stream in (False, True):
            e = self.caught(kind, stream=stream, **kw)
            self.assertEqual((e.status_code, e.code, e.param), (status, code, param))
            self.assertEqual(sorted(e.body), ["code", "message", "param", "type"])
            self.assertEqual(e.request_id, e.response.headers["x-request-id"])

    def test_bad_requests(self):
        bad = openai.BadRequestError
        self.check(bad, 400, "invalid_value", "temperature", temperature=9)
        self.check(bad, 400, "invalid_value", "messages[1].role", messages=say("hi") + [{"role": "wizard", "content": ""}])
        self.check(bad, 400, "context_length_exceeded", "messages", messages=[{"role": "user", "content": "leaf " * 4000}])
        self.check(bad, 400, "unsupported_parameter", "modalities", modalities=["audio"])
        self.check(bad, 400, "unsupported_parameter", "guided_regex", extra_body={"guided_regex": "(?=a)b"})
        self.check(bad, 400, "invalid_value", "top_logprobs", top_logprobs=99, logprobs=True)

    def test_other_statuses(self):
        self.check(openai.NotFoundError, 404, "model_not_found", "model", model="nobody")
        self.check(openai.AuthenticationError, 401, "invalid_api_key", None, client=self.make(api_key="wrong"))
        e = self.caught(openai.APIStatusError, messages=[{"role": "user", "content": "x" * 200_000}])
        self.assertEqual((e.status_code, e.code), (413, "request_too_large"))
        with self.assertRaises(openai.NotFoundError) as caught:
            self.c.moderations.create(model="scripted", input="x")
        self.assertEqual(caught.exception.code, "unknown_url")

    def test_a_failing_device(self):
        e = self.caught(openai.InternalServerError, "broken")
        self.assertEqual((e.status_code, e.type), (500, "server_error"))
        self.assertEqual(e.response.headers.get("x-should-retry"), "false")
        e = self.caught(openai.APIError, "broken", stream=True)
        self.assertNotIsInstance(e, openai.APIStatusError)  # in mid-stream there is no status any more
        self.assertTrue(e.message and e.code)

    def test_a_failure_is_not_tried_again(self):
        before = self.server.metric("vllm:corrupted_requests_total")
        self.caught(openai.InternalServerError, "broken", client=self.make(max_retries=2))
        self.assertEqual(self.server.metric("vllm:corrupted_requests_total"), before + 1)

    def test_time_limits(self):
        started = time.monotonic()
        self.caught(openai.APITimeoutError, "slow", client=self.make(timeout=0.2))
        self.assertLess(time.monotonic() - started, 1.2)
        wait_until(lambda: self.server.running() == 0, "the request of a client that gave up ends")

    def test_leaving_a_stream_ends_the_request(self):
        for pieces in (1, 5):
            with self.c.chat.completions.create(model="scripted", messages=say("endless"), stream=True) as stream:
                for _, _ in zip(range(pieces), stream):
                    self.assertEqual(self.server.running(), 1)
            wait_until(lambda: self.server.running() == 0, "the request ends")
        self.assertEqual(self.server.metric("vllm:kv_cache_usage_perc"), 0)

    def test_leaving_an_unstreamed_answer_ends_the_request(self):
        async def leave():
            client = make(self.url, openai.AsyncOpenAI)
            task = asyncio.create_task(client.chat.completions.create(model="scripted", messages=say("endless")))
            while self.server.running() == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()
        asyncio.run(leave())
        wait_until(lambda: self.server.running() == 0, "the request ends")


class Retries(Case):
    SCRIPTS = {"hi": "Hello.", "slow": {"pieces": ["one two three four five six seven eight nine ten"], "delay_ms": 20},
               "endless": ENDLESS}
    OPTIONS = ["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]

    def test_a_full_queue(self):
        busy = self.server.fill("slow")
        with self.assertRaises(openai.RateLimitError) as caught:
            self.make().chat.completions.create(model="scripted", messages=say("hi"))
        e = caught.exception
        self.assertEqual(e.status_code, 429)
        self.assertIn(e.code, ("rate_limit_exceeded", "server_overloaded"))
        self.assertGreater(float(e.response.headers["retry-after"]), 0)
        self.assertGreater(float(e.response.headers["retry-after-ms"]), 0)
        with self.assertRaises(openai.RateLimitError):
            list(self.make().chat.completions.create(model="scripted", messages=say("hi"), stream=True))
        for thread in busy:
            thread.join(scripted.CALL_S)

    def test_the_client_comes_back_when_told(self):
        busy = self.server.fill("slow")
        refused = self.server.metric("vllm:admission_rejections_total")
        answer = self.make(max_retries=10).chat.completions.create(model="scripted", messages=say("hi"))
        self.assertEqual(answer.choices[0].message.content, "Hello.")
        self.assertGreaterEqual(self.server.metric("vllm:admission_rejections_total"), refused + 1)
        for thread in busy:
            thread.join(scripted.CALL_S)


class Draining(Case):
    SCRIPTS = {"endless": ENDLESS}
    OPTIONS = ["--shutdown-timeout", "1.5"]

    def test_new_work_is_refused_with_a_time_and_running_work_told(self):
        stream = self.make().chat.completions.create(model="scripted", messages=say("endless"), stream=True)
        next(iter(stream))
        self.server.process.terminate()

        def draining():
            try:
                return self.get("/readyz")[0] == 503
            except OSError:  # a connection that was idle at that moment is closed
                return False
        wait_until(draining, "draining")
        with self.assertRaises(openai.InternalServerError) as caught:
            self.make().chat.completions.create(model="scripted", messages=say("endless"))
        e = caught.exception
        self.assertEqual((e.status_code, e.response.headers["connection"]), (503, "close"))
        self.assertGreater(float(e.response.headers["retry-after"]), 0)
        with self.assertRaises(openai.APIError) as caught:
            for _ in stream:
                pass
        self.assertEqual(caught.exception.code, "server_shutdown")
        self.assertEqual(self.server.process.wait(10), 0)


if __name__ == "__main__":
    unittest.main()
