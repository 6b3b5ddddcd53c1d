"""Runs one end-to-end test module against the real binary.

    run.py --barg build/barg --model tiny|smollm2|NAME of real_models.py|PATH --test test_metrics -- [serve options]

The module's tests find the server as run.SERVER (and BARG_URL in the environment), the binary as run.BARG.
Exit status 77 = skipped (the model is not here)."""

import argparse
import importlib
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
sys.modules["run"] = sys.modules["__main__"]

import real_models  # noqa: E402
from server import SKIP, Server, model_path  # noqa: E402

SERVER = None
BARG = None
MODEL = None


def main():
    global SERVER, BARG, MODEL
    parser = argparse.ArgumentParser()
    parser.add_argument("--barg", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    BARG = pathlib.Path(args.barg).resolve()
    MODEL = model_path(args.model)
    if MODEL is None:
        print(f"skipped: the model '{args.model}' is not here" +
              (f" (tests/end_to_end/real_models.py {args.model} fetches it)" if args.model in real_models.MODELS else ""))
        return SKIP
    with Server(BARG, MODEL, args.options) as server:
        SERVER = server
        os.environ["BARG_URL"] = server.url
        os.environ["BARG_PID"] = str(server.process.pid)
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(args.test))
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.testsRun == 0:
        print("no test ran")
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
