"""cases.py SHARED TOKENIZER > FILE: 50 schemas with outputs that are of them and outputs that are not, as token ids.

Thirty schemas are of tests/data/schemas, twenty of JSON-Schema-Test-Suite (draft 2020-12): of each file named below the first
group that has instances of both kinds. Invalid instances are those of the files, and valid ones with one change each (a
value of another type, a name gone or added, text, number or array made longer, shorter or larger), of which PyPI jsonschema
says that they are invalid, with formats. Members come in the order in which the schema declares them, so that no engine
refuses an instance for its order."""

import copy
import json
import pathlib
import sys

import jsonschema
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
VALIDATORS = {"7": jsonschema.Draft7Validator, "2020-12": jsonschema.Draft202012Validator}
MOST_CHANGED = 12  # invalid instances that are made for a schema
WILD = {
    "handwritten": ["GitHub workflow", "package.json", "tsconfig", "JSON Patch", "GeoJSON geometry", "Kubernetes container",
                    "agent action", "shipping form with conditions", "schema of form fields (recursive)",
                    "renovate-like config"],
    "openapi": ["Address", "ShellCommand", "User", "Order"],
    "pydantic": ["Person", "Invoice", "Deployment", "Comment"],
    "strict": ["Route", "CalendarEvent", "Quiz", "Plan"],
    "tools": ["FileEdit", "SqlQuery", "HotelBooking", "SearchQuery"],
    "zod": ["Conversation", "PullRequest", "Recipe", "Transaction"],
}
SUITE = ["additionalProperties", "allOf", "anyOf", "const", "contains", "dependentRequired", "dependentSchemas",
         "exclusiveMinimum", "if-then-else", "maxLength", "minProperties", "multipleOf", "not", "oneOf", "patternProperties",
         "prefixItems", "propertyNames", "ref", "uniqueItems", "optional/format/date"]


def wild_cases():
    for file, names in WILD.items():
        entries = {e["name"]: e for e in json.loads((ROOT / "tests" / "data" / "schemas" / f"{file}.json").read_text())}
        for name in names:
            yield entries[name if file == "handwritten" else f"{file} {name}"]


def suite_cases(shared):
    for file in SUITE:
        groups = json.loads((shared / "data" / "json-schema" / "draft2020-12" / f"{file}.json").read_text())
        group = next(g for g in groups if {t["valid"] for t in g["tests"]} == {True, False})
        yield {"name": f"{file}: {group['description']}", "draft": "2020-12", "schema": group["schema"],
               **{kind: [t["data"] for t in group["tests"] if t["valid"] == (kind == "valid")] for kind in ("valid", "invalid")}}


def resolve(schema, root):
    for _ in range(20):
        if not isinstance(schema, dict) or not str(schema.get("$ref", "")).startswith("#/"):
            break
        target = root
        for part in schema["$ref"][2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            target = target[int(part)] if isinstance(target, list) else target[part]
        schema = target
    return schema


def parts(schema, root, depth=0):
    """The schema and what stands beside its own keywords, in the order in which that declares names."""
    if isinstance(schema, dict) and depth < 8:
        yield schema
        if "$ref" in schema and resolve(schema, root) is not schema:
            yield from parts(resolve(schema, root), root, depth + 1)
        for keyword in ("allOf", "anyOf", "oneOf"):
            for branch in schema.get(keyword, []):
                yield from parts(branch, root, depth + 1)
        for keyword in ("if", "then", "else"):
            yield from parts(schema.get(keyword), root, depth + 1)
        for branch in schema.get("dependentSchemas", {}).values():
            yield from parts(branch, root, depth + 1)


def dependent(part):
    """Names of which a schema, without what is below it, says something only together with others."""
    for name, needed in part.get("dependentRequired", {}).items():
        yield from (name, *needed)
    yield from part.get("dependentSchemas", {})


def ordered(value, schema, root):
    """`value` with members as declared; those of no declaration stay behind them."""
    if isinstance(value, list):
        below = [p for p in parts(schema, root) if "items" in p or "prefixItems" in p]
        items = [p.get("items") for p in below if isinstance(p.get("items"), dict)]
        return [ordered(v, items[0] if items else None, root) for v in value]
    if not isinstance(value, dict):
        return value
    declared = {}
    for part in parts(schema, root):
        for name, below in part.get("properties", {}).items():
            declared.setdefault(name, below)
    said = [*declared, *(name for part in parts(schema, root) for name in dependent(part))]
    required = [name for part in parts(schema, root) for name in part.get("required", [])]
    names = [n for n in dict.fromkeys([*said, *required, *value]) if n in value]
    others = next((p["additionalProperties"] for p in parts(schema, root) if "additionalProperties" in p), None)
    return {n: ordered(value[n], declared.get(n, others), root) for n in names}


def places(value, path=()):
    yield path
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(below, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def replaced(value, path, new):
    if not path:
        return new
    out = copy.deepcopy(value)
    at(out, path[:-1])[path[-1]] = new
    return out


def changes(old):
    """What may stand in a value's place."""
    if isinstance(old, bool) or old is None:
        return ["maybe", 3]
    if isinstance(old, str):
        return [7, old + "~ ~", "", old * 40 or "x"]
    if isinstance(old, (int, float)):
        return ["seven", -old - 1, old + 0.37, old * 1000003]
    if isinstance(old, list):
        return [{}, [], [*old, *old[-1:]], [*old, {"odd": None}]]
    return [[], {**old, "surprise": 1}, *({k: v for k, v in old.items() if k != name} for name in old)]


def spread(items, most):
    return items if len(items) <= most else [items[i * len(items) // most] for i in range(most)]


def changed(case, validator):
    """Made of the valid instances; places of all depths get their share."""
    out = []
    for instance in case["valid"]:
        made = [replaced(instance, path, new) for path in places(instance) for new in changes(at(instance, path))]
        out += [m for m in made if not validator.is_valid(m) and m not in out and m not in case["invalid"]]
    return spread(out, MOST_CHANGED)


def finished(case, tokenizer):
    kind = VALIDATORS[case["draft"]]
    validator = kind(case["schema"], format_checker=kind.FORMAT_CHECKER)
    invalid = case["invalid"] + changed(case, validator)

    def ids(instance):
        text = json.dumps(ordered(instance, case["schema"], case["schema"]), ensure_ascii=False)
        return tokenizer.encode(text, add_special_tokens=False).ids

    return {"name": case["name"], "draft": case["draft"], "schema": json.dumps(case["schema"], ensure_ascii=False),
            "valid": [ids(v) for v in case["valid"]], "invalid": [ids(v) for v in invalid]}


def main():
    shared, tokenizer = pathlib.Path(sys.argv[1]), tokenizers.Tokenizer.from_file(sys.argv[2])
    json.dump([finished(c, tokenizer) for c in [*wild_cases(), *suite_cases(shared)]], sys.stdout)


main()
