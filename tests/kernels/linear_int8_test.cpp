// linear, recipe int8: prepared rows, residual, bias and block maxima in every combination, equal in bits to
// the scalar table for every instruction set, number of rows and threads; and close to float64.
#include <algorithm>

#include "cpu/layout.h"
#include "fixture.h"

namespace barg::test::linear_int8_test {
namespace {

constexpr DType kTypes[] = {DType::kQ8_0,    DType::kQ4_0,  DType::kQ4_1,  DType::kS8Per16,
                            DType::kS8Min,   DType::kU5Min, DType::kU4Min, DType::kU2MinPer16,
                            DType::kS3Per16, DType::kIQ4,   DType::kFP4,   DType::kFP4Per16};

struct Options {
  bool prepared, accumulate, bias, block_max;
};

/// What linear may write.
struct Result {
  std::vector<float> out, block_max;
};

/// One call on `rows` rows of `x`, the outputs `stride` apart and starting from `base` where they are added
/// to.
Result run(CpuDevice& d, const ops::PackedWeight& w, const std::vector<float>& x, int rows, int stride,
           const std::vector<float>& base, const std::vector<float>& bias, Options o) {
  Buffer workspace(d.ops().prepared_bytes(rows, w.k, Recipe::kInt8));
  Result result;
  result.out.assign(base.begin(), base.begin() + std::ptrdiff_t{rows} * stride);
  if (o.block_max) result.block_max.assign(static_cast<std::size_t>(rows) * ((w.n + 63) / 64), -7.0f);
  ops::LinearParams p{.weight = w,
                      .recipe = Recipe::kInt8,
                      .x = x.data(),
                      .rows = rows,
                      .x_stride = w.k,
                      .bias = o.bias ? bias.data() : nullptr,
                      .out = result.out.data(),
                      .out_stride = stride,
                      .workspace = workspace.data()};
  if (o.prepared) {  // a first call leaves the prepared rows in its workspace
    std::vector<float> unused(result.out);
    p.out = unused.data();
    d.ops().linear(d.stream(), p);
    p.out = result.out.data();
    p.prepared = workspace.data();
    p.x = nullptr;
    p.workspace = nullptr;
  }
  p.accumulate = o.accumulate;
  p.block_max = o.block_max ? result.block_max.data() : nullptr;
  d.ops().linear(d.stream(), p);
  return result;
}

std::string shape(const ops::PackedWeight& w, int rows, int threads, Options o) {
  return std::string(dtype_name(w.dtype)) + " n=" + std::to_string(w.n) + " k=" + std::to_string(w.k) +
         " rows=" + std::to_string(rows) + " threads=" + std::to_string(threads) +
         (o.prepared ? " prepared" : "") + (o.accumulate ? " accumulate" : "") + (o.bias ? " bias" : "") +
         (o.block_max ? " block_max" : "");
}

TEST(LinearInt8, EveryFeatureGivesTheScalarBits) {
  Random random(21);
  auto scalar = device(Isa::kScalar);
  constexpr int kWidths[] = {1, 15, 16, 17, 32, 33, 48, 63, 64, 65, 100, 128, 130, 200, 333};
  for (const Isa isa : vector_isas()) {
    for (int threads = 1; threads <= 8; ++threads) {
      auto fast = device(isa, threads);
      for (const int rows : {1, 2, 3, 4, 5, 8, 17, 64, 65, 130}) {
        const DType type = kTypes[random.below(std::size(kTypes))];
        const int n = kWidths[random.below(std::size(kWidths))];
        const int k = 32 * random.between(1, 8);
        const int stride = n + random.below(20);
        const Weights w(*scalar, type, n, k, random);
        const auto x = random.normals(static_cast<std::size_t>(rows * k));
        const auto base = random.normals(static_cast<std::size_t>(rows * stride));
        const auto bias = random.normals(static_cast<std::size_t>(n));
        const Options o{random.below(2) == 0, random.below(2) == 0, random.below(2) == 0,
                        random.below(2) == 0};
        SCOPED_TRACE(shape(w.view, rows, threads, o));
        const Result a = run(*scalar, w.view, x, rows, stride, base, bias, o);
        const Result b = run(*fast, w.view, x, rows, stride, base, bias, o);
        EXPECT_TRUE(same(a.out, b.out));  // and what lies between the rows is untouched
        EXPECT_TRUE(same(a.block_max, b.block_max));
      }
    }
  }
}

TEST(LinearInt8, ARowIsTheSameInEveryBatchUpTo512) {
  Random random(22);
  auto scalar = device(Isa::kScalar);
  constexpr int kN = 85, kK = 96, kRows = 512;
  for (const DType type : kTypes) {
    const Weights w(*scalar, type, kN, kK, random);
    const auto x = random.normals(std::size_t{kRows} * kK);
    const auto base = random.normals(std::size_t{kRows} * kN);
    const Options o{false, true, false, true};
    const Result all = run(*scalar, w.view, x, kRows, kN, base, {}, o);
    for (const Isa isa : vector_isas()) {
      auto fast = device(isa, 2);
      for (int rows = 1; rows <= kRows; rows += rows < 140 ? 1 : 37) {
        const int first = random.below(kRows - rows + 1);
        const std::vector<float> part(x.begin() + std::ptrdiff_t{first} * kK,
                                      x.begin() + std::ptrdiff_t{first + rows} * kK);
        const std::vector<float> old(base.begin() + std::ptrdiff_t{first} * kN,
                                     base.begin() + std::ptrdiff_t{first + rows} * kN);
        const Result got = run(*fast, w.view, part, rows, kN, old, {}, o);
        ASSERT_TRUE(same(got.out, {all.out.begin() + std::ptrdiff_t{first} * kN,
                                   all.out.begin() + std::ptrdiff_t{first + rows} * kN}))
            << shape(w.view, rows, 2, o);
        ASSERT_TRUE(same(got.block_max, {all.block_max.begin() + std::ptrdiff_t{first} * 2,
                                         all.block_max.begin() + std::ptrdiff_t{first + rows} * 2}))
            << shape(w.view, rows, 2, o);
      }
      const Result got = run(*fast, w.view, x, kRows, kN, base, {}, o);
      EXPECT_TRUE(same(got.out, all.out));
    }
  }
}

/// Activations rounded to int8 as the recipe says (a scale per 16), times the exact weights, in float64.
std::vector<double> rounded_product(const Weights& w, const std::vector<float>& x, int rows) {
  std::vector<double> q(x.size());
  for (std::size_t b = 0; b < x.size(); b += 16) {
    float max = 0.0f;
    for (std::size_t i = b; i < b + 16; ++i) max = std::max(max, std::abs(x[i]));
    const float d = max / 127.0f;
    for (std::size_t i = b; i < b + 16; ++i)
      q[i] = d * std::nearbyint(static_cast<double>(x[i] * (1.0f / d)));
  }
  std::vector<double> out;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < w.view.n; ++n) {
      double sum = 0.0;
      for (int k = 0; k < w.view.k; ++k) {
        sum += q[static_cast<std::size_t>(r) * w.view.k + k] *
               static_cast<double>(w.dense[static_cast<std::size_t>(n) * w.view.k + k]);
      }
      out.push_back(sum);
    }
  }
  return out;
}

