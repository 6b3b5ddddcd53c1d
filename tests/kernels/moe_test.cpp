// Mixture of experts: the choice of experts against its definition in double, and what experts give against
// float64; equal in bits whatever the instruction set, the threads and the rows beside.
#include <algorithm>
#include <numeric>

#include "fixture.h"

namespace barg::test::moe_test {
namespace {

using ops::ExpertGlu;
using ops::ExpertsParams;
using ops::RouteParams;
using ops::RouterScore;

std::size_t size(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

// --- the router ------------------------------------------------------------------------------------------

struct Router {
  const char* name;
  RouterScore score;
  bool bias = false;
  int groups = 1, kept = 1;
  bool top2 = false;
  bool normalise = false;
  float epsilon = 0, scale = 1;
};

constexpr Router kRouters[] = {
    {"mixtral", RouterScore::kSoftmax, false, 1, 1, false, true},
    {"qwen", RouterScore::kSoftmax},
    {"gpt-oss", RouterScore::kChosenSoftmax},
    {"deepseek-v2", RouterScore::kSoftmax, false, 4, 2, false, false, 0, 16},
    {"deepseek-v3", RouterScore::kSigmoid, true, 8, 4, true, true, 1e-20f, 2.5f},
    {"minimax", RouterScore::kSigmoid, true, 1, 1, false, true},
};

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routed route(CpuDevice& d, const Router& r, const std::vector<float>& logits, const std::vector<float>& bias,
             int rows, int experts, int chosen) {
  Routed out{std::vector<std::int32_t>(size(rows, chosen), -1), std::vector<float>(size(rows, chosen), -7.0f)};
  d.ops().route(d.stream(), {.logits = logits.data(),
                             .bias = r.bias ? bias.data() : nullptr,
                             .rows = rows,
                             .experts = experts,
                             .chosen = chosen,
                             .groups = r.groups,
                             .kept_groups = r.kept,
                             .group_top2 = r.top2,
                             .score = r.score,
                             .normalise = r.normalise,
                             .norm_epsilon = r.epsilon,
                             .scale = r.scale,
                             .ids = out.ids.data(),
                             .weights = out.weights.data()});
  return out;
}

/// The definition, with sorting instead of scans, in double.
void expect_routed(const Router& r, const float* logits, const std::vector<float>& bias, int experts, int chosen,
                   const std::int32_t* ids, const float* weights) {
  std::vector<double> score(static_cast<std::size_t>(experts)), key(score.size());
  double sum = 0;
  for (int e = 0; e < experts; ++e) sum += std::exp(static_cast<double>(logits[e]));
  for (std::size_t e = 0; e < score.size(); ++e) {
    const double x = logits[e];
    score[e] = r.score == RouterScore::kSigmoid   ? 1 / (1 + std::exp(-x))
               : r.score == RouterScore::kSoftmax ? std::exp(x) / sum
                                                  : x;
    key[e] = score[e] + (r.bias ? bias[e] : 0.0f);
  }
  const auto best = [](const std::vector<double>& v, std::size_t count) {
    std::vector<std::size_t> order(v.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return v[a] > v[b]; });
    order.resize(count);
    return order;
  };
  const auto per_group = static_cast<std::size_t>(experts / r.groups);
  std::vector<double> group;
  for (std::size_t g = 0; g < static_cast<std::size_t>(r.groups); ++g) {
    std::vector<double> keys(key.begin() + static_cast<std::ptrdiff_t>(g * per_group),
                             key.begin() + static_cast<std::ptrdiff_t>((g + 1) * per_group));
    std::sort(keys.rbegin(), keys.rend());
    group.push_back(r.top2 ? keys[0] + keys[1] : keys[0]);
  }
  const auto kept = best(group, static_cast<std::size_t>(r.kept));
  for (std::size_t e = 0; e < key.size(); ++e) {
    if (std::find(kept.begin(), kept.end(), e / per_group) == kept.end()) key[e] = -1e30;
  }
  std::vector<double> weight;
  for (const std::size_t e : best(key, static_cast<std::size_t>(chosen))) {
    EXPECT_EQ(ids[weight.size()], static_cast<std::int32_t>(e)) << r.name << " choice " << weight.size();
    weight.push_back(r.score == RouterScore::kChosenSoftmax ? std::exp(score[e]) : score[e]);
  }
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (std::size_t j = 0; j < weight.size(); ++j) {
    double w = weight[j];
    if (r.normalise || r.score == RouterScore::kChosenSoftmax) w /= total;
    EXPECT_NEAR(weights[j], w * r.scale, 1e-6 * (1 + w * r.scale)) << r.name << " choice " << j;
  }
}

TEST(Route, AgreesWithItsDefinition) {
  Random random(71);
  auto d = device(Isa::kScalar);
  for (const Router& r : kRouters) {
    for (const auto& [experts, chosen] : {std::pair{8, 2}, {16, 3}, {64, 6}, {256, 8}, {1024, 8}}) {
      if (experts / r.groups * r.kept < chosen || (r.top2 && experts / r.groups < 2)) continue;
      const auto logits = random.normals(size(5, experts), 2.0f);
      const auto bias = random.normals(static_cast<std::size_t>(experts), 0.2f);
      const Routed out = route(*d, r, logits, bias, 5, experts, chosen);
      for (int row = 0; row < 5; ++row) {
        expect_routed(r, &logits[size(row, experts)], bias, experts, chosen, &out.ids[size(row, chosen)],
                      &out.weights[size(row, chosen)]);
      }
    }
  }
}

TEST(Route, EveryInstructionSetAndAnyThreadsGiveTheScalarBits) {
  Random random(72);
  auto scalar = device(Isa::kScalar);
  for (const Router& r : kRouters) {
    const int experts = 64, chosen = 6, rows = 300;
    const auto logits = random.normals(size(rows, experts), 3.0f);
    const auto bias = random.normals(static_cast<std::size_t>(experts), 0.3f);
    const Routed want = route(*scalar, r, logits, bias, rows, experts, chosen);
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 3}) {
        auto d = device(isa, threads);
        const Routed got = route(*d, r, logits, bias, rows, experts, chosen);
        EXPECT_EQ(got.ids, want.ids) << r.name;
        EXPECT_TRUE(same(got.weights, want.weights)) << r.name;
      }
    }
  }
}

