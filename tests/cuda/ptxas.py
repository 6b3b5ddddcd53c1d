#!/usr/bin/env python3
"""Holds what nvcc made of kernels/cuda/*.cu in a build with BARG_CUDA=ON against tests/cuda/registers.txt: no kernel has a
spill or a stack frame, none takes more registers than its row allows, and the PTX of those that are marked so has mma.sync
and 16-byte cp.async.

    tests/cuda/ptxas.py build/cuda ARCH...        as in: ptxas.py build/cuda 80 90 100 120
"""
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def table(path):
    """Rows: a pattern of the kernel's name, the most registers, and perhaps `mma`."""
    rows = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, most, *marks = line.split()
            rows.append((re.compile(pattern), int(most), "mma" in marks))
    return rows


def names(mangled):
    out = subprocess.run(["c++filt"], input="\n".join(mangled), text=True, capture_output=True, check=True).stdout
    short = re.sub(r"\([\w:<> ]*\)|barg::cuda::|^void | ", "", out, flags=re.M)  # neither casts nor parameters
    return dict(zip(mangled, short.splitlines()))


def compiled(folder, source, arch):
    """(kernel, registers, stack, spilled bytes) of each kernel, and the PTX."""
    kernels = []
    for part in re.split(r"(?=Compiling entry function)", (folder / f"{source}.{arch}.txt").read_text())[1:]:
        frame, used = FRAME.search(part), REGISTERS.search(part)
        kernels.append((ENTRY.search(part)[1], int(used[1]), int(frame[1]), int(frame[2]) + int(frame[3])))
    return kernels, (folder / f"{source}.{arch}.ptx").read_text()


def main():
    folder, archs = pathlib.Path(sys.argv[1]), sys.argv[2:]
    rows = table(pathlib.Path(__file__).parent / "registers.txt")
    wrong = []
    sources = re.findall(r"BARG_IMAGE\((\w+),", (folder / "images.inc").read_text())
    if not sources or not archs:
        sys.exit(f"{folder}: nothing was compiled")
    for arch in archs:
        for source in sources:
            kernels, ptx = compiled(folder, source, arch)
            if not kernels:
                wrong.append(f"sm_{arch} {source}: no kernels")
                continue
            called = names([k[0] for k in kernels])
            for mangled, registers, stack, spilled in kernels:
                name = called[mangled]
                print(f"sm_{arch} {registers:4} registers  {name}")
                row = next((r for r in rows if r[0].fullmatch(name)), None)
                where = f"sm_{arch} {name}"
                if row is None:
                    wrong.append(f"{where}: no row in tests/cuda/registers.txt")
                    continue
                if stack or spilled:
                    wrong.append(f"{where}: {stack} bytes of stack, {spilled} bytes spilled")
                if registers > row[1]:
                    wrong.append(f"{where}: {registers} registers, {row[1]} are allowed")
                body = re.search(r"\.entry " + mangled + r"\b.*?\n}\n", ptx, re.S)[0]
                if row[2] and not ("mma.sync.aligned.m16n8k16" in body
                                   and re.search(r"cp\.async\.cg\.shared\.global \[.*?\], \[.*?\], 16,", body)):
                    wrong.append(f"{where}: no mma.sync or no cp.async of 16 bytes")
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


main()
