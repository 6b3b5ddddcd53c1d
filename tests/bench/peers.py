"""What benchmarks/peers/run.py and its helpers must not get wrong: no prompt twice, no server left behind, reports of
this run only. Run as `peers.py BARG`; unittest of the standard library."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "peers")]
import markers  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402

BARG = sys.argv.pop() if len(sys.argv) > 1 else None


def alive(group):
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


class Peers(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def prompts(self, load, seed):
        path = self.folder / "prompts.jsonl"
        run.write_prompts(load, seed, path)
        return [json.loads(line)["prompt"].split() for line in path.read_text().splitlines()]

    def test_no_two_prompts_begin_alike(self):
        beginnings = [tuple(p[:16]) for load in run.LOADS for seed in range(3) for p in self.prompts(load, seed)]
        beginnings += [tuple(p[:16]) for seed in (2000, 2001) for p in self.prompts(run.BUSY, seed)]
        self.assertEqual(len(beginnings), len(set(beginnings)))

    def test_prompts_can_be_made_again(self):
        self.assertEqual(self.prompts(run.LOADS[0], 1), self.prompts(run.LOADS[0], 1))

    def server(self, script):
        path = self.folder / "server"
        path.write_text("#!/bin/bash\n" + script)
        path.chmod(0o755)
        return run.Server("llama", [str(path)], 1, self.folder / "log")  # nobody listens on port 1

    def test_a_server_that_is_never_ready_leaves_no_process(self):
        server = self.server("sleep 1000 & exec sleep 1000\n")
        run.START_SECONDS["llama"] = 0.3
        reasons = {}
        started = []
        popen = subprocess.Popen
        run.subprocess.Popen = lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
        try:
            self.assertEqual(run.start_all([server], reasons), [])
        finally:
            run.subprocess.Popen = popen
        self.assertIn("not ready", reasons["llama"])
        self.assertEqual(len(started), 1)
        self.assertFalse(alive(started[0].pid))

    def test_a_stopped_group_can_be_ended(self):
        server = self.server("")
        server.process = subprocess.Popen(["bash", "-c", "sleep 1000 & sleep 1000"], start_new_session=True)
        group = server.process.pid
        server.signal(signal.SIGSTOP)
        server.stop()
        for _ in range(100):
            if not alive(group):
                break
            time.sleep(0.05)
        self.assertFalse(alive(group))

    def test_a_report_of_an_earlier_run_is_not_read(self):
        class Options:
            barg = "false"  # a program that writes nothing

        load = run.LOADS[0]
        old = self.folder / f"{load.name}.0.llama.json"
        old.write_text('{"runs": [{"requests": {"ok": 3}}]}')
        with self.assertRaises(RuntimeError):
            run.measure(Options, self.server(""), load, 0, self.folder)

    def test_cached_prompts_are_told(self):
        runs = {"c1": [{"input_tokens": 100, "cached_tokens": 0}, {"input_tokens": 100, "cached_tokens": 40}],
                "busy": [{"quiet": {"input_tokens": 10, "cached_tokens": None}, "shared": {"input_tokens": 0}}]}
        self.assertEqual(table.cached_share({"results": {"barg": runs}}, "barg"), 0.4)

    def test_reports_of_both_tools_are_read(self):
        ours = {"rows": [{"kind": "prefill", "tokens_per_second": 3.5}, {"kind": "decode", "tokens_per_second": 2}]}
        theirs = [{"n_prompt": 512, "n_gen": 0, "avg_ts": 3.5}, {"n_prompt": 0, "n_gen": 128, "avg_ts": 2}]
        for report in (ours, theirs):
            self.assertEqual(run.in_process_rates(json.dumps(report)), {"prefill": 3.5, "decode": 2})

    def test_a_tool_that_fails_is_a_reason_and_the_other_has_figures(self):
        report = {"rows": [{"kind": "prefill", "tokens_per_second": 3.5}, {"kind": "decode", "tokens_per_second": 2}]}
        ours = self.folder / "ours"
        ours.write_text(f"#!/bin/sh\necho '{json.dumps(report)}'\n")
        ours.chmod(0o755)
        (self.folder / "llama.json").write_text(json.dumps({"ok": True, "bench": "false"}))
        options = argparse.Namespace(barg=str(ours), peers="llama", installed=str(self.folder), model="m")
        reasons, results = {}, {}
        run.in_process(options, reasons, results)
        self.assertEqual(len(results.pop("barg")["in_process"]), run.IN_PROCESS_RUNS)
        self.assertEqual(results, {})
        self.assertIn("exited with 1", reasons["llama-bench"])

    def test_cores(self):
        self.assertEqual([run.core_list({0, 1, 2}), run.core_list({0, 2})], ["0-2", "0,2"])

    def test_markers(self):
        page = self.folder / "page.md"
        page.write_text("a\n<!-- t -->\nold\n<!-- /t -->\nb\n")
        markers.replace(page, "t", "new\n")
        markers.replace(page, "t", "newer\n")
        self.assertEqual(page.read_text(), "a\n<!-- t -->\nnewer\n<!-- /t -->\nb\n")
        with self.assertRaises(ValueError):
            markers.replace(page, "u", "x")

    @unittest.skipUnless(BARG and (ROOT / "../shared/data/models/smollm2").exists(), "no program or no model")
    def test_an_interrupted_comparison_has_a_table_and_no_servers(self):
        small = "run.LOADS[:] = [run.Load('c1', 19, 8, 1, 2), run.Load('c8', 19, 8, 8, 8)]; sys.exit(run.main())"
        path = f"sys.path.insert(0, {str(ROOT / 'benchmarks/peers')!r})"
        log = open(self.folder / "log", "w+")
        started = subprocess.Popen(
            [sys.executable, "-B", "-c", f"import sys; {path}; import run; {small}", "--barg", BARG,
             "--model", str(ROOT / "../shared/data/models/smollm2"), "--installed", str(self.folder), "--rounds",
             "100000", "--busy-rounds", "0", "--port", str(free_port()), "--out", str(self.folder / "out")],
            stdout=subprocess.PIPE, stderr=log, text=True)
        for _ in range(600):
            if "round 2" in (self.folder / "log").read_text() or started.poll() is not None:
                break
            time.sleep(0.05)
        ours = children(started.pid)
        started.send_signal(signal.SIGTERM)
        out, _ = started.communicate(timeout=60)
        log.close()
        self.assertEqual(started.returncode, 1, (self.folder / "log").read_text())
        self.assertRegex(out, r"output tokens/s, 8 streams \| [\d,]+")
        self.assertIn("llama-server has no (further) figures: not installed", out)
        self.assertTrue(ours)
        self.assertFalse([p for p in ours if os.path.exists(f"/proc/{p}")])


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children(pid):
    out = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                out.append(int(stat.parent.name))
        except OSError:
            continue
    return out


if __name__ == "__main__":
    unittest.main()
