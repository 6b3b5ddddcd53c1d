// Llama and what differs from it by flags only: SmolLM2 (tied), Llama 3.x (llama3 rope), Mistral (window).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "model/family.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxHeadDim = 256;  // what attention kernels are written for
constexpr std::int64_t kMaxFfn = 1 << 24;
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxPositions = 1 << 30;

/// What holds between the sizes, whatever the container.
void check_heads(FieldReader& f, const DecoderSpec& s, std::string_view heads, std::string_view kv,
                 std::string_view dim) {
  if (f.error()) return;
  if (s.num_kv_heads > s.num_q_heads || s.num_q_heads % s.num_kv_heads != 0) {
    f.refuse(ErrorCode::kBadFile,
             std::to_string(s.num_q_heads) + " attention heads are not a multiple of " +
                 std::to_string(s.num_kv_heads) + " key/value heads",
             kv);
  }
  if (s.head_dim < 2 || s.head_dim % 2 != 0)
    f.refuse(ErrorCode::kBadFile, "the head size " + std::to_string(s.head_dim) + " is not an even number",
             dim);
  if (std::int64_t{s.num_q_heads} * s.head_dim > kMaxHidden * 4) {
    f.refuse(
        ErrorCode::kBadFile,
        "the attention width " + std::to_string(std::int64_t{s.num_q_heads} * s.head_dim) + " is too large",
        heads);
  }
}

void refuse_value(FieldReader& f, std::string_view key, const std::string& value, const char* known) {
  f.refuse(ErrorCode::kUnsupported,
           std::string(key) + ": " + value + " is not supported yet (known: " + known + ")", key);
}

/// Fields that change the answer when they are there and are not implemented.
void refuse_unsupported_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  const std::string act = f.text("hidden_act", "silu");
  if (act != "silu" && act != "swish") refuse_value(f, "hidden_act", '"' + printable(act) + '"', "silu");
  const Json* quant = in.config->find("quantization_config");
  if (quant != nullptr && !quant->is_null()) {
    const Json* method = quant->find("quant_method");
    refuse_value(
        f, "quantization_config.quant_method",
        method != nullptr && method->is_string() ? '"' + printable(method->as_string()) + '"' : "null",
        "none");
  }
  if (f.real("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    refuse_value(f, "partial_rotary_factor", "a value below 1", "1");
}

/// `layer_types` if given, else every layer gets `window`.
std::vector<LayerSpec> layers_from_hf(const FamilyInput& in, std::int32_t num_layers, std::int32_t window) {
  std::vector<LayerSpec> layers(static_cast<std::size_t>(num_layers), LayerSpec{window});
  const Json* types = in.config->find("layer_types");
  if (types == nullptr || types->is_null() || in.fields.error()) return layers;
  if (!types->is_array() || types->size() != layers.size()) {
    in.fields.refuse(ErrorCode::kBadFile, "layer_types is not a list with one entry a layer", "layer_types");
    return layers;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Json& t = types->as_array()[i];
    const std::string name = t.is_string() ? t.as_string() : "not a string";
    if (name == "full_attention") {
      layers[i].window = 0;
    } else if (name != "sliding_attention") {
      refuse_value(in.fields, "layer_types", '"' + printable(name) + '"',
                   "full_attention, sliding_attention");
    } else if (window == 0) {
      in.fields.refuse(ErrorCode::kBadFile, "layer_types has sliding_attention but sliding_window is not set",
                       "sliding_window");
    }
  }
  return layers;
}

/// tie_word_embeddings wins; when it is missing, a stored lm_head decides.
bool tied_from_hf(const FamilyInput& in) {
  return in.fields.boolean("tie_word_embeddings", in.files.find("output.weight") == nullptr);
}

/// Keys of newer families that would change a llama graph; 0 (or 1 for scales) means off.
void refuse_unsupported_gguf(FieldReader& f) {
  const auto must_be = [&](const char* key, double off) {
    if (f.real(key, -1e30, 1e30, off) != off) {
      f.refuse(ErrorCode::kUnsupported,
               "metadata key " + f.full_name(key) + " is set, which is not supported yet", key);
    }
  };
  for (const char* key :
       {"expert_count", "attn_logit_softcapping", "final_logit_softcapping", "attention.shared_kv_layers",
        "attention.clamp_kqv", "attention.sliding_window_pattern", "attention.q_lora_rank", "attention.kv_lora_rank"}) {
    must_be(key, 0);
  }
  for (const char* key : {"embedding_scale", "residual_scale", "logit_scale"}) must_be(key, 1);
}

std::int32_t rows_of(const ModelFiles& files, const char* name) {
  const Tensor* t = files.find(name);
  if (t == nullptr || t->shape.size() != 2 || t->shape[0] > kMaxVocab) return 0;
  return static_cast<std::int32_t>(t->shape[0]);
}

/// Rows of the embedding, against what the metadata say about the vocabulary.
std::int32_t vocab_rows_from_gguf(const FamilyInput& in) {
  const std::int32_t rows = rows_of(in.files, "token_embd.weight");
  if (rows <= 0) {
    in.fields.refuse(ErrorCode::kBadFile, "tensor token_embd.weight is missing or not a matrix",
                     "vocab_size");
    return 1;
  }
  const std::int64_t declared = in.fields.integer("vocab_size", 1, kMaxVocab, rows);
  const GgufValue* tokens = in.gguf->find("tokenizer.ggml.tokens");
  if (declared != rows || (tokens != nullptr && tokens->count != static_cast<std::uint64_t>(rows))) {
    in.fields.refuse(
        ErrorCode::kBadFile,
        "the vocabulary has " +
            std::to_string(declared != rows ? static_cast<std::uint64_t>(declared) : tokens->count) +
            " tokens but the embedding has " + std::to_string(rows) + " rows",
        "vocab_size");
  }
  return rows;
}

/// Whether one of the projections has a bias in the first layer; then check_tensors wants it of all of them.
bool any_bias(const ModelFiles& files, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    return files.find(std::string("blk.0.") + name + ".bias") != nullptr;
  });
}

}  // namespace

