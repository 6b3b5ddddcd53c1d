// Recipe bf16: the specification against examples worked out by hand and against float64, and the instruction
// against the specification, bit for bit, whatever the shape, the number of rows and the threads. What needs
// AVX512-BF16 is skipped without it; the specification is tested everywhere.
#include <algorithm>

#include "fixture.h"

namespace barg::test::linear_bf16_test {
namespace {

using ops::bits_float;
using ops::Packing;

constexpr const char* kNoBf16 = "skipped: this machine has no AVX512-BF16";
bool has_bf16() { return ops::recipe_supported(Isa::kAuto, Recipe::kBF16); }

/// 2^e, also below the normal range.
float power(int e) { return std::ldexp(1.0f, e); }

float rounded(float x) { return ops::bf16_to_f32(ops::f32_to_bf16(x)); }

TEST(LinearBf16, IsSupportedWhereTheInstructionIs) {
  EXPECT_TRUE(ops::recipe_supported(Isa::kScalar, Recipe::kBF16));
  const bool here = __builtin_cpu_supports("avx512bf16") != 0 && ops::isa_supported(Isa::kAvx512);
  EXPECT_EQ(has_bf16(), here);
  for (const Isa isa : vector_isas()) {
    EXPECT_EQ(ops::recipe_supported(isa, Recipe::kBF16), isa == Isa::kAvx512 && here);
    EXPECT_TRUE(ops::recipe_supported(isa, Recipe::kF32));
    EXPECT_TRUE(ops::recipe_supported(isa, Recipe::kInt8));
  }
}

// --- the specification -----------------------------------------------------------------------------------

struct Example {
  const char* name;
  std::vector<float> x, w;  ///< one row, one column
  float want;
};

std::vector<Example> examples() {
  const float below = bits_float(0x007fffffu);  // the largest number below the normal range
  return {
      {"the odd k first", {1, 0, power(-12), power(-12)}, {1, 0, power(-12), power(-11)}, 1 + power(-22)},
      {"in order of pairs",
       {1, power(-12), power(-12), 0},
       {power(-23), power(-11), power(-12), 0},
       power(-22) + power(-24)},
      {"activations: ties to even", {1 + power(-8), 1 + 3 * power(-8)}, {1, 0}, 1},
      {"activations: ties to even, upwards", {0, 1 + 3 * power(-8)}, {0, 1}, 1 + power(-6)},
      {"weights: ties to even", {1, 0}, {1 + power(-8), 0}, 1},
      {"an odd k", {1, 2, 3}, {1, 1, 1}, 6},
      {"a small activation is a zero", {power(-130), 0}, {power(100), 0}, 0},
      {"also where it would round up", {below, 0}, {power(100), 0}, 0},
      {"a small weight is a zero", {0, power(100)}, {0, power(-130)}, 0},
      {"a small product is a zero", {power(-70), 0}, {-power(-60), 0}, -0.0f},
      {"a small sum is a zero",
       {1, 1, 0, 0},
       {power(-126), -power(-125) + power(-126) - power(-133), 0, 0},
       0},
      {"smallness is judged after rounding",
       {power(-63), 0, power(-75), 0},
       {power(-63), 0, -power(-75), 0},
       0},
      {"to 24 bits", {power(-63), 0, power(-76), 0}, {power(-63), 0, -power(-75), 0}, power(-126)},
      {"overflow", {power(120), 0}, {power(120), 0}, HUGE_VALF},
      {"overflow of the odd k comes first", {power(120), -power(120)}, {power(120), power(120)}, -HUGE_VALF},
      {"inf minus inf", {HUGE_VALF, -HUGE_VALF}, {1, 1}, NAN},
      {"inf times a small number", {HUGE_VALF, 0}, {power(-130), 0}, NAN},
  };
}

TEST(LinearBf16, IsWhatTheExamplesSay) {
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    if (!ops::recipe_supported(isa, Recipe::kBF16)) continue;
    auto d = device(isa);
    Random random(1);
    for (const Example& e : examples()) {
      const auto k = static_cast<std::int32_t>(e.x.size());
      Weights w(*d, DType::kF32, 1, k, random, Packing::kBF16Pairs);
      std::memcpy(w.raw.data(), e.w.data(), e.w.size() * sizeof(float));
      w.repack(*d);
      const float got = run_linear(*d, w.view, Recipe::kBF16, e.x.data(), 1, k)[0];
      EXPECT_TRUE(same_bits(got, e.want))
          << e.name << ": " << got << ", not " << e.want << ", " << d->isa_name();
    }
  }
}

TEST(LinearBf16, AgreesWithDoubleOnRoundedNumbers) {
  Random random(61);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    if (!ops::recipe_supported(isa, Recipe::kBF16)) continue;
    auto d = device(isa);
    for (const DType type : kAllTypes) {
      const int n = 37, k = is_quantised(type) ? 96 : 95, rows = 3;
      const Weights w(*d, type, n, k, random, Packing::kBF16Pairs);
      const auto x = random.normals(static_cast<std::size_t>(rows * k));
      const auto bias = random.normals(n);
      std::vector<double> want;
      for (int r = 0; r < rows; ++r) {
        for (int i = 0; i < n; ++i) {
          double sum = bias[static_cast<std::size_t>(i)];
          for (int j = 0; j < k; ++j) {
            sum += static_cast<double>(rounded(x[static_cast<std::size_t>(r * k + j)])) *
                   rounded(w.dense[static_cast<std::size_t>(i * k + j)]);
          }
          want.push_back(sum);
        }
      }
      EXPECT_LE(distance(run_linear(*d, w.view, Recipe::kBF16, x.data(), rows, k, bias.data()), want), 2e-4)
          << dtype_name(type) << " " << d->isa_name();
    }
  }
}

