// Basic types shared by every layer, kernels included. C++20 so that nvcc can read it; no other Barg
// header is included here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace barg {

/// Index into the vocabulary, 0 .. vocab_size-1.
using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

/// Index of a physical KV block inside the pool of one layer group, 0 .. num_blocks-1.
using BlockId = std::int32_t;
inline constexpr BlockId kNoBlock = -1;

/// A client's request; unique within an engine for the life of the process.
enum class RequestId : std::uint64_t {};
/// One generation (choice k of a request is one sequence); never reused within a process.
enum class SeqId : std::uint64_t {};
/// A step of the engine, counted from 1.
enum class StepId : std::uint64_t {};

/// How numbers are stored. The Q types are ggml blocks of 32 elements (`block_elements`), for weights only.
/// kF8E4M3 (fp8, e4m3fn) and kI8 are for K and V only: codes, and behind them a f32 scale for each token of
/// a head. From kS8Per16 on: blocks of 32 weights into which every other format is converted when it is loaded
/// (kernels/ops.h, Converted blocks).
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kF8E4M3,
  kI8,
  kQ4_K,  ///< read by CUDA alone, as kQ6_K; for the CPU they are converted
  kQ6_K,
  kS8Per16,
  kS8Min,
  kU5Min,
  kU4Min,
  kU2MinPer16,
  kS3Per16,
  kIQ4,
  kFP4,
  kFP4Per16,
  kFP8
};

/// The formats of weights in blocks of 32 that are made at load.
constexpr bool is_converted(DType t) { return t >= DType::kS8Per16; }

/// A KV type whose elements are codes to be multiplied by a scale of their token and head.
constexpr bool has_token_scales(DType t) { return t == DType::kF8E4M3 || t == DType::kI8; }

/// How matrix products are computed (the numerics contract, src/README.md).
///  kF32:  weights dequantised exactly, f32 activations, one f32 FMA chain over K.
///  kInt8: activations rounded to int8 per 16 (scale amax/127); exact int32 inside a half block, the halves and
///         then the blocks of 32 weights added in order by f32 FMAs. Weights stored in more than 8 bits are
///         computed as in kF32. (Per 32 costs a mean KL of 2.5e-3 on SmolLM2, per 16 1.2e-3, at equal speed.)
///  kBF16: activations and weights rounded to bf16, weights once, when they are packed; for each pair of k, in
///         order, two f32 FMAs, the odd k first, to which numbers below the normal range are zeros: the
///         instruction vdpbf16ps. Never chosen automatically: it needs a processor that has it.
enum class Recipe : std::uint8_t { kF32, kInt8, kBF16 };

/// Elements per storage block (1 for float types).
constexpr std::size_t block_elements(DType t) {
  if (t == DType::kQ4_K || t == DType::kQ6_K) return 256;
  return (t == DType::kQ8_0 || t == DType::kQ4_0 || t == DType::kQ4_1 || is_converted(t)) ? 32 : 1;
}

/// Bytes per storage block of `block_elements(t)` elements.
constexpr std::size_t block_bytes(DType t) {
  switch (t) {
    case DType::kF32: return 4;
    case DType::kF16: return 2;
    case DType::kBF16: return 2;
    case DType::kQ8_0: return 34;  // f16 scale, 32 x s8
    case DType::kQ4_0: return 18;  // f16 scale, 16 bytes of nibbles
    case DType::kQ4_1: return 20;  // f16 scale, f16 minimum, 16 bytes of nibbles
    case DType::kF8E4M3: return 1;
    case DType::kI8: return 1;
    case DType::kQ4_K: return 144;      // 2 f16, 12 bytes of six-bit factors, 128 of nibbles
    case DType::kQ6_K: return 210;      // 128 bytes of nibbles, 64 of pairs of bits, 16 factors, f16
    case DType::kS8Per16: return 40;    // 2 scales, 32 bytes
    case DType::kS8Min: return 40;      // scale, minimum, 32 bytes
    case DType::kU5Min: return 28;      // scale, minimum, 16 bytes of nibbles, 4 of fifth bits
    case DType::kU4Min: return 24;      // scale, minimum, 16 bytes of nibbles
    case DType::kU2MinPer16: return 16; // 2 f16, 4 factors of a byte, 8 bytes of pairs of bits
    case DType::kS3Per16: return 20;    // 2 scales, 8 bytes of pairs of bits, 4 of third bits
    case DType::kIQ4: return 20;        // scale, 16 bytes of nibbles
    case DType::kFP4: return 20;
    case DType::kFP4Per16: return 24;   // 2 scales, 16 bytes of nibbles
    case DType::kFP8: return 36;        // scale, 32 bytes
  }
  return 0;
}

constexpr const char* dtype_name(DType t) {
  switch (t) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kQ8_0: return "q8_0";
    case DType::kQ4_0: return "q4_0";
    case DType::kQ4_1: return "q4_1";
    case DType::kF8E4M3: return "fp8";
    case DType::kI8: return "int8";
    case DType::kQ4_K: return "q4_k";
    case DType::kQ6_K: return "q6_k";
    case DType::kS8Per16: return "s8_per_16";
    case DType::kS8Min: return "s8_min";
    case DType::kU5Min: return "u5_min";
    case DType::kU4Min: return "u4_min";
    case DType::kU2MinPer16: return "u2_min_per_16";
    case DType::kS3Per16: return "s3_per_16";
    case DType::kIQ4: return "iq4";
    case DType::kFP4: return "fp4";
    case DType::kFP4Per16: return "fp4_per_16";
    case DType::kFP8: return "fp8_e4m3";
  }
  return "?";
}

constexpr const char* recipe_name(Recipe r) {
  switch (r) {
    case Recipe::kF32: return "f32";
    case Recipe::kInt8: return "int8";
    case Recipe::kBF16: return "bf16";
  }
  return "?";
}

// The constants of the numerics contract: attention works on tiles of kTileKeys keys inside splits of
// kSplitKeys keys, both at absolute positions, whatever the block size is.
inline constexpr std::int32_t kTileKeys = 32;
inline constexpr std::int32_t kSplitKeys = 256;
/// Raised whenever a kernel changes a bit of any result; part of the numerics id.
inline constexpr std::int32_t kKernelEpoch = 1;

}  // namespace barg
