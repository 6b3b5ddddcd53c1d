// What kernels are written in: the one file that knows which compiler reads it. nvcc makes device code of it; the
// plain host compiler takes kernels/emu/prelude.h, whose twins of every wrapper run the same sources on the host.
//
// Rules for kernels: no PTX, no `__shared__`, no `<<<>>>`, no threadIdx outside this file; a barrier or wait is one
// unqualified call on its own line (`sync_block();`, `cp_wait<1>();`); warp collectives are called by all 32 lanes;
// floats are never added by atomics; every fused multiply-add is written as fma(). Vectors of 16 bytes are moved by
// load16/store16 (8: load8/store8), so that they stay one access. A value that another block wrote in this launch is
// read by load_published() after publish_count() said that it is there, and in no other way.
//
// Addresses: `shared` arguments point into BARG_SHARED arrays or dynamic_shared(), all others into global memory.
// 16-byte wrappers REQUIRE 16-byte alignment of each address; ldmatrix too.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)

#define BARG_KERNEL __global__ void
#define BARG_DEVICE __device__ __forceinline__
/// `BARG_SHARED(float, sums, 32);` one array of the block, 16-byte aligned. Its contents are undefined at first.
#define BARG_SHARED(type, name, count) __shared__ __align__(16) type name[count]
/// Before a loop of a constant number of turns: arrays that it indexes stay in registers.
#define BARG_UNROLL _Pragma("unroll")

namespace barg::cuda {

/// 16 and 8 bytes in registers.
struct alignas(16) Vec16 {
  std::uint32_t x[4];
};
struct alignas(8) Vec8 {
  std::uint32_t x[2];
};

/// `x`. On the emulated device a test may seed an error here: emu::Fault::Kind::kValue.
template <class T>
BARG_DEVICE T seeded(const char*, T x) {
  return x;
}

// Who asks. One-dimensional blocks; grids of up to three dimensions.
BARG_DEVICE int thread_id() { return static_cast<int>(threadIdx.x); }
BARG_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
BARG_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
BARG_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
BARG_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
BARG_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
BARG_DEVICE int lane_id() { return static_cast<int>(threadIdx.x & 31u); }
BARG_DEVICE int warp_id() { return static_cast<int>(threadIdx.x >> 5); }

/// The launch's dynamic shared memory, 128-byte aligned.
BARG_DEVICE std::byte* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char barg_dynamic_shared[];
  return reinterpret_cast<std::byte*>(barg_dynamic_shared);
}

// Barriers: all threads of the block; all lanes of the warp.
BARG_DEVICE void sync_block() { __syncthreads(); }
BARG_DEVICE void sync_warp() { __syncwarp(); }

// Exchange between the 32 lanes of a warp; orders no memory. T: 4 bytes.
template <class T>
BARG_DEVICE T shuffle(T v, int source) {
  return __shfl_sync(0xffffffffu, v, source);
}
template <class T>
BARG_DEVICE T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
template <class T>
BARG_DEVICE T shuffle_up(T v, int distance) {  ///< lanes below `distance` keep their own
  return __shfl_up_sync(0xffffffffu, v, distance);
}
BARG_DEVICE std::uint32_t ballot(bool v) { return __ballot_sync(0xffffffffu, v); }
/// The number of the lowest bit that is set; one must be.
BARG_DEVICE int lowest_bit(std::uint32_t mask) { return __ffs(static_cast<int>(mask)) - 1; }
/// Of 0: 32.
BARG_DEVICE int leading_zeros(std::uint32_t x) { return __clz(static_cast<int>(x)); }

// Global memory.
BARG_DEVICE Vec16 load16(const void* p) { return *static_cast<const Vec16*>(p); }
BARG_DEVICE Vec8 load8(const void* p) { return *static_cast<const Vec8*>(p); }
BARG_DEVICE void store16(void* p, const Vec16& v) { *static_cast<Vec16*>(p) = v; }
BARG_DEVICE void store8(void* p, const Vec8& v) { *static_cast<Vec8*>(p) = v; }
/// Read once: not kept in L1. For memory that nobody writes during the launch.
BARG_DEVICE Vec16 load16_stream(const void* p) {
  Vec16 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
               : "l"(__cvta_generic_to_global(p)));
  return v;
}

// Shared memory, the same.
BARG_DEVICE Vec16 shared_load16(const void* shared) { return *static_cast<const Vec16*>(shared); }
BARG_DEVICE Vec8 shared_load8(const void* shared) { return *static_cast<const Vec8*>(shared); }
BARG_DEVICE void shared_store16(void* shared, const Vec16& v) { *static_cast<Vec16*>(shared) = v; }
BARG_DEVICE void shared_store8(void* shared, const Vec8& v) { *static_cast<Vec8*>(shared) = v; }

