// The family table: which architectures Barg runs, and the function that turns a family's config into a
// DecoderSpec. A new family is one file family_NAME.cpp and one row in family.cpp. Pure; any thread.
//
// Builders check ranges and refuse by name what would change the answer and is not implemented; agreement
// with the tensors' shapes is checked afterwards, for every family alike (check_tensors).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "model/decoder_spec.h"
#include "model/field_reader.h"
#include "model/model_files.h"

namespace barg::model {

/// What a builder may look at beyond the config: which optional tensors exist.
struct FamilyInput {
  FieldReader& fields;
  const ModelFiles& files;
  const Json* config = nullptr;    ///< Hugging Face
  const GgufFile* gguf = nullptr;  ///< GGUF
};

using SpecBuilder = Result<DecoderSpec> (*)(const FamilyInput& input);

/// A Hugging Face name inside of a layer, without its last part ("self_attn.q_proj") or whole
/// ("linear_attn.A_log"), and the canonical one ("attn_q", "ssm_a"). Of GGUF, whole names ("blk.*.ffn_norm").
/// A `*` stands for a number, the same in both.
struct TensorName {
  std::string_view file, canonical;
};
using TensorNames = std::span<const TensorName>;

/// `name` by the first row that matches; empty if none does.
std::string translate_name(TensorNames rows, std::string_view name);

struct Family {
  const char* name;               ///< "llama"
  const char* hf_architecture;    ///< "LlamaForCausalLM", nullptr if none
  const char* hf_class;           ///< the model_type of its text config, of which it has the defaults
  const char* gguf_architecture;  ///< "llama", nullptr if none
  SpecBuilder from_hf;
  SpecBuilder from_gguf;
  const TensorNames* hf_names = nullptr;  ///< where they differ from the usual ones (hf_model.cpp)
  const TensorNames* gguf_names = nullptr;
  Pooling pooling = Pooling::kNone;       ///< of an architecture without output matrix, where no file says (pooling.h)
};

std::span<const Family> families();
const Family* find_hf_family(std::string_view architecture);
const Family* find_gguf_family(std::string_view architecture);
/// "LlamaForCausalLM, MistralForCausalLM" for messages.
std::string known_hf_architectures();
std::string known_gguf_architectures();

// Shared parts of builders.

inline constexpr std::int64_t kMaxHeadDim = 512;  ///< what attention kernels are written for
inline constexpr std::int64_t kMaxFfn = 1 << 24;
inline constexpr std::int64_t kMaxStateHeads = 1 << 16;  ///< of a recurrent mixer
inline constexpr std::int64_t kMaxStateDim = 1024;       ///< of one of its heads

/// How a config.json of a family spells its rope. What it leaves out is filled in before (class_defaults.h).
struct HfRope {
  std::string_view layer_type = "";  ///< of rope_parameters that are one object for each layer type
  std::string_view theta_key = "rope_theta";
  double share = 1;    ///< where there is no partial_rotary_factor
  bool scaled = true;  ///< false: rope_scaling is about other layers
  bool original_at_top = false;  ///< original_max_position_embeddings beside the rope goes before that in it
};

/// The same for the rest.
struct HfShape {
  std::string_view eps_key = "rms_norm_eps";
  std::string_view head_dim_key = "head_dim";  ///< not there: hidden_size / num_attention_heads
  std::string_view ffn_key = "intermediate_size";
  std::string_view activation_key = "hidden_act";
  ops::Activation activation = ops::Activation::kSilu;
  HfRope rope = {};
  bool lists = false;  ///< intermediate_size may be a list (by_layer): the widest is taken
};

struct GgufShape {
  std::string_view eps_key = "attention.layer_norm_rms_epsilon";
  std::string_view ffn_key = "feed_forward_length";
  bool interleaved = false;     ///< q and k rows of the file (ggml's NORM rope)
  std::int32_t full_every = 0;  ///< of layers with a window, each such is without (1-based); 0: none is
  std::span<const std::string_view> knows = {};  ///< keys that the family reads and others must not have
  std::int32_t head_dim = 0;  ///< > 0: of the rotated heads, instead of what the keys say
  bool some_attend = false;   ///< attention.head_count_kv is 0 for layers without attention
  bool lists = false;         ///< sizes may be lists (by_layer): the largest are taken
};

/// Sizes, eps, rope, biases and layers common to llama-like families.
Result<DecoderSpec> llama_like_from_hf(const FamilyInput& input, const HfShape& shape = {});
Result<DecoderSpec> llama_like_from_gguf(const FamilyInput& input, const GgufShape& shape = {});
/// The object that says how positions are encoded: `rope_parameters` (transformers 5) or `rope_scaling` (4); null where
/// there is none. Its members may be objects for layer types.
const Json* rope_object_from_hf(const FamilyInput& input);
/// Of it and `rope_theta`. Problems go to input.fields.
RopeSpec rope_from_hf(const FamilyInput& input, std::int32_t head_dim, const HfRope& style = {});
RopeSpec rope_from_gguf(const FamilyInput& input, std::int32_t head_dim);
/// Sets the ropes, and the context that yarn and dynamic stretch the model to.
void set_rotary(DecoderSpec& spec, std::vector<RopeSpec> ropes);
/// Every layer with `window`, but for layers full_every - 1, 2 full_every - 1, ... (0: no such).
std::vector<LayerSpec> window_layers(std::int32_t num_layers, std::int32_t window, std::int32_t full_every);
/// `layer_types` or attention.sliding_window_pattern if given, else window_layers.
std::vector<LayerSpec> layers_from_hf(const FamilyInput& input, std::int32_t num_layers, std::int32_t window,
                                      std::int32_t full_every = 0);
std::vector<LayerSpec> layers_from_gguf(const FamilyInput& input, std::int32_t num_layers,
                                        std::int32_t window, std::int32_t full_every = 0);
/// An integer in [low, high] for each layer: of a list with an entry a layer, or one for all. Problems go to
/// input.fields; then there are still num_layers entries.
std::vector<std::int32_t> by_layer(const FamilyInput& input, std::string_view key, std::int32_t num_layers,
                                   std::int64_t low, std::int64_t high);
/// Layers with a window rotate with the second rope.
void use_local_rope(DecoderSpec& spec);
/// The last `shared` layers read the K and V of the last layer before them that has their window, if any.
void share_kv(FieldReader& fields, DecoderSpec& spec, std::int32_t shared, std::string_view key);
/// What holds between heads of layers of different sizes.
void check_layer_heads(FieldReader& fields, const DecoderSpec& spec, std::string_view key);
/// sliding_window; 0 where it is null.
std::int32_t window_from_hf(const FamilyInput& input);
/// `layer_types`, where each name of `mixers` is a kind of mixer; without it, `usual` by layer.
struct MixerName {
  std::string_view name;
  MixerKind mixer;
};
std::vector<LayerSpec> mixers_from_hf(const FamilyInput& input, std::int32_t num_layers,
                                      std::span<const MixerName> mixers, std::vector<LayerSpec> usual);
/// Of a GGUF file that keeps attention.head_count_kv by layer: gives `mixer` to the layers that have none,
/// and reads anew what the first layer with attention says of its tensors.
void mixers_from_gguf(const FamilyInput& input, DecoderSpec& spec, MixerKind mixer);
/// The same where a list says which layers are recurrent, or every n-th is not.
void mixers_by_interval_from_gguf(const FamilyInput& input, DecoderSpec& spec, MixerKind mixer);
/// Cuts off the layers for the prediction of further tokens.
void drop_prediction_layers(const FamilyInput& input, DecoderSpec& spec);
/// Rows of token_embd, against what the metadata say of the vocabulary.
std::int32_t vocab_rows_from_gguf(const FamilyInput& input);
/// Kernel, groups, heads and both sizes of a head, from the keys "ssm."; refused where they do not fit together.
RecurrentSpec recurrent_sizes_from_gguf(FieldReader& fields);
/// "blk.N." of the first layer with such a mixer; empty if there is none.
std::string first_layer_with(const DecoderSpec& spec, bool (*has)(MixerKind));
/// Multipliers of Granite.
void granite_scales_from_gguf(const FamilyInput& input, DecoderSpec& spec);
/// Sizes of Mamba-2 layers; `prefix` is "mamba_" or "", `inner` their width (0: expand * hidden).
RecurrentSpec mamba2_sizes_from_hf(const FamilyInput& input, std::int32_t hidden, bool prefixed,
                                   std::int32_t inner = 0);
/// "KEY: VALUE is not supported yet (known: ...)".
void refuse_value(FieldReader& fields, std::string_view key, const std::string& value, const char* known);

// The families, each in its file.

Result<DecoderSpec> llama_from_hf(const FamilyInput& input);
Result<DecoderSpec> llama_from_gguf(const FamilyInput& input);
Result<DecoderSpec> smollm3_from_hf(const FamilyInput& input);
Result<DecoderSpec> smollm3_from_gguf(const FamilyInput& input);
Result<DecoderSpec> mistral_from_hf(const FamilyInput& input);
Result<DecoderSpec> ministral3_from_hf(const FamilyInput& input);
Result<DecoderSpec> ministral3_from_gguf(const FamilyInput& input);
Result<DecoderSpec> qwen2_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> qwen3_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen3_from_gguf(const FamilyInput& input);
Result<DecoderSpec> gemma_from_hf(const FamilyInput& input);
Result<DecoderSpec> gemma_from_gguf(const FamilyInput& input);
Result<DecoderSpec> gemma2_from_hf(const FamilyInput& input);
Result<DecoderSpec> gemma2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> gemma3_from_hf(const FamilyInput& input);
Result<DecoderSpec> gemma3_from_gguf(const FamilyInput& input);
Result<DecoderSpec> gemma3n_from_hf(const FamilyInput& input);
Result<DecoderSpec> gemma3n_from_gguf(const FamilyInput& input);
Result<DecoderSpec> gemma4_from_hf(const FamilyInput& input);
Result<DecoderSpec> gemma4_from_gguf(const FamilyInput& input);
Result<DecoderSpec> phi3_from_hf(const FamilyInput& input);
Result<DecoderSpec> phi3_from_gguf(const FamilyInput& input);
Result<DecoderSpec> olmo2_from_hf(const FamilyInput& input);
Result<DecoderSpec> olmo2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> olmo3_from_hf(const FamilyInput& input);
Result<DecoderSpec> granite_from_hf(const FamilyInput& input);
Result<DecoderSpec> granite_from_gguf(const FamilyInput& input);
Result<DecoderSpec> cohere_from_hf(const FamilyInput& input);
Result<DecoderSpec> cohere_from_gguf(const FamilyInput& input);
Result<DecoderSpec> cohere2_from_hf(const FamilyInput& input);
Result<DecoderSpec> cohere2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> glm_from_hf(const FamilyInput& input);
Result<DecoderSpec> glm4_from_hf(const FamilyInput& input);
Result<DecoderSpec> glm4_from_gguf(const FamilyInput& input);
Result<DecoderSpec> mixtral_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen3_moe_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen3_moe_from_gguf(const FamilyInput& input);
Result<DecoderSpec> gpt_oss_from_hf(const FamilyInput& input);
Result<DecoderSpec> gpt_oss_from_gguf(const FamilyInput& input);
Result<DecoderSpec> minimax_m2_from_hf(const FamilyInput& input);
Result<DecoderSpec> minimax_m2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> glm4_moe_from_hf(const FamilyInput& input);
Result<DecoderSpec> glm4_moe_from_gguf(const FamilyInput& input);
Result<DecoderSpec> deepseek_v2_from_hf(const FamilyInput& input);
Result<DecoderSpec> deepseek_v3_from_hf(const FamilyInput& input);
Result<DecoderSpec> deepseek2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> bert_from_hf(const FamilyInput& input);
Result<DecoderSpec> bert_from_gguf(const FamilyInput& input);
Result<DecoderSpec> qwen3_next_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen3_next_from_gguf(const FamilyInput& input);
Result<DecoderSpec> qwen35_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen35_from_gguf(const FamilyInput& input);
Result<DecoderSpec> qwen35_moe_from_hf(const FamilyInput& input);
Result<DecoderSpec> qwen35_moe_from_gguf(const FamilyInput& input);
Result<DecoderSpec> mamba2_from_hf(const FamilyInput& input);
Result<DecoderSpec> mamba2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> bamba_from_hf(const FamilyInput& input);
Result<DecoderSpec> granite_hybrid_from_hf(const FamilyInput& input);
Result<DecoderSpec> granite_hybrid_from_gguf(const FamilyInput& input);
Result<DecoderSpec> falcon_h1_from_hf(const FamilyInput& input);
Result<DecoderSpec> falcon_h1_from_gguf(const FamilyInput& input);
Result<DecoderSpec> lfm2_from_hf(const FamilyInput& input);
Result<DecoderSpec> lfm2_from_gguf(const FamilyInput& input);
Result<DecoderSpec> stablelm_from_hf(const FamilyInput& input);
Result<DecoderSpec> stablelm_from_gguf(const FamilyInput& input);
extern const TensorNames kBertNames, kGemmaNames, kGemma3nNames, kGemma4Names, kOlmo2Names, kGlm4Names, kStableLmNames;
extern const TensorNames kQwen35Names, kMamba2Names, kBambaNames, kGraniteHybridNames, kFalconH1Names,
    kLfm2Names;
extern const TensorNames kFalconH1GgufNames, kLfm2GgufNames;

/// Every tensor the spec needs, by canonical name with its shape.
struct RequiredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
std::vector<RequiredTensor> required_tensors(const DecoderSpec& spec);
/// Fails on the first tensor that is missing or misshapen.
Result<void> check_tensors(const DecoderSpec& spec, const ModelFiles& files);
/// Fails on a tensor of a layer ("blk.") that the spec has no use for: a graph that reads it is
/// another one. For GGUF; Hugging Face checkpoints keep left-overs such as rotary_emb.inv_freq.
Result<void> check_no_more_tensors(const DecoderSpec& spec, const ModelFiles& files);

}  // namespace barg::model