TEST(Route, OfEqualExpertsTheFirstIsChosen) {
  auto d = device(Isa::kScalar);
  const std::vector<float> logits = {1, 3, 3, 0, 3, 1, 1, 3};
  const Routed out = route(*d, kRouters[0], logits, {}, 1, 8, 5);
  EXPECT_EQ(out.ids, (std::vector<std::int32_t>{1, 2, 4, 7, 0}));
  // Of equal groups too: each holds a 3.
  const Router grouped{"groups", RouterScore::kSoftmax, false, 4, 2};
  EXPECT_EQ(route(*d, grouped, {3, 1, 1, 3, 3, 1, 1, 3}, {}, 1, 8, 2).ids, (std::vector<std::int32_t>{0, 3}));
}

TEST(Route, AnExpertsOwnScaleComesLast) {
  auto d = device(Isa::kScalar);
  const std::vector<float> logits = {0, 2, 1, 2}, scales = {9, 2, 9, 0.5f};
  Routed out{std::vector<std::int32_t>(2), std::vector<float>(2)};
  d->ops().route(d->stream(), {.logits = logits.data(),
                               .bias = nullptr,
                               .rows = 1,
                               .experts = 4,
                               .chosen = 2,
                               .groups = 1,
                               .kept_groups = 1,
                               .group_top2 = false,
                               .score = RouterScore::kSoftmax,
                               .normalise = true,
                               .norm_epsilon = 0,
                               .scale = 4,
                               .ids = out.ids.data(),
                               .weights = out.weights.data(),
                               .expert_scales = scales.data()});
  EXPECT_EQ(out.ids, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(out.weights, (std::vector<float>{4, 1})) << "half of each, times 4, times its own";
}

TEST(Route, TheBiasChoosesAndDoesNotWeigh) {
  auto d = device(Isa::kScalar);
  const Router r{"bias", RouterScore::kSigmoid, true};
  const Routed out = route(*d, r, {0, 1, 2, 3}, {9, 0, 0, 0}, 1, 4, 2);
  EXPECT_EQ(out.ids, (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(out.weights[0], 0.5f);
}

TEST(Route, NotANumberGivesValidIds) {
  auto d = device(Isa::kScalar);
  for (const Router& r : kRouters) {
    std::vector<float> logits(size(3, 16), std::nanf(""));
    logits[20] = 1;
    logits[40] = 1e30f;
    logits[41] = std::numeric_limits<float>::infinity();
    const std::vector<float> bias(16, 0.1f);
    const Routed out = route(*d, r, logits, bias, 3, 16, 4);
    for (int row = 0; row < 3; ++row) {
      std::vector<std::int32_t> ids(out.ids.begin() + row * 4, out.ids.begin() + row * 4 + 4);
      std::sort(ids.begin(), ids.end());
      EXPECT_GE(ids.front(), 0) << r.name;
      EXPECT_LT(ids.back(), 16) << r.name;
      EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end()) << r.name << ": an expert twice";
    }
  }
}

// --- the experts -----------------------------------------------------------------------------------------

/// Random matrices of one shape behind each other, and their exact values.
struct Stack {
  Stack(CpuDevice& d, DType type, int count, int n, int k, Random& random, Recipe recipe = Recipe::kF32)
      : step((d.ops().packed_bytes(type, n, k, ops::packing(recipe)) + 63) / 64 * 64), packed(step * static_cast<std::size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      each.emplace_back(d, type, n, k, random, ops::packing(recipe));
      std::memcpy(packed.data() + step * static_cast<std::size_t>(i), each.back().packed.data(),
                  each.back().packed.size());
    }
    view = {{n, k, type, packed.data(), ops::packing(recipe)}, static_cast<std::int64_t>(step), count};
  }
  std::size_t step;
  Buffer packed;
  std::vector<Weights> each;
  ops::PackedStack view;
};

struct Case {
  DType gate, up, down;
  Recipe recipe;
  int experts, chosen, rows, hidden, ffn;
  ExpertGlu glu = ExpertGlu::kActivation;
  bool bias = false;
  ops::Activation activation = ops::Activation::kSilu;

  std::string name() const {
    return std::string(dtype_name(gate)) + "/" + dtype_name(up) + "/" + dtype_name(down) + " " + recipe_name(recipe) +
           " " + std::to_string(chosen) + " of " + std::to_string(experts) + ", " + std::to_string(rows) + " rows of " +
           std::to_string(hidden) + ", ffn " + std::to_string(ffn) + (bias ? " bias" : "");
  }
};

struct Operands {
  Operands(CpuDevice& d, const Case& c, Random& random)
      : gate(d, c.gate, c.experts, c.ffn, c.hidden, random, c.recipe),
        up(d, c.up, c.experts, c.ffn, c.hidden, random, c.recipe),
        down(d, c.down, c.experts, c.hidden, c.ffn, random, c.recipe),
        x(random.normals(size(c.rows, c.hidden), 0.3f)),
        base(random.normals(size(c.rows, c.hidden))),
        gate_bias(random.normals(size(c.experts, c.ffn))),
        up_bias(random.normals(size(c.experts, c.ffn))),
        down_bias(random.normals(size(c.experts, c.hidden))),
        weights(random.normals(size(c.rows, c.chosen))) {
    for (int r = 0; r < c.rows; ++r) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(c.experts));
      std::iota(all.begin(), all.end(), 0);
      for (int j = 0; j < c.chosen; ++j) {
        const auto at = static_cast<std::size_t>(random.below(static_cast<int>(all.size())));
        ids.push_back(all[at]);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
  Stack gate, up, down;
  std::vector<float> x, base, gate_bias, up_bias, down_bias, weights;
  std::vector<std::int32_t> ids;
};

/// Rows [begin, end) of the case.
std::vector<float> run(CpuDevice& d, const Operands& in, const Case& c, int begin, int end, bool accumulate = true) {
  const int rows = end - begin;
  std::vector<float> out(in.base.begin() + std::ptrdiff_t{begin} * c.hidden,
                         in.base.begin() + std::ptrdiff_t{end} * c.hidden);
  const std::size_t bytes =
      d.ops().experts_workspace_bytes(rows, c.chosen, c.experts, c.hidden, c.ffn, c.recipe);
  GuardedBuffer memory((bytes + 4095) / 4096 * 4096);  // ends where nobody may write
  std::byte* workspace = memory.data() + memory.size() - (bytes + 63) / 64 * 64;
  std::memset(workspace, 0xff, bytes);
  d.ops().experts(d.stream(), {.x = in.x.data() + size(begin, c.hidden),
                               .rows = rows,
                               .chosen = c.chosen,
                               .ids = in.ids.data() + size(begin, c.chosen),
                               .weights = in.weights.data() + size(begin, c.chosen),
                               .gate = in.gate.view,
                               .up = in.up.view,
                               .down = in.down.view,
                               .gate_bias = c.bias ? in.gate_bias.data() : nullptr,
                               .up_bias = c.bias ? in.up_bias.data() : nullptr,
                               .down_bias = c.bias ? in.down_bias.data() : nullptr,
                               .recipe = c.recipe,
                               .glu = c.glu,
                               .activation = c.activation,
                               .alpha = 1.702f,
                               .limit = 1.5f,
                               .out = out.data(),
                               .accumulate = accumulate,
                               .workspace = workspace});
  return out;
}

TEST(Experts, AgreeWithDouble) {
  Random random(73);
  auto d = device(Isa::kScalar);
  for (const ExpertGlu glu : {ExpertGlu::kActivation, ExpertGlu::kClampedSilu}) {
    const Case c{DType::kF32, DType::kF16, DType::kBF16, Recipe::kF32, 5, 3, 7, 48, 40, glu, true};
    const Operands in(*d, c, random);
    std::vector<double> want;
    double scale = 0;
    for (int r = 0; r < c.rows; ++r) {
      std::vector<double> row(static_cast<std::size_t>(c.hidden));
      for (std::size_t h = 0; h < row.size(); ++h) row[h] = in.base[size(r, c.hidden) + h];
      for (int j = 0; j < c.chosen; ++j) {
        const auto e = static_cast<std::size_t>(in.ids[size(r, c.chosen) + static_cast<std::size_t>(j)]);
        const auto product = [&](const Stack& w, std::size_t n, int k, const auto* x, const std::vector<float>& bias,
                                 int width) {
          double v = bias[e * static_cast<std::size_t>(width) + n];
          for (int i = 0; i < k; ++i)
            v += static_cast<double>(x[i]) * w.each[e].dense[n * static_cast<std::size_t>(k) + static_cast<std::size_t>(i)];
          return v;
        };
        std::vector<double> act;
        for (std::size_t n = 0; n < static_cast<std::size_t>(c.ffn); ++n) {
          const float* x = &in.x[size(r, c.hidden)];
          double g = product(in.gate, n, c.hidden, x, in.gate_bias, c.ffn);
          double u = product(in.up, n, c.hidden, x, in.up_bias, c.ffn);
          if (glu == ExpertGlu::kActivation) {
            act.push_back(g / (1 + std::exp(-g)) * u);
          } else {
            g = std::min(g, 1.5);
            u = std::clamp(u, -1.5, 1.5);
            act.push_back((u + 1) * g / (1 + std::exp(-1.702 * g)));
          }
        }
        for (std::size_t h = 0; h < row.size(); ++h)
          row[h] += in.weights[size(r, c.chosen) + static_cast<std::size_t>(j)] *
                    product(in.down, h, c.ffn, act.data(), in.down_bias, c.hidden);
      }
      for (const double v : row) scale = std::max(scale, std::abs(v));
      want.insert(want.end(), row.begin(), row.end());
    }
    EXPECT_LE(distance(run(*d, in, c, 0, c.rows), want), 1e-5 * (1 + scale));
  }
}

/// Every row alone on the scalar table: whoever else is in the batch, on whatever device, changes no bit.
TEST(Experts, EveryInstructionSetThreadsAndCompanyGiveTheBitsOfARowAlone) {
  Random random(74);
  auto scalar = device(Isa::kScalar);
  std::vector<Case> cases;
  for (const DType type : kAllTypes) {
    for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
      cases.push_back({type, type, type, recipe, 12, 3, 17, 64, 96, ExpertGlu::kActivation, type == DType::kF16});
      cases.push_back({type, type, type, recipe, 6, 2, 5, 64, 32, ExpertGlu::kClampedSilu, true});
    }
  }
  cases.push_back({DType::kQ4_0, DType::kQ8_0, DType::kF16, Recipe::kInt8, 9, 4, 20, 64, 64});
  cases.push_back({DType::kF32, DType::kF32, DType::kF32, Recipe::kF32, 4, 2, 9, 31, 17});
  for (const DType up : {DType::kF32, DType::kF16})  // fused, and not
    cases.push_back({DType::kF32, up, DType::kF32, Recipe::kF32, 4, 2, 9, 31, 40, ExpertGlu::kActivation, false,
                     ops::Activation::kGeluTanh});
  for (const Case& c : cases) {
    const Operands in(*scalar, c, random);
    std::vector<float> want;
    for (int r = 0; r < c.rows; ++r) {
      const auto row = run(*scalar, in, c, r, r + 1);
      want.insert(want.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(same(run(*scalar, in, c, 0, c.rows), want)) << "scalar " << c.name();
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 2, 3, 8}) {
        auto d = device(isa, threads);
        EXPECT_TRUE(same(run(*d, in, c, 0, c.rows), want)) << threads << " threads, " << c.name();
        const int cut = c.rows / 3 + 1;
        auto parts = run(*d, in, c, 0, cut);
        const auto rest = run(*d, in, c, cut, c.rows);
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_TRUE(same(parts, want)) << "in two, " << c.name();
      }
    }
  }
}

