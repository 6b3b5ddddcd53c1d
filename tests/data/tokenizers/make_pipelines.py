#!/usr/bin/env python3
"""pipelines.jsonl: random small tokenizer.json files of every model kind and what Hugging Face tokenizers makes of random text.

    pip install tokenizers==0.23.3 && python make_pipelines.py COUNT TEXTS SEED > pipelines.jsonl

One line a tokenizer: {"tokenizer", "rows": [{"text", "ids", "plain", "around", "decoded", "skipped"}]}: ids with special literals matched
and not (encode_special_tokens), with what the post-processor adds, and the decode of `ids` with and without special tokens. BPE of
characters (byte fallback, prefixes, suffixes), Unigram, WordPiece, WordLevel, byte-level BPE; every normalizer, pre-tokenizer, decoder and
post-processor that Barg reads. `plain` is null where the text contains a special literal that the model itself would make: Barg never does.
Texts on which tokenizers itself panics are left out. (variants.jsonl has more of byte-level BPE.)
"""
import base64
import json
import random
import struct
import sys

from tokenizers import Tokenizer

CHARS = list("aabbccdeAB  ..,!'0123") + ["é", "e\u0301", "ß", "İ", "中", "国", "ア", "ﬁ", "²", "①", "\n", "\r\n", "\t", "\u00a0", "\u3000", "▁", "\u200b",
                                         "\U0001f600", "\u0301", "\u093f", "न", "Ω", "ᴬ", "\u2581a", "가", "\u1112\u1161", "–", "«", "\u0001", "\ufffd", "_", "##"]
WORDS = ["ab", "abc", "bc", " a", "  ", "<s>", "</s>", "<unk>", "word", "<|x|>", "café", "cafe\u0301", "n't", " .", "do not", "A", "AB", "ﬁn"]
LITERALS = ["<s>", "</s>", "<|x|>", "word", "ab", "é", " .", "a ", "中", "A", "▁a", "ﬁ", "  "]
EMPTY = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
         "decoder": None, "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}}
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def charsmap(entries):
    """SentencePiece's compiled map, as a Darts double array: a child lies at (node ^ offset) ^ byte, a value at (node ^ offset)."""
    forms, keys = b"", {}
    for key, form in sorted(entries.items()):
        keys[key.encode()] = len(forms)
        forms += form.encode() + b"\0"
    units, used, bases = {0: 0}, {0}, set()    # two nodes of one base would share their children

    def place(node, prefix):
        labels = sorted({k[len(prefix)] if len(k) > len(prefix) else 0 for k in keys if k.startswith(prefix)})
        base = next(b for b in range(1, 1 << 20) if b not in bases and all(b ^ c not in used for c in labels))
        bases.add(base)
        used.update(base ^ c for c in labels)
        units[node] |= (node ^ base) << 10 | (256 if 0 in labels else 0)
        for c in labels:
            units[base ^ c] = c if c else keys[prefix] | 1 << 31
        for c in labels:
            if c:
                place(base ^ c, prefix + bytes([c]))

    place(0, b"")
    array = [units.get(i, 0) for i in range(max(units) + 256)]
    blob = struct.pack(f"<{len(array)}I", *array)
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + forms).decode()


MAP = charsmap({"ﬁ": "fi", "²": "2", "①": "1", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r\n": " ", "\u200b": "", "e\u0301": "é", "\u0001": "",
                "A": "aa", "–": "-", "ab": "x"})


def chance(rng, p):
    return rng.random() < p


def pattern(rng, literals, regexes):
    return {"String": rng.choice(literals)} if chance(rng, 0.5) else {"Regex": rng.choice(regexes)}


def normalizer(rng):
    kind = rng.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt", "BertNormalizer", "Prepend", "Replace", "Replace", "Precompiled"])
    j = {"type": kind}
    if kind == "Strip":
        j |= {"strip_left": chance(rng, 0.5), "strip_right": chance(rng, 0.5)}
    if kind == "BertNormalizer":
        j |= {"clean_text": chance(rng, 0.7), "handle_chinese_chars": chance(rng, 0.7), "strip_accents": rng.choice([None, True, False]), "lowercase": chance(rng, 0.6)}
    if kind == "Prepend":
        j["prepend"] = rng.choice(["▁", " ", "ab"])
    if kind == "Replace":
        j |= {"pattern": pattern(rng, [" ", "a", "ab", "é"], [" {2,}", r"\s+", "[a-c]", r"\d+", "[0-9]"]), "content": rng.choice(["▁", "", " ", "a", "xyz"])}
    if kind == "Precompiled":
        j["precompiled_charsmap"] = MAP
    return j


