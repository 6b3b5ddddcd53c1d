// linear, recipe f32: residual, bias and block maxima in every combination, for every weight type equal in
// bits to the scalar table whatever the instruction set, the number of rows, their place and the threads; and
// close to float64. (What both recipes share is in linear_test.cpp, silu(gate) * up in gated_test.cpp.)
#include <algorithm>

#include "fixture.h"

namespace barg::test::linear_f32_test {
namespace {

struct Options {
  bool accumulate, bias, block_max;
};

struct Result {
  std::vector<float> out, block_max;
};

/// One call on `rows` rows of `x`, x_stride apart; the outputs are out_stride apart and start from `base`.
struct Call {
  int rows, x_stride, out_stride;
  const std::vector<float>& x;
  const std::vector<float>& base;
  const std::vector<float>& bias;
  Options o;

  Result run(CpuDevice& d, const ops::PackedWeight& w) const {
    Result result;
    result.out.assign(base.begin(), base.begin() + std::ptrdiff_t{rows} * out_stride);
    if (o.block_max) result.block_max.assign(static_cast<std::size_t>(rows) * ((w.n + 63) / 64), -7.0f);
    d.ops().linear(d.stream(), {.weight = w,
                                .recipe = Recipe::kF32,
                                .x = x.data(),
                                .rows = rows,
                                .x_stride = x_stride,
                                .bias = o.bias ? bias.data() : nullptr,
                                .out = result.out.data(),
                                .out_stride = out_stride,
                                .workspace = nullptr,
                                .accumulate = o.accumulate,
                                .block_max = o.block_max ? result.block_max.data() : nullptr});
    return result;
  }
};

std::string shape(const ops::PackedWeight& w, int rows, int threads, Options o) {
  return std::string(dtype_name(w.dtype)) + " n=" + std::to_string(w.n) + " k=" + std::to_string(w.k) +
         " rows=" + std::to_string(rows) + " threads=" + std::to_string(threads) +
         (o.accumulate ? " accumulate" : "") + (o.bias ? " bias" : "") + (o.block_max ? " block_max" : "");
}

TEST(LinearF32, EveryFeatureGivesTheScalarBits) {
  Random random(41);
  auto scalar = device(Isa::kScalar);
  constexpr int kWidths[] = {1, 15, 16, 17, 32, 33, 48, 63, 64, 65, 100, 128, 130, 200, 333};
  for (const Isa isa : vector_isas()) {
    for (int threads = 1; threads <= 8; ++threads) {
      auto fast = device(isa, threads);
      for (const DType type : kAllTypes) {
        for (const int rows : {random.between(1, 6), random.between(7, 12), random.between(13, 200)}) {
          const int n = kWidths[random.below(std::size(kWidths))];
          const int k = is_quantised(type) ? 32 * random.between(1, 20) : random.between(1, 600);
          const int x_stride = k + random.below(9);
          const int stride = n + random.below(20);
          const Weights w(*scalar, type, n, k, random);
          const auto x = random.normals(static_cast<std::size_t>(rows * x_stride));
          const auto base = random.normals(static_cast<std::size_t>(rows * stride));
          const auto bias = random.normals(static_cast<std::size_t>(n));
          const Options o{random.below(2) == 0, random.below(2) == 0, random.below(2) == 0};
          SCOPED_TRACE(shape(w.view, rows, threads, o) + " " + ops::isa_name(isa));
          const Call call{rows, x_stride, stride, x, base, bias, o};
          const Result a = call.run(*scalar, w.view);
          const Result b = call.run(*fast, w.view);
          EXPECT_TRUE(same(a.out, b.out));  // and what lies between the rows is untouched
          EXPECT_TRUE(same(a.block_max, b.block_max));
        }
      }
    }
  }
}

/// Rows [first, first + count) of `width` numbers each.
std::vector<float> rows_of(const std::vector<float>& v, int first, int count, int width) {
  const auto begin = v.begin() + std::ptrdiff_t{first} * width;
  return {begin, begin + std::ptrdiff_t{count} * width};
}

TEST(LinearF32, ARowIsTheSameInEveryBatchUpTo512) {
  Random random(42);
  auto scalar = device(Isa::kScalar);
  constexpr int kN = 85, kRows = 512;
  const Options o{true, false, true};
  for (const DType type : kAllTypes) {
    const int k = is_quantised(type) ? 320 : 301;  // two chunks
    const Weights w(*scalar, type, kN, k, random);
    const auto x = random.normals(static_cast<std::size_t>(kRows * k));
    const auto base = random.normals(std::size_t{kRows} * kN);
    const Result all = Call{kRows, k, kN, x, base, {}, o}.run(*scalar, w.view);
    for (const Isa isa : vector_isas()) {
      auto fast = device(isa, 2);
      for (int rows = 1; rows <= kRows; rows += rows < 30 ? 1 : 37) {
        const int first = random.below(kRows - rows + 1);
        const auto part = rows_of(x, first, rows, k);
        const auto old = rows_of(base, first, rows, kN);
        const Result got = Call{rows, k, kN, part, old, {}, o}.run(*fast, w.view);
        ASSERT_TRUE(same(got.out, rows_of(all.out, first, rows, kN))) << shape(w.view, rows, 2, o);
        ASSERT_TRUE(same(got.block_max, rows_of(all.block_max, first, rows, 2))) << shape(w.view, rows, 2, o);
      }
      EXPECT_TRUE(same(Call{kRows, k, kN, x, base, {}, o}.run(*fast, w.view).out, all.out));
    }
  }
}

TEST(LinearF32, EveryFeatureAgreesWithDouble) {
  Random random(43);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa);
    for (const DType type : kAllTypes) {
      const int n = 70, k = 96, rows = 3;
      const Weights w(*d, type, n, k, random);
      const auto x = random.normals(rows * k);
      const auto base = random.normals(rows * n);
      const auto bias = random.normals(n);
      std::vector<double> want, maxima;
      for (int r = 0; r < rows; ++r) {
        for (int i = 0; i < n; ++i) {
          double sum = static_cast<double>(base[static_cast<std::size_t>(r * n + i)]) +
                       bias[static_cast<std::size_t>(i)];
          for (int j = 0; j < k; ++j) {
            sum += static_cast<double>(x[static_cast<std::size_t>(r * k + j)]) *
                   w.dense[static_cast<std::size_t>(i * k + j)];
          }
          if (i % 64 == 0) maxima.push_back(sum);
          maxima.back() = std::max(maxima.back(), sum);
          want.push_back(sum);
        }
      }
      const Result got = Call{rows, k, n, x, base, bias, {true, true, true}}.run(*d, w.view);
      EXPECT_LE(distance(got.out, want), 2e-4) << dtype_name(type);
      EXPECT_LE(distance(got.block_max, maxima), 2e-4) << dtype_name(type);
    }
  }
}