TEST(Experts, Bf16GivesTheScalarBits) {
  if (!ops::recipe_supported(Isa::kAvx512, Recipe::kBF16)) GTEST_SKIP() << "skipped: no AVX512-BF16";
  Random random(75);
  auto scalar = device(Isa::kScalar);
  for (const ExpertGlu glu : {ExpertGlu::kActivation, ExpertGlu::kClampedSilu}) {
    const Case c{DType::kF16, DType::kF16, DType::kF16, Recipe::kBF16, 12, 3, 17, 64, 96, glu};
    const Operands in(*scalar, c, random);
    const auto want = run(*scalar, in, c, 0, c.rows);
    for (const int threads : {1, 3}) {
      auto d = device(Isa::kAvx512, threads);
      EXPECT_TRUE(same(run(*d, in, c, 0, c.rows), want)) << threads;
    }
  }
}

TEST(Experts, AddOrWrite) {
  Random random(79);
  auto d = device(Isa::kAuto);
  const Case c{DType::kF32, DType::kF32, DType::kF32, Recipe::kF32, 4, 2, 3, 70, 20};
  const Operands in(*d, c, random);
  const auto sum = run(*d, in, c, 0, c.rows, true), plain = run(*d, in, c, 0, c.rows, false);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], in.base[i] + plain[i]);
}

