"""What does structured output cost, and what does it let through? Beside xgrammar and llguidance.

    python3 benchmarks/structured_output.py --barg build/barg --model smollm2 --write docs/structured-output.md

Two measurements; --only names one, and what the other found last is kept in structured_output.json beside the program:

    masks   50 schemas (structured/cases.py), the tokens of their valid and invalid outputs under a vocabulary of 151,936
            (Qwen2): time of compiling, of the mask before every token of a valid output and of taking the token; schemas
            that are refused, invalid outputs that are taken whole, valid ones that are not. Barg is bench_instances, built
            with -DBARG_BENCHMARKS=ON; the peers come from PyPI (structured/requirements.txt, 5 GB with torch, which
            xgrammar imports) and are installed on the first run. Engines take turns; every round compiles anew, a time is
            the median of its rounds, and percentiles are over places in outputs.
    serve   tokens/s of `barg serve` at 16 streams of chat, greedy decoding apart, with a schema and without. Rounds in turn
            with the same prompts; the clock runs while all streams have between --first and --last tokens, so batches and
            contexts are equal, and then the requests are dropped. The schema (SCHEMA below) has strings, numbers and enums in
            objects of an array that does not end before that.

Needs ../shared for the tokenizer and the suite (masks), a model for serve; loopback only."""

import argparse
import datetime
import http.client
import json
import lzma
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SHARED = ROOT.parent / "shared"
sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
from server import Server, model_path, wait_until  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "barg"
ENGINES = ["Barg", "xgrammar", "llguidance"]
END = 151645  # <|im_end|> of Qwen2
STREAMS = 16
LONGEST_S = 120  # for a part of a round
ITEMS = 40  # each has over 20 tokens: more than the clock sees, and far fewer bytes than max_tokens
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["tasks"], "properties": {"tasks": {
    "type": "array", "minItems": ITEMS, "items": {
        "type": "object", "additionalProperties": False, "required": ["id", "title", "state", "hours", "done"], "properties": {
            "id": {"type": "integer", "minimum": 1, "maximum": 9999},
            "title": {"type": "string", "minLength": 8, "maxLength": 60},
            "state": {"enum": ["open", "waiting", "in progress", "closed"]}, "hours": {"type": "number", "minimum": 0},
            "done": {"type": "boolean"}, "note": {"type": "string"}}}}}}
TOPICS = ["a garden", "a ship", "an old library", "a bakery", "a railway", "a hospital", "a film", "a school", "a farm",
          "a theatre", "a bridge", "a museum", "a market", "a lighthouse", "a workshop", "an orchestra"]


def progress(text):
    print(text, file=sys.stderr, flush=True)


# ---- masks


def environment():
    """The Python of a virtual environment that has what structured/requirements.txt says."""
    folder, wanted = CACHE / "grammar-venv", HERE / "structured" / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        progress(f"installing xgrammar and llguidance into {folder}")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", wanted], check=True, stdout=sys.stderr)
        stamp.write_text(wanted.read_text())
    return python


