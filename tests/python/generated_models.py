#!/usr/bin/env python3
"""Tiny checkpoints drawn here, by transformers in float32 and by Barg: the logits of every position and the greedy tokens must be equal.

    python generated_models.py [--seed N] [--rounds 1] [--only NAME] [--seconds 1800] [--keep FOLDER]
                                                             BARG_TEST_MODEL_LOGITS: the program that computes with Barg
    python generated_models.py --write FOLDER                small ones with goldens: tests/data/models, those named there

Every family of ../shared/data/models/specs.json, with head counts, widths, windows, scalings and biases that its goldens do not have, and prompts
whose lengths lie on both sides of tiles and splits; ropes that are fixed for a context, at that context. The weights are drawn by
../shared/data/tools/tiny_models.py. The seed is printed: --seed gives the same models again, --keep leaves them there. For scripts/test --full; needs
`transformers` and `torch` (requirements-models.txt).

The bar is 1e-4 of the standard deviation of a row's logits. Some drawn models magnify the rounding of float32 so much (scores of hundreds, say) that
transformers itself is 1e-5 or more away from what it gives in float64; of those it is ten times that distance, and the last line says how many
there were.
"""
import argparse
import copy
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.path.join(os.path.dirname(os.path.dirname(HERE)), "..", "shared", "data")
BAR = 1e-4          # of the standard deviation of a row's logits
NOISE = 10          # or so many times what float32 itself is away from float64
GREEDY = 24
CLOSE = 2e-3        # of it: closer than so the best two are as good as equal, and what follows is not compared
LENGTHS = [(1,), (15, 16, 17), (63, 64, 65), (127, 128, 129), (255, 256, 257)]