/// More (row, expert) pairs than the workspace holds at a time.
TEST(Experts, RowsInSeveralPasses) {
  Random random(76);
  auto d = device(Isa::kAuto, 3);
  const Case c{DType::kF32, DType::kF32, DType::kF32, Recipe::kF32, 16, 16, 600, 32, 32};
  const Operands in(*d, c, random);
  const auto all = run(*d, in, c, 0, c.rows);
  for (const int r : {0, 1, 255, 256, 257, 511, 512, 599}) {
    const auto row = run(*d, in, c, r, r + 1);
    EXPECT_TRUE(same(row, {all.begin() + std::ptrdiff_t{r} * c.hidden, all.begin() + std::ptrdiff_t{r + 1} * c.hidden}))
        << r;
  }
}

TEST(Experts, ANumberThatIsNoneSpoilsItsRowAlone) {
  Random random(77);
  auto d = device(Isa::kAuto, 2);
  for (const ExpertGlu glu : {ExpertGlu::kActivation, ExpertGlu::kClampedSilu}) {
    const Case c{DType::kF32, DType::kF32, DType::kF32, Recipe::kF32, 4, 2, 6, 32, 32, glu};
    Operands in(*d, c, random);
    const auto before = run(*d, in, c, 0, c.rows);
    in.x[size(2, c.hidden) + 5] = std::nanf("");
    const auto after = run(*d, in, c, 0, c.rows);
    for (int r = 0; r < c.rows; ++r) {
      for (int h = 0; h < c.hidden; ++h) {
        const std::size_t at = size(r, c.hidden) + static_cast<std::size_t>(h);
        EXPECT_EQ(std::isnan(after[at]), r == 2);
        if (r != 2) {
          EXPECT_TRUE(same_bits(after[at], before[at]));
        }
      }
    }
  }
}