TEST(LinearBf16, EmbeddingRowsAreTheRoundedWeights) {
  Random random(62);
  std::vector<Isa> isas = vector_isas();
  isas.push_back(Isa::kScalar);
  for (const Isa isa : isas) {
    auto d = device(isa, 2);
    for (const DType type : kAllTypes) {
      const int n = 40, k = is_quantised(type) ? 64 : 63;
      const Weights w(*d, type, n, k, random, Packing::kBF16Pairs);
      const std::vector<std::int32_t> ids = {0, 39, 16, 15, 39};
      std::vector<float> out(ids.size() * static_cast<std::size_t>(k), -7.0f), want;
      d->ops().embed(d->stream(),
                     {w.view, ids.data(), static_cast<std::int32_t>(ids.size()), 3.0f, out.data()});
      for (const std::int32_t id : ids) {
        for (int i = 0; i < k; ++i)
          want.push_back(rounded(w.dense[static_cast<std::size_t>(id * k + i)]) * 3.0f);
      }
      EXPECT_TRUE(same(out, want)) << dtype_name(type) << " " << ops::isa_name(isa);
    }
  }
}

// --- the instruction -------------------------------------------------------------------------------------

/// Every option of linear, drawn.
struct Call {
  int rows, x_stride, out_stride;
  bool accumulate, bias, block_max;