// Asynchronous copies of a thread, 16 bytes each, past L1. `valid` false: zeros, and `from` is not read (it may be
// anything). Copies since the last cp_commit() are a group; cp_wait<N>() returns when at most the N latest groups
// are under way. Others see the bytes after a barrier that follows the wait.
BARG_DEVICE void cp_async16(void* shared, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
BARG_DEVICE void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
BARG_DEVICE void cp_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Four 8x8 matrices of 16-bit numbers; lane i gives the address of row i % 8 of matrix i / 8 (16 bytes). r[m] of lane
// l: elements 2 (l % 4) and + 1 of row l / 4 of matrix m, the first in the low half. _trans: of its transpose.
BARG_DEVICE void ldmatrix_x4(std::uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)))
               : "memory");
}
BARG_DEVICE void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)))
               : "memory");
}

/// The 16-bit formats of the tensor cores.
enum class Half : std::uint8_t { kF16, kBF16 };

// d += a b, a [16, 16] by rows, b [16, 8] by columns, d [16, 8] in f32. With g = lane / 4, t = lane % 4:
//   a[0]: row g,     columns 2t, 2t+1      a[1]: row g + 8, the same columns
//   a[2]: row g,     columns 2t+8, 2t+9    a[3]: row g + 8, the same columns
//   b[0]: column g, rows 2t, 2t+1          b[1]: column g, rows 2t+8, 2t+9
//   d[0], d[1]: row g, columns 2t, 2t+1    d[2], d[3]: row g + 8, the same columns
// The order in which one instruction adds is the device's own (the same for every lane and call).
template <Half T>
BARG_DEVICE void mma_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (T == Half::kBF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// Numbers. All round to nearest even; what the host's twins return to the bit (NaN: some NaN).
BARG_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
BARG_DEVICE float bits_float(std::uint32_t b) { return __uint_as_float(b); }
BARG_DEVICE std::uint32_t float_bits(float x) { return __float_as_uint(x); }
BARG_DEVICE double bits_double(std::uint64_t b) { return __longlong_as_double(static_cast<long long>(b)); }
BARG_DEVICE std::uint64_t double_bits(double x) { return static_cast<std::uint64_t>(__double_as_longlong(x)); }
BARG_DEVICE float sqrt_rn(float x) { return __fsqrt_rn(x); }
BARG_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
BARG_DEVICE float half_to_float(std::uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
BARG_DEVICE std::uint16_t float_to_half(float x) {  ///< beyond 65504: infinity
  std::uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
BARG_DEVICE float bfloat_to_float(std::uint16_t h) { return __uint_as_float(static_cast<std::uint32_t>(h) << 16); }
BARG_DEVICE std::uint16_t float_to_bfloat(float x) {
  std::uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
/// Two floats to a register of two 16-bit numbers, `low` in the low half.
template <Half T>
BARG_DEVICE std::uint32_t pack2(float low, float high) {
  std::uint32_t r;
  if constexpr (T == Half::kBF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
/// The products of two pairs of bf16, each rounded once.
BARG_DEVICE std::uint32_t multiply_bfloat2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));  // + -0: a product's sign stays
  return r;
}
/// The sums of two pairs of 16-bit numbers, each rounded once.
template <Half T>
BARG_DEVICE std::uint32_t add_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  if constexpr (T == Half::kBF16)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x3f803f80u), "r"(b));  // sm_80 has no addition
  else
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// Between blocks of one launch.
BARG_DEVICE std::int32_t atomic_add(std::int32_t* p, std::int32_t v) { return atomicAdd(p, v); }
BARG_DEVICE std::uint32_t shared_atomic_add(std::uint32_t* shared, std::uint32_t v) { return atomicAdd(shared, v); }
BARG_DEVICE void shared_atomic_add(std::uint64_t* shared, std::uint64_t v) {
  atomicAdd(reinterpret_cast<unsigned long long*>(shared), static_cast<unsigned long long>(v));
}
/// Adds one to *counter and returns what was there. What the caller's block wrote before the sync_block() in front of
/// this call is seen, by load_published() after a sync_block(), in the block whose call returns a later number.
BARG_DEVICE std::int32_t publish_count(std::int32_t* counter) {
  std::int32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return old;
}
BARG_DEVICE float load_published(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(__cvta_generic_to_global(p)) : "memory");
  return v;
}
BARG_DEVICE Vec16 load16_published(const void* p) {
  Vec16 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return v;
}
BARG_DEVICE Vec8 load8_published(const void* p) {
  Vec8 v;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x[0]), "=r"(v.x[1])
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return v;
}

// Programmatic dependent launch: what follows pdl_wait() sees all that the kernels before wrote; pdl_release() lets the
// next kernel begin. Without the launch attribute both do nothing.
BARG_DEVICE void pdl_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
BARG_DEVICE void pdl_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace barg::cuda

#else
#include "emu/prelude.h"
#endif

#include "cuda/launch.h"
