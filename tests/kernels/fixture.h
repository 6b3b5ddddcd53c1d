// What the kernel tests share: devices, random weights in every format with their exact values, a paged KV
// arena. Test data is drawn from a fixed seed and printed by shape when a comparison fails.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu.h"
#include "math.h"
#include "ops.h"

namespace barg::test {

using ops::CpuDevice;
using ops::Isa;

/// 64-byte aligned bytes.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes = 0) : storage_(bytes + 64), bytes_(bytes) {}
  std::byte* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }
  std::size_t size() const { return bytes_; }

 private:
  std::vector<std::byte> storage_;
  std::size_t bytes_;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  float normal(float sigma = 1.0f) { return std::normal_distribution<float>(0.0f, sigma)(engine_); }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  int between(int low, int high) { return low + below(high - low + 1); }
  std::vector<float> normals(std::size_t n, float sigma = 1.0f) {
    std::vector<float> v(n);
    for (float& x : v) x = normal(sigma);
    return v;
  }

 private:
  std::mt19937_64 engine_;
};

inline constexpr DType kAllTypes[] = {DType::kF32,   DType::kF16,   DType::kBF16,       DType::kQ8_0,
                                      DType::kQ4_0,  DType::kQ4_1,  DType::kS8Per16,    DType::kS8Min,
                                      DType::kU5Min, DType::kU4Min, DType::kU2MinPer16, DType::kS3Per16,
                                      DType::kIQ4,   DType::kFP4,   DType::kFP4Per16,   DType::kFP8};
inline bool is_quantised(DType t) { return block_elements(t) == 32; }
/// Recipe int8 rounds the activations that such weights multiply.
inline bool multiplies_int8(DType t) { return is_quantised(t) && t != DType::kFP8; }

inline double f8_value(int code);

/// A converted block, from its description in ops.h.
inline void dequantise_converted(DType type, const std::uint8_t* b, float* out) {
  const auto f32 = [&](int at) {
    float v;
    std::memcpy(&v, b + at, 4);
    return v;
  };
  const auto f16 = [&](int at) {
    return ops::f16_to_f32(static_cast<std::uint16_t>(b[at] | b[at + 1] << 8));
  };
  for (int e = 0; e < 32; ++e) {
    const int half = e / 16, j = e % 16;
    const auto nibble = [&](int at) { return e < 16 ? b[at + j] & 15 : b[at + j] >> 4; };
    const auto pair = [&](int at) { return b[at + 4 * half + e % 4] >> (2 * (e / 4 % 4)) & 3; };
    const auto bit = [&](int at) { return b[at + e % 4] >> (e / 4) & 1; };
    const auto s8 = [&](int at) { return static_cast<float>(static_cast<std::int8_t>(b[at])); };
    constexpr int kIQ[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const auto fp4 = [](int n) {
      constexpr float kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12};
      return n % 8 == 0 ? 0.0f : n < 8 ? kTwice[n] : -kTwice[n - 8];
    };
    float v = 0.0f;
    if (type == DType::kS8Per16) v = f32(4 * half) * s8(8 + e);
    if (type == DType::kS8Min) v = f32(0) * s8(8 + e) + f32(4);
    if (type == DType::kU5Min) v = f32(0) * static_cast<float>(nibble(8) + 16 * bit(24)) + f32(4);
    if (type == DType::kU4Min) v = f32(0) * static_cast<float>(nibble(8)) + f32(4);
    if (type == DType::kU2MinPer16) {
      const float scale = f16(0) * static_cast<float>(b[4 + half]),
                  minimum = f16(2) * static_cast<float>(b[6 + half]);
      v = scale * static_cast<float>(pair(8)) - minimum;
    }
    if (type == DType::kS3Per16) v = f32(4 * half) * static_cast<float>(pair(8) + 4 * bit(16) - 4);
    if (type == DType::kIQ4) v = f32(0) * static_cast<float>(kIQ[nibble(4)]);
    if (type == DType::kFP4) v = f32(0) * fp4(nibble(4));
    if (type == DType::kFP4Per16) v = f32(4 * half) * fp4(nibble(8));
    if (type == DType::kFP8) v = f32(0) * static_cast<float>(f8_value(b[4 + e]));
    out[e] = v;
  }
}

