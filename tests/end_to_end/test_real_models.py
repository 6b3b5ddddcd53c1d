"""Models as people have them: they load within their memory, and chat, complete and fill schemas sensibly."""

import json
import pathlib
import re
import subprocess
import unittest

import run
from real_models import MODELS

NAME = next((name for name, model in MODELS.items() if model.path == run.MODEL), None)


def peak_bytes():
    status = pathlib.Path(f"/proc/{run.SERVER.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024


PEAK = peak_bytes()  # before any request


class RealModel(unittest.TestCase):
    def test_memory(self):
        inspected = subprocess.run([run.BARG, "inspect", run.MODEL], capture_output=True, text=True, check=True).stdout
        packed = int(re.search(r"  weights: (\d+) bytes", inspected)[1])
        file = run.MODEL.stat().st_size
        print(f"ready after {run.SERVER.ready_s:.1f} s; packed {packed / file:.2f} of the file, peak {PEAK / packed:.2f} of that")
        self.assertLessEqual(packed, 1.6 * file)
        # The tokenizer of a small model with a large vocabulary weighs beside it.
        self.assertLessEqual(PEAK, 1.15 * packed + (100 << 20))


@unittest.skipUnless(NAME == "gemma3-270m", "another model")
class Gemma(unittest.TestCase):
    def complete(self, prompt):
        status, answer = run.SERVER.post("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["text"]

    def test_completes(self):
        self.assertIn("Paris", self.complete("The capital of France is the city of"))
        self.assertIn("chlorophyll", self.complete("Leaves are green because they contain a pigment called"))

    def test_counts(self):
        self.assertIn("7, 8, 9", self.complete("1, 2, 3, 4, 5, 6,"))

    def test_long_prompt(self):
        """Beyond the window of 512 tokens that five of six layers see."""
        text = "The leaf fell on the water and the water took it down to the sea. " * 60
        self.assertIn("leaf fell on the water", self.complete(text))

    def test_has_no_template(self):
        status, answer = run.SERVER.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
        self.assertEqual(status, 400, answer)


@unittest.skipUnless(NAME == "qwen2.5-coder-1.5b", "another model")
class Qwen(unittest.TestCase):
    def chat(self, text, **more):
        status, answer = run.SERVER.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": text}], "max_tokens": 200, "temperature": 0, **more})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def text(self, text, **more):
        choice = self.chat(text, **more)
        self.assertEqual(choice["finish_reason"], "stop", choice)
        return choice["message"]["content"]

    def test_english(self):
        self.assertIn("chlorophyll", self.text("Why are leaves green? Answer in one sentence."))

    def test_persian(self):
        """It reads and writes it; what a coder of this size knows in Persian is another matter (float32 gives the same)."""
        self.assertIn("تهران", self.text('Translate to Persian: "Tehran is the capital of Iran."'))
        self.assertIn("book", self.text("What does the Persian word «کتاب» mean in English? Answer with one word.").lower())
        answer = self.text("پایتخت ایران کجاست؟ در یک جملهٔ کوتاه به فارسی پاسخ بده.")
        self.assertRegex(answer, r"^[\u0600-\u06ff\u200c\s.،؛؟!]+$")

    def test_code(self):
        answer = self.text("Write a Python function add(a, b) that returns the sum. Only code, no explanation.")
        code = re.search(r"```(?:python)?\n(.*?)```", answer, re.S)
        scope = {}
        exec(compile(code[1] if code else answer, "answer", "exec"), {"__builtins__": {}}, scope)
        self.assertEqual(scope["add"](2, 3), 5)

    def test_schema(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["name", "moons", "gas_giant", "colour"],
                  "properties": {"name": {"type": "string"}, "moons": {"type": "integer"},
                                 "gas_giant": {"type": "boolean"}, "colour": {"enum": ["red", "blue", "green"]}}}
        answer = json.loads(self.text("Describe the planet Mars as JSON.", response_format={
            "type": "json_schema", "json_schema": {"name": "planet", "strict": True, "schema": schema}}))
        self.assertEqual(set(answer), set(schema["properties"]))
        self.assertEqual((answer["name"], answer["moons"], answer["colour"]), ("Mars", 2, "red"))
        self.assertIsInstance(answer["gas_giant"], bool)

    def test_tool(self):
        tool = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city",
                                                 "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                                                                "required": ["city"]}}}
        message = self.chat("What is the weather in Tehran?", tools=[tool], tool_choice="required")["message"]
        self.assertEqual(message["tool_calls"][0]["function"]["name"], "get_weather")
        self.assertIn("Tehran", json.loads(message["tool_calls"][0]["function"]["arguments"])["city"])

    def test_equal_again(self):
        ask = {"messages": [{"role": "user", "content": "Name three trees."}], "max_tokens": 40, "seed": 7}
        answers = [run.SERVER.post("/v1/chat/completions", ask)[1]["choices"][0]["message"] for _ in range(2)]
        self.assertEqual(*answers)


if __name__ == "__main__":
    unittest.main()
