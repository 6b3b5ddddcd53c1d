"""What the tiers of the KV cache are worth: the same conversations with tiers off, DRAM, DRAM + disk, + Redis.

    python3 benchmarks/kv_tiers.py --barg build/barg [--rounds 5] [--json out.json] [--write docs/tiers.md]

Sixteen conversations of eight turns (1,000 shared words, then 200 new and 64 generated tokens a turn) take turns on a
device pool of a quarter of what they hold, so that most histories have been evicted when their next turn comes. The modes
are interleaved, every run on a fresh server and an empty store; medians over the rounds; answers must be equal. Then
`fits`: a pool that holds everything, tiers on beside tiers off, paired, CPU seconds and TTFT; and `restart`: a server
with a disk tier is killed with SIGKILL after its run, started again, and gets the same conversations once more, as does
one on an empty directory.

Standard library only. Redis is Debian's redis-server on a private port; without it that column is missing.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
from statistics import median

import markers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, model_path, redis_server  # noqa: E402

SESSIONS, TURNS, SHARED, NEW, GENERATED = 16, 8, 1000, 200, 64
WORKING_SET = SHARED + SESSIONS * TURNS * (NEW + GENERATED)  # tokens


def tier_flags(mode, directory, redis_port=None):
    flags = []
    if "dram" in mode:
        flags += ["--kv-tier", "dram:size=2GiB" if mode == "dram" else "dram:size=256MiB"]
    if "disk" in mode:
        flags += ["--kv-tier", f"disk:path={directory},size=4GiB" + (",admit=all" if "all" in mode else "")]
    if "redis" in mode:
        flags += ["--kv-tier", f"redis:url=redis://127.0.0.1:{redis_port}"]
    return flags


WORDS = (pathlib.Path(__file__).parent / "peers" / "words.txt").read_text().split()  # of one token each


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


class Sessions:
    """Turn after turn of every conversation, `parallel` requests at a time, streamed; the next one leaves when one ends."""

    def __init__(self, server, seed, parallel):
        self.server, self.parallel = server, parallel
        rng = random.Random(seed)
        shared = words(rng, SHARED)
        self.history = [[{"role": "system", "content": shared}] for _ in range(SESSIONS)]
        self.questions = [[words(rng, NEW) for _ in range(TURNS)] for _ in range(SESSIONS)]

    def run(self):
        """(a row a request, seconds); raises what any request has raised."""
        start, futures = time.monotonic(), []
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
            for turn in range(TURNS):
                for s in range(SESSIONS):
                    futures.append(pool.submit(self.ask, s, turn, futures[-SESSIONS] if turn else None))
        return [f.result() for f in futures], time.monotonic() - start

    def ask(self, s, turn, before):
        if before:
            before.result()
        self.history[s].append({"role": "user", "content": self.questions[s][turn]})
        body = {"messages": self.history[s], "max_tokens": GENERATED, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=600)
        begin, first, text, usage = time.monotonic(), None, "", {}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read())
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if piece := choice["delta"].get("content"):
                    first = first or time.monotonic()
                    text += piece
        connection.close()
        self.history[s].append({"role": "assistant", "content": text})
        return {"session": s, "turn": turn, "ttft_ms": 1e3 * (first - begin), "text": text, **usage}


def figures(rows, seconds):
    later = [r for r in rows if r["turn"] > 0]
    ttft = sorted(r["ttft_ms"] for r in later)
    by_tier = {}
    for r in rows:
        for place, n in (r["prompt_tokens_details"].get("cached_tokens_by_tier") or {}).items():
            by_tier[place] = by_tier.get(place, 0) + n
    return {"ttft_p50_ms": median(ttft), "ttft_p95_ms": ttft[int(0.95 * len(ttft))],
            "tokens_per_s": sum(r["completion_tokens"] for r in rows) / seconds,
            "input": sum(r["prompt_tokens"] for r in rows),
            "cached": sum(r["prompt_tokens_details"]["cached_tokens"] for r in rows), "places": by_tier,
            "answers": {f"{r['session']}.{r['turn']}": r["text"] for r in rows}}


def one(args, mode, pool, seed):
    with contextlib.ExitStack() as stack:
        directory, port = stack.enter_context(tempfile.TemporaryDirectory(dir=args.scratch)), None
        if "redis" in mode:
            redis, port = redis_server("--maxmemory", 4 << 30, "--maxmemory-policy", "allkeys-lru")
            stack.callback(redis.wait)
            stack.callback(redis.terminate)
        server = stack.enter_context(Server(args.barg, args.model, ["--kv-cache-memory-bytes", str(pool),
                                                                    *tier_flags(mode, directory + "/kv", port)]))
        cpu = server.cpu_s()
        out = figures(*Sessions(server, seed, args.parallel).run())
        return {**out, "cpu_s": server.cpu_s() - cpu}


def restart(args, pool, seed):
    """The same conversations after SIGKILL and a start on the same directory, beside a start on an empty one."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as directory:
        def start(name):
            return Server(args.barg, args.model, ["--kv-cache-memory-bytes", str(pool),
                                                  *tier_flags("disk", f"{directory}/{name}")])

        with start("warm") as server:
            first = figures(*Sessions(server, seed, args.parallel).run())
            time.sleep(3)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        out = {}
        for name in ("warm", "cold"):
            with start(name) as again:
                out[name] = {**figures(*Sessions(again, seed, args.parallel).run()), "ready_s": again.ready_s}
            if out[name]["answers"] != first["answers"]:
                raise RuntimeError(f"{name}: other answers")
        return out


