// The host's twins of the wrappers in kernels/cuda/prelude.cuh, which describes them.
#pragma once

#include <bit>
#include <cstring>

#include "math.h"
#include "emu/machine.h"

#define BARG_KERNEL inline void
#define BARG_DEVICE inline
#define BARG_UNROLL
#define BARG_SHARED(type, name, count)                             \
  static constexpr char name##_declaration = 0;                    \
  type* const name = static_cast<type*>(::barg::emu::shared_array( \
      &name##_declaration, #name, sizeof(type) * static_cast<std::size_t>(count)))

namespace barg::cuda {

using emu::Site;
using Here = std::source_location;

struct alignas(16) Vec16 {
  std::uint32_t x[4];
};
struct alignas(8) Vec8 {
  std::uint32_t x[2];
};

template <class T>
T seeded(const char* name, T x) {
  return emu::seeding() ? static_cast<T>(emu::seeded(name, static_cast<double>(x))) : x;
}

inline int thread_id() { return emu::place().thread; }
inline int block_threads() { return emu::place().launch->threads; }
inline int block_x() { return emu::place().block_x; }
inline int block_y() { return emu::place().block_y; }
inline int block_z() { return emu::place().block_z; }
inline int grid_x() { return emu::place().launch->grid_x; }
inline int lane_id() { return emu::place().thread & 31; }
inline int warp_id() { return emu::place().thread >> 5; }
inline std::byte* dynamic_shared() { return static_cast<std::byte*>(emu::dynamic_shared()); }

inline void sync_block(Site where = Here::current()) { emu::sync_block(where); }
inline void sync_warp(Site where = Here::current()) { emu::sync_warp(where); }

template <class T>
T shuffle(T v, int source, Site where = Here::current()) {
  return std::bit_cast<T>(emu::exchange(emu::Exchange::kFrom, std::bit_cast<std::uint32_t>(v), source, where));
}
template <class T>
T shuffle_xor(T v, int mask, Site where = Here::current()) {
  return std::bit_cast<T>(emu::exchange(emu::Exchange::kXor, std::bit_cast<std::uint32_t>(v), mask, where));
}
template <class T>
T shuffle_up(T v, int distance, Site where = Here::current()) {
  return std::bit_cast<T>(emu::exchange(emu::Exchange::kUp, std::bit_cast<std::uint32_t>(v), distance, where));
}
inline std::uint32_t ballot(bool v, Site where = Here::current()) { return emu::ballot(v, where); }
inline int lowest_bit(std::uint32_t mask) { return std::countr_zero(mask); }
inline int leading_zeros(std::uint32_t x) { return std::countl_zero(x); }

// Moved by the machine, not by the kernel's own code, so that the checker sees one access of 16 bytes.
Vec16 load16(const void* p, Site where = Here::current());
Vec8 load8(const void* p, Site where = Here::current());
void store16(void* p, const Vec16& v, Site where = Here::current());
void store8(void* p, const Vec8& v, Site where = Here::current());
Vec16 load16_stream(const void* p, Site where = Here::current());
Vec16 shared_load16(const void* shared, Site where = Here::current());
Vec8 shared_load8(const void* shared, Site where = Here::current());
void shared_store16(void* shared, const Vec16& v, Site where = Here::current());
void shared_store8(void* shared, const Vec8& v, Site where = Here::current());

inline void cp_async16(void* shared, const void* from, bool valid, Site where = Here::current()) {
  emu::cp_async16(shared, from, valid, where);
}
inline void cp_commit() { emu::cp_commit(); }
template <int N>
void cp_wait(Site where = Here::current()) {
  emu::cp_wait(N, where);
}

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* shared, Site where = Here::current()) {
  emu::ldmatrix_x4(r, shared, false, where);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* shared, Site where = Here::current()) {
  emu::ldmatrix_x4(r, shared, true, where);
}

enum class Half : std::uint8_t { kF16, kBF16 };
template <Half T>
void mma_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Site where = Here::current()) {
  emu::mma_16816(d, a, b, T == Half::kBF16, where);
}

inline float fma(float a, float b, float c) { return ops::fma(a, b, c); }
inline float bits_float(std::uint32_t b) { return ops::bits_float(b); }
inline std::uint32_t float_bits(float x) { return ops::float_bits(x); }
inline double bits_double(std::uint64_t b) { return std::bit_cast<double>(b); }
inline std::uint64_t double_bits(double x) { return std::bit_cast<std::uint64_t>(x); }
inline float sqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float divide(float a, float b) { return a / b; }
inline float half_to_float(std::uint16_t h) { return ops::f16_to_f32(h); }
inline std::uint16_t float_to_half(float x) { return ops::f32_to_f16(x); }
inline float bfloat_to_float(std::uint16_t h) { return ops::bf16_to_f32(h); }
inline std::uint16_t float_to_bfloat(float x) { return ops::f32_to_bf16(x); }
template <Half T>
std::uint32_t pack2(float low, float high) {
  if constexpr (T == Half::kBF16)
    return ops::f32_to_bf16(low) | static_cast<std::uint32_t>(ops::f32_to_bf16(high)) << 16;
  else
    return ops::f32_to_f16(low) | static_cast<std::uint32_t>(ops::f32_to_f16(high)) << 16;
}
inline std::uint32_t multiply_bfloat2(std::uint32_t a, std::uint32_t b) {
  const auto product = [&](int e) {
    const auto x = static_cast<std::uint16_t>(a >> 16 * e), y = static_cast<std::uint16_t>(b >> 16 * e);
    return ops::f32_to_bf16(ops::bf16_to_f32(x) * ops::bf16_to_f32(y));
  };
  return product(0) | static_cast<std::uint32_t>(product(1)) << 16;
}
template <Half T>
std::uint32_t add_pair(std::uint32_t a, std::uint32_t b) {
  const auto sum = [&](int e) -> std::uint32_t {
    const auto x = static_cast<std::uint16_t>(a >> 16 * e), y = static_cast<std::uint16_t>(b >> 16 * e);
    // f32 has more than twice the digits: rounding to it first changes nothing.
    if constexpr (T == Half::kBF16) return ops::f32_to_bf16(ops::bf16_to_f32(x) + ops::bf16_to_f32(y));
    return ops::f32_to_f16(ops::f16_to_f32(x) + ops::f16_to_f32(y));
  };
  return sum(0) | sum(1) << 16;
}

std::int32_t atomic_add(std::int32_t* p, std::int32_t v, Site where = Here::current());
std::uint32_t shared_atomic_add(std::uint32_t* shared, std::uint32_t v, Site where = Here::current());
void shared_atomic_add(std::uint64_t* shared, std::uint64_t v, Site where = Here::current());
inline std::int32_t publish_count(std::int32_t* counter, Site where = Here::current()) {
  return emu::publish_count(counter, where);
}
float load_published(const float* p, Site where = Here::current());
Vec16 load16_published(const void* p, Site where = Here::current());
Vec8 load8_published(const void* p, Site where = Here::current());

inline void pdl_wait() {}
inline void pdl_release() {}

}  // namespace barg::cuda
