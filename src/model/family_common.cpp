// What the builders of families share: sizes, rope, windows, and refusals of what would change the answer.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include "model/family.h"
#include "model/printable.h"
#include "model/rope.h"

namespace barg::model {
namespace {

constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxHeads = 1 << 16;
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

/// Fields that change the answer when they are there and are not implemented.
void refuse_unsupported_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  const Json* bidirectional = in.config->find("use_bidirectional_attention");
  if (bidirectional != nullptr && bidirectional->is_string()) {  // "vision": text is causal
    if (bidirectional->as_string() != "vision")
      refuse_value(f, "use_bidirectional_attention", '"' + printable(bidirectional->as_string()) + '"',
                   "vision");
  } else if (f.boolean("use_bidirectional_attention", false)) {
    refuse_value(f, "use_bidirectional_attention", "true", "false");
  }
  if (!f.boolean("is_causal", true)) refuse_value(f, "is_causal", "false", "true");
}

ops::Activation activation_from_hf(FieldReader& f, std::string_view key, ops::Activation usual) {
  const std::string name = f.text(key, "");
  if (name.empty()) return usual;
  if (name == "silu" || name == "swish") return ops::Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ops::Activation::kGeluTanh;
  refuse_value(f, key, '"' + printable(name) + '"', "silu, gelu_pytorch_tanh");
  return usual;
}

/// What longrope multiplies cos and sin with, for a context that is `stretch` times as long as the original.
double longrope_magnitude(double stretch, double original) {
  return stretch <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(original));
}

/// tie_word_embeddings wins; when it is missing, and so not true for the class, a stored lm_head decides.
bool tied_from_hf(const FamilyInput& in) {
  return in.fields.boolean("tie_word_embeddings", in.files.find("output.weight") == nullptr);
}

/// Keys that would change a llama graph, but for those that the family knows; 0 (or 1 for scales) means off.
void refuse_unsupported_gguf(FieldReader& f, std::span<const std::string_view> known) {
  const auto must_be = [&](const char* key, double off) {
    if (std::find(known.begin(), known.end(), key) != known.end()) return;
    if (f.real(key, -1e30, 1e30, off) != off) {
      f.refuse(ErrorCode::kUnsupported,
               "metadata key " + f.full_name(key) + " is set, which is not supported yet", key);
    }
  };
  for (const char* key : {"expert_count", "attn_logit_softcapping", "final_logit_softcapping",
                          "attention.shared_kv_layers", "attention.clamp_kqv", "attention.q_lora_rank",
                          "attention.kv_lora_rank", "attention.temperature_scale"}) {
    must_be(key, 0);
  }
  for (const char* key : {"embedding_scale", "residual_scale", "logit_scale"}) must_be(key, 1);
  if (!f.boolean("attention.causal", true)) refuse_value(f, f.full_name("attention.causal"), "false", "true");
}

std::int32_t rows_of(const ModelFiles& files, const char* name) {
  const Tensor* t = files.find(name);
  if (t == nullptr || t->shape.size() != 2 || t->shape[0] > kMaxVocab) return 0;
  return static_cast<std::int32_t>(t->shape[0]);
}

}  // namespace

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

namespace {

/// Whether one of a layer's projections has a bias; then check_tensors wants it of all layers.
bool any_bias(const ModelFiles& files, const std::string& blk, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return files.find(blk + name + ".bias") != nullptr; });
}

/// How the file stores attention, as its first layer with attention does.
void attention_form_from_gguf(const FamilyInput& in, DecoderSpec& s) {
  const std::string blk = first_layer_with(s, has_attention);
  if (blk.empty()) return;
  s.fused_qkv = in.files.find(blk + "attn_qkv.weight") != nullptr;
  s.qkv_bias = any_bias(in.files, blk, {"attn_q", "attn_k", "attn_v", "attn_qkv"});
  s.o_bias = any_bias(in.files, blk, {"attn_output"});
}

/// One number a layer, or one for all; empty behind a problem.
std::vector<std::int64_t> numbers_by_layer(const FamilyInput& in, std::string_view key,
                                           std::int32_t num_layers, std::int64_t high) {
  const std::string name = in.fields.full_name(key);
  const auto bad = [&](const std::string& message) {
    in.fields.refuse(ErrorCode::kBadFile, "metadata key " + name + message, key);
    return std::vector<std::int64_t>();
  };
  const auto read = in.gguf->integers(name);
  if (!read) {
    in.fields.refuse(read.error().code, read.error().message, key);
    return {};
  }
  if (!*read) return bad(" is missing");
  std::vector<std::int64_t> values = **read;
  if (values.size() == 1) values.assign(static_cast<std::size_t>(num_layers), values[0]);
  if (values.size() != static_cast<std::size_t>(num_layers)) return bad(" has no entry for each layer");
  const auto out = [&](std::int64_t v) { return v < 0 || v > high; };
  if (std::any_of(values.begin(), values.end(), out)) return bad(" is out of range");
  return values;
}

