// The mixer of a layer as latent attention (MixerKind::kLatent; DeepSeek's MLA), in absorbed form for prefill and
// decode alike: a token's state is one vector [c | k_pe] for all heads; the heads' own key matrices are applied to
// the queries, their value matrices to what attention gives. Shapes: LatentSpec.
//
// One thread; allocates nothing; borrows as step.h says.
#pragma once

#include <cstddef>

#include "model/step.h"

namespace barg::model {

/// Bytes of the scratch that latent_half() takes. 0 where no layer is of this kind.
std::size_t latent_scratch_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                 std::int32_t max_rows);

/// `h`: rows as w.latent.in reads them. `last`: the layer is the last, and nothing but the wanted rows is left in
/// `s`, maybe none (then `to` is untouched).
void latent_half(const StepOps& ops, Step& s, const LayerWeights& w, const LayerSpec& layer, const GroupKv& group,
                 const ops::KvLayerView& kv, bool last, const Rows& h, const Output& to);

}  // namespace barg::model
