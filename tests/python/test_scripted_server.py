"""The scripted server itself: what it says, how long, and that everything around the script is real."""

import time
import unittest

import scripted
from scripted import call, joined, plain, say, token, unstreamed, without_ids

WORDS = "one two three four five six"


class Scripts(scripted.Case):
    FAMILY = "qwen3"
    SCRIPTS = {
        "words": WORDS,
        "other": ["Some", "thing ", "else: ", "日本語 🍃."],
        "choices": {"choices": [["first"], ["second"], ["third"]]},
        "endless": {"pieces": ["again "], "end": None},
        "slow": {"pieces": [WORDS], "delay_ms": 20, "first_delay_ms": 60},
        "broken": {"pieces": [WORDS], "fail_after": 3},
        "broken at once": {"pieces": [WORDS], "fail_after": 0},
        "think": [token("<think>"), "\nhmm\n", token("</think>"), "\n\nYes."],
        "typed": [plain("<think>x</think> <tool_call>")],
        "call": [call("f", x=1)],
    }

    def text(self, script, **fields):
        return unstreamed(self.chat(script, **fields))["content"]

    def test_the_last_name_in_the_prompt_counts(self):
        self.assertEqual(self.text("words"), WORDS)
        self.assertEqual(self.text("words", messages=say("words", "other")), "Something else: 日本語 🍃.")
        self.assertEqual(self.text("words", messages=[{"role": "user", "content": "Hi"}]), "Barg is a leaf.")
        self.assertEqual(self.text("unknown"), "Barg is a leaf.")

    def test_completions(self):
        _, _, answer = self.post("/v1/completions", {"prompt": "[[script words]]", "max_tokens": 400})
        self.assertEqual(answer["choices"][0]["text"], WORDS)
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_choices_say_their_own(self):
        answer = self.chat("choices", n=4, temperature=1)
        self.assertEqual([unstreamed(answer, k)["content"] for k in range(4)], ["first", "second", "third", "first"])

    def test_any_temperature(self):
        for temperature in (0, 0.7, 1, 2):
            self.assertEqual(self.text("words", temperature=temperature), WORDS)

    def test_it_obeys(self):
        short = self.chat("words", max_tokens=4)
        self.assertEqual((short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]), (4, "length"))
        self.assertEqual(self.text("words", stop=["four"]), "one two three ")
        long = self.chat("words", ignore_eos=True, max_tokens=100)
        self.assertEqual((long["usage"]["completion_tokens"], long["choices"][0]["finish_reason"]), (100, "length"))
        self.assertTrue(unstreamed(long)["content"].startswith(WORDS + WORDS))
        self.assertEqual(self.chat("words", min_tokens=60, max_tokens=100)["usage"]["completion_tokens"], 61)
        self.assertEqual(self.chat("endless", max_tokens=50)["choices"][0]["finish_reason"], "length")

    def test_logprobs(self):
        for temperature in (0, 1):
            entries = unstreamed(self.chat("words", logprobs=True, top_logprobs=3, temperature=temperature))["logprobs"]
            self.assertEqual("".join(e["token"] for e in entries), WORDS)  # the end shows no text
            for entry in entries:
                self.assertLessEqual(entry["logprob"], 0)
            for entry in entries[:-1]:
                self.assertEqual((entry["token"], entry["logprob"]), (entry["top_logprobs"][0]["token"], entry["top_logprobs"][0]["logprob"]))
        greedy = unstreamed(self.chat("words", logprobs=True))["logprobs"]
        self.assertGreater(len({e["logprob"] for e in greedy}), len(greedy) / 2)

    def test_delays(self):
        started = time.monotonic()
        answer = self.chat("slow")
        self.assertGreater(time.monotonic() - started, 0.06 + 0.02 * (answer["usage"]["completion_tokens"] - 1) - 0.005)

    def test_a_failing_device(self):
        status, _, answer = self.post("/v1/chat/completions", {"messages": say("broken")})
        self.assertEqual((status, answer["error"]["type"]), (500, "server_error"))
        status, _, events = self.stream("/v1/chat/completions", {"messages": say("broken")})
        self.assertEqual((status, events[-1]), (200, (None, "[DONE]")))
        self.assertIn("message", events[-2][1]["error"])
        self.assertEqual(self.post("/v1/chat/completions", {"messages": say("broken at once")})[0], 500)

    def test_streamed_equals_unstreamed(self):
        for script in ("words", "other", "think", "typed", "call"):
            with self.subTest(script):
                tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}] if script == "call" else None
                self.assertEqual(without_ids(joined(self.chat_stream(script, tools=tools))),
                                 without_ids(unstreamed(self.chat(script, tools=tools))))

    def test_a_prefix_is_cached(self):
        long = [{"role": "user", "content": "leaf " * 200 + "[[script words]]"}]
        first, again = (self.chat("words", messages=long)["usage"] for _ in range(2))
        self.assertEqual(again["prompt_tokens"], first["prompt_tokens"])
        self.assertGreater(again["prompt_tokens_details"]["cached_tokens"], first["prompt_tokens"] // 2)


class ApiKey(scripted.Case):
    OPTIONS = ["--api-key", "secret"]

    def test_it_is_asked_for(self):
        self.chat("default", status=401)
        self.chat("default", headers={"Authorization": "Bearer secret"})


if __name__ == "__main__":
    unittest.main()
