"""What a crowd of connections costs a busy stream: its median inter-token time alone, and among 1,000 idle keep-alive
connections and 256 streams whose readers have stopped.

    python3 benchmarks/connections.py --barg build/barg --model smollm2 [--pairs 20]

Two servers run the same model, one of them with the crowd; one stream at a time is measured on either in turn, so
that whatever else the machine does meets both. Half way the crowd changes sides. Loopback; standard library only."""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from server import Server, model_path, wait_until  # noqa: E402
from streams import allow_many_files, idle_connections, median_ms, stalled_streams, timed_stream  # noqa: E402


def quiet(server, stalled):
    return server.running() == 0 and server.metric("barg:num_requests_paused") == stalled


def crowd(server, args):
    started = time.monotonic()
    sockets = idle_connections(server.port, args.idle)
    body = {"prompt": [8, 9], "max_tokens": 900, "ignore_eos": True, "logprobs": 20}
    sockets += stalled_streams(server.port, args.stalled, body)
    wait_until(lambda: quiet(server, args.stalled), "all readers are behind", 600)
    print(json.dumps({"crowd": len(sockets), "settled_s": round(time.monotonic() - started, 1),
                      "rss_mib": server.rss_bytes() >> 20}), flush=True)
    return sockets


def measure(alone, among, args):
    """Medians of one stream on each, in turn."""
    body = {"prompt": list(range(5, 37)), "max_tokens": args.tokens, "ignore_eos": True, "seed": 1}
    pairs = []
    for i in range(args.pairs):
        order = (alone, among) if i % 2 == 0 else (among, alone)
        got = {server: timed_stream(server.port, body)[1] for server in order}
        pairs.append((median_ms(got[alone]), median_ms(got[among])))
    return pairs


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--barg", default="build/barg")
    p.add_argument("--model", default="smollm2")
    p.add_argument("--pairs", type=int, default=20, help="of each half")
    p.add_argument("--tokens", type=int, default=100)
    p.add_argument("--idle", type=int, default=1000)
    p.add_argument("--stalled", type=int, default=256)
    p.add_argument("options", nargs="*", help="further options of barg serve, after --")
    args = p.parse_args()
    allow_many_files()
    barg, model = pathlib.Path(args.barg).resolve(), model_path(args.model)
    options = ["--write-stall-timeout", "3600s", *args.options]
    pairs = []
    with Server(barg, model, options) as one, Server(barg, model, options) as two:
        for alone, among in ((one, two), (two, one)):
            for server in (one, two):
                timed_stream(server.port, {"prompt": [5, 6], "max_tokens": 20, "ignore_eos": True})
            sockets = crowd(among, args)
            pairs += measure(alone, among, args)
            for s in sockets:
                s.close()
            wait_until(lambda: quiet(among, 0), "the crowd is gone", 60)
    ratios = [b / a for a, b in pairs]
    quartiles = statistics.quantiles(ratios, n=4)
    print(json.dumps({"model": str(model), "pairs": len(pairs), "idle": args.idle, "stalled": args.stalled,
                      "alone_ms": round(statistics.median(a for a, _ in pairs), 3),
                      "among_ms": round(statistics.median(b for _, b in pairs), 3),
                      "ratio": round(statistics.median(ratios), 4),
                      "ratio_quartiles": [round(q, 4) for q in (quartiles[0], quartiles[2])]}))


main()
