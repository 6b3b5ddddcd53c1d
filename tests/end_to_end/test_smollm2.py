"""SmolLM2-135M-Instruct in recipe f32 against transformers in float32, over the wire."""

import json
import unittest

import run
from server import data


class SmolLM2(unittest.TestCase):
    def test_ready_quickly(self):
        print(f"ready after {run.SERVER.ready_s * 1000:.0f} ms, RSS {run.SERVER.rss_bytes() / 2**20:.0f} MiB")

    def test_goldens(self):
        path = data("smollm2/goldens.json")
        if path is None:
            self.skipTest("skipped: no ../shared")
        compared = 0
        for case in json.loads(path.read_text())["cases"]:
            with self.subTest(case=case.get("id")):
                common = {"model": None, "temperature": 0, "max_tokens": 64, "ignore_eos": True,
                          "return_token_ids": True}
                if case.get("messages"):
                    status, answer = run.SERVER.post("/v1/chat/completions", {**common, "messages": case["messages"]})
                else:
                    status, answer = run.SERVER.post("/v1/completions", {**common, "prompt": case["text"]})
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["usage"]["prompt_tokens"], len(case["prompt_ids"]))
                got = answer["choices"][0]["token_ids"]
                want = case["output_ids"]
                self.assertEqual(len(got), 64)
                for step, (a, b) in enumerate(zip(got, want)):
                    if a != b:
                        self.assertLess(case["steps"][step]["gap"], 1e-3, f"first difference at step {step}: {a} for {b}")
                        break
                compared += 1
        self.assertGreaterEqual(compared, 20)


if __name__ == "__main__":
    unittest.main()
