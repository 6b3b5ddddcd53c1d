"""The official `openai` client and an embedding model (BARG_URL): what it sends by itself, what it reads back.

Run by tests/end_to_end/run.py, or by hand against any embedding model whose vectors have length 1."""

import math
import os
import unittest
import urllib.request

import openai

BASE = os.environ.get("BARG_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("BARG_API_KEY", "none")
TEXTS = ["Leaves are green.", "The capital of France is Paris.", "x", "Leaves are green, and some are red. " * 8]


class Embeddings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=120)
        cls.model = cls.c.models.list().data[0].id

    def embed(self, text, **kw):
        return self.c.embeddings.create(model=self.model, input=text, **kw)

    def test_one_and_many(self):
        many = self.embed(TEXTS)
        self.assertEqual([d.index for d in many.data], list(range(len(TEXTS))))
        self.assertEqual((many.object, many.model), ("list", self.model))
        self.assertEqual(many.usage.total_tokens, many.usage.prompt_tokens)
        tokens = 0
        for text, one in zip(TEXTS, many.data):
            alone = self.embed(text)
            tokens += alone.usage.prompt_tokens
            self.assertEqual(alone.data[0].embedding, one.embedding, "the same numbers alone and in a batch")
            self.assertAlmostEqual(math.sqrt(sum(x * x for x in one.embedding)), 1, places=6)
        self.assertEqual(many.usage.prompt_tokens, tokens)

    def test_formats_are_the_same_numbers(self):
        # The client asks for base64 by itself and decodes it; floats come as they are.
        default = self.embed(TEXTS[0]).data[0].embedding
        self.assertIsInstance(default, list)
        self.assertEqual(self.embed(TEXTS[0], encoding_format="float").data[0].embedding, default)
        self.assertIsInstance(self.embed(TEXTS[0], encoding_format="base64").data[0].embedding, str)

    def test_token_ids(self):
        ids = [5, 17, 99, 3]
        one = self.embed(ids)
        self.assertEqual(one.usage.prompt_tokens, 4)
        two = self.embed([ids, [5]])
        self.assertEqual(two.data[0].embedding, one.data[0].embedding)
        self.assertNotEqual(two.data[1].embedding, one.data[0].embedding)

    def test_dimensions(self):
        size = len(self.embed("a").data[0].embedding)
        self.assertEqual(len(self.embed("a", dimensions=size).data[0].embedding), size)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.embed("a", dimensions=size - 1)
        self.assertEqual(caught.exception.param, "dimensions")

    def test_errors(self):
        for bad, param in (("", "input"), ([], "input"), (["a", ""], "input[1]"), ([[1], []], "input[1]")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.embed(bad)
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.embed("word " * 100_000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        cut = self.embed("word " * 100_000, extra_body={"truncate_prompt_tokens": 10})
        self.assertEqual(cut.usage.prompt_tokens, 10)
        with self.assertRaises(openai.NotFoundError):
            self.c.embeddings.create(model="nope", input="a")

    def test_it_generates_nothing(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.c.chat.completions.create(model=self.model, messages=[{"role": "user", "content": "Hi"}])
        self.assertIn("/v1/embeddings", caught.exception.message)
        with self.assertRaises(openai.BadRequestError):
            self.c.completions.create(model=self.model, prompt="Hi")

    def test_prefixes_are_shared(self):
        if "bert" in self.model:
            self.skipTest("the KV of an encoder's prompt is that of no other")
        before = self.hits()
        instruction = "Instruct: given a question, find passages that answer it.\nQuery: " * 4
        self.embed([instruction + "why?", instruction + "how?"])
        self.embed(instruction + "when?")
        self.assertGreater(self.hits(), before)

    def hits(self):
        text = urllib.request.urlopen(BASE + "/metrics").read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("vllm:prefix_cache_hits_total"))


if __name__ == "__main__":
    unittest.main()
