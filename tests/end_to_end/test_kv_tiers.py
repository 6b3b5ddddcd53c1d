"""Blocks of KV that outlive their process, and processes that share them: the same answers, read instead of computed."""

import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import run
from server import Server, redis_server, wait_until

# Small enough that prompts leave it, and nothing is computed that a tier has.
OPTIONS = ["--kv-cache-memory-bytes", "1MiB", "--kv-restore", "reload"]
PROMPTS = 8
BLOCK = 16


def prompt(k, length=200):
    return [3 + (31 * k + 7 * i + i * i % 13) % 250 for i in range(length)]


def ask(server, ids, headers=None, **fields):
    """(what was said, to the bit as far as JSON carries it; tokens by place)"""
    body = {"prompt": ids, "max_tokens": 6, "ignore_eos": True, "temperature": 0, "logprobs": 5,
            "return_token_ids": True, **fields}
    status, answer = server.post("/v1/completions", body, headers=headers)
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    details = answer["usage"]["prompt_tokens_details"]
    by = details["cached_tokens_by_tier"]
    if sum(by.values()) != details["cached_tokens"]:
        raise AssertionError(f"{by} is not {details['cached_tokens']}")
    return [(c["token_ids"], c["logprobs"], c["finish_reason"]) for c in answer["choices"]], by


class Place:
    """A directory of blocks and a state directory with the secret of their keys."""

    def __init__(self, case):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="barg_tiers_"))
        case.addCleanup(shutil.rmtree, self.root, True)
        self.blocks = self.root / "blocks"

    def disk(self, *more):
        return ["--kv-tier", ",".join([f"disk:path={self.blocks}", "size=64MiB", *more])]

    def server(self, tiers, state="state", options=()):
        env = {"XDG_STATE_HOME": str(self.root / state), "BARG_API_KEY": ""}
        return Server(run.BARG, run.MODEL, [*OPTIONS, *tiers, *options], env=env)


