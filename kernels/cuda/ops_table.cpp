#include <cstring>
#include <iterator>

#include "cuda/device_kernel.h"
#include "cuda/elementwise.cuh"
#include "cuda/embedding.cuh"
#include "cuda/gemm_repack.cuh"
#include "cuda/norm.cuh"
#include "cuda/ops_cuda.h"
#include "cuda/rope_angles.cuh"
#include "cuda/rows.cuh"
#include "math.h"

namespace barg::cuda {
namespace {

DType stored_type(const char* name, DType converted) {
  const std::string_view type = name;
  return type == "Q4_K" ? DType::kQ4_K : type == "Q6_K" ? DType::kQ6_K : converted;
}

template <Half T>
std::size_t packed_bytes(DType type, std::int32_t n, std::int32_t k, ops::Packing) {
  const std::optional<GemmFormat> format = packed_format(type, T, n, k);
  return format ? static_cast<std::size_t>(gemm_weight_bytes(*format, n, k)) : 0;
}

/// f32 rows in the 16 bits of the activations, rounded to nearest even.
template <Half T>
void round_rows(const std::byte* from, std::size_t count, std::byte* to) {
  for (std::size_t i = 0; i < count; ++i) {
    float x;
    std::memcpy(&x, from + i * sizeof x, sizeof x);
    const std::uint16_t half = T == Half::kBF16 ? ops::f32_to_bf16(x) : ops::f32_to_f16(x);
    std::memcpy(to + i * sizeof half, &half, sizeof half);
  }
}

template <GemmFormat F>
Status repack(Queue& queue, StreamId s, const GemmRepackArgs& args) {
  return launch(queue.device(), s, kernel<gemm_repack_kernel<F>>(),
                {.grid_x = gemm_repack_grid(F, args.count, args.k), .threads = kGemmRepackThreads}, args);
}

Status repack(Queue& queue, StreamId s, GemmFormat format, const GemmRepackArgs& args) {
  switch (format) {
    case GemmFormat::kF16: return repack<GemmFormat::kF16>(queue, s, args);
    case GemmFormat::kBF16: return repack<GemmFormat::kBF16>(queue, s, args);
    case GemmFormat::kQ8_0: return repack<GemmFormat::kQ8_0>(queue, s, args);
    case GemmFormat::kQ4_0: return repack<GemmFormat::kQ4_0>(queue, s, args);
    case GemmFormat::kQ4_1: return repack<GemmFormat::kQ4_1>(queue, s, args);
    case GemmFormat::kQ4_K: return repack<GemmFormat::kQ4_K>(queue, s, args);
    case GemmFormat::kQ6_K: return repack<GemmFormat::kQ6_K>(queue, s, args);
  }
  return {Status::Code::kInvalid, "a format that is none"};
}

/// Rows travel in pieces of whole tiles; of the last tile what is missing is zeros.
template <Half T>
void pack(ops::Stream& stream, const ops::PackParams& p) {
  Queue& queue = Queue::of(stream);
  const std::optional<GemmFormat> format = packed_format(p.dtype, T, p.n, p.k);
  if (!format) return refuse(queue, "weights that have no kernel");
  const GemmLayout layout = gemm_layout(*format);
  const auto row = static_cast<std::size_t>(p.k / layout.block * layout.block_bytes);
  const bool rounds = p.dtype == DType::kF32;
  const auto rows = static_cast<std::size_t>(p.n);
  const auto read = [&](std::size_t offset, std::size_t bytes, std::byte* out) {
    const std::size_t first = offset / row, there = std::min(bytes / row, rows - first);
    const auto* from = static_cast<const std::byte*>(p.src);
    if (rounds) {
      const auto k = static_cast<std::size_t>(p.k);
      round_rows<T>(from + first * k * sizeof(float), there * k, out);
    } else {
      std::memcpy(out, from + offset, there * row);
    }
    std::memset(out + there * row, 0, bytes - there * row);
  };
  const std::size_t unit = row * kGemmTileRows;
  const std::size_t tiles = (rows + kGemmTileRows - 1) / kGemmTileRows;
  queue.note(queue.uploader().repack(
      tiles * unit, unit, read, [&](StreamId s, std::size_t offset, std::size_t bytes, const std::byte* staged) {
        const GemmRepackArgs args{.rows = staged,
                                  .count = static_cast<std::int32_t>(std::min(bytes / row, rows - offset / row)),
                                  .k = p.k,
                                  .weight = static_cast<std::byte*>(p.dst),
                                  .first_tile = static_cast<std::int32_t>(offset / unit)};
        return repack(queue, s, *format, args);
      }));
}

ops::Form prepared_form(Recipe, DType) { return ops::Form::kHalf; }
std::size_t prepared_bytes(std::int32_t rows, std::int32_t k, Recipe) { return half_bytes(rows, k); }
std::size_t attention_workspace_bytes(std::int32_t, std::int32_t, std::int32_t) { return 0; }  // the queue's

template <Half T>
void embed(ops::Stream& stream, const ops::EmbedParams& p) {
  Queue& queue = Queue::of(stream);
  const std::optional<GemmFormat> format = packed_format(p.table.dtype, T, p.table.n, p.table.k);
  if (!format) return refuse(queue, "a table that has no kernel");
  const EmbedArgs args{.weight = static_cast<const std::byte*>(p.table.data),
                       .n = p.table.n,
                       .k = p.table.k,
                       .ids = queue.on_device(p.ids),
                       .previous = queue.previous_ids(),
                       .rows = p.rows,
                       .scale = p.scale,
                       .out = p.out};
  const LaunchShape shape = embed_launch(p.rows, p.table.k);
  switch (*format) {
    case GemmFormat::kF16: return queue.launch(kernel<embed_kernel<GemmFormat::kF16>>(), shape, args);
    case GemmFormat::kBF16: return queue.launch(kernel<embed_kernel<GemmFormat::kBF16>>(), shape, args);
    case GemmFormat::kQ8_0: return queue.launch(kernel<embed_kernel<GemmFormat::kQ8_0>>(), shape, args);
    case GemmFormat::kQ4_0: return queue.launch(kernel<embed_kernel<GemmFormat::kQ4_0>>(), shape, args);
    case GemmFormat::kQ4_1: return queue.launch(kernel<embed_kernel<GemmFormat::kQ4_1>>(), shape, args);
    case GemmFormat::kQ4_K: return queue.launch(kernel<embed_kernel<GemmFormat::kQ4_K>>(), shape, args);
    case GemmFormat::kQ6_K: return queue.launch(kernel<embed_kernel<GemmFormat::kQ6_K>>(), shape, args);
  }
}

template <Half T>
void rms_norm(ops::Stream& stream, const ops::RmsNormParams& p) {
  Queue& queue = Queue::of(stream);
  if (fuse_norm(queue, p)) return;
  queue.launch(kernel<norm_kernel<T>>(), norm_launch(p.rows, 1),
                           NormArgs{.x = p.x,
                                    .x_stride = p.dim,
                                    .weight = p.weight,
                                    .weight_stride = 0,
                                    .offset = p.weight_offset,
                                    .eps = p.eps,
                                    .rows = p.rows,
                                    .groups = 1,
                                    .dim = p.dim,
                                    .out = p.out,
                                    .out_stride = p.dim,
                                    .half = static_cast<std::uint16_t*>(p.prepared)});
}

template <Half T>
void launch_norm(Queue& queue, const ops::NormParams& p) {
  queue.launch(kernel<norm_kernel<T>>(), norm_launch(p.rows, p.groups),
               NormArgs{.x = p.x,
                        .x_stride = p.x_stride,
                        .weight = p.weight,
                        .weight_stride = p.weight_stride,
                        .offset = p.weight_offset,
                        .eps = p.eps,
                        .rows = p.rows,
                        .groups = p.groups,
                        .dim = p.dim,
                        .out = p.out,
                        .out_stride = p.out_stride,
                        .half = static_cast<std::uint16_t*>(p.prepared)});
}

/// Norms of heads in place wait for the rotation, which does them as well (and sums in its own order: so wherever it can).
template <Half T>
void norm(ops::Stream& stream, const ops::NormParams& p) {
  Queue& queue = Queue::of(stream);
  if (p.kind != ops::NormKind::kRms || p.bias != nullptr) return refuse(queue, "a norm that it does not compute");
  const bool of_heads = p.out == p.x && p.prepared == nullptr && p.weight_stride == 0;
  if (!of_heads || queue.stopped()) return launch_norm<T>(queue, p);
  Held& held = queue.held();
  if (held.norms == static_cast<int>(std::size(held.norm))) queue.flush();
  held.norm[held.norms++] = p;
  held.normalise = launch_norm<T>;
}

void add_scaled(ops::Stream& stream, const ops::AddScaledParams& p) {
  Queue::of(stream).launch(kernel<add_scaled_kernel>(), add_scaled_launch(p.count),
                           AddScaledArgs{.x = p.x, .y = p.y, .scale = p.scale, .count = p.count});
}

void scale_logits(ops::Stream& stream, const ops::ScaleLogitsParams& p) {
  Queue& queue = Queue::of(stream);
  if (p.softcap > 0 || p.block_max != nullptr) return refuse(queue, "soft caps");
  queue.launch(kernel<scale_logits_kernel>(), scale_logits_launch(p.rows, p.dim),
               ScaleLogitsArgs{.x = p.x, .x_stride = p.x_stride, .rows = p.rows, .dim = p.dim, .scale = p.scale});
}

template <Half T>
void gate_mul(ops::Stream& stream, const ops::GateMulParams& p) {
  Queue& queue = Queue::of(stream);
  if (p.up_stride != 0 && p.up_stride != p.in_stride) return refuse(queue, "gates of other strides");
  const GateMulArgs args{.gate = p.gate,
                         .up = p.up,
                         .in_stride = p.in_stride,
                         .rows = p.rows,
                         .dim = p.dim,
                         .out = p.out,
                         .half = nullptr,
                         .gate_scale = p.gate_scale};
  const LaunchShape shape{.grid_x = gate_mul_grid(p.rows, p.dim), .threads = kGateThreads};
  if (p.activation == ops::Activation::kSilu)
    return queue.launch(kernel<gate_mul_kernel<ops::Activation::kSilu, T>>(), shape, args);
  if (p.activation == ops::Activation::kGeluTanh)
    return queue.launch(kernel<gate_mul_kernel<ops::Activation::kGeluTanh, T>>(), shape, args);
  refuse(queue, "an activation without a kernel");
}

void rope_angles(ops::Stream& stream, const ops::RopeAnglesParams& p) {
  Queue& queue = Queue::of(stream);
  queue.launch(kernel<rope_angles_kernel>(), rope_angles_launch(p.rows, p.count),
               RopeAnglesArgs{.frequencies = p.frequencies,
                              .count = p.count,
                              .scale = p.scale,
                              .positions = queue.on_device(p.positions),
                              .rows = p.rows,
                              .cos = p.cos,
                              .sin = p.sin});
}

void keep_rows(ops::Stream& stream, const ops::KeepRowsParams& p) {
  if (p.count == 0) return;
  Queue& queue = Queue::of(stream);
  queue.launch(kernel<keep_rows_kernel<float>>(), keep_rows_launch(static_cast<std::int32_t>(p.width), sizeof(float)),
               KeepRowsArgs<float>{.rows = p.rows,
                            .stride = p.stride,
                            .width = static_cast<std::int32_t>(p.width),
                            .wanted = queue.on_device(p.wanted),
                            .count = p.count});
}

void copy_blocks(ops::Stream& stream, const ops::BlockCopyParams& p) {
  Queue& queue = Queue::of(stream);
  queue.flush();
  for (std::int32_t i = 0; i < p.count && !queue.stopped(); ++i) {
    if (p.src[i] == p.dst[i]) continue;
    queue.note(queue.device().copy(queue.id(), p.base + p.dst[i] * p.block_stride, p.base + p.src[i] * p.block_stride,
                                   static_cast<std::size_t>(p.block_stride)));
  }
}

void all_reduce(ops::Stream& stream, const ops::AllReduceParams& p) {
  if (p.world != 1) refuse(Queue::of(stream), "a sum over several ranks");
}

template <Half T>
ops::OpTable make_table(const char* name) {
  ops::OpTable t{};
  t.name = name;
  t.layout_id = kKvLayoutId;
  t.features = ops::kFeatureActivations | ops::kFeatureNorms | ops::kFeatureLogitScale;
  t.stored_type = stored_type;
  t.packed_bytes = packed_bytes<T>;
  t.pack = pack<T>;
  t.prepared_form = prepared_form;
  t.prepared_bytes = prepared_bytes;
  t.attention_workspace_bytes = attention_workspace_bytes;
  t.kv_head_bytes = kv_head_bytes;
  t.embed = embed<T>;
  t.rms_norm = rms_norm<T>;
  t.norm = norm<T>;
  t.add_scaled = add_scaled;
  t.scale_logits = scale_logits;
  t.linear = linear<T>;
  t.gated_linear = gated_linear<T>;
  t.rope_kv_write = rope_kv_write;
  t.attention = attention<T>;
  t.gate_mul = gate_mul<T>;
  t.rope_angles = rope_angles;
  t.keep_rows = keep_rows;
  t.copy_blocks = copy_blocks;
  t.all_reduce = all_reduce;
  return t;
}

}  // namespace

const ops::OpTable& cuda_ops(Half activations) {
  static const ops::OpTable kF16 = make_table<Half::kF16>("cuda-f16"), kBF16 = make_table<Half::kBF16>("cuda-bf16");
  return activations == Half::kF16 ? kF16 : kBF16;
}

}  // namespace barg::cuda
