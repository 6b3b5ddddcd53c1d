#include <algorithm>
#include <utility>

#include "cuda/device_kernel.h"
#include "cuda/elementwise.cuh"
#include "cuda/gemm_repack.cuh"
#include "cuda/ops_cuda.h"
#include "cuda/rows.cuh"

namespace barg::cuda {
namespace {

struct Rows16 {
  const std::uint16_t* x;
  std::int64_t stride;
};

/// The rows as they were prepared, or rounded now.
template <Half T>
Rows16 rows16(Queue& queue, const float* x, std::int64_t x_stride, std::int32_t rows, std::int32_t k, void* workspace,
              const void* prepared) {
  if (prepared != nullptr) return {static_cast<const std::uint16_t*>(prepared), k};
  auto* const half = static_cast<std::uint16_t*>(workspace);
  queue.launch(kernel<half_rows_kernel<T>>(), half_rows_launch(rows, k),
               HalfRowsArgs{.x = x, .x_stride = x_stride, .rows = rows, .dim = k, .half = half});
  return {half, k};
}

GemmPlanParams params_of(const Queue& queue, GemmFormat format, const GemmArgs& args) {
  return {.format = format, .n = args.n, .k = args.k, .gated = args.gated, .rows = args.rows, .workers = queue.workers()};
}
GemmPlan plan_of(const Queue& queue, GemmFormat format, const GemmArgs& args) {
  return plan_gemm(params_of(queue, format, args));
}

/// Launches what is planned for these arguments, which have everything but `work` and scratch.
template <Half T>
void multiply(Queue& queue, GemmFormat format, const GemmArgs& asked) {
  const GemmPlan plan = plan_of(queue, format, asked);
  if (!queue.has_scratch(plan.partial_bytes, plan.counters)) return refuse(queue, "a product larger than was measured");
  GemmArgs args = asked;
  args.work = plan.work;
  args.partials = queue.partials();
  args.counters = queue.counters();
  const bool found = with_gemm_shape(format, T, plan.tile, [&]<class S>() {
    queue.launch(kernel<gemm_kernel<S>>(), S::launch(plan.grid), args);
  });
  if (!found) refuse(queue, "a type of weights without a kernel");
}

/// Scratch for the product and for whatever may be fused with it.
void need(Queue& queue, GemmFormat format, const GemmArgs& args) {
  if (library_multiplies(queue, args)) return need_library(queue, args);
  const GemmScratch scratch = gemm_scratch(params_of(queue, format, args));
  queue.need(scratch.partial_bytes, scratch.counters);
}

/// The held product and its plan, if it may do more; `pays`: the planner's opinion.
template <class Pays>
std::optional<GemmPlan> product_for_more(Queue& queue, const Pays& pays) {
  const Held& held = queue.held();
  if (!held.product || queue.fusing() == Fusing::kNever) return std::nullopt;
  const GemmPlan plan = plan_of(queue, held.format, held.args);
  if (!gemm_has_behind(plan)) return std::nullopt;
  return queue.fusing() == Fusing::kAlways || pays(held.args) ? std::optional(plan) : std::nullopt;
}

void launch_held(Queue& queue) {
  const Held held = std::exchange(queue.held(), Held{});
  held.multiply(queue, held.format, held.args);
}

bool aligned(const void* p, std::uintptr_t to) { return p == nullptr || reinterpret_cast<std::uintptr_t>(p) % to == 0; }

}  // namespace

std::optional<GemmFormat> packed_format(DType type, Half activations, std::int64_t n, std::int64_t k) {
  const GemmFormat own = activations == Half::kF16 ? GemmFormat::kF16 : GemmFormat::kBF16;
  std::optional<GemmFormat> format;
  switch (type) {
    case DType::kF32: format = own; break;
    case DType::kF16: format = GemmFormat::kF16; break;
    case DType::kBF16: format = GemmFormat::kBF16; break;
    case DType::kQ8_0: format = GemmFormat::kQ8_0; break;
    case DType::kQ4_0: format = GemmFormat::kQ4_0; break;
    case DType::kQ4_1: format = GemmFormat::kQ4_1; break;
    case DType::kQ4_K: format = GemmFormat::kQ4_K; break;
    case DType::kQ6_K: format = GemmFormat::kQ6_K; break;
    default: return std::nullopt;
  }
  return gemm_refusal(gemm_layout(*format).name, activations, n, k).empty() ? format : std::nullopt;
}

bool fuse_norm(Queue& queue, const ops::RmsNormParams& p) {
  Held& held = queue.held();
  const GemmArgs& a = held.args;
  const auto plan = product_for_more(queue, [](const GemmArgs& args) { return gemm_norm_pays(args.rows, args.n); });
  if (!plan || !queue.has_scratch(plan->partial_bytes, plan->counters + gemm_norm_counters(*plan)) || held.norms > 0 || p.x != a.out || p.rows != a.rows || p.dim != a.n || a.out_stride != a.n ||
      p.prepared == nullptr || a.n % 4 != 0 || !aligned(p.out, 16) || !aligned(p.weight, 16) || !aligned(a.out, 16))
    return false;
  held.args.norm = {.weight = p.weight,
                    .offset = p.weight_offset,
                    .eps = p.eps,
                    .half = static_cast<std::uint16_t*>(p.prepared),
                    .out = p.out,
                    .counters = queue.counters() + plan->counters};
  launch_held(queue);
  return true;
}

bool fuse_rope(Queue& queue, const RopeKvArgs& args, KvType type) {
  Held& held = queue.held();
  const GemmArgs& a = held.args;
  const auto plan = product_for_more(queue, [](const GemmArgs& product) { return gemm_rope_pays(product.rows); });
  const std::int64_t q = std::int64_t{args.num_q_heads} * args.kv.head_dim;
  const std::int64_t kv = std::int64_t{args.kv.num_kv_heads} * args.kv.head_dim;
  const bool whole = args.q == a.out && args.k == args.q + q && args.v == args.k + kv && a.n == q + 2 * kv &&
                     args.q_stride == a.out_stride && args.kv_stride == a.out_stride && a.rows == args.rows;
  if (!plan || !whole || a.accumulate) return false;
  const std::int32_t counters = gemm_rope_counters(*plan, args.num_q_heads, args.kv.num_kv_heads);
  if (!queue.has_scratch(plan->partial_bytes, plan->counters + counters)) return false;
  held.args.rope = {.args = args, .type = type, .counters = queue.counters() + plan->counters};
  launch_held(queue);
  return true;
}

template <Half T>
void linear(ops::Stream& stream, const ops::LinearParams& p) {
  Queue& queue = Queue::of(stream);
  const std::optional<GemmFormat> format = packed_format(p.weight.dtype, T, p.weight.n, p.weight.k);
  if (!format || p.block_max != nullptr) return refuse(queue, "a product that it does not compute");
  const Rows16 x = rows16<T>(queue, p.x, p.x_stride, p.rows, p.weight.k, p.workspace, p.prepared);
  queue.flush();
  const GemmArgs args =
              {.weight = static_cast<const std::byte*>(p.weight.data),
               .up = nullptr,
               .x = x.x,
               .x_stride = x.stride,
               .rows = p.rows,
               .n = p.weight.n,
               .k = p.weight.k,
               .bias = p.bias,
               .up_bias = nullptr,
               .out = p.out,
               .out_stride = p.out_stride,
               .half = nullptr,
               .half_stride = 0,
               .accumulate = p.accumulate,
               .gated = false,
               .activation = ops::Activation::kSilu,
               .work = {},
               .partials = nullptr,
               .counters = nullptr};
  if (queue.measuring()) return need(queue, *format, args);
  if (library_multiplies(queue, args)) return multiply_by_library<T>(queue, *format, args);
  queue.held().product = true;
  queue.held().format = *format;
  queue.held().args = args;
  queue.held().multiply = multiply<T>;
}

template <Half T>
void gated_linear(ops::Stream& stream, const ops::GatedLinearParams& p) {
  Queue& queue = Queue::of(stream);
  const std::optional<GemmFormat> format = packed_format(p.gate.dtype, T, p.gate.n, p.gate.k);
  if (!format) return refuse(queue, "a product that it does not compute");
  const Rows16 x = rows16<T>(queue, p.x, p.x_stride, p.rows, p.gate.k, p.workspace, p.prepared);
  const GemmArgs args =
              {.weight = static_cast<const std::byte*>(p.gate.data),
               .up = static_cast<const std::byte*>(p.up.data),
               .x = x.x,
               .x_stride = x.stride,
               .rows = p.rows,
               .n = p.gate.n,
               .k = p.gate.k,
               .bias = p.gate_bias,
               .up_bias = p.up_bias,
               .out = p.out,
               .out_stride = p.gate.n,
               .half = static_cast<std::uint16_t*>(p.prepared_out),
               .half_stride = p.gate.n,
               .accumulate = false,
               .gated = true,
               .activation = p.activation,
               .work = {},
               .partials = nullptr,
               .counters = nullptr};
  if (queue.measuring()) return need(queue, *format, args);
  queue.flush();
  if (library_multiplies(queue, args)) return multiply_by_library<T>(queue, *format, args);
  multiply<T>(queue, *format, args);
}

template void linear<Half::kF16>(ops::Stream&, const ops::LinearParams&);
template void linear<Half::kBF16>(ops::Stream&, const ops::LinearParams&);
template void gated_linear<Half::kF16>(ops::Stream&, const ops::GatedLinearParams&);
template void gated_linear<Half::kBF16>(ops::Stream&, const ops::GatedLinearParams&);

}  // namespace barg::cuda
