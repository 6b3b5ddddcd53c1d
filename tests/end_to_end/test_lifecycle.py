"""Start, drain, refuse, die: what an operator sees."""

import json
import signal
import socket
import subprocess
import threading
import time
import unittest

import run
from server import Server, wait_until


def stream(port, body):
    payload = json.dumps({**body, "stream": True}).encode()
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(120)
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(payload) + payload)
    return s


def read_all(s):
    out = b""
    while chunk := s.recv(65536):
        out += chunk
        if b"0\r\n\r\n" in out:
            break
    return out


LONG = {"prompt": [5, 6, 7], "max_tokens": 200, "ignore_eos": True}


class Lifecycle(unittest.TestCase):
    def test_sigterm_drains(self):
        with Server(run.BARG, run.MODEL) as server:
            s = stream(server.port, LONG)
            first = s.recv(256)
            self.assertIn(b"200 OK", first)
            server.process.send_signal(signal.SIGTERM)
            rest = first + read_all(s)
            self.assertIn(b"data: [DONE]", rest)
            self.assertIn(b'"finish_reason":"length"', rest)
            self.assertEqual(server.process.wait(60), 0)

    def test_draining_refuses_and_second_signal_cuts(self):
        with Server(run.BARG, run.MODEL) as server:
            s = stream(server.port, {**LONG, "max_tokens": 1000})
            s.recv(64)
            server.process.send_signal(signal.SIGTERM)
            try:
                wait_until(lambda: server.get("/readyz")[0] == 503, "unready", 10)
                status, headers, body = server.request("POST", "/v1/completions", LONG)
                self.assertEqual(status, 503)
                self.assertIn("retry-after", headers)
                self.assertEqual(json.loads(body)["error"]["type"], "server_error")
            except OSError:
                pass  # it had already finished: nothing left to refuse
            server.process.send_signal(signal.SIGTERM)
            rest = read_all(s)
            self.assertIn(b"[DONE]", rest)
            self.assertEqual(server.process.wait(30), 0)

    def test_disconnect_storm_leaves_nothing(self):
        server = run.SERVER
        server.post("/v1/completions", LONG)
        wait_until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0, "idle")
        fds, rss = server.fds(), server.rss_bytes()

        def storm(k):
            for i in range(40):
                s = stream(server.port, {**LONG, "max_tokens": 500, "prompt": [3 + k, 4 + i, 5, 6, 7] * (1 + i % 9)})
                if i % 3 == 0:
                    s.recv(1 + i)
                if i % 4 == 0:  # RST instead of FIN
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                s.close()

        threads = [threading.Thread(target=storm, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wait_until(lambda: server.running() == 0, "all gone", 60)
        wait_until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0, "blocks at baseline")
        wait_until(lambda: server.fds() <= fds + 1, "descriptors at baseline")
        self.assertLess(server.rss_bytes(), rss + 64 * 2**20)
        status, _ = server.post("/v1/completions", {**LONG, "max_tokens": 2})
        self.assertEqual(status, 200)

    def test_port_in_use_is_one_sentence(self):
        done = subprocess.run([run.BARG, "serve", "--model", run.MODEL, "--port", str(run.SERVER.port)],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 73, done.stderr)
        self.assertIn(str(run.SERVER.port), done.stderr.splitlines()[-1])

    def test_api_keys(self):
        with Server(run.BARG, run.MODEL, ["--api-key", "secret-1"]) as server:
            for path in ("/health", "/livez", "/readyz"):
                self.assertEqual(server.get(path)[0], 200, path)
            for path in ("/v1/models", "/metrics", "/version", "/nothing"):
                self.assertEqual(server.get(path)[0], 401, path)
            self.assertEqual(server.get("/v1/models", headers={"Authorization": "Bearer secret-1"})[0], 200)
            self.assertEqual(server.get("/v1/models", headers={"Authorization": "Bearer secret-2"})[0], 401)
            self.assertEqual(server.get("/v1/models", headers={"x-api-key": "secret-1"})[0], 200)
        with Server(run.BARG, run.MODEL, env={"BARG_API_KEY": "from-env"}) as server:
            self.assertEqual(server.get("/v1/models")[0], 401)
            self.assertEqual(server.get("/v1/models", headers={"Authorization": "Bearer from-env"})[0], 200)

    def test_api_keys_share_no_blocks(self):
        def cached(server, key, **fields):
            status, answer = server.post("/v1/completions", {"prompt": list(range(5, 105)), "max_tokens": 1, **fields},
                                         headers={"Authorization": f"Bearer {key}"})
            self.assertEqual(status, 200, answer)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        with Server(run.BARG, run.MODEL, ["--api-key", "one,two"]) as server:
            self.assertEqual(cached(server, "one"), 0)
            self.assertGreater(cached(server, "one"), 0)
            self.assertEqual(cached(server, "two"), 0)
            self.assertEqual(cached(server, "one", cache_salt="shared:us"), 0)
            self.assertGreater(cached(server, "two", cache_salt="shared:us"), 0)

    def test_small_pools_and_budgets_work(self):
        for options in (["--max-num-batched-tokens", "1"], ["--block-size", "64"], ["--max-num-seqs", "1"],
                        ["--kv-cache-memory-bytes", "1MiB"], ["--kv-cache-dtype", "bf16"]):
            with self.subTest(options=options), Server(run.BARG, run.MODEL, options) as server:
                status, answer = server.post("/v1/completions", {**LONG, "max_tokens": 20, "n": 3})
                self.assertEqual(status, 200, answer)
                self.assertEqual([c["finish_reason"] for c in answer["choices"]], ["length"] * 3)

    def test_one_access_line_a_request(self):
        with Server(run.BARG, run.MODEL) as server:
            server.request("POST", "/v1/completions", {**LONG, "max_tokens": 1}, headers={"X-Request-Id": "line-ok"})
            server.request("POST", "/v1/completions", b"{", headers={"X-Request-Id": "line-bad"})
            payload = json.dumps({**LONG, "max_tokens": 900, "stream": True}).encode()
            s = socket.create_connection(("127.0.0.1", server.port))
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                      b"X-Request-Id: line-cut\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload)
            s.recv(32)
            s.close()
            wait_until(lambda: "line-cut" in server.output(), "the aborted request has its line")
            time.sleep(0.1)
            for name in ("line-ok", "line-bad", "line-cut"):
                self.assertEqual(server.output().count(name), 1, name)


if __name__ == "__main__":
    unittest.main()