// --- an expert behind a gate of the row ------------------------------------------------------------------

struct GateCase {
  int rows, width, dim;
};
constexpr GateCase kGateCases[] = {{1, 64, 64}, {5, 2048, 128}, {3, 37, 19},
                                   {7, 16, 1},  {2, 5, 333},    {70, 96, 64}};

struct GateOperands {
  GateOperands(const GateCase& c, Random& random)
      : x(random.normals(size(c.rows, c.width))),
        weight(random.normals(size(1, c.width), 0.2f)),
        y(random.normals(size(c.rows, c.dim))),
        base(random.normals(size(c.rows, c.dim))) {}
  std::vector<float> x, weight, y, base;
};

/// Rows [begin, end).
std::vector<float> gate(CpuDevice& d, const GateOperands& in, const GateCase& c, int begin, int end,
                        bool accumulate) {
  std::vector<float> out(in.base.begin() + std::ptrdiff_t{begin} * c.dim,
                         in.base.begin() + std::ptrdiff_t{end} * c.dim);
  d.ops().row_gate(d.stream(), {.x = in.x.data() + size(begin, c.width),
                                .weight = in.weight.data(),
                                .width = c.width,
                                .y = in.y.data() + size(begin, c.dim),
                                .rows = end - begin,
                                .dim = c.dim,
                                .out = out.data(),
                                .accumulate = accumulate});
  return out;
}

