#!/usr/bin/env python3
"""Tokenizers trained here, by Hugging Face tokenizers and by Barg on the same text: the ids must be equal.

    python trained_tokenizers.py [--mb 2] [--only TEXT] [--seconds 1800]
                                                             BARG_TEST_TOKENIZER_BATCH: the program that encodes with Barg
    python trained_tokenizers.py --write FILE [--only TEXT]  small ones with their ids: tests/data/tokenizers/trained.jsonl

Every split pattern x NFC x added tokens x ignore_merges, SentencePiece's BPE with spaces as Llama 2, Mistral and Gemma have them, Unigram with
and without byte fallback, WordPiece with and without case. The text is code, 12 scripts, emoji, spaces, controls and literals of special tokens.
Kinds come first, variants of one later; behind --seconds no further one is begun once there are 12, and the last line says how many there
were. For scripts/test --full; needs `tokenizers` (requirements-full.txt).
"""
import argparse
import collections
import functools
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LEAST = 12
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD, TAIL = r"[^\r\n\p{L}\p{N}]?", r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + "|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
O200K = "|".join([f"{LEAD}{UPPER}*{LOWER}+{CONTRACTIONS}?", f"{LEAD}{UPPER}+{LOWER}*{CONTRACTIONS}?", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", TAIL])
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL]
# Cased letters of Unicode 11 by ranges, as DeepSeek's files have them; some ends are singletons of NFC.
CASED_LETTERS = ("A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376\u0377"
               "\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556"
               "\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15"
               "\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE"
               "\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113"
               "\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184"
               "\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
               "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
               "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943")
HAN_APART = [s.replace("]", r"&&[^\p{Han}]]") for s in (UPPER, LOWER)]
KIMI = "|".join([r"[\p{Han}]+", f"{LEAD}{HAN_APART[0]}*{HAN_APART[1]}+{CONTRACTIONS}?", f"{LEAD}{HAN_APART[0]}+{HAN_APART[1]}*{CONTRACTIONS}?", r"\p{N}{1,3}",
                 r" ?[^\s\p{L}\p{N}]+[\r\n]*", TAIL])
SEED_CODER = CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
CJK = "[一-龥ࠀ-一가-\ud7ff]+"


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def own_pattern():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


RAW = lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
DIGITS = lambda: pre_tokenizers.Digits(individual_digits=True)
PATTERNS = {
    "gpt2": lambda: own_pattern(),
    "smollm": lambda: pre_tokenizers.Sequence([DIGITS(), own_pattern()]),
    "llama3": lambda: pre_tokenizers.Sequence([split(LLAMA3), RAW()]),
    "qwen2": lambda: pre_tokenizers.Sequence([split(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")), RAW()]),
    "qwen35": lambda: pre_tokenizers.Sequence([split(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(
        r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")), RAW()]),
    "o200k": lambda: pre_tokenizers.Sequence([split(O200K), RAW()]),
    "tekken": lambda: pre_tokenizers.Sequence([split(O200K.replace(CONTRACTIONS + "?", "").replace(r"\p{N}{1,3}", r"\p{N}")), RAW()]),
    "deepseek-v3": lambda: pre_tokenizers.Sequence([split(p) for p in DEEPSEEK] + [RAW()]),
    "deepseek-coder": lambda: pre_tokenizers.Sequence([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), DIGITS(), RAW()]),
    "deepseek-llm": lambda: pre_tokenizers.Sequence([split("[\r\n]"), split(rf"\s?[{CASED_LETTERS}]+"), split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
                                                     split(r"\s+$"), split(CJK), DIGITS(), RAW()]),
    "kimi": lambda: pre_tokenizers.Sequence([split(KIMI), RAW()]),
    "seed-coder": lambda: pre_tokenizers.Sequence([split(SEED_CODER), RAW()]),
    "any-regex": lambda: pre_tokenizers.Sequence([split(r"\w+|[^\w\s]{1,4}|\s+(?=\S)|\s+"), RAW()]),
    "falcon": lambda: pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), own_pattern(), pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]),
}
SPECIALS = ["<|im_start|>", "<|im_end|>", "<s>"]
FLAGGED = [AddedToken("<think>"), AddedToken("<|left|>", lstrip=True, special=True), AddedToken("<|right|>", rstrip=True), AddedToken("word", single_word=True),
           AddedToken("cafe\u0301", normalized=True), AddedToken("  \n", normalized=False), AddedToken("中文", normalized=False, special=True)]


def add_tokens(t, flagged):
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    if flagged:
        for a in FLAGGED:
            (t.add_special_tokens if a.special else t.add_tokens)([a])


def corpus():
    texts = [json.loads(line)["text"] for line in open(os.path.join(ROOT, "tests/data/tokenizers/strings.jsonl"), encoding="utf-8")]
    for f in sorted(glob.glob(os.path.join(ROOT, "src/text/*.cpp")) + glob.glob(os.path.join(ROOT, "docs/*.md")))[:40]:
        texts.append(open(f, encoding="utf-8").read())
    return tuple(texts)


@functools.lru_cache
def learnt_merges(pattern, texts, size):
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = PATTERNS[pattern]()
    base.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return json.loads(base.to_str())["model"]


def byte_level(pattern, nfc, flagged, ignore_merges, texts, size):
    model = learnt_merges(pattern, texts, size)
    vocab = model["vocab"] | {" the whole of it": len(model["vocab"])}
    vocab |= {"Ġwhole": len(vocab)} if "Ġwhole" not in vocab else {}    # a word that no merges make: for ignore_merges
    t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in model["merges"]], ignore_merges=ignore_merges))
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer, t.decoder = PATTERNS[pattern](), decoders.ByteLevel()
    add_tokens(t, flagged)
    return t


def sentence_piece(style, flagged, texts, size):
    """Merges learnt on words; every cut of a token into two is a merge, ranked by the token, as in files converted from SentencePiece."""
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    base.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, limit_alphabet=300, show_progress=False))
    learnt = json.loads(base.to_str())["model"]["vocab"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{b:02X}>": 3 + b for b in range(256)}
    for token in sorted(learnt, key=learnt.get):
        vocab.setdefault(token, len(vocab))
    for n in range(2, 9):
        vocab.setdefault("▁" * n, len(vocab)), vocab.setdefault("\n" * n, len(vocab))
    merges = [(p[:i], p[i:]) for p in vocab if not p.startswith("<") for i in range(1, len(p)) if p[:i] in vocab and p[i:] in vocab]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tail = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if style == "llama2":
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "mistral":
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        t.normalizer, t.pre_tokenizer = normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", behavior="merged_with_previous")
    t.decoder = decoders.Sequence(tail + ([decoders.Strip(" ", 1, 0)] if style != "gemma" else []))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    add_tokens(t, flagged)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def unigram(style, byte_fallback, texts, size):
    base = Tokenizer(models.Unigram())
    base.normalizer = normalizers.NFKC()
    base.pre_tokenizer = pre_tokenizers.Metaspace()
    base.train_from_iterator([s for s in texts if len(s) < 4000], trainers.UnigramTrainer(vocab_size=size, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False))
    model = json.loads(base.to_str())["model"]
    vocab = [tuple(v) for v in model["vocab"]]
    if byte_fallback:
        vocab += [(f"<0x{b:02X}>", -12.0) for b in range(256)]
    t = Tokenizer(models.Unigram(vocab, unk_id=2, byte_fallback=byte_fallback))
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]) if style == "t5" else normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]) if style == "t5" else pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]) if byte_fallback else decoders.Metaspace()
    t.add_special_tokens(["<pad>", "</s>", "<unk>"])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t


