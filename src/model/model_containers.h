// The two kinds of ModelFiles, one opener each. Private to src/model; use ModelFiles::open().
#pragma once

#include <memory>
#include <string>

#include "model/family.h"
#include "model/model_files.h"

namespace barg::model {

Result<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::string& path);
Result<std::shared_ptr<const ModelFiles>> open_hf_model(const std::string& directory);

/// The GGUF name of a Hugging Face tensor ("model.layers.0.self_attn.q_proj.weight" ->
/// "blk.0.attn_q.weight") by the family's `own` table, then by the usual names; the name itself when neither
/// knows it.
std::string canonical_tensor_name(std::string_view hf_name, TensorNames own);

}  // namespace barg::model
