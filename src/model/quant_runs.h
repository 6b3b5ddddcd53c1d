// How converters write: a run is one converted block, or a Q4_0 or Q8_0 block, of 32 weights (kernels/ops.h).
// Private to the converters of src/model. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "math.h"

namespace barg::model {

constexpr int kRun = 32;

inline std::uint16_t load_u16(const void* p) {
  std::uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline std::uint32_t load_u32(const void* p) {
  std::uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Writes one run: its words and then its codes, in the order in which they are put.
class Run {
 public:
  explicit Run(std::byte* out) : out_(reinterpret_cast<std::uint8_t*>(out)) {}

  void put_float(float v) { put(&v, sizeof v); }
  void put(const void* p, std::size_t n) {
    std::memcpy(out_, p, n);
    out_ += n;
  }
  void put_bytes(const std::int8_t* codes) { put(codes, kRun); }
  void put_nibbles(const std::uint8_t* codes) {
    for (int j = 0; j < 16; ++j) out_[j] = static_cast<std::uint8_t>((codes[j] & 15) | codes[j + 16] << 4);
    out_ += 16;
  }
  /// The lowest two bits of each code.
  void put_pairs(const std::uint8_t* codes) {
    for (int half = 0; half < 2; ++half, codes += 16) {
      for (int i = 0; i < 4; ++i) {
        *out_++ = static_cast<std::uint8_t>((codes[i] & 3) | (codes[4 + i] & 3) << 2 |
                                            (codes[8 + i] & 3) << 4 | (codes[12 + i] & 3) << 6);
      }
    }
  }
  /// Bit `from` of each code.
  void put_bits(const std::uint8_t* codes, int from) {
    for (int i = 0; i < 4; ++i) {
      unsigned v = 0;
      for (int g = 0; g < 8; ++g) v |= (static_cast<unsigned>(codes[4 * g + i]) >> from & 1u) << g;
      *out_++ = static_cast<std::uint8_t>(v);
    }
  }

 private:
  std::uint8_t* out_;
};

}  // namespace barg::model
