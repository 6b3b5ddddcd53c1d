// Attention with sinks: right against float64, and equal in bits whatever the instruction set, threads and chunks.
#include <algorithm>
#include <numeric>

#include "fixture.h"

namespace barg::test::sinks_test {
namespace {

constexpr int kHeads = 4, kKvHeads = 2, kDim = 32, kLength = 700;

std::size_t size(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

struct Inputs {
  explicit Inputs(Random& random)
      : q(random.normals(size(kLength, kHeads * kDim))),
        k(random.normals(size(kLength, kKvHeads * kDim))),
        v(random.normals(size(kLength, kKvHeads * kDim))),
        sinks{0.5f, -40.0f, 60.0f, 3.0f} {}
  std::vector<float> q, k, v, sinks;
};

std::vector<float> run(Isa isa, int threads, const Inputs& in, int window, int chunk, bool sinks) {
  auto d = device(isa, threads);
  constexpr int kBlocks = (kLength + 15) / 16;
  Arena arena(*d, DType::kF32, 16, kKvHeads, kDim, kBlocks);
  std::vector<BlockId> table(kBlocks);
  std::iota(table.rbegin(), table.rend(), 0);
  std::vector<float> out(in.q.size());
  for (int at = 0; at < kLength; at += chunk) {
    const int rows = std::min(chunk, kLength - at);
    const ops::Segment segment{0, rows, at, table.data()};
    std::vector<float> q(in.q.begin() + at * kHeads * kDim, in.q.begin() + (at + rows) * kHeads * kDim);
    std::vector<float> k(in.k.begin() + at * kKvHeads * kDim, in.k.begin() + (at + rows) * kKvHeads * kDim);
    d->ops().rope_kv_write(d->stream(), {.q = q.data(),
                                         .k = k.data(),
                                         .v = in.v.data() + size(at, kKvHeads * kDim),
                                         .q_stride = kHeads * kDim,
                                         .kv_stride = kKvHeads * kDim,
                                         .cos = nullptr,
                                         .sin = nullptr,
                                         .rotary_dim = 0,
                                         .num_q_heads = kHeads,
                                         .kv = arena.view,
                                         .segments = &segment,
                                         .num_segments = 1});
    Buffer workspace(d->ops().attention_workspace_bytes(rows, kHeads, kDim));
    ops::AttentionParams p{};
    p.q = q.data();
    p.q_stride = kHeads * kDim;
    p.out = out.data() + size(at, kHeads * kDim);
    p.out_stride = kHeads * kDim;
    p.scale = 0.2f;
    p.window = window;
    p.num_q_heads = kHeads;
    p.kv = arena.view;
    p.segments = &segment;
    p.num_segments = 1;
    p.workspace = workspace.data();
    p.sinks = sinks ? in.sinks.data() : nullptr;
    d->ops().attention(d->stream(), p);
  }
  return out;
}

std::vector<double> exact(const Inputs& in, int window) {
  std::vector<double> out;
  for (int row = 0; row < kLength; ++row) {
    for (int h = 0; h < kHeads; ++h) {
      const auto dot = [&](int j) {
        double s = 0;
        for (std::size_t d = 0; d < kDim; ++d)
          s += static_cast<double>(in.q[size(row, kHeads * kDim) + size(h, kDim) + d]) *
               in.k[size(j, kKvHeads * kDim) + size(h / 2, kDim) + d];
        return s * 0.2f;
      };
      const int first = window > 0 ? std::max(0, row - window + 1) : 0;
      double max = in.sinks[static_cast<std::size_t>(h)];
      for (int j = first; j <= row; ++j) max = std::max(max, dot(j));
      double sum = std::exp(in.sinks[static_cast<std::size_t>(h)] - max);
      std::vector<double> acc(kDim);
      for (int j = first; j <= row; ++j) {
        const double e = std::exp(dot(j) - max);
        sum += e;
        for (std::size_t d = 0; d < kDim; ++d) acc[d] += e * in.v[size(j, kKvHeads * kDim) + size(h / 2, kDim) + d];
      }
      for (const double a : acc) out.push_back(a / sum);
    }
  }
  return out;
}

TEST(Sinks, AgreeWithDouble) {
  Random random(91);
  const Inputs in(random);
  for (const int window : {0, 24}) {
    const auto want = exact(in, window);
    EXPECT_LE(distance(run(Isa::kScalar, 1, in, window, kLength, true), want), 2e-5) << window;
    EXPECT_GE(distance(run(Isa::kScalar, 1, in, window, kLength, false), want), 0.1) << "sinks must matter";
  }
}

TEST(Sinks, EveryInstructionSetThreadsAndChunksGiveTheScalarBits) {
  Random random(92);
  const Inputs in(random);
  for (const int window : {0, 24}) {
    const auto want = run(Isa::kScalar, 2, in, window, kLength, true);
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 4}) {
        for (const int chunk : {1, 37, kLength})
          EXPECT_TRUE(same(run(isa, threads, in, window, chunk, true), want)) << threads << " " << chunk;
      }
    }
  }
}

}  // namespace
}  // namespace barg::test::sinks_test
