"""Structured output over the wire: whatever the schema, the budget, the endpoint and the company, what arrives validates with
PyPI's jsonschema. BARG_TEST_LONG: more of everything."""

import concurrent.futures
import json
import os
import random
import re
import typing
import unittest

import anthropic
import jsonschema
import openai
import pydantic

import run
from server import Server

LONG = bool(os.environ.get("BARG_TEST_LONG"))
CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
ASK = [{"role": "user", "content": "Tell me of a leaf, as JSON."}]


# ---- schemas

def leaf(r):
    kind = r.randrange(9)
    if kind == 0:
        low = r.randint(-200, 100)
        return {"type": "integer", "minimum": low, "maximum": low + r.choice([0, 3, 1000])}
    if kind == 1:
        return {"type": "number", "exclusiveMinimum": r.randint(-3, 3)}
    if kind == 2:
        low = r.randint(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + r.randint(0, 9)}
    if kind == 3:
        return {"type": "string", "pattern": r.choice(["^[a-c]{2,5}$", "^(yes|no)+$", "x", r"^\d{3}-\d{2}$"])}
    if kind == 4:
        return {"type": "string", "format": r.choice(["date", "uuid", "ipv4", "email"])}
    if kind == 5:
        return {"enum": r.sample([1, -2.5, "a", "b \" c", None, True, [1], {"k": []}, "ü🍃"], r.randint(1, 4))}
    if kind == 6:
        return {"type": ["boolean", "null"]}
    if kind == 7:
        return {"type": "integer", "multipleOf": r.choice([3, 7, 25]), "minimum": 0}
    return {"const": r.choice(["only", 7, {"a": [1, 2]}])}


def schema_of(r, depth=2):
    if depth == 0 or r.random() < 0.25:
        return leaf(r)
    kind = r.randrange(4)
    if kind == 0:
        low = r.randint(0, 2)
        return {"type": "array", "items": schema_of(r, depth - 1), "minItems": low, "maxItems": low + r.randint(0, 3)}
    if kind == 1:
        return {"anyOf": [schema_of(r, depth - 1) for _ in range(r.randint(1, 3))]}
    if kind == 2:
        return {"type": "array", "prefixItems": [schema_of(r, depth - 1), leaf(r)], "items": False, "minItems": 1}
    names = r.sample(["a", "b", "name", "long name", "ü", 'q"'], r.randint(1, 4))
    out = {"type": "object", "properties": {n: schema_of(r, depth - 1) for n in names},
           "required": [n for n in names if r.random() < 0.6]}
    if r.random() < 0.7:
        out["additionalProperties"] = r.choice([False, {"type": "integer"}])
    return out


FIXED = [
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {
        "type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v"], "additionalProperties": False}}},
    {"type": "object"},
    {"type": "object", "properties": {"k": {"enum": ["x", "y"]}}, "required": ["k"],
     "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["a"]}, "else": {"required": ["b"]}},
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "string", "maxLength": 8}}}], "maxProperties": 2},
]


def reads(text):
    return json.loads(text, parse_int=lambda s: int(s[:4000]))


# ---- asking

def server(given):
    return given or run.SERVER


def minimum(fields, path=CHAT, given=None):
    """The smallest budget that is not refused: the refusal says it."""
    status, answer = server(given).post(path, {**fields, "max_tokens": 1})
    if status == 200:
        return 1
    assert status == 400 and answer["error"]["param"] == "max_tokens", answer
    return int(re.search(r"max_tokens must be at least (\d+)", answer["error"]["message"])[1])


def streamed(path, body, given=None):
    """{index: (text, finish_reason)}"""
    status, _, raw = server(given).request("POST", path, {**body, "stream": True})
    assert status == 200, raw
    texts, finishes = {}, {}
    for line in raw.decode().split("\n"):
        if not line.startswith("data: {"):
            continue
        for c in json.loads(line[6:])["choices"]:
            piece = c["text"] if path == COMPLETIONS else c["delta"].get("content")
            texts[c["index"]] = texts.get(c["index"], "") + (piece or "")
            finishes[c["index"]] = c["finish_reason"] or finishes.get(c["index"])
    return {i: (texts[i], finishes[i]) for i in texts}


def whole(path, body, given=None):
    status, answer = server(given).post(path, body)
    assert status == 200, (answer, body)
    return {c["index"]: (c["text"] if path == COMPLETIONS else c["message"]["content"], c["finish_reason"]) for c in answer["choices"]}


