"""What the official anthropic client makes of our errors: the right exception class, status and type; what it tries again,
when, and what not."""

import unittest
import unittest.mock

import anthropic

import scripted
from scripted import say, wait_until


class Case(scripted.Case):
    def setUp(self):
        self.statuses = []  # of every answer that a client of make() has seen, those it tried again after included

    def make(self, **kw):
        """A client that is closed when the test ends: until then the server may wait for it to read its refusal."""
        transport = anthropic.DefaultHttpxClient(event_hooks={"response": [lambda r: self.statuses.append(r.status_code)]})
        client = anthropic.Anthropic(base_url=self.url, http_client=transport,
                                     **{"api_key": "key", "max_retries": 0, "timeout": scripted.CALL_S, **kw})
        self.addCleanup(client.close)
        return client

    def ask(self, client, script="hi", **kw):
        return client.messages.create(**{"model": "scripted", "max_tokens": 100, "messages": say(script), **kw})

    def caught(self, kind, client, script="hi", **kw):
        with self.assertRaises(kind) as caught:
            self.ask(client, script, **kw)
        return caught.exception


class Failures(Case):
    SCRIPTS = {"hi": "Hello.", "broken": {"pieces": ["one two three"], "fail_after": 2}}
    OPTIONS = ["--api-key", "key"]

    def test_500_is_not_tried_again(self):
        before = self.server.metric("vllm:corrupted_requests_total")
        e = self.caught(anthropic.InternalServerError, self.make(max_retries=3), "broken")
        self.assertEqual((e.status_code, e.body["error"]["type"]), (500, "api_error"))
        self.assertEqual(e.response.headers["x-should-retry"], "false")
        self.assertEqual(self.statuses, [500])
        self.assertEqual(self.server.metric("vllm:corrupted_requests_total"), before + 1)

    def test_a_failure_in_a_stream_is_not_tried_again(self):
        with self.assertRaises(anthropic.APIError) as caught:
            for _ in self.ask(self.make(max_retries=3), "broken", stream=True):
                pass
        self.assertEqual(caught.exception.body["error"]["type"], "api_error")
        self.assertEqual(self.statuses, [200])

    def test_mistakes_are_not_tried_again(self):
        for kind, status, kw in ((anthropic.BadRequestError, 400, {"max_tokens": 0}), (anthropic.NotFoundError, 404, {"model": "nobody"})):
            self.statuses.clear()
            e = self.caught(kind, self.make(max_retries=3), **kw)
            self.assertEqual((e.status_code, e.body["type"]), (status, "error"))
            self.assertEqual(self.statuses, [status])
        self.statuses.clear()
        self.caught(anthropic.AuthenticationError, self.make(max_retries=3, api_key="wrong"))
        self.assertEqual(self.statuses, [401])


class FullQueue(Case):
    SCRIPTS = {"hi": "Hello.", "slow": {"pieces": ["one two three four five six seven eight nine ten"], "delay_ms": 20}}
    OPTIONS = ["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]

    def test_429_says_when_to_come_back(self):
        busy = self.server.fill("slow")
        for stream in (False, True):
            e = self.caught(anthropic.RateLimitError, self.make(), stream=stream)
            self.assertEqual((e.status_code, e.body["error"]["type"]), (429, "rate_limit_error"))
            self.assertGreater(float(e.response.headers["retry-after"]), 0)
            self.assertGreater(float(e.response.headers["retry-after-ms"]), 0)
        for thread in busy:
            thread.join(scripted.CALL_S)

    def test_429_is_tried_again(self):
        busy = self.server.fill("slow")
        answer = self.ask(self.make(max_retries=10))
        self.assertEqual(answer.content[0].text, "Hello.")
        self.assertGreaterEqual(self.statuses.count(429), 1)
        self.assertEqual((self.statuses[-1], set(self.statuses)), (200, {429, 200}))
        for thread in busy:
            thread.join(scripted.CALL_S)


class Draining(Case):
    SCRIPTS = {"endless": {"pieces": ["on and "], "end": None, "delay_ms": 5}}
    OPTIONS = ["--shutdown-timeout", "1.5"]

    def test_529_is_tried_again(self):
        stream = self.ask(self.make(), "endless", max_tokens=2000, stream=True)
        next(iter(stream))
        self.server.process.terminate()

        def draining():
            try:
                return self.get("/readyz")[0] == 503
            except OSError:  # a connection that was idle at that moment is closed
                return False
        wait_until(draining, "draining")
        self.statuses.clear()
        waited = []
        with unittest.mock.patch("time.sleep", waited.append):  # by then it would be another server
            e = self.caught(anthropic.APIStatusError, self.make(max_retries=2), "endless")
        self.assertEqual((e.status_code, e.body["error"]["type"]), (529, "overloaded_error"))
        self.assertEqual(self.statuses, [529, 529, 529])
        told = float(e.response.headers["retry-after"])
        self.assertGreater(told, 0)
        self.assertEqual([w for w in waited if w >= told * 0.7], waited, "as long as it was told")
        self.assertEqual(len(waited), 2)
        with self.assertRaises(anthropic.APIError) as caught:  # running work is told
            for _ in stream:
                pass
        self.assertEqual(caught.exception.body["error"]["type"], "overloaded_error")
        self.assertEqual(self.server.process.wait(10), 0)


if __name__ == "__main__":
    unittest.main()
