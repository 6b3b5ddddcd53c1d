// gated_linear: silu(gate) * up, close to float64, equal in bits to the scalar table, and as prepared rows
// the same input to the next product as its own f32 output.
#include <algorithm>
#include <numbers>

#include "cpu/layout.h"
#include "fixture.h"

namespace barg::test::gated_test {
namespace {

using ops::cpu::quantised_rows;
using ops::cpu::QuantisedRows;

struct Case {
  DType type;
  Recipe recipe;
  int n, k, rows;
  bool bias, out, prepared_out, prepared;
  ops::Activation activation = ops::Activation::kSilu;

  std::string name() const {
    return std::string(dtype_name(type)) + " " + recipe_name(recipe) + " n=" + std::to_string(n) +
           " k=" + std::to_string(k) + " rows=" + std::to_string(rows) + (bias ? " bias" : "") +
           (out ? " out" : "") + (prepared_out ? " prepared_out" : "") + (prepared ? " prepared" : "");
  }
};

struct Result {
  std::vector<float> out;
  Buffer prepared;
};

struct Operands {
  Operands(CpuDevice& d, const Case& c, Random& random)
      : gate(d, c.type, c.n, c.k, random),
        up(d, c.type, c.n, c.k, random),
        x(random.normals(static_cast<std::size_t>(c.rows * c.k), 0.3f)),
        gate_bias(random.normals(static_cast<std::size_t>(c.n))),
        up_bias(random.normals(static_cast<std::size_t>(c.n))) {}
  Weights gate, up;
  std::vector<float> x, gate_bias, up_bias;
};

Result run(CpuDevice& d, const Operands& in, const Case& c) {
  Buffer workspace(d.ops().prepared_bytes(c.rows, c.k, c.recipe));
  Result result{std::vector<float>(c.out ? static_cast<std::size_t>(c.rows * c.n) : 0, -7.0f),
                Buffer(c.prepared_out ? d.ops().prepared_bytes(c.rows, c.n, Recipe::kInt8) : 0)};
  ops::GatedLinearParams p{.gate = in.gate.view,
                           .up = in.up.view,
                           .recipe = c.recipe,
                           .x = in.x.data(),
                           .rows = c.rows,
                           .x_stride = c.k,
                           .gate_bias = c.bias ? in.gate_bias.data() : nullptr,
                           .up_bias = c.bias ? in.up_bias.data() : nullptr,
                           .out = c.out ? result.out.data() : nullptr,
                           .prepared_out = c.prepared_out ? result.prepared.data() : nullptr,
                           .workspace = workspace.data(),
                           .activation = c.activation};
  if (c.prepared) {  // a first call leaves the prepared rows in its workspace
    d.ops().gated_linear(d.stream(), p);
    std::fill(result.out.begin(), result.out.end(), -7.0f);
    p.prepared = workspace.data();
    p.x = nullptr;
    p.workspace = nullptr;
  }
  d.ops().gated_linear(d.stream(), p);
  return result;
}

/// The numbers that every table writes (q16 may be left unused).
::testing::AssertionResult same_rows(Buffer& a, Buffer& b, int rows, int k) {
  const QuantisedRows x = quantised_rows(a.data(), rows, k);
  const QuantisedRows y = quantised_rows(b.data(), rows, k);
  for (int i = 0; i < rows * k; ++i) {
    if (x.q[i] != y.q[i]) return ::testing::AssertionFailure() << "q[" << i << "]";
  }
  for (int i = 0; i < rows * k / 16; ++i) {
    if (x.sum[i] != y.sum[i]) return ::testing::AssertionFailure() << "sum[" << i << "]";
    if (!same_bits(x.scale[i], y.scale[i])) return ::testing::AssertionFailure() << "scale[" << i << "]";
  }
  for (int i = 0; i < rows * k / 32; ++i) {
    if (!same_bits(x.scaled_sum[i], y.scaled_sum[i]))
      return ::testing::AssertionFailure() << "scaled_sum[" << i << "]";
  }
  return ::testing::AssertionSuccess();
}

TEST(GatedLinear, ScalarAgreesWithDouble) {
  Random random(31);
  auto d = device(Isa::kScalar);
  for (const DType type : kAllTypes) {
    for (const auto activation : {ops::Activation::kSilu, ops::Activation::kGeluTanh}) {
      const Case c{type, Recipe::kF32, 37, 64, 3, true, true, false, false, activation};
      const Operands in(*d, c, random);
      std::vector<double> want;
      double scale = 0.0;
      for (int r = 0; r < c.rows; ++r) {
        for (int n = 0; n < c.n; ++n) {
          double g = in.gate_bias[static_cast<std::size_t>(n)];
          double u = in.up_bias[static_cast<std::size_t>(n)];
          for (int k = 0; k < c.k; ++k) {
            const double x = in.x[static_cast<std::size_t>(r * c.k + k)];
            g += x * in.gate.dense[static_cast<std::size_t>(n * c.k + k)];
            u += x * in.up.dense[static_cast<std::size_t>(n * c.k + k)];
          }
          const double gelu =
              g / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
          want.push_back((activation == ops::Activation::kSilu ? g / (1.0 + std::exp(-g)) : gelu) * u);
          scale = std::max(scale, std::abs(want.back()));
        }
      }
      EXPECT_LE(distance(run(*d, in, c).out, want), 1e-5 * (1.0 + scale)) << c.name();
    }
  }
}

TEST(GatedLinear, EveryInstructionSetGivesTheScalarBits) {
  Random random(32);
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    for (int threads = 1; threads <= 8; ++threads) {
      auto fast = device(isa, threads);
      for (const DType type : kAllTypes) {
        for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
          const bool int8 = ops::prepared_form(recipe, type) == ops::Form::kInt8;
          constexpr int kRows[] = {1, 1, 2, 3, 5, 8, 33, 64, 70, 140};
          const bool to_prepared = random.below(2) == 0;
          const Case c{type,
                       recipe,
                       to_prepared ? 32 * random.between(1, 6) : random.between(1, 150),
                       32 * random.between(1, 5),
                       kRows[random.below(10)],
                       random.below(2) == 0,
                       !to_prepared || random.below(2) == 0,
                       to_prepared,
                       int8 && random.below(2) == 0,
                       static_cast<ops::Activation>(random.below(3))};
          SCOPED_TRACE(c.name() + " threads=" + std::to_string(threads));
          const Operands in(*scalar, c, random);
          Result a = run(*scalar, in, c);
          Result b = run(*fast, in, c);
          EXPECT_TRUE(same(a.out, b.out));
          if (c.prepared_out) {
            EXPECT_TRUE(same_rows(a.prepared, b.prepared, c.rows, c.n));
          }
        }
      }
    }
  }
}