def show(name, run):
    print(name, {k: round(v, 1) if isinstance(v, float) else v for k, v in run.items() if k != "answers"},
          file=sys.stderr, flush=True)


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
    p.add_argument("--parallel", type=int, default=4, help="requests in flight")
    p.add_argument("--bytes-per-token", type=int, default=23040, help="KV of one token (barg inspect says it)")
    p.add_argument("--scratch", help="where the disk tier's directory is made (default: the system's temporary one)")
    p.add_argument("--json")
    p.add_argument("--write", help="a Markdown file whose <!-- kv tiers --> part is replaced by the tables")
    p.add_argument("--only", help="comma separated: modes,fits,restart")
    args = p.parse_args()
    parts = set((args.only or "modes,fits,restart").split(","))
    bytes_ = WORKING_SET * args.bytes_per_token
    modes = ["off", "dram", "dram+disk", "dram+disk, admit=all"] + (["dram+disk+redis"] if shutil.which("redis-server") else [])
    command = f"python3 benchmarks/kv_tiers.py --rounds {args.rounds}" + (f" --only {args.only}" if args.only else "")
    results = {m: [] for m in modes}
    text = [f"Measured {datetime.date.today().isoformat()} by `{command}` with {args.model.name}, {args.parallel} requests in "
            "flight."]
    out = {"working_set_tokens": WORKING_SET, "pool_bytes": bytes_ // 4, "rounds": args.rounds}
    if "modes" in parts:
        for r in range(args.rounds):
            for mode in modes[r % len(modes):] + modes[:r % len(modes)]:
                results[mode].append(one(args, mode, bytes_ // 4, 100 + r))
                show(f"round {r + 1} {mode}", results[mode][-1])
            if len({json.dumps(results[m][r]["answers"], sort_keys=True) for m in modes}) != 1:
                raise RuntimeError("tiers changed an answer")
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
            for mode, run in pair.items():
                show(f"fits {r + 1} {mode}", run)
        ratio = lambda key: median([p[modes[-1]][key] / p["off"][key] for p in pairs])  # noqa: E731
        out["fits"] = pairs
        text.append(f"Everything fits, {modes[-1]} against off: {ratio('cpu_s'):.3f}x CPU seconds, "
                    f"{ratio('ttft_p50_ms'):.3f}x TTFT p50, {ratio('tokens_per_s'):.3f}x tokens/s (medians of pairs).")
    if "restart" in parts:
        runs = [restart(args, bytes_ // 4, 300 + r) for r in range(max(1, args.rounds // 2))]
        out["restart"] = runs
        for run in runs:
            show("restart warm", run["warm"])
            show("restart cold", run["cold"])
        text.append("After SIGKILL and a start on the same directory, the same conversations: TTFT p50 "
                    f"{median([r['warm']['ttft_p50_ms'] / r['cold']['ttft_p50_ms'] for r in runs]):.2f}x of an empty store, "
                    f"tokens/s {median([r['warm']['tokens_per_s'] / r['cold']['tokens_per_s'] for r in runs]):.2f}x.")
    body = "\n\n".join(text)
    print(body)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(out, indent=1))
    if args.write:
        markers.replace(args.write, "kv tiers", body)


if __name__ == "__main__":
    main()
