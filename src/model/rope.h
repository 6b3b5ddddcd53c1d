// Rotary position embedding: frequencies from a RopeSpec. Pure; any thread.
//
// Frequencies are computed in f64 and rounded to f32 once (as the models were trained); the angle p * f is
// then exact in f64 (rope_angles, ops.h).
#pragma once

#include <cstdint>
#include <vector>

#include "model/decoder_spec.h"

namespace barg::model {

/// Decides what depends on the longest context, `tokens`, that will be served: longrope's divisors, and the
/// theta of dynamic. Other kinds stay as they are. (transformers decides anew as a sequence grows; then
/// cached keys and later queries disagree.)
void fix_context(DecoderSpec& spec, std::int32_t tokens);

/// [rotary_dim/2] radians per position. REQUIRES fix_context() before, for the kinds it is about.
std::vector<float> rope_frequencies(const RopeSpec& spec);

/// yarn's magnitude 0.1 c ln(factor) + 1, or 1 for factors up to 1.
double yarn_magnitude(double factor, double c);

}  // namespace barg::model
