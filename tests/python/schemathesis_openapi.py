"""Schemathesis over /openapi.json of the scripted server: whatever it sends, no 5xx and no status that the document does not
name. Runs with a new seed again and again until the time is over; the seed of a failure is printed.

    schemathesis_openapi.py [--seconds 600] [--seed N]"""

import argparse
import faulthandler
import json
import pathlib
import random
import subprocess
import sys
import time

import scripted

SCRIPTS = {"default": [scripted.token("<think>"), "\nhm\n", scripted.token("</think>"), "\n\nBarg is a leaf. 🍃\n", scripted.call("f", x=1)]}


def with_the_model(value):
    """The document, with the name of the one model that there is: any other is a 404 before anything else is looked at."""
    if isinstance(value, list):
        return [with_the_model(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {k: with_the_model(v) for k, v in value.items()}
    if isinstance(out.get("properties"), dict) and "model" in out["properties"]:
        out["properties"]["model"] = {"type": "string", "enum": ["scripted"]}
    return out


def run(document, url, seed):
    """True if nothing was found."""
    program = pathlib.Path(sys.executable).with_name("st")
    command = [program, "--no-color", "run", document, "--url", url, "--checks", "not_a_server_error,status_code_conformance",
               "--max-examples", "60", "--continue-on-failure", "--request-timeout", "20", "--seed", str(seed), "--workers", "2",
               "--suppress-health-check", "all", "--phases", "examples,fuzzing,stateful"]
    return subprocess.run([str(c) for c in command], cwd=document.parent).returncode == 0  # it leaves files where it runs


def main():
    faulthandler.cancel_dump_traceback_later()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    end, seed, ok = time.monotonic() + args.seconds, args.seed if args.seed is not None else random.randrange(1 << 32), True
    with scripted.Server(SCRIPTS, options=["--max-model-len", "512"]) as server:
        document = pathlib.Path(server.folder.name) / "openapi.json"
        document.write_text(json.dumps(with_the_model(server.get("/openapi.json")[2])))
        while True:
            print(f"seed {seed}", flush=True)
            ok &= run(document, server.url, seed)
            alive = server.process.poll() is None
            if not ok or not alive or args.seed is not None or time.monotonic() > end:
                break
            seed += 1
        if not ok or not alive:
            print(f"failed with seed {seed}; the server is {'alive' if alive else 'dead'}, its log ends:\n{server.output()[-3000:]}")
    return 0 if ok and alive else 1


if __name__ == "__main__":
    sys.exit(main())
