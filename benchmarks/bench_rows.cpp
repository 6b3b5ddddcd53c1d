// The operations between the matrix products and the attention, with the shapes of SmolLM2-135M: bytes read
// and written a second by the best call, as a share of memory reads measured in the same run. Few rows lie in
// the caches and go over 1; many rows and the vocabulary do not.
//
//   bench_rows --benchmark_filter=avx512/row_stats
//
// Arguments of a name: rows (pack: columns of the matrix; copy_blocks: blocks), threads.
#include <numeric>

#include "linear_support.h"

namespace {

using namespace barg;
using namespace barg::bench_linear;

constexpr std::int32_t kHidden = 576, kInner = 1536, kVocabulary = 49152, kHeads = 9, kKvHeads = 3,
                       kHead = 64;
constexpr std::int32_t kBlock = 16;

void report(benchmark::State& state, Isa isa, double best, double bytes) {
  state.counters["best_us"] = best * 1e6;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_read"] = bytes / best * 1e-9 / limits(isa, static_cast<int>(state.range(1))).read_gbytes;
}

struct Setup {
  Setup(const benchmark::State& state, Isa isa)
      : rows(static_cast<std::int32_t>(state.range(0))),
        device({.threads = static_cast<int>(state.range(1)), .isa = isa}) {}
  std::vector<float> floats(std::int64_t width) const {
    return random_floats(static_cast<std::size_t>(rows * width));
  }
  std::int32_t rows;
  CpuDevice device;
};

/// The norm in front of a projection in recipe int8: it leaves prepared rows.
void rms_norm(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  const auto x = s.floats(kHidden), weight = random_floats(kHidden);
  const std::size_t prepared_bytes = s.device.ops().prepared_bytes(s.rows, kHidden, Recipe::kInt8);
  Memory prepared(prepared_bytes);
  ops::RmsNormParams p{};
  p.x = x.data();
  p.weight = weight.data();
  p.eps = 1e-5f;
  p.rows = s.rows;
  p.dim = kHidden;
  p.prepared = prepared.data;
  const double best = best_call(state, [&] { s.device.ops().rms_norm(s.device.stream(), p); });
  report(state, isa, best, static_cast<double>(x.size() * 4 + prepared_bytes));
}

void gate_mul(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  const auto gate = s.floats(kInner), up = s.floats(kInner);
  std::vector<float> out(gate.size());
  const ops::GateMulParams p{gate.data(), up.data(), kInner, s.rows, kInner, out.data()};
  const double best = best_call(state, [&] { s.device.ops().gate_mul(s.device.stream(), p); });
  report(state, isa, best, 12.0 * static_cast<double>(out.size()));
}

void embed(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  Copies table(s.device, DType::kQ8_0, kVocabulary, kHidden);
  std::mt19937 random(4);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(s.rows));
  std::vector<float> out(ids.size() * kHidden);
  const ops::PackedWeight view = table.next();
  const double best = best_call(state, [&] {
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % kVocabulary);
    s.device.ops().embed(s.device.stream(), {view, ids.data(), s.rows, 1, out.data()});
  });
  report(state, isa, best, static_cast<double>(out.size()) * (4 + 34.0 / 32));
}

void rope_kv_write(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  auto q = s.floats(kHeads * kHead), k = s.floats(kKvHeads * kHead);
  const auto v = s.floats(kKvHeads * kHead), angles = s.floats(kHead / 2);
  const auto plane = static_cast<std::int64_t>(s.device.ops().kv_head_bytes(DType::kF16, kBlock, kHead));
  const std::int32_t blocks = (s.rows + kBlock - 1) / kBlock;
  Memory arena(static_cast<std::size_t>(plane * kKvHeads * blocks));
  std::vector<BlockId> blocks_of_it(static_cast<std::size_t>(blocks));
  std::iota(blocks_of_it.begin(), blocks_of_it.end(), 0);
  const ops::Segment segment{0, s.rows, 0, blocks_of_it.data()};
  ops::RopeKvParams p{};
  p.q = q.data();
  p.k = k.data();
  p.v = v.data();
  p.q_stride = kHeads * kHead;
  p.kv_stride = kKvHeads * kHead;
  p.cos = p.sin = angles.data();
  p.rotary_dim = kHead;
  p.num_q_heads = kHeads;
  p.kv = {arena.data, plane * kKvHeads, plane, plane / 2, DType::kF16, kBlock, kKvHeads, kHead};
  p.segments = &segment;
  p.num_segments = 1;
  const double best = best_call(state, [&] {
    std::fill(q.begin(), q.end(), 1.0f);  // rotated in place: it must not grow call by call
    std::fill(k.begin(), k.end(), 1.0f);
    s.device.ops().rope_kv_write(s.device.stream(), p);
  });
  const double moved = 8.0 * static_cast<double>(q.size() + k.size()) + 4.0 * static_cast<double>(v.size()) +
                       4.0 * static_cast<double>(k.size());  // f16 of k and v
  report(state, isa, best, moved);
}

