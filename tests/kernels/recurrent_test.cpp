// Recurrent mixers and their gates: close to float64, equal in bits on every back end and thread count, and the
// same for a chunk as for single steps; a block that was left holds a state from which others may go on.
#include <functional>

#include "fixture.h"

namespace barg::test::recurrent_test {
namespace {

using ops::Segment;
using ops::StateView;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

/// States of `blocks` blocks, all NaN at first.
struct States {
  States(std::int64_t floats, std::int32_t blocks, std::int32_t block_tokens)
      : memory(idx(floats * 4 * blocks)), view{memory.data(), floats * 4, block_tokens} {
    std::memset(memory.data(), 0xff, memory.size());
  }
  std::vector<float> block(std::int32_t b) const {
    std::vector<float> out(idx(view.block_stride / 4));
    std::memcpy(out.data(), memory.data() + b * view.block_stride, idx(view.block_stride));
    return out;
  }
  GuardedBuffer memory;
  StateView view;
};

/// One mixer with everything random but its rows' inputs, which the test draws: `in` numbers a row to `out`.
struct Mixer {
  std::int32_t in = 0, out = 0;
  std::int64_t state = 0;  ///< floats
  std::function<void(CpuDevice&, const float* x, const StateView&, const std::vector<Segment>&, float* y)> run;
  /// Of one whole sequence in float64; appends the state at its end to `y` if `state` is set.
  std::function<std::vector<double>(const std::vector<float>& x, std::vector<double>* state)> reference;
  std::string name;
};

double silu(double x) { return x / (1 + std::exp(-x)); }

Mixer conv_mixer(Random& random, int channels, int kernel, bool silu_after, bool gates, bool bias) {
  const auto weight = random.normals(idx(channels * kernel));
  const auto offsets = random.normals(idx(channels));
  Mixer m;
  m.in = channels * (gates ? 3 : 1);
  m.out = channels;
  m.state = std::int64_t{channels} * (kernel - 1);
  m.name = "conv " + std::to_string(channels) + " kernel " + std::to_string(kernel);
  const int in = m.in;
  m.run = [=](CpuDevice& d, const float* x, const StateView& state, const std::vector<Segment>& s, float* y) {
    d.ops().conv1d(d.stream(), {.x = x + (gates ? 2 * channels : 0),
                                .x_stride = in,
                                .in_gate = gates ? x : nullptr,
                                .out_gate = gates ? x + channels : nullptr,
                                .weight = weight.data(),
                                .bias = bias ? offsets.data() : nullptr,
                                .channels = channels,
                                .kernel = kernel,
                                .silu = silu_after,
                                .out = y,
                                .out_stride = channels,
                                .state = state,
                                .segments = s.data(),
                                .num_segments = static_cast<std::int32_t>(s.size())});
  };
  m.reference = [=](const std::vector<float>& x, std::vector<double>* state) {
    const int rows = static_cast<int>(x.size()) / in;
    const auto u = [&](int p, int c) {
      if (p < 0) return 0.0;
      const double v = x[idx(p * in + (gates ? 2 * channels : 0) + c)];
      return gates ? v * x[idx(p * in + c)] : v;
    };
    std::vector<double> y;
    for (int p = 0; p < rows; ++p) {
      for (int c = 0; c < channels; ++c) {
        double v = bias ? offsets[idx(c)] : 0;
        for (int t = 0; t < kernel; ++t) v += u(p - kernel + 1 + t, c) * weight[idx(t * channels + c)];
        if (silu_after) v = silu(v);
        y.push_back(gates ? v * x[idx(p * in + channels + c)] : v);
      }
    }
    for (int t = 0; state != nullptr && t < kernel - 1; ++t) {
      for (int c = 0; c < channels; ++c) state->push_back(u(rows - kernel + 1 + t, c));
    }
    return y;
  };
  return m;
}

double softplus(double x) { return std::log1p(std::exp(x)); }

Mixer delta_mixer(Random& random, int key_heads, int value_heads, int dk, int dv, bool tiled) {
  const auto dt_bias = random.normals(idx(value_heads));
  auto decay = random.normals(idx(value_heads));
  for (float& d : decay) d = -std::exp(d);
  Mixer m;
  const int qkv = 2 * key_heads * dk + value_heads * dv;
  const int in = m.in = qkv + 2 * value_heads;
  m.out = value_heads * dv;
  m.state = std::int64_t{value_heads} * dk * dv;
  m.name = "delta " + std::to_string(key_heads) + "/" + std::to_string(value_heads) + " " +
           std::to_string(dk) + "x" + std::to_string(dv);
  m.run = [=](CpuDevice& d, const float* x, const StateView& state, const std::vector<Segment>& s, float* y) {
    std::int32_t rows = 0;
    for (const Segment& one : s) rows = std::max(rows, one.row_begin + one.row_count);
    std::vector<float> copy(x, x + std::int64_t{rows} * in);  // q and k are normalised in place
    d.ops().delta_net(d.stream(), {.qkv = copy.data(),
                                   .qkv_stride = in,
                                   .a = copy.data() + qkv,
                                   .b = copy.data() + qkv + value_heads,
                                   .gate_stride = in,
                                   .decay = decay.data(),
                                   .dt_bias = dt_bias.data(),
                                   .key_heads = key_heads,
                                   .value_heads = value_heads,
                                   .key_dim = dk,
                                   .value_dim = dv,
                                   .tiled = tiled,
                                   .out = y,
                                   .state = state,
                                   .segments = s.data(),
                                   .num_segments = static_cast<std::int32_t>(s.size())});
  };
  m.reference = [=](const std::vector<float>& x, std::vector<double>* state) {
    const int rows = static_cast<int>(x.size()) / in;
    std::vector<double> y(idx(rows * value_heads * dv));
    for (int h = 0; h < value_heads; ++h) {
      const int kh = tiled ? h % key_heads : h * key_heads / value_heads;
      std::vector<double> s(idx(dk * dv));
      for (int p = 0; p < rows; ++p) {
        const float* row = x.data() + p * in;
        const auto unit = [&](int at) {
          std::vector<double> v(row + at, row + at + dk);
          double sum = 1e-6;
          for (double e : v) sum += e * e;
          for (double& e : v) e /= std::sqrt(sum);
          return v;
        };
        const auto q = unit(kh * dk), k = unit(key_heads * dk + kh * dk);
        const double beta = 1 / (1 + std::exp(-double{row[qkv + value_heads + h]}));
        const double g = std::exp(decay[idx(h)] * softplus(double{row[qkv + h]} + dt_bias[idx(h)]));
        for (int c = 0; c < dv; ++c) {
          double seen = 0, o = 0;
          for (int j = 0; j < dk; ++j) seen += k[idx(j)] * (s[idx(j * dv + c)] *= g);
          const double e = beta * (row[2 * key_heads * dk + h * dv + c] - seen);
          for (int j = 0; j < dk; ++j) o += q[idx(j)] * (s[idx(j * dv + c)] += k[idx(j)] * e);
          y[idx((p * value_heads + h) * dv + c)] = o / std::sqrt(dk);
        }
      }
      if (state != nullptr) state->insert(state->end(), s.begin(), s.end());
    }
    return y;
  };
  return m;
}

Mixer mamba_mixer(Random& random, int heads, int groups, int dim, int size, float dt_scale, float dt_max) {
  const auto dt_bias = random.normals(idx(heads)), skip = random.normals(idx(heads));
  auto decay = random.normals(idx(heads));
  for (float& d : decay) d = -std::exp(d);
  Mixer m;
  const int inner = heads * dim, xbc = inner + 2 * groups * size;
  const int in = m.in = xbc + heads;
  m.out = inner;
  m.state = std::int64_t{heads} * size * dim;
  m.name = "mamba " + std::to_string(heads) + " x " + std::to_string(dim) + " x " + std::to_string(size);
  m.run = [=](CpuDevice& d, const float* x, const StateView& state, const std::vector<Segment>& s, float* y) {
    d.ops().mamba2(d.stream(), {.xbc = x,
                                .xbc_stride = in,
                                .dt = x + xbc,
                                .dt_stride = in,
                                .dt_scale = dt_scale,
                                .dt_min = 0.001f,
                                .dt_max = dt_max,
                                .decay = decay.data(),
                                .dt_bias = dt_bias.data(),
                                .skip = skip.data(),
                                .heads = heads,
                                .groups = groups,
                                .head_dim = dim,
                                .state_size = size,
                                .out = y,
                                .state = state,
                                .segments = s.data(),
                                .num_segments = static_cast<std::int32_t>(s.size())});
  };
  m.reference = [=](const std::vector<float>& x, std::vector<double>* state) {
    const int rows = static_cast<int>(x.size()) / in;
    std::vector<double> y(idx(rows * inner));
    for (int h = 0; h < heads; ++h) {
      std::vector<double> s(idx(size * dim));
      for (int p = 0; p < rows; ++p) {
        const float* row = x.data() + p * in;
        const float* b = row + inner + h * groups / heads * size;
        const float* c = b + groups * size;
        const double dt =
            std::clamp(softplus(double{row[xbc + h]} * dt_scale + dt_bias[idx(h)]), 0.001, double{dt_max});
        for (int j = 0; j < dim; ++j) {
          const double v = row[h * dim + j];
          double sum = skip[idx(h)] * v;
          for (int n = 0; n < size; ++n) {
            double& e = s[idx(n * dim + j)];
            e = e * std::exp(decay[idx(h)] * dt) + dt * v * b[n];
            sum += e * c[n];
          }
          y[idx(p * inner + h * dim + j)] = sum;
        }
      }
      if (state != nullptr) state->insert(state->end(), s.begin(), s.end());
    }
    return y;
  };
  return m;
}

std::vector<Mixer> mixers(std::uint64_t seed) {
  Random random(seed);
  return {conv_mixer(random, 16, 4, true, false, true),  conv_mixer(random, 37, 3, false, true, false),
          conv_mixer(random, 5, 2, true, false, false),  conv_mixer(random, 128, 4, true, false, false),
          delta_mixer(random, 2, 4, 16, 16, false),      delta_mixer(random, 2, 4, 20, 36, true),
          delta_mixer(random, 1, 2, 32, 130, false),     mamba_mixer(random, 8, 2, 16, 16, 1.0f, kInf),
          mamba_mixer(random, 6, 1, 20, 24, 0.7f, 0.5f), mamba_mixer(random, 2, 2, 80, 9, 1.0f, kInf)};
}

/// A sequence whose i-th block is table[i], computed by calls that end at `cuts`.
std::vector<float> run_cut(CpuDevice& d, const Mixer& m, const std::vector<float>& x, const States& states,
                           const std::vector<std::int32_t>& table, std::vector<int> cuts, int from = 0) {
  const int rows = static_cast<int>(x.size()) / m.in;
  cuts.push_back(rows);
  std::vector<float> y(idx(rows * m.out), -7.0f);
  for (const int to : cuts) {
    if (to <= from) continue;
    m.run(d, x.data() + from * m.in, states.view, {{0, to - from, from, table.data()}},
          y.data() + from * m.out);
    from = to;
  }
  return y;
}

TEST(Recurrent, ScalarAgreesWithDouble) {
  auto d = device(Isa::kScalar);
  Random random(5);
  for (const Mixer& m : mixers(3)) {
    const int rows = 45;
    const auto x = random.normals(idx(rows * m.in));
    const States states(m.state, 3, 16);
    std::vector<double> state;
    const auto want = m.reference(x, &state);
    double scale = 1;
    for (double v : want) scale = std::max(scale, std::abs(v));
    EXPECT_LE(distance(run_cut(*d, m, x, states, {2, 0, 1}, {}), want), 2e-6 * scale) << m.name;
    EXPECT_LE(distance(states.block(1), state), 1e-5 * scale) << m.name;
    for (const int boundary : {16, 32}) {  // what the sequence has left behind
      std::vector<double> snapshot;
      m.reference({x.begin(), x.begin() + boundary * m.in}, &snapshot);
      EXPECT_LE(distance(states.block(boundary == 16 ? 2 : 0), snapshot), 1e-5 * scale) << m.name;
    }
  }
}

TEST(Recurrent, EveryIsaAndThreadCountHasTheScalarBits) {
  Random random(6);
  for (const Mixer& m : mixers(7)) {
    // Three sequences in one batch: new, in the middle, at a boundary.
    const std::vector<std::int32_t> tables[3] = {{0, 1, 2, 3, 4, 5}, {6, 7, 8}, {9, 10, 11}};
    const auto x = random.normals(idx(90 * m.in));
    const auto run = [&](Isa isa, int threads, const States& states) {
      auto d = device(isa, threads);
      std::vector<float> y(idx(90 * m.out), -7.0f);
      m.run(*d, x.data(), states.view, {{0, 11, 0, tables[1].data()}, {11, 8, 0, tables[2].data()}}, y.data());
      m.run(*d, x.data() + 19 * m.in, states.view,
            {{0, 45, 0, tables[0].data()}, {45, 1, 11, tables[1].data()}, {46, 9, 8, tables[2].data()}},
            y.data() + 19 * m.out);
      return y;
    };
    const States expected(m.state, 12, 8);
    const auto want = run(Isa::kScalar, 1, expected);
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 3}) {
        const States got(m.state, 12, 8);
        EXPECT_TRUE(same(run(isa, threads, got), want)) << m.name << " " << ops::isa_name(isa) << threads;
        for (int b = 0; b < 12; ++b) EXPECT_TRUE(same(got.block(b), expected.block(b))) << m.name << b;
      }
    }
  }
}

