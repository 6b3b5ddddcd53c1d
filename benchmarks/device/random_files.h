// Model files that are nowhere: shapes of known models, with weights that a generator makes in memory. All tensors share one
// run of random bytes, so that a model of 16 GB takes one.
#pragma once

#include <memory>

#include "model/model_files.h"

namespace barg::check {

struct ModelShape {
  const char* name;
  std::int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  bool qk_norm = false, tied = false;
};
inline constexpr ModelShape kLlama8B{"Llama-8B", 32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr ModelShape kQwen06B{"Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, true, true};

/// In bf16; norms near 1.
std::shared_ptr<const model::ModelFiles> random_files(const ModelShape& shape);

}  // namespace barg::check
