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
  std::uint64_t parameters = 0;  ///< elements of all tensors
  std::vector<std::string> template_names;  ///< of named templates, beside the one for chats
  DecoderSpec spec;
  std::vector<LayerGroup> groups;
};

/// Fails as ModelFiles::spec() does: what cannot be served is not described as if it could.
Result<Inspection> inspect(const ModelFiles& files);

/// Lines "key: value" for a person: what is known also of a model that cannot be served.
std::string header_text(const ModelFiles& files);
/// The same and all the rest; KV bytes per token are given for `kv_dtype`. `tensors`: one line each too.
std::string to_text(const Inspection& inspection, const ModelFiles& files, DType kv_dtype, bool tensors);

}  // namespace barg::model
