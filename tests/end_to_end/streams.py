"""Raw streams over sockets: what a client does that reads slowly, stops reading, or measures its tokens' times.
Standard library only."""

import contextlib
import json
import resource
import socket
import statistics
import time

PLENTY_OF_FILES = 8192


def allow_many_files():
    """This process holds more than a thousand sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = PLENTY_OF_FILES if hard == resource.RLIM_INFINITY else min(PLENTY_OF_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want), hard))


@contextlib.contextmanager
def few_files(count):
    """What is started in here inherits a low soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(port, receive_buffer=0, timeout=300):
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(timeout)
    s.connect(("127.0.0.1", port))
    return s


def send_request(s, body, close=True):
    payload = json.dumps({**body, "stream": True}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
              + (b"Connection: close\r\n" if close else b"")
              + b"Content-Length: %d\r\n\r\n" % len(payload) + payload)


def idle_connections(port, count):
    """Keep-alive connections that have had one answer and now do nothing."""
    out = []
    for _ in range(count):
        s = connect(port)
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        out.append(s)
    for s in out:
        if not s.recv(4096).startswith(b"HTTP/1.1 200"):
            raise AssertionError("an idle connection was refused")
    return out


def stalled_streams(port, count, body):
    """Streams whose clients read the status line and then nothing more."""
    out = []
    for k in range(count):
        s = connect(port, receive_buffer=4096)
        send_request(s, {**body, "seed": k})
        out.append(s)
    return out


def read_to_end(s):
    parts = []
    while chunk := s.recv(1 << 16):
        parts.append(chunk)
    return b"".join(parts)


def events(raw):
    """The JSON of every event of a chunked answer."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        parts = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                break
            parts.append(rest[:n])
            rest = rest[n + 2:]
        rest = b"".join(parts)
    return [json.loads(e[6:]) for e in rest.split(b"\n\n") if e.startswith(b"data: {")]


def text_of(raw):
    return "".join(c["text"] for e in events(raw) for c in e["choices"])


def timed_stream(port, body):
    """(raw answer, seconds between reads that brought tokens) of one stream that reads at once."""
    s = connect(port)
    send_request(s, body)
    parts, times = [], []
    while chunk := s.recv(1 << 16):
        if b'"text"' in chunk:
            times.append(time.monotonic())
        parts.append(chunk)
    s.close()
    return b"".join(parts), [b - a for a, b in zip(times, times[1:])]


def median_ms(seconds):
    return statistics.median(seconds) * 1e3 if seconds else float("nan")