/// With K = 1 and x = 1 an output is its weight; with both tiny it is a zero that keeps the product's sign.
TEST(LinearF32, BlockMaximaOfNansAndZerosAreThoseOfTheSpecification) {
  Random random(44);
  auto scalar = device(Isa::kScalar);
  const float inf = ops::bits_float(0x7f800000u);
  const float nan = ops::bits_float(0x7fc00000u);
  constexpr int kN = 130;
  constexpr Options kMax{false, false, true};
  const std::vector<float> base(kN);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa);
    for (const float special : {nan, inf, -inf}) {
      for (int round = 0; round < 50; ++round) {
        const bool zeros = round % 2 == 1;
        const std::vector<float> x(1, zeros ? 1e-30f : 1.0f);
        Weights w(*scalar, DType::kF32, kN, 1, random);
        for (float& v : w.dense) v = zeros ? (random.below(2) == 0 ? 1e-30f : -1e-30f) : -std::abs(v);
        for (int i = 0; i < round / 10; ++i) w.dense[static_cast<std::size_t>(random.below(kN))] = special;
        scalar->ops().pack(scalar->stream(), {w.dense.data(), kN, 1, DType::kF32, w.packed.data()});
        const Call call{1, 1, kN, x, base, {}, kMax};
        ASSERT_TRUE(same(call.run(*scalar, w.view).block_max, call.run(*fast, w.view).block_max))
            << special << " round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace barg::test::linear_f32_test
