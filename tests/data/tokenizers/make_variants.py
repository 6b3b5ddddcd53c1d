#!/usr/bin/env python3
"""variants.jsonl: random small byte-level tokenizer.json files and what Hugging Face tokenizers makes of random text.

    pip install tokenizers==0.23.3 && python make_variants.py COUNT TEXTS SEED > variants.jsonl

One line a tokenizer: {"tokenizer", "rows": [{"text", "ids", "plain", "decoded", "skipped"}]}: ids with special literals matched and
not (encode_special_tokens), the decode of `ids` with and without special tokens. Every flag of added tokens, every split behaviour, both
spellings of merges, NFC, ignore_merges, unknown bytes. Texts on which tokenizers itself panics (overlapping literals) are left out.
"""
import json
import random
import sys

from tokenizers import Tokenizer

printing = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
others = [b for b in range(256) if b not in printing]
CHAR = {b: chr(b) for b in printing} | {b: chr(256 + n) for n, b in enumerate(others)}

PATTERNS = [r"\s+", r"[a-c]+", r"\p{L}+", r"\d", r"\w+|[^\w\s]+", r"(?i:ab)|\p{N}{1,2}", r"\s?\p{L}+", r"[\r\n]", r"a*", r"(?=[A-Z])", r"\s+$",
            r"^\s*", r"[^\s\p{L}\p{N}]+", r"'s|'t| ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s+", r"\S+", r"[一-龥]+", r"\b"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
LITERALS = ["<s>", "</s>", "<s>x", "word", "ab", "e\u0301", "é", " .", "a ", "<|x|>", "<|", "|>", "中", ".\n", " ", "café"]
WORDS = ["a", "b", "c", "ab", "abc", " ", "  ", "\n", "\r\n", "\t", ".", "<s>", "</s>", "<s>x", "word", "words", "e\u0301", "é", "e", " .", "<|x|>",
         "<|", "|>", "中", "1", "23", "²", "A", "AB", "'s", "\u00a0", "\u3000", "café", "cafe\u0301", "_", "\u0301", "\u0eba", "\u200d", "\u180e", "\u0323"]


def split_step(rng):
    if rng.random() < 0.2:
        return {"type": "Digits", "individual_digits": rng.random() < 0.5}
    regex = rng.random() < 0.8
    pattern = {"Regex": rng.choice(PATTERNS)} if regex else {"String": rng.choice([" ", "a", "ab", "e\u0301", "."])}
    return {"type": "Split", "pattern": pattern, "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.3}


def model(rng):
    vocab = {}
    for b in range(256):
        if rng.random() < 0.99:
            vocab[CHAR[b]] = len(vocab)
    keys = [CHAR[b] for b in b"aabbcc  ..e\n\xc3\xa9\xcc\x81" if CHAR[b] in vocab]
    merges = []
    while len(merges) < 30:
        a, b = rng.choice(keys), rng.choice(keys)
        if a + b not in vocab:
            vocab[a + b] = len(vocab)
            merges.append([a, b])
            keys.append(a + b)
    unk = rng.random() < 0.4
    if unk:
        vocab["<unk>"] = len(vocab)
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>" if unk else None, "fuse_unk": rng.random() < 0.5, "byte_fallback": False,
            "ignore_merges": rng.random() < 0.3, "vocab": vocab, "merges": merges if rng.random() < 0.5 else [" ".join(m) for m in merges]}


def tokenizer(rng):
    m = model(rng)
    added, size = [], len(m["vocab"])
    for content in rng.sample(LITERALS, rng.randrange(0, 8)):
        id = m["vocab"].get(content, size)
        size += id == size
        flag = (lambda p: False) if content == "e\u0301" else (lambda p: rng.random() < p)
        added.append({"id": id, "content": content, "single_word": flag(0.2), "lstrip": flag(0.2), "rstrip": flag(0.2), "normalized": flag(0.4),
                      "special": flag(0.5)})
    steps = [split_step(rng) for _ in range(rng.randrange(0, 3))]
    steps.append({"type": "ByteLevel", "add_prefix_space": rng.random() < 0.25, "trim_offsets": True, "use_regex": rng.random() < 0.5})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": rng.choice([None, {"type": "NFC"}, {"type": "Sequence", "normalizers": []}]),
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "model": m}


def row(t, text):
    t.encode_special_tokens = False
    ids = t.encode(text, add_special_tokens=False).ids
    decoded, skipped = (t.decode(ids, skip_special_tokens=skip) for skip in (False, True))
    t.encode_special_tokens = True
    return {"text": text, "ids": ids, "plain": t.encode(text, add_special_tokens=False).ids, "decoded": decoded, "skipped": skipped}


def main():
    count, texts, seed = map(int, sys.argv[1:4])
    rng = random.Random(seed)
    for _ in range(count):
        j = tokenizer(rng)
        t = Tokenizer.from_str(json.dumps(j))
        rows = []
        while len(rows) < texts:
            try:
                rows.append(row(t, "".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 16)))))
            except BaseException as e:
                if "Panic" not in type(e).__name__:
                    raise
        print(json.dumps({"tokenizer": j, "rows": rows}, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
