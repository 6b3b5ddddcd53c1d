// K and V as fp8 and int8: codes and scales of single tokens, written by every instruction set; the codes
// against the formats' descriptions (fixture.h), and the bytes of all against those of the scalar kernels.
#include <cfloat>
#include <numeric>

#include "fixture.h"

namespace barg::test::kv_codes_test {
namespace {

constexpr DType kCodeTypes[] = {DType::kF8E4M3, DType::kI8};
constexpr int kBlock = 16;

TEST(F8, EveryCodeIsTheNearest) {
  for (int code = 0; code < 256; ++code) {
    if (code % 128 == 127) continue;  // NaN, never written
    EXPECT_EQ(ops::f8_to_f32_256th(static_cast<std::uint8_t>(code)) * 256.0, f8_value(code));
    EXPECT_EQ(ops::f32_to_f8(static_cast<float>(f8_value(code))), code);
  }
  for (int code = 0; code < 126; ++code) {
    const auto low = static_cast<float>(f8_value(code)), high = static_cast<float>(f8_value(code + 1));
    const float middle = (low + high) / 2;  // exact
    for (const float x : {middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
      EXPECT_EQ(ops::f32_to_f8(x), nearest_f8(x)) << x;
      EXPECT_EQ(ops::f32_to_f8(-x), nearest_f8(-x)) << x;
    }
  }
  for (const float x : {448.5f, 464.0f, 480.0f, 1e30f, FLT_MAX, INFINITY}) {
    EXPECT_EQ(ops::f32_to_f8(x), 126);
    EXPECT_EQ(ops::f32_to_f8(-x), 254);
  }
}

/// The bytes of one head after `rows` tokens of `dim` were written as K and, reversed, as V.
struct Written {
  Written(Isa isa, DType type, const std::vector<float>& rows, int dim, int threads = 1)
      : dim(dim), blocks((static_cast<int>(rows.size()) / dim + kBlock - 1) / kBlock) {
    auto d = device(isa, threads);
    head_bytes = d->ops().kv_head_bytes(type, kBlock, dim);
    Arena arena(*d, type, kBlock, 1, dim, blocks, 0);
    std::vector<BlockId> table(static_cast<std::size_t>(blocks));
    std::iota(table.begin(), table.end(), 0);
    const auto count = static_cast<std::int32_t>(rows.size()) / dim;
    const ops::Segment segment{0, count, 0, table.data()};
    auto k = rows;
    const std::vector<float> v(rows.rbegin(), rows.rend());
    std::vector<float> q(rows.size());
    d->ops().rope_kv_write(d->stream(), {q.data(), k.data(), v.data(), dim, dim, nullptr, nullptr, 0, 1,
                                         arena.view, &segment, 1});
    bytes.assign(arena.memory.data(), arena.memory.data() + arena.memory.size());
  }

  /// K of a token: its codes, its scale.
  std::vector<std::uint8_t> codes(int token) const {
    std::vector<std::uint8_t> out;
    for (int d = 0; d < dim; ++d)
      out.push_back(static_cast<std::uint8_t>(
          bytes[plane(token) + static_cast<std::size_t>(d * kBlock + token % kBlock)]));
    return out;
  }
  float scale(int token) const {
    float s;
    std::memcpy(&s, &bytes[plane(token) + static_cast<std::size_t>(kBlock * dim + token % kBlock * 4)], 4);
    return s;
  }
  std::size_t plane(int token) const { return static_cast<std::size_t>(token / kBlock) * head_bytes; }

  int dim, blocks;
  std::size_t head_bytes = 0;
  std::vector<std::byte> bytes;
};

/// Tokens of every kind: all sizes of numbers, exact middles between codes, zeros of both signs.
std::vector<float> tokens_of_every_kind(DType type, int dim, Random& random) {
  std::vector<float> rows;
  for (int exponent = -148; exponent <= 127; exponent += 5) {
    for (int d = 0; d < dim; ++d) rows.push_back(std::ldexp(random.normal() / 8, exponent));
  }
  for (int token = 0; token < 40; ++token) {
    const float unit = std::ldexp(1.0f, random.between(-60, 60));
    for (int d = 0; d < dim; ++d) {
      const int code = random.below(type == DType::kI8 ? 127 : 126);
      const double middle = type == DType::kI8 ? code + 0.5 : (f8_value(code) + f8_value(code + 1)) / 2;
      rows.push_back(static_cast<float>(random.below(2) == 0 ? middle : -middle) * unit);
    }
    rows[rows.size() - 1 - static_cast<std::size_t>(random.below(dim))] =
        unit * (type == DType::kI8 ? 127 : -448);
  }
  for (int d = 0; d < dim; ++d) rows.push_back(d % 2 == 0 ? 0.0f : -0.0f);
  for (int d = 0; d < dim; ++d) rows.push_back(FLT_MAX * (d % 3 == 0 ? -1.0f : 1.0f));
  for (int d = 0; d < dim; ++d) rows.push_back(d == 1 ? FLT_MIN * 448 : -FLT_MIN);
  for (int d = 0; d < dim; ++d) rows.push_back(d == 1 ? FLT_MIN * 100 : FLT_MIN);
  return rows;
}

TEST(KvCodes, AreTheNearestAndEqualOnEveryInstructionSet) {
  Random random(71);
  for (const DType type : kCodeTypes) {
    for (const int dim : {2, 6, 16, 20, 64, 96, 100, 128, 256}) {
      const auto rows = tokens_of_every_kind(type, dim, random);
      const Written scalar(Isa::kScalar, type, rows, dim);
      for (int token = 0; token < static_cast<int>(rows.size()) / dim; ++token) {
        const StoredToken want(type, &rows[static_cast<std::size_t>(token * dim)], dim);
        ASSERT_EQ(scalar.scale(token), want.scale) << dtype_name(type) << " " << dim << " token " << token;
        ASSERT_EQ(scalar.codes(token), want.codes) << dtype_name(type) << " " << dim << " token " << token;
      }
      for (const Isa isa : vector_isas()) {
        for (const int threads : {1, 3})
          EXPECT_EQ(Written(isa, type, rows, dim, threads).bytes, scalar.bytes)
              << ops::isa_name(isa) << " " << dtype_name(type) << " " << dim;
      }
    }
  }
}

/// Codes of zero and a scale of NaN, the same bytes everywhere.
TEST(KvCodes, ATokenThatIsNotFiniteIsMarked) {
  Random random(72);
  for (const DType type : kCodeTypes) {
    for (const float bad : {std::nanf(""), -std::nanf("12"), INFINITY, -INFINITY}) {
      for (const int at : {0, 15, 16, 39}) {
        constexpr int kDim = 40;
        auto rows = random.normals(3 * kDim);
        const Written good(Isa::kScalar, type, rows, kDim);
        rows[static_cast<std::size_t>(kDim + at)] = bad;
        const Written scalar(Isa::kScalar, type, rows, kDim);
        EXPECT_EQ(ops::float_bits(scalar.scale(1)), 0x7fc00000u);
        EXPECT_EQ(scalar.codes(1), std::vector<std::uint8_t>(kDim, 0));
        for (const int other : {0, 2}) {
          EXPECT_EQ(scalar.scale(other), good.scale(other));
          EXPECT_EQ(scalar.codes(other), good.codes(other));
        }
        for (const Isa isa : vector_isas())
          EXPECT_EQ(Written(isa, type, rows, kDim).bytes, scalar.bytes) << ops::isa_name(isa);
      }
    }
  }
}

TEST(KvCodes, SizesCountTheScales) {
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    const auto d = device(isa);
    for (const DType type : kCodeTypes) {
      EXPECT_EQ(d->ops().kv_head_bytes(type, 16, 64), 2u * 16 * (64 + 4));
      EXPECT_EQ(d->ops().kv_head_bytes(type, 64, 128), 2u * 64 * (128 + 4));
    }
    EXPECT_EQ(d->ops().kv_head_bytes(DType::kF16, 16, 64), 2u * 16 * 64 * 2);
  }
}

}  // namespace
}  // namespace barg::test::kv_codes_test
