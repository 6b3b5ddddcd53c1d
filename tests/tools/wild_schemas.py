#!/usr/bin/env python3
"""Writes tests/data/schemas: schemas as tools, validators and API descriptions write them, with instances that are of them
and that are not. Entities are described once (ENTITIES) and written in the styles of pydantic, zod, OpenAPI, tool servers and
strict outputs; tests/data/schemas/handwritten.json is kept by hand. Every label is checked with PyPI jsonschema.

    python tests/tools/wild_schemas.py            (needs jsonschema)"""

import copy
import json
import pathlib
import random
import re

import jsonschema

OUT = pathlib.Path(__file__).resolve().parents[1] / "data" / "schemas"

# name: fields. "!" required; types: str, str(a..b), /pattern/, int(a..b), num(a..b), bool, date, datetime, email, uri, uuid,
# ipv4, enum a|b, [type], {type} (a map), Entity, type? (or null), any.
ENTITIES = {
    "Address": "street! str(1..80); city! str; zip! /^[0-9]{5}$/; country! enum US|CA|DE|FR; unit str?",
    "Contact": "name! str(1..60); email! email; phone /^\\+?[0-9 ]{6,15}$/; tags [str]; preferred enum email|phone",
    "Person": "first_name! str; last_name! str; age int(0..150); born date; address Address; contacts [Contact]",
    "Money": "amount! num(0..); currency! enum USD|EUR|GBP|JPY",
    "LineItem": "sku! /^[A-Z]{2}-[0-9]{4}$/; quantity! int(1..999); price! Money; note str?",
    "Invoice": "number! str(1..20); issued! date; due date; items! [LineItem]; total! Money; paid bool",
    "Receipt": "merchant! str; date! date; total! num(0..); tip num(0..)?; category enum food|travel|office|other",
    "GeoPoint": "lat! num(-90..90); lon! num(-180..180); label str",
    "Route": "start! GeoPoint; end! GeoPoint; via [GeoPoint]; mode! enum walk|bike|car|transit",
    "Weather": "location! str; days int(1..14); unit enum celsius|fahrenheit; hourly bool",
    "SearchQuery": "query! str(1..200); limit int(1..100); offset int(0..); filters {str}; sort enum relevance|date",
    "FileRead": "path! str(1..); offset int(0..); limit int(1..2000); encoding enum utf-8|latin-1",
    "FileEdit": "path! str; old! str; new! str; replace_all bool",
    "ShellCommand": "command! [str]; timeout_ms int(1..600000); cwd str; env {str}; background bool",
    "HttpRequest": "method! enum GET|POST|PUT|DELETE; url! uri; headers {str}; body any; timeout num(0..60)",
    "SqlQuery": "sql! str(1..); params [any]; read_only! bool; max_rows int(1..10000)?",
    "CalendarEvent": "title! str(1..120); start! datetime; end! datetime; attendees [email]; location str?; reminder int(0..1440)",
    "Reminder": "text! str; at! datetime; repeat enum none|daily|weekly|monthly",
    "EmailMessage": "to! [email]; cc [email]; subject! str(..200); body! str; priority enum low|normal|high",
    "ChatMessage": "role! enum system|user|assistant|tool; content! str; name /^[a-zA-Z0-9_-]{1,64}$/",
    "Conversation": "id! uuid; messages! [ChatMessage]; created! datetime; title str?",
    "User": "id! uuid; login! /^[a-z][a-z0-9_]{2,15}$/; email! email; admin bool; created datetime; profile Person",
    "Team": "name! str; members! [User]; lead uuid?",
    "Issue": "title! str(1..100); body str; labels [str]; assignee str?; state! enum open|closed; number int(1..)",
    "PullRequest": "title! str; base! str; head! str; draft bool; reviewers [str]; issue Issue",
    "Commit": "sha! /^[0-9a-f]{40}$/; author! Contact; message! str; parents [/^[0-9a-f]{40}$/]",
    "Repository": "owner! str; name! /^[A-Za-z0-9._-]+$/; private! bool; stars int(0..); topics [str]; license str?",
    "BuildStep": "name! str; run str; uses str; with {str}; timeout int(1..360)",
    "Pipeline": "name! str; on! [enum push|pull_request|schedule]; steps! [BuildStep]; env {str}",
    "Container": "image! str; command [str]; ports [int(1..65535)]; env {str}; memory_mb int(4..)",
    "Deployment": "replicas! int(0..100); container! Container; region! enum us-east|us-west|eu-central; canary num(0..1)",
    "ServerConfig": "host! ipv4; port! int(1..65535); tls bool; workers int(1..64); log_level enum debug|info|warn|error",
    "Product": "id! uuid; title! str(1..); price! Money; stock int(0..); images [uri]; attributes {str}; rating num(0..5)",
    "CartItem": "product! uuid; quantity! int(1..99)",
    "Cart": "items! [CartItem]; coupon /^[A-Z0-9]{4,12}$/?; gift bool",
    "Order": "id! uuid; cart! Cart; ship_to! Address; placed! datetime; status! enum new|paid|sent|done|void",
    "Payment": "order! uuid; amount! Money; method! enum card|sepa|paypal; captured bool",
    "Review": "product! uuid; stars! int(1..5); text str(..2000); helpful int(0..)",
    "Recipe": "name! str; servings! int(1..50); ingredients! [Ingredient]; steps! [str]; minutes int(0..)",
    "Ingredient": "item! str; amount! num(0..); unit! enum g|ml|piece|tsp|tbsp",
    "Movie": "title! str; year! int(1888..2100); genres [enum drama|comedy|action|horror|documentary]; director Person?; score num(0..10)?",
    "Book": "isbn! /^[0-9]{13}$/; title! str; authors! [str]; published date?; pages int(1..)",
    "Song": "title! str; artist! str; seconds! int(1..36000); explicit bool",
    "Playlist": "name! str(1..50); songs! [Song]; public bool",
    "Patient": "id! uuid; person! Person; allergies [str]; blood enum A+|A-|B+|B-|AB+|AB-|O+|O-",
    "Prescription": "patient! uuid; drug! str; dose_mg! num(0..5000); times_per_day! int(1..12); until date?",
    "LabResult": "test! str; value! num; unit! str; low num?; high num?; flag enum normal|low|high",
    "Flight": "carrier! /^[A-Z0-9]{2}$/; number! int(1..9999); from! /^[A-Z]{3}$/; to! /^[A-Z]{3}$/; departs! datetime; cabin enum economy|business|first",
    "HotelBooking": "hotel! str; check_in! date; check_out! date; guests! int(1..10); breakfast bool; notes str?",
    "Trip": "name! str; flights [Flight]; hotels [HotelBooking]; budget Money?",
    "Sentiment": "label! enum positive|neutral|negative; score! num(0..1); evidence [str]",
    "Entity": "text! str; type! enum PERSON|ORG|PLACE|DATE; start! int(0..); end! int(0..)",
    "Extraction": "entities! [Entity]; summary! str(..500); language /^[a-z]{2}$/",
    "Classification": "label! str; confidence! num(0..1); alternatives [Alternative]",
    "Alternative": "label! str; confidence! num(0..1)",
    "Plan": "goal! str; steps! [PlanStep]; done bool",
    "PlanStep": "id! int(1..); action! str; depends_on [int(1..)]; status! enum todo|doing|done",
    "Question": "text! str; choices! [str]; answer! int(0..9); explanation str?",
    "Quiz": "title! str; questions! [Question]; shuffle bool",
    "Transaction": "id! uuid; account! /^[A-Z]{2}[0-9]{8,20}$/; amount! num; booked! date; memo str?",
    "Budget": "month! /^[0-9]{4}-(0[1-9]|1[0-2])$/; limits! {num(0..)}; shared bool",
    "Sensor": "id! str; kind! enum temp|humidity|motion; readings [num]; battery num(0..100)?",
    "Scene": "name! str; lights {int(0..255)}; color /^#[0-9a-f]{6}$/",
    "Node": "id! str; label str; children [Node]",
    "Comment": "author! str; text! str; replies [Comment]; at datetime",
}


