// What `barg inspect` prints about a model's files, as data and as text. Reads metadata only, never weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "barg/result.h"
#include "model/decoder_spec.h"
#include "model/model_files.h"

namespace barg::model {

/// Inputs of the exact memory plan; what depends on the device (packed layout, workspace) is Decoder's
/// weight_bytes() and workspace_bytes().
struct Inspection {
  std::string path, name, container, architecture;
  std::uint64_t parameters = 0;  ///< elements of all tensors
  std::uint64_t tensor_count = 0;
  std::uint64_t weight_bytes = 0;  ///< in the file
  std::string quantisation;        ///< "Q4_1 (96%), F32 (4%)"
  std::vector<ModelFiles::TypeShare> types;
  bool has_chat_template = false;
  std::vector<std::string> template_names;
  std::uint64_t vocab_tokens = 0;  ///< GGUF token list; 0 for a HF directory (the tokenizer knows)
  DecoderSpec spec;
  std::vector<LayerGroup> groups;
};

/// Fails as ModelFiles::spec() does: what cannot be served is not described as if it could.
Result<Inspection> inspect(const ModelFiles& files);

/// Lines "key: value" for a person; KV bytes per token are given for `kv_dtype`. `tensors`: one line each
/// too.
std::string to_text(const Inspection& inspection, const ModelFiles& files, DType kv_dtype, bool tensors);

}  // namespace barg::model