TEST(Recurrent, ChunksAndSnapshotsGiveTheBitsOfOnePass) {
  Random random(8);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa);
    for (const Mixer& m : mixers(9)) {
      const auto x = random.normals(idx(40 * m.in));
      const States whole(m.state, 3, 16);
      const std::vector<std::int32_t> table{0, 1, 2};
      const auto want = run_cut(*d, m, x, whole, table, {});
      for (const std::vector<int>& cuts :
           {std::vector<int>{1, 2, 3, 16, 17, 39}, {15, 31}, {7, 32}, {16, 20, 21}}) {
        const States states(m.state, 3, 16);
        EXPECT_TRUE(same(run_cut(*d, m, x, states, table, cuts), want)) << m.name;
        for (int b = 0; b < 3; ++b) EXPECT_TRUE(same(states.block(b), whole.block(b))) << m.name << b;
      }
      // Another sequence goes on from what stands in block 1, which stays as it is.
      const auto snapshot = whole.block(1);
      States shared(m.state, 4, 16);
      std::memcpy(shared.memory.data() + shared.view.block_stride, snapshot.data(), snapshot.size() * 4);
      const auto rest = run_cut(*d, m, x, shared, {-1, 1, 3}, {33}, 32);
      EXPECT_TRUE(same({rest.begin() + 32 * m.out, rest.end()}, {want.begin() + 32 * m.out, want.end()}))
          << m.name;
      EXPECT_TRUE(same(shared.block(1), snapshot)) << m.name;
      EXPECT_TRUE(same(shared.block(3), whole.block(2))) << m.name;
    }
  }
}

