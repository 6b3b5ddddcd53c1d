// BERT: an encoder. Every token sees its whole prompt; learned positions and token types, norms behind the halves, biases
// everywhere, a feed-forward half without a gate. It generates nothing: it is pooled (pooling.h).
#include <cmath>
#include <optional>
#include <string>

#include "model/family.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr TensorName kNames[] = {
    {"attention.self.query", "attn_q"},
    {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"},
    {"attention.output.dense", "attn_output"},
    {"attention.output.LayerNorm", "attn_output_norm"},
    {"intermediate.dense", "ffn_up"},
    {"output.dense", "ffn_down"},
    {"output.LayerNorm", "layer_output_norm"},
};

constexpr std::int64_t kMaxHidden = 1 << 20, kMaxLayers = 4096, kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxRows = 1 << 24, kMaxPositions = 1 << 24;

/// What the two containers call the sizes.
struct Keys {
  const char *hidden, *layers, *heads, *ffn, *eps, *positions;
  std::optional<double> usual_eps = {};  ///< where the key is not there
};

/// All but the tables' rows.
DecoderSpec read_sizes(FieldReader& f, const Keys& keys) {
  DecoderSpec s;
  const auto size = [&](const char* key, std::int64_t most) { return static_cast<std::int32_t>(f.integer(key, 1, most)); };
  s.hidden = size(keys.hidden, kMaxHidden);
  s.num_layers = size(keys.layers, kMaxLayers);
  s.num_q_heads = s.num_kv_heads = size(keys.heads, kMaxHeads);
  s.ffn = size(keys.ffn, kMaxFfn);
  s.max_positions = s.tables.positions = size(keys.positions, kMaxPositions);
  s.head_dim = s.hidden / s.num_q_heads;
  if (s.hidden % s.num_q_heads != 0 || s.head_dim % 2 != 0 || s.head_dim < 2 || s.head_dim > kMaxHeadDim) {
    f.refuse(ErrorCode::kBadFile,
             std::to_string(s.num_q_heads) + " attention heads do not divide " + std::to_string(s.hidden) +
                 " numbers into even sizes of at most " + std::to_string(kMaxHeadDim),
             keys.heads);
    s.head_dim = 2;
  }
  s.norm = {.kind = ops::NormKind::kLayer,
            .eps = static_cast<float>(f.real(keys.eps, 0, 1, keys.usual_eps)),
            .offset = 0,
            .bias = true};
  s.norm_place = NormPlace::kBehind;
  s.activation = ops::Activation::kGeluErf;
  s.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
  s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.bidirectional = true;
  s.gated = s.final_norm = false;
  LayerSpec layer;
  layer.rope = -1;
  s.layers.assign(static_cast<std::size_t>(s.num_layers), layer);
  return s;
}

}  // namespace

const TensorNames kBertNames = kNames;

Result<DecoderSpec> bert_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  DecoderSpec s = read_sizes(f, {.hidden = "hidden_size",
                                 .layers = "num_hidden_layers",
                                 .heads = "num_attention_heads",
                                 .ffn = "intermediate_size",
                                 .eps = "layer_norm_eps",
                                 .positions = "max_position_embeddings"});
  s.vocab_rows = static_cast<std::int32_t>(f.integer("vocab_size", 1, kMaxRows));
  s.tables.types = static_cast<std::int32_t>(f.integer("type_vocab_size", 1, kMaxRows));
  const std::string act = f.text("hidden_act", "gelu");
  if (act == "gelu_new" || act == "gelu_pytorch_tanh") {
    s.activation = ops::Activation::kGeluTanh;
  } else if (act != "gelu") {
    refuse_value(f, "hidden_act", '"' + printable(act) + '"', "gelu, gelu_new, gelu_pytorch_tanh");
  }
  const std::string positions = f.text("position_embedding_type", "absolute");
  if (positions != "absolute") refuse_value(f, "position_embedding_type", '"' + printable(positions) + '"', "absolute");
  for (const char* flag : {"is_decoder", "add_cross_attention"}) {
    if (f.boolean(flag, false)) refuse_value(f, flag, "true", "false");
  }
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> bert_from_gguf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  DecoderSpec s = read_sizes(f, {.hidden = "embedding_length",
                                 .layers = "block_count",
                                 .heads = "attention.head_count",
                                 .ffn = "feed_forward_length",
                                 .eps = "attention.layer_norm_epsilon",
                                 .positions = "context_length",
                                 .usual_eps = 1e-12});
  const auto rows = [&](const char* name) {
    const Tensor* t = in.files.find(name);
    const bool known = t != nullptr && t->shape.size() == 2 && t->shape[0] >= 1 && t->shape[0] <= kMaxRows;
    if (!known) f.refuse(ErrorCode::kBadFile, std::string("tensor ") + name + " is missing or not a matrix", name);
    return known ? static_cast<std::int32_t>(t->shape[0]) : 1;
  };
  s.vocab_rows = rows("token_embd.weight");
  s.tables.types = rows("token_types.weight");
  if (f.boolean("attention.causal", false)) refuse_value(f, "attention.causal", "true", "false");
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