TEST(GatedLinear, PreparedOutputIsWhatTheNextProductReads) {
  Random random(33);
  std::vector<Isa> isas = vector_isas();
  isas.push_back(Isa::kScalar);
  for (const Isa isa : isas) {
    auto d = device(isa, 2);
    for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
      for (const int rows : {1, 2, 66}) {
        const Case c{type, Recipe::kInt8, 96, 64, rows, false, true, true, false};
        const Operands in(*d, c, random);
        Result r = run(*d, in, c);
        const Weights down(*d, type, 50, c.n, random);
        std::vector<float> out(static_cast<std::size_t>(rows) * 50, -7.0f);
        d->ops().linear(d->stream(), {.weight = down.view,
                                      .recipe = Recipe::kInt8,
                                      .x = nullptr,
                                      .rows = rows,
                                      .x_stride = 0,
                                      .bias = nullptr,
                                      .out = out.data(),
                                      .out_stride = 50,
                                      .workspace = nullptr,
                                      .prepared = r.prepared.data()});
        EXPECT_TRUE(same(out, run_linear(*d, down.view, Recipe::kInt8, r.out.data(), rows, c.n)))
            << c.name() << " " << ops::isa_name(isa);
      }
    }
  }
}

TEST(GatedLinear, HostileNumbersGiveTheScalarBits) {
  Random random(34);
  const float inf = ops::bits_float(0x7f800000u);
  const float special[] = {inf, -inf, ops::bits_float(0x7fc00000u), -0.0f, 1e-42f, 3e38f, 1e20f};
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa, 2);
    for (int round = 0; round < 60; ++round) {
      const Case c{kAllTypes[random.below(std::size(kAllTypes))],
                   round % 2 == 0 ? Recipe::kInt8 : Recipe::kF32,
                   64,
                   96,
                   1 + round % 4,
                   round % 3 == 0,
                   true,
                   true,
                   false};
      Operands in(*scalar, c, random);
      for (int i = 0; i < round / 6; ++i)
        in.x[static_cast<std::size_t>(random.below(c.rows * c.k))] = special[random.below(7)];
      for (int i = 0; i < round / 6; ++i)
        in.gate_bias[static_cast<std::size_t>(random.below(64))] = special[random.below(7)];
      Result a = run(*scalar, in, c);
      Result b = run(*fast, in, c);
      ASSERT_TRUE(same(a.out, b.out)) << c.name();
      ASSERT_TRUE(same_rows(a.prepared, b.prepared, c.rows, c.n)) << c.name();
    }
  }
}

}  // namespace
}  // namespace barg::test::gated_test
