"""Reload, recompute or both ends at once: what the restore planner gains on a disk of a given speed.

    python3 benchmarks/kv_throttle.py --barg build/barg [--speeds 2,4,8,16,32,64] [--options="--threads 1"]

Users with long histories take turns on a device pool that holds three of them, so that every history has been evicted
when its user comes back, and lies on a disk tier that is throttled to each speed (MB/s). The store is filled once, without
a throttle; each speed and --kv-restore then gets a server of its own on it, and every turn goes to all four. Time to first
token, medians over the turns behind a few that are not counted (nobody has measured the tier yet). Ratios are medians of the
turns' ratios: auto against the better of always reloading and always recomputing, and the better against both ends at once.
Answers must be equal.

The break-even is the model's bytes of KV a token times its prefill rate: --options moves it (fewer threads, --kv-cache-dtype).
Standard library only.
"""

import argparse
import contextlib
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, model_path  # noqa: E402

MODES = ["reload", "recompute", "both", "auto"]
HELD = 3  # histories that the pool holds
TAIL = 20  # new tokens of a turn


class Users:
    def __init__(self, args):
        rng = random.Random(7)
        self.args = args
        self.histories = [[rng.randrange(100, 40000) for _ in range(args.history)] for _ in range(args.users)]

    def turn(self, server, i):
        """Turn `i` of all: which one, seconds, cached tokens by tier, and the answer."""
        user, rng = i % len(self.histories), random.Random(i)
        prompt = self.histories[user] + [rng.randrange(100, 40000) for _ in range(TAIL)]
        begin = time.monotonic()
        status, body = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0,
                                                       "ignore_eos": True, "logprobs": 5})
        seconds = time.monotonic() - begin
        if status != 200:
            raise RuntimeError(body)
        details = body["usage"]["prompt_tokens_details"]
        return {"turn": i, "seconds": seconds, "places": details.get("cached_tokens_by_tier") or {},
                "answer": json.dumps([body["choices"][0]["text"], body["choices"][0]["logprobs"]])}

    def server(self, directory, throttle=None, mode="auto"):
        pool = HELD * (self.args.history + 64) * self.args.bytes_per_token
        tier = f"disk:path={directory},size=8GiB" + (f",throttle={throttle}" if throttle else "")
        return Server(self.args.barg, self.args.model,
                      ["--kv-cache-memory-bytes", str(pool), "--kv-tier", tier, "--kv-restore", mode,
                       *self.args.options.split()])

    def fill(self, directory):
        with self.server(directory) as server:
            for user in range(len(self.histories)):
                self.turn(server, user)
                self.turn(server, user)  # a second use is worth a place on disk
            time.sleep(3)


def choices(server):
    return {c: int(server.metric("barg_kv_restore_plans_total", choice=c)) for c in ("recompute", "reload", "both")}


def measure(args, users, directory, mb):
    """Four servers on the same store; every turn goes to each, so that what else the machine does meets all of them."""
    with contextlib.ExitStack() as stack:
        servers = {m: stack.enter_context(users.server(directory, f"{int(mb * 1e6)}B/s", m)) for m in MODES}
        turns = []
        for i in range(args.warm_up + args.turns):
            order = MODES[i % 4:] + MODES[:i % 4]
            turns.append({m: users.turn(servers[m], i) for m in order})
            if len({t["answer"] for t in turns[-1].values()}) != 1:
                raise RuntimeError("reading back changed an answer")
        out = {"mb_per_s": mb, "turns": turns, "choices": choices(servers["auto"])}
    seconds = [{m: t[m]["seconds"] for m in MODES} for t in turns[args.warm_up:]]
    medians = {m: statistics.median(s[m] for s in seconds) for m in MODES}
    end = min("reload", "recompute", key=medians.get)
    paired = lambda a, b: statistics.median(s[a] / s[b] for s in seconds)  # noqa: E731
    return {**out, "seconds": medians, "better": end, "auto_to_better": paired("auto", end),
            "better_to_both": paired(end, "both"), "better_to_auto": paired(end, "auto"),
            "on_device": max(t[m]["places"].get("device", 0) for t in turns[args.warm_up:] for m in MODES)}


def table(runs):
    lines = ["| MB/s | reload | recompute | both | auto | auto / better end | better end / both | chosen by auto |",
             "|---|---|---|---|---|---|---|---|"]
    for r in runs:
        times = " | ".join(f"{1e3 * r['seconds'][m]:,.0f} ms" for m in MODES)
        chosen = ", ".join(f"{n} {choice}" for choice, n in r["choices"].items() if n)
        lines.append(f"| {r['mb_per_s']:g} | {times} | {r['auto_to_better']:.2f}x | {r['better_to_both']:.2f}x | {chosen} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--barg", default="build/barg", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("--model", default="smollm2", type=model_path)
    p.add_argument("--speeds", default="2,4,8,16,32,64", help="MB/s")
    p.add_argument("--history", type=int, default=2000, help="tokens that come back")
    p.add_argument("--users", type=int, default=8)
    p.add_argument("--warm-up", type=int, default=4, help="turns not counted")
    p.add_argument("--turns", type=int, default=9)
    p.add_argument("--bytes-per-token", type=int, default=23040, help="KV of one token (barg inspect says it)")
    p.add_argument("--options", default="--threads 1", help="of the server")
    p.add_argument("--scratch", help="where the disk tier's directory is made (default: the system's temporary one)")
    p.add_argument("--json")
    args = p.parse_args()
    users, runs = Users(args), []
    with tempfile.TemporaryDirectory(dir=args.scratch) as directory:
        users.fill(directory + "/kv")
        for mb in args.speeds.split(","):
            runs.append(run := measure(args, users, directory + "/kv", float(mb)))
            print({k: v for k, v in run.items() if k != "turns"}, file=sys.stderr, flush=True)
    print(table(runs))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
