// The operations of moe_kernel.h and latent attention, one of each for every instruction set.
#pragma once

#include "cpu/layout.h"

namespace barg::ops::cpu {

void route_scalar(Stream& s, const RouteParams& p);
void route_avx2(Stream& s, const RouteParams& p);
void route_avx512(Stream& s, const RouteParams& p);
void experts_scalar(Stream& s, const ExpertsParams& p);
void experts_avx2(Stream& s, const ExpertsParams& p);
void experts_avx512(Stream& s, const ExpertsParams& p);
void row_gate_scalar(Stream& s, const RowGateParams& p);
void row_gate_avx2(Stream& s, const RowGateParams& p);
void row_gate_avx512(Stream& s, const RowGateParams& p);
void stacked_linear_scalar(Stream& s, const StackedLinearParams& p);
void stacked_linear_avx2(Stream& s, const StackedLinearParams& p);
void stacked_linear_avx512(Stream& s, const StackedLinearParams& p);

void latent_write_scalar(Stream& s, const LatentWriteParams& p);
void latent_write_avx2(Stream& s, const LatentWriteParams& p);
void latent_write_avx512(Stream& s, const LatentWriteParams& p);
void latent_attention_scalar(Stream& s, const LatentAttentionParams& p);
void latent_attention_avx2(Stream& s, const LatentAttentionParams& p);
void latent_attention_avx512(Stream& s, const LatentAttentionParams& p);

// Without arithmetic: one copy serves every table (moe.cpp).
void on_one_thread(void (*body)(Stream& stream, void* context), void* context);
std::size_t experts_workspace_bytes(std::int32_t rows, std::int32_t chosen, std::int32_t experts,
                                    std::int32_t hidden, std::int32_t ffn, Recipe recipe);
std::size_t stacked_workspace_bytes(std::int32_t rows, std::int32_t count, std::int32_t k, Recipe recipe);
std::size_t latent_bytes(DType type, std::int32_t block_tokens, std::int32_t dim);
std::size_t latent_workspace_bytes(std::int32_t value_dim);

}  // namespace barg::ops::cpu
