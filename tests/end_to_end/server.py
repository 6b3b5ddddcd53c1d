"""Starts `barg serve` on a free port and stops it again. Standard library only."""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import real_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77


def data(relative):
    """Path in ../shared/data, else in tests/data, else None."""
    for base in (ROOT.parent / "shared" / "data", ROOT / "tests" / "data"):
        if (base / relative).exists():
            return base / relative
    return None


def model_path(name):
    if name == "tiny":
        return data("models/smollm2")
    if name in ("embedding", "encoder"):
        return data("models/" + {"embedding": "qwen3-embedding", "encoder": "bert"}[name])
    if name == "smollm2":
        path = os.environ.get("BARG_TEST_SMOLLM2") or str(
            pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "barg"
            / "SmolLM2-135M-Instruct.Q4_1.gguf")
        return pathlib.Path(path) if pathlib.Path(path).is_file() else None
    if name in real_models.MODELS:
        path = real_models.MODELS[name].path
        return path if path.is_file() else None
    return pathlib.Path(name)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """with Server(barg, model, ["--block-size", "32"]) as s: s.post("/v1/completions", {...})"""

    def __init__(self, barg, model, options=(), env=None, ready_s=120):
        self.port = free_port()
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        command = [str(barg), "serve", "--model", str(model), "--host", "127.0.0.1", "--port", str(self.port), *options]
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.output()}")
            try:
                if self.get("/readyz")[0] == 200:
                    break
            except OSError:
                pass
            if time.monotonic() - self.started > ready_s:
                self.process.kill()
                raise RuntimeError(f"not ready within {ready_s} s:\n{self.output()}")
            time.sleep(0.01)
        self.ready_s = time.monotonic() - self.started

    url = property(lambda self: f"http://127.0.0.1:{self.port}")

    def output(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def request(self, method, path, body=None, headers=None, timeout=300):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            payload = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def get(self, path, **kw):
        status, _, body = self.request("GET", path, **kw)
        return status, body

    def post(self, path, body, **kw):
        """(status, parsed JSON)"""
        status, _, raw = self.request("POST", path, body, **kw)
        return status, json.loads(raw)

    def metrics(self):
        """{'name{labels}': value} of /metrics."""
        out = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line and not line.startswith("#"):
                key, value = line.rsplit(" ", 1)
                out[key] = float(value)
        return out

    def running(self):
        """Requests running or waiting. One answer tells both: between two, a request may go from one to the other unseen."""
        return self.metric("vllm:num_requests_running", "vllm:num_requests_waiting")

    def metric(self, *names, **labels):
        """Sum over the series of these names that carry these labels, all of one answer of /metrics."""
        total, found = 0.0, False
        for key, value in self.metrics().items():
            if key.split("{")[0] in names and all(f'{k}="{v}"' in key for k, v in labels.items()):
                total, found = total + value, True
        if not found:
            raise KeyError(f"no series {names} {labels}")
        return total

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu_s(self):
        """Processor time of all its threads."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, timeout=60):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.stop()
        finally:
            if kind is not None:
                print("---- server output (end) ----\n" + self.output()[-4000:])
            self.log.close()


def redis_server(*options):
    """(process, port) of a private redis-server that keeps nothing on disk. REQUIRES the binary."""
    for _ in range(5):  # somebody may take the port first
        port = free_port()
        process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                                    "--appendonly", "no", *map(str, options)], stdout=subprocess.DEVNULL)
        try:
            process.wait(0.3)
        except subprocess.TimeoutExpired:
            return process, port
    raise RuntimeError("redis-server does not start")


def wait_until(condition, what, timeout=30):
    """Polls until condition() is true; the bound only ends a broken run."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.02)
