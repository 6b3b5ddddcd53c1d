// Attention over paged KV against this machine's ceilings, measured in the same run: GB/s of KV as a share of
// memory reads (decode), GFLOP/s as a share of FMA (prefill).
//
//   bench_attention --benchmark_filter='decode/9x3x64/f16'
//
// Names: query heads x kv heads x head size. Decode: context, sequences, threads. Prefill: depth (tokens
// already computed), rows, threads. The arena has the layout of the engine (all layers of a block side by
// side, blocks in random order) and calls go through the layers in turn, so a long context comes from memory
// and a short one from whatever cache it fits, as in a real step. BARG_ISA=scalar|avx2|avx512 picks the
// instruction set.
#include <cstdlib>
#include <numeric>

#include "linear_support.h"

namespace {

using namespace barg;
using namespace barg::bench_linear;

constexpr std::int32_t kBlock = 16;
constexpr std::int32_t kLayers = 30;
constexpr std::size_t kMaxArena = std::size_t{400} << 20;

ops::Isa isa_of_environment() {
  const char* name = std::getenv("BARG_ISA");
  for (const ops::Isa isa : {ops::Isa::kScalar, ops::Isa::kAvx2, ops::Isa::kAvx512}) {
    if (name != nullptr && std::strcmp(name, ops::isa_name(isa)) == 0 && ops::isa_supported(isa)) return isa;
  }
  return ops::Isa::kAuto;
}

struct Heads {
  std::int32_t q, kv, dim;
};

/// Sequences of one length, and the call that computes the last rows of each.
class Case {
 public:
  Case(CpuDevice& device, DType type, Heads heads, std::int32_t context, std::int32_t sequences,
       std::int32_t rows)
      : device_(device),
        head_bytes_(device.ops().kv_head_bytes(type, kBlock, heads.dim)),
        blocks_((context + kBlock - 1) / kBlock),
        layers_(static_cast<std::int32_t>(
            std::clamp<std::size_t>(kMaxArena / (head_bytes_ * heads.kv * sequences * blocks_), 1, kLayers))),
        arena_(head_bytes_ * heads.kv * sequences * blocks_ * layers_),
        table_(static_cast<std::size_t>(sequences * blocks_)),
        width_(std::int64_t{heads.q} * heads.dim),
        q_(random_floats(static_cast<std::size_t>(sequences * rows * width_))),
        out_(q_.size()),
        workspace_(device.ops().attention_workspace_bytes(sequences * rows, heads.q, heads.dim)) {
    fill(type, heads.kv * sequences * blocks_ * layers_);
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(3));
    for (std::int32_t i = 0; i < sequences; ++i)
      segments_.push_back({i * rows, rows, context - rows, table_.data() + i * blocks_});
    const auto head = static_cast<std::int64_t>(head_bytes_);
    params_ = {
        .q = q_.data(),
        .q_stride = width_,
        .out = out_.data(),
        .out_stride = width_,
        .scale = 0.125f,
        .window = 0,
        .num_q_heads = heads.q,
        .kv = {arena_.data, head * heads.kv * layers_, head, head / 2, type, kBlock, heads.kv, heads.dim},
        .segments = segments_.data(),
        .num_segments = sequences,
        .workspace = workspace_.data};
    kv_bytes_ = static_cast<double>(head_bytes_ / kBlock) * heads.kv * sequences * context;
    for (std::int32_t r = 0; r < rows; ++r)
      flops_ += 4.0 * static_cast<double>(width_) * sequences * (context - rows + r + 1);
  }

  void step() {
    params_.kv.base = arena_.data + head_bytes_ * params_.kv.num_kv_heads * layer_;
    layer_ = (layer_ + 1) % layers_;
    device_.ops().attention(device_.stream(), params_);
  }
  double kv_bytes() const { return kv_bytes_; }
  double flops() const { return flops_; }

 private:
  /// Numbers of the size that keys and values have, cheap to write.
  void fill(DType type, std::int64_t heads) {
    const auto one = has_token_scales(type) ? head_of_codes(type) : head_of_numbers(type);
    for (std::int64_t i = 0; i < heads; ++i)
      std::memcpy(arena_.data + i * head_bytes_, one.data(), one.size());
  }

