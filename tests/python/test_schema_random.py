"""Random schemas and instances against PyPI jsonschema: what is enforced accepts the valid instances (in some order of their
members) and no invalid one (in no order); what is refused names a keyword; `lenient` never refuses a valid instance.
BARG_TEST_SEED and BARG_TEST_SCHEMAS vary a run."""

import itertools
import json
import math
import os
import random
import unittest

import grammar_batch
import jsonschema

SEED = int(os.environ.get("BARG_TEST_SEED") or 1)
SCHEMAS = int(os.environ.get("BARG_TEST_SCHEMAS") or 3000)
VALIDATORS = {"7": jsonschema.Draft7Validator, "2019-09": jsonschema.Draft201909Validator,
              "2020-12": jsonschema.Draft202012Validator}
NAMES = ["a", "b", "c", "kind", "x1"]
STRINGS = ["", "a", "b", "ab", "abc", "x", "ä", "🍃", "kind", "12"]
NUMBERS = [0, 1, 2, 3, 4, 6, 10, -1, -5, 0.5, 1.5, 2.25, 100]
PATTERNS = ["^a", "b$", "^[a-c]{1,2}$", "x", "^x[0-9]+$", "^.{2}$"]
SPACINGS = [{"separators": (",", ":")}, {}, {"indent": 2}]


