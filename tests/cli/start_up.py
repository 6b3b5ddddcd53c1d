"""What `barg serve` prints while it starts and stops: start_up.py BARG"""

import http.client
import json
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BARG = None


def model():
    for base in (ROOT.parent / "shared" / "data", ROOT / "tests" / "data"):
        if (base / "models/smollm2").exists():
            return base / "models/smollm2"
    return None


class Serve:
    """A server on a free port; `lines` are those up to "ready"."""

    def __init__(self, *options, env=None, terminal=False, last="ready"):
        command = [BARG, "serve", "--port", "0", *map(str, options)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BARG_")} | (env or {})
        if terminal:
            self.read_fd, write_fd = pty.openpty()
        else:
            self.read_fd, write_fd = os.pipe()
        self.process = subprocess.Popen(command, stderr=write_fd, stdout=subprocess.DEVNULL, env=environment)
        os.close(write_fd)
        self.raw = ""
        self.read_until(last)
        self.lines = self.raw.replace("\r\n", "\n").split("\n")

    def read_until(self, word):
        while not re.search(word + r".*\n", self.raw):
            if not select.select([self.read_fd], [], [], 60)[0]:
                raise AssertionError(f"nothing more after: {self.raw}")
            try:
                piece = os.read(self.read_fd, 65536)
            except OSError:  # the terminal's other end is closed
                piece = b""
            if not piece:
                raise AssertionError(f"ended with {self.process.wait()}: {self.raw}")
            self.raw += piece.decode()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.read_fd)


class StartUp(unittest.TestCase):
    def test_one_line_a_phase_with_milliseconds(self):
        with Serve(model()) as server:
            phases = [m.group(1) for line in server.lines if (m := re.match(r" *\d+ ms  (\S+) ", line))]
            self.assertEqual(phases, ["config", "model", "text", "memory", "weights", "listen"])
            self.assertRegex(server.raw, r"weights .*kernels cpu-\w+, \d+ threads")
            self.assertRegex(server.raw, r"memory .*KV \w+ .* a token, \d+ blocks of 16 tokens")
            self.assertRegex(server.lines[-2], r"^ready in \d+ ms; try: curl ")
            self.assertNotIn("\r", server.raw)
            self.assertEqual(server.stop(), 0)

    def test_the_curl_line_answers(self):
        for env in ({}, {"BARG_API_KEY": "sk-it's"}):
            with Serve(model(), env=env) as server:
                line = server.lines[-2].split("try: ", 1)[1]
                words = shlex.split(line.replace("$BARG_API_KEY", env.get("BARG_API_KEY", "")))
                url = re.match(r"http://([^:]+):(\d+)(/.*)", words[1])
                headers = dict(words[i + 1].split(": ", 1) for i, w in enumerate(words) if w == "-H")
                body = words[words.index("-d") + 1]
                connection = http.client.HTTPConnection(url.group(1), int(url.group(2)), timeout=60)
                connection.request("POST", url.group(3), body, headers)
                response = connection.getresponse()
                answer = response.read()
                connection.close()
                self.assertEqual(response.status, 200, answer)
                self.assertIn("choices", json.loads(answer))
                self.assertNotIn("sk-it", server.raw)

    def test_changed_values_are_told_with_their_origin(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            f.write("kv:\n  block_size: 32\n")
            f.flush()
            with Serve(model(), "--config", f.name, "--max-num-seqs", "4", env={"BARG_WATERMARK": "0.05"}) as server:
                for line in (f"kv.block_size = 32 ({f.name}:2)", "scheduler.max_num_seqs = 4 (--max-num-seqs)",
                             "scheduler.watermark = 0.05 (BARG_WATERMARK)"):
                    self.assertIn(line, server.raw)
                self.assertNotIn("server.host", server.raw)

    def test_lengths_are_explained(self):
        own = json.loads((model() / "config.json").read_text())["max_position_embeddings"]
        with Serve(model(), "--max-model-len", own * 2) as server:
            self.assertIn(str(own), " ".join(l for l in server.lines if " note " in l or " warning " in l))
        with Serve(model(), "--kv-cache-memory-bytes", "64KiB", "--max-num-seqs", "1") as server:
            notes = " ".join(line for line in server.lines if " note " in line)
            self.assertTrue(notes, server.raw)
        with Serve(model(), "--host", "0.0.0.0") as server:
            self.assertRegex(server.raw, "warning .*without server.api_key")
            self.assertIn("curl http://127.0.0.1:", server.raw)

    def test_json_log(self):
        with Serve(model(), "--log-format", "json", last='"ready"') as server:
            events = [json.loads(line) for line in server.lines if line]
            startup = [e["line"] for e in events if e["line"]["event"] == "startup"]
            self.assertTrue({"config", "model", "weights", "listen"} <= {e["phase"] for e in startup}, startup)
            self.assertTrue(all(isinstance(e.get("ms", 0), (int, float)) and e["phase"] for e in startup), startup)
            self.assertTrue(events[-1]["line"]["try"].startswith("curl "), events[-1])
            self.assertEqual(server.stop(), 0)

    def test_progress_only_on_a_terminal(self):
        with Serve(model(), terminal=True) as server:
            self.assertRegex(server.raw, r"\r +weights +\d+ %")
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    if len(sys.argv) < 2 or model() is None:
        print("skipped: no model")
        sys.exit(77)
    BARG = sys.argv.pop(1)
    unittest.main(verbosity=2)