# ---------------------------------------------------------------- what varies
class Variants:
    """One spec of each family (tiny_models.py), changed at random."""

    def __init__(self, seed, specs):
        self.rng, self.specs, self.seed = random.Random(seed), {s["name"]: s for s in specs}, seed

    def pick(self, *choices):
        return self.rng.choice(choices)

    def flag(self):
        return self.pick(True, False)

    def spec(self, name):
        s = copy.deepcopy(self.specs[name])
        s["seed"] = s["seed"] * 1009 + self.rng.randrange(10**6)
        s["dtype"], s["style"] = self.pick("float32", "bfloat16", "float16"), self.pick("v4", "v5")
        s["lengths"] = [self.pick(*group) for group in LENGTHS]
        s["config"]["tie_word_embeddings"] = s["config"].get("tie_word_embeddings", False)
        return s, s["config"]

    def heads(self, c, head_dim=True):
        """Head counts and sizes; without head_dim the model's width follows."""
        q, kv = self.pick((6, 3), (5, 5), (8, 1), (3, 1), (4, 4), (6, 2), (2, 1), (7, 7))
        c["num_attention_heads"], c["num_key_value_heads"] = q, kv
        if head_dim:
            c["head_dim"], c["hidden_size"] = self.pick(8, 16, 24, 40, 48), q * self.pick(*range(-(-48 // q), 100 // q + 1))
        else:
            c.pop("head_dim", None)
            c["hidden_size"] = q * self.pick(8, 16, 24)

    def mixed(self, n, *kinds):
        """A kind for each of n layers, each kind at least once."""
        while True:
            out = [self.pick(*kinds) for _ in range(n)]
            if set(out) == set(kinds):
                return out

    def windows(self, n):
        return self.mixed(n, "sliding_attention", "full_attention")

    def yarn(self, theta):
        r = {"rope_theta": theta, "rope_type": "yarn", "factor": self.pick(2.0, 4.0, 8.0), "original_max_position_embeddings": self.pick(64, 100)}
        if self.flag():
            r |= {"beta_fast": self.pick(16.0, 32.0, 8.0), "beta_slow": self.pick(1.0, 2.0)}
        kind = self.pick("usual", "factor", "mscale")
        if kind == "factor":
            r["attention_factor"] = 1.1
        if kind == "mscale":
            r |= {"mscale": 0.707, "mscale_all_dim": self.pick(0.5, 1.0)}
        if self.rng.random() < 0.4:
            r["truncate"] = False
        return r

    def rope(self, theta):
        return self.pick({"rope_theta": theta, "rope_type": "default"}, {"rope_theta": theta, "rope_type": "linear", "factor": self.pick(2.0, 3.0)},
                         {"rope_theta": theta, "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": self.pick(2.0, 4.0),
                          "original_max_position_embeddings": 64}, self.yarn(theta))

    def share(self, c, *choices):
        c["rope_parameters"]["partial_rotary_factor"] = self.pick(*choices)

    # ---- families: each yields (spec, name to print)
    def llamas(self):
        for name in ("llama", "llama31", "llama-linear", "llama-bias", "smollm2"):
            s, c = self.spec(name)
            self.heads(c)
            c |= {"rope_parameters": self.rope(self.pick(1e4, 5e5)), "tie_word_embeddings": self.flag(), "rms_norm_eps": self.pick(1e-5, 1e-6),
                  "hidden_act": self.pick("silu", "silu", "gelu_pytorch_tanh")}
            if name == "llama-bias":
                c |= {"attention_bias": self.flag(), "mlp_bias": self.flag()}
            yield s

    def ropes_of_a_context(self):
        """transformers decides by the length of a sequence, or by the longest one so far: one context for all prompts, which lie on one side of it."""
        s, c = self.spec("llama")
        self.heads(c)
        c |= {"max_position_embeddings": 14, "rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic", "factor": self.pick(2.0, 4.0)}}
        yield s | {"name": "llama-dynamic", "lengths": s["lengths"][1:], "context": self.pick(300, 512), "longest_first": True}
        c = copy.deepcopy(c) | {"max_position_embeddings": 512}
        yield s | {"name": "llama-dynamic-short", "context": 512, "config": c}
        s, c = self.spec("phi3")
        yield s | {"name": "phi3-longrope", "lengths": s["lengths"][3:], "context": 512, "fixed_long": False}
        yield s | {"name": "phi3-longrope-short", "lengths": [1, self.pick(15, 16, 17), 40], "context": 64, "fixed_long": False}
        # transformers rounds frequencies and angles to float32, which long prompts see.
        s, c = self.spec("llama-yarn")
        self.heads(c)
        c |= {"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}
        yield s | {"lengths": [self.pick(255, 256, 257), 700], "exact_angles": True}

    def mistral(self):
        s, c = self.spec("mistral")
        self.heads(c)
        c |= {"sliding_window": self.pick(5, 17, 32, 33, 64), "rope_parameters": self.rope(1e4)}
        yield s
        s, c = self.spec("ministral3")
        self.heads(c)
        c |= {"rope_parameters": self.yarn(1e6) | {"llama_4_scaling_beta": self.pick(0.1, 0.3)}, "sliding_window": self.pick(None, 20)}
        yield s | {"style": "v5"}

    def qwens(self):
        s, c = self.spec("qwen2")
        self.heads(c, False)
        c |= {"use_sliding_window": True, "sliding_window": self.pick(7, 33), "max_window_layers": 1, "rope_parameters": self.rope(1e6),
              "layer_types": ["full_attention"] + ["sliding_attention"] * 2, "tie_word_embeddings": self.flag()}
        yield s
        s, c = self.spec("qwen3")
        self.heads(c)
        c |= {"attention_bias": self.flag(), "rope_parameters": self.rope(1e6)}
        if self.flag():
            c |= {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2, "layer_types": ["full_attention"] * 2 + ["sliding_attention"]}
        yield s

    def gemmas(self):
        for name in ("gemma", "gemma2", "gemma3"):
            s, c = self.spec(name)
            self.heads(c)
            s.pop("json", None)
            if name != "gemma":
                c |= {"sliding_window": self.pick(5, 17, 32), "query_pre_attn_scalar": self.pick(17, 64), "layer_types": self.windows(c["num_hidden_layers"])}
            if name == "gemma2":
                c |= {"attn_logit_softcapping": self.pick(3.0, 50.0, None), "final_logit_softcapping": self.pick(None, 0.7)}
            if name == "gemma3":
                c["rope_parameters"] = {"sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}, "full_attention": self.pick(
                    {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}, {"rope_theta": 1e6, "rope_type": "default"})}
            c["tie_word_embeddings"] = self.pick(True, True, False)
            if not c["tie_word_embeddings"]:
                s.pop("embed_std", None)
            yield s
        for name in ("gemma4", "gemma3n"):
            s, c = self.spec(name)
            c["num_attention_heads"], c["num_key_value_heads"] = self.pick((4, 2), (8, 4), (2, 1))
            c |= {"sliding_window": self.pick(5, 33), "num_kv_shared_layers": self.pick(0, 1, 2), "tie_word_embeddings": True}
            yield s | {"style": "v5"}
        s, c = self.spec("gemma4-moe")
        c |= {"num_experts": self.pick(4, 8), "top_k_experts": self.pick(1, 3), "final_logit_softcapping": self.pick(None, 0.7), "tie_word_embeddings": True}
        yield s | {"style": "v5"}

    def others(self):
        s, c = self.spec("phi3-window")
        self.heads(c, False)
        c |= {"sliding_window": self.pick(None, 9, 40), "tie_word_embeddings": self.flag(),
              "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": self.pick(0.25, 0.5, 1.0)}}
        yield s
        s, c = self.spec("olmo2")
        self.heads(c, False)
        c |= {"rope_parameters": self.rope(5e5), "attention_bias": self.flag()}
        yield s
        s, c = self.spec("olmo3")
        self.heads(c, False)
        c |= {"sliding_window": self.pick(7, 33), "layer_types": self.windows(4), "rope_parameters": {
            "sliding_attention": {"rope_theta": 5e5, "rope_type": "default"}, "full_attention": self.yarn(5e5)}}
        c["rope_parameters"]["full_attention"].pop("truncate", None)     # transformers looks for it beside the kinds of layers
        yield s | {"style": "v5"}
        s, c = self.spec("granite")
        self.heads(c, False)
        c |= {"rope_parameters": self.rope(1e4), "attention_bias": self.flag(), "mlp_bias": self.flag(), "embedding_multiplier": self.pick(3.0, 12.0),
              "logits_scaling": 0.5}
        yield s
        s, c = self.spec("cohere")
        self.heads(c, False)
        c |= {"use_qk_norm": self.flag(), "attention_bias": self.flag(), "tie_word_embeddings": self.flag(), "rope_parameters": self.pick(
            {"rope_theta": 1e4, "rope_type": "default"}, {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0})}
        yield s
        s, c = self.spec("cohere2")
        self.heads(c)
        c |= {"sliding_window": self.pick(9, 33), "layer_types": self.windows(5), "attention_bias": self.flag()}
        yield s
        s, c = self.spec("smollm3")
        self.heads(c, False)
        c |= {"no_rope_layers": self.mixed(5, 0, 1), "rope_parameters": self.rope(5e6), "attention_bias": self.flag(), "mlp_bias": self.flag(),
              "tie_word_embeddings": self.flag()}
        yield s
        s, c = self.spec("stablelm")
        self.heads(c, False)
        c |= {"use_qkv_bias": self.flag(), "qk_layernorm": self.flag(), "use_parallel_residual": self.flag()}
        self.share(c, 0.25, 0.5, 1.0)
        yield s
        for name in ("glm4", "glm"):
            s, c = self.spec("glm4")
            self.heads(c)
            self.share(c, 0.25, 0.5, 1.0)
            c["attention_bias"] = self.flag()
            yield s | ({"name": "glm", "class": "GlmConfig"} if name == "glm" else {})

    def experts(self):
        s, c = self.spec("qwen3-moe")
        self.heads(c)
        c |= {"num_experts": self.pick(4, 6, 16), "num_experts_per_tok": self.pick(1, 2, 4), "norm_topk_prob": self.flag(), "mlp_only_layers": self.pick([], [0], [2]),
              "decoder_sparse_step": self.pick(1, 2), "moe_intermediate_size": self.pick(24, 40), "rope_parameters": self.rope(1e6)}
        yield s
        s, c = self.spec("mixtral")
        self.heads(c)
        c |= {"num_local_experts": self.pick(3, 8), "num_experts_per_tok": self.pick(1, 3), "sliding_window": self.pick(None, 20)}
        yield s
        s, c = self.spec("gpt-oss")
        self.heads(c)
        c |= {"num_local_experts": self.pick(3, 8), "num_experts_per_tok": self.pick(1, 3), "sliding_window": self.pick(5, 33), "layer_types": self.windows(4),
              "intermediate_size": self.pick(40, 96), "rope_parameters": self.yarn(150000.0)}
        yield s
        s, c = self.spec("minimax-m2")
        self.heads(c)
        c |= {"num_local_experts": self.pick(3, 8), "num_experts_per_tok": self.pick(1, 3)}
        self.share(c, 0.25, 0.5, 1.0)
        yield s
        s, c = self.spec("glm4-moe")
        self.heads(c)
        groups = self.pick(1, 3)
        c |= {"n_routed_experts": 12, "n_group": groups, "topk_group": 1 if groups == 1 else 2, "n_shared_experts": self.pick(1, 2), "use_qk_norm": self.flag(),
              "first_k_dense_replace": self.pick(0, 1, 2), "attention_bias": self.flag(), "norm_topk_prob": self.flag()}
        yield s
        for name in ("deepseek-v3", "deepseek-v2"):
            s, c = self.spec(name)
            groups, heads = self.pick(1, 3, 4), self.pick(2, 3, 5)
            c |= {"hidden_size": heads * self.pick(16, 24), "num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": self.pick(None, 24), "kv_lora_rank": self.pick(20, 40),
                  "qk_rope_head_dim": self.pick(8, 16), "qk_nope_head_dim": self.pick(12, 24), "v_head_dim": self.pick(20, 32), "n_group": groups,
                  "n_shared_experts": self.pick(1, 2, 3), "first_k_dense_replace": self.pick(0, 1, 2), "n_routed_experts": 12,
                  "topk_group": 1 if groups == 1 else self.pick(1, 2), "num_experts_per_tok": self.pick(1, 2, 3), "routed_scaling_factor": self.pick(1.0, 2.5)}
            if name == "deepseek-v3":
                c["norm_topk_prob"] = self.flag()
            else:
                c["topk_method"] = "greedy" if groups == 1 else "group_limited_greedy"
            scale = self.pick(1.0, 0.707)
            c["rope_parameters"] = self.pick({"rope_theta": 1e4, "rope_type": "default"}, {
                "rope_theta": 1e4, "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
                "mscale": scale, "mscale_all_dim": scale})
            yield s

    def recurrent(self):
        for name in ("qwen3-next", "qwen35", "qwen35-moe"):
            s, c = self.spec(name)
            self.heads(c)
            c["linear_num_key_heads"], c["linear_num_value_heads"] = self.pick((1, 3), (2, 2), (3, 6), (2, 8))
            c |= {"linear_key_head_dim": self.pick(8, 20), "linear_value_head_dim": self.pick(12, 24), "linear_conv_kernel_dim": self.pick(2, 3, 4)}
            if name != "qwen35":
                c |= {"num_experts": self.pick(4, 10), "num_experts_per_tok": self.pick(1, 3)}
            if name == "qwen3-next":
                c |= {"norm_topk_prob": self.flag(), "mlp_only_layers": self.pick([], [1])}
            else:
                s["style"] = "v5"
            yield s
        s, c = self.spec("lfm2")
        self.heads(c, False)
        c |= {"conv_bias": self.flag(), "conv_L_cache": self.pick(2, 3, 4), "layer_types": self.mixed(4, "full_attention", "conv"), "block_auto_adjust_ff_dim": self.flag(),
              "block_multiple_of": 16, "block_ffn_dim_multiplier": self.pick(1.0, 1.3), "tie_word_embeddings": self.flag()}
        yield s
        s, c = self.spec("falcon-h1")
        self.heads(c)
        dim = self.pick(8, 16)
        c |= {"mamba_n_heads": 6, "mamba_d_head": dim, "mamba_d_ssm": 6 * dim, "mamba_n_groups": self.pick(1, 2, 3), "mamba_rms_norm": self.flag(),
              "mamba_norm_before_gate": self.flag(), "mamba_d_conv": self.pick(2, 4), "mamba_conv_bias": self.flag(), "tie_word_embeddings": self.flag()}
        yield s
        s, c = self.spec("mamba2")
        heads = self.pick(4, 8)
        c |= {"num_heads": heads, "head_dim": 128 // heads, "n_groups": self.pick(1, 2, 4), "conv_kernel": self.pick(2, 3, 4), "use_conv_bias": self.flag(),
              "use_bias": self.flag(), "state_size": self.pick(8, 24), "tie_word_embeddings": self.flag(), "time_step_limit": self.pick([0.0, float("inf")], [0.1, 0.6])}
        yield s
        s, c = self.spec("bamba")
        c["num_attention_heads"], c["num_key_value_heads"] = self.pick((8, 2), (2, 2))
        c |= {"mamba_n_groups": self.pick(1, 2), "attn_layer_indices": self.pick([0], [1, 3]), "mamba_proj_bias": self.flag(), "mamba_conv_bias": self.flag(),
              "mamba_d_conv": self.pick(3, 4)}
        self.share(c, 0.5, 1.0)
        yield s | {"style": "v5"}     # in the other transformers does not look at the share
        s, c = self.spec("granite-hybrid")
        c["num_attention_heads"], c["num_key_value_heads"] = self.pick((8, 2), (2, 2))
        experts = self.pick(0, 6)
        c |= {"mamba_n_groups": self.pick(1, 2), "num_local_experts": experts, "num_experts_per_tok": self.pick(1, 3) if experts else 0,
              "layer_types": self.mixed(4, "attention", "mamba"), "position_embedding_type": self.pick("rope", None), "mamba_proj_bias": self.flag()}
        yield s

    def all(self):
        for family in (self.llamas, self.ropes_of_a_context, self.mistral, self.qwens, self.gemmas, self.others, self.experts, self.recurrent):
            yield from family()


# ---------------------------------------------------------------- both sides
def build(tiny, spec, root):
    """tiny_models.py's checkpoint without its goldens; the folder."""
    import torch
    import transformers
    folder = os.path.join(root, spec["name"])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    vocab = spec["tokenizer"][1]
    cfg = getattr(transformers, spec["class"])(**{"vocab_size": vocab, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None} | spec["config"])
    torch.manual_seed(spec["seed"] % 2**31)
    model = transformers.AutoModelForCausalLM.from_config(cfg, dtype=torch.float32, attn_implementation="eager")
    tiny.redraw(model, spec["seed"] % 2**31, getattr(cfg, "tie_word_embeddings", False), spec["class"] == "GptOssConfig", spec.get("embed_std"))
    model = model.to(getattr(torch, spec["dtype"]))
    model.save_pretrained(folder)
    path = os.path.join(folder, "config.json")
    if spec["style"] == "v4":
        tiny.to_v4(path)
    if "json" in spec:
        c = {k: v for k, v in (json.load(open(path)) | spec["json"]).items() if k not in spec["json"] or v is not None}
        json.dump(c, open(path, "w"), indent=2, sort_keys=True)
    return folder


def barg(program, folder, prompts, context):
    """(logits [T, V], greedy tokens) of each prompt."""
    import numpy as np
    with tempfile.TemporaryDirectory() as tmp:
        text, out = os.path.join(tmp, "prompts"), os.path.join(tmp, "logits")
        with open(text, "w") as f:
            f.writelines(f"{count} {' '.join(map(str, ids))}\n" for ids, count in prompts)
        r = subprocess.run([program, folder, text, out] + ([str(context)] if context else []), capture_output=True, text=True)
        if r.returncode != 0:
            raise ValueError(f"{os.path.basename(program)}: {r.stderr.strip()[:400]}")
        lines, rows = r.stdout.split("\n"), np.fromfile(out, dtype=np.float32)
    rows = rows.reshape(-1, int(lines[0]))
    at, result = 0, []
    for (ids, _), line in zip(prompts, lines[1:]):
        result.append((rows[at:at + len(ids)], [int(i) for i in line.split()]))
        at += len(ids)
    return result


def expected(tiny, model, ids, count):
    """transformers' logits of every position, and its greedy tokens up to a close choice."""
    import torch
    full, ids, out = tiny.logits_of(model, ids), list(ids), []
    for _ in range(count):
        row = tiny.logits_of(model, ids, 1)[-1]
        best = row.topk(2).values
        if (best[0] - best[1]) < CLOSE * row.std():
            break
        out.append(int(row.argmax()))
        ids.append(out[-1])
    return full.numpy(), out


def exact_angles(model, config):
    """yarn's frequencies in double, rounded once; angles and their sines in double."""
    import torch
    rope, rotary = config["rope_parameters"], model.model.rotary_emb
    dim, base, length = 2 * rotary.inv_freq.shape[0], rope["rope_theta"], rope["original_max_position_embeddings"]
    index_of = lambda turns: dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))
    first, last = max(math.floor(index_of(32)), 0), min(math.ceil(index_of(1)), dim - 1)
    ramp = [min(max((i - first) / (last - first), 0), 1) for i in range(dim // 2)]
    frequencies = torch.tensor([base ** (-2 * i / dim) * (r / rope["factor"] + 1 - r) for i, r in enumerate(ramp)], dtype=torch.float64).float().double()

    def forward(x, position_ids, **_):
        angles = position_ids[0].double()[:, None] * frequencies[None]
        angles = torch.cat((angles, angles), -1)[None]
        return (angles.cos() * rotary.attention_scaling).to(x.dtype), (angles.sin() * rotary.attention_scaling).to(x.dtype)
    rotary.forward = forward


def loaded(tiny, folder, spec, double=False):
    import torch
    model = tiny.load(folder, "causal", torch.float64 if double else torch.float32)
    if spec.get("exact_angles"):
        exact_angles(model, spec["config"])
    if spec.get("longest_first"):
        tiny.logits_of(model, [5] * spec["context"])
    return model


def deviations(a, b, std):
    import numpy as np
    return np.abs(a.astype(np.float64) - b).max(-1) / std


def compare(tiny, program, spec, root):
    """Largest difference over the deviation, how many greedy tokens were equal, and whether the bar was float32's own; raises where it is missed."""
    import numpy as np
    folder = build(tiny, spec, root)
    rng = np.random.default_rng(spec["seed"])
    prompts = [([int(i) for i in rng.integers(0, spec["tokenizer"][1], t)], GREEDY) for t in spec["lengths"]]
    ours = barg(program, folder, prompts, spec.get("context", 0))
    model, double = loaded(tiny, folder, spec), None
    worst, tokens = 0.0, 0
    for (ids, count), (logits, greedy) in zip(prompts, ours, strict=True):
        want, best = expected(tiny, model, ids, count)
        if logits.shape != want.shape:
            raise ValueError(f"{len(ids)} tokens: logits {logits.shape}, transformers has {want.shape}")
        std, bar = want.std(-1), BAR
        off = deviations(logits, want, std)
        if not np.isfinite(off).all():
            raise ValueError(f"{len(ids)} tokens: a logit is not a number")
        if off.max() > bar:
            double = double or loaded(tiny, folder, spec, True)
            noise = deviations(tiny.logits_of(double, ids).numpy(), want, std).max()
            bar = max(bar, NOISE * noise)
        if off.max() > bar:
            raise ValueError(f"{len(ids)} tokens: position {int(off.argmax())} is {off.max():.2g} of the deviation away, the bar is {bar:.2g}")
        if greedy[:len(best)] != best:
            raise ValueError(f"{len(ids)} tokens: greedy {greedy[:len(best)]}, transformers has {best}")
        worst, tokens = max(worst, float(off.max())), tokens + len(best)
    return worst, tokens, double is not None


# ---------------------------------------------------------------- goldens for those that have no ../shared
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
         "rms_norm_eps": 1e-5}
COMMON = {"dtype": "bfloat16", "tokenizer": [None, 96], "style": "v5"}
WRITTEN = [
    COMMON | {"name": "glm", "class": "GlmConfig", "seed": 5001, "lengths": [1, 17, 65], "config": SMALL | {
        "attention_bias": True, "max_position_embeddings": 1024, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}}},
    # Goldens of a context of 128: all prompts are longer than the model's own.
    COMMON | {"name": "llama-dynamic", "class": "LlamaConfig", "seed": 5002, "lengths": [17, 65], "context": 128, "longest_first": True, "config": SMALL | {
        "max_position_embeddings": 16, "rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic", "factor": 4.0}}},
]


