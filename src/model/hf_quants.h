// Quantised matrices of Hugging Face checkpoints: several tensors (codes, scales, zero points) that make up
// one weight become one Tensor with a RowSource (quants.h), named as the weight would be.
//
//   quant_method         tensors of a module X
//   awq, gptq            X.qweight, X.qzeros, X.scales, X.g_idx             4 bits (gptq also 8)
//   compressed-tensors   X.weight_packed, X.weight_scale, X.weight_zero_point, X.weight_g_idx, ...: 4 and 8
//   bits,
//                        NVFP4, MXFP4; X.weight of FP8 or int8, X.weight_scale
//   fp8                  X.weight, X.weight_scale or X.weight_scale_inv: one, one a row, or one a block
//   mxfp4                X_blocks, X_scales: X, a stack of matrices [experts, rows, in]
//
// Which modules are quantised is read from the tensors, not from lists of modules. Activations stay as they
// are: what a file says of quantising them is ignored. Everything is computed as the formats say, in f32.
#pragma once

#include <vector>

#include "barg/result.h"
#include "base/json.h"
#include "model/tensor.h"

namespace barg::model {

/// Replaces the main tensor of every quantised matrix by the matrix; the others stay where they are. `config`
/// is config.json's object. Fails, by name, on a format it does not know and on tensors that do not fit
/// together; `tensors` is then as it was. Reads no weights, and of the rest only g_idx. Bytes must outlive
/// the tensors.
Result<void> join_quantised(const Json& config, std::vector<Tensor>& tensors);

}  // namespace barg::model