TEST(RowGate, AgreesWithDouble) {
  Random random(80);
  auto d = device(Isa::kScalar);
  for (const GateCase& c : kGateCases) {
    const GateOperands in(c, random);
    const auto sum = gate(*d, in, c, 0, c.rows, true), plain = gate(*d, in, c, 0, c.rows, false);
    for (int r = 0; r < c.rows; ++r) {
      double dot = 0;
      for (int k = 0; k < c.width; ++k)
        dot += static_cast<double>(in.x[size(r, c.width) + static_cast<std::size_t>(k)]) *
               in.weight[static_cast<std::size_t>(k)];
      for (int i = 0; i < c.dim; ++i) {
        const std::size_t at = size(r, c.dim) + static_cast<std::size_t>(i);
        EXPECT_NEAR(plain[at], in.y[at] / (1 + std::exp(-dot)), 1e-5);
        EXPECT_EQ(sum[at], in.base[at] + plain[at]);
      }
    }
  }
}

TEST(RowGate, EveryInstructionSetThreadsAndCompanyGiveTheBitsOfARowAlone) {
  Random random(81);
  auto scalar = device(Isa::kScalar);
  for (const GateCase& c : kGateCases) {
    GateOperands in(c, random);
    if (c.rows > 1) in.x[size(1, c.width)] = std::nanf("");  // spoils its row alone
    for (const bool accumulate : {false, true}) {
      std::vector<float> want;
      for (int r = 0; r < c.rows; ++r) {
        const auto row = gate(*scalar, in, c, r, r + 1, accumulate);
        EXPECT_EQ(std::isnan(row[0]), r == 1);
        want.insert(want.end(), row.begin(), row.end());
      }
      EXPECT_TRUE(same(gate(*scalar, in, c, 0, c.rows, accumulate), want));
      for (const Isa isa : vector_isas()) {
        for (const int threads : {1, 3}) {
          auto d = device(isa, threads);
          EXPECT_TRUE(same(gate(*d, in, c, 0, c.rows, accumulate), want)) << threads << " threads";
        }
      }
    }
  }
}

