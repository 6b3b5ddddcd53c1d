"""engines.py xgrammar|llguidance TOKENIZER END_ID: what bench_instances.cpp does, by the two libraries: the same lines on stdin
and stdout. Masks go into arrays as in servers that embed them (a torch tensor, a NumPy array); a call from Python costs about a
microsecond of each time.

xgrammar with any white space, one thread and without its cache of compiled grammars; strict_mode off, because otherwise it
forbids members that the schema allows. llguidance with its tokenizer slices for JSON."""

import json
import sys
import time

clock = time.thread_time_ns  # processor time: what else the machine does prolongs nothing


class XGrammar:
    def __init__(self, path, end):
        import torch
        import xgrammar

        self.xgrammar, self.end = xgrammar, end
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        words = {**data["model"]["vocab"], **{t["content"]: t["id"] for t in data["added_tokens"]}}
        names = [""] * (max(words.values()) + 1)
        for word, token in words.items():
            names[token] = word
        info = xgrammar.TokenizerInfo(names, xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        torch.set_num_threads(1)
        self.mask = xgrammar.allocate_token_bitmask(1, len(names))
        self.words = self.mask.numpy()[0]

    def compile(self, request):
        return self.compiler.compile_json_schema(request["schema"], any_whitespace=True, strict_mode=False)

    def start(self, grammar):
        return self.xgrammar.GrammarMatcher(grammar)

    def fill(self, state):
        if not state.fill_next_token_bitmask(self.mask):
            self.words[:] = -1  # everything may come, the mask is as it was

    def push(self, state, token):
        if not state.accept_token(token):
            raise RuntimeError(f"token {token} is in the mask and not taken")


class LLGuidance:
    def __init__(self, path, end):
        import llguidance
        import llguidance.numpy

        self.llguidance, self.end = llguidance, end
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.tokenizer = llguidance.LLTokenizer(text, eos_token=end, slices=llguidance.LLTokenizer.json_slices())
        self.mask = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)
        self.words = self.mask[0]
        self.fill_mask = llguidance.numpy.fill_next_token_bitmask

    def compile(self, request):
        matcher = self.llguidance.LLMatcher(
            self.tokenizer, self.llguidance.LLMatcher.grammar_from_json_schema(request["schema"]), log_level=0)
        if matcher.is_error():
            raise RuntimeError(matcher.get_error())
        return matcher

    def start(self, grammar):
        grammar.reset()  # keeps what its lexer has learnt, as outputs of one constraint do elsewhere
        return grammar

    def fill(self, state):
        self.fill_mask(state, self.mask)
        if state.is_error():
            raise RuntimeError(state.get_error())

    def push(self, state, token):
        if not state.consume_token(token):
            raise RuntimeError(f"token {token} is in the mask and not taken")


def follow(engine, grammar, output):
    state, mask_us, push_us = engine.start(grammar), [], []

    def allows(token):
        begin = clock()
        engine.fill(state)
        mask_us.append((clock() - begin) / 1e3)
        return int(engine.words[token // 32]) >> (token % 32) & 1 == 1

    def take(token):
        if not allows(token):
            return False
        begin = clock()
        engine.push(state, token)
        push_us.append((clock() - begin) / 1e3)
        return True

    try:
        whole = all(map(take, output)) and allows(engine.end)
    except Exception as error:  # limits that a library meets on the way
        return {"taken": len(push_us), "whole": False, "failed": str(error), "mask_us": mask_us, "push_us": push_us}
    return {"taken": len(push_us), "whole": whole, "mask_us": mask_us, "push_us": push_us}


def answer(engine, request):
    begin = clock()
    try:
        grammar = engine.compile(request)
    except Exception as error:  # whatever a library raises is its refusal
        return {"refused": str(error)}
    took = (clock() - begin) / 1e3
    return {"compile_us": took, "outputs": [follow(engine, grammar, output) for output in request["outputs"]]}


def main():
    engine = {"xgrammar": XGrammar, "llguidance": LLGuidance}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), flush=True)


main()