# ------------------------------------------------------------------------------------------------------------ types

def parse_type(text):
    text = text.strip()
    if text.endswith("?"):
        return {"nullable": parse_type(text[:-1])}
    if text.startswith("[") and text.endswith("]"):
        return {"list": parse_type(text[1:-1])}
    if text.startswith("{") and text.endswith("}"):
        return {"map": parse_type(text[1:-1])}
    if text.startswith("/"):
        return {"pattern": text[1:-1]}
    if text.startswith("enum "):
        return {"enum": text[5:].split("|")}
    found = re.fullmatch(r"(str|int|num)\((-?[0-9]*)\.\.(-?[0-9]*)\)", text)
    if found:
        low, high = (int(x) if x else None for x in found.groups()[1:])
        return {found[1]: (low, high)}
    if text in ENTITIES:
        return {"entity": text}
    return {"str": (None, None)} if text == "str" else {"int": (None, None)} if text == "int" else {
        "num": (None, None)} if text == "num" else {"plain": text}


def fields_of(entity):
    for field in ENTITIES[entity].split("; "):
        name, kind = field.split(" ", 1)
        yield name.rstrip("!"), parse_type(kind), name.endswith("!")


PATTERN_SAMPLES = {
    "^[0-9]{5}$": "12345", "^\\+?[0-9 ]{6,15}$": "+49 30 1234", "^[A-Z]{2}-[0-9]{4}$": "AB-1234",
    "^[a-zA-Z0-9_-]{1,64}$": "tool_1", "^[a-z][a-z0-9_]{2,15}$": "ada_l", "^[0-9a-f]{40}$": "0123456789abcdef" * 2 + "01234567",
    "^[A-Za-z0-9._-]+$": "barg", "^[A-Z0-9]{4,12}$": "SAVE10", "^[0-9]{13}$": "9780306406157", "^[A-Z0-9]{2}$": "LH",
    "^[A-Z]{3}$": "FRA", "^[a-z]{2}$": "en", "^[A-Z]{2}[0-9]{8,20}$": "DE12345678901234",
    "^[0-9]{4}-(0[1-9]|1[0-2])$": "2026-11", "^#[0-9a-f]{6}$": "#00ff7f",
}
PLAIN_SAMPLES = {"bool": True, "date": "2026-11-30", "datetime": "2026-11-30T15:00:00Z", "email": "ada@example.org",
                 "uri": "https://example.org/a?b=c", "uuid": "0b9a7b8e-93c7-4d6a-8f2e-6c1f5a1b2c3d", "ipv4": "192.168.0.17"}
