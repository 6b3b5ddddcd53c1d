"""A busy stream among a thousand idle connections and streams whose readers have stopped: what is computed, what
is held, and what is left when they go. Times are printed, not judged (benchmarks/connections.py measures them)."""

import time
import unittest

import run
from server import Server, wait_until
from streams import (allow_many_files, events, few_files, idle_connections, median_ms, read_to_end, stalled_streams,
                     text_of, timed_stream)

IDLE, STALLED = 1000, 256
BUSY = {"prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True, "seed": 1}
# Log-probabilities make an event kilobytes: the buffers of a connection fill within some tens of tokens.
LONG = {"prompt": [8, 9], "max_tokens": 900, "ignore_eos": True, "logprobs": 20}


def paused(server):
    return server.metric("barg:num_requests_paused")


class Connections(unittest.TestCase):
    def test_idle_and_stalled_readers(self):
        with few_files(256):  # the server raises its own limit
            started = Server(run.BARG, run.MODEL, ["--write-stall-timeout", "600s", "--log-level", "warn",
                                                 "--sse-ping", "200ms"])
        with started as server:
            allow_many_files()
            alone, gaps = timed_stream(server.port, BUSY)
            wait_until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0, "idle")
            fds, rss = server.fds(), server.rss_bytes()

            idle = idle_connections(server.port, IDLE)
            self.assertGreaterEqual(server.fds(), IDLE)
            stalled = stalled_streams(server.port, STALLED, LONG)
            wait_until(lambda: paused(server) == STALLED and server.running() == 0, "all readers are behind", 300)
            spent = server.cpu_s()
            time.sleep(1)
            self.assertLess(server.cpu_s() - spent, 0.3, "those who wait take no processor time")
            # None of them costs a step from here on, and none holds a block.
            made = server.metric("vllm:generation_tokens_total")
            crowd, crowd_gaps = timed_stream(server.port, BUSY)
            self.assertEqual(server.metric("vllm:generation_tokens_total"), made + BUSY["max_tokens"])
            self.assertEqual(text_of(crowd), text_of(alone))
            self.assertEqual(server.metric("vllm:kv_cache_usage_perc"), 0)
            self.assertEqual(paused(server), STALLED)
            self.assertLess(server.rss_bytes() - rss, 2**20 * 200, "what the stalled hold is bounded")
            print(f"median gap alone {median_ms(gaps):.3f} ms, in the crowd {median_ms(crowd_gaps):.3f} ms; "
                  f"RSS {rss / 2**20:.0f} -> {server.rss_bytes() / 2**20:.0f} MiB")

            # A reader that comes back gets all of it, as if it had never stopped.
            whole = read_to_end(stalled[0])
            shown = [c["logprobs"]["tokens"] for e in events(whole) for c in e["choices"] if c["logprobs"]]
            self.assertEqual(sum(map(len, shown)), LONG["max_tokens"])
            _, answer = server.post("/v1/completions", {**LONG, "seed": 0})
            self.assertEqual(text_of(whole), answer["choices"][0]["text"])

            for s in idle + stalled:
                s.close()
            wait_until(lambda: paused(server) + server.running() == 0, "all gone", 60)
            wait_until(lambda: server.fds() <= fds + 1, "descriptors at baseline")
            self.assertEqual(server.metric("vllm:kv_cache_usage_perc"), 0)
            self.assertLess(server.rss_bytes() - rss, 2**20 * 100, "memory is given back or used again")

    def test_reader_that_never_comes_back_is_cancelled(self):
        with Server(run.BARG, run.MODEL, ["--write-stall-timeout", "1s"]) as server:
            stalled = stalled_streams(server.port, 3, LONG)
            wait_until(lambda: server.output().count("slow_client") == 3, "cancelled, each with its line", 60)
            wait_until(lambda: paused(server) + server.running() == 0, "nothing is left")
            for s in stalled:
                s.close()


if __name__ == "__main__":
    unittest.main()
