#include <optional>

#include "cuda/device_kernel.h"
#include "cuda/ops_cuda.h"
#include "cuda/rope_kv.cuh"

namespace barg::cuda {
namespace {

std::optional<KvType> kv_type(DType type) {
  switch (type) {
    case DType::kF16: return KvType::kF16;
    case DType::kBF16: return KvType::kBF16;
    case DType::kF8E4M3: return KvType::kFp8;
    default: return std::nullopt;
  }
}

template <class F>
bool with_head(KvType kv, std::int32_t head_dim, const F& f) {
  return with_attention_shape(kv, head_dim, false, kLeastBlockShared,
                              [&]<class S>() { f.template operator()<S::kType, S::kDim>(); });
}

/// The held norms, if they are all of these heads.
void take_norms(Queue& queue, RopeKvArgs& args) {
  Held& held = queue.held();
  if (held.norms == 0) return;
  RopeKvArgs with = args;
  for (int i = 0; i < held.norms; ++i) {
    const ops::NormParams& n = held.norm[i];
    const bool of_q = n.x == args.q && n.groups == args.num_q_heads && n.x_stride == args.q_stride;
    const bool of_k = n.x == args.k && n.groups == args.kv.num_kv_heads && n.x_stride == args.kv_stride;
    const bool alike = i == 0 || (n.eps == with.norm_eps && n.weight_offset == with.norm_offset);
    if ((!of_q && !of_k) || !alike || n.dim != args.kv.head_dim) return queue.flush();
    (of_q ? with.q_norm : with.k_norm) = n.weight;
    with.norm_eps = n.eps;
    with.norm_offset = n.weight_offset;
  }
  held.norms = 0;
  args = with;
}

}  // namespace

std::size_t kv_head_bytes(DType type, std::int32_t block_tokens, std::int32_t head_dim) {
  const std::optional<KvType> kv = kv_type(type);
  return kv ? 2 * kv_plane_bytes(*kv, block_tokens, head_dim) : 0;
}

std::int32_t attention_queries(DType kv, std::int32_t head_dim, bool wide) {
  std::int32_t queries = 0;
  with_attention_shape(kv_type(kv).value_or(KvType::kF16), head_dim, wide, kLeastBlockShared,
                       [&]<class S>() { queries = S::kQueries; });
  return queries;
}

std::string attention_refusal(const DeviceInfo& device, DType kv, std::int32_t head_dim, std::int32_t num_q_heads,
                              std::int32_t num_kv_heads) {
  const std::optional<KvType> type = kv_type(kv);
  if (!type) return std::string("KV in ") + dtype_name(kv) + " has no CUDA kernel; there are f16, bf16 and fp8";
  if (!with_attention_shape(*type, head_dim, false, kLeastBlockShared, []<class S>() {}))
    return "heads of " + std::to_string(head_dim) + " numbers have no CUDA kernel; there are 64, 96, 128 and 256";
  if (num_q_heads % num_kv_heads != 0 || num_q_heads / num_kv_heads > 16)
    return std::to_string(num_q_heads) + " query heads on " + std::to_string(num_kv_heads) +
           " kv heads have no CUDA kernel; there are groups of 1 to 16";
  if (!with_attention_shape(*type, head_dim, true, device.block_shared_bytes, []<class S>() {}))
    return "heads of " + std::to_string(head_dim) + " numbers need more shared memory than the " +
           std::to_string(device.block_shared_bytes) + " bytes that a block has on " + device.name;
  return {};
}

void rope_kv_write(ops::Stream& stream, const ops::RopeKvParams& p) {
  Queue& queue = Queue::of(stream);
  if (queue.stopped()) return;
  const std::optional<KvType> kv = kv_type(p.kv.dtype);
  if (!kv) return refuse(queue, "a KV type without a kernel");
  std::int32_t rows = 0;  // behind the last row of a segment
  for (std::int32_t i = 0; i < p.num_segments; ++i)
    rows = std::max(rows, p.segments[i].row_begin + p.segments[i].row_count);
  RopeKvArgs args{.q = p.q,
                        .k = p.k,
                        .v = p.v,
                        .q_stride = p.q_stride,
                        .kv_stride = p.kv_stride,
                        .q_norm = nullptr,
                        .k_norm = nullptr,
                        .norm_eps = 0,
                        .norm_offset = 0,
                        .cos = p.cos,
                        .sin = p.sin,
                        .rotary_dim = p.rotary_dim,
                        .interleaved = false,
                        .num_q_heads = p.num_q_heads,
                        .rows = rows,
                        .kv = p.kv,
                        .segments = queue.on_device(p.segments),
                        .num_segments = p.num_segments};
  take_norms(queue, args);
  if (fuse_rope(queue, args, *kv)) return;
  const bool found = with_head(*kv, p.kv.head_dim, [&]<KvType kKv, int kDim>() {
    const int grid = rope_kv_grid(rows, p.num_q_heads, p.kv.num_kv_heads);
    queue.launch(kernel<rope_kv_kernel<kKv, kDim>>(), {.grid_x = grid, .threads = kRopeThreads}, args);
  });
  if (!found) refuse(queue, "a head size without a kernel");
}

template <Half T>
void attention(ops::Stream& stream, const ops::AttentionParams& p) {
  constexpr float kLog2e = 1.44269504088896341f;
  Queue& queue = Queue::of(stream);
  if (queue.stopped()) return;
  const std::optional<KvType> kv = kv_type(p.kv.dtype);
  const AttentionWork* const work = queue.attention(p.segments);
  if (!kv || work == nullptr || p.softcap > 0 || p.sinks != nullptr)
    return refuse(queue, "an attention that it does not compute");
  const AttentionArgs args{.q = p.q,
                           .q_stride = p.q_stride,
                           .out = p.out,
                           .out_stride = p.out_stride,
                           .half = static_cast<std::uint16_t*>(p.prepared),
                           .half_type = T,
                           .scale = p.scale * kLog2e,
                           .window = p.window,
                           .group = p.num_q_heads / p.kv.num_kv_heads,
                           .kv = p.kv,
                           .segments = queue.on_device(p.segments),
                           .items = work->items,
                           .num_items = work->num_items,
                           .slots = queue.slots(),
                           .counters = queue.slot_counters()};
  const std::size_t shared = queue.device().info().block_shared_bytes;
  const bool found = with_attention_shape(*kv, p.kv.head_dim, work->wide, shared, [&]<class S>() {
    queue.launch(kernel<attention_kernel<S>>(), S::launch(work->grid), args);
  });
  if (!found) refuse(queue, "a head size without a kernel");
}

template void attention<Half::kF16>(ops::Stream&, const ops::AttentionParams&);
template void attention<Half::kBF16>(ops::Stream&, const ops::AttentionParams&);

}  // namespace barg::cuda
