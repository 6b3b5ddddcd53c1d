// RecurrentSpec: the sizes of mixers that keep a state of fixed size instead of something for every token: a
// short causal convolution, alone or before a recurrence. All such layers of a model are alike. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace barg::model {

/// How a file holds the input projection: as one matrix in the order of recurrent.h; as qkv, z, b and a; as
/// [q | k | v | z] and [b | a] of one group of heads after the other; or as qkv, z and such [b | a].
enum class InRows : std::uint8_t { kOne, kApart, kByGroup, kGatesByGroup };

struct RecurrentSpec {
  std::int32_t kernel = 0;  ///< taps of the convolution; 0: the model has no such layers
  std::int32_t channels = 0;  ///< of the convolution
  bool conv_bias = false;
  InRows in_rows = InRows::kOne;
  bool in_bias = false, out_bias = false;
  /// Tensors as llama.cpp's converter leaves them: ssm_a is the decay itself and not the logarithm of its
  /// size, the convolution is [channels, kernel], Mamba-2's numbers of heads are [heads, 1] and its norm
  /// [groups, width].
  bool converted = false;

  // A head's state has state_size rows (of keys; of B and C) and head_dim columns (of values; of x). Heads share
  // the keys, or B and C, of their group. No heads: the convolution is all there is.
  std::int32_t heads = 0, head_dim = 0, groups = 0, state_size = 0;
  bool tiled = false;  ///< head h belongs to group h % groups instead of h / (heads / groups)

  // Mamba-2
  float dt_min = 0, dt_max = std::numeric_limits<float>::infinity();

  // The norm of what a recurrence gives, and its gate
  bool norm = true;
  bool gate_first = false;         ///< the gate before the norm
  std::int32_t norm_groups = 1;    ///< parts of [heads * head_dim] that are normed each by itself
  bool shared_norm = false;        ///< all parts with the same weights

  /// What the input's parts are multiplied with: z (the gate), x, B, C, dt; and the output.
  std::array<float, 5> in_scales{1, 1, 1, 1, 1};
  float out_scale = 1;

  bool operator==(const RecurrentSpec&) const = default;
  std::int32_t inner() const { return heads > 0 ? heads * head_dim : channels; }
  std::int32_t group_width() const { return groups * state_size; }
  /// Bytes of a layer's state: the convolution's, then the heads', each a multiple of 64.
  std::int64_t conv_bytes() const { return aligned(std::int64_t{kernel - 1} * channels * 4); }
  std::int64_t state_bytes() const {
    return conv_bytes() + aligned(std::int64_t{heads} * state_size * head_dim * 4);
  }

 private:
  static std::int64_t aligned(std::int64_t n) { return (n + 63) / 64 * 64; }
};

}  // namespace barg::model