def write(tiny, root):
    import numpy as np
    import torch
    from safetensors.torch import save_file
    for spec in WRITTEN:
        folder = build(tiny, spec, root)
        model, tensors = loaded(tiny, folder, spec), {}
        for t in spec["lengths"]:
            for attempt in range(20):
                ids = [int(i) for i in np.random.default_rng([spec["seed"], t, attempt]).integers(0, 96, t)]
                tokens, gaps = tiny.greedy(model, ids, None)
                if min(gaps) >= CLOSE:
                    break
            full = tiny.logits_of(model, ids)
            positions = tiny.pick_positions(t)
            tensors |= {f"p{t}.input_ids": torch.tensor(ids), f"p{t}.positions": torch.tensor(positions), f"p{t}.logits": full[positions].contiguous(),
                        f"p{t}.argmax": full.argmax(-1), f"p{t}.logsumexp": full.double().logsumexp(-1).float(), f"p{t}.logit_std": full.std(-1),
                        f"p{t}.greedy": torch.tensor(tokens)}
        save_file(tensors, os.path.join(folder, "goldens.safetensors"))
        for f in os.listdir(folder):
            os.chmod(os.path.join(folder, f), 0o644)
        print(f"{spec['name']}: smallest gap of the last prompt {min(gaps):.3f}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6)), a.add_argument("--rounds", type=int, default=1)
    a.add_argument("--only", default=""), a.add_argument("--seconds", type=float, default=1800), a.add_argument("--keep"), a.add_argument("--write")
    a = a.parse_args()
    tools = os.path.join(SHARED, "tools")
    if not os.path.exists(os.path.join(tools, "tiny_models.py")):
        return print("skipped: no ../shared")
    sys.path.insert(0, tools)
    import tiny_models as tiny
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    if a.write:
        return write(tiny, a.write)
    program, begun = os.environ["BARG_TEST_MODEL_LOGITS"], time.time()
    specs = json.load(open(os.path.join(SHARED, "models", "specs.json")))
    done, left, failed, worst, tokens, noisy = 0, 0, [], 0.0, 0, 0
    root = a.keep or tempfile.mkdtemp()
    for seed in range(a.seed, a.seed + a.rounds):
        print(f"seed {seed}", flush=True)
        for spec in Variants(seed, specs).all():
            if a.only not in spec["name"]:
                continue
            if time.time() - begun > a.seconds:
                left += 1
                continue
            try:
                off, count, float32 = compare(tiny, program, spec, root)
                print(f"{spec['name']:20} {off:.1e} of the deviation, {count} greedy tokens{', magnified rounding' if float32 else ''}", flush=True)
                done, noisy, tokens = done + 1, noisy + float32, tokens + count
                worst = worst if float32 else max(worst, off)
            except Exception as e:
                failed.append(f"{spec['name']} of seed {seed}")
                print(f"{spec['name']:20} FAILED {type(e).__name__}: {str(e)[:600]}\n{json.dumps(spec)}", flush=True)
            if not a.keep:
                shutil.rmtree(os.path.join(root, spec["name"]), ignore_errors=True)
    if not a.keep:
        shutil.rmtree(root, ignore_errors=True)
    late = f" ({left} more were left out for lack of time)" if left else ""
    print(f"{done} models, largest difference {worst:.1e} of the deviation, but for {noisy} that magnify rounding; {tokens} greedy tokens equal, "
          f"{len(failed)} failed{late}")
    if failed or done == 0:
        sys.exit("failed: " + ", ".join(failed or ["nothing was compared"]))


if __name__ == "__main__":
    main()
