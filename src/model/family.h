// The family table: which architectures Barg runs, and the function that turns a family's config into a
// DecoderSpec. A new family is one file family_NAME.cpp and one row in family.cpp. Pure; any thread.
//
// Builders check ranges and refuse by name what would change the answer and is not implemented; agreement
// with the tensors' shapes is checked afterwards, for every family alike (check_tensors).
#pragma once

#include <string>
#include <string_view>

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

struct Family {
  const char* name;               ///< "llama"
  const char* hf_architecture;    ///< "LlamaForCausalLM", nullptr if none
  const char* gguf_architecture;  ///< "llama", nullptr if none
  SpecBuilder from_hf;
  SpecBuilder from_gguf;
};

const Family* find_hf_family(std::string_view architecture);
const Family* find_gguf_family(std::string_view architecture);
/// "LlamaForCausalLM, MistralForCausalLM" for messages.
std::string known_hf_architectures();
std::string known_gguf_architectures();

// Shared parts of builders.

/// Sizes, eps, rope, biases and layers common to llama-like families.
Result<DecoderSpec> llama_like_from_hf(const FamilyInput& input);
Result<DecoderSpec> llama_like_from_gguf(const FamilyInput& input);
/// `rope_parameters` (transformers 5) or `rope_theta` with `rope_scaling` (4). Problems go to input.fields.
RopeSpec rope_from_hf(const FamilyInput& input, std::int32_t rotary_dim);
RopeSpec rope_from_gguf(const FamilyInput& input, std::int32_t rotary_dim);

Result<DecoderSpec> llama_from_hf(const FamilyInput& input);
Result<DecoderSpec> llama_from_gguf(const FamilyInput& input);
Result<DecoderSpec> mistral_from_hf(const FamilyInput& input);

/// Every tensor the spec needs, by canonical name with its shape.
struct RequiredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
std::vector<RequiredTensor> required_tensors(const DecoderSpec& spec);
/// Fails on the first tensor that is missing or misshapen.
Result<void> check_tensors(const DecoderSpec& spec, const ModelFiles& files);
/// Fails on the first tensor of a layer ("blk.") that the spec has no use for: a graph that reads it is another
/// one. For GGUF; Hugging Face checkpoints keep left-overs such as rotary_emb.inv_freq.
Result<void> check_no_more_tensors(const DecoderSpec& spec, const ModelFiles& files);

}  // namespace barg::model