  static Call draw(Random& random, const ops::PackedWeight& w, int rows) {
    return {rows,
            w.k + random.below(9),
            w.n + random.below(20),
            random.below(2) == 0,
            random.below(2) == 0,
            random.below(2) == 0};
  }
  std::string name(const ops::PackedWeight& w, int threads) const {
    return std::string(dtype_name(w.dtype)) + " n=" + std::to_string(w.n) + " k=" + std::to_string(w.k) +
           " rows=" + std::to_string(rows) + " threads=" + std::to_string(threads) +
           (accumulate ? " accumulate" : "") + (bias ? " bias" : "") + (block_max ? " block_max" : "");
  }
  /// Outputs start from 0.5; the maxima follow them.
  std::vector<float> run(CpuDevice& d, const ops::PackedWeight& w, const float* x, const float* b) const {
    const std::size_t size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(out_stride);
    std::vector<float> out(size + static_cast<std::size_t>(rows) * static_cast<std::size_t>((w.n + 63) / 64),
                           0.5f);
    Buffer workspace(d.ops().prepared_bytes(rows, w.k, Recipe::kBF16));
    d.ops().linear(d.stream(), {.weight = w,
                                .recipe = Recipe::kBF16,
                                .x = x,
                                .rows = rows,
                                .x_stride = x_stride,
                                .bias = bias ? b : nullptr,
                                .out = out.data(),
                                .out_stride = out_stride,
                                .workspace = workspace.data(),
                                .accumulate = accumulate,
                                .block_max = block_max ? out.data() + size : nullptr});
    return out;
  }
};

TEST(LinearBf16, EveryFeatureGivesTheScalarBits) {
  if (!has_bf16()) GTEST_SKIP() << kNoBf16;
  Random random(63);
  auto scalar = device(Isa::kScalar, 2);
  constexpr int kWidths[] = {1, 15, 16, 17, 32, 33, 48, 63, 64, 65, 100, 128, 130, 200, 333};
  for (int threads = 1; threads <= 8; ++threads) {
    auto fast = device(Isa::kAvx512, threads);
    for (const DType type : kAllTypes) {
      for (const int rows : {random.between(1, 6), random.between(7, 12), random.between(13, 100)}) {
        const int n = kWidths[random.below(std::size(kWidths))];
        const int k = is_quantised(type) ? 32 * random.between(1, 20) : random.between(1, 600);
        const Weights w(*scalar, type, n, k, random, Packing::kBF16Pairs);
        const Call call = Call::draw(random, w.view, rows);
        const auto x = random.normals(static_cast<std::size_t>(rows * call.x_stride));
        const auto bias = random.normals(static_cast<std::size_t>(n));
        ASSERT_TRUE(same(call.run(*scalar, w.view, x.data(), bias.data()),
                         call.run(*fast, w.view, x.data(), bias.data())))
            << call.name(w.view, threads);
      }
    }
  }
}

TEST(LinearBf16, ARowIsTheSameInEveryBatchUpTo512) {
  if (!has_bf16()) GTEST_SKIP() << kNoBf16;
  Random random(64);
  auto scalar = device(Isa::kScalar, 2);
  auto fast = device(Isa::kAvx512, 2);
  constexpr int kRows = 512;
  for (const auto& [n, k] : {std::pair{85, 1101}, {64, 300}}) {  // three chunks, and one
    const Weights w(*scalar, DType::kBF16, n, k, random, Packing::kBF16Pairs);
    const auto x = random.normals(static_cast<std::size_t>(kRows * k));
    const auto all = run_linear(*scalar, w.view, Recipe::kBF16, x.data(), kRows, k);
    for (int rows = 1; rows <= kRows; rows += rows < 30 ? 1 : 37) {
      const int first = random.below(kRows - rows + 1);
      const auto got =
          run_linear(*fast, w.view, Recipe::kBF16, x.data() + std::ptrdiff_t{first} * k, rows, k);
      const auto begin = all.begin() + std::ptrdiff_t{first} * n;
      ASSERT_TRUE(same(got, {begin, begin + std::ptrdiff_t{rows} * n})) << rows << " rows of k=" << k;
    }
    EXPECT_TRUE(same(run_linear(*fast, w.view, Recipe::kBF16, x.data(), kRows, k), all));
  }
}