FORMATS = {"date": "date", "datetime": "date-time", "email": "email", "uri": "uri", "uuid": "uuid", "ipv4": "ipv4"}


def sample(kind, rng, depth=0):
    (key, value), = kind.items()
    if key == "nullable":
        return None if rng.random() < 0.5 else sample(value, rng, depth)
    if key == "list":
        return [sample(value, rng, depth + 1) for _ in range(0 if depth > 3 else rng.randint(1, 2))]
    if key == "map":
        return {name: sample(value, rng, depth + 1) for name in rng.sample(["alpha", "b c", "Ünïcode", "x-1"], 2)}
    if key == "pattern":
        return PATTERN_SAMPLES[value]
    if key == "enum":
        return rng.choice(value)
    if key == "entity":
        return entity_sample(value, rng, depth + 1)
    if key == "plain":
        return rng.choice([1, "x", None, [True], {"k": 2}]) if value == "any" else PLAIN_SAMPLES[value]
    low, high = value
    if key == "str":
        text = rng.choice(["Ada", "a \"quoted\" word", "line\nbreak", "leaf 🍃", "x"])
        return text if len(text) >= (low or 0) and (high is None or len(text) <= high) else "x" * (low or 1)
    low = low if low is not None else (high - 10 if high is not None else -5)
    high = high if high is not None else low + 1000
    return rng.randint(low, high) if key == "int" else rng.choice([low, high, round(low + (high - low) * 0.25, 2)])


def entity_sample(entity, rng, depth=0):
    return {name: sample(kind, rng, depth) for name, kind, required in fields_of(entity)
            if required or (depth < 3 and rng.random() < 0.6)}


