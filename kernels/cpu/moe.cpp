#include "cpu/moe.h"

#include "cpu/latent.h"
#include "cpu/moe_layout.h"
#include "cpu/pool.h"

namespace barg::ops::cpu {

void on_one_thread(void (*body)(Stream& stream, void* context), void* context) {
  Stream stream(1);
  body(stream, context);
}

std::size_t experts_workspace_bytes(std::int32_t rows, std::int32_t chosen, std::int32_t experts,
                                    std::int32_t hidden, std::int32_t ffn, Recipe recipe) {
  return lay_out(nullptr, rows, chosen, experts, hidden, ffn, recipe).bytes;
}

std::size_t stacked_workspace_bytes(std::int32_t rows, std::int32_t count, std::int32_t k, Recipe recipe) {
  return static_cast<std::size_t>(count) * align64(prepared_bytes(rows, k, recipe));
}

std::size_t latent_bytes(DType type, std::int32_t block_tokens, std::int32_t dim) {
  const std::size_t scales = has_token_scales(type) ? 2 * sizeof(float) : 0;
  return static_cast<std::size_t>(block_tokens) *
         (static_cast<std::size_t>(dim) * element_bytes(type) + scales);
}

std::size_t latent_workspace_bytes(std::int32_t value_dim) {
  return sizeof(float) * kLatentSlots * latent_slot_floats(value_dim);
}

}  // namespace barg::ops::cpu
