"""Writes tests/data/sampler/goldens.json: survivors and probabilities of float64 chains of transformers'
logits processors, in Barg's order (repetition -> temperature -> min_p -> top_k -> top_p).

    pip install torch transformers numpy
    python tests/tools/sampler_goldens.py tests/data/sampler/goldens.json

Logits are made by the same small generator as in tests/runtime/sampler_test.cpp, so only parameters and results
are stored."""

import json
import sys

import numpy as np
import torch
from transformers import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
                          TopKLogitsWarper, TopPLogitsWarper)

MASK = (1 << 64) - 1


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53


def logits(seed, vocab, spread):
    rng = SplitMix(seed)
    # A sum of four uniforms is peaked enough; float32 as a model gives it.
    return np.array([(sum(rng.uniform() for _ in range(4)) - 2) * spread for _ in range(vocab)], dtype=np.float32)


def main(path):
    rng = SplitMix(2026)
    cases = []
    for seed in range(60):
        vocab = [17, 300, 1000, 5000][seed % 4]
        spread = [2.0, 6.0, 14.0][seed % 3]
        case = {
            "seed": seed, "vocab": vocab, "spread": spread,
            "temperature": [0.3, 0.7, 1.0, 1.7][rng.next() % 4],
            "min_p": [0.0, 0.0, 0.02, 0.1, 0.5][rng.next() % 5],
            "top_k": [0, 0, 1, 5, 40, 200][rng.next() % 6],
            "top_p": [1.0, 0.1, 0.5, 0.9, 0.95, 0.999][rng.next() % 6],
            "repetition_penalty": [1.0, 1.0, 1.2, 0.8][rng.next() % 4],
            "prompt": [int(rng.next() % vocab) for _ in range(12)],
        }
        x = torch.from_numpy(logits(seed, vocab, spread)).double().unsqueeze(0)
        ids = torch.tensor([case["prompt"]])
        # Parameters are float32 in Barg; the oracle sees the same values.
        f32 = lambda v: float(np.float32(v))
        if case["repetition_penalty"] != 1.0:
            # float32 arithmetic here, as adjusting logits in place is: the truncation chain is what float64 proves.
            x = RepetitionPenaltyLogitsProcessor(f32(case["repetition_penalty"]))(ids, x.float()).double()
        x = TemperatureLogitsWarper(f32(case["temperature"]))(ids, x)
        if case["min_p"] > 0:
            x = MinPLogitsWarper(f32(case["min_p"]))(ids, x)
        if case["top_k"] > 0:
            x = TopKLogitsWarper(case["top_k"])(ids, x)
        if case["top_p"] < 1:
            x = TopPLogitsWarper(f32(case["top_p"]))(ids, x)
        p = torch.softmax(x, -1)[0]
        keep = torch.isfinite(x[0]).nonzero().flatten().tolist()
        case["survivors"] = keep if len(keep) < 1500 else None
        case["count"] = len(keep)
        case["sum_of_ids"] = sum(keep)
        case["probability_of_best"] = float(p.max())
        cases.append(case)
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main(sys.argv[1])
