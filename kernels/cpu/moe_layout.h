// Where `experts` keeps what it works on: the part without arithmetic. Everything is static: see math.h.
#pragma once

#include "cpu/layout.h"

namespace barg::ops::cpu {

/// Rows at a time are as many as give these (row, expert) pairs: the workspace has an end, weights are used often.
inline constexpr std::int32_t kMostPairs = 4096;

static constexpr std::int32_t pass_rows(std::int32_t rows, std::int32_t chosen) {
  const std::int32_t most = kMostPairs / chosen > 0 ? kMostPairs / chosen : 1;
  return rows < most ? rows : most;
}

/// Where the pairs of one pass lie in the workspace, ordered by expert, and by row within an expert.
struct Pass {
  std::int32_t pairs;
  std::int32_t* first;   ///< [E + 1] the first pair of each expert
  std::int32_t* active;  ///< [E] experts that somebody chose, ascending
  std::int32_t* row;     ///< [pairs] of the pass
  std::int32_t* place;   ///< [rows, chosen]: the place of a row's j-th choice among the pairs
  float* x;              ///< [pairs, H] gathered, and then the results
  float* act;            ///< [pairs, I]
  float* up;             ///< [pairs, I]
  std::byte* x_scratch;
  std::byte* act_scratch;
  std::size_t x_step, act_step;  ///< bytes of scratch a pair: rows in form int8 or bf16
  std::size_t bytes;
};

/// With nullptr, for `bytes` alone.
static inline Pass lay_out(void* workspace, std::int32_t rows, std::int32_t chosen, std::int32_t experts,
                           std::int32_t hidden, std::int32_t ffn, Recipe recipe) {
  auto* base = static_cast<std::byte*>(workspace);
  std::size_t at = 0;
  const auto take = [&](std::size_t bytes) {
    std::byte* const p = workspace != nullptr ? base + at : nullptr;
    at += align64(bytes);
    return p;
  };
  const auto pairs = static_cast<std::size_t>(pass_rows(rows, chosen)) * static_cast<std::size_t>(chosen);
  const auto ints = [&](std::size_t n) { return reinterpret_cast<std::int32_t*>(take(4 * n)); };
  const auto floats = [&](std::size_t n) { return reinterpret_cast<float*>(take(4 * n)); };
  Pass pass{};
  pass.first = ints(static_cast<std::size_t>(experts) + 1);
  pass.active = ints(static_cast<std::size_t>(experts));
  pass.row = ints(pairs);
  pass.place = ints(pairs);
  pass.x = floats(pairs * static_cast<std::size_t>(hidden));
  pass.act = floats(pairs * static_cast<std::size_t>(ffn));
  pass.up = floats(pairs * static_cast<std::size_t>(ffn));
  pass.x_step = prepared_bytes(1, hidden, recipe);
  pass.act_step = prepared_bytes(1, ffn, recipe);
  pass.x_scratch = take(pairs * pass.x_step);
  pass.act_scratch = take(pairs * pass.act_step);
  pass.bytes = at;
  return pass;
}

}  // namespace barg::ops::cpu
