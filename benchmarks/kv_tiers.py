"""What the tiers of the KV cache are worth: the same conversations with tiers off, DRAM, DRAM + disk, + Redis.

    python3 benchmarks/kv_tiers.py --barg build/barg [--rounds 5] [--json out.json] [--write docs/tiers.md]

Sixteen conversations of eight turns (1,000 shared + 200 new + 64 generated tokens a turn) run side by side on a device
pool of a quarter of what they hold, so that most histories have been evicted when their next turn comes. The modes are
interleaved, every run on a fresh server and an empty store; medians over the rounds. Then `fits`: a pool that holds
everything, tiers on beside tiers off, paired, CPU seconds and TTFT; and `restart`: the server is killed with SIGKILL
after its run, started again, and gets the last turns once more.

Standard library only. Redis is Debian's redis-server on a private port; without it that column is missing.
"""

import argparse
import csv
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, free_port, model_path  # noqa: E402

SESSIONS, TURNS, SHARED, NEW, GENERATED = 16, 8, 1000, 200, 64
WORKING_SET = SHARED + SESSIONS * TURNS * (NEW + GENERATED)  # tokens


class Redis:
    """A private redis-server without persistence; None-like when there is no binary."""

    def __init__(self, bytes_):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--maxmemory", str(bytes_), "--maxmemory-policy", "allkeys-lru"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def tier_flags(mode, directory, redis):
    flags = []
    if "dram" in mode:
        flags += ["--kv-tier", "dram:size=2GiB" if mode != "dram+disk" and "redis" not in mode else "dram:size=256MiB"]
    if "disk" in mode:
        flags += ["--kv-tier", f"disk:path={directory},size=4GiB"]
    if "redis" in mode:
        flags += ["--kv-tier", f"redis:url=redis://127.0.0.1:{redis.port}"]
    return flags


