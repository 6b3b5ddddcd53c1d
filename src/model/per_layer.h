// Per-layer inputs: each layer is told of a token by numbers of its own, made once a step from the token's
// row of a second table and from its embedding; behind its halves they gate a low-rank path back into the
// residual stream.
//
//   inputs = (norm(W e / sqrt(hidden)) + table[token] sqrt(width)) / sqrt(2), a part of `width` for each
//   layer f(x)   = norm(out (act(gate x) * inputs of the layer))
//
// One thread; allocates nothing; borrows as step.h says.
#pragma once

#include <cstddef>

#include "model/step.h"

namespace barg::model {

/// Bytes of the scratch that both take. 0 where there are no such inputs.
std::size_t per_layer_scratch_bytes(const DecoderSpec& spec, std::int32_t max_rows);

/// Fills s.per_layer from the batch's tokens and s.x, their embedding.
void make_per_layer_inputs(const StepOps& ops, const Step& s, const Weights& w);

/// s.sub = f(x), x [rows, hidden].
void per_layer_half(const StepOps& ops, const Step& s, const PerLayerWeights& w, std::int32_t layer,
                    float* x);

}  // namespace barg::model
