// The numbers of a tensor, for tests that write a checkpoint again in another container.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "math.h"
#include "model/tensor.h"

namespace barg::model::test {

/// A tensor as float32, rows of `width` numbers.
struct Floats {
  std::vector<float> values;
  std::vector<std::int64_t> shape;

  std::int64_t width() const { return shape.size() > 1 ? shape.back() : 1; }
};

/// REQUIRES f32, f16 or bf16.
inline Floats floats_of(const Tensor& t) {
  Floats out{std::vector<float>(t.elements()), t.shape};
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    std::uint16_t h;
    if (t.type.dtype == DType::kF32) {
      std::memcpy(&out.values[i], t.bytes.data() + 4 * i, 4);
      continue;
    }
    std::memcpy(&h, t.bytes.data() + 2 * i, 2);
    out.values[i] = t.type.dtype == DType::kF16 ? ops::f16_to_f32(h) : ops::bf16_to_f32(h);
  }
  return out;
}

}  // namespace barg::model::test
