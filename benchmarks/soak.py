"""Does memory stay flat? Two minutes of 64 concurrent streams: mixed lengths, some unstreamed, some cut by the client.

    python3 benchmarks/soak.py --barg build/barg --model smollm2 [--seconds 120] [--streams 64]

Prints the resident set every five seconds, and at the end its slope over the second half in KiB a minute, the
requests served and what is left in the server. Exits with 1 if a stream broke, or if memory grew by more than
1 MiB a minute. Loopback; standard library only.

The slope is the median over all pairs of samples: the streams of the moment lift and lower single samples, and one
allocation near an end of the half is no leak. A half shorter than a minute is not judged, since the server still warms up."""

import argparse
import itertools
import json
import pathlib
import random
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, model_path, wait_until  # noqa: E402
from streams import connect, send_request  # noqa: E402

SLOPE_LIMIT_KIB = 1024
SHORTEST_HALF_S = 60
SAMPLES_A_LINE = 5  # one a second
RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"  # SO_LINGER {on, 0 s}


def one_request(server, rng, args, counts):
    prompt = [rng.randrange(3, args.vocab) for _ in range(rng.choice((1, 8, 60, 200)))]
    body = {"prompt": prompt, "max_tokens": rng.choice((1, 16, 60, 200)), "ignore_eos": True,
            "temperature": rng.choice((0, 1)), "seed": rng.randrange(1 << 30)}
    if rng.random() < 0.1:
        body["logprobs"] = 3
    if rng.random() < 0.1:
        body["n"] = 2
    kind = rng.random()
    if kind < 0.1:
        server.post("/v1/completions", body)
        counts["whole"] += 1
        return
    s = connect(server.port)
    try:
        send_request(s, body)
        if kind < 0.25:
            s.recv(rng.choice((16, 1024, 20000)))
            if rng.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            counts["cut"] += 1
            return
        tail = b""
        while chunk := s.recv(1 << 16):
            tail = (tail + chunk)[-64:]
        counts["streamed" if b"data: [DONE]" in tail else "broken"] += 1
    finally:
        s.close()


def slope_kib_per_minute(samples):
    """Theil and Sen over (seconds, bytes): up to 29 % of the samples may be anything."""
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in itertools.combinations(samples, 2)]
    return 60 / 1024 * statistics.median(slopes)


def judged_half(samples, seconds):
    """Samples of the second half, while streams still begin; none of a run too short to be judged."""
    half = [s for s in samples if seconds / 2 <= s[0] <= seconds]
    return half if seconds / 2 >= SHORTEST_HALF_S and len(half) > 2 else []


def verdict(slope, broken):
    """The exit status; says what is wrong."""
    if slope is None:
        print(f"memory is not judged: half of the run is shorter than {SHORTEST_HALF_S} s", file=sys.stderr)
    elif slope > SLOPE_LIMIT_KIB:
        print(f"memory grows by {slope:.0f} KiB a minute, more than {SLOPE_LIMIT_KIB}", file=sys.stderr)
    if broken:
        print(f"{broken} streams broke", file=sys.stderr)
    return 1 if broken or (slope is not None and slope > SLOPE_LIMIT_KIB) else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--barg", default="build/barg")
    p.add_argument("--model", default="smollm2")
    p.add_argument("--seconds", type=float, default=120)
    p.add_argument("--streams", type=int, default=64)
    p.add_argument("--vocab", type=int, default=500)
    p.add_argument("--kv", default="128MiB", help="KV pool: small, so that all of it has been touched soon")
    p.add_argument("options", nargs="*", help="further options of barg serve, after --")
    args = p.parse_args()
    counts = dict.fromkeys(("streamed", "whole", "cut", "broken"), 0)
    samples = []
    with Server(pathlib.Path(args.barg).resolve(), model_path(args.model),
                ["--kv-cache-memory-bytes", args.kv, *args.options]) as server:
        start = time.monotonic()

        def client(k):
            rng = random.Random(k)
            while time.monotonic() < start + args.seconds:
                one_request(server, rng, args, counts)

        threads = [threading.Thread(target=client, args=(k,)) for k in range(args.streams)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            samples.append((time.monotonic() - start, server.rss_bytes()))
            if len(samples) % SAMPLES_A_LINE == 1:
                print(f"{samples[-1][0]:6.1f} s  {samples[-1][1] / 2**20:8.1f} MiB  {counts}", flush=True)
            time.sleep(1)
        for t in threads:
            t.join()
        wait_until(lambda: server.running() + server.metric("barg:num_requests_paused") == 0, "nothing is left", 60)
        wait_until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0, "no block is held", 60)
        half = judged_half(samples, args.seconds)
        slope = slope_kib_per_minute(half) if half else None
        print(json.dumps({**counts, "rss_mib": [round(samples[len(samples) // 2][1] / 2**20, 1),
                                                round(samples[-1][1] / 2**20, 1)],
                          "slope_kib_per_minute": None if slope is None else round(slope),
                          "descriptors": server.fds()}))
    return verdict(slope, counts["broken"])


sys.exit(main())