constexpr std::string_view kKvHeads = "attention.head_count_kv";

/// Of the layers that attend, which must have equally many.
std::int32_t kv_heads_of_some(const FamilyInput& in, std::int32_t num_layers) {
  std::int64_t heads = 0;
  for (const std::int64_t n : numbers_by_layer(in, kKvHeads, num_layers, kMaxHeads)) {
    if (n != 0 && heads != 0 && n != heads) {
      in.fields.refuse(ErrorCode::kUnsupported,
                       "metadata key " + in.fields.full_name(kKvHeads) +
                           " differs between layers with attention, which is not supported yet",
                       kKvHeads);
    }
    heads = std::max(heads, n);
  }
  return static_cast<std::int32_t>(std::max<std::int64_t>(heads, 1));
}

}  // namespace

RecurrentSpec recurrent_sizes_from_gguf(FieldReader& f) {
  const auto size = [&](const char* key, std::int64_t most) {
    return static_cast<std::int32_t>(f.integer(key, 1, most));
  };
  RecurrentSpec r;
  r.kernel = size("ssm.conv_kernel", ops::kMaxConvKernel);
  r.groups = size("ssm.group_count", kMaxStateHeads);
  r.state_size = size("ssm.state_size", kMaxStateDim);
  r.heads = size("ssm.time_step_rank", kMaxStateHeads);
  const std::int32_t inner = size("ssm.inner_size", kMaxStateHeads * kMaxStateDim);
  r.head_dim = inner / r.heads;
  r.converted = true;
  if (f.error()) return r;
  if (r.kernel < 2) refuse_value(f, "ssm.conv_kernel", "1", "2, 3, 4");
  if (r.inner() != inner || r.head_dim > kMaxStateDim) {
    f.refuse(
        ErrorCode::kBadFile,
        "an inner size of " + std::to_string(inner) + " is not that of " + std::to_string(r.heads) + " heads",
        "ssm.inner_size");
  } else if (r.heads % r.groups != 0) {
    f.refuse(ErrorCode::kBadFile,
             std::to_string(r.heads) + " heads are not a multiple of " + std::to_string(r.groups) + " groups",
             "ssm.time_step_rank");
  }
  return r;
}

std::string first_layer_with(const DecoderSpec& s, bool (*has)(MixerKind)) {
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    if (has(s.layers[i].mixer)) return "blk." + std::to_string(i) + ".";
  }
  return {};
}

void mixers_from_gguf(const FamilyInput& in, DecoderSpec& s, MixerKind mixer) {
  const auto heads = numbers_by_layer(in, kKvHeads, s.num_layers, kMaxHeads);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (heads[i] == 0) s.layers[i].mixer = mixer;
  }
  attention_form_from_gguf(in, s);
}

void mixers_by_interval_from_gguf(const FamilyInput& in, DecoderSpec& s, MixerKind mixer) {
  static constexpr std::string_view kList = "attention.recurrent_layers";
  const auto every = in.fields.integer("full_attention_interval", 1, kMaxLayers, 4);
  std::vector<std::int64_t> recurrent;
  for (std::int32_t i = 0; i < s.num_layers; ++i) recurrent.push_back((i + 1) % every != 0);
  // The list has entries for the layers that predict further tokens too.
  if (in.fields.has(kList)) recurrent = numbers_by_layer(in, kList, s.num_layers + s.skipped_layers, 1);
  for (std::size_t i = 0; i < s.layers.size() && i < recurrent.size(); ++i) {
    if (recurrent[i] != 0) s.layers[i].mixer = mixer;
  }
  attention_form_from_gguf(in, s);
}

void drop_prediction_layers(const FamilyInput& in, DecoderSpec& s) {
  s.skipped_layers =
      static_cast<std::int32_t>(in.fields.integer("nextn_predict_layers", 0, s.num_layers - 1, 0));
  s.num_layers -= s.skipped_layers;
  s.layers.resize(static_cast<std::size_t>(s.num_layers));
}

void refuse_value(FieldReader& f, std::string_view key, const std::string& value, const char* known) {
  f.refuse(ErrorCode::kUnsupported,
           std::string(key) + ": " + value + " is not supported yet (known: " + known + ")", key);
}

