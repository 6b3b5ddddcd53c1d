// linear and gated_linear in recipe f32, every weight type, and in recipe bf16: GB/s of weights and GFLOP/s
// of the best call, each as a share of the machine's ceiling measured in the same run with as many threads.
// Weights lie in huge pages and cycle through more memory than the caches hold, as in a real step.
//
//   bench_linear_f32 --benchmark_filter=avx512/linear/bf16
//   bench_linear_f32 --benchmark_filter=recipe_bf16
//
// Arguments of a name: rows, K, N, threads. The best call is shown, not the mean: neighbours of a virtual
// machine only ever make a call slower.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/limits.h"
#include "math.h"

namespace {

using namespace barg;
using ops::CpuDevice;
using ops::Isa;

constexpr std::size_t kCycleBytes = 160u << 20;
constexpr std::size_t kHugePage = 2u << 20;

/// Zeroed huge pages.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : mapped_((bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage) {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    madvise(base_, mapped_, MADV_HUGEPAGE);
    data = base_ + (kHugePage - reinterpret_cast<std::uintptr_t>(base_) % kHugePage) % kHugePage;
  }
  ~Memory() { munmap(base_, mapped_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data;

 private:
  std::size_t mapped_;
  std::byte* base_;
};

std::vector<float> random_floats(std::size_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

std::vector<std::uint8_t> random_matrix(DType type, std::int32_t n, std::int32_t k) {
  const std::size_t blocks = static_cast<std::size_t>(n) * k / block_elements(type);
  std::vector<std::uint8_t> raw(blocks * block_bytes(type));
  std::mt19937 random(1);
  for (std::uint8_t& b : raw) b = static_cast<std::uint8_t>(random());
  for (std::size_t i = 0; i < blocks; ++i) {  // the numbers that must be finite
    std::uint8_t* b = raw.data() + i * block_bytes(type);
    const float w = static_cast<float>(random() % 1000) * 1e-4f;
    const std::uint16_t half = type == DType::kBF16 ? ops::f32_to_bf16(w) : ops::f32_to_f16(w);
    std::memcpy(b, type == DType::kF32 ? static_cast<const void*>(&w) : &half, type == DType::kF32 ? 4 : 2);
    if (type == DType::kQ4_1) std::memcpy(b + 2, &half, 2);
  }
  return raw;
}

/// The same matrix many times over.
class Copies {
 public:
  Copies(CpuDevice& device, DType type, std::int32_t n, std::int32_t k, ops::Packing packing)
      : bytes_(device.ops().packed_bytes(type, n, k, packing)),
        count_(std::max<std::size_t>(2, kCycleBytes / bytes_)),
        memory_(bytes_ * count_),
        view_{n, k, type, nullptr, packing} {
    const auto raw = random_matrix(type, n, k);
    device.ops().pack(device.stream(), {raw.data(), n, k, type, memory_.data, packing});
    for (std::size_t i = 1; i < count_; ++i) std::memcpy(memory_.data + i * bytes_, memory_.data, bytes_);
  }
  ops::PackedWeight next() {
    view_.data = memory_.data + at_ * bytes_;
    at_ = (at_ + 1) % count_;
    return view_;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_, count_, at_ = 0;
  Memory memory_;
  ops::PackedWeight view_;
};

const ops::Limits& limits(Isa isa, int threads) {
  static std::vector<std::pair<Isa, ops::Limits>> known;
  for (const auto& [i, l] : known) {
    if (i == isa && l.threads == threads) return l;
  }
  CpuDevice device({.threads = threads, .isa = isa});
  known.emplace_back(isa, ops::measure_limits(device));
  return known.back().second;
}

template <class F>
void measure(benchmark::State& state, Isa isa, Recipe recipe, int threads, double bytes, double flops,
             F&& f) {
  double best = 1e9;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const ops::Limits& limit = limits(isa, threads);
  state.counters["best_us"] = best * 1e6;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_read"] = bytes / best * 1e-9 / limit.read_gbytes;
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  const bool bf16 = recipe == Recipe::kBF16;
  state.counters[bf16 ? "of_bf16" : "of_fma"] =
      flops / best * 1e-9 / (bf16 ? limit.bf16_gflops : limit.f32_gflops);
}

struct Shape {
  std::int32_t rows, k, n;
  int threads;
};

Shape shape_of(const benchmark::State& state) {
  return {static_cast<std::int32_t>(state.range(0)), static_cast<std::int32_t>(state.range(1)),
          static_cast<std::int32_t>(state.range(2)), static_cast<int>(state.range(3))};
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
  const auto name = [&](const char* op) { return std::string(ops::isa_name(isa)) + "/" + op + "/" + what; };
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
    if (ops::recipe_supported(isa, Recipe::kBF16))
      register_shapes("recipe_bf16", DType::kBF16, Recipe::kBF16, isa);
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