def breakers(entity, closed, rng):
    """Instances with one mistake each."""
    fields = list(fields_of(entity))
    good = {name: sample(kind, rng, 1) for name, kind, _ in fields}
    required = [name for name, _, needed in fields if needed]
    without = {name: value for name, value in good.items() if name != rng.choice(required)}
    yield without if len(without) < len(good) else {}
    if closed:
        yield {**good, "surprise": 1}
    for name, kind, _ in rng.sample(fields, min(3, len(fields))):
        (key, value), = kind.items()
        bad = {"list": {"0": 1}, "map": ["a"], "enum": "no such word", "pattern": "~~ no ~~", "entity": "no object",
               "plain": 7, "int": 1.5, "num": "12", "str": 4, "nullable": {"a": 1}}[key]
        if value == "any" or (key == "nullable" and "map" in value):
            continue
        yield {**good, name: bad}
        if key in ("int", "num") and value[1] is not None:
            yield {**good, name: value[1] + 1}
    yield [good]


# ----------------------------------------------------------------------------------------------------------- styles

class Style:
    draft = "2020-12"
    closed = False
    definitions = "$defs"

    def __init__(self):
        self.defs = {}

    def titled(self, schema, name):
        return schema

    def nullable(self, schema):
        return {"anyOf": [schema, {"type": "null"}]}

    def field(self, schema, name, required):
        return schema

    def type(self, kind):
        (key, value), = kind.items()
        if key == "nullable":
            return self.nullable(self.type(value))
        if key == "list":
            return {"type": "array", "items": self.type(value)}
        if key == "map":
            return {"type": "object", "additionalProperties": self.type(value)}
        if key == "pattern":
            return {"type": "string", "pattern": value}
        if key == "enum":
            return {"type": "string", "enum": value}
        if key == "entity":
            return self.entity_ref(value)
        if key == "plain":
            return {} if value == "any" else {"type": "boolean"} if value == "bool" else {
                "type": "string", "format": FORMATS[value]}
        return self.scalar(key, *value)

    def scalar(self, key, low, high):
        out = {"type": {"str": "string", "int": "integer", "num": "number"}[key]}
        names = ("minLength", "maxLength") if key == "str" else ("minimum", "maximum")
        out.update({n: v for n, v in zip(names, (low, high)) if v is not None})
        return out

    def entity_ref(self, entity):
        if entity not in self.defs:
            self.defs[entity] = None
            self.defs[entity] = self.entity(entity)
        return {"$ref": f"#/{self.definitions}/{entity}"}

    def entity(self, entity):
        properties, required = {}, []
        for name, kind, needed in fields_of(entity):
            properties[name] = self.field(self.type(kind), name, needed)
            if self.needs(needed):
                required.append(name)
        out = {"type": "object", "properties": properties}
        if required:
            out["required"] = required
        if self.closed:
            out["additionalProperties"] = False
        return self.titled(out, entity)

    def needs(self, needed):
        return needed

    def schema(self, entity):
        root = self.entity(entity)
        if self.defs:
            if f"#/{self.definitions}/{entity}" in json.dumps(root):
                self.defs[entity] = copy.deepcopy(root)
            root[self.definitions] = dict(sorted(self.defs.items()))
        return root


class Pydantic(Style):
    def titled(self, schema, name):
        return {**schema, "title": name, "description": f"One {name}."}

    def field(self, schema, name, required):
        out = {**schema, "title": name.replace("_", " ").title()} if "$ref" not in schema else dict(schema)
        if not required:
            out["default"] = None
        return out


class Zod(Style):
    draft = "7"
    closed = True
    definitions = "definitions"

    def nullable(self, schema):
        if isinstance(schema.get("type"), str) and "enum" not in schema and "$ref" not in schema:
            return {**schema, "type": [schema["type"], "null"]}
        return {"anyOf": [schema, {"type": "null"}]}

    def scalar(self, key, low, high):
        out = super().scalar(key, low, high)
        if key == "int" and low == 1:
            del out["minimum"]
            out["exclusiveMinimum"] = 0
        return out

    def schema(self, entity):
        return {**super().schema(entity), "$schema": "http://json-schema.org/draft-07/schema#"}