namespace {

/// Where config.json says how positions are encoded.
struct RopeSource {
  const Json* object = nullptr;  ///< null: only rope_theta, at the top
  std::string name;
};

bool has_objects(const Json& object) {
  return object.is_object() && std::any_of(object.as_object().begin(), object.as_object().end(),
                                           [](const Json::Member& m) { return m.second.is_object(); });
}

/// rope_parameters (transformers 5; one object, or one for each layer type) or rope_scaling (4). Of a file that has
/// both the second holds, as in transformers, where the first is not about layer types.
RopeSource whole_rope(const FamilyInput& in) {
  const Json* v5 = in.config->find("rope_parameters");
  const Json* v4 = in.config->find("rope_scaling");
  const bool old_too = v4 != nullptr && v4->is_object() && v4->size() > 0;
  const bool new_spelling = v5 != nullptr && !v5->is_null() && (!old_too || has_objects(*v5));
  RopeSource out{new_spelling ? v5 : v4, new_spelling ? "rope_parameters" : "rope_scaling"};
  if (out.object == nullptr || out.object->is_null()) return {nullptr, out.name};
  if (out.object->is_object()) return out;
  in.fields.refuse(ErrorCode::kBadFile, out.name + " is not an object", out.name);
  return {nullptr, out.name};
}

RopeSource rope_source(const FamilyInput& in, std::string_view layer_type) {
  RopeSource out = whole_rope(in);
  if (out.object == nullptr) return out;
  const Json* own = layer_type.empty() ? nullptr : out.object->find(layer_type);
  if (own != nullptr && own->is_object()) return {own, out.name + "." + std::string(layer_type)};
  for (const auto& [member, value] : out.object->as_object()) {
    if (!value.is_object()) continue;
    // Of another type of layer: those of this one rotate plainly.
    if (!layer_type.empty() && member.ends_with("_attention")) return {nullptr, out.name};
    in.fields.refuse(ErrorCode::kUnsupported,
                     out.name + "." + printable(member) + ": settings per layer type are not supported here",
                     member);
  }
  return out;
}

/// [n] positive numbers.
std::vector<float> divisors_from(FieldReader& f, const Json& object, const char* key, std::int32_t n) {
  const Json* list = object.find(key);
  std::vector<float> out;
  if (list != nullptr && list->is_array() && list->size() == static_cast<std::size_t>(n)) {
    for (const Json& v : list->as_array()) {
      const double d = v.is_number() ? v.as_double() : 0;
      if (d >= 1e-6 && d <= 1e12) out.push_back(static_cast<float>(d));
    }
  }
  if (out.size() != static_cast<std::size_t>(n)) {
    f.refuse(ErrorCode::kBadFile,
             f.full_name(key) + " is not a list of " + std::to_string(n) + " positive numbers", key);
    out.assign(static_cast<std::size_t>(n), 1.0f);
  }
  return out;
}

/// What only some kinds have, from the object that names the kind.
struct RopeFields {
  const FamilyInput& in;
  FieldReader& f;
  const Json& object;
  RopeSpec& rope;
  bool original_at_top;

