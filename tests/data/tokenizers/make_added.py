#!/usr/bin/env python3
"""added.jsonl: random sets of added tokens that share beginnings and endings, and what Hugging Face tokenizers makes of random text.

    pip install tokenizers==0.23.3 && python make_added.py COUNT TEXTS SEED > added.jsonl     (60 16 3 made the file here)

One line a set: {"normalizer", "added": [[content, flags]], "rows": [[text, ids, plain]]}: `flags` are letters of "wlrns" (single_word,
lstrip, rstrip, normalized, special), `plain` the ids with encode_special_tokens. The model is the same for all: the 256 bytes, id = byte, no
merges; a literal has the id that the model has for its characters, else the next from 256. Texts on which tokenizers itself panics (overlapping literals) are left out.
`--against PROGRAM` compares with barg_tokenizer_batch in place of writing.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

printing = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
others = [b for b in range(256) if b not in printing]
CHAR = {b: chr(b) for b in printing} | {b: chr(256 + n) for n, b in enumerate(others)}
ATOMS = ["a", "b", "A", " ", "  ", "\t", "\u3000", "é", "e\u0301", "_", "1", "<", ">", ".", "中"]
FLAGS = {"w": "single_word", "l": "lstrip", "r": "rstrip", "n": "normalized", "s": "special"}
NORMALIZERS = [None, None, {"type": "Lowercase"}, {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "_"}, "content": "a"}]


def literals(rng):
    atoms = rng.sample(ATOMS, rng.randrange(2, 7))
    out = {}
    for _ in range(rng.randrange(1, 24)):
        word = "".join(rng.choice(atoms) for _ in range(rng.randrange(1, 7)))
        if out and rng.random() < 0.4:    # longer at one end or both than another
            word = rng.choice(["", word]) + rng.choice(list(out)) + rng.choice(["", word])
        out.setdefault(word, "".join(f for f in FLAGS if rng.random() < (0.25 if f in "wlr" else 0.4)))
    return atoms, out


def file_of(normalizer, added):
    vocab = {CHAR[b]: b for b in range(256)}
    fresh = [c for c in added if c not in vocab]    # what the model has keeps its id
    tokens = [{"id": vocab[c] if c in vocab else 256 + fresh.index(c), "content": c} | {name: f in flags for f, name in FLAGS.items()}
              for c, flags in added.items()]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": []}}


def text_of(rng, atoms, added):
    words = list(added) + atoms * 2 + [" ", "x"]
    return "".join(rng.choice(words) * rng.choice([1, 1, 1, 2, 5]) for _ in range(rng.randrange(1, 14)))


def case(rng, texts):
    while True:
        atoms, added = literals(rng)
        normalizer = rng.choice(NORMALIZERS)
        j = file_of(normalizer, added)
        t = Tokenizer.from_str(json.dumps(j))
        rows = []
        for _ in range(texts * 4):
            text = text_of(rng, atoms, added)
            try:
                t.encode_special_tokens = False
                ids = t.encode(text, add_special_tokens=False).ids
                t.encode_special_tokens = True
                rows.append([text, ids, t.encode(text, add_special_tokens=False).ids])
            except BaseException as e:
                if "Panic" not in type(e).__name__:
                    raise
        if len(rows) >= texts:
            return j, {"normalizer": normalizer, "added": [list(a) for a in added.items()], "rows": rows[:texts]}


def barg_ids(program, j, texts):
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, n) for n in ("tokenizer.json", "text")]
        for name, content in zip(names, [json.dumps(j), "\x1e".join(texts)]):
            open(name, "w", encoding="utf-8", newline="").write(content)
        out = subprocess.run([program, *names], capture_output=True, text=True, check=True)
    return [[int(i) for i in line.split()] for line in out.stdout.split("\n")[:-1]]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("count", type=int), a.add_argument("texts", type=int), a.add_argument("seed", type=int), a.add_argument("--against")
    a = a.parse_args()
    rng = random.Random(a.seed)
    for _ in range(a.count):
        j, line = case(rng, a.texts)
        if not a.against:
            print(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
            continue
        for (text, ids, _plain), got in zip(line["rows"], barg_ids(a.against, j, [r[0] for r in line["rows"]]), strict=True):
            if got != ids:
                sys.exit(f"{ascii(line['added'])} {line['normalizer']}\n{text!a}: {got}, tokenizers has {ids}")
    if a.against:
        print(f"{a.count} sets of added tokens, {a.count * a.texts} texts: all equal")


if __name__ == "__main__":
    main()
