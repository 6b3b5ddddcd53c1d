"""What a server must refuse, sent to the running binary (BARG_URL) with raw bytes: the HTTP, JSON, content,
parameter and lifecycle rows of the table of hostile inputs. After each group a canary must still be answered;
at the end the server is as it was: no request, no connection, no descriptor more. Standard library only."""

import json
import os
import random
import socket
import struct
import time
import unittest

from wire import Wire, ask, post

URL = os.environ.get("BARG_URL", "http://127.0.0.1:8000")
PID = os.environ.get("BARG_PID")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "x"}]
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def chat(**kw):
    return post(CHAT, {"messages": MESSAGES, "max_tokens": 4, **kw})


def raw_chat(fields):
    return post(CHAT, '{"messages":[{"role":"user","content":"x"}],"max_tokens":4,' + fields + "}")


def metric(*names):
    text = ask(URL, get("/metrics"))[2].decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if line.split("{")[0].split(" ")[0] in names)


def fds():
    return len(os.listdir(f"/proc/{PID}/fd")) if PID else 0


def settle(check, what):
    for _ in range(3000):
        if check():
            return
        time.sleep(0.01)
    raise AssertionError(what)


class Refusals(unittest.TestCase):
    def tearDown(self):
        status, _, body = ask(URL, chat())
        self.assertEqual(status, 200, body)

    def refused(self, data, statuses, code=None, name=""):
        answer = ask(URL, data)
        label = name or data[:120]
        self.assertIsNotNone(answer, label)
        status, headers, body = answer
        self.assertIn(status, statuses, label)
        self.assertIn("x-request-id", headers, label)
        error = json.loads(body)["error"]
        self.assertEqual(sorted(error), ["code", "message", "param", "type"], label)
        if code:
            self.assertEqual(error["code"], code, label)
        return error

    def test_http(self):
        big_header = "".join(f"X-{i}: y\r\n" for i in range(101))
        rows = [
            ("64 KiB target", get("/" + "a" * 65536), (414,)),
            ("101 headers", HEAD + big_header + "\r\n", (431,)),
            ("17 KiB header", HEAD + "X: " + "y" * 17408 + "\r\n\r\n", (431,)),
            ("length and chunked", HEAD + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", (400,)),
            ("two lengths", HEAD + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400,)),
            *[(f"length {v}", HEAD + f"Content-Length: {v}\r\n\r\n", (400,))
              for v in ("+5", "-1", "0x10", str(2**64), "a")],
            *[(f"chunk {v[:20]}", HEAD + f"Transfer-Encoding: chunked\r\n\r\n{v}\r\n", (400,))
              for v in ("-2", "1" * 17, "1;" + "e" * (1 << 20))],
            ("obs-fold", HEAD + "A: b\r\n c\r\n\r\n", (400,)),
            ("bare LF", "GET /health HTTP/1.1\nHost: localhost\n\n", (400,)),
            ("NUL", "GET /health HTTP/1.1\r\nHost: localhost\r\nA: \0\r\n\r\n", (400,)),
            ("space before colon", "GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", (400,)),
            *[(f"host {h!r}", f"GET /health HTTP/1.1\r\nHost: {h}\r\n\r\n", (400,)) for h in ("a/b", "a?b", "a#b", "")],
            ("two hosts", "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", (400,)),
            ("no host", "GET /health HTTP/1.1\r\n\r\n", (400,)),
            ("absolute, other host", "GET http://other/health HTTP/1.1\r\nHost: localhost\r\n\r\n", (400,)),
            *[(f"path {p}", get(p), (404, 401)) for p in
              ("//v1/models", "/v1/../admin", "/%2e%2e/x", "/health%00", "/v1%2fmodels", "/v1/models;x", "/V1/MODELS")],
            ("gzip", HEAD + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", (415,)),
            ("text", f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}", (415,)),
            ("http/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
            ("http/0.9", "GET /\r\n", (400, 505)),
            ("http/9.9", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", (400, 505)),
            ("websocket", get("/version").replace("\r\n\r\n", "\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"), (400,)),
            ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
            ("foreign host", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", (403,)),
            ("foreign origin", "GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", (403,)),
            ("expect", HEAD + "Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", (417,)),
            ("trace", "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", (405, 501)),
            ("connect", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", (405, 501, 403)),
            ("unknown method", "BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", (405, 501)),
            ("get on post", get(CHAT), (405,)),
            ("metrics query", get("/metrics?" + "x" * (1 << 20)), (414,)),
        ]
        for name, data, statuses in rows:
            with self.subTest(name):
                self.refused(data, statuses, name=name)

    def test_early_refusal_reaches_a_sender(self):
        with Wire(URL) as wire:
            wire.send(HEAD + f"Content-Length: {64 << 20}\r\n\r\n")
            for _ in range(64):
                wire.send(b"x" * (1 << 20))
            status, headers, _ = wire.read()
            self.assertEqual((status, headers["connection"]), (413, "close"))
        with Wire(URL) as wire:  # a body that never ends
            wire.send(HEAD + "Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(32):
                wire.send(b"80000\r\n" + b" " * 0x80000 + b"\r\n")
            self.assertEqual(wire.read()[0], 413)

    def test_pipeline_is_served_in_order_and_bounded(self):
        with Wire(URL) as wire:
            wire.send((get("/livez") + get("/version")) * 5000)
            served = 0
            while (answer := wire.read()) is not None:
                self.assertIn(b"status" if served % 2 == 0 else b"version", answer[2])
                served += 1
            self.assertTrue(0 < served <= 10000)

    def test_request_ids(self):
        def echoed(value):
            return ask(URL, f"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {value}\r\n\r\n")[1]["x-request-id"]
        self.assertEqual(echoed("aB.9_-"), "aB.9_-")
        for bad in ("a b", "a" * 65, "é", ""):
            self.assertTrue(echoed(bad).startswith("req-"), bad)

    def test_json(self):
        rows = ["", "null", "[]", '"x"', "{", "{}{}", "{} x", "[" * 100_000, '{"a":' * 100_000, '\ufeff{"messages":[]}',
                '{"model":"a","model":"b"}', '{"a":"\\ud800"}', b'{"a":"\xc0\x80"}', b'{"a":"\xff"}', b'{"a":"\0"}', '{"a":"\n"}',
                "{" + ",".join(f'"k{i}":0' for i in range(100_000)) + "}"]
        for body in rows:
            with self.subTest(body[:40]):
                self.refused(post(CHAT, body), (400,))
        for field in ('"temperature":1e999', '"temperature":NaN', '"n":9223372036854775808', '"n":1.5', '"n":"5"',
                      '"max_tokens":01', '"seed":18446744073709551616'):
            with self.subTest(field):
                self.refused(raw_chat(field), (400,))

    def test_content(self):
        user = {"role": "user"}
        rows = [{"messages": None}, {"messages": []}, {"messages": MESSAGES * 100_000}, {"messages": [{"role": "wizard", "content": "x"}]},
                {"messages": [{**user, "content": 5}]}, {"messages": [{**user, "content": {}}]}, {"messages": [5]}, {"messages": [{}]},
                *[{"messages": [{**user, "content": [{"type": "image_url", "image_url": {"url": u}}]}]}
                  for u in ("file:///etc/passwd", "http://169.254.169.254/", "http:\\\\h")],
                {"messages": [{**user, "content": [{"type": "input_audio", "input_audio": {}}]}]}]
        for row in rows:
            with self.subTest(str(row)[:80]):
                self.refused(post(CHAT, row), (400,))
        for prompt in ([], [[]], "", [""], ["a", 1], [-1], [2**31], [10**9], [1.5], [None], {}, 5):
            with self.subTest(str(prompt)):
                self.refused(post(COMPLETIONS, {"prompt": prompt}), (400,))
        self.refused(post(COMPLETIONS, {"prompt": "x", "prompt_embeds": "AAAA"}), (400,), "unsupported_parameter")
        for text in ("a" * (7 << 20), " " * (7 << 20), "e\u0301" * (2 << 20), "\U0001f469\u200d" * (1 << 20)):
            started = time.monotonic()
            self.refused(post(COMPLETIONS, json.dumps({"prompt": text}, ensure_ascii=False)), (400,), "context_length_exceeded")
            self.assertLess(time.monotonic() - started, 60)

    def test_parameters(self):
        rows = ["n=0", "n=-1", "n=1000000", "max_tokens=0", "max_tokens=-1", "temperature=-1", "temperature=1e9", "temperature=1e-40",
                "top_p=0", "top_p=2", "top_k=-2", "min_p=2", "top_logprobs=1000000", "seed=1.5", "repetition_penalty=0",
                "presence_penalty=3", "logprobs=7", 'stop=""', 'stop=[""]', "stop=" + json.dumps(["s"] * 10_000),
                "stop=" + json.dumps("s" * (1 << 20)), 'logit_bias={"x":1}', 'logit_bias={"1000000000":1}', 'logit_bias={"1":1e308}',
                "logit_bias=" + json.dumps({str(i): 1 for i in range(100_000)}), 'priority="x"', 'cache_salt="a/b"',
                "user=" + json.dumps("u" * (1 << 20)), 'tool_choice="required"', "tools=[1]", "tools=" + json.dumps([{"type": "function"}] * 10_000),
                'chat_template="{{ 1 }}"', 'chat_template_kwargs={"messages":[]}', 'response_format={"type":"json_schema"}',
                'guided_regex="(?=a)a"', 'add_generation_prompt=true,"continue_final_message":true']
        for row in rows:
            field, value = row.split("=", 1)
            with self.subTest(row[:60]):
                self.refused(raw_chat(f'"{field}":{value}'), (400,))
        for model in ("../../x", "/etc/passwd", "http://x/", "\0", "m" * (1 << 20)):
            with self.subTest(model[:20]):
                self.refused(chat(model=model), (404,), "model_not_found")
        self.assertEqual(ask(URL, chat(n_keep=-1, id_slot=99, stream_options={"include_usage": True}))[0], 200)
        self.assertEqual(ask(URL, chat(frequency_penalty=2, presence_penalty=-2, repetition_penalty=100, n=3, temperature=2))[0], 200)

    def test_z_disconnects_leave_nothing(self):
        settle(lambda: metric("barg_conn_open") <= 1, "connections of earlier tests")
        before, rng = fds(), random.Random(1)
        body = chat(max_tokens=400, ignore_eos=True, stream=True, n=2)
        for i in range(300):
            wire = Wire(URL)
            wire.send(body[:rng.randrange(1, len(body))] if i % 3 == 0 else body)
            if i % 3 == 1:
                wire.socket.recv(1)
            if i % 2 == 0:
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.close()
        settle(lambda: metric("vllm:num_requests_running", "vllm:num_requests_waiting") == 0, "requests go on")
        settle(lambda: metric("barg_conn_open") <= 1, "connections stay open")
        self.assertLessEqual(fds(), before + 2)
        self.assertEqual(metric("vllm:kv_cache_usage_perc"), 0)


if __name__ == "__main__":
    unittest.main()