def load(args, server, seed, directory, sessions=SESSIONS, turns=TURNS):
    """One run of conversations; the report and the rows of its requests."""
    report, rows = pathlib.Path(directory) / "report.json", pathlib.Path(directory) / "rows.csv"
    subprocess.run(
        [str(pathlib.Path(args.barg).resolve()), "bench", "serve", "--url", server.url, "--concurrency", str(sessions),
         "--requests", str(sessions * turns), "--endpoint", "chat", "--turns", str(turns), "--input-len", str(NEW),
         "--output-len", str(GENERATED), "--shared-prefix-len", str(SHARED), "--prefixes", "1", "--seed", str(seed),
         "--json", str(report), "--csv", str(rows)],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(rows, newline="") as f:
        return json.loads(report.read_text())["runs"][0], list(csv.DictReader(f))


def places(server):
    """Prompt tokens served by place."""
    out = {}
    for key, value in server.metrics().items():
        if key.startswith("barg:prompt_tokens_by_place_total{"):
            out[key.split('place="')[1].split('"')[0]] = value
    return out


def median(values):
    return statistics.median(values) if values else float("nan")


def one(args, mode, pool, seed):
    redis = Redis(4 << 30) if "redis" in mode else None
    with tempfile.TemporaryDirectory(dir=args.scratch) as directory:
        try:
            with Server(args.barg, args.model, ["--kv-cache-memory-bytes", str(pool), "--max-num-seqs", "32",
                                                *tier_flags(mode, directory + "/kv", redis)]) as server:
                cpu = server.cpu_s()
                report, rows = load(args, server, seed, directory)
                later = [float(r["ttft_ms"]) for r in rows if int(r["turn"]) > 0 and r["ttft_ms"]]
                return {"ttft_p50_ms": median(later), "ttft_p95_ms": report["ttft_ms"]["p95"],
                        "tokens_per_s": report["output_tokens_per_s"], "cpu_s": server.cpu_s() - cpu,
                        "cached": report["cached_tokens"], "input": report["input_tokens"], "places": places(server)}
        finally:
            if redis:
                redis.stop()


def restart(args, pool, seed):
    """TTFT of the last turns after SIGKILL, beside the same on an empty store."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as directory:
        flags = ["--kv-cache-memory-bytes", str(pool), "--kv-tier", f"disk:path={directory}/kv,size=4GiB"]
        server = Server(args.barg, args.model, flags)
        load(args, server, seed, directory)
        time.sleep(3)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        out = {}
        for name, store in (("warm", flags), ("cold", flags[:2])):
            with Server(args.barg, args.model, store) as again:
                report, _ = load(args, again, seed, directory)
                out[name] = {"ttft_p50_ms": report["ttft_ms"]["p50"], "tokens_per_s": report["output_tokens_per_s"],
                             "places": places(again), "ready_s": again.ready_s}
        return out


def table(results, modes):
    off = results["off"]
    lines = ["| tiers | TTFT p50 of later turns | against off | tokens/s | against off | cached prompt tokens | CPU s |",
             "|---|---|---|---|---|---|---|"]
    for mode in modes:
        rows = results[mode]
        ttft = median([r["ttft_p50_ms"] for r in rows])
        speed = median([r["tokens_per_s"] for r in rows])
        ttft_ratio = median([a["ttft_p50_ms"] / b["ttft_p50_ms"] for a, b in zip(rows, off)])
        speed_ratio = median([a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(rows, off)])
        share = median([r["cached"] / r["input"] for r in rows])
        lines.append(f"| {mode} | {ttft:,.0f} ms | {ttft_ratio:.2f}x | {speed:,.0f} | {speed_ratio:.2f}x | {share:.0%} | "
                     f"{median([r['cpu_s'] for r in rows]):.1f} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--barg", default="build/barg", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("--model", default="smollm2", type=model_path)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--bytes-per-token", type=int, default=23040, help="KV of one token (barg inspect says it)")
    p.add_argument("--scratch", help="where the disk tier's directory is made (default: the system's temporary one)")
    p.add_argument("--json")
    p.add_argument("--write", help="a Markdown file whose <!-- kv tiers --> part is replaced by the tables")
    p.add_argument("--only", help="comma separated: modes,fits,restart")
    args = p.parse_args()
    parts = set((args.only or "modes,fits,restart").split(","))
    bytes_ = WORKING_SET * args.bytes_per_token
    modes = ["off", "dram", "dram+disk"] + (["dram+disk+redis"] if shutil.which("redis-server") else [])
    results, text = {m: [] for m in modes}, []
    out = {"working_set_tokens": WORKING_SET, "pool_bytes": bytes_ // 4, "rounds": args.rounds}
    if "modes" in parts:
        for r in range(args.rounds):
            for mode in modes[r % len(modes):] + modes[:r % len(modes)]:
                results[mode].append(one(args, mode, bytes_ // 4, 100 + r))
                print(f"round {r + 1} {mode:16} {results[mode][-1]}", file=sys.stderr, flush=True)
        out["modes"] = results
        text.append(f"Pool: a quarter of {WORKING_SET:,} tokens. {args.rounds} interleaved rounds, medians; ratios are medians "
                    "of the rounds' ratios.\n\n" + table(results, modes))
    if "fits" in parts:
        pairs = []
        for r in range(args.rounds):
            pair = {}
            for mode in ("off", modes[-1])[:: 1 if r % 2 else -1]:
                pair[mode] = one(args, mode, bytes_ * 2, 200 + r)
            pairs.append(pair)
            print(f"fits {r + 1}: {pair}", file=sys.stderr, flush=True)
        ratio = lambda key: median([p[modes[-1]][key] / p["off"][key] for p in pairs])  # noqa: E731
        out["fits"] = pairs
        text.append(f"Everything fits, {modes[-1]} against off: {ratio('cpu_s'):.3f}x CPU seconds, "
                    f"{ratio('ttft_p50_ms'):.3f}x TTFT p50, {ratio('tokens_per_s'):.3f}x tokens/s (medians of pairs).")
    if "restart" in parts:
        runs = [restart(args, bytes_ // 4, 300 + r) for r in range(max(1, args.rounds // 2))]
        out["restart"] = runs
        print(f"restart {runs}", file=sys.stderr, flush=True)
        text.append("After SIGKILL and a start on the same directory, the same conversations: TTFT p50 "
                    f"{median([r['warm']['ttft_p50_ms'] / r['cold']['ttft_p50_ms'] for r in runs]):.2f}x of an empty store, "
                    f"tokens/s {median([r['warm']['tokens_per_s'] / r['cold']['tokens_per_s'] for r in runs]):.2f}x.")
    body = "\n\n".join(text)
    print(body)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(out, indent=1))
    if args.write:
        path = pathlib.Path(args.write)
        begin, end = "<!-- kv tiers -->", "<!-- /kv tiers -->"
        head, rest = path.read_text().split(begin)
        path.write_text(f"{head}{begin}\n{body}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
