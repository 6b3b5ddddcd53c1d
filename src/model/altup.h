// Several residual streams (AltUp), of which a layer works on one, and a low-rank path beside attention
// (LAuReL).
//
//   c(x)    = tanh(router norm(x) / hidden)               what a layer mixes streams by, of the active one
//   predict: all streams from all, by predict c(x_active); the layer works on the prediction of the active
//   one correct: all streams by what became of that one, a, by correct c(a) laurel:  after attention, x = (x
//   + h + norm(right left h)) / sqrt(2), h being what attention read
//
// The other streams begin as matrices of the embedding, and end as the mean of all, each taken through a
// matrix and brought to the magnitude of the first. One thread; allocates nothing; borrows as step.h says.
#pragma once

#include <cstddef>

#include "model/step.h"

namespace barg::model {

/// Bytes of the scratch that these take; 0 where the model has neither.
std::size_t altup_scratch_bytes(const DecoderSpec& spec, std::int32_t max_rows);

/// The streams from s.x, the embedding.
void begin_streams(const StepOps& ops, const Step& s, const Weights& w);
/// s.x = the active stream's prediction.
void predict_streams(const StepOps& ops, const Step& s, const StreamWeights& w);
/// From s.x, what became of it; s.x = the corrected active stream, scaled (`scale`: [hidden]).
void correct_streams(const StepOps& ops, const Step& s, const StreamWeights& w, const float* scale);
/// s.sub is added to all streams but the first.
void add_to_streams(const StepOps& ops, const Step& s);
/// s.x = what the final norm reads.
void end_streams(const StepOps& ops, const Step& s, const Weights& w);

/// s.laurel = h + norm(right left h); h [rows, hidden] as floats.
void begin_laurel(const StepOps& ops, const Step& s, const StreamWeights& w, const Rows& h);
/// s.x = (s.x + s.laurel) / sqrt(2).
void end_laurel(const StepOps& ops, const Step& s);

}  // namespace barg::model
