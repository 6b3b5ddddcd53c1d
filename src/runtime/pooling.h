// pool: the states of a prompt's tokens become one vector. One order of operations, on one thread, on every machine.
#pragma once

#include <span>

#include "model/decoder_spec.h"

namespace barg::runtime {

/// `states` [rows, out.size()], those the model's kind of pooling is made from (at least one row). False: a number of
/// the vector is NaN or infinite.
bool pool(model::Pooling kind, std::span<const float> states, std::span<float> out);

}  // namespace barg::runtime