def metaspace(rng):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rng.choice(["always", "first", "never"]), "split": chance(rng, 0.6)}


def step(rng):
    kind = rng.choice(["Split", "Metaspace", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit", "FixedLength", "ByteLevel"])
    j = {"type": kind}
    if kind == "Split":
        j |= {"pattern": pattern(rng, [" ", "a", "ab", "▁"], [r"\s+", r"\p{L}+", "[a-c]", r"\w+|[^\w\s]+", "▁"]), "behavior": rng.choice(BEHAVIORS), "invert": chance(rng, 0.3)}
    if kind == "Metaspace":
        j = metaspace(rng)
    if kind == "Digits":
        j["individual_digits"] = chance(rng, 0.5)
    if kind == "Punctuation":
        j["behavior"] = rng.choice(BEHAVIORS)
    if kind == "CharDelimiterSplit":
        j["delimiter"] = rng.choice([" ", "a", "▁"])
    if kind == "FixedLength":
        j["length"] = rng.randrange(1, 6)
    if kind == "ByteLevel":
        j |= {"add_prefix_space": chance(rng, 0.3), "trim_offsets": True, "use_regex": chance(rng, 0.5)}
    return j


def tokens(rng, count, head=()):
    out = list(head)
    alphabet = [c for c in CHARS if chance(rng, 0.8)] + ["▁", "a", "b", "c", "Ġ", "Ã", "©"]
    for c in alphabet:
        if len(c) == 1 and c not in out:
            out.append(c)
    while len(out) < count:
        t = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 5)))
        if t not in out:
            out.append(t)
    return out


def bpe(rng):
    prefix, suffix = (rng.choice([None, None, p]) for p in ("##", "</w>"))
    vocab = {t: i for i, t in enumerate(tokens(rng, 60, ["<unk>", "<s>"]))}
    for c in list(vocab):
        for t in ((prefix or "") + c, c + (suffix or ""), (prefix or "") + c + (suffix or "")):
            vocab.setdefault(t, len(vocab))
    if chance(rng, 0.6):
        for b in range(256):
            if chance(rng, 0.98):
                vocab.setdefault(f"<0x{b:02X}>", len(vocab))
    merges, keys = [], [t for t in vocab if not t.startswith("<")]
    for _ in range(400):
        a, b = rng.choice(keys), rng.choice(keys)
        if prefix and not b.startswith(prefix):
            continue
        joined = a + b[len(prefix or ""):]
        if len(joined) > 12 or [a, b] in merges:
            continue
        if joined not in vocab:
            vocab[joined] = len(vocab)
            keys.append(joined)
        merges.append([a, b])
    return {"type": "BPE", "dropout": None, "unk_token": rng.choice([None, "<unk>"]), "continuing_subword_prefix": prefix, "end_of_word_suffix": suffix,
            "fuse_unk": chance(rng, 0.5), "byte_fallback": chance(rng, 0.5), "ignore_merges": chance(rng, 0.3), "vocab": vocab, "merges": merges}


def unigram(rng):
    pieces = tokens(rng, 120, ["<unk>", "<s>", "</s>"])
    if chance(rng, 0.6):
        pieces += [f"<0x{b:02X}>" for b in range(256) if chance(rng, 0.99)]
    return {"type": "Unigram", "unk_id": 0, "vocab": [[p, -rng.randrange(1, 40) / rng.choice([2, 3.0])] for p in pieces], "byte_fallback": chance(rng, 0.5)}


def word_piece(rng):
    vocab = {t: i for i, t in enumerate(tokens(rng, 80, ["[UNK]", "<s>"]))}
    for t in list(vocab):
        if chance(rng, 0.8):
            vocab.setdefault("##" + t, len(vocab))
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": rng.choice([100, 5]), "vocab": vocab}


def word_level(rng):
    return {"type": "WordLevel", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(tokens(rng, 150, ["<unk>"]))}}


def decoder(rng):
    byte_part = [{"type": "ByteFallback"}] if chance(rng, 0.6) else []
    strip = {"type": "Strip", "content": " ", "start": rng.randrange(0, 2), "stop": 0}
    replace = {"type": "Replace", "pattern": pattern(rng, ["▁"], ["▁", "▁+"]), "content": " "}
    each = {"type": "Strip", "content": rng.choice("a ▁"), "start": rng.randrange(0, 3), "stop": 0}
    return rng.choice([
        {"type": "Sequence", "decoders": [replace] + byte_part + [{"type": "Fuse"}, strip]},
        {"type": "Sequence", "decoders": [replace] + byte_part + [{"type": "Fuse"}]},
        {"type": "Sequence", "decoders": [each, replace]},
        metaspace(rng), metaspace(rng), None,
        {"type": "WordPiece", "prefix": "##", "cleanup": chance(rng, 0.6)},
    ])