void row_stats(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  const auto x = s.floats(kVocabulary);
  const auto n = static_cast<std::size_t>(s.rows);
  std::vector<float> most(n), sums(n);
  std::vector<std::int32_t> where(n);
  std::vector<std::uint8_t> finite(n);
  const ops::RowStatsParams p{x.data(),    kVocabulary,  s.rows,      kVocabulary,
                              most.data(), where.data(), sums.data(), finite.data()};
  const double best = best_call(state, [&] { s.device.ops().row_stats(s.device.stream(), p); });
  report(state, isa, best, 4.0 * static_cast<double>(x.size()));
}

/// Every block of one row: what a draw without filters looks at when no block can be ruled out.
void gumbel_filter(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  const auto x = random_floats(kVocabulary);
  std::vector<std::int32_t> blocks(kVocabulary / ops::kBlockMax), hits(kVocabulary);
  std::iota(blocks.begin(), blocks.end(), 0);
  ops::GumbelFilterParams p{};
  p.x = x.data();
  p.dim = kVocabulary;
  p.blocks = blocks.data();
  p.num_blocks = static_cast<std::int32_t>(blocks.size());
  p.seed = 7;
  p.max = 5;
  p.hits = hits.data();  // slope and offset of 0: next to no hit
  const double best = best_call(state, [&] { benchmark::DoNotOptimize(s.device.ops().gumbel_filter(p)); });
  report(state, isa, best, 4.0 * kVocabulary);
}

void copy_blocks(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  const std::int64_t block =
      std::int64_t{30} * kKvHeads *
      static_cast<std::int64_t>(s.device.ops().kv_head_bytes(DType::kF16, kBlock, kHead));
  Memory arena(static_cast<std::size_t>(2 * s.rows * block));
  std::memset(arena.data, 1,
              static_cast<std::size_t>(2 * s.rows * block));  // pages of their own, not the zero page
  std::vector<BlockId> from(static_cast<std::size_t>(s.rows)), to(from.size());
  std::iota(from.begin(), from.end(), 0);
  std::iota(to.begin(), to.end(), s.rows);
  const ops::BlockCopyParams p{arena.data, block, from.data(), to.data(), s.rows};
  const double best = best_call(state, [&] { s.device.ops().copy_blocks(s.device.stream(), p); });
  report(state, isa, best, 2.0 * static_cast<double>(block) * s.rows);
}

void pack(benchmark::State& state, Isa isa) {
  Setup s(state, isa);
  const auto raw = random_matrix(DType::kQ4_1, s.rows, kHidden);
  const std::size_t bytes = s.device.ops().packed_bytes(DType::kQ4_1, s.rows, kHidden, {});
  Memory packed(bytes);
  ops::PackParams p{};
  p.src = raw.data();
  p.n = s.rows;
  p.k = kHidden;
  p.dtype = DType::kQ4_1;
  p.dst = packed.data;
  const double best = best_call(state, [&] { s.device.ops().pack(s.device.stream(), p); });
  report(state, isa, best, static_cast<double>(raw.size() + bytes));
}

void register_all() {
  std::vector<int> threads = {1};
  if (ops::cores_available() > 1) threads.push_back(ops::cores_available());
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    const auto add = [&](const char* op, auto* f, const std::vector<int>& rows) {
      const std::string name = std::string(ops::isa_name(isa)) + "/" + op;
      auto* b = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { f(s, isa); });
      for (const int t : threads) {
        for (const int r : rows) b->Args({r, t});
      }
      b->UseRealTime()->Unit(benchmark::kMicrosecond);
    };
    add("embed/q8_0", embed, {1, 32, 512});
    add("rms_norm/int8", rms_norm, {1, 32, 512});
    add("rope_kv_write/f16", rope_kv_write, {1, 32, 512});
    add("gate_mul", gate_mul, {1, 32, 512});
    add("row_stats", row_stats, {1, 32});
    add("gumbel_filter", gumbel_filter, {1});
    add("copy_blocks", copy_blocks, {1, 256});
    add("pack/q4_1", pack, {49152});
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