def small_server(tokens):
    """Its pool holds one request of so many tokens, and not several."""
    for kib in (2 ** k for k in range(7, 20)):
        try:
            small = Server(run.BARG, run.MODEL, ["--kv-cache-memory-bytes", f"{kib}KiB"])
        except RuntimeError as error:
            problem = error
            continue
        if json.loads(small.get("/v1/models")[1])["data"][0]["max_model_len"] >= tokens:
            return small
        small.stop()
    raise problem


class Place(pydantic.BaseModel):
    city: typing.Literal["Rome", "Oslo"]
    days: typing.Literal[1, 2, 3]
    sunny: bool


class Structured(unittest.TestCase):
    def cases(self, count):
        out = []
        for k in range(count):
            r = random.Random(k)
            out.append(FIXED[k] if k < len(FIXED) else schema_of(r))
        return out

    def fields(self, schema, k):
        """A request, spelled in one of the ways."""
        ways = [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}, {"guided_json": schema},
                {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}, {"json_schema": json.dumps(schema)}]
        return {**ways[k % len(ways)], "messages": ASK, "seed": k, "temperature": [1, 0, 1.5][k % 3]}

    def check(self, schema, text, finish, what):
        self.assertIn(finish, ("stop", "length"), what)
        try:
            jsonschema.Draft202012Validator(schema).validate(reads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            self.fail(f"{what}: {text!r}: {error}")

    def test_every_output_fits_from_the_smallest_budget_up(self):
        jobs = []
        for k, schema in enumerate(self.cases(120 if LONG else 16)):
            fields = self.fields(schema, k)
            least = minimum(fields)
            if least > 1:
                status, answer = run.SERVER.post(CHAT, {**fields, "max_tokens": least - 1})
                self.assertEqual((status, answer["error"]["param"]), (400, "max_tokens"))
            for more in ((0, 1, 2, 3, 5, 8, 20, 60) if LONG else (0, 1, 4, 16)):
                jobs.append((schema, {**fields, "max_tokens": least + more}))

        def one(job):
            schema, body = job
            plain = whole(CHAT, body)
            return schema, body, plain, streamed(CHAT, body)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            done = list(pool.map(one, jobs))
        shaped = 0
        for schema, body, plain, stream in done:
            self.assertEqual(stream, plain, body)
            self.check(schema, *plain[0], body)
            shaped += plain[0][1] == "length"
        self.assertGreater(shaped, 0, "short ones say so")
        print(f"{len(done)} outputs, streamed and not, {shaped} shaped by their length")

    def test_choices_prompts_and_logprobs(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 12}}, "required": ["a", "b"]}
        body = {"prompt": ["One leaf: ", "Two leaves: "], "n": 2, "guided_json": schema, "max_tokens": 70, "seed": 5, "logprobs": 3}
        status, answer = run.SERVER.post(COMPLETIONS, body)
        self.assertEqual((status, len(answer["choices"])), (200, 4), answer)
        for c in answer["choices"]:
            self.check(schema, c["text"], c["finish_reason"], body)
            raw = b"".join(bytes.fromhex("".join(t.split("bytes:\\x")[1:])) if t.startswith("bytes:") else t.encode() for t in c["logprobs"]["tokens"])
            self.assertEqual(raw.decode(), c["text"])
            self.assertTrue(all(p <= 0 for p in c["logprobs"]["token_logprobs"]))
        self.assertEqual(streamed(COMPLETIONS, body), {c["index"]: (c["text"], c["finish_reason"]) for c in answer["choices"]})
        alone = whole(COMPLETIONS, {**body, "prompt": body["prompt"][0], "n": 1})
        self.assertEqual(alone[0], (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]))

    def test_a_stop_string_that_cuts_is_marked(self):
        status, answer = run.SERVER.post(COMPLETIONS, {"prompt": "x", "guided_regex": "ab{3}c", "stop": ["bb"], "max_tokens": 20})
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]), ("a", "stop", "bb"))

    def test_what_contradicts_it_is_refused(self):
        for fields, param in (({"min_tokens": 3}, "min_tokens"), ({"ignore_eos": True}, "ignore_eos"),
                              ({"guided_choice": ["a"]}, "guided_choice"), ({"banned_token_ids": list(range(20))}, "")):
            status, answer = run.SERVER.post(CHAT, {"messages": ASK, "guided_regex": "[a-z]{4}", "max_tokens": 50, **fields})
            if param:
                self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
            else:
                self.assertIn(status, (200, 400))

    def test_calls(self):
        parameters = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                      "required": ["city", "days"], "additionalProperties": False}
        tools = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": parameters}},
                 {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
        for k in range(24 if LONG else 6):
            for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
                body = {"messages": ASK, "tools": tools, "tool_choice": choice, "seed": k, "max_tokens": 160}
                status, answer = run.SERVER.post(CHAT, body)
                self.assertEqual(status, 200, answer)
                message = answer["choices"][0]["message"]
                self.assertTrue(message.get("tool_calls"), answer)
                for call in message["tool_calls"]:
                    arguments = json.loads(call["function"]["arguments"])
                    if call["function"]["name"] == "weather":
                        jsonschema.validate(arguments, parameters)
                    else:
                        self.assertEqual((call["function"]["name"], arguments), ("now", {}))
                if choice != "required":
                    self.assertEqual([c["function"]["name"] for c in message["tool_calls"]], ["weather"])
            least = None
            body = {"messages": ASK, "tools": tools, "tool_choice": "required", "seed": k}
            least = minimum(body)
            answer = run.SERVER.post(CHAT, {**body, "max_tokens": least + k % 3})[1]
            self.assertTrue(answer["choices"][0]["message"].get("tool_calls"), "a call fits into the smallest budget")
            either = run.SERVER.post(CHAT, {"messages": ASK, "tools": tools, "seed": k, "max_tokens": 120, "guided_json": {"type": "integer"}})[1]
            message = either["choices"][0]["message"]
            if not message.get("tool_calls"):
                self.assertEqual(reads(message["content"]) % 1, 0)  # 3.0 is an integer

    def test_preemption_and_company_change_nothing(self):
        jobs = []
        for k, schema in enumerate(self.cases(24)):
            jobs.append({**self.fields(schema, k), "max_tokens": 100})
        alone = [whole(CHAT, body) for body in jobs]
        with small_server(160) as small:
            for _ in range(3 if LONG else 1):
                with concurrent.futures.ThreadPoolExecutor(24) as pool:
                    together = list(pool.map(lambda body: whole(CHAT, body, small), jobs))
                for body, a, b in zip(jobs, alone, together):
                    self.assertEqual(a, b, body)
            self.assertGreater(small.metric("vllm:num_preemptions_total"), 0)

    # ---- the official clients

    def test_openai_parses(self):
        c = openai.OpenAI(base_url=run.SERVER.url + "/v1", api_key="none", max_retries=0)
        model = c.models.list().data[0].id
        for seed in range(4):
            ask = {"model": model, "messages": ASK, "seed": seed, "max_tokens": 400}
            self.assertIsInstance(c.chat.completions.parse(response_format=Place, **ask).choices[0].message.parsed, Place)
            with c.chat.completions.stream(response_format=Place, **ask) as stream:
                self.assertIsInstance(stream.get_final_completion().choices[0].message.parsed, Place)
            message = c.chat.completions.parse(tools=[openai.pydantic_function_tool(Place)], tool_choice="required", parallel_tool_calls=False,
                                               **ask).choices[0].message
            self.assertIsInstance(message.tool_calls[0].function.parsed_arguments, Place)
            said = c.chat.completions.create(response_format={"type": "json_object"}, **ask).choices[0].message.content
            self.assertIsInstance(reads(said), dict)
            response = c.responses.parse(model=model, input="Where?", text_format=Place, extra_body={"seed": seed})
            self.assertIsInstance(response.output_parsed, Place)
            self.assertEqual(response.text.format.type, "json_schema")
            with c.responses.stream(model=model, input="Where?", text_format=Place, extra_body={"seed": seed}) as stream:
                self.assertIsInstance(stream.get_final_response().output_parsed, Place)

    def test_anthropic_parses(self):
        c = anthropic.Anthropic(base_url=run.SERVER.url, api_key="none", max_retries=0)
        model = openai.OpenAI(base_url=run.SERVER.url + "/v1", api_key="none").models.list().data[0].id
        for seed in range(4):
            ask = {"model": model, "max_tokens": 400, "messages": ASK, "extra_body": {"seed": seed}}
            self.assertIsInstance(c.messages.parse(output_format=Place, **ask).parsed_output, Place)
            tool = {"name": "place", "input_schema": Place.model_json_schema()}
            for choice in ({"type": "any"}, {"type": "tool", "name": "place"}):
                message = c.messages.create(tools=[tool], tool_choice=choice, **ask)
                self.assertEqual(message.content[-1].type, "tool_use")
                Place.model_validate(message.content[-1].input)


if __name__ == "__main__":
    unittest.main()
