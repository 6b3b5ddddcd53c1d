// Every vector kernel on operands that end where a page begins that nobody may touch: a load or store past an
// operand's end ends the test. Sizes are chosen so that vectors have tails; results are those of the scalar
// table on ordinary memory.
#include <algorithm>

#include "fixture.h"

namespace barg::test::bounds_test {
namespace {

/// `count` numbers in front of an edge.
template <class T>
class Edge {
 public:
  explicit Edge(std::size_t count)
      : memory_((count * sizeof(T) + 4095) / 4096 * 4096),
        count_(count),
        data_(reinterpret_cast<T*>(memory_.data() + memory_.size()) - count) {}
  explicit Edge(const std::vector<T>& v) : Edge(v.size()) { std::copy(v.begin(), v.end(), data_); }
  Edge(const std::byte* from, std::size_t bytes) : Edge(bytes) { std::copy(from, from + bytes, data_); }

  T* data() { return data_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  GuardedBuffer memory_;
  std::size_t count_;
  T* data_;
};

std::size_t size(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

/// Packed weights of whole 64-byte lines, so that they may end at an edge: an even number of panels.
Edge<std::byte> at_edge(Weights& w) { return {w.packed.data(), w.packed.size()}; }

struct Shape {
  DType type;
  Recipe recipe;
  int n, k, rows;
};

template <class F>
void for_shapes(F&& f) {
  for (const DType type : kAllTypes) {
    for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
      for (const int n : {20, 23, 64, 119}) {
        for (const int rows : {1, 2, 3, 7, 13, 29})
          f(Shape{type, recipe, n, is_quantised(type) ? 96 : 94, rows});
      }
    }
  }
}

TEST(Bounds, Linear) {
  Random random(61);
  auto scalar = device(Isa::kScalar);
  for_shapes([&](const Shape& s) {
    Weights w(*scalar, s.type, s.n, s.k, random);
    const auto x = random.normals(size(s.rows, s.k));
    const auto bias = random.normals(static_cast<std::size_t>(s.n));
    const auto base = random.normals(size(s.rows, s.n));
    const std::size_t maxima = size(s.rows, (s.n + 63) / 64);
    const auto call = [&](CpuDevice& d, const void* packed, const float* x_in, const float* b,
                          void* workspace, float* out, float* max) {
      std::copy(base.begin(), base.end(), out);
      d.ops().linear(d.stream(), {.weight = {s.n, s.k, s.type, packed},
                                  .recipe = s.recipe,
                                  .x = x_in,
                                  .rows = s.rows,
                                  .x_stride = s.k,
                                  .bias = b,
                                  .out = out,
                                  .out_stride = s.n,
                                  .workspace = workspace,
                                  .accumulate = true,
                                  .block_max = max});
    };
    std::vector<float> out(base.size()), max(maxima);
    Buffer workspace(scalar->ops().prepared_bytes(s.rows, s.k, s.recipe));
    call(*scalar, w.packed.data(), x.data(), bias.data(), workspace.data(), out.data(), max.data());
    for (const Isa isa : vector_isas()) {
      auto d = device(isa, 2);
      Edge<std::byte> packed = at_edge(w), scratch(workspace.size());
      Edge<float> edge_x(x), edge_bias(bias), edge_out(base.size()), edge_max(maxima);
      call(*d, packed.data(), edge_x.data(), edge_bias.data(), scratch.data(), edge_out.data(),
           edge_max.data());
      ASSERT_TRUE(same(edge_out.values(), out)) << dtype_name(s.type) << " " << s.n << " x " << s.rows;
      ASSERT_TRUE(same(edge_max.values(), max)) << dtype_name(s.type) << " " << s.n << " x " << s.rows;
    }
  });
}

TEST(Bounds, GatedLinear) {
  Random random(62);
  auto scalar = device(Isa::kScalar);
  for_shapes([&](const Shape& s) {
    Weights gate(*scalar, s.type, s.n, s.k, random), up(*scalar, s.type, s.n, s.k, random);
    const auto x = random.normals(size(s.rows, s.k));
    const auto bias = random.normals(static_cast<std::size_t>(s.n));
    const bool whole = s.n % 32 == 0;  // then as prepared rows too
    const auto call = [&](CpuDevice& d, const void* g, const void* u, const float* x_in, const float* b,
                          void* workspace, float* out, void* prepared) {
      d.ops().gated_linear(d.stream(), {.gate = {s.n, s.k, s.type, g},
                                        .up = {s.n, s.k, s.type, u},
                                        .recipe = s.recipe,
                                        .x = x_in,
                                        .rows = s.rows,
                                        .x_stride = s.k,
                                        .gate_bias = b,
                                        .up_bias = b,
                                        .out = out,
                                        .prepared_out = prepared,
                                        .workspace = workspace});
    };
    std::vector<float> out(size(s.rows, s.n));
    Buffer workspace(scalar->ops().prepared_bytes(s.rows, s.k, s.recipe));
    call(*scalar, gate.packed.data(), up.packed.data(), x.data(), bias.data(), workspace.data(), out.data(),
         nullptr);
    for (const Isa isa : vector_isas()) {
      auto d = device(isa, 2);
      Edge<std::byte> g = at_edge(gate), u = at_edge(up), scratch(workspace.size());
      Edge<std::byte> prepared(d->ops().prepared_bytes(s.rows, s.n, Recipe::kInt8));
      Edge<float> edge_x(x), edge_bias(bias), edge_out(out.size());
      call(*d, g.data(), u.data(), edge_x.data(), edge_bias.data(), scratch.data(), edge_out.data(),
           whole ? prepared.data() : nullptr);
      ASSERT_TRUE(same(edge_out.values(), out)) << dtype_name(s.type) << " " << s.n << " x " << s.rows;
    }
  });
}

TEST(Bounds, Rows) {
  Random random(63);
  auto scalar = device(Isa::kScalar);
  constexpr int kRows = 3;
  for (const int dim : {1, 7, 8, 9, 17, 31, 70, 96}) {
    const auto x = random.normals(size(kRows, dim)), y = random.normals(size(kRows, dim));
    const auto weight = random.normals(static_cast<std::size_t>(dim));
    const auto norm = [&](CpuDevice& d, const float* in, const float* w, float* out, void* prepared) {
      d.ops().rms_norm(d.stream(), {in, w, 0.0f, 1e-5f, kRows, dim, out, prepared});
    };
    std::vector<float> want_norm(x.size()), want_gate(x.size()), want_stats;
    norm(*scalar, x.data(), weight.data(), want_norm.data(), nullptr);
    scalar->ops().gate_mul(scalar->stream(), {x.data(), y.data(), dim, kRows, dim, want_gate.data()});
    for (const Isa isa : vector_isas()) {
      auto d = device(isa);
      Edge<float> edge_x(x), edge_y(y), edge_weight(weight), out(x.size());
      Edge<std::byte> prepared(d->ops().prepared_bytes(kRows, dim, Recipe::kInt8));
      norm(*d, edge_x.data(), edge_weight.data(), out.data(), dim % 32 == 0 ? prepared.data() : nullptr);
      EXPECT_TRUE(same(out.values(), want_norm)) << dim;
      d->ops().gate_mul(d->stream(), {edge_x.data(), edge_y.data(), dim, kRows, dim, out.data()});
      EXPECT_TRUE(same(out.values(), want_gate)) << dim;
      Edge<float> max(kRows), lse(kRows);
      Edge<std::int32_t> argmax(kRows);
      Edge<std::uint8_t> finite(kRows);
      d->ops().row_stats(d->stream(), {edge_x.data(), dim, kRows, dim, max.data(), argmax.data(), lse.data(),
                                       finite.data()});
      for (int r = 0; r < kRows; ++r) {
        const auto begin = x.begin() + std::ptrdiff_t{r} * dim;
        EXPECT_EQ(max.values()[static_cast<std::size_t>(r)], *std::max_element(begin, begin + dim)) << dim;
      }
      std::vector<std::int32_t> blocks;
      for (int b = 0; b * ops::kBlockMax < dim; ++b) blocks.push_back(b);
      Edge<float> row(std::vector<float>(x.begin(), x.begin() + dim));
      Edge<std::int32_t> edge_blocks(blocks), hits(blocks.size() * ops::kBlockMax);
      const std::int32_t count =
          d->ops().gumbel_filter({.x = row.data(),
                                  .dim = dim,
                                  .blocks = edge_blocks.data(),
                                  .num_blocks = static_cast<std::int32_t>(blocks.size()),
                                  .seed = 1,
                                  .position = 2,
                                  .choice = 0,
                                  .max = 0.0f,
                                  .slope = 0.0f,
                                  .offset = 2e9f,
                                  .hits = hits.data()});
      EXPECT_EQ(count, dim);  // the bar is above every level: all ids
    }
  }
}

TEST(Bounds, Embed) {
  Random random(64);
  auto scalar = device(Isa::kScalar);
  for (const DType type : kAllTypes) {
    Weights w(*scalar, type, 32, 96, random);
    for (const Isa isa : vector_isas()) {
      auto d = device(isa);
      Edge<std::byte> packed = at_edge(w);
      Edge<std::int32_t> ids(std::vector<std::int32_t>{31, 0, 17});
      Edge<float> out(3 * 96);
      d->ops().embed(d->stream(), {{32, 96, type, packed.data()}, ids.data(), 3, 1.0f, out.data()});
      const auto got = out.values();
      EXPECT_TRUE(std::equal(got.begin(), got.begin() + 96, w.dense.begin() + 31 * 96)) << dtype_name(type);
    }
  }
}

/// The last block of the arena ends at an edge, and is written and read to its last byte.
TEST(Bounds, RopeAndAttention) {
  Random random(65);
  constexpr int kHeads = 4, kKvHeads = 2, kBlock = 16, kRows = 2 * kBlock;
  const BlockId table[] = {0, 1};
  const ops::Segment segment{0, kRows, 0, table};
  for (const DType type : kKvTypes) {
    for (const int dim : {2, 6, 8, 20, 24, 64, 80, 100, 250}) {
      const auto q = random.normals(size(kRows * kHeads, dim));
      const auto k = random.normals(size(kRows * kKvHeads, dim)),
                 v = random.normals(size(kRows * kKvHeads, dim));
      const auto angles = random.normals(size(kRows, dim / 2));
      std::vector<float> want;
      std::vector<Isa> isas = vector_isas();
      isas.insert(isas.begin(), Isa::kScalar);
      for (const Isa isa : isas) {
        auto d = device(isa, 2);
        const std::size_t head = d->ops().kv_head_bytes(type, kBlock, dim);
        Edge<std::byte> arena(head * kKvHeads * 2);
        const ops::KvLayerView kv{arena.data(),
                                  static_cast<std::int64_t>(head * kKvHeads),
                                  static_cast<std::int64_t>(head),
                                  static_cast<std::int64_t>(head / 2),
                                  type,
                                  kBlock,
                                  kKvHeads,
                                  dim};
        Edge<float> edge_q(q), edge_k(k), edge_v(v), cos(angles), sin(angles), out(q.size());
        Edge<std::byte> workspace(d->ops().attention_workspace_bytes(kRows, kHeads, dim));
        const std::int64_t q_width = kHeads * dim, kv_width = kKvHeads * dim;
        d->ops().rope_kv_write(d->stream(), {edge_q.data(), edge_k.data(), edge_v.data(), q_width, kv_width,
                                             cos.data(), sin.data(), dim, kHeads, kv, &segment, 1});
        d->ops().attention(d->stream(), {edge_q.data(), q_width, out.data(), q_width, 0.2f, 0, kHeads, kv,
                                         &segment, 1, workspace.data(), nullptr});
        if (want.empty()) want = out.values();
        EXPECT_TRUE(same(out.values(), want)) << ops::isa_name(isa) << " " << dtype_name(type) << " " << dim;
      }
    }
  }
}

}  // namespace
}  // namespace barg::test::bounds_test
