"""Goodput and refusals above capacity, against a running server or one it starts itself.

    python3 benchmarks/overload.py --barg build/barg --model MODEL [--seconds 20]

1. Capacity: a closed loop of 64 clients gives the requests/s that the machine can finish.
2. Open loops at 0.8, 1.5 and 3 times that: requests are sent at their intended times whatever comes back.
   Goodput = requests/s answered 200 within the SLO (from the intended send time); refusals = 429/503.

Bounded in count and time; loopback only. Standard library only."""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, model_path  # noqa: E402


class Bodies:
    """Request bodies; no two of a run share a prompt, or the prefix cache would answer the later loads."""

    def __init__(self, args):
        self.args, self.rng, self.lock = args, random.Random(1), threading.Lock()

    def next(self):
        args = self.args
        with self.lock:
            length = self.rng.randint(args.prompt_tokens // 2, args.prompt_tokens)
            prompt = [self.rng.randrange(3, args.vocab) for _ in range(length)]
        return json.dumps({"prompt": prompt, "max_tokens": args.output_tokens, "ignore_eos": True, "temperature": 0})


def send(port, body):
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status, time.monotonic() - started, time.monotonic()
    except OSError:
        return 0, time.monotonic() - started, time.monotonic()
    finally:
        connection.close()


def closed_loop(port, bodies, clients, seconds):
    end = time.monotonic() + seconds
    done = []

    def client():
        while time.monotonic() < end:
            status, latency, at = send(port, bodies.next())
            if status == 200 and at <= end:
                done.append(latency)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(done) / seconds, done


def open_loop(port, bodies, rate, seconds, slo_s, rng):
    results = []
    start = time.monotonic()

    def fire(intended, body):
        status, latency, at = send(port, body)
        results.append((status, at - intended, latency))

    at = start
    with concurrent.futures.ThreadPoolExecutor(1500) as pool:
        while at < start + seconds:
            body = bodies.next()
            time.sleep(max(0.0, at - time.monotonic()))
            pool.submit(fire, at, body)
            at += rng.expovariate(rate)
    good = [r for r in results if r[0] == 200 and r[1] <= slo_s]
    refused = sorted(r[2] for r in results if r[0] in (429, 503))
    other = [r[0] for r in results if r[0] not in (200, 429, 503)]
    return {"sent_per_s": round(len(results) / seconds, 2), "goodput_per_s": round(len(good) / seconds, 2),
            "ok": sum(r[0] == 200 for r in results), "refused": len(refused), "other": other[:5],
            "refusal_p50_ms": round(statistics.median(refused) * 1e3, 1) if refused else None,
            "refusal_p99_ms": round(refused[int(len(refused) * 0.99)] * 1e3, 1) if refused else None}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--barg", default="build/barg")
    p.add_argument("--model", default="smollm2")
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--vocab", type=int, default=600)
    p.add_argument("--prompt-tokens", type=int, default=64)
    p.add_argument("--output-tokens", type=int, default=16)
    p.add_argument("--slo", type=float, default=20, help="seconds from the intended send time to the whole answer")
    p.add_argument("options", nargs="*", help="further options of barg serve, after --")
    args = p.parse_args()
    rng = random.Random(1)
    bodies = Bodies(args)
    with Server(pathlib.Path(args.barg).resolve(), model_path(args.model), args.options) as server:
        closed_loop(server.port, bodies, 16, 3)
        capacity, latencies = closed_loop(server.port, bodies, 64, args.seconds)
        if not latencies:
            sys.exit(f"64 clients got no answer within {args.seconds} s: give more --seconds")
        print(json.dumps({"capacity_per_s": round(capacity, 2), "p50_s": round(statistics.median(latencies), 2)}), flush=True)
        peak = 0.0
        for load in (0.8, 1.0, 1.5, 3.0):
            row = open_loop(server.port, bodies, capacity * load, args.seconds, args.slo, rng)
            peak = max(peak, row["goodput_per_s"])
            print(json.dumps({"load": load, **row, "of_peak": round(row["goodput_per_s"] / peak, 3)}), flush=True)


main()
