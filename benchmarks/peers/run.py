"""Barg and its peers on the same loads, interleaved; one table of medians, spreads and ratios.

Called by ./run, which builds Barg and installs the peers first. Every server is started once and stopped (SIGSTOP)
while it is not its turn, so that a round costs no start and an idle server costs no core. In each round every load
goes to every server, the order of servers rotating. `barg bench serve` makes the load for all of them; prompts are
made of words of one token, new ones for every request, so no server can answer from a cache. After the rounds, while
all servers stand still, `barg bench model` and `llama-bench` compute in process, in turn. Ctrl-C ends it, stops every
server and writes the table of what there is.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import markers  # noqa: E402
import table  # noqa: E402

WORDS = (pathlib.Path(__file__).parent / "words.txt").read_text().split()
START_SECONDS = {"vllm": 600}


class Load:
    """`count` requests of `prompt` tokens in and `output` tokens out, `streams` at a time."""

    def __init__(self, name, prompt, output, streams, count, first_round_only=False):
        self.name, self.prompt, self.output, self.streams, self.count = name, prompt, output, streams, count
        self.first_round_only = first_round_only


LOADS = [
    Load("c1", 259, 128, 1, 3),
    Load("c8", 259, 128, 8, 16),
    Load("c32", 259, 128, 32, 64),
    Load("ttft512", 512, 128, 1, 2),
    Load("long4000", 4000, 64, 1, 1),
]
BUSY = Load("busy", 259, 16, 1, 1)
IN_PROCESS_RUNS = 3
IN_PROCESS_SECONDS = 600


class Server:
    """One server process group; REQUIRES start() before the rest."""

    def __init__(self, name, command, port, log, env=None, model=None, note=""):
        self.name, self.command, self.port, self.model, self.note = name, command, port, model, note
        self.log, self.env = log, {**os.environ, **(env or {})}
        self.process = None
        self.start_s = None

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        with socket.socket() as probe:  # another server there would answer in this one's place
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                raise RuntimeError(f"port {self.port} is taken; choose others with --port")
        began = time.monotonic()
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.env, start_new_session=True
            )
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"exited with {self.process.returncode}; see {self.log}")
            if time.monotonic() - began > START_SECONDS.get(self.name, 120):
                raise RuntimeError(f"not ready in time; see {self.log}")
            try:
                with urllib.request.urlopen(self.url() + "/health", timeout=2) as answer:
                    if answer.status == 200:
                        break
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.02)
        self.start_s = time.monotonic() - began

    def signal(self, number):
        """To every process of the group, which may outlive the one that was started."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def rss_bytes(self):
        """Of every process of the group."""
        total = 0
        for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rsplit(")", 1)[1].split()
                if int(fields[2]) == self.process.pid:
                    total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            except (OSError, IndexError):
                continue
        return total

    def stop(self):
        """Leaves no process of the group; one that never started is fine."""
        if self.process is None:
            return
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.process = None


def write_prompts(load, seed, path):
    # The name is part of the seed: two loads with one seed would share their prompts, and a prefix cache would
    # answer the second from the first.
    rng = random.Random(f"{load.name} {seed}")
    with open(path, "w") as out:
        for _ in range(load.count):
            prompt = " ".join(rng.choice(WORDS) for _ in range(load.prompt))
            out.write(json.dumps({"prompt": prompt, "max_tokens": load.output}) + "\n")


def measure(options, server, load, seed, folder):
    """One load on one server: the figures of `barg bench serve`, and the memory afterwards."""
    prompts = folder / f"{load.name}.{seed}.jsonl"
    write_prompts(load, seed, prompts)
    report = folder / f"{load.name}.{seed}.{server.name}.json"
    report.unlink(missing_ok=True)
    command = [
        options.barg, "bench", "serve", "--url", server.url(), "--prompts", str(prompts), "--warmup", "0",
        "--concurrency", str(load.streams), "--requests", str(load.count), "--json", str(report),
    ]  # fmt: skip
    if server.model:
        command += ["--model", server.model]
    done = subprocess.run(command, capture_output=True, text=True)
    if not report.exists() or report.stat().st_size == 0:  # it makes the file before it begins
        raise RuntimeError(f"{load.name}: bench serve: {done.stderr.strip().splitlines()[-1:]}")
    run = json.loads(report.read_text())["runs"][0]
    run["rss_bytes"] = server.rss_bytes()
    if run["requests"]["ok"] != load.count:
        raise RuntimeError(f"{load.name}: {run['requests']}")
    return run