TEST(Recurrent, SoftplusKeepsItsDigitsFarFromZero) {
  for (float x = -80; x < 60; x += 0.37f) {
    const double want = std::log1p(std::exp(double{x}));
    EXPECT_LE(std::abs(ops::softplus(x) - want), 5e-7 * want + 1e-38) << x;
  }
}

// --- gates -----------------------------------------------------------------------------------------------

struct Gated {
  int rows, groups, dim;
  bool shared, first, norm;
};

std::vector<float> run_gated(CpuDevice& d, const Gated& c, const std::vector<float>& x,
                             const std::vector<float>& gate, const std::vector<float>& weight) {
  std::vector<float> y = x;  // in place
  d.ops().gated_norm(d.stream(), {.x = y.data(),
                                  .gate = gate.data(),
                                  .gate_stride = c.groups * c.dim + 3,
                                  .gate_scale = 0.75f,
                                  .weight = weight.data(),
                                  .shared = c.shared,
                                  .norm = c.norm,
                                  .gate_first = c.first,
                                  .eps = 1e-5f,
                                  .rows = c.rows,
                                  .groups = c.groups,
                                  .dim = c.dim,
                                  .out = y.data()});
  return y;
}

TEST(Recurrent, GatedNormAgreesWithDoubleOnEveryIsa) {
  Random random(11);
  for (const Gated& c : {Gated{3, 4, 16, true, false, true}, {2, 1, 128, false, true, true},
                         {5, 2, 37, false, true, true}, {2, 3, 20, false, false, false}}) {
    const auto x = random.normals(idx(c.rows * c.groups * c.dim));
    const auto gate = random.normals(idx(c.rows * (c.groups * c.dim + 3)), 2.0f);
    const auto weight = random.normals(idx(c.groups * c.dim));
    std::vector<double> want;
    for (int r = 0; r < c.rows; ++r) {
      for (int g = 0; g < c.groups; ++g) {
        const auto s = [&](int i) { return silu(0.75 * gate[idx(r * (c.groups * c.dim + 3) + g * c.dim + i)]); };
        const auto v = [&](int i) { return double{x[idx((r * c.groups + g) * c.dim + i)]}; };
        double mean = 0;
        for (int i = 0; i < c.dim; ++i) mean += std::pow(c.first ? v(i) * s(i) : v(i), 2) / c.dim;
        for (int i = 0; i < c.dim; ++i) {
          const double w = weight[idx(c.shared ? i : g * c.dim + i)];
          want.push_back(v(i) * s(i) * w / (c.norm ? std::sqrt(mean + 1e-5) : 1));
        }
      }
    }
    auto scalar = device(Isa::kScalar);
    const auto got = run_gated(*scalar, c, x, gate, weight);
    EXPECT_LE(distance(got, want), 5e-6) << c.dim;
    for (const Isa isa : vector_isas()) {
      auto d = device(isa, 2);
      EXPECT_TRUE(same(run_gated(*d, c, x, gate, weight), got)) << c.dim << ops::isa_name(isa);
    }
  }
}

TEST(Recurrent, SigmoidMulAgreesWithDoubleOnEveryIsa) {
  Random random(12);
  const int rows = 4, dim = 43;
  const auto x = random.normals(idx(rows * dim)), gate = random.normals(idx(rows * (dim + 5)), 3.0f);
  const auto run = [&](Isa isa) {
    auto d = device(isa, 2);
    std::vector<float> y = x;
    d->ops().sigmoid_mul(d->stream(), {y.data(), gate.data(), dim + 5, rows, dim, y.data()});
    return y;
  };
  std::vector<double> want;
  for (int i = 0; i < rows * dim; ++i)
    want.push_back(x[idx(i)] / (1 + std::exp(-double{gate[idx(i / dim * (dim + 5) + i % dim)]})));
  const auto got = run(Isa::kScalar);
  EXPECT_LE(distance(got, want), 1e-6);
  for (const Isa isa : vector_isas()) EXPECT_TRUE(same(run(isa), got)) << ops::isa_name(isa);
}

}  // namespace
}  // namespace barg::test::recurrent_test