RopeSpec rope_from_hf(const FamilyInput& in, std::int32_t rotary_dim) {
  RopeSpec rope;
  rope.rotary_dim = rotary_dim;
  const Json* v5 = in.config->find("rope_parameters");
  const bool new_spelling = v5 != nullptr && !v5->is_null();
  const char* name = new_spelling ? "rope_parameters" : "rope_scaling";
  const Json* scaling = new_spelling ? v5 : in.config->find("rope_scaling");
  rope.theta = in.fields.real("rope_theta", 1e-3, 1e18, 10000.0);
  if (scaling == nullptr || scaling->is_null()) return rope;
  if (!scaling->is_object()) {
    in.fields.refuse(ErrorCode::kBadFile, std::string(name) + " is not an object", name);
    return rope;
  }
  JsonFieldReader f(*scaling, name);
  const std::string key = f.has("rope_type") || !f.has("type") ? "rope_type" : "type";
  const std::string type = f.text(key, "default");
  rope.theta = f.real("rope_theta", 1e-3, 1e18, rope.theta);
  if (f.real("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    refuse_value(f, "partial_rotary_factor", "a value below 1", "1");
  for (const auto& [member, value] : scaling->as_object()) {
    if (value.is_object())
      f.refuse(
          ErrorCode::kUnsupported,
          std::string(name) + "." + printable(member) + ": settings per layer type are not supported yet",
          member);
  }
  if (type == "linear") {
    rope.kind = RopeSpec::Kind::kLinear;
    rope.factor = f.real("factor", 1e-6, 1e6);
  } else if (type == "llama3") {
    rope.kind = RopeSpec::Kind::kLlama3;
    rope.factor = f.real("factor", 1e-6, 1e6);
    rope.low_freq_factor = f.real("low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = f.real("high_freq_factor", 1e-6, 1e6);
    rope.original_max_positions = f.real("original_max_position_embeddings", 1, 1e12);
    if (!f.error() && rope.high_freq_factor <= rope.low_freq_factor) {
      f.refuse(ErrorCode::kBadFile, std::string(name) + ".high_freq_factor is not above low_freq_factor",
               "high_freq_factor");
    }
  } else if (type != "default") {
    refuse_value(f, std::string(name) + "." + key, '"' + printable(type) + '"', "default, linear, llama3");
  }
  if (f.error()) in.fields.refuse(f.error()->code, f.error()->message, name);
  return rope;
}

RopeSpec rope_from_gguf(const FamilyInput& in, std::int32_t rotary_dim) {
  RopeSpec rope;
  rope.rotary_dim = rotary_dim;
  FieldReader& f = in.fields;
  rope.theta = f.real("rope.freq_base", 1e-3, 1e18, 10000.0);
  const double old_scale = f.real("rope.scale_linear", 1e-6, 1e6, 1.0);
  const double factor = f.real("rope.scaling.factor", 0, 1e6, old_scale);
  const std::string type = f.text("rope.scaling.type", "linear");
  if (type != "linear" && type != "none")
    refuse_value(f, "rope.scaling.type", '"' + printable(type) + '"', "none, linear");
  if (type == "linear" && factor != 0 && factor != 1) {  // writers use 0 for "no scaling"
    rope.kind = RopeSpec::Kind::kLinear;
    rope.factor = factor;
  }
  if (f.real("rope.scaling.attn_factor", 0, 1e6, 1.0) != 1.0)
    refuse_value(f, "rope.scaling.attn_factor", "a value other than 1", "1");
  const Tensor* freqs = in.files.find("rope_freqs.weight");
  if (freqs == nullptr) return rope;
  if (freqs->type.dtype != DType::kF32 || freqs->shape != std::vector<std::int64_t>{rotary_dim / 2}) {
    f.refuse(ErrorCode::kBadFile,
             "tensor rope_freqs.weight is not F32 with " + std::to_string(rotary_dim / 2) + " elements",
             "rope_freqs.weight");
    return rope;
  }
  rope.divisors.resize(static_cast<std::size_t>(rotary_dim / 2));
  std::memcpy(rope.divisors.data(), freqs->bytes.data(), freqs->bytes.size());
  for (const float d : rope.divisors) {
    if (!(d > 0) || !std::isfinite(d))
      f.refuse(ErrorCode::kBadFile, "tensor rope_freqs.weight has a value that is not positive",
               "rope_freqs.weight");
  }
  return rope;
}

Result<DecoderSpec> llama_like_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  DecoderSpec s;
  refuse_unsupported_hf(in);
  s.hidden = static_cast<std::int32_t>(f.integer("hidden_size", 1, kMaxHidden));
  s.num_layers = static_cast<std::int32_t>(f.integer("num_hidden_layers", 1, kMaxLayers));
  s.num_q_heads = static_cast<std::int32_t>(f.integer("num_attention_heads", 1, kMaxHeads));
  s.num_kv_heads = static_cast<std::int32_t>(f.integer("num_key_value_heads", 1, kMaxHeads, s.num_q_heads));
  if (!f.has("head_dim") && s.hidden % s.num_q_heads != 0) {
    f.refuse(ErrorCode::kBadFile,
             "hidden_size is not a multiple of num_attention_heads and head_dim is not given", "head_dim");
  }
  s.head_dim = static_cast<std::int32_t>(f.integer("head_dim", 2, kMaxHeadDim, s.hidden / s.num_q_heads));
  s.ffn = static_cast<std::int32_t>(f.integer("intermediate_size", 1, kMaxFfn));
  s.vocab_rows = static_cast<std::int32_t>(f.integer("vocab_size", 1, kMaxVocab));
  s.max_positions = static_cast<std::int32_t>(f.integer("max_position_embeddings", 1, kMaxPositions, 2048));
  s.rms_eps = static_cast<float>(f.real("rms_norm_eps", 1e-20, 1, 1e-6));
  check_heads(f, s, "num_attention_heads", "num_key_value_heads", "head_dim");
  s.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  s.tied = tied_from_hf(in);
  s.rope = rope_from_hf(in, s.head_dim);
  s.layers.assign(static_cast<std::size_t>(s.num_layers), LayerSpec{});
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> llama_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  s->mlp_bias = in.fields.boolean("mlp_bias", false);
  s->layers = layers_from_hf(in, s->num_layers, 0);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> mistral_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  // transformers' default when the key is not there; null says that there is no window.
  const std::int64_t absent = in.config->find("sliding_window") == nullptr ? 4096 : 0;
  const auto window = in.fields.integer("sliding_window", 1, kMaxPositions, absent);
  s->layers = layers_from_hf(in, s->num_layers, static_cast<std::int32_t>(window));
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> llama_like_from_gguf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  DecoderSpec s;
  refuse_unsupported_gguf(f);
  s.hidden = static_cast<std::int32_t>(f.integer("embedding_length", 1, kMaxHidden));
  s.num_layers = static_cast<std::int32_t>(f.integer("block_count", 1, kMaxLayers));
  s.num_q_heads = static_cast<std::int32_t>(f.integer("attention.head_count", 1, kMaxHeads));
  s.num_kv_heads =
      static_cast<std::int32_t>(f.integer("attention.head_count_kv", 1, kMaxHeads, s.num_q_heads));
  if (!f.has("attention.key_length") && s.hidden % s.num_q_heads != 0) {
    f.refuse(
        ErrorCode::kBadFile,
        "embedding_length is not a multiple of attention.head_count and attention.key_length is not given",
        "attention.key_length");
  }
  s.head_dim =
      static_cast<std::int32_t>(f.integer("attention.key_length", 2, kMaxHeadDim, s.hidden / s.num_q_heads));
  if (f.integer("attention.value_length", 1, kMaxHeadDim, s.head_dim) != s.head_dim) {
    f.refuse(ErrorCode::kUnsupported,
             "attention.value_length differs from attention.key_length, which is not supported yet",
             "attention.value_length");
  }
  if (f.integer("rope.dimension_count", 0, kMaxHeadDim, s.head_dim) != s.head_dim) {
    f.refuse(ErrorCode::kUnsupported,
             "rope.dimension_count differs from the head size " + std::to_string(s.head_dim) +
                 ", which is not supported yet",
             "rope.dimension_count");
  }
  s.ffn = static_cast<std::int32_t>(f.integer("feed_forward_length", 1, kMaxFfn));
  s.max_positions = static_cast<std::int32_t>(f.integer("context_length", 1, kMaxPositions));
  s.rms_eps = static_cast<float>(f.real("attention.layer_norm_rms_epsilon", 1e-20, 1));
  check_heads(f, s, "attention.head_count", "attention.head_count_kv", "attention.key_length");
  s.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  const double scale = f.real("attention.scale", 0, 1e6, 0.0);
  if (scale != 0) s.attention_scale = static_cast<float>(scale);
  s.tied = in.files.find("output.weight") == nullptr;
  s.vocab_rows = vocab_rows_from_gguf(in);
  s.rope = rope_from_gguf(in, s.head_dim);
  const auto window = static_cast<std::int32_t>(f.integer("attention.sliding_window", 0, kMaxPositions, 0));
  s.layers.assign(static_cast<std::size_t>(s.num_layers), LayerSpec{window});
  s.qkv_bias = any_bias(in.files, {"attn_q", "attn_k", "attn_v"});
  s.o_bias = any_bias(in.files, {"attn_output"});
  s.mlp_bias = any_bias(in.files, {"ffn_gate", "ffn_up", "ffn_down"});
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> llama_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in);
  if (s) s->permuted_qk = true;
  return s;
}

}  // namespace barg::model
