// Kernel benchmarks: GB/s of weights (or KV), GFLOP/s, and both as shares of the machine's ceilings measured
// in the same run with as many threads: memory reads; f32 FMA or, for recipe int8, the instruction that
// multiplies integers. Weights cycle through more memory than the caches hold, as in a real step.
//
//   bench_kernels --benchmark_filter=linear/q4_1        one format
//   bench_kernels --benchmark_filter=smollm2            a whole step with the shapes of SmolLM2-135M
//
// Arguments of a name: rows, then threads. Figures move with the neighbours of a virtual machine: compare
// fractions, or runs side by side.
#include <memory>
#include <numeric>

#include "linear_support.h"

namespace {

using namespace barg;
using namespace barg::bench_linear;

/// The ceiling that bounds a product: f32 multiplies, or those of the int8 instructions that its type takes.
enum class Bound { kFma, kInt8, kInt4 };

Bound bound_of(Recipe recipe, DType type) {
  if (recipe != Recipe::kInt8) return Bound::kFma;
  return type == DType::kQ8_0 ? Bound::kInt8 : Bound::kInt4;
}

void report(benchmark::State& state, const CpuDevice& device, Bound bound, double bytes, double flops) {
  const ops::Limits& l = limits(device.isa(), device.threads());
  const auto rate = [](double x) {
    return benchmark::Counter(x, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GB/s"] = rate(bytes * 1e-9);
  if (l.read_gbytes > 0) state.counters["of_read"] = rate(bytes * 1e-9 / l.read_gbytes);
  state.counters[bound == Bound::kFma ? "GFLOP/s" : "GOP/s"] = rate(flops * 1e-9);
  const double ceiling = bound == Bound::kFma    ? l.f32_gflops
                         : bound == Bound::kInt8 ? l.int8_gops
                                                 : l.int4_gops;
  state.counters[bound == Bound::kFma ? "of_fma" : "of_int8"] = rate(flops * 1e-9 / ceiling);
}

// --- linear ----------------------------------------------------------------------------------------------

void linear(benchmark::State& state, DType type, Recipe recipe, ops::Isa isa) {
  constexpr std::int32_t kN = 4096;
  constexpr std::int32_t kK = 2048;
  const auto rows = static_cast<std::int32_t>(state.range(0));
  const auto threads = static_cast<int>(state.range(1));
  CpuDevice device({.threads = threads, .isa = isa});
  Copies weights(device, type, kN, kK);
  const auto x = random_floats(static_cast<std::size_t>(rows) * kK);
  std::vector<float> out(static_cast<std::size_t>(rows) * kN);
  Memory workspace(device.ops().prepared_bytes(rows, kK, recipe) + 64);
  for (auto _ : state) {
    device.ops().linear(device.stream(), {.weight = weights.next(),
                                          .recipe = recipe,
                                          .x = x.data(),
                                          .rows = rows,
                                          .x_stride = kK,
                                          .bias = nullptr,
                                          .out = out.data(),
                                          .out_stride = kN,
                                          .workspace = workspace.data});
  }
  report(state, device, bound_of(recipe, type), static_cast<double>(weights.bytes()), 2.0 * rows * kN * kK);
}

// --- attention -------------------------------------------------------------------------------------------

void attention(benchmark::State& state, DType type, int q_heads, int kv_heads, int dim, bool prefill) {
  const auto context = static_cast<std::int32_t>(state.range(0));
  const auto threads = static_cast<int>(state.range(1));
  constexpr std::int32_t kBlock = 16;
  CpuDevice device({.threads = threads, .isa = ops::Isa::kAuto});
  const std::size_t head_bytes = device.ops().kv_head_bytes(type, kBlock, dim);
  const std::int32_t sequences = prefill ? 1 : 8;
  const std::int32_t blocks = (context + kBlock - 1) / kBlock;
  const std::size_t arena_bytes = head_bytes * static_cast<std::size_t>(kv_heads * sequences * blocks);
  Memory arena(arena_bytes);
  const ops::KvLayerView kv{arena.data,
                            static_cast<std::int64_t>(head_bytes * kv_heads),
                            static_cast<std::int64_t>(head_bytes),
                            static_cast<std::int64_t>(head_bytes / 2),
                            type,
                            kBlock,
                            kv_heads,
                            dim};
  std::vector<BlockId> table(static_cast<std::size_t>(sequences * blocks));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  const std::int32_t rows = prefill ? std::min(context, 256) : sequences;
  std::vector<ops::Segment> segments;
  for (std::int32_t i = 0; i < sequences; ++i) {
    const std::int32_t count = prefill ? rows : 1;
    segments.push_back({i, count, context - count, table.data() + i * blocks});
  }
  const std::int64_t width = q_heads * dim;
  const auto q = random_floats(static_cast<std::size_t>(rows * width));
  std::vector<float> out(q.size());
  Memory workspace(device.ops().attention_workspace_bytes(rows, q_heads, dim) + 64);
  for (auto _ : state) {
    device.ops().attention(device.stream(),
                           {q.data(), width, out.data(), width, 0.125f, 0, q_heads, kv, segments.data(),
                            static_cast<std::int32_t>(segments.size()), workspace.data});
  }
  double keys = 0;
  for (const auto& s : segments) {
    for (std::int32_t r = 0; r < s.row_count; ++r) keys += s.pos_begin + r + 1;
  }
  report(state, device, Bound::kFma, static_cast<double>(arena_bytes), keys * 4.0 * dim * q_heads);
}

// --- a step ----------------------------------------------------------------------------------------------

/// The operations of one step of SmolLM2-135M (30 layers, hidden 576, 9 query and 3 kv heads of 64, MLP 1536,
/// vocabulary 49152), one position per row behind a context of 128, KV in f16.
class SmolLm2 {
 public:
  static constexpr std::int32_t kLayers = 30, kHidden = 576, kHeads = 9, kKvHeads = 3, kDim = 64, kMlp = 1536,
                                kVocab = 49152, kContext = 128, kBlock = 16;

  SmolLm2(CpuDevice& device, DType type, Recipe recipe, std::int32_t rows, bool prefill)
      : device_(device),
        ops_(device.ops()),
        recipe_(recipe),
        rows_(rows),
        prefill_(prefill),
        norm_(random_floats(kHidden)),
        x_(random_floats(static_cast<std::size_t>(rows) * kHidden)),
        h_(x_.size()),
        qkv_(static_cast<std::size_t>(rows) * (kHeads + 2 * kKvHeads) * kDim),
        attended_(x_.size()),
        gate_up_(static_cast<std::size_t>(rows) * 2 * kMlp),
        act_(static_cast<std::size_t>(rows) * kMlp),
        logits_(static_cast<std::size_t>(prefill ? 1 : rows) * kVocab),
        angles_(random_floats(static_cast<std::size_t>(rows) * kDim / 2)),
        workspace_(std::max(ops_.prepared_bytes(rows, kMlp, recipe),
                            ops_.attention_workspace_bytes(rows, kHeads, kDim)) +
                   64),
        kv_(ops_.kv_head_bytes(DType::kF16, kBlock, kDim) * kKvHeads * kLayers * num_blocks()) {
    for (const auto& [n, k] : {std::pair{(kHeads + 2 * kKvHeads) * kDim, kHidden},
                               {kHidden, kHidden},
                               {2 * kMlp, kHidden},
                               {kHidden, kMlp}}) {
      for (std::int32_t l = 0; l < kLayers; ++l) add_weight(type, n, k);
    }
    add_weight(type, kVocab, kHidden);
    table_.resize(num_blocks());
    std::iota(table_.begin(), table_.end(), 0);
    const std::size_t blocks = num_blocks() / segments();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(segments()); ++i) {
      const std::int32_t count = prefill_ ? rows_ : 1;
      segments_.push_back(
          {i, count, prefill_ ? 0 : kContext, table_.data() + static_cast<std::size_t>(i) * blocks});
    }
  }

  void step() {
    for (std::int32_t layer = 0; layer < kLayers; ++layer) run_layer(layer);
    const std::int32_t wanted = prefill_ ? 1 : rows_;
    linear(4 * kLayers, x_.data(), wanted, kHidden, logits_.data(), kVocab);
  }
  double weight_bytes() const { return weight_bytes_; }

 private:
  std::size_t segments() const { return prefill_ ? 1 : static_cast<std::size_t>(rows_); }
  std::size_t num_blocks() const {
    return segments() * static_cast<std::size_t>((prefill_ ? rows_ : kContext + 1) + kBlock - 1) / kBlock +
           segments();
  }
  void add_weight(DType type, std::int32_t n, std::int32_t k) {
    const auto raw = random_matrix(type, n, k);
    const std::size_t bytes = ops_.packed_bytes(type, n, k, ops::Packing::kStored);
    memory_.push_back(std::make_unique<Memory>(bytes));
    ops_.pack(device_.stream(), {raw.data(), n, k, type, memory_.back()->data});
    weights_.push_back({n, k, type, memory_.back()->data});
    weight_bytes_ += static_cast<double>(bytes);
  }
  void linear(std::int32_t weight, const float* x, std::int32_t rows, std::int64_t stride, float* out,
              std::int64_t out_stride) {
    ops_.linear(device_.stream(), {.weight = weights_[static_cast<std::size_t>(weight)],
                                   .recipe = recipe_,
                                   .x = x,
                                   .rows = rows,
                                   .x_stride = stride,
                                   .bias = nullptr,
                                   .out = out,
                                   .out_stride = out_stride,
                                   .workspace = workspace_.data});
  }
  void run_layer(std::int32_t layer) {
    constexpr std::int64_t kQkv = (kHeads + 2 * kKvHeads) * kDim;
    const std::size_t head = ops_.kv_head_bytes(DType::kF16, kBlock, kDim);
    const auto block = static_cast<std::int64_t>(head * kKvHeads * kLayers);
    const ops::KvLayerView kv{kv_.data + head * kKvHeads * static_cast<std::size_t>(layer),
                              block,
                              static_cast<std::int64_t>(head),
                              static_cast<std::int64_t>(head / 2),
                              DType::kF16,
                              kBlock,
                              kKvHeads,
                              kDim};
    ops::Stream& s = device_.stream();
    const auto segments = static_cast<std::int32_t>(segments_.size());
    ops_.rms_norm(s, {x_.data(), norm_.data(), 0.0f, 1e-5f, rows_, kHidden, h_.data()});
    linear(layer, h_.data(), rows_, kHidden, qkv_.data(), kQkv);
    ops_.rope_kv_write(
        s, {qkv_.data(), qkv_.data() + kHeads * kDim, qkv_.data() + (kHeads + kKvHeads) * kDim, kQkv, kQkv,
            angles_.data(), angles_.data(), kDim, kHeads, kv, segments_.data(), segments});
    ops_.attention(s, {qkv_.data(), kQkv, attended_.data(), kHidden, 0.125f, 0, kHeads, kv, segments_.data(),
                       segments, workspace_.data});
    linear(kLayers + layer, attended_.data(), rows_, kHidden, h_.data(), kHidden);
    ops_.rms_norm(s, {x_.data(), norm_.data(), 0.0f, 1e-5f, rows_, kHidden, attended_.data()});
    linear(2 * kLayers + layer, attended_.data(), rows_, kHidden, gate_up_.data(), 2 * kMlp);
    ops_.gate_mul(s, {gate_up_.data(), gate_up_.data() + kMlp, 2 * kMlp, rows_, kMlp, act_.data()});
    linear(3 * kLayers + layer, act_.data(), rows_, kMlp, h_.data(), kHidden);
  }

  CpuDevice& device_;
  const ops::OpTable& ops_;
  Recipe recipe_;
  std::int32_t rows_;
  bool prefill_;
  std::vector<float> norm_, x_, h_, qkv_, attended_, gate_up_, act_, logits_, angles_;
  Memory workspace_, kv_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<ops::PackedWeight> weights_;
  std::vector<BlockId> table_;
  std::vector<ops::Segment> segments_;
  double weight_bytes_ = 0;
};

void smollm2(benchmark::State& state, DType type, Recipe recipe, bool prefill) {
  const auto rows = static_cast<std::int32_t>(state.range(0));
  const auto threads = static_cast<int>(state.range(1));
  CpuDevice device({.threads = threads, .isa = ops::Isa::kAuto});
  SmolLm2 model(device, type, recipe, rows, prefill);
  for (auto _ : state) model.step();
  report(state, device, bound_of(recipe, type), model.weight_bytes(),
         2.0 * rows * (prefill ? 106.2e6 : 134.5e6));
  state.counters["tok/s"] = benchmark::Counter(rows, benchmark::Counter::kIsIterationInvariantRate);
}

// --- registration ----------------------------------------------------------------------------------------

void register_all() {
  const int cores = ops::cores_available();
  std::vector<std::int64_t> threads = {1};
  if (cores > 1) threads.push_back(cores);
  const auto add = [&](const std::string& name, auto&& f, std::vector<std::int64_t> first) {
    benchmark::RegisterBenchmark(name.c_str(), f)
        ->ArgsProduct({std::move(first), threads})
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
      if (recipe == Recipe::kInt8 && block_elements(type) == 1) continue;
      const std::string name = std::string(dtype_name(type)) + "/" + recipe_name(recipe);
      add("linear/" + name, [=](benchmark::State& s) { linear(s, type, recipe, ops::Isa::kAuto); },
          {1, 2, 4, 8, 16, 32, 48, 128, 512});
      add("smollm2_decode/" + name, [=](benchmark::State& s) { smollm2(s, type, recipe, false); },
          {1, 8, 32});
      add("smollm2_prefill/" + name, [=](benchmark::State& s) { smollm2(s, type, recipe, true); },
          {128, 512});
    }
  }
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string name = dtype_name(type);
    add("attention_decode/9x3x64/" + name, [=](benchmark::State& s) { attention(s, type, 9, 3, 64, false); },
        {128, 1024, 8192});
    add("attention_decode/16x8x128/" + name,
        [=](benchmark::State& s) { attention(s, type, 16, 8, 128, false); }, {1024, 8192});
    add("attention_prefill/9x3x64/" + name, [=](benchmark::State& s) { attention(s, type, 9, 3, 64, true); },
        {256, 4096});
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