def post_processor(rng, added):
    ids = {a["content"]: a["id"] for a in added}
    if len(ids) < 2 or chance(rng, 0.3):
        return None
    a, b = rng.sample(sorted(ids), 2)
    one = {"special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (a, b)}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    special = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [special(a), sequence, special(b)], "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}]} | one
    return rng.choice([template, {"type": "BertProcessing", "sep": [b, ids[b]], "cls": [a, ids[a]]},
                       {"type": "RobertaProcessing", "sep": [b, ids[b]], "cls": [a, ids[a]], "trim_offsets": True, "add_prefix_space": False},
                       {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template]}])


def tokenizer(rng):
    m = rng.choice([bpe, bpe, unigram, unigram, word_piece, word_level])(rng)
    vocab = m["vocab"] if isinstance(m["vocab"], dict) else {p: i for i, (p, _) in enumerate(m["vocab"])}
    added, size = [], len(vocab)
    n = rng.choice([0, 1, 1, 2, 3])
    steps = [step(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    norm = {"type": "Sequence", "normalizers": [normalizer(rng) for _ in range(n)]} if n != 1 else normalizer(rng)
    if chance(rng, 0.1):
        norm = {"type": "ByteLevel"}
    if not n and chance(rng, 0.5):
        norm = None
    if steps and steps[-1]["type"] == "ByteLevel" and m["type"] == "BPE":
        steps.append(metaspace(rng))   # BPE of bytes needs the decoder of bytes: variants.jsonl has those
    for s in steps[1:]:    # to tokenizers, every piece made of what was put in front, or of one character, begins where the text does
        if s["type"] == "Metaspace" and s["prepend_scheme"] == "first":
            s["prepend_scheme"] = "always"
    tool = Tokenizer.from_str(json.dumps(EMPTY | {"normalizer": norm})).normalizer
    try:
        forms = {c: tool.normalize_str(c) if tool else c for c in LITERALS}
    except BaseException:    # a panic
        return None
    for content in sorted(rng.sample(LITERALS, rng.randrange(0, 8)), key=lambda c: c not in vocab):
        id = vocab.get(content, size)
        size += id == size
        special = chance(rng, 0.5) and (m["type"] == "BPE" or content not in vocab or content.startswith("<"))
        # tokenizers does not skip a special token whose literal the normalizer has changed, and finds an empty literal everywhere; and Barg's
        # models make no control tokens.
        whole = special and content in vocab
        added.append({"id": id, "content": content, "single_word": chance(rng, 0.2) and not whole, "lstrip": chance(rng, 0.2), "rstrip": chance(rng, 0.2),
                      "normalized": chance(rng, 0.4) and forms[content] == content if special else chance(rng, 0.4) and forms[content] != "", "special": special})
    added.sort(key=lambda a: a["id"])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": norm,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if steps else None, "post_processor": post_processor(rng, added), "decoder": decoder(rng), "model": m}


def row(t, j, text):
    t.encode_special_tokens = False
    around = t.encode(text).ids
    ids = t.encode(text, add_special_tokens=False).ids
    decoded, skipped = (t.decode(ids, skip_special_tokens=skip) for skip in (False, True))
    t.encode_special_tokens = True
    plain = t.encode(text, add_special_tokens=False).ids
    controls = {a["id"] for a in j["added_tokens"] if a["special"]}
    return {"text": text, "ids": ids, "plain": None if controls & set(plain) else plain, "around": around, "decoded": decoded, "skipped": skipped}


def main():
    count, texts, seed = map(int, sys.argv[1:4])
    rng = random.Random(seed)
    made = 0
    while made < count:
        j = tokenizer(rng)
        if not j:
            continue
        t = Tokenizer.from_str(json.dumps(j))
        rows, tries = [], 0
        while len(rows) < texts and tries < 10 * texts:
            tries += 1
            try:
                rows.append(row(t, j, "".join(rng.choice(CHARS + WORDS) for _ in range(rng.randrange(0, 16)))))
            except BaseException as e:
                if "Panic" not in type(e).__name__:
                    raise
        if len(rows) == texts:
            print(json.dumps({"tokenizer": j, "rows": rows}, ensure_ascii=False, separators=(",", ":")))
            made += 1


if __name__ == "__main__":
    main()