  double longest() const { return in.fields.real("max_position_embeddings", 1, kMaxPositions); }
  void llama3() const {
    rope.kind = RopeSpec::Kind::kLlama3;
    rope.factor = f.real("factor", 1e-6, 1e6);
    rope.low_freq_factor = f.real("low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = f.real("high_freq_factor", 1e-6, 1e6);
    rope.original_max_positions = f.real("original_max_position_embeddings", 1, 1e12, longest());
    if (!f.error() && rope.high_freq_factor <= rope.low_freq_factor) {
      f.refuse(ErrorCode::kBadFile, f.full_name("high_freq_factor") + " is not above low_freq_factor",
               "high_freq_factor");
    }
  }
  /// The context a model was trained for before it was stretched.
  double original() const {
    const double top = in.fields.real("original_max_position_embeddings", 1, 1e12, longest());
    return original_at_top ? top : f.real("original_max_position_embeddings", 1, 1e12, top);
  }
  void yarn() const {
    rope.kind = RopeSpec::Kind::kYarn;
    rope.original_max_positions = original();
    rope.factor = f.real("factor", 1e-6, 1e6, longest() / rope.original_max_positions);
    rope.beta_fast = f.real("beta_fast", 1e-6, 1e6, 32.0);
    rope.beta_slow = f.real("beta_slow", 1e-6, 1e6, 1.0);
    rope.truncate = f.boolean("truncate", true);
    const double m = f.real("mscale", 0, 1e6, 0.0), all = f.real("mscale_all_dim", 0, 1e6, 0.0);
    const double magnitude = m != 0 && all != 0
                                 ? yarn_magnitude(rope.factor, m) / yarn_magnitude(rope.factor, all)
                                 : yarn_magnitude(rope.factor, 1);
    rope.attention_factor = f.real("attention_factor", 1e-6, 1e6, magnitude);
    if (!f.error() && rope.theta <= 1)
      f.refuse(ErrorCode::kBadFile, "rope_theta is not above 1, which yarn needs", "rope_theta");
  }
  void longrope() const {
    rope.kind = RopeSpec::Kind::kLongRope;
    rope.original_max_positions = original();
    rope.factor = f.real("factor", 1e-6, 1e6, longest() / rope.original_max_positions);
    rope.attention_factor =
        f.real("attention_factor", 1e-6, 1e6, longrope_magnitude(rope.factor, rope.original_max_positions));
    rope.short_divisors = divisors_from(f, object, "short_factor", rope.rotary_dim / 2);
    rope.long_divisors = divisors_from(f, object, "long_factor", rope.rotary_dim / 2);
    rope.factor = 1;
  }
  void dynamic() const {
    rope.kind = RopeSpec::Kind::kDynamic;
    rope.factor = f.real("factor", 1, 1e6);
    rope.original_max_positions = longest();
    if (rope.rotary_dim < 4)
      f.refuse(ErrorCode::kBadFile, "dynamic rope needs a rotary width of at least 4", "rope_type");
  }
  void proportional(double share) const {
    rope.kind = RopeSpec::Kind::kProportional;
    rope.factor = f.real("factor", 1e-6, 1e6, 1.0);
    rope.rotated_share = share;
  }
};

/// The rotated part of a head. Of an odd number n of dimensions, n + 1 rotate, with the frequencies theta^(-2i/n).
void set_rotary_width(FieldReader& f, RopeSpec& rope, std::int32_t head_dim, double share, std::string_view type) {
  const auto width = static_cast<std::int32_t>(head_dim * share);
  rope.rotary_dim = std::max(width + width % 2, 2);
  const bool plain = type == "default" || type == "mrope" || type == "linear" || type == "llama3";
  if (width < 1 || rope.rotary_dim > head_dim || (width % 2 != 0 && !plain)) {
    f.refuse(ErrorCode::kBadFile,
             "partial_rotary_factor gives a rotary width of " + std::to_string(width) + ", which cannot be",
             "partial_rotary_factor");
  } else if (width % 2 != 0) {
    rope.theta = std::pow(rope.theta, (width + 1.0) / width);
  }
}

}  // namespace

const Json* rope_object_from_hf(const FamilyInput& in) { return whole_rope(in).object; }

RopeSpec rope_from_hf(const FamilyInput& in, std::int32_t head_dim, const HfRope& style) {
  RopeSpec rope;
  const bool known = in.fields.has(style.theta_key);
  if (known) rope.theta = in.fields.real(style.theta_key, 1e-3, 1e18);
  double share = in.fields.real("partial_rotary_factor", 0, 1, style.share);
  const RopeSource source = style.scaled ? rope_source(in, style.layer_type) : RopeSource{};
  if (source.object == nullptr) {
    if (!known) rope.theta = in.fields.real(style.theta_key, 1e-3, 1e18);  // refuses
    set_rotary_width(in.fields, rope, head_dim, share, "default");
    return rope;
  }
  JsonFieldReader f(*source.object, source.name);
  const std::string key = f.has("rope_type") || !f.has("type") ? "rope_type" : "type";
  const std::string type = f.text(key, "default");
  rope.theta = f.real("rope_theta", 1e-3, 1e18, known ? std::optional(rope.theta) : std::nullopt);
  share = f.real("partial_rotary_factor", 0, 1, share);
  rope.rotary_dim = head_dim;
  if (type != "proportional") set_rotary_width(in.fields, rope, head_dim, share, type);
  const RopeFields fields{in, f, *source.object, rope, style.original_at_top};
  if (type == "linear") {
    rope.kind = RopeSpec::Kind::kLinear;
    rope.factor = f.real("factor", 1e-6, 1e6);
  } else if (type == "llama3") {
    fields.llama3();
  } else if (type == "yarn") {
    fields.yarn();
  } else if (type == "longrope" || type == "su") {
    fields.longrope();
  } else if (type == "dynamic") {
    fields.dynamic();
  } else if (type == "proportional") {
    fields.proportional(share);
  } else if (type != "default" && type != "mrope") {  // for text, mrope's three positions are equal
    refuse_value(f, source.name + "." + key, '"' + printable(type) + '"',
                 "default, linear, dynamic, llama3, yarn, longrope, proportional, mrope");
  }
  if (f.error()) in.fields.refuse(f.error()->code, f.error()->message, source.name);
  return rope;
}

namespace {

/// [rotary_dim / 2] positive numbers of an F32 tensor.
std::vector<float> divisors_from(const FamilyInput& in, const Tensor& t, std::int32_t rotary_dim) {
  std::vector<float> out(static_cast<std::size_t>(rotary_dim / 2), 1.0f);
  if (t.type.dtype != DType::kF32 || t.shape != std::vector<std::int64_t>{rotary_dim / 2}) {
    in.fields.refuse(
        ErrorCode::kBadFile,
        "tensor " + printable(t.name) + " is not F32 with " + std::to_string(rotary_dim / 2) + " elements",
        t.name);
    return out;
  }
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  for (const float d : out) {
    if (!(d > 0) || !std::isfinite(d))
      in.fields.refuse(ErrorCode::kBadFile,
                       "tensor " + printable(t.name) + " has a value that is not positive", t.name);
  }
  return out;
}

void yarn_from_gguf(FieldReader& f, RopeSpec& rope, double factor) {
  rope.kind = RopeSpec::Kind::kYarn;
  rope.factor = factor;
  rope.original_max_positions =
      f.real("rope.scaling.original_context_length", 1, 1e12, f.real("context_length", 1, kMaxPositions));
  rope.beta_fast = f.real("rope.scaling.yarn_beta_fast", 1e-6, 1e6, 32.0);
  rope.beta_slow = f.real("rope.scaling.yarn_beta_slow", 1e-6, 1e6, 1.0);
  rope.attention_factor = f.real("rope.scaling.attn_factor", 1e-6, 1e6, 1.0) * yarn_magnitude(factor, 1);
  if (!f.error() && rope.theta <= 1)
    f.refuse(ErrorCode::kBadFile, "rope.freq_base is not above 1, which yarn needs", "rope.freq_base");
}

/// longrope's factors lie in two tensors; no key names it.
void longrope_from_gguf(const FamilyInput& in, RopeSpec& rope) {
  const Tensor *few = in.files.find("rope_factors_short.weight"),
               *many = in.files.find("rope_factors_long.weight");
  if (few == nullptr && many == nullptr) return;
  if (few == nullptr || many == nullptr) {
    return in.fields.refuse(
        ErrorCode::kBadFile,
        "one of the tensors rope_factors_short.weight and rope_factors_long.weight is missing",
        "rope_factors_long.weight");
  }
  const double longest = in.fields.real("context_length", 1, kMaxPositions);
  rope.kind = RopeSpec::Kind::kLongRope;
  rope.factor = 1;
  rope.original_max_positions = in.fields.real("rope.scaling.original_context_length", 1, 1e12, longest);
  rope.attention_factor =
      in.fields.real("rope.scaling.attn_factor", 1e-6, 1e6,
                     longrope_magnitude(longest / rope.original_max_positions, rope.original_max_positions));
  rope.short_divisors = divisors_from(in, *few, rope.rotary_dim);
  rope.long_divisors = divisors_from(in, *many, rope.rotary_dim);
}

}  // namespace

RopeSpec rope_from_gguf(const FamilyInput& in, std::int32_t head_dim) {
  RopeSpec rope;
  FieldReader& f = in.fields;
  rope.rotary_dim = static_cast<std::int32_t>(f.integer("rope.dimension_count", 0, head_dim, head_dim));
  if (rope.rotary_dim == 0) rope.rotary_dim = head_dim;  // writers use 0 for all
  if (rope.rotary_dim % 2 != 0) {
    f.refuse(ErrorCode::kBadFile,
             "rope.dimension_count " + std::to_string(rope.rotary_dim) + " is not an even number",
             "rope.dimension_count");
  }
  rope.theta = f.real("rope.freq_base", 1e-3, 1e18, 10000.0);
  const double old_scale = f.real("rope.scale_linear", 1e-6, 1e6, 1.0);
  double factor = f.real("rope.scaling.factor", 0, 1e6, old_scale);
  if (factor == 0) factor = 1;  // writers use 0 for "no scaling"
  const std::string type = f.text("rope.scaling.type", "linear");
  const bool stretched = type == "yarn" || type == "longrope";
  if (type == "yarn") yarn_from_gguf(f, rope, factor);
  if (type != "linear" && type != "none" && !stretched)
    refuse_value(f, "rope.scaling.type", '"' + printable(type) + '"', "none, linear, yarn, longrope");
  if (type == "linear" && factor != 1) {
    rope.kind = RopeSpec::Kind::kLinear;
    rope.factor = factor;
  }
  if (type != "yarn") longrope_from_gguf(in, rope);
  if (rope.kind != RopeSpec::Kind::kYarn && rope.kind != RopeSpec::Kind::kLongRope &&
      f.real("rope.scaling.attn_factor", 0, 1e6, 1.0) != 1.0) {
    refuse_value(f, "rope.scaling.attn_factor", "a value other than 1", "1, or any with yarn and longrope");
  }
  const Tensor* freqs = in.files.find("rope_freqs.weight");
  if (freqs != nullptr) rope.divisors = divisors_from(in, *freqs, rope.rotary_dim);
  return rope;
}

std::vector<LayerSpec> window_layers(std::int32_t num_layers, std::int32_t window, std::int32_t full_every) {
  std::vector<LayerSpec> layers(static_cast<std::size_t>(num_layers), LayerSpec{.window = window});
  for (std::int32_t i = full_every - 1; full_every > 0 && i < num_layers; i += full_every)
    layers[static_cast<std::size_t>(i)].window = 0;
  return layers;
}

std::vector<LayerSpec> layers_from_hf(const FamilyInput& in, std::int32_t num_layers, std::int32_t window,
                                      std::int32_t full_every) {
  std::vector<LayerSpec> layers = window_layers(num_layers, window, full_every);
  const Json* types = in.config->find("layer_types");
  if (types == nullptr || types->is_null() || in.fields.error()) return layers;
  if (!types->is_array() || types->size() != layers.size()) {
    in.fields.refuse(ErrorCode::kBadFile, "layer_types is not a list with one entry a layer", "layer_types");
    return layers;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Json& t = types->as_array()[i];
    const std::string name = t.is_string() ? t.as_string() : "not a string";
    layers[i].window = name == "full_attention" ? 0 : window;
    if (name != "full_attention" && name != "sliding_attention") {
      refuse_value(in.fields, "layer_types", '"' + printable(name) + '"',
                   "full_attention, sliding_attention");
    } else if (name == "sliding_attention" && window == 0) {
      in.fields.refuse(ErrorCode::kBadFile, "layer_types has sliding_attention but sliding_window is not set",
                       "sliding_window");
    }
  }
  return layers;
}

std::vector<LayerSpec> mixers_from_hf(const FamilyInput& in, std::int32_t num_layers,
                                      std::span<const MixerName> mixers, std::vector<LayerSpec> usual) {
  const Json* types = in.config->find("layer_types");
  if (types == nullptr || types->is_null()) types = in.config->find("layers_block_type");
  if (types == nullptr || types->is_null() || in.fields.error()) return usual;
  if (!types->is_array() || types->size() != static_cast<std::size_t>(num_layers)) {
    in.fields.refuse(ErrorCode::kBadFile, "layer_types is not a list with one entry a layer", "layer_types");
    return usual;
  }
  std::string known = "full_attention, attention";
  for (const MixerName& m : mixers) known += ", " + std::string(m.name);
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const Json& t = types->as_array()[i];
    const std::string name = t.is_string() ? t.as_string() : "not a string";
    const auto row =
        std::find_if(mixers.begin(), mixers.end(), [&](const MixerName& m) { return m.name == name; });
    if (row == mixers.end() && name != "full_attention" && name != "attention")
      refuse_value(in.fields, "layer_types", '"' + printable(name) + '"', known.c_str());
    usual[i].mixer = row == mixers.end() ? MixerKind::kAttention : row->mixer;
  }
  return usual;
}