class OpenApi(Style):
    """Bodies of OpenAPI 3.1 operations: formats of numbers, bases in allOf."""

    def scalar(self, key, low, high):
        out = super().scalar(key, low, high)
        if key == "int":
            out["format"] = "int32" if high is not None else "int64"
        if key == "num":
            out["format"] = "double"
        return out

    def nullable(self, schema):
        return {"oneOf": [schema, {"type": "null"}]}

    def entity(self, entity):
        out = super().entity(entity)
        names = list(out["properties"])
        if len(names) < 4:
            return out
        base = {n: out["properties"][n] for n in names[:2]}
        own = {n: out["properties"][n] for n in names[2:]}
        required = out.get("required", [])
        parts = [{"type": "object", "properties": base, "required": [n for n in required if n in base]},
                 {"type": "object", "properties": own, "required": [n for n in required if n in own]}]
        return {"description": f"A {entity}.", "allOf": [p if p["required"] else {k: v for k, v in p.items() if k != "required"}
                                                         for p in parts]}


class Tool(Style):
    draft = "7"
    definitions = "definitions"

    def field(self, schema, name, required):
        return schema if "$ref" in schema else {**schema, "description": f"The {name.replace('_', ' ')}, if any."}


class Strict(Style):
    """As strict outputs want it: everything required and closed, optional ones nullable."""
    closed = True

    def field(self, schema, name, required):
        return schema if required or {"type": "null"} in schema.get("anyOf", []) else self.nullable(schema)

    def needs(self, needed):
        return True


STYLES = {"pydantic": Pydantic, "zod": Zod, "openapi": OpenApi, "tools": Tool, "strict": Strict}
VALIDATORS = {"7": jsonschema.Draft7Validator, "2020-12": jsonschema.Draft202012Validator}


def ordered(value, schema, root):
    """The members in the order in which the schema declares them; a few levels of what these styles write."""
    if isinstance(value, list):
        return [ordered(v, schema.get("items", {}), root) for v in value]
    if not isinstance(value, dict):
        return value
    properties = {}
    open_schemas = [schema]
    while open_schemas:
        s = open_schemas.pop(0)
        if "$ref" in s:
            target = root
            for part in s["$ref"][2:].split("/"):
                target = target[part]
            open_schemas.append(target)
        properties.update(s.get("properties", {}))
        open_schemas += s.get("allOf", []) + s.get("anyOf", []) + s.get("oneOf", [])
    names = [n for n in properties if n in value] + [n for n in value if n not in properties]
    return {n: ordered(value[n], properties.get(n, {}), root) for n in names}


def case(entity, style_name, rng):
    style = STYLES[style_name]()
    schema = style.schema(entity)
    validator = VALIDATORS[style.draft](schema, format_checker=VALIDATORS[style.draft].FORMAT_CHECKER)
    valid = []
    for _ in range(3):
        value = entity_sample(entity, rng)
        if style_name == "strict":
            value = filled(entity, value, rng)
        valid.append(ordered(value, schema, schema))
    for value in valid:
        validator.validate(value)
    invalid = [v for v in breakers(entity, style.closed, rng) if not validator.is_valid(v)]
    assert len(invalid) >= 2, (entity, style_name)
    return {"name": f"{style_name} {entity}", "draft": style.draft, "schema": schema, "valid": valid, "invalid": invalid[:5]}


def filled(entity, value, rng):
    """null for what a strict schema requires and the value lacks, at every level."""
    out = {}
    for name, kind, _ in fields_of(entity):
        out[name] = fill_type(kind, value[name], rng) if name in value else None
    return out


def fill_type(kind, value, rng):
    (key, inner), = kind.items()
    if value is None:
        return None
    if key == "nullable":
        return fill_type(inner, value, rng)
    if key == "list":
        return [fill_type(inner, v, rng) for v in value]
    if key == "map":
        return {n: fill_type(inner, v, rng) for n, v in value.items()}
    return filled(inner, value, rng) if key == "entity" else value


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for style in STYLES:
        rng = random.Random(style)
        cases = [case(entity, style, rng) for entity in ENTITIES]
        text = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
        (OUT / f"{style}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
        print(style, len(cases))
    for c in json.loads((OUT / "handwritten.json").read_text(encoding="utf-8")):
        validator = VALIDATORS[c["draft"]](c["schema"], format_checker=VALIDATORS[c["draft"]].FORMAT_CHECKER)
        for value in c["valid"]:
            validator.validate(value)
        for value in c["invalid"]:
            assert not validator.is_valid(value), (c["name"], value)


if __name__ == "__main__":
    main()