TEST(RowGate, InPlace) {
  Random random(82);
  auto d = device(Isa::kAuto);
  const GateCase c = kGateCases[2];
  const GateOperands in(c, random);
  std::vector<float> y = in.y;
  d->ops().row_gate(d->stream(),
                    {in.x.data(), in.weight.data(), c.width, y.data(), c.rows, c.dim, y.data(), false});
  EXPECT_TRUE(same(y, gate(*d, in, c, 0, c.rows, false)));
}

TEST(StackedLinear, IsALinearOfEachHead) {
  Random random(78);
  for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
    for (const DType type : kAllTypes) {
      for (const int heads : {1, 5, 24}) {
        const int rows = 3, n = 40, k = 32, extra = 8;
        auto scalar = device(Isa::kScalar);
        const Stack w(*scalar, type, heads, n, k, random, recipe);
        const auto x = random.normals(size(rows, heads * (k + extra)));
        std::vector<Isa> isas = vector_isas();
        isas.push_back(Isa::kScalar);
        for (const Isa isa : isas) {
          for (const int threads : {1, 2}) {
            auto d = device(isa, threads);
            std::vector<float> out(size(rows, heads * (n + extra)), -7.0f);
            Buffer workspace(d->ops().stacked_workspace_bytes(rows, heads, k, recipe));
            d->ops().stacked_linear(d->stream(), {.weight = w.view,
                                                  .recipe = recipe,
                                                  .x = x.data(),
                                                  .rows = rows,
                                                  .x_stride = heads * (k + extra),
                                                  .x_head_stride = k + extra,
                                                  .out = out.data(),
                                                  .out_stride = heads * (n + extra),
                                                  .out_head_stride = n + extra,
                                                  .workspace = workspace.data()});
            for (int h = 0; h < heads; ++h) {
              const auto want = run_linear(*scalar, w.each[static_cast<std::size_t>(h)].view, recipe,
                                           x.data() + h * (k + extra), rows, heads * (k + extra));
              for (int r = 0; r < rows; ++r) {
                for (int i = 0; i < n + extra; ++i) {
                  const float got = out[size(r, heads * (n + extra)) + static_cast<std::size_t>(h * (n + extra) + i)];
                  ASSERT_TRUE(same_bits(got, i < n ? want[size(r, n) + static_cast<std::size_t>(i)] : -7.0f));
                }
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace barg::test::moe_test