/// Values of one stored block, written from the format's description, independent of the kernels.
inline void dequantise(DType type, const std::uint8_t* b, float* out) {
  const auto u16 = [&](int at) { return static_cast<std::uint16_t>(b[at] | b[at + 1] << 8); };
  if (type == DType::kF32) std::memcpy(out, b, 4);
  if (type == DType::kF16) *out = ops::f16_to_f32(u16(0));
  if (type == DType::kBF16) *out = ops::bf16_to_f32(u16(0));
  if (is_converted(type)) dequantise_converted(type, b, out);
  if (!is_quantised(type) || is_converted(type)) return;
  const float d = ops::f16_to_f32(u16(0));
  for (int i = 0; i < 32; ++i) {
    if (type == DType::kQ8_0) out[i] = d * static_cast<float>(static_cast<std::int8_t>(b[2 + i]));
    const int at = (type == DType::kQ4_1 ? 4 : 2) + i % 16;
    const int nibble = i < 16 ? b[at] & 15 : b[at] >> 4;
    if (type == DType::kQ4_0) out[i] = d * static_cast<float>(nibble - 8);
    if (type == DType::kQ4_1) out[i] = d * static_cast<float>(nibble) + ops::f16_to_f32(u16(2));
  }
}

inline constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8};

/// The value of an e4m3fn code, from the format's description.
inline double f8_value(int code) {
  const int exponent = code >> 3 & 15;
  const double magnitude =
      exponent == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), exponent - 10);
  return code < 128 ? magnitude : -magnitude;
}

/// The code nearest to x, the even one of two; found by trying all of them.
inline int nearest_f8(double x) {
  int best = 0;
  for (int code = 1; code < 127; ++code) {
    const double distance = std::abs(f8_value(code) - std::abs(x));
    const double least = std::abs(f8_value(best) - std::abs(x));
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best + (std::signbit(x) ? 128 : 0);
}

/// One token's K or V of a head as it is stored. REQUIRES finite numbers.
struct StoredToken {
  StoredToken(DType type, const float* x, int dim) {
    for (int d = 0; d < dim; ++d) {
      if (type == DType::kF32) values.push_back(x[d]);
      if (type == DType::kF16) values.push_back(ops::f16_to_f32(ops::f32_to_f16(x[d])));
      if (type == DType::kBF16) values.push_back(ops::bf16_to_f32(ops::f32_to_bf16(x[d])));
    }
    if (!has_token_scales(type)) return;
    float most = 0.0f;
    for (int d = 0; d < dim; ++d) most = std::max(most, std::abs(x[d]));
    const float limit = type == DType::kI8 ? 127.0f : 448.0f;
    scale = most / limit;
    if (scale < 1.17549435e-38f) scale = 0.0f;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int d = 0; d < dim; ++d) {
      const float t = std::clamp(x[d] * inverse, -limit, limit);
      const int code = scale == 0.0f        ? 0
                       : type == DType::kI8 ? static_cast<int>(std::nearbyint(t))
                                            : nearest_f8(t);
      codes.push_back(static_cast<std::uint8_t>(code));
      values.push_back((type == DType::kI8 ? code : f8_value(code)) * scale);
    }
  }
  float scale = 1.0f;
  std::vector<std::uint8_t> codes;
  std::vector<double> values;
};

/// A random [n, k] matrix: file bytes, exact values, packed form.
struct Weights {
  Weights(CpuDevice& device, DType type, std::int32_t n, std::int32_t k, Random& random,
          ops::Packing packing = ops::Packing::kStored) {
    const std::size_t blocks = static_cast<std::size_t>(n) * k / block_elements(type);
    raw.resize(blocks * block_bytes(type));
    dense.resize(static_cast<std::size_t>(n) * k);
    for (std::size_t i = 0; i < blocks; ++i) {
      std::uint8_t* b = raw.data() + i * block_bytes(type);
      fill_block(type, b, random);
      dequantise(type, b, dense.data() + i * block_elements(type));
    }
    view = {n, k, type, nullptr, packing};
    repack(device);
  }

  /// Packs `raw` again.
  void repack(CpuDevice& device) {
    packed = Buffer(device.ops().packed_bytes(view.dtype, view.n, view.k, view.packing));
    device.ops().pack(device.stream(), {raw.data(), view.n, view.k, view.dtype, packed.data(), view.packing});
    view.data = packed.data();
  }

  static void fill_block(DType type, std::uint8_t* b, Random& random) {
    const float w = random.normal();
    const auto put = [&](int at, std::uint16_t v) { std::memcpy(b + at, &v, 2); };
    if (type == DType::kF32) std::memcpy(b, &w, 4);
    if (type == DType::kF16) put(0, ops::f32_to_f16(w));
    if (type == DType::kBF16) put(0, ops::f32_to_bf16(w));
    if (!is_quantised(type)) return;
    for (std::size_t i = 0; i < block_bytes(type); ++i) b[i] = static_cast<std::uint8_t>(random.below(256));
    if (is_converted(type)) return fill_header(type, b, random);
    put(0, ops::f32_to_f16(random.normal(type == DType::kQ8_0 ? 0.02f : 0.2f)));
    if (type == DType::kQ4_1) put(2, ops::f32_to_f16(random.normal()));
  }