def versions():
    lines = (HERE / "structured" / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def run_engine(command, cases):
    """Answers to all cases, in order."""
    requests = "".join(json.dumps({"schema": c["schema"], "draft": c["draft"], "outputs": c["valid"] + c["invalid"]}) + "\n"
                       for c in cases)
    done = subprocess.run(command, input=requests, capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(answers) != len(cases):
        raise RuntimeError(f"{command[0]}: {len(answers)} answers, {done.returncode}\n{done.stderr[-2000:]}")
    return answers


def median_of(rounds, get):
    """Element by element of lists that are equally long in all rounds."""
    return [statistics.median(column) for column in zip(*map(get, rounds), strict=True)]


def merged(rounds, case):
    """One case's answers of all rounds. What was taken must be the same in all."""
    first = rounds[0]
    if "refused" in first:
        return {"refused": first["refused"]}
    taken = [[(o["taken"], o["whole"]) for o in r["outputs"]] for r in rounds]
    if any(t != taken[0] for t in taken):
        raise RuntimeError(f"{case['name']}: rounds differ in what they take")
    valid = range(len(case["valid"]))
    return {"compile_us": statistics.median(r["compile_us"] for r in rounds),
            "mask_us": [median_of(rounds, lambda r, i=i: r["outputs"][i]["mask_us"]) for i in valid],
            "push_us": [median_of(rounds, lambda r, i=i: r["outputs"][i]["push_us"]) for i in valid],
            "whole": [o["whole"] for o in first["outputs"]]}


def measure_masks(args):
    python, folder = environment(), args.barg.parent
    tokenizer = folder / "structured_output.tokenizer.json"
    tokenizer.write_bytes(lzma.decompress((SHARED / "data" / "tokenizers" / "qwen2.json.xz").read_bytes()))
    cases = json.loads(subprocess.run([python, HERE / "structured" / "cases.py", SHARED, tokenizer], check=True,
                                      capture_output=True).stdout)
    commands = {"Barg": [folder / "benchmarks" / "bench_instances", tokenizer, str(END)],
                **{name: [python, HERE / "structured" / "engines.py", name, tokenizer, str(END)] for name in ENGINES[1:]}}
    rounds = {name: [] for name in ENGINES}
    for turn in range(args.rounds):
        for name in ENGINES[turn % 3:] + ENGINES[:turn % 3]:
            rounds[name].append(run_engine(commands[name], cases))
            progress(f"masks, round {turn + 1}: {name}")
    engines = {name: [merged([r[i] for r in rounds[name]], case) for i, case in enumerate(cases)] for name in ENGINES}
    return {"rounds": args.rounds, "cases": [{"name": c["name"], "valid": len(c["valid"]), "invalid": len(c["invalid"]),
                                              "tokens": sum(map(len, c["valid"]))} for c in cases], "engines": engines}


# ---- serve


def ask(server, prompt, with_schema):
    """The connection of a request of which nothing is read: it ends when its connection does."""
    body = {"model": server.name, "messages": [{"role": "user", "content": prompt}], "max_tokens": 6000, "temperature": 0.8, "seed": 7,
            "ignore_eos": not with_schema, "stream": False}
    if with_schema:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "plan", "schema": SCHEMA}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def decode_rate(server, with_schema, args):
    """Tokens/s of all streams from --first to --last tokens of each, and the server's processor time for one, in us."""
    names = ("vllm:generation_tokens_total", "vllm:num_requests_running", "vllm:request_success_total")

    def look():
        series = server.metrics()
        return time.monotonic(), server.cpu_s(), *(sum(v for k, v in series.items() if k.split("{")[0] == name) for name in names)

    _, _, begun, running, ended = look()
    assert running == 0, "requests of the round before still run"
    connections, looks = [], []
    try:
        for topic in TOPICS:
            connections.append(ask(server, f"Write a long list of tasks for {topic}.", with_schema))
        for tokens in (args.first, args.last):
            end = time.monotonic() + LONGEST_S
            while (now := look())[2] - begun < STREAMS * tokens:
                if now[4] != ended or now[0] > end:
                    raise RuntimeError("requests were refused, ended before their time or take too long")
                time.sleep(0.02)
            if now[3] != STREAMS:
                raise RuntimeError(f"{now[3]:.0f} requests run, not {STREAMS}")
            looks.append(now)
    finally:
        for connection in connections:
            connection.close()
        wait_until(lambda: server.running() == 0, "the requests are gone", 60)
    seconds, cpu, tokens = (b - a for a, b in zip(looks[0][:3], looks[1][:3]))
    return tokens / seconds, 1e6 * cpu / tokens


def measure_serve(args):
    pairs = []
    with Server(args.barg, model_path(args.model), args.options) as server:
        server.name = json.loads(server.get("/v1/models")[1])["data"][0]["id"]
        decode_rate(server, True, args)  # compiles the schema, warms everything
        for turn in range(args.pairs):
            order = (False, True) if turn % 2 == 0 else (True, False)
            found = {with_schema: decode_rate(server, with_schema, args) for with_schema in order}
            pairs.append([found[False], found[True]])
            progress(f"serve, pair {turn + 1}: " + ", ".join(f"{rate:.0f} tokens/s and {cpu:.0f} us {word} a schema" for
                                                            word, (rate, cpu) in zip(["without", "with"], pairs[-1])))
    return {"pairs": pairs, "first": args.first, "last": args.last, "model": pathlib.Path(model_path(args.model)).name}


# ---- table


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else float("nan")


def digits(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(engine, chosen):
    """The numbers of an engine over (case, output) pairs."""
    masks = [t for i, k in chosen for t in engine[i]["mask_us"][k]]
    pushes = [t for i, k in chosen for t in engine[i]["push_us"][k]]
    compiles = [engine[i]["compile_us"] / 1e3 for i in sorted({i for i, _ in chosen})]
    return {"compile p50, ms": statistics.median(compiles), "compile max, ms": max(compiles),
            "mask mean, us": statistics.fmean(masks), "mask p50, us": percentile(masks, 0.5),
            "mask p99, us": percentile(masks, 0.99), "mask max, us": max(masks),
            "taking a token, mean, us": statistics.fmean(pushes)}


def whole_outputs(engine, cases):
    return {(i, k) for i, e in enumerate(engine) if "refused" not in e for k in range(cases[i]["valid"]) if e["whole"][k]}


def counts(engine, cases):
    enforced = [(e, c) for e, c in zip(engine, cases) if "refused" not in e]
    wrong = [sum(e["whole"][c["valid"]:]) for e, c in enforced]
    missed = [e["whole"][:c["valid"]].count(False) for e, c in enforced]
    return {"schemas refused": len(cases) - len(enforced),
            "schemas of which an invalid output is taken": sum(w > 0 for w in wrong),
            "invalid outputs taken": f"{sum(wrong)} of {sum(c['invalid'] for _, c in enforced)}",
            "valid outputs not taken": f"{sum(missed)} of {sum(c['valid'] for _, c in enforced)}"}


def machine():
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} CPUs ({model}), load {os.getloadavg()[0]:.1f}"


def mask_table(found):
    cases, engines, pins = found["cases"], found["engines"], versions()
    whole = {name: whole_outputs(engines[name], cases) for name in ENGINES}
    common = sorted(set.intersection(*whole.values()))
    rows = {name: {**counts(engines[name], cases), **times(engines[name], common)} for name in ENGINES}
    everything = times(engines["Barg"], sorted(whole["Barg"]))
    valid, invalid, tokens = (sum(c[kind] for c in cases) for kind in ("valid", "invalid", "tokens"))
    yield (f"{len(cases)} schemas, {valid} valid outputs ({tokens:,} tokens) and {invalid} invalid ones; vocabulary of Qwen2, "
           f"151,936 ids. {found['when']}; medians of {found['rounds']} rounds, processor time, {found['machine']}.")
    yield f"Times are over the {len(common)} valid outputs, of {len({i for i, _ in common})} schemas, that all three take."
    yield ""
    yield "| | Barg | " + " | ".join(f"{n} {pins[n]}" for n in ENGINES[1:]) + " |"
    yield "|---|---:|---:|---:|"
    for measure in rows["Barg"]:
        cells = [rows[name][measure] for name in ENGINES]
        yield f"| {measure} | " + " | ".join(digits(c) if isinstance(c, float) else str(c) for c in cells) + " |"
    yield ""
    yield "Barg over all its schemas: " + ", ".join(f"{measure.replace(', us', '').replace(', ms', '')} {digits(value)} "
                                                   f"{measure.rsplit(' ', 1)[1]}" for measure, value in everything.items()) + "."


def serve_table(found):
    yield (f"Served ({found['model']}, {STREAMS} streams, tokens {found['first']} to {found['last']} of each, "
           f"{len(found['pairs'])} pairs, {found['when']}, {found['machine']}); with / without is the median of the pairs, in "
           "brackets their quartiles:")
    yield ""
    yield "| | without a schema | with one | with / without |"
    yield "|---|---:|---:|---:|"
    for at, measure in enumerate(["tokens/s", "processor time a token, us"]):
        without, constrained = ([run[at] for run in runs] for runs in zip(*found["pairs"]))
        ratios = [c / w for w, c in zip(without, constrained)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        yield (f"| {measure} | {digits(statistics.median(without))} | {digits(statistics.median(constrained))} | "
               f"{middle:.3f} ({low:.3f}–{high:.3f}) |")


def table(results):
    lines = []
    for name, make in (("masks", mask_table), ("serve", serve_table)):
        if name in results:
            lines += [*make(results[name]), ""]
    return "\n".join(lines).strip()


def details(found):
    """What is behind the counts, for who wants to look."""
    for i, case in enumerate(found["cases"]):
        for name in ENGINES:
            e = found["engines"][name][i]
            if "refused" in e:
                yield f"{name} refuses {case['name']}: {' '.join(e['refused'].split())[:160]}"
                continue
            for said, expected, start in (("does not take valid", True, 0), ("takes invalid", False, case["valid"])):
                part = e["whole"][:start or case["valid"]] if expected else e["whole"][start:]
                odd = [k for k, w in enumerate(part) if w != expected]
                if odd:
                    yield f"{name} {said} outputs of {case['name']}: {odd}"


def write(path, text):
    begin, end = "<!-- figures -->\n", "<!-- /figures -->"
    page = path.read_text()
    head, rest = page.split(begin)
    path.write_text(head + begin + text + "\n" + rest[rest.index(end):])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--barg", type=lambda path: pathlib.Path(path).resolve(), default="build/barg")
    p.add_argument("--model", default="smollm2")
    p.add_argument("--only", choices=["masks", "serve", "none"])
    p.add_argument("--rounds", type=int, default=5, help="of masks")
    p.add_argument("--pairs", type=int, default=11, help="of serve")
    p.add_argument("--first", type=int, default=32)
    p.add_argument("--last", type=int, default=288)
    p.add_argument("--write", type=pathlib.Path, metavar="PAGE", help="the table, between <!-- figures --> and <!-- /figures -->")
    p.add_argument("--details", action="store_true", help="which schemas and outputs are behind the counts")
    p.add_argument("options", nargs="*", help="further options of barg serve, after --")
    args = p.parse_args()
    kept = args.barg.parent / "structured_output.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name, measure in (("masks", measure_masks), ("serve", measure_serve)):
        if args.only in (None, name):
            where = {"when": datetime.date.today().isoformat(), "machine": machine()}
            results[name] = {**measure(args), **where}
            kept.write_text(json.dumps(results))
    text = table(results)
    print(text)
    if args.details and "masks" in results:
        print("\n" + "\n".join(details(results["masks"])))
    if args.write:
        write(args.write, text)


main()
