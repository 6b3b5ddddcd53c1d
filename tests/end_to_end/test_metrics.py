"""Every metric of the scrape contract exists, moves under load, and agrees with what clients were told."""

import concurrent.futures
import re
import unittest

import run
from server import wait_until

NAMES = """
vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:cache_config_info
vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:num_preemptions_total vllm:prompt_tokens_total
vllm:generation_tokens_total vllm:request_success_total
vllm:time_to_first_token_seconds_bucket vllm:inter_token_latency_seconds_bucket vllm:e2e_request_latency_seconds_bucket
vllm:request_queue_time_seconds_bucket vllm:request_prefill_time_seconds_bucket vllm:request_decode_time_seconds_bucket
vllm:request_prompt_tokens_bucket vllm:request_generation_tokens_bucket vllm:iteration_tokens_total_bucket
barg_kv_waste_ratio barg_build_info process_start_time_seconds
""".split()


def prompt(k):
    return [3 + (7 * k + 11 * i) % 500 for i in range(40 + k)]


class Metrics(unittest.TestCase):
    def test_names_and_types(self):
        run.SERVER.post("/v1/completions", {"prompt": prompt(0), "max_tokens": 4})
        text = run.SERVER.get("/metrics")[1].decode()
        series = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and line[0] != "#"}
        self.assertEqual([n for n in NAMES if n not in series], [])
        for family in {re.sub(r"_(bucket|sum|count)$", "", n) for n in series}:
            self.assertRegex(text, rf"(?m)^# TYPE {re.escape(family)} \w+$", family)

    def test_counters_agree_with_usage(self):
        before = run.SERVER.metrics()
        jobs = 24

        def one(k):
            # Every third is a repetition: it must hit the prefix cache.
            body = {"prompt": prompt(k - k % 3), "max_tokens": 8, "ignore_eos": True, "n": 1 + k % 2, "seed": k}
            status, answer = run.SERVER.post("/v1/completions", body)
            self.assertEqual(status, 200, answer)
            return answer

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(one, range(jobs)))
        wait_until(lambda: run.SERVER.metric("vllm:num_requests_running") == 0, "idle")
        after = run.SERVER.metrics()

        def moved(name):
            return sum(v - before.get(k, 0) for k, v in after.items() if re.split(r"[{ ]", k)[0] == name)

        prompt_tokens = sum(a["usage"]["prompt_tokens"] for a in answers)
        output_tokens = sum(a["usage"]["completion_tokens"] for a in answers)
        self.assertEqual(moved("vllm:prompt_tokens_total"), prompt_tokens)
        self.assertEqual(moved("vllm:generation_tokens_total"), output_tokens)
        self.assertEqual(output_tokens, sum(8 * (1 + k % 2) for k in range(jobs)))
        # Every choice has a finish reason of its own; times are those of the whole request.
        choices = sum(len(a["choices"]) for a in answers)
        self.assertEqual(moved("vllm:request_success_total"), choices)
        self.assertEqual(moved("vllm:e2e_request_latency_seconds_count"), jobs)
        self.assertEqual(moved("vllm:time_to_first_token_seconds_count"), jobs)
        self.assertGreater(moved("vllm:prefix_cache_hits_total"), 0)
        self.assertGreater(sum(a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers), 0)

    def test_nothing_is_used_when_idle(self):
        wait_until(lambda: run.SERVER.metric("vllm:num_requests_running") == 0, "idle")
        self.assertEqual(run.SERVER.metric("vllm:num_requests_waiting"), 0)
        self.assertEqual(run.SERVER.metric("vllm:kv_cache_usage_perc"), 0)

    def test_aborts_are_counted(self):
        import socket
        import json
        before = run.SERVER.metrics()
        body = json.dumps({"prompt": prompt(5), "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", run.SERVER.port)) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.assertIn(b"200", s.recv(64))
        name = "vllm:request_success_total"

        def aborted(metrics):
            return sum(v for k, v in metrics.items() if k.startswith(name) and 'finished_reason="abort"' in k)

        wait_until(lambda: aborted(run.SERVER.metrics()) == aborted(before) + 1, "the abort is counted")
        wait_until(lambda: run.SERVER.metric("vllm:kv_cache_usage_perc") == 0, "its blocks are free")


if __name__ == "__main__":
    unittest.main()
