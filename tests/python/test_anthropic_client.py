"""The official `anthropic` client against a running server (BARG_URL), whatever its model says: that messages, streams, counts
and errors are what the client takes them for. What an answer holds is tested with scripts: test_messages_*.py."""

import os
import unittest

import anthropic

BASE = os.environ.get("BARG_URL", "http://127.0.0.1:8000")
HI = [{"role": "user", "content": "Hello there"}]
TOOLS = [{"name": "weather", "description": "Weather of a city.",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = anthropic.Anthropic(base_url=BASE, api_key=os.environ.get("BARG_API_KEY", "none"), max_retries=0, timeout=120)
        cls.addClassCleanup(cls.c.close)
        cls.model = os.environ.get("BARG_MODEL") or cls.c.get("/v1/models", cast_to=object)["data"][0]["id"]

    def ask(self, temperature=0, **kw):
        # The client has no such parameter any more; the protocol has.
        return {"model": self.model, "max_tokens": 12, "messages": HI, "extra_body": {"temperature": temperature}, **kw}

    def test_plain(self):
        message = self.c.messages.create(**self.ask(system="Be brief.", tools=TOOLS))
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", self.model))
        self.assertIn(message.stop_reason, ("end_turn", "max_tokens", "tool_use"))
        self.assertGreater(message.usage.input_tokens + message.usage.cache_read_input_tokens, 0)
        self.assertGreater(message.usage.output_tokens, 0)

    def test_streamed_equals_plain(self):
        plain = self.c.messages.create(**self.ask())
        with self.c.messages.stream(**self.ask()) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual([b.model_dump() for b in final.content], [b.model_dump() for b in plain.content])
        self.assertEqual(text, "".join(b.text for b in plain.content if b.type == "text"))
        self.assertEqual((final.stop_reason, final.usage.output_tokens), (plain.stop_reason, plain.usage.output_tokens))

    def test_count(self):
        counted = self.c.messages.count_tokens(model=self.model, messages=HI).input_tokens
        usage = self.c.messages.create(**self.ask()).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens)

    def test_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.c.messages.create(**self.ask(temperature=9))
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError):
            self.c.messages.create(**self.ask(model="nobody"))


if __name__ == "__main__":
    unittest.main()
