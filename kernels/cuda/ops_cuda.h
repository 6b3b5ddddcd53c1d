// What the files of the CUDA table share. Private to them.
#pragma once

#include "cuda/gemm_plan.h"
#include "cuda/kv_layout.h"
#include "cuda/queue.h"

namespace barg::cuda {

// Of the table, by the type of activations (ops_linear.cpp, ops_attention.cpp).
template <Half T>
void linear(ops::Stream& stream, const ops::LinearParams& p);
template <Half T>
void gated_linear(ops::Stream& stream, const ops::GatedLinearParams& p);
template <Half T>
void attention(ops::Stream& stream, const ops::AttentionParams& p);
void rope_kv_write(ops::Stream& stream, const ops::RopeKvParams& p);
std::size_t kv_head_bytes(DType type, std::int32_t block_tokens, std::int32_t head_dim);

// Products by the queue's library (ops_library.cpp).
bool library_multiplies(const Queue& queue, const GemmArgs& p);
void need_library(Queue& queue, const GemmArgs& p);
/// REQUIRES library_multiplies().
template <Half T>
void multiply_by_library(Queue& queue, GemmFormat format, const GemmArgs& p);

/// Makes the held product do what is asked behind it, if it can and that is wanted. True: it is launched.
bool fuse_norm(Queue& queue, const ops::RmsNormParams& p);
bool fuse_rope(Queue& queue, const RopeKvArgs& args, KvType type);

/// What a stored matrix [n, k] becomes; nothing: it is refused.
std::optional<GemmFormat> packed_format(DType type, Half activations, std::int64_t n, std::int64_t k);

constexpr std::size_t half_bytes(std::int64_t rows, std::int64_t k) { return static_cast<std::size_t>(2 * rows * k); }

/// A call that the caller was told not to make (`features`, a refusal at load).
inline void refuse(Queue& queue, const char* what) {
  queue.note({Status::Code::kInvalid, std::string("the CUDA table was asked for ") + what});
}

}  // namespace barg::cuda