std::vector<LayerSpec> layers_from_gguf(const FamilyInput& in, std::int32_t num_layers, std::int32_t window,
                                        std::int32_t full_every) {
  std::vector<LayerSpec> layers = window_layers(num_layers, window, full_every);
  static constexpr std::string_view kKey = "attention.sliding_window_pattern";
  if (!in.fields.has(kKey) || in.fields.error()) return layers;
  const auto pattern = in.gguf->integers(in.fields.full_name(kKey));
  if (!pattern) {
    in.fields.refuse(pattern.error().code, pattern.error().message, kKey);
    return layers;
  }
  const std::vector<std::int64_t>& values = **pattern;
  if (window == 0 && std::any_of(values.begin(), values.end(), [](std::int64_t v) { return v != 0; })) {
    in.fields.refuse(ErrorCode::kBadFile,
                     "metadata key " + in.fields.full_name(kKey) + " is set, but there is no window", kKey);
    return layers;
  }
  if (values.size() == 1 && num_layers > 1 && values[0] >= 0 && values[0] <= num_layers)
    return window_layers(num_layers, window, static_cast<std::int32_t>(values[0]));
  if (values.size() != layers.size()) {
    in.fields.refuse(ErrorCode::kBadFile,
                     "metadata key " + in.fields.full_name(kKey) + " has no entry for each layer", kKey);
    return layers;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].window = values[i] != 0 ? window : 0;
  return layers;
}