TEST(LinearInt8, AgreesWithDoubleOfTheRoundedActivations) {
  // One float rounding of a sum of size about sqrt(k) per block: 1e-5 sqrt(k) is ten of them.
  Random random(23);
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa, 2);
    for (const DType type : kTypes) {
      for (const int rows : {1, 3, 40}) {
        const int k = 32 * random.between(1, 64);
        const Weights w(*scalar, type, 70, k, random);
        const auto x = random.normals(static_cast<std::size_t>(rows * k));
        const std::vector<float> base(static_cast<std::size_t>(rows) * 70);
        const Result got = run(*fast, w.view, x, rows, 70, base, {}, {false, false, false, false});
        EXPECT_LE(distance(got.out, rounded_product(w, x, rows)), 1e-5 * std::sqrt(k) + 1e-5)
            << shape(w.view, rows, 2, {});
      }
    }
  }
}

TEST(LinearInt8, BlockMaximaOfHostileNumbers) {
  Random random(24);
  const float inf = ops::bits_float(0x7f800000u);
  const float special[] = {inf, -inf, ops::bits_float(0x7fc00000u), 0.0f};
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa, 2);
    for (const int n : {40, 64, 130}) {
      const Weights w(*scalar, DType::kQ4_1, n, 32, random);
      for (int round = 0; round < 60; ++round) {
        const int rows = 1 + round % 3;
        const auto x = random.normals(static_cast<std::size_t>(rows) * 32);
        auto base = random.normals(static_cast<std::size_t>(rows * n));
        for (int i = 0; i < round / 3; ++i) {
          base[static_cast<std::size_t>(random.below(rows * n))] =
              special[random.below(round % 2 == 0 ? 4 : 2)];
        }
        const Options o{false, true, false, true};
        const Result a = run(*scalar, w.view, x, rows, n, base, {}, o);
        const Result b = run(*fast, w.view, x, rows, n, base, {}, o);
        ASSERT_TRUE(same(a.out, b.out)) << shape(w.view, rows, 2, o);
        ASSERT_TRUE(same(a.block_max, b.block_max)) << shape(w.view, rows, 2, o);
      }
    }
  }
}

/// Products that round to zero keep the sign of the scale: 2^-24 times 2^-126.
TEST(LinearInt8, TheFirstOfEqualZerosIsTheBlockMaximum) {
  constexpr int kN = 64, kK = 32;
  auto scalar = device(Isa::kScalar);
  std::vector<float> x(kK);
  x[0] = ops::bits_float(0x00800000u) * 127.0f;
  x[1] = ops::bits_float(0x00800000u);
  for (const std::uint16_t first : {0x0001, 0x8001}) {
    std::vector<std::uint8_t> raw(kN * 34);
    for (int n = 0; n < kN; ++n) {
      std::uint8_t* block = raw.data() + std::ptrdiff_t{n} * 34;
      const auto scale = static_cast<std::uint16_t>(n == 20                ? first
                                                    : n > 20 && n % 9 == 0 ? first ^ 0x8000
                                                                           : 0xc000);
      std::memcpy(block, &scale, 2);
      block[2 + 1] = 1;
    }
    Buffer packed(scalar->ops().packed_bytes(DType::kQ8_0, kN, kK, ops::Packing::kStored));
    scalar->ops().pack(scalar->stream(), {raw.data(), kN, kK, DType::kQ8_0, packed.data()});
    const ops::PackedWeight w{kN, kK, DType::kQ8_0, packed.data()};
    const std::vector<float> base(kN);
    const Options o{false, false, false, true};
    const Result want = run(*scalar, w, x, 1, kN, base, {}, o);
    EXPECT_EQ(ops::float_bits(want.block_max[0]), first == 0x0001 ? 0u : 0x80000000u);
    for (const Isa isa : vector_isas()) {
      auto fast = device(isa);
      EXPECT_TRUE(same(run(*fast, w, x, 1, kN, base, {}, o).block_max, want.block_max));
    }
  }
}

}  // namespace
}  // namespace barg::test::linear_int8_test
