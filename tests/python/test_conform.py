"""`barg conform` finds nothing to say about Barg, whatever its model says: text, calls of tools, reasoning, nothing for a
while; with an API key. Standard library only."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import scripted
from scripted import call, token

BARG = pathlib.Path(os.environ.get("BARG_TEST_BARG") or scripted.ROOT / "build" / "barg")
COUNT = ("One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen, "
         "seventeen, eighteen, nineteen, twenty. Ünd 🍃, and so on, for a while, so that no answer is short.")
CALL = call("get_weather", city="Paris")
THOUGHT = [token("<think>"), "\nTwenty times seventeen is 340, three times is 51.\n", token("</think>"), "\n\nIt is 391."]


class Conform(unittest.TestCase):
    def conform(self, default, *flags, applies=(), options=()):
        """Runs the rules against a model that always says `default`; those that must apply are named."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            server = scripted.Server({"default": default}, options=options)
            try:
                done = subprocess.run([BARG, "conform", server.url, "--json", report, *flags], capture_output=True, text=True, timeout=200)
            finally:
                server.stop()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            verdicts = {rule["name"]: rule["verdict"] for rule in json.loads(report.read_text())["rules"]}
        for name in applies:
            self.assertEqual(verdicts[name], "pass", name)
        return verdicts

    def test_text_and_a_key(self):
        verdicts = self.conform({"pieces": [COUNT], "end": None, "delay_ms": 1}, "--api-key", "secret",
                                applies=["messages.api_key", "disconnect.stream"], options=["--api-key", "secret"])
        others = [name for name, verdict in verdicts.items() if verdict != "pass" and not name.startswith(("tools.", "reasoning."))]
        self.assertEqual(others, ["sse.keep_alive"])

    def test_calls(self):
        verdicts = self.conform([CALL + "\n" + CALL], "--only", "tools")
        self.assertEqual(set(verdicts.values()), {"pass"}, verdicts)

    def test_reasoning(self):
        verdicts = self.conform(THOUGHT, "--only", "reasoning")
        self.assertEqual(set(verdicts.values()), {"pass"}, verdicts)

    def test_silence(self):
        verdicts = self.conform({"pieces": ["Late."], "first_delay_ms": 4000}, "--only", "sse.keep_alive",
                                "--keep-alive-within", "2s", options=["--sse-ping", "1"])
        self.assertEqual(verdicts, {"sse.keep_alive": "pass"})


if __name__ == "__main__":
    unittest.main()