  std::vector<std::byte> head_of_numbers(DType type) const {
    std::vector<std::byte> one(head_bytes_);
    const auto values = random_floats(head_bytes_ / block_bytes(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type == DType::kF32) {
        std::memcpy(one.data() + i * 4, &values[i], 4);
        continue;
      }
      const std::uint16_t h = type == DType::kF16 ? ops::f32_to_f16(values[i]) : ops::f32_to_bf16(values[i]);
      std::memcpy(one.data() + i * 2, &h, 2);
    }
    return one;
  }

  /// Codes to three deviations, then the scales of the plane.
  std::vector<std::byte> head_of_codes(DType type) const {
    std::vector<std::byte> one(head_bytes_);
    const auto values = random_floats(head_bytes_);
    const std::size_t plane = head_bytes_ / 2, codes = plane - kBlock * sizeof(float);
    const float limit = type == DType::kI8 ? 127.0f : 448.0f;
    const float scale = 3 / limit;
    for (std::size_t i = 0; i < head_bytes_; ++i) {
      const std::size_t at = i % plane;
      const float x = std::clamp(values[i] / 3, -1.0f, 1.0f) * limit;
      if (at < codes) {
        one[i] = static_cast<std::byte>(type == DType::kI8 ? static_cast<std::uint8_t>(static_cast<int>(x))
                                                           : ops::f32_to_f8(x));
      } else {
        one[i] = reinterpret_cast<const std::byte*>(&scale)[at % sizeof scale];
      }
    }
    return one;
  }

  CpuDevice& device_;
  std::size_t head_bytes_;
  std::int32_t blocks_, layers_;
  Memory arena_;
  std::vector<BlockId> table_;
  std::int64_t width_;
  std::vector<float> q_, out_;
  Memory workspace_;
  std::vector<ops::Segment> segments_;
  ops::AttentionParams params_{};
  std::int32_t layer_ = 0;
  double kv_bytes_ = 0, flops_ = 0;
};

void run(benchmark::State& state, DType type, Heads heads, std::int32_t context, std::int32_t sequences,
         std::int32_t rows, int threads) {
  CpuDevice device({.threads = threads, .isa = isa_of_environment()});
  const ops::Limits& l = limits(device.isa(), threads);
  Case test(device, type, heads, context, sequences, rows);
  for (auto _ : state) test.step();
  const auto rate = [](double x) {
    return benchmark::Counter(x, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GB/s"] = rate(test.kv_bytes() * 1e-9);
  state.counters["GFLOP/s"] = rate(test.flops() * 1e-9);
  if (l.read_gbytes > 0) state.counters["of_read"] = rate(test.kv_bytes() * 1e-9 / l.read_gbytes);
  state.counters["of_fma"] = rate(test.flops() * 1e-9 / l.f32_gflops);
}

void register_all() {
  std::vector<std::int64_t> threads = {1};
  if (ops::cores_available() > 1) threads.push_back(ops::cores_available());
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8}) {
    for (const Heads heads : {Heads{9, 3, 64}, Heads{16, 8, 128}, Heads{32, 8, 128}}) {
      const std::string name = std::to_string(heads.q) + "x" + std::to_string(heads.kv) + "x" +
                               std::to_string(heads.dim) + "/" + dtype_name(type);
      benchmark::RegisterBenchmark(("decode/" + name).c_str(),
                                   [=](benchmark::State& s) {
                                     run(s, type, heads, static_cast<std::int32_t>(s.range(0)),
                                         static_cast<std::int32_t>(s.range(1)), 1,
                                         static_cast<int>(s.range(2)));
                                   })
          ->ArgsProduct({{128, 512, 4096}, {1, 8, 32}, threads})
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("prefill/" + name).c_str(),
                                   [=](benchmark::State& s) {
                                     const auto rows = static_cast<std::int32_t>(s.range(1));
                                     run(s, type, heads, static_cast<std::int32_t>(s.range(0)) + rows, 1,
                                         rows, static_cast<int>(s.range(2)));
                                   })
          ->ArgsProduct({{0, 2048}, {64, 512}, threads})
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
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
