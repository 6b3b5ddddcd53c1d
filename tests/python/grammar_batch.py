"""Many schemas and texts through the schema front end and the machine, by one process (tests/text/grammar/batch_main.cpp).
BARG_TEST_GRAMMAR_BATCH is its path."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("BARG_TEST_GRAMMAR_BATCH") or ROOT / "build" / "tests" / "barg_grammar_batch")


class Batch:
    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def ask(self, schema, texts, draft="2020-12", lenient=False):
        request = {"schema": schema, "texts": texts, "draft": draft, "lenient": lenient}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program died on {json.dumps(request)}")
        return json.loads(line)
