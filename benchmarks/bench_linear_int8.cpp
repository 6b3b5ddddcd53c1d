// linear and gated_linear in recipe int8 on prepared rows: GB/s of weights and GOP/s of the best call, each
// as a share of the machine's ceiling (memory reads; vpdpbusd, or what stands for it on AVX2) measured in the
// same run with as many threads.
//
//   bench_linear_int8 --benchmark_filter=avx512/linear_int8/q4_1
//
// Arguments of a name: rows, K, N, threads.
#include "linear_support.h"

namespace {

using namespace barg;
using namespace barg::bench_linear;

void report(benchmark::State& state, Isa isa, DType type, int threads, double best, double bytes,
            double ops) {
  const ops::Limits& limit = limits(isa, threads);
  state.counters["best_us"] = best * 1e6;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_read"] = bytes / best * 1e-9 / limit.read_gbytes;
  state.counters["GOP/s"] = ops / best * 1e-9;
  state.counters["of_int8"] = ops / best * 1e-9 / (type == DType::kQ8_0 ? limit.int8_gops : limit.int4_gops);
}

/// Rows as a producer would have left them: a norm with weight 1.
void prepare(CpuDevice& device, std::int32_t rows, std::int32_t k, Memory& prepared) {
  auto x = random_floats(static_cast<std::size_t>(rows) * k);
  const std::vector<float> ones(static_cast<std::size_t>(k), 1.0f);
  std::vector<float> out(x.size());
  ops::RmsNormParams p{};
  p.x = x.data();
  p.weight = ones.data();
  p.eps = 1e-5f;
  p.rows = rows;
  p.dim = k;
  p.out = out.data();
  p.prepared = prepared.data;
  device.ops().rms_norm(device.stream(), p);
}

void linear(benchmark::State& state, DType type, Isa isa) {
  const auto [rows, k, n, threads] = shape_of(state);
  CpuDevice device({.threads = threads, .isa = isa});
  Copies weights(device, type, n, k);
  Memory prepared(device.ops().prepared_bytes(rows, k, Recipe::kInt8));
  prepare(device, rows, k, prepared);
  std::vector<float> out(static_cast<std::size_t>(rows) * n);
  const double best = best_call(state, [&] {
    ops::LinearParams p{};
    p.weight = weights.next();
    p.recipe = Recipe::kInt8;
    p.rows = rows;
    p.out = out.data();
    p.out_stride = n;
    p.prepared = prepared.data;
    device.ops().linear(device.stream(), p);
  });
  report(state, isa, type, threads, best, static_cast<double>(weights.bytes()), 2.0 * rows * n * k);
}

void gated(benchmark::State& state, DType type, Isa isa) {
  const auto [rows, k, n, threads] = shape_of(state);
  CpuDevice device({.threads = threads, .isa = isa});
  Copies weights(device, type, n, k);
  Memory prepared(device.ops().prepared_bytes(rows, k, Recipe::kInt8));
  prepare(device, rows, k, prepared);
  Memory out(device.ops().prepared_bytes(rows, n, Recipe::kInt8));
  const double best = best_call(state, [&] {
    ops::GatedLinearParams p{};
    p.gate = weights.next();
    p.up = weights.next();
    p.recipe = Recipe::kInt8;
    p.rows = rows;
    p.prepared_out = out.data;
    p.prepared = prepared.data;
    device.ops().gated_linear(device.stream(), p);
  });
  report(state, isa, type, threads, best, 2.0 * static_cast<double>(weights.bytes()), 4.0 * rows * n * k);
}

void register_all() {
  std::vector<int> threads = {1};
  if (ops::cores_available() > 1) threads.push_back(ops::cores_available());
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
      const auto add = [&](const char* op, auto&& f, std::int32_t k, std::int32_t n) {
        const std::string name = std::string(ops::isa_name(isa)) + "/" + op + "_int8/" + dtype_name(type);
        auto* b = benchmark::RegisterBenchmark(name.c_str(), f);
        for (const int t : threads) {
          for (const int rows : {1, 2, 4, 8, 16, 32, 64, 512}) b->Args({rows, k, n, t});
        }
        b->UseRealTime()->Unit(benchmark::kMicrosecond);
      };
      // SmolLM2-135M: o, gate and up, down, lm_head; and a matrix of a larger model.
      add(
          "linear", [=](benchmark::State& s) { linear(s, type, isa); }, 576, 576);
      add(
          "gated", [=](benchmark::State& s) { gated(s, type, isa); }, 576, 1536);
      add(
          "linear", [=](benchmark::State& s) { linear(s, type, isa); }, 1536, 576);
      add(
          "linear", [=](benchmark::State& s) { linear(s, type, isa); }, 576, 49152);
      add(
          "linear", [=](benchmark::State& s) { linear(s, type, isa); }, 2048, 8192);
    }
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
