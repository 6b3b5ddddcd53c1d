"""Raw HTTP over a socket, for requests that no client library would send."""

import json
import socket
import urllib.parse


class Wire:
    def __init__(self, url, timeout=30):
        parts = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=timeout)
        self.buffer = b""

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def read(self):
        """(status, headers, body) or None when the connection ended first."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._fill():
                return None
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            if not self._fill():
                return None
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(lines[0].split()[1]), headers, body

    def _fill(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def until(self, mark):
        """The text of all that has come, once `mark` is in it."""
        while mark not in self.buffer:
            if not self._fill():
                raise AssertionError(f"the connection ended before {mark}")
        return self.buffer.decode("latin-1")

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def ask(url, data):
    with Wire(url) as wire:
        wire.send(data)
        return wire.read()


def post(path, body, headers="", host="localhost"):
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(raw)}\r\n{headers}\r\n")
    return head.encode() + raw