class Schemas:
    """Draws schemas of one draft."""

    def __init__(self, rng, draft):
        self.rng, self.draft = rng, draft

    def some(self, items, most):
        return self.rng.sample(items, self.rng.randint(1, min(most, len(items))))

    def value(self, depth=2):
        pick = self.rng.random()
        if depth > 0 and pick < 0.15:
            return [self.value(depth - 1) for _ in range(self.rng.randint(0, 3))]
        if depth > 0 and pick < 0.35:
            return {name: self.value(depth - 1) for name in self.rng.sample(NAMES, self.rng.randint(0, 3))}
        return self.rng.choice([None, True, False, *self.rng.sample(STRINGS, 2), *self.rng.sample(NUMBERS, 2)])

    def numbers(self):
        out = {}
        for keyword in self.some(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"], 2):
            out[keyword] = self.rng.choice([1, 2, 3, 0.5, 0.25]) if keyword == "multipleOf" else self.rng.choice(NUMBERS)
        return out

    def strings(self):
        out = {}
        for keyword in self.some(["minLength", "maxLength", "pattern"], 2):
            out[keyword] = self.rng.choice(PATTERNS) if keyword == "pattern" else self.rng.randint(0, 3)
        return out

    def arrays(self, depth):
        out = {}
        for keyword in self.some(["items", "prefix", "minItems", "maxItems", "contains", "uniqueItems", "rest"], 3):
            if keyword == "items":
                out.setdefault("items", self.schema(depth - 1))
            elif keyword == "prefix":
                out["prefixItems" if self.draft == "2020-12" else "items"] = [
                    self.schema(depth - 1) for _ in range(self.rng.randint(1, 2))]
            elif keyword == "contains":
                out["contains"] = self.schema(depth - 1)
                if self.draft != "7":
                    out.update({k: self.rng.randint(0, 3) for k in self.some(["minContains", "maxContains"], 2)})
            elif keyword == "uniqueItems":
                out[keyword] = self.rng.random() < 0.8
            elif keyword == "rest":
                out["items" if self.draft == "2020-12" else "additionalItems"] = self.schema(depth - 1)
            else:
                out[keyword] = self.rng.randint(0, 4)
        if not isinstance(out.get("items"), list):
            out.pop("additionalItems", None)  # jsonschema stumbles over it beside "items": true
        return out

    def objects(self, depth):
        out = {}
        keywords = ["properties", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
                    "minProperties", "maxProperties", "dependent"]
        for keyword in self.some(keywords, 4):
            if keyword == "properties":
                out[keyword] = {name: self.schema(depth - 1) for name in self.some(NAMES, 3)}
            elif keyword == "required":
                out[keyword] = self.some(NAMES, 2)
            elif keyword == "additionalProperties":
                out[keyword] = self.rng.choice([False, self.schema(depth - 1)])
            elif keyword == "patternProperties":
                out[keyword] = {pattern: self.schema(depth - 1) for pattern in self.some(PATTERNS, 2)}
            elif keyword == "propertyNames":
                out[keyword] = self.rng.choice([{"pattern": self.rng.choice(PATTERNS)}, {"maxLength": 1}, {"enum": self.some(NAMES, 3)}])
            elif keyword == "dependent":
                schemas = {self.rng.choice(NAMES): self.schema(depth - 1)}
                names = {self.rng.choice(NAMES): self.some(NAMES, 2)}
                out.update({"dependencies": {**schemas, **names}} if self.draft == "7" else
                           self.rng.choice([{"dependentSchemas": schemas}, {"dependentRequired": names}]))
            else:
                out[keyword] = self.rng.randint(0, 3)
        return out

    def logic(self, depth):
        keyword = self.rng.choice(["allOf", "anyOf", "oneOf", "oneOf", "not", "if", "$ref"])
        if keyword == "$ref":
            return {"$ref": f"#/definitions/{self.rng.choice('AB')}"}
        if keyword == "not":
            return {"not": self.schema(depth - 1)}
        if keyword == "if":
            return {k: self.schema(depth - 1) for k in ["if", *self.some(["then", "else"], 2)]}
        return {keyword: [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]}

    def schema(self, depth):
        pick = self.rng.random()
        if depth <= 0:
            return self.rng.choice([True, {"type": self.rng.choice(["integer", "string", "boolean", "null"])},
                                    {"const": self.value(1)}, {"enum": [self.value(1) for _ in range(3)]}, self.numbers(), self.strings()])
        if pick < 0.05:
            return self.rng.choice([True, False])
        out = {}
        kinds = ["integer", "number", "string", "array", "object", "boolean", "null"]
        if pick < 0.75:
            out["type"] = self.rng.choice(kinds) if self.rng.random() < 0.7 else self.some(kinds, 3)
        types = out.get("type", self.some(kinds, 2))
        if self.rng.random() < 0.15:
            out["enum"] = [self.value() for _ in range(self.rng.randint(1, 5))]
        if self.rng.random() < 0.8:
            if "integer" in types or "number" in types:
                out.update(self.numbers())
            if "string" in types:
                out.update(self.strings())
            if "array" in types:
                out.update(self.arrays(depth))
            if "object" in types:
                out.update(self.objects(depth))
        if self.rng.random() < 0.35:
            out.update(self.logic(depth))
        if self.draft != "7" and self.rng.random() < 0.04:
            out[self.rng.choice(["unevaluatedProperties", "unevaluatedItems"])] = self.rng.choice([False, {"type": "integer"}])
        return out

    def document(self):
        out = self.schema(3)
        if isinstance(out, bool):
            out = {}
        for name in "AB":
            part = self.schema(2)
            # A reference to itself at the same value has no meaning; one level down it has.
            if isinstance(part, dict) and "$ref" in json.dumps(part):
                part = {"type": "object", "properties": {"a": part}}
            out.setdefault("definitions", {})[name] = part
        return out

    def instance(self, schema, depth=4):
        """Something that may well be of the schema."""
        if depth <= 0 or not isinstance(schema, dict) or self.rng.random() < 0.1:
            return self.value()
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.rng.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema and self.rng.random() < 0.4:
                return self.instance(self.rng.choice(schema[keyword]), depth - 1)
        types = schema.get("type") or self.rng.choice(["integer", "string", "array", "object"])
        kind = types if isinstance(types, str) else self.rng.choice(types)
        if kind == "array":
            items = schema.get("items")
            prefix = schema.get("prefixItems") or (items if isinstance(items, list) else [])
            rest = items if not isinstance(items, list) else schema.get("additionalItems")
            size = max(self.rng.randint(0, 3), schema.get("minItems", 0))
            return [self.instance(prefix[i] if i < len(prefix) else rest, depth - 1) for i in range(size)]
        if kind == "object":
            names = [*schema.get("properties", {}), *schema.get("required", []), self.rng.choice(NAMES + STRINGS)]
            chosen = {n for n in names if self.rng.random() < 0.6 or n in schema.get("required", [])}
            rest = schema.get("additionalProperties")
            return {n: self.instance(schema.get("properties", {}).get(n, rest), depth - 1) for n in sorted(chosen)}
        if kind == "string":
            return self.rng.choice(STRINGS)
        if kind in ("integer", "number"):
            return self.rng.choice([n for n in NUMBERS if kind == "number" or isinstance(n, int)] or [1])
        return {"boolean": self.rng.choice([True, False]), "null": None}[kind]


def orders(value):
    """The value with its members in every order, at every level."""
    if isinstance(value, list):
        return [list(items) for items in itertools.product(*[orders(v) for v in value])]
    if isinstance(value, dict):
        return [dict(zip(names, values)) for names in itertools.permutations(value)
                for values in itertools.product(*[orders(value[n]) for n in names])]
    return [value]


def count_orders(value):
    if isinstance(value, list):
        return math.prod(count_orders(v) for v in value)
    if isinstance(value, dict):
        return math.factorial(len(value)) * math.prod(count_orders(v) for v in value.values())
    return 1


def verdict(validator, value):
    try:
        return validator.is_valid(value)
    except TypeError:
        return None  # jsonschema stumbles over "items": true beside unevaluatedItems in 2019-09


class RandomSchemas(unittest.TestCase):
    def setUp(self):
        self.counts = {"enforced": 0, "refused": 0, "invalid": 0, "accepted": 0, "rejected": 0}

    def check_instances(self, batch, rng, schema, draft, validator, lenient):
        source = Schemas(rng, draft)
        instances = [source.instance(schema) for _ in range(6)] + [source.value()]
        instances = [value for value in instances if count_orders(value) <= 1500]
        texts, spans = [], []
        for value in instances:
            ways = [json.dumps(way, ensure_ascii=rng.random() < 0.5, **rng.choice(SPACINGS)) for way in orders(value)]
            spans.append((len(texts), len(texts) + len(ways)))
            texts += ways
        answer = batch.ask(schema, texts, draft, lenient)
        if "refused" in answer:
            return answer
        for value, (begin, end) in zip(instances, spans):
            valid = verdict(validator, value)
            if valid is None:
                continue
            accepted = any(answer["accepted"][begin:end])
            if valid or not lenient:
                self.assertEqual(accepted, valid, f"draft {draft}: {json.dumps(schema)} <- {json.dumps(value)}")
            self.counts["accepted" if accepted else "rejected"] += 1
        return answer

    def test_enforced_schemas_are_exact(self):
        with grammar_batch.Batch() as batch:
            for number in range(SCHEMAS):
                rng = random.Random(f"{SEED}/{number}")
                draft = rng.choice(sorted(VALIDATORS))
                schema = Schemas(rng, draft).document()
                validator = VALIDATORS[draft](schema)
                VALIDATORS[draft].check_schema(schema)
                answer = self.check_instances(batch, rng, schema, draft, validator, False)
                if "refused" not in answer:
                    self.counts["enforced"] += 1
                elif answer["refused"] == "unsupported":
                    self.counts["refused"] += 1
                    self.assertIn("keyword '", answer["message"], json.dumps(schema))
                    answer = self.check_instances(batch, rng, schema, draft, validator, True)
                    self.assertTrue(answer.get("unenforced") or answer.get("refused"), json.dumps(schema))
                else:
                    self.counts["invalid"] += 1
                    self.assertRegex(answer["message"], "no value satisfies|Nothing satisfies", json.dumps(schema))
                    source = Schemas(rng, draft)
                    for _ in range(10):
                        value = source.instance(schema)
                        self.assertFalse(verdict(validator, value), f"{json.dumps(schema)} <- {json.dumps(value)}")
        print(self.counts)
        self.assertGreater(self.counts["enforced"], SCHEMAS // 2)
        self.assertGreater(self.counts["accepted"], SCHEMAS)
        self.assertGreater(self.counts["rejected"], SCHEMAS)


if __name__ == "__main__":
    unittest.main()