/// Normal numbers, and among them what is awkward: the ends of the range, around the end of the normal range,
/// halves of a unit of bf16, infinities, NaN.
std::vector<float> awkward(Random& random, std::size_t n, bool small) {
  std::vector<float> v(n);
  for (float& x : v) {
    x = random.normal();
    if (small) x *= power(random.between(-75, -55));
    const int kind = random.below(40);
    if (kind == 0) x = bits_float(static_cast<std::uint32_t>(random.below(1 << 24)));
    if (kind == 1) x = bits_float((ops::float_bits(x) & 0xffff0000u) | 0x8000u);
    if (kind == 2) x = -0.0f;
    if (small) continue;
    if (kind == 3) x = bits_float(0x7f7fffffu);
    if (kind == 4 && random.below(8) == 0) x = -HUGE_VALF;
    if (kind == 5 && random.below(8) == 0) x = NAN;
  }
  return v;
}

TEST(LinearBf16, AwkwardNumbersGiveTheScalarBits) {
  if (!has_bf16()) GTEST_SKIP() << kNoBf16;
  Random random(65);
  auto scalar = device(Isa::kScalar, 2);
  auto fast = device(Isa::kAvx512, 2);
  std::size_t zeros = 0, numbers = 0, nans = 0;
  for (int round = 0; round < 120; ++round) {
    const int n = random.between(1, 70), k = random.between(1, 60), rows = random.between(1, 30);
    Weights w(*scalar, DType::kF32, n, k, random, Packing::kBF16Pairs);
    const bool small = round % 2 == 0;
    const auto weights = awkward(random, static_cast<std::size_t>(n * k), small);
    std::memcpy(w.raw.data(), weights.data(), weights.size() * sizeof(float));
    w.repack(*scalar);
    const auto x = awkward(random, static_cast<std::size_t>(rows * k), small);
    const auto want = run_linear(*scalar, w.view, Recipe::kBF16, x.data(), rows, k);
    ASSERT_TRUE(same(run_linear(*fast, w.view, Recipe::kBF16, x.data(), rows, k), want)) << "round " << round;
    for (const float v : want) ++(v == 0 ? zeros : v != v ? nans : numbers);
  }
  EXPECT_GT(zeros, 100U);
  EXPECT_GT(nans, 100U);
  EXPECT_GT(numbers, 10000U);
}

TEST(LinearBf16, GatedGivesTheScalarBits) {
  if (!has_bf16()) GTEST_SKIP() << kNoBf16;
  Random random(66);
  auto scalar = device(Isa::kScalar, 2);
  for (int threads = 1; threads <= 8; ++threads) {
    auto fast = device(Isa::kAvx512, threads);
    for (const DType type : kAllTypes) {
      const int rows = random.between(1, 120), n = random.between(1, 150);
      const int k = is_quantised(type) ? 32 * random.between(1, 5) : random.between(1, 160);
      const Weights gate(*scalar, type, n, k, random, Packing::kBF16Pairs);
      const Weights up(*scalar, type, n, k, random, Packing::kBF16Pairs);
      const auto x = random.normals(static_cast<std::size_t>(rows * k), 0.3f);
      const auto bias = random.normals(static_cast<std::size_t>(n));
      const auto run = [&](CpuDevice& d) {
        std::vector<float> out(static_cast<std::size_t>(rows * n), -7.0f);
        Buffer workspace(d.ops().prepared_bytes(rows, k, Recipe::kBF16));
        d.ops().gated_linear(d.stream(), {.gate = gate.view,
                                          .up = up.view,
                                          .recipe = Recipe::kBF16,
                                          .x = x.data(),
                                          .rows = rows,
                                          .x_stride = k,
                                          .gate_bias = threads % 2 == 0 ? bias.data() : nullptr,
                                          .up_bias = threads % 3 == 0 ? bias.data() : nullptr,
                                          .out = out.data(),
                                          .prepared_out = nullptr,
                                          .workspace = workspace.data()});
        return out;
      };
      ASSERT_TRUE(same(run(*scalar), run(*fast)))
          << dtype_name(type) << " n=" << n << " k=" << k << " rows=" << rows;
    }
  }
}

}  // namespace
}  // namespace barg::test::linear_bf16_test
