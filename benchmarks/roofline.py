#!/usr/bin/env python3
"""The roofline table: the kernels of the Google Benchmark programs beside the ceiling that bounds each.

    benchmarks/roofline.py BUILD_DIR [--filter REGEX] [--json FILE] [--write benchmarks/README.md] > table.md

Runs BUILD_DIR/benchmarks/bench_{linear_f32,linear_int8,attention,rows} and reads the counters they report: GB/s with
of_read, GFLOP/s with of_fma or of_bf16, GOP/s with of_int8. The bound of a kernel is the ceiling it comes nearest to.
Ceilings are measured in the same run (kernels/cpu/limits.h). Plain Python 3.
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

# What a page has room for (all of it is 1,600 rows and half an hour): the widest instruction set, all cores, one shape
# a kernel, few and many rows.
PROGRAMS = {
    "bench_linear_f32": "^{isa}/linear_(f32|bf16)/[^/]+/(1|32|512)/2048/4096/{threads}/",
    "bench_linear_int8": "^{isa}/(linear_int8/[^/]+/(1|8|32|512)/2048/8192|gated_int8/q4_1/(1|32|512)/576/1536)/{threads}/",
    "bench_attention": "^(decode/(9x3x64|32x8x128)/f16/(512|4096)/(1|32)|prefill/(9x3x64|32x8x128)/f16/[0-9]+/512)/"
                       "{threads}/",
    "bench_rows": "^{isa}/.*/{threads}/",
}
# share, rate, what the ceiling is
BOUNDS = (("of_read", "GB/s", "read"), ("of_fma", "GFLOP/s", "f32 FMA"), ("of_bf16", "GFLOP/s", "bf16 multiply"),
          ("of_int8", "GOP/s", "int8 multiply"))


def run(program: pathlib.Path, pattern: str) -> list[dict]:
    done = subprocess.run([program, "--benchmark_format=json", f"--benchmark_filter={pattern}"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} failed: {done.stderr.strip().splitlines()[-1:]}")
    # A pattern that matches nothing answers with an empty page.
    return json.loads(done.stdout).get("benchmarks", []) if done.stdout.strip() else []


def widest(program: pathlib.Path) -> str:
    """The instruction set of the names that start with one; they are registered only where the machine has it."""
    names = subprocess.run([program, "--benchmark_list_tests"], capture_output=True, text=True).stdout
    return next((isa for isa in ("avx512", "avx2") if f"\n{isa}/" in "\n" + names), "scalar")


def parts_of(benchmark: dict) -> list[str]:
    name = re.sub(r"/(real_time|process_time|manual_time|iterations:\d+|min_time:[\d.]+)", "", benchmark["name"])
    return name.split("/")


def bounds_of(benchmark: dict, isa: str) -> list[tuple]:
    """(rate, unit, what the ceiling is, ceiling, which ceilings of other benchmarks are the same one)."""
    if benchmark.get("run_type") == "aggregate":
        return []
    parts = parts_of(benchmark)
    used = parts[0] if parts[0] in ("avx512", "avx2", "scalar") else isa
    bytes_in = "q8_0" in parts  # 8-bit weights have an int8 ceiling of their own
    return [(benchmark[rate], rate, name, benchmark[rate] / benchmark[share],
             (name, used, parts[-1], name == "int8 multiply" and bytes_in))
            for share, rate, name in BOUNDS
            if benchmark.get(share, 0) > 0 and rate in benchmark]


def best_ceilings(reported: list[dict], isa: str) -> dict[tuple, float]:
    """Each program measures its ceilings when it starts; on one machine the best of them is the ceiling."""
    best: dict[tuple, float] = {}
    for benchmark in reported:
        for _, _, _, ceiling, key in bounds_of(benchmark, isa):
            best[key] = max(best.get(key, 0), ceiling)
    return best


def row_of(benchmark: dict, isa: str, ceilings: dict[tuple, float]) -> list[str] | None:
    """kernel, arguments, measured, ceiling, share; None where no share is reported."""
    known = [(rate / ceilings[key], rate, unit, name) for rate, unit, name, _, key in bounds_of(benchmark, isa)]
    if not known:
        return None
    share, rate, unit, bound = max(known)
    parts = parts_of(benchmark)
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
    parser.add_argument("--filter", help="benchmarks whose name matches this instead of the selection; . for all")
    parser.add_argument("--json", type=pathlib.Path, help="also write what the programs reported")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE",
                        help="put the table between <!-- roofline --> and <!-- /roofline --> of FILE")
    args = parser.parse_args()
    found = [p for name in PROGRAMS if (p := args.build / "benchmarks" / name).exists()]
    if not found:
        sys.exit(f"no benchmark program in {args.build}/benchmarks: configure with -DBARG_BENCHMARKS=ON and build")
    reported: list[dict] = []
    cores = len(os.sched_getaffinity(0))
    for program in found:
        print(f"running {program.name}", file=sys.stderr)
        selection = PROGRAMS[program.name].format(isa=widest(program), threads=cores)
        reported += run(program, args.filter or selection)
    if args.json:
        args.json.write_text(json.dumps(reported, indent=1) + "\n")
    isa = max((widest(p) for p in found), key=("scalar", "avx2", "avx512").index)
    ceilings = best_ceilings(reported, isa)
    rows = [row for b in reported if (row := row_of(b, isa, ceilings)) is not None]
    if not rows:
        sys.exit("no benchmark reports a share of a ceiling: is --filter right?")
    text = f"{cpu_name()}, {cores} cores, {datetime.date.today().isoformat()}\n\n{table(rows)}"
    print(text)
    if args.write:
        markers.replace(args.write, "roofline", text)


if __name__ == "__main__":
    main()
