"""Writes what transformers' configuration classes make of keys that a config.json leaves out:
tests/data/configs/classes.json (the defaults of each class, and a whole configuration of nothing but them) and
left_out.json (for each checkpoint of ../shared/data and each key of its config.json: what the configuration has
elsewhere once that key is gone).

    pip install torch transformers==5.24.0
    python tests/tools/config_classes.py ../shared/data/models tests/data/configs

Members that no model depends on are left out of both."""

import copy
import dataclasses
import json
import math
import os
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

CLASSES = """llama smollm3 mistral ministral3 qwen2 qwen3 bert qwen3_next qwen3_5_text qwen3_5_moe_text mamba2 bamba
granitemoehybrid falcon_h1 lfm2 gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text phi3 olmo2 olmo3
granite cohere cohere2 mixtral qwen3_moe gpt_oss minimax_m2 deepseek_v2 deepseek_v3 glm4_moe glm glm4 stablelm""".split()

NOT_READ = set("""transformers_version architectures model_type output_hidden_states return_dict dtype torch_dtype _name_or_path
chunk_size_feed_forward is_encoder_decoder id2label label2id problem_type initializer_range use_cache attention_dropout
output_attentions pretraining_tp router_jitter_noise router_aux_loss_coef output_router_logits num_logits_to_keep
z_loss_coefficient hidden_dropout resid_pdrop embd_pdrop hidden_dropout_prob attention_probs_dropout_prob
residual_in_fp32 time_step_min time_step_max time_step_floor time_step_rank rescale_prenorm_residual mamba_chunk_size
chunk_size altup_coef_clip num_mtp_layers is_causal classifier_dropout qk_head_dim""".split())


def read(key):
    return key not in NOT_READ and not key.endswith(("token_id", "token_index"))


def plain(value):
    """As JSON: infinity as transformers writes it."""
    if isinstance(value, float) and math.isinf(value):
        return {"__float__": "Infinity"}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value


def tagless(value):
    """The inverse."""
    if isinstance(value, dict) and set(value) == {"__float__"}:
        return float(value["__float__"].lower().replace("infinity", "inf"))
    if isinstance(value, dict):
        return {k: tagless(v) for k, v in value.items()}
    return [tagless(v) for v in value] if isinstance(value, list) else value


def whole(cls, config):
    made = cls.from_dict(tagless(config)).to_dict()
    return {k: plain(v) for k, v in made.items() if read(k)}


def defaults(cls):
    return {f.name: plain(f.default) for f in dataclasses.fields(cls)
            if read(f.name) and f.default is not None and f.default is not dataclasses.MISSING}


def paths(config, before=()):
    """Of the keys, and of those of objects inside: of a rope."""
    for key, value in config.items():
        if not before and not read(key):
            continue
        yield (*before, key)
        if isinstance(value, dict) and key != "__float__":
            yield from paths(value, (*before, key))


def without(config, path):
    out = copy.deepcopy(config)
    at = out
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return out


def left_out(config):
    cls = CONFIG_MAPPING[config["model_type"]]
    full = whole(cls, config)
    out = {}
    for path in paths(config):
        try:
            cut = whole(cls, without(config, path))
        except Exception:
            continue  # transformers wants the key
        out[".".join(path)] = {k: v for k, v in cut.items() if k not in full or full[k] != v}
    return out


def main(models, to):
    classes = {t: {"fields": defaults(CONFIG_MAPPING[t]), "whole": whole(CONFIG_MAPPING[t], {})} for t in CLASSES}
    changes = {}
    for name in sorted(os.listdir(models)):
        path = os.path.join(models, name, "config.json")
        if os.path.exists(path):
            changes[name] = left_out(json.load(open(path)))
    for name, data in (("classes", classes), ("left_out", changes)):
        with open(os.path.join(to, name + ".json"), "w") as f:
            f.write("{\n" + ",\n".join(json.dumps(k) + ":" + json.dumps(v, separators=(",", ":"))
                                        for k, v in data.items()) + "\n}\n")


main(*sys.argv[1:])
