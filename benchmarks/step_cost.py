"""What does a decode step cost besides the model, at 1 and at 32 streams?

    python3 benchmarks/step_cost.py --barg build/barg --model smollm2 [--json FILE]

Serves the model, lets `barg bench serve` hold so many chat streams in another process, and once all of them decode
looks at the server twice, --seconds apart. Between the two looks nothing else is asked of it, no stream begins and none
ends. The aims: under 150 us at 1 stream, under 5 % of the step at 32. Microseconds a step of

    engine   processor time of barg-engine: scheduler, block manager, ledger, metrics, sinks
    io       processor time of the barg-io threads: detokenising, stop strings, JSON, server-sent events, sockets
    request  processor time of barg-request: parsing, templates and tokenising; idle between the looks
    sampler  rows a step times the cost of a greedy row, of which the server keeps no count: the best windows of
             build/benchmarks/bench_step (vocabulary of 49,152), where that is built, else not in the sum

and their sum, as a share of the step: barg_device_seconds_total over barg_steps_total, the time from launch to result on
the device thread. That thread and its workers, barg-device and barg-worker, compute the model (and the sampler) and
nothing else, so they are not counted; the engine thread computes none of it. Parts run beside the model where there are
cores for it: the sum is work, not delay. Medians over --rounds; a machine with other work prolongs the step and so
flatters the share. Loopback; standard library only."""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, model_path, wait_until  # noqa: E402

PARTS = {"engine": "barg-engine", "io": "barg-io", "request": "barg-request"}
COUNTERS = ["barg_steps_total", "barg_device_seconds_total", "vllm:generation_tokens_total", "vllm:request_success_total"]


def thread_seconds(pid):
    """Processor time by name of thread."""
    out = collections.Counter()
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        head, fields = stat.read_text().rsplit(")", 1)
        used = fields.split()
        out[head.split("(", 1)[1]] += (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")
    return out


def look(server):
    """Counters of the server and processor time of its threads."""
    series = server.metrics()
    counters = {name: sum(v for k, v in series.items() if k.split("{")[0] == name) for name in COUNTERS}
    return counters, thread_seconds(server.process.pid)


def sampler_us(program):
    """Of a greedy row; None without the program."""
    if not program.exists():
        return None
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return float(next(line for line in lines if line.split()[:1] == ["greedy"]).split()[1])


def window(server, streams, args):
    """What happened between two looks."""
    load = subprocess.Popen([args.barg, "bench", "serve", "--url", server.url, "--endpoint", "chat", "--concurrency",
                             str(streams), "--requests", str(streams), "--input-len", "16", "--output-len",
                             str(args.tokens)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: server.metric("vllm:num_requests_running") == streams, "all streams run", 60)
        time.sleep(1)  # behind their prefills
        before, cpu_before = look(server)
        time.sleep(args.seconds)
        after, cpu_after = look(server)
    finally:
        load.terminate()
        load.wait()
    if after["vllm:request_success_total"] != before["vllm:request_success_total"]:
        raise RuntimeError("a stream ended between the looks: more --tokens or fewer --seconds")
    wait_until(lambda: server.metric("vllm:num_requests_running") == 0, "the streams are gone", 60)
    return {k: after[k] - before[k] for k in COUNTERS}, {k: v - cpu_before[k] for k, v in cpu_after.items()}


def costs(server, streams, row_us, args):
    """Microseconds a step of each part, and of the step."""
    counted, cpu = window(server, streams, args)
    steps = counted["barg_steps_total"]
    out = {part: 1e6 * cpu[thread] / steps for part, thread in PARTS.items()}
    if row_us is not None:
        out["sampler"] = row_us * counted["vllm:generation_tokens_total"] / steps
    total, step = sum(out.values()), 1e6 * counted["barg_device_seconds_total"] / steps
    return {**out, "sum": total, "step": step, "share": total / step}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--barg", type=lambda path: pathlib.Path(path).resolve(), default="build/barg")
    p.add_argument("--model", default="smollm2")
    p.add_argument("--streams", type=lambda text: [int(n) for n in text.split(",")], default="1,32")
    p.add_argument("--seconds", type=float, default=15, help="between the looks; the kernel counts in 10 ms")
    p.add_argument("--tokens", type=int, default=7000, help="of each stream: more than it decodes until the second look")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("options", nargs="*", help="further options of barg serve, after --")
    args = p.parse_args()
    row_us = sampler_us(args.barg.parent / "benchmarks" / "bench_step")
    if row_us is None:
        print("no benchmarks/bench_step beside the program: the sampler is not in the sum", file=sys.stderr)
    report = {}
    with Server(args.barg, model_path(args.model), args.options) as server:
        if not set(PARTS.values()) <= thread_seconds(server.process.pid).keys():
            raise RuntimeError("the server's threads have no names")
        for streams in args.streams:
            rounds = [costs(server, streams, row_us, args) for _ in range(args.rounds)]
            report[streams] = {part: statistics.median(r[part] for r in rounds) for part in rounds[0]}
            *parts, share = report[streams].items()
            print(f"{streams:3} streams, us a step: " + ", ".join(f"{k} {v:.1f}" for k, v in parts)
                  + f"; {share[1]:.2%} of the step", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(report) + "\n")


main()