  /// Scales and minima that make weights of about 1; no NaN among the codes.
  static void fill_header(DType type, std::uint8_t* b, Random& random) {
    if (type == DType::kU2MinPer16) {
      for (int at = 0; at < 4; at += 2) {
        const std::uint16_t h = ops::f32_to_f16(random.normal(0.005f));
        std::memcpy(b + at, &h, 2);
      }
      return;
    }
    const bool minimum = type == DType::kS8Min || type == DType::kU5Min || type == DType::kU4Min;
    const bool two = type == DType::kS8Per16 || type == DType::kS3Per16 || type == DType::kFP4Per16;
    const bool bytes = type == DType::kS8Per16 || type == DType::kS8Min || type == DType::kIQ4;
    for (int i = 0; i < (minimum || two ? 2 : 1); ++i) {
      const float v = random.normal(minimum && i == 1     ? 1.0f
                                    : type == DType::kFP8 ? 0.005f
                                    : bytes               ? 0.02f
                                                          : 0.2f);
      std::memcpy(b + 4 * i, &v, 4);
    }
    for (int i = 4; type == DType::kFP8 && i < 36; ++i) b[i] &= b[i] % 128 == 127 ? 0xfe : 0xff;
  }

  std::vector<std::uint8_t> raw;
  std::vector<float> dense;
  Buffer packed;
  ops::PackedWeight view;
};

/// x W^T (+ bias) on a device.
inline std::vector<float> run_linear(CpuDevice& device, const ops::PackedWeight& w, Recipe recipe,
                                     const float* x, std::int32_t rows, std::int64_t x_stride,
                                     const float* bias = nullptr) {
  Buffer workspace(device.ops().prepared_bytes(rows, w.k, recipe));
  std::vector<float> out(static_cast<std::size_t>(rows) * w.n, -7.0f);
  device.ops().linear(device.stream(), {.weight = w,
                                        .recipe = recipe,
                                        .x = x,
                                        .rows = rows,
                                        .x_stride = x_stride,
                                        .bias = bias,
                                        .out = out.data(),
                                        .out_stride = w.n,
                                        .workspace = workspace.data()});
  return out;
}

/// Equal bits; two NaNs are equal.
inline bool same_bits(float a, float b) {
  return (a != a && b != b) || ops::float_bits(a) == ops::float_bits(b);
}
inline ::testing::AssertionResult same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << "sizes " << a.size() << " and " << b.size();
  std::size_t different = 0;
  std::size_t first = 0;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (same_bits(a[i], b[i])) continue;
    ++different;
    first = i;
  }
  if (different == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << different << " of " << a.size() << " differ, first at " << first
                                       << ": " << a[first] << " and " << b[first];
}

/// Largest |a - b|.
inline double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    worst = d >= worst ? d : (d == d ? worst : 1e30);
  }
  return worst;
}

inline std::unique_ptr<CpuDevice> device(Isa isa, int threads = 1) {
  return std::make_unique<CpuDevice>(ops::CpuOptions{threads, isa});
}

/// The devices to compare with the scalar one.
inline std::vector<Isa> vector_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (ops::isa_supported(isa)) isas.push_back(isa);
  }
  return isas;
}

/// Memory between two stretches of address space that nobody may touch.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes)
      : bytes_(bytes), mapped_(kGuard + (bytes + 4095) / 4096 * 4096 + kGuard) {
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(data(), mapped_ - 2 * kGuard, PROT_READ | PROT_WRITE) != 0)
      std::abort();
  }
  ~GuardedBuffer() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), mapped_(other.mapped_) {}
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  std::byte* data() const { return base_ + kGuard; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kGuard = 4u << 20;  // more than any block of the tests
  std::byte* base_;
  std::size_t bytes_, mapped_;
};

/// A KV arena of one layer with `blocks` physical blocks; every byte starts as `fill`. Block -1 is fatal.
struct Arena {
  Arena(CpuDevice& device, DType type, std::int32_t block_tokens, std::int32_t heads, std::int32_t dim,
        std::int32_t blocks, int fill = 0xff)  // 0xffff.. is a NaN in every type
      : memory(device.ops().kv_head_bytes(type, block_tokens, dim) * heads * blocks) {
    const std::size_t head_bytes = device.ops().kv_head_bytes(type, block_tokens, dim);
    std::memset(memory.data(), fill, memory.size());
    view = {memory.data(),
            static_cast<std::int64_t>(head_bytes * heads),
            static_cast<std::int64_t>(head_bytes),
            static_cast<std::int64_t>(head_bytes / 2),
            type,
            block_tokens,
            heads,
            dim};
  }
  GuardedBuffer memory;
  ops::KvLayerView view;
};

}  // namespace barg::test