def word_piece(lowercase, texts, size):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, limit_alphabet=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def kinds():
    """Name and maker of every tokenizer; a maker takes texts and a size."""
    out = {}
    for pattern in PATTERNS:
        for nfc in (False, True):
            for flagged in (False, True):
                for ignore in (False, True):
                    name = pattern + " nfc" * nfc + " flagged" * flagged + " ignore_merges" * ignore
                    out[name] = lambda texts, size, a=(pattern, nfc, flagged, ignore): byte_level(*a, texts, size)
    for style in ("llama2", "mistral", "gemma"):
        for flagged in (False, True):
            out[f"spm {style}" + " flagged" * flagged] = lambda texts, size, a=(style, flagged): sentence_piece(*a, texts, size)
    for style in ("t5", "albert"):
        for fallback in (False, True):
            out[f"unigram {style}" + " bytes" * fallback] = lambda texts, size, a=(style, fallback): unigram(*a, texts, size)
    for lowercase in (False, True):
        out["wordpiece" + " lowercase" * lowercase] = lambda texts, size, a=(lowercase,): word_piece(*a, texts, size)
    return out


SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A), (0x900, 0x97F), (0xE01, 0xE5B), (0x1200, 0x137F), (0x3041, 0x30FF),
           (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0x300, 0x36F), (0x2000, 0x206F), (0x2150, 0x218F), (0xFF01, 0xFF9F), (0x1, 0x1F)]