def busy_process():
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def beside_busy(options, server, seed, folder):
    """Output tokens/s alone and beside one busy process, one after the other."""
    quiet = measure(options, server, BUSY, seed * 2, folder)
    busy = busy_process()
    try:
        time.sleep(0.2)
        shared = measure(options, server, BUSY, seed * 2 + 1, folder)
    finally:
        busy.kill()
        busy.wait()
    return {"quiet": quiet, "shared": shared}


def core_list(cores):
    """0-3, or 0,2,3 where there are gaps."""
    first, last = min(cores), max(cores)
    return f"{first}-{last}" if len(cores) == last - first + 1 else ",".join(map(str, sorted(cores)))


def peer_state(options, name):
    """What install.py says of a peer."""
    state = pathlib.Path(options.installed) / f"{name}.json"
    return json.loads(state.read_text()) if state.exists() else {"ok": False, "reason": "not installed"}


def make_servers(options, folder):
    """Barg first; a peer that is not installed is a reason instead of a server."""
    servers, reasons = [], {}
    cores = len(os.sched_getaffinity(0))
    port = options.port
    # The pool is bounded to what llama-server gets, 32,768 tokens (23,040 bytes each for SmolLM2 in f16).
    flags = ["--kv-cache-memory-bytes", "720MiB"]
    command = [options.barg, "serve", "--model", options.model, "--port", str(port), *flags]
    servers.append(Server("barg", command, port, folder / "barg.log", note=" ".join(flags)))
    for name in options.peers.split(",") if options.peers else []:
        port += 1
        state = peer_state(options, name)
        if not state["ok"]:
            reasons[name] = state["reason"]
            continue
        log = folder / f"{name}.log"
        if name == "llama":
            flags = ["-t", str(cores), "-np", "32", "-c", "32768", "--kv-unified", "--metrics", "--no-webui"]
            command = [state["server"], "-m", options.model, "--port", str(port), *flags]
            servers.append(Server(name, command, port, log, note=" ".join(flags)))
        elif name == "vllm":
            flags = ["--dtype", "bfloat16", "--max-model-len", "8192", "--max-num-seqs", "64"]
            env = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": core_list(os.sched_getaffinity(0))}
            if state.get("libiomp"):
                env["LD_PRELOAD"] = state["libiomp"]
            if not (pathlib.Path(options.hf or folder) / "config.json").exists():
                reasons[name] = "the model could not be turned into a Hugging Face directory"
                continue
            command = [state["server"], "serve", options.hf, "--port", str(port), *flags]
            note = " ".join(flags) + " " + " ".join(f"{k}={pathlib.Path(v).name}" for k, v in env.items())
            servers.append(Server(name, command, port, log, env=env, model=options.hf, note=note))
    return servers, reasons


def start_all(servers, reasons):
    running = []
    for server in servers:
        try:
            server.start()
            print(f"{server.name}: ready after {server.start_s:.2f} s", file=sys.stderr)
            server.signal(signal.SIGSTOP)
            running.append(server)
        except (RuntimeError, OSError) as error:
            server.stop()
            reasons[server.name] = str(error)
            print(f"{server.name}: {error}", file=sys.stderr)
    return running


def one_round(options, servers, reasons, number, folder, results):
    turn = number % len(servers)
    for load in [*LOADS, BUSY]:
        for server in servers[turn:] + servers[:turn]:
            if server.name in reasons or (load is BUSY and number >= options.busy_rounds):
                continue
            server.signal(signal.SIGCONT)
            try:
                if load is BUSY:
                    run = beside_busy(options, server, 1000 + number, folder)
                else:
                    run = measure(options, server, load, number, folder)
                results.setdefault(server.name, {}).setdefault(load.name, []).append(run)
                print(f"round {number + 1}, {load.name}, {server.name}: {table.brief(load.name, run)}", file=sys.stderr)
            except RuntimeError as error:
                reasons[server.name] = str(error)
                print(f"round {number + 1}, {load.name}, {server.name}: {error}", file=sys.stderr)
            server.signal(signal.SIGSTOP)


def in_process_tools(options):
    """{server: (name of its tool, how it is called)}; both take the same flags."""
    tools = {"barg": ("barg bench model", [options.barg, "bench", "model"])}
    if "llama" in options.peers.split(","):
        state = peer_state(options, "llama")
        if state["ok"]:  # else the server's reason is this one's as well
            tools["llama"] = ("llama-bench", [state.get("bench") or "llama-bench"])
    return tools