namespace {

/// What a list holds, one if the key holds no list, none if it is not there.
std::vector<std::int64_t> integers_of(const FamilyInput& in, std::string_view key) {
  std::vector<std::int64_t> out;
  FieldReader& f = in.fields;
  if (in.gguf != nullptr) {
    auto list = in.gguf->integers(f.full_name(key));
    if (!list) f.refuse(list.error().code, list.error().message, key);
    if (list && *list) out = std::move(**list);
    return out;
  }
  const Json* value = in.config->find(key);
  if (value == nullptr || !value->is_array()) {
    if (f.has(key)) out.push_back(f.integer(key, INT64_MIN, INT64_MAX));
    return out;
  }
  for (const Json& v : value->as_array()) {
    if (v.type() != Json::Type::kInt)
      f.refuse(ErrorCode::kBadFile, f.full_name(key) + " is not a list of integers", key);
    out.push_back(v.type() == Json::Type::kInt ? v.as_int() : 0);
  }
  return out;
}

std::int32_t largest(const std::vector<std::int32_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

}  // namespace

std::vector<std::int32_t> by_layer(const FamilyInput& in, std::string_view key, std::int32_t num_layers,
                                   std::int64_t low, std::int64_t high) {
  FieldReader& f = in.fields;
  const auto n = static_cast<std::size_t>(num_layers);
  std::vector<std::int64_t> values = integers_of(in, key);
  if (values.empty()) f.refuse(ErrorCode::kBadFile, f.full_name(key) + " is missing or empty", key);
  if (values.size() == 1) values.resize(n, values[0]);
  if (!values.empty() && values.size() != n)
    f.refuse(ErrorCode::kBadFile, f.full_name(key) + " has no entry for each layer", key);
  for (const std::int64_t v : values) {
    if (v >= low && v <= high) continue;
    f.refuse(ErrorCode::kBadFile,
             f.full_name(key) + " is " + std::to_string(v) + ", expected " + std::to_string(low) + " to " +
                 std::to_string(high),
             key);
  }
  if (f.error()) values.assign(n, low);
  return {values.begin(), values.end()};
}

void use_local_rope(DecoderSpec& s) {
  for (LayerSpec& l : s.layers) l.rope = l.window > 0 ? 1 : 0;
}

void share_kv(FieldReader& f, DecoderSpec& s, std::int32_t shared, std::string_view key) {
  const std::int32_t first = s.num_layers - shared;
  for (std::int32_t i = first; i < s.num_layers; ++i) {
    LayerSpec& l = s.layers[static_cast<std::size_t>(i)];
    std::int32_t from = first - 1;
    while (from >= 0 && s.layers[static_cast<std::size_t>(from)].window != l.window) --from;
    if (from < 0) {
      return f.refuse(ErrorCode::kBadFile,
                      "the last " + std::to_string(shared) +
                          " layers read the keys of others, but no layer before " +
                          "them has the window of layer " + std::to_string(i),
                      key);
    }
    l.kv_of = from;
  }
}

void check_layer_heads(FieldReader& f, const DecoderSpec& s, std::string_view key) {
  for (const LayerSpec& l : s.layers) {
    const LayerShape shape = shape_of(s, l);
    if (s.num_q_heads % shape.num_kv_heads == 0 && shape.head_dim % 2 == 0) continue;
    return f.refuse(ErrorCode::kBadFile,
                    std::to_string(s.num_q_heads) + " attention heads on " +
                        std::to_string(shape.num_kv_heads) + " key/value heads of " +
                        std::to_string(shape.head_dim) + " cannot be",
                    key);
  }
}

std::int32_t window_from_hf(const FamilyInput& in) {
  return static_cast<std::int32_t>(in.fields.integer("sliding_window", 1, kMaxPositions, 0));
}

void set_rotary(DecoderSpec& s, std::vector<RopeSpec> ropes) {
  s.ropes = std::move(ropes);
  for (const RopeSpec& r : s.ropes) {
    if (r.kind != RopeSpec::Kind::kYarn && r.kind != RopeSpec::Kind::kDynamic) continue;
    const double stretched =
        std::min(r.original_max_positions * r.factor, static_cast<double>(kMaxPositions));
    s.max_positions = std::max(s.max_positions, static_cast<std::int32_t>(stretched));
  }
}

Result<DecoderSpec> llama_like_from_hf(const FamilyInput& in, const HfShape& shape) {
  FieldReader& f = in.fields;
  DecoderSpec s;
  refuse_unsupported_hf(in);
  s.activation = activation_from_hf(f, shape.activation_key, shape.activation);
  s.hidden = static_cast<std::int32_t>(f.integer("hidden_size", 1, kMaxHidden));
  s.num_layers = static_cast<std::int32_t>(f.integer("num_hidden_layers", 1, kMaxLayers));
  s.num_q_heads = static_cast<std::int32_t>(f.integer("num_attention_heads", 1, kMaxHeads));
  s.num_kv_heads = static_cast<std::int32_t>(f.integer("num_key_value_heads", 1, kMaxHeads, s.num_q_heads));
  const bool given = f.has(shape.head_dim_key);
  if (!given && s.hidden % s.num_q_heads != 0) {
    f.refuse(ErrorCode::kBadFile,
             "hidden_size is not a multiple of num_attention_heads and head_dim is not given", "head_dim");
  }
  s.head_dim = given ? static_cast<std::int32_t>(f.integer(shape.head_dim_key, 2, kMaxHeadDim))
                     : s.hidden / s.num_q_heads;
  s.ffn = shape.lists ? largest(by_layer(in, shape.ffn_key, s.num_layers, 1, kMaxFfn))
                      : static_cast<std::int32_t>(f.integer(shape.ffn_key, 1, kMaxFfn));
  s.vocab_rows = static_cast<std::int32_t>(f.integer("vocab_size", 1, kMaxVocab));
  s.max_positions = static_cast<std::int32_t>(f.integer("max_position_embeddings", 1, kMaxPositions));
  s.norm.eps = static_cast<float>(f.real(shape.eps_key, 1e-20, 1));
  check_heads(f, s, "num_attention_heads", "num_key_value_heads", shape.head_dim_key);
  s.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  s.tied = tied_from_hf(in);
  set_rotary(s, {rope_from_hf(in, s.head_dim, shape.rope)});
  s.layers.assign(static_cast<std::size_t>(s.num_layers), LayerSpec{});
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> llama_like_from_gguf(const FamilyInput& in, const GgufShape& shape) {
  FieldReader& f = in.fields;
  DecoderSpec s;
  refuse_unsupported_gguf(f, shape.knows);
  s.hidden = static_cast<std::int32_t>(f.integer("embedding_length", 1, kMaxHidden));
  s.num_layers = static_cast<std::int32_t>(f.integer("block_count", 1, kMaxLayers));
  s.num_q_heads = static_cast<std::int32_t>(f.integer("attention.head_count", 1, kMaxHeads));
  if (shape.some_attend) {
    s.num_kv_heads = kv_heads_of_some(in, s.num_layers);
  } else {
    s.num_kv_heads = shape.lists ? largest(by_layer(in, kKvHeads, s.num_layers, 1, kMaxHeads))
                                 : static_cast<std::int32_t>(f.integer(kKvHeads, 1, kMaxHeads, s.num_q_heads));
  }
  if (!f.has("attention.key_length") && shape.head_dim == 0 && s.hidden % s.num_q_heads != 0) {
    f.refuse(
        ErrorCode::kBadFile,
        "embedding_length is not a multiple of attention.head_count and attention.key_length is not given",
        "attention.key_length");
  }
  s.head_dim = shape.head_dim;
  if (s.head_dim == 0) {
    s.head_dim =
        static_cast<std::int32_t>(f.integer("attention.key_length", 2, kMaxHeadDim, s.hidden / s.num_q_heads));
  }
  if (shape.head_dim == 0 && f.integer("attention.value_length", 1, kMaxHeadDim, s.head_dim) != s.head_dim) {
    f.refuse(ErrorCode::kUnsupported,
             "attention.value_length differs from attention.key_length, which is not supported yet",
             "attention.value_length");
  }
  s.ffn = shape.lists ? largest(by_layer(in, shape.ffn_key, s.num_layers, 1, kMaxFfn))
                      : static_cast<std::int32_t>(f.integer(shape.ffn_key, 1, kMaxFfn));
  s.max_positions = static_cast<std::int32_t>(f.integer("context_length", 1, kMaxPositions));
  s.norm.eps = static_cast<float>(f.real(shape.eps_key, 1e-20, 1));
  check_heads(f, s, "attention.head_count", "attention.head_count_kv", "attention.key_length");
  s.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  const double scale = f.real("attention.scale", 0, 1e6, 0.0);
  if (scale != 0) s.attention_scale = static_cast<float>(scale);
  s.tied = in.files.find("output.weight") == nullptr;
  s.vocab_rows = vocab_rows_from_gguf(in);
  set_rotary(s, {rope_from_gguf(in, s.head_dim)});
  if (shape.interleaved) s.interleaved_qk = s.ropes[0].rotary_dim;
  const auto window = static_cast<std::int32_t>(f.integer("attention.sliding_window", 0, kMaxPositions, 0));
  s.layers = layers_from_gguf(in, s.num_layers, window, shape.full_every);
  attention_form_from_gguf(in, s);
  s.fused_gate_up = in.files.find("blk.0.ffn_gate.weight") == nullptr;
  s.mlp_bias = any_bias(in.files, "blk.0.", {"ffn_gate", "ffn_up", "ffn_down"});
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