def mixed_text(rng, size, texts):
    """Blocks of a few kB: strings, code and documents of this repository, random words of a script, runs, literals."""
    literals = SPECIALS + [a.content for a in FLAGGED] + ["café", "<unk>", "</s>", "[SEP]", "[MASK]", "<0x0A>", "▁", "``", "don't", "I'LL"]
    spaces = [" ", "  ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u3000", "    ", " \n", "\u2028", "\x85"]
    blocks, block = [], ""
    while size > 0:
        kind = rng.random()
        if kind < 0.3:
            s = rng.choice(texts)
            start = rng.randrange(max(1, len(s) - 800)) if len(s) > 800 else 0
            block += s[start:start + 800]
        elif kind < 0.75:
            first, last = rng.choice(SCRIPTS)
            block += "".join(chr(rng.randrange(first, last + 1)) for _ in range(rng.randrange(1, 14))) + rng.choice(["", "", rng.choice(spaces)])
        elif kind < 0.85:
            block += rng.choice(literals)
        elif kind < 0.95:
            block += rng.choice([".", ",", "!", "'s", "'", '"', "-", "1", "23", "4567", "/", "_", "()", "==", "\U0001f468\u200d\U0001f469\u200d\U0001f467"]) * rng.randrange(1, 4)
        else:
            block += rng.choice(spaces + ["a", "0", "=", "中", "e\u0301", "\u0301"]) * rng.randrange(1, 60)
        if len(block) > 3000:
            blocks.append(block.replace("\x1e", ""))
            size -= len(blocks[-1].encode())
            block = ""
    return blocks


def barg_ids(program, tokenizer, blocks):
    with tempfile.TemporaryDirectory() as folder:
        file, text = os.path.join(folder, "tokenizer.json"), os.path.join(folder, "text")
        tokenizer.save(file)
        open(text, "w", encoding="utf-8", newline="").write("\x1e".join(blocks))
        out = subprocess.run([program, file, text], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{program}: {out.stderr}")
    return [[int(i) for i in line.split()] for line in out.stdout.split("\n")[:-1]]


def compare(name, t, blocks, program):
    ours = barg_ids(program, t, blocks)
    total = 0
    for block, got, encoded in zip(blocks, ours, t.encode_batch(blocks), strict=True):
        want = encoded.ids
        total += len(want)
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            raise SystemExit(f"{name}: id {at} of a block is {got[at:at + 8]}, tokenizers has {want[at:at + 8]}\n{ascii(t.decode(want[max(0, at - 8):at + 8]))}\n{ascii(block[:4000])}")
    return total


def write(path, only):
    texts = corpus()
    rng = random.Random(1)
    keep = [n for n in kinds() if not n.endswith(" nfc") and ("flagged" in n or n.split()[0] in ("unigram", "wordpiece")) and
            ("ignore_merges" in n) == (n.split()[0] in ("llama3", "o200k", "tekken", "kimi")) and ("nfc" in n) == (n.split()[0] in ("qwen2", "qwen35"))]
    with open(path, "w", encoding="utf-8") as out:
        for name in (n for n in keep if only in n):
            t = kinds()[name](texts, 2000 if name.startswith("unigram") else 700)
            rows = []
            for text in [b[:160] for b in mixed_text(rng, 60_000, texts)][:12] + [json.loads(l)["text"] for l in open(os.path.join(ROOT, "tests/data/tokenizers/strings.jsonl"))][::60]:
                t.encode_special_tokens = False
                ids = t.encode(text, add_special_tokens=False).ids
                rows.append({"text": text, "ids": ids, "around": t.encode(text).ids, "decoded": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids)})
                t.encode_special_tokens = True
                rows[-1]["plain"] = t.encode(text, add_special_tokens=False).ids
                if name.startswith(("unigram", "wordpiece")) and any(a.content in text for a in t.get_added_tokens_decoder().values() if a.special):
                    rows[-1]["plain"] = None    # tokenizers makes control tokens of such text; Barg never does
            out.write(json.dumps({"name": name, "tokenizer": json.loads(t.to_str()), "rows": rows}, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--mb", type=float, default=2), a.add_argument("--only", default=""), a.add_argument("--write"), a.add_argument("--size", type=int, default=2000)
    a.add_argument("--seconds", type=float, default=1800)
    a = a.parse_args()
    if a.write:
        return write(a.write, a.only)
    program = os.environ["BARG_TEST_TOKENIZER_BATCH"]
    texts = corpus()
    blocks = mixed_text(random.Random(7), int(a.mb * 1e6), texts)
    size = sum(len(b.encode()) for b in blocks)
    wanted = {name: make for name, make in kinds().items() if a.only in name}
    done = ids = 0
    begun = time.time()
    # One of each kind, then another of each; the first word of a name is the kind.
    kinds_seen = collections.Counter()
    turn = {}
    for name in wanted:
        kinds_seen[name.split()[0]] += 1
        turn[name] = kinds_seen[name.split()[0]]
    order = sorted(wanted, key=turn.get)
    for name in order:
        make, start = wanted[name], time.time()
        if start - begun > a.seconds and done >= LEAST:
            break
        ids += compare(name, make(texts, a.size), blocks, program)
        done += 1
        print(f"{name}: equal, {time.time() - start:.0f} s", flush=True)
    left = f" ({len(wanted) - done} more were left out for lack of time)" if done < len(wanted) else ""
    print(f"{done} tokenizers, {size} bytes of text each, {ids} ids: all equal{left}")


if __name__ == "__main__":
    main()