def in_process_rates(text):
    """Tokens/s of one report, of either tool: theirs is a list of tests, ours an object with rows."""
    report = json.loads(text)
    if isinstance(report, list):
        return {"prefill" if test["n_prompt"] else "decode": test["avg_ts"] for test in report}
    return {row["kind"]: row["tokens_per_second"] for row in report["rows"]}


def measure_in_process(options, tool):
    """One repetition, after one that does not count: both tools warm up by themselves."""
    cores = str(len(os.sched_getaffinity(0)))
    flags = ["-m", options.model, "-p", "512", "-n", "128", "-t", cores, "-r", "1", "-o", "json"]
    try:
        done = subprocess.run([*tool, *flags], capture_output=True, text=True, timeout=IN_PROCESS_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"exited with {done.returncode}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
        rates = in_process_rates(done.stdout)
        return {"prefill": rates["prefill"], "decode": rates["decode"]}
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def in_process(options, reasons, results):
    """The model without a server, a few runs of each tool in turn."""
    tools = in_process_tools(options)
    for number in range(IN_PROCESS_RUNS):
        for server, (name, tool) in tools.items():
            if name in reasons:
                continue
            try:
                run = measure_in_process(options, tool)
                results.setdefault(server, {}).setdefault("in_process", []).append(run)
                print(f"in process {number + 1}, {name}: {table.brief('in_process', run)}", file=sys.stderr)
            except RuntimeError as error:
                reasons[name] = str(error)
                print(f"in process {number + 1}, {name}: {error}", file=sys.stderr)


def versions(options, servers):
    out = {"barg": subprocess.run([options.barg, "version"], capture_output=True, text=True).stdout.strip()}
    out["barg"] = out["barg"].removeprefix("barg ")
    for server in servers:
        state = pathlib.Path(options.installed) / f"{server.name}.json"
        if state.exists():
            out[server.name] = json.loads(state.read_text()).get("version")
    return out


def parse(arguments):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--barg", required=True, help="the barg program")
    p.add_argument("--model", required=True, help="a GGUF file, the same for Barg and llama-server")
    p.add_argument("--hf", default="", help="the same model as a Hugging Face directory, for vllm")
    p.add_argument("--installed", required=True, help="the folder install.py wrote to")
    p.add_argument("--peers", default="llama,vllm")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--busy-rounds", type=int, help="rounds that also measure beside a busy process; default: all")
    p.add_argument("--out", required=True, help="folder for reports, logs, table and plots")
    p.add_argument("--port", type=int, default=18100)
    p.add_argument("--write-readme", action="append", default=[], metavar="FILE",
                   help="put the table between <!-- peers --> and <!-- /peers --> of this file; may be given again")
    options = p.parse_args(arguments)
    options.shown = [f"--rounds {options.rounds}", f"--peers {options.peers}"]
    if options.busy_rounds is None:
        options.busy_rounds = options.rounds
    else:
        options.shown.append(f"--busy-rounds {options.busy_rounds}")
    return options


def main():
    options = parse(sys.argv[1:])
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    servers, reasons = make_servers(options, folder)
    results, rounds, interrupted = {}, 0, False
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        running = start_all(servers, reasons)
        while running and rounds < options.rounds:
            one_round(options, running, reasons, rounds, folder, results)
            rounds += 1
        in_process(options, reasons, results)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: the servers are stopped", file=sys.stderr)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave servers behind
        for server in servers:
            server.stop()
    if not results:
        print(f"nothing was measured: {reasons}", file=sys.stderr)
        return 1
    lscpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": {"lscpu": lscpu, "system": platform.platform(), "cores": len(os.sched_getaffinity(0))},
        "command": " ".join(["benchmarks/peers/run", *options.shown]),
        "versions": versions(options, servers),
        "flags": {s.name: s.note for s in servers},
        "start_s": {s.name: s.start_s for s in servers},
        "loads": {load.name: vars(load) for load in [*LOADS, BUSY]},
        "rounds": rounds,
        "reasons": reasons,
        "results": results,
    }
    (folder / "peers.json").write_text(json.dumps(record) + "\n")
    text = table.markdown(record)
    (folder / "peers.md").write_text(text)
    table.plots(record, folder)
    print(text)
    for page in options.write_readme:
        markers.replace(page, "peers", text)
    return 1 if interrupted or rounds < options.rounds or {"barg", "barg bench model"} & reasons.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
