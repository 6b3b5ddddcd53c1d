"""Turns a Llama-family GGUF file with a byte-level BPE vocabulary into a Hugging Face directory in bfloat16.

    to_hf.py MODEL.gguf DIR

For peers that read no GGUF. Weights are dequantised and rounded once to bfloat16, so a peer computes with at least
the precision of the file. Needs gguf, torch, safetensors and tokenizers (the vllm environment has all but gguf).
"""

import json
import pathlib
import sys

import numpy
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3  # GGUF's token type of special tokens

LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def value(reader, key, default=None):
    field = reader.fields.get(key)
    return default if field is None else field.contents()


def halves(weight, heads):
    """GGUF stores the rows of a q or k head interleaved; Hugging Face wants the two halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def hf_name(name):
    base = name.removesuffix(".weight")
    if not base.startswith("blk."):
        return TOP[base] + ".weight"
    _, layer, part = base.split(".", 2)
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def write_weights(reader, heads, kv_heads, path):
    tensors = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if tensor.name.endswith("attn_q.weight"):
            weight = halves(weight, heads)
        elif tensor.name.endswith("attn_k.weight"):
            weight = halves(weight, kv_heads)
        tensors[hf_name(tensor.name)] = torch.from_numpy(numpy.ascontiguousarray(weight)).to(torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})
    return "lm_head.weight" not in tensors


def write_tokenizer(reader, folder):
    tokens = value(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in value(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = value(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, k in zip(tokens, types) if k == CONTROL])
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokens[value(reader, "tokenizer.ggml.eos_token_id")]
    begin = tokens[value(reader, "tokenizer.ggml.bos_token_id")]
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": end,
                    "chat_template": value(reader, "tokenizer.chat_template")}, indent=1)
    )


def main():
    reader = GGUFReader(sys.argv[1])
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    heads = value(reader, "llama.attention.head_count")
    kv_heads = value(reader, "llama.attention.head_count_kv", heads)
    tied = write_weights(reader, heads, kv_heads, folder / "model.safetensors")
    write_tokenizer(reader, folder)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": value(reader, "llama.embedding_length"),
        "intermediate_size": value(reader, "llama.feed_forward_length"),
        "num_hidden_layers": value(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": value(reader, "llama.context_length"),
        "rms_norm_eps": float(value(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": float(value(reader, "llama.rope.freq_base", 10000.0)),
        "vocab_size": len(value(reader, "tokenizer.ggml.tokens")),
        "tie_word_embeddings": tied,
        "bos_token_id": value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": value(reader, "tokenizer.ggml.eos_token_id"),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
