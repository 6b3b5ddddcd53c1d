#!/usr/bin/env python3
"""Puts the verdicts of `barg conform --json` reports side by side as a Markdown table.

    scripts/conformance_table.py "Barg=barg.json" "llama-server=llama.json" > table.md
"""
import json
import sys

WORDS = {"pass": "yes", "fail": "**no**", "not_applicable": "n/a"}


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def main(arguments):
    reports = []
    for argument in arguments:
        name, _, path = argument.partition("=")
        with open(path, encoding="utf-8") as file:
            reports.append((name, json.load(file)))
    if not reports:
        sys.exit(__doc__)
    for name, report in reports:
        print(f"- {name}: {report['pass']} hold, {report['fail']} fail, {report['not_applicable']} do not apply, "
              f"in {report['seconds']:.0f} s.")
    print("\n| rule | demands | " + " | ".join(name for name, _ in reports) + " |")
    print("|---|---|" + "---|" * len(reports))
    verdicts = [{rule["name"]: rule for rule in report["rules"]} for _, report in reports]
    for rule in reports[0][1]["rules"]:
        row = [WORDS[v[rule["name"]]["verdict"]] if rule["name"] in v else "" for v in verdicts]
        print(f"| `{rule['name']}` | {cell(rule['demands'])} | " + " | ".join(row) + " |")
    for (name, _), rules in zip(reports, verdicts):
        failures = [rule for rule in rules.values() if rule["verdict"] == "fail"]
        if not failures:
            continue
        print(f"\nWhat {name} breaks:\n")
        for rule in failures:
            print(f"- `{rule['name']}`: {cell(rule['why'])}")


main(sys.argv[1:])
