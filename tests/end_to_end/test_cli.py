"""The commands as a user types them."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import run
from server import data


def barg(*args, stdin="", timeout=120, env=None):
    return subprocess.run([run.BARG, *map(str, args)], input=stdin, capture_output=True, text=True, timeout=timeout,
                          env=env)


class Cli(unittest.TestCase):
    def one_sentence(self, done, code=1):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_tokenize(self):
        golden = json.loads((data("models/smollm2") / "goldens.json").read_text())
        done = barg("tokenize", "--model", run.MODEL, stdin="Hello, world")
        self.assertEqual(done.returncode, 0, done.stderr)
        ids = json.loads(done.stdout)
        self.assertTrue(ids and all(isinstance(i, int) for i in ids))
        _, answer = run.SERVER.post("/tokenize", {"prompt": "Hello, world", "add_special_tokens": True})
        self.assertEqual(answer["tokens"], ids)
        _, back = run.SERVER.post("/detokenize", {"tokens": answer["tokens"]})
        self.assertIn("Hello, world", back["prompt"])
        self.assertIn("prompts", golden)

    def test_render(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %} {{ strftime_now('%d %b %Y') }}")
            f.flush()
            context = json.dumps({"messages": [{"role": "user", "content": "hé"}]})
            done = barg("render", "--template", f.name, "--now", "2026-11-29T12:34:56", stdin=context)
            self.assertEqual((done.returncode, done.stdout), (0, "[user] hé 29 Nov 2026"), done.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{{ raise_exception('no system message, please') }}")
            f.flush()
            done = barg("render", "--template", f.name, stdin="{}")
            self.one_sentence(done)
            self.assertIn("no system message, please", done.stderr)

    def test_inspect(self):
        done = barg("inspect", run.MODEL)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("llama", "bf16", "KV"):
            self.assertIn(word.lower(), done.stdout.lower())
        self.one_sentence(barg("inspect", "/nonexistent/model.gguf"))
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            f.write(b"GGUF" + b"\xff" * 64)
            f.flush()
            self.one_sentence(barg("inspect", f.name))
            self.one_sentence(barg("serve", "--model", f.name))

    def test_damaged_files_are_refused(self):
        """Truncations and flipped bits of a real file: never a crash, one sentence whenever refused."""
        whole = pathlib.Path(data("gguf/llama-q4_0.gguf") or data("gguf/llama-f32.gguf")).read_bytes()
        refused = 0
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.gguf"
            for k in range(60):
                if k % 2 == 0:
                    damaged = whole[: len(whole) * k // 60]
                else:
                    at = (k * 2654435761) % min(len(whole), 60_000)
                    damaged = whole[:at] + bytes([whole[at] ^ (1 << (k % 8))]) + whole[at + 1:]
                path.write_bytes(damaged)
                done = barg("inspect", path)
                self.assertIn(done.returncode, (0, 1), f"{k}: {done.returncode} {done.stderr}")
                if done.returncode == 1:
                    refused += 1
                    self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertGreaterEqual(refused, 25)

    def test_usage_errors(self):
        for args in (["--frobnicate"], ["serve", "--block-sise", "16"], ["nothing"], ["serve", "--block-size", "17"]):
            done = barg(*args)
            self.assertIn(done.returncode, (2, 78), (args, done.stderr))
            self.assertTrue(done.stderr.strip())
        self.assertIn("--block-size", barg("serve", "--block-sise", "16").stderr)

    def test_config(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            f.write("model:\n  path: /m\nkv:\n  block_sise: 16\n")
            f.flush()
            done = barg("config", "check", "--config", f.name)
            self.assertEqual(done.returncode, 78, done.stdout)
            self.assertIn("block_size", done.stderr)
            self.assertIn("4", done.stderr)
        done = barg("config", "print", "--block-size", "32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("32", done.stdout)

    def test_version_and_help(self):
        self.assertIn("version", json.loads(barg("version", "--json").stdout))
        for args in (["--help"], ["serve", "--help"], ["inspect", "--help"]):
            done = barg(*args)
            self.assertEqual(done.returncode, 0, args)
            self.assertGreater(len(done.stdout), 200)

    def test_health(self):
        self.assertEqual(barg("health", "--url", run.SERVER.url).returncode, 0)
        self.assertEqual(barg("health", "--url", "http://127.0.0.1:1").returncode, 1)

    def test_complete_equals_the_server(self):
        done = barg("complete", "--model", run.MODEL, "--max-tokens", "12", "--temperature", "0", "Hello")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, answer = run.SERVER.post("/v1/completions", {"prompt": "Hello", "max_tokens": 12, "temperature": 0})
        self.assertEqual(done.stdout.rstrip("\n"), answer["choices"][0]["text"].rstrip("\n"))


if __name__ == "__main__":
    unittest.main()
