// linear and gated_linear in recipe f32, every weight type, and in recipe bf16: GB/s of weights and GFLOP/s
// of the best call, each as a share of the machine's ceiling measured in the same run with as many threads.
// Weights lie in huge pages and cycle through more memory than the caches hold, as in a real step.
//
//   bench_linear_f32 --benchmark_filter=avx512/linear_f32/bf16
//   bench_linear_f32 --benchmark_filter=linear_bf16
//
// A name says the recipe, then the weight type. Its arguments: rows, K, N, threads. The best call is shown,
// not the mean: neighbours of a virtual machine only ever make a call slower.
#include <functional>

#include "linear_support.h"

namespace {

using namespace barg;
using namespace barg::bench_linear;

template <class F>
void measure(benchmark::State& state, Isa isa, Recipe recipe, int threads, double bytes, double flops,
             F&& f) {
  const double best = best_call(state, std::forward<F>(f));
  const ops::Limits& limit = limits(isa, threads);
  state.counters["best_us"] = best * 1e6;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_read"] = bytes / best * 1e-9 / limit.read_gbytes;
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  const bool bf16 = recipe == Recipe::kBF16;
  state.counters[bf16 ? "of_bf16" : "of_fma"] =
      flops / best * 1e-9 / (bf16 ? limit.bf16_gflops : limit.f32_gflops);
}

void linear(benchmark::State& state, DType type, Recipe recipe, Isa isa) {
  const auto [rows, k, n, threads] = shape_of(state);
  CpuDevice device({.threads = threads, .isa = isa});
  Copies weights(device, type, n, k, ops::packing(recipe));
  Memory workspace(device.ops().prepared_bytes(rows, k, recipe));
  const auto x = random_floats(static_cast<std::size_t>(rows) * k);
  std::vector<float> out(static_cast<std::size_t>(rows) * n);
  measure(state, isa, recipe, threads, static_cast<double>(weights.bytes()), 2.0 * rows * n * k, [&] {
    ops::LinearParams p{};
    p.weight = weights.next();
    p.recipe = recipe;
    p.workspace = workspace.data;
    p.x = x.data();
    p.rows = rows;
    p.x_stride = k;
    p.out = out.data();
    p.out_stride = n;
    device.ops().linear(device.stream(), p);
  });
}

void gated(benchmark::State& state, DType type, Recipe recipe, Isa isa) {
  const auto [rows, k, n, threads] = shape_of(state);
  CpuDevice device({.threads = threads, .isa = isa});
  Copies weights(device, type, n, k, ops::packing(recipe));
  Memory workspace(device.ops().prepared_bytes(rows, k, recipe));
  const auto x = random_floats(static_cast<std::size_t>(rows) * k);
  std::vector<float> out(static_cast<std::size_t>(rows) * n);
  measure(state, isa, recipe, threads, 2.0 * static_cast<double>(weights.bytes()), 4.0 * rows * n * k, [&] {
    ops::GatedLinearParams p{};
    p.gate = weights.next();
    p.up = weights.next();
    p.recipe = recipe;
    p.workspace = workspace.data;
    p.x = x.data();
    p.rows = rows;
    p.x_stride = k;
    p.out = out.data();
    device.ops().gated_linear(device.stream(), p);
  });
}

void add(const std::string& name, std::int32_t k, std::int32_t n,
         const std::function<void(benchmark::State&)>& f) {
  auto* b = benchmark::RegisterBenchmark(name.c_str(), f);
  for (int threads = 1; threads > 0;
       threads = threads == 1 && ops::cores_available() > 1 ? ops::cores_available() : 0) {
    for (const int rows : {1, 2, 4, 8, 16, 32, 48, 128, 512}) b->Args({rows, k, n, threads});
  }
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void register_shapes(const std::string& what, DType type, Recipe recipe, Isa isa) {
  const auto name = [&](const char* op) {
    return std::string(ops::isa_name(isa)) + "/" + op + "_" + recipe_name(recipe) + "/" + what;
  };
  const auto product = [=](benchmark::State& s) { linear(s, type, recipe, isa); };
  add(name("linear"), 2048, 4096, product);
  add(name("linear"), 576, 576, product);
  add(name("linear"), 1536, 576, product);
  add(name("gated"), 576, 1536, [=](benchmark::State& s) { gated(s, type, recipe, isa); });
}

void register_all() {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    for (const DType type :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
      register_shapes(dtype_name(type), type, Recipe::kF32, isa);
    }
    // Packed alike whatever the file's type is.
    if (ops::recipe_supported(isa, Recipe::kBF16)) register_shapes("bf16", DType::kBF16, Recipe::kBF16, isa);
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
