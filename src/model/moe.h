// The feed-forward half of a layer as a mixture of experts (FeedKind::kExperts): a router chooses some
// experts for each row, and an expert of its own may see every row besides. Shapes and rules: ExpertSpec. And
// experts beside a dense half (FeedKind::kDenseAndExperts).
//
// One thread; allocates nothing; borrows as step.h says.
#pragma once

#include <cstddef>

#include "model/step.h"

namespace barg::model {

/// Bytes of the scratch that experts_half() takes. 0 where no layer has experts.
std::size_t experts_scratch_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                  std::int32_t max_rows);

/// `h`: the rows as floats; its prepared buffer is free.
void experts_half(const StepOps& ops, const Step& s, const LayerWeights& w, const Rows& h, const Output& to);

/// Both, from the residual stream; the sum of their results is in `sub`.
void dense_and_experts_half(const StepOps& ops, const Step& s, const LayerWeights& w);

}  // namespace barg::model
