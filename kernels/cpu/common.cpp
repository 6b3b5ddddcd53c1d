// Operations without floating-point arithmetic, shared by every instruction set.
#include <cstring>

#include "cpu/layout.h"
#include "cpu/pool.h"

namespace barg::ops::cpu {
namespace {

struct PackJob {
  const PackParams* params;
  std::size_t row_bytes;
  std::size_t panel;
};

/// Where column c of a quantised block starts in the file, or nullptr in the padding.
const std::byte* source_block(const PackJob& job, int column, int block) {
  const PackParams& p = *job.params;
  if (column >= p.n) return nullptr;
  return static_cast<const std::byte*>(p.src) + static_cast<std::size_t>(column) * job.row_bytes +
         static_cast<std::size_t>(block) * block_bytes(p.dtype);
}

/// Header fields of 2 bytes go to [field][16]; the bytes after them to [unit][16][4].
void pack_quantised_panel(const PackJob& job, int panel, std::byte* dst) {
  const PackParams& p = *job.params;
  const int fields = p.dtype == DType::kQ4_1 ? 2 : 1;
  const int units = p.dtype == DType::kQ8_0 ? 8 : 4;
  for (int b = 0; b < p.k / kQuantBlock; ++b) {
    for (int c = 0; c < kPanel; ++c) {
      const std::byte* src = source_block(job, panel * kPanel + c, b);
      if (src == nullptr) continue;
      for (int f = 0; f < fields; ++f) std::memcpy(dst + (f * kPanel + c) * 2, src + f * 2, 2);
      std::byte* out = dst + fields * kPanel * 2 + c * 4;
      for (int u = 0; u < units; ++u) std::memcpy(out + u * kPanel * 4, src + fields * 2 + u * 4, 4);
    }
    dst += panel_bytes(p.dtype, kQuantBlock);
  }
}

template <class T>
void pack_float_panel(const PackJob& job, int panel, std::byte* dst) {
  const PackParams& p = *job.params;
  for (int c = 0; c < kPanel && panel * kPanel + c < p.n; ++c) {
    const std::byte* src =
        static_cast<const std::byte*>(p.src) + static_cast<std::size_t>(panel * kPanel + c) * job.row_bytes;
    std::byte* out = dst + c * sizeof(T);
    for (std::int32_t i = 0; i < p.k; ++i) {
      std::memcpy(out + static_cast<std::size_t>(i) * kPanel * sizeof(T), src + i * sizeof(T), sizeof(T));
    }
  }
}

void pack_panel(void* context, int panel) {
  const PackJob& job = *static_cast<const PackJob*>(context);
  std::byte* dst = static_cast<std::byte*>(job.params->dst) + job.panel * panel;
  if (panel == num_panels(job.params->n) - 1) std::memset(dst, 0, job.panel);  // the padding columns
  if (is_quantised(job.params->dtype)) return pack_quantised_panel(job, panel, dst);
  if (job.params->dtype == DType::kF32) return pack_float_panel<std::uint32_t>(job, panel, dst);
  pack_float_panel<std::uint16_t>(job, panel, dst);
}

}  // namespace

std::size_t packed_bytes(DType type, std::int32_t n, std::int32_t k) {
  return panel_bytes(type, k) * num_panels(n);
}

void pack(Stream& stream, const PackParams& p) {
  PackJob job{&p, static_cast<std::size_t>(p.k) / block_elements(p.dtype) * block_bytes(p.dtype),
              panel_bytes(p.dtype, p.k)};
  stream.pool.run(num_panels(p.n), pack_panel, &job);
}

std::size_t prepared_bytes(std::int32_t rows, std::int32_t k, Recipe recipe) {
  return recipe == Recipe::kInt8 ? quantised_rows_bytes(rows, k) : 0;
}

std::size_t attention_workspace_bytes(std::int32_t rows, std::int32_t num_q_heads, std::int32_t head_dim) {
  return attention_chunk_bytes(rows) +
         align64(std::size_t{4} * kSlotRows * num_q_heads * (head_dim + kSlotHeader));
}

std::size_t kv_head_bytes(DType type, std::int32_t block_tokens, std::int32_t head_dim) {
  return 2 * static_cast<std::size_t>(block_tokens) * head_dim * element_bytes(type);
}

void copy_blocks(Stream&, const BlockCopyParams& p) {
  for (std::int32_t i = 0; i < p.count; ++i) {
    if (p.src[i] == p.dst[i]) continue;
    std::memcpy(p.base + p.dst[i] * p.block_stride, p.base + p.src[i] * p.block_stride,
                static_cast<std::size_t>(p.block_stride));
  }
}

void all_reduce(Stream&, const AllReduceParams& p) {
  // A group of one holds the sum already. Larger groups do not exist on this back end yet.
  if (p.world != 1) __builtin_trap();
}

}  // namespace barg::ops::cpu