def write_all(server, tier, prompts, **fields):
    """Each prompt twice: a second use takes its blocks to the lower tiers within a moment."""
    answers = []
    for ids in prompts:
        first, _ = ask(server, ids, **fields)
        again, by = ask(server, ids, **fields)
        assert first == again
        assert by["device"] > 0, by
        answers.append(first)
    least = sum(len(ids) // BLOCK - 1 for ids in prompts)
    wait_until(lambda: server.metric("barg_kv_tier_writes_total", tier=tier) >= least, f"{least} blocks on {tier}", 60)
    return answers


class Tiers(unittest.TestCase):
    def cold(self, prompts, **fields):
        return [ask(run.SERVER, ids, **fields)[0] for ids in prompts]

    def test_blocks_outlive_a_kill(self):
        place, prompts = Place(self), [prompt(k) for k in range(PROMPTS)]
        expected = self.cold(prompts)
        with place.server(place.disk()) as server:
            self.assertEqual(write_all(server, "disk", prompts), expected)
            locked = subprocess.run([run.BARG, "cache", "ls", place.blocks], capture_output=True, text=True, timeout=60)
            self.assertEqual(locked.returncode, 69, locked.stderr)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(30)
        verified = subprocess.run([run.BARG, "cache", "verify", place.blocks], capture_output=True, text=True, timeout=60)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        with place.server(place.disk()) as server:
            for ids, before in zip(prompts, expected):
                said, by = ask(server, ids)
                self.assertEqual(said, before)
                self.assertGreaterEqual(by["disk"], len(ids) - 2 * BLOCK, by)
            self.assertGreater(server.metric("barg_kv_verify_total", result="ok"), 0)
            self.assertEqual(server.metric("barg_kv_verify_total", result="fail"), 0)
            self.assertEqual(server.metric("vllm:request_success_total", finished_reason="error"), 0)

    def test_flipped_bits_are_computed_again(self):
        place, prompts = Place(self), [prompt(100 + k) for k in range(PROMPTS)]
        expected = self.cold(prompts)
        with place.server(place.disk()) as server:
            write_all(server, "disk", prompts)
        for file in place.blocks.glob("seg-*"):
            data = bytearray(file.read_bytes())
            for at in range(16384, len(data), 40009):  # in some blocks
                data[at] ^= 1 << at % 8
            file.write_bytes(data)
        with place.server(place.disk()) as server:
            for ids, before in zip(prompts, expected):
                self.assertEqual(ask(server, ids)[0], before)
            self.assertGreater(server.metric("barg_kv_verify_total", result="fail"), 0)
            self.assertEqual(server.metric("vllm:request_success_total", finished_reason="error"), 0)

    def test_processes_share_a_directory(self):
        place, prompts = Place(self), [prompt(200 + k) for k in range(PROMPTS)]
        expected = self.cold(prompts)
        with place.server(place.disk()) as first, place.server(place.disk()) as second:
            self.assertEqual(write_all(first, "disk", prompts), expected)
            # What another process writes is seen about half a second later.
            wait_until(lambda: second.metric("barg_kv_tier_entries", tier="disk") >= PROMPTS * (200 // BLOCK),
                       "blocks of the other process")
            for ids, before in zip(prompts, expected):
                said, by = ask(second, ids)
                self.assertEqual(said, before)
                self.assertGreaterEqual(by["disk"], len(ids) - 2 * BLOCK, by)

    def test_nobody_without_the_secret_or_the_key_finds_them(self):
        place, prompts = Place(self), [prompt(300)]
        keys = ["--api-key", "one,two"]
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))

        def write(server):
            ask(server, prompts[0], one)
            ask(server, prompts[0], one)
            ask(server, prompts[0], one, cache_salt="shared:us")
            ask(server, prompts[0], one, cache_salt="shared:us")
            metric = server.get("/metrics", headers=one)[1].decode()
            return float(re.search(r'barg_kv_tier_writes_total\{.*tier="disk"\} (\S+)', metric).group(1))

        with place.server(place.disk(), options=keys) as server:
            wait_until(lambda: write(server) >= 2 * (200 // BLOCK - 1), "both are written")
        with place.server(place.disk(), options=keys) as server:
            self.assertEqual(ask(server, prompts[0], two)[1]["disk"], 0)
            self.assertGreater(ask(server, prompts[0], one)[1]["disk"], 0)
            self.assertGreater(ask(server, prompts[0], two, cache_salt="shared:us")[1]["disk"], 0)
        with place.server(place.disk(), state="another", options=keys) as server:
            self.assertEqual(ask(server, prompts[0], one)[1]["disk"], 0)
            self.assertEqual(ask(server, prompts[0], one, cache_salt="shared:us")[1]["disk"], 0)
        secret = place.root / "state" / "barg" / "kv-salt"
        self.assertEqual(secret.stat().st_mode & 0o777, 0o600)

    def test_the_directory_goes_in_mid_run(self):
        place, prompts = Place(self), [prompt(400 + k) for k in range(PROMPTS)]
        expected = self.cold(prompts)
        with place.server(place.disk()) as server:
            write_all(server, "disk", prompts)
            shutil.rmtree(place.blocks)
            for _ in range(2):
                self.assertEqual([ask(server, ids)[0] for ids in prompts], expected)
            self.assertEqual(server.metric("vllm:request_success_total", finished_reason="error"), 0)

    @unittest.skipUnless(shutil.which("redis-server"), "no redis-server")
    def test_processes_share_a_redis_server_that_is_killed(self):
        place, prompts = Place(self), [prompt(500 + k) for k in range(PROMPTS)]
        expected = self.cold(prompts)
        redis, port = redis_server("--dir", place.root)
        self.addCleanup(redis.wait)
        self.addCleanup(redis.kill)
        tier = ["--kv-tier", "dram:size=8MiB", "--kv-tier", f"redis:url=redis://127.0.0.1:{port},op_timeout=500ms"]
        with place.server(tier) as first, place.server(tier) as second:
            for server in (first, second):
                wait_until(lambda: server.metric("barg_kv_tier_up", tier="remote") == 1, "connected")
            self.assertEqual(write_all(first, "remote", prompts), expected)
            places = []
            for ids, before in zip(prompts[:4], expected):
                said, by = ask(second, ids)
                self.assertEqual(said, before)
                places.append(by["remote"])
            self.assertGreater(sum(places), 0)
            redis.send_signal(signal.SIGSTOP)
            self.assertEqual([ask(second, ids)[0] for ids in prompts[4:6]], expected[4:6])
            redis.kill()
            redis.wait()
            self.assertEqual([ask(second, ids)[0] for ids in prompts], expected)
            self.assertGreater(second.metric("barg_kv_store_io_errors_total"), 0)
            for server in (first, second):
                self.assertEqual(server.metric("vllm:request_success_total", finished_reason="error"), 0)
            wait_until(lambda: second.metric("barg_kv_tier_up", tier="remote") == 0, "it is known to be down")


if __name__ == "__main__":
    unittest.main()
