#!/usr/bin/env python3
"""The roofline table: every kernel of the Google Benchmark programs beside the ceiling that bounds it.

    benchmarks/roofline.py BUILD_DIR [--filter REGEX] [--json FILE] [--write benchmarks/README.md] > table.md

Runs BUILD_DIR/benchmarks/bench_{linear_f32,linear_int8,attention,rows} and reads the counters they report: GB/s with
of_read, GFLOP/s with of_fma, GOP/s with of_int8. The bound of a kernel is the ceiling it comes nearest to. Ceilings
are measured by the same process (kernels/cpu/limits.h). Plain Python 3.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import markers

PROGRAMS = ("bench_linear_f32", "bench_linear_int8", "bench_attention", "bench_rows")
# share, rate, what the ceiling is
BOUNDS = (("of_read", "GB/s", "read"), ("of_fma", "GFLOP/s", "f32 FMA"), ("of_int8", "GOP/s", "int8 multiply"))


def run(program: pathlib.Path, pattern: str) -> list[dict]:
    done = subprocess.run([program, "--benchmark_format=json", f"--benchmark_filter={pattern}"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} failed: {done.stderr.strip().splitlines()[-1:]}")
    # A pattern that matches nothing answers with an empty page.
    return json.loads(done.stdout).get("benchmarks", []) if done.stdout.strip() else []


def row_of(benchmark: dict) -> list[str] | None:
    """kernel, arguments, measured, ceiling, share; None where no share is reported."""
    known = [(benchmark[share], benchmark[rate], rate, name) for share, rate, name in BOUNDS
             if share in benchmark and rate in benchmark and benchmark[share] > 0]
    if not known or benchmark.get("run_type") == "aggregate":
        return None
    share, rate, unit, bound = max(known)
    name = re.sub(r"/(real_time|process_time|manual_time|iterations:\d+|min_time:[\d.]+)", "", benchmark["name"])
    parts = name.split("/")
    first = next((i for i, p in enumerate(parts) if re.fullmatch(r"(\w+:)?\d+", p)), len(parts))
    return ["/".join(parts[:first]), " ".join(parts[first:]) or "-", f"{rate:.1f} {unit}",
            f"{rate / share:.1f} ({bound})", f"{share:.2f}"]


def table(rows: list[list[str]]) -> str:
    head = ["kernel", "arguments", "measured", "ceiling", "share"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---:|---:|---:|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def cpu_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder, configured with -DBARG_BENCHMARKS=ON")
    parser.add_argument("--filter", default=".", help="benchmarks whose name matches")
    parser.add_argument("--json", type=pathlib.Path, help="also write what the programs reported")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE",
                        help="put the table between <!-- roofline --> and <!-- /roofline --> of FILE")
    args = parser.parse_args()
    found = [p for name in PROGRAMS if (p := args.build / "benchmarks" / name).exists()]
    if not found:
        sys.exit(f"no benchmark program in {args.build}/benchmarks: configure with -DBARG_BENCHMARKS=ON and build")
    reported: list[dict] = []
    for program in found:
        print(f"running {program.name}", file=sys.stderr)
        reported += run(program, args.filter)
    if args.json:
        args.json.write_text(json.dumps(reported, indent=1) + "\n")
    rows = [row for b in reported if (row := row_of(b)) is not None]
    if not rows:
        sys.exit("no benchmark reports a share of a ceiling: is --filter right?")
    cores = len(os.sched_getaffinity(0))
    text = f"{cpu_name()}, {cores} cores, {datetime.date.today().isoformat()}\n\n{table(rows)}"
    print(text)
    if args.write:
        markers.replace(args.write, "roofline", text)


if __name__ == "__main__":
    main()
