// Rotary position embedding: frequencies from a RopeSpec, and cos/sin rows for a step. Pure; any thread.
//
// Frequencies are computed in f64 and rounded to f32 once (as the models were trained); the angle p * f is
// then exact in f64, and cos/sin come from our own f64 polynomials, so that the tables have the same bits on
// every machine, whatever its libm.
#pragma once

#include <cstdint>
#include <vector>

#include "model/decoder_spec.h"

namespace barg::model {

/// [rotary_dim/2] radians per position.
std::vector<float> rope_frequencies(const RopeSpec& spec);

/// cos and sin [rows, frequencies.size()] for rows at `positions` (each >= 0).
void rope_rows(const std::vector<float>& frequencies, const std::int32_t* positions, std::int32_t rows,
               float* cos, float* sin);

/// sin and cos of 0 <= x < 2^31 * pi, within 1e-9 and rounded to f32.
void sin_cos(double x, float* sin, float* cos);

}  // namespace barg::model
