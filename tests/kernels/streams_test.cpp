// Several residual streams, magnitudes and gates that are cut: against their definitions in double; equal in
// bits on every instruction set, with any threads, and whatever rows are beside. And rotation where nothing
// is stored.
#include "fixture.h"

namespace barg::test::streams_test {
namespace {

constexpr int kDims[] = {1, 7, 15, 16, 17, 33, 64, 1001};

/// S streams of [rows, dim], `gap` floats between them, and what is computed with them.
struct Streams {
  int count, rows, dim, active = 0;
  std::int64_t gap = 5;
  std::vector<float> x, coefs, activated, scale;

  Streams(int count, int rows, int dim, Random& random)
      : count(count), rows(rows), dim(dim), active(count - 1) {
    const auto n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(dim);
    x = random.normals(static_cast<std::size_t>(count) * (n + static_cast<std::size_t>(gap)));
    coefs = random.normals(static_cast<std::size_t>(rows * count * count));
    activated = random.normals(n);
    scale = random.normals(static_cast<std::size_t>(dim));
  }
  std::int64_t stride() const { return std::int64_t{rows} * dim + gap; }
  float at(const std::vector<float>& from, int s, int r, int i) const {
    return from[static_cast<std::size_t>(s * stride() + std::int64_t{r} * dim + i)];
  }

  /// The streams, and behind them the other result.
  std::vector<float> predict(CpuDevice& d) const {
    std::vector<float> streams = x, out(activated.size(), -7.0f);
    d.ops().predict_streams(d.stream(), {.x = streams.data(),
                                         .stream_stride = stride(),
                                         .streams = count,
                                         .active = active,
                                         .coefs = coefs.data(),
                                         .rows = rows,
                                         .dim = dim,
                                         .out = out.data()});
    streams.insert(streams.end(), out.begin(), out.end());
    return streams;
  }
  std::vector<float> correct(CpuDevice& d) const {
    std::vector<float> streams = x, out = activated;
    d.ops().correct_streams(d.stream(), {.x = streams.data(),
                                         .stream_stride = stride(),
                                         .streams = count,
                                         .active = active,
                                         .activated = out.data(),
                                         .coefs = coefs.data(),
                                         .scale = scale.data(),
                                         .rows = rows,
                                         .dim = dim,
                                         .out = out.data()});
    streams.insert(streams.end(), out.begin(), out.end());
    return streams;
  }
};

TEST(Streams, PredictionsAgreeWithTheirDefinition) {
  Random random(91);
  auto d = device(Isa::kScalar);
  for (const int dim : kDims) {
    for (const int count : {2, 4, 8}) {
      const Streams s(count, 3, dim, random);
      const auto got = s.predict(*d);
      for (int r = 0; r < s.rows; ++r) {
        for (int i = 0; i < dim; ++i) {
          for (int q = 0; q < count; ++q) {
            double want = s.at(s.x, q, r, i);
            for (int p = 0; p < count; ++p)
              want += static_cast<double>(s.coefs[static_cast<std::size_t>((r * count + q) * count + p)]) *
                      s.at(s.x, p, r, i);
            ASSERT_NEAR(s.at(got, q, r, i), want, 1e-5 * (1 + std::abs(want))) << dim << " stream " << q;
          }
          ASSERT_EQ(got[s.x.size() + static_cast<std::size_t>(r * dim + i)], s.at(got, s.active, r, i));
        }
      }
    }
  }
}

TEST(Streams, CorrectionsAgreeWithTheirDefinition) {
  Random random(92);
  auto d = device(Isa::kScalar);
  for (const int dim : kDims) {
    for (const int count : {2, 4, 8}) {
      const Streams s(count, 3, dim, random);
      const auto got = s.correct(*d);
      for (int r = 0; r < s.rows; ++r) {
        for (int i = 0; i < dim; ++i) {
          const auto flat = static_cast<std::size_t>(r * dim + i);
          const double e = static_cast<double>(s.activated[flat]) - s.at(s.x, s.active, r, i);
          for (int q = 0; q < count; ++q) {
            const double want =
                s.at(s.x, q, r, i) + e * (1.0 + s.coefs[static_cast<std::size_t>(r * count + q)]);
            ASSERT_NEAR(s.at(got, q, r, i), want, 1e-5 * (1 + std::abs(want))) << dim << " stream " << q;
          }
          ASSERT_EQ(got[s.x.size() + flat], s.at(got, s.active, r, i) * s.scale[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
}

std::vector<float> match(CpuDevice& d, std::vector<float> x, const std::vector<float>& like, int rows,
                         float least) {
  d.ops().match_magnitude(d.stream(), {.x = x.data(),
                                       .like = like.data(),
                                       .rows = rows,
                                       .dim = static_cast<std::int32_t>(x.size()) / rows,
                                       .least = least});
  return x;
}

std::vector<float> cut(CpuDevice& d, std::vector<float> x, int rows, float deviations) {
  d.ops().cut_gate(d.stream(), {.x = x.data(),
                                .rows = rows,
                                .dim = static_cast<std::int32_t>(x.size()) / rows,
                                .deviations = deviations});
  return x;
}

double mean_square(const float* x, int dim) {
  double sum = 0;
  for (int i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum / dim;
}

TEST(MatchMagnitude, GivesRowsTheMagnitudeOfOthers) {
  Random random(93);
  auto d = device(Isa::kScalar);
  for (const int dim : kDims) {
    const auto n = static_cast<std::size_t>(2 * dim);
    const auto x = random.normals(n, 3.0f), like = random.normals(n, 0.2f);
    const auto got = match(*d, x, like, 2, 1e-5f);
    for (int r = 0; r < 2; ++r) {
      const double want = mean_square(&like[static_cast<std::size_t>(r * dim)], dim);
      EXPECT_NEAR(mean_square(&got[static_cast<std::size_t>(r * dim)], dim), want, 1e-5 * want) << dim;
      EXPECT_GT(got[static_cast<std::size_t>(r * dim)] * x[static_cast<std::size_t>(r * dim)], 0)
          << "its sign";
    }
    // A row that is next to nothing is not blown up.
    const auto small = match(*d, std::vector<float>(n, 1e-4f), std::vector<float>(n, 2.0f), 2, 0.25f);
    EXPECT_NEAR(small[0], 1e-4 * 2 / 0.5, 1e-9) << dim;
  }
}

TEST(CutGate, LeavesWhatIsFarAboveTheMean) {
  Random random(94);
  auto d = device(Isa::kScalar);
  for (const int dim : kDims) {
    const auto x = random.normals(static_cast<std::size_t>(2 * dim), 2.0f);
    for (const float deviations : {-0.5f, 0.0f, 1.2815516f}) {
      const auto got = cut(*d, x, 2, deviations);
      for (int r = 0; r < 2; ++r) {
        const float* row = &x[static_cast<std::size_t>(r * dim)];
        double mean = 0, square = 0;
        for (int i = 0; i < dim; ++i) mean += row[i] / static_cast<double>(dim);
        for (int i = 0; i < dim; ++i) square += std::pow(row[i] - mean, 2) / dim;
        const double bar = mean + std::sqrt(square) * deviations;
        for (int i = 0; i < dim; ++i)
          EXPECT_NEAR(got[static_cast<std::size_t>(r * dim + i)], std::max(row[i] - bar, 0.0), 2e-6) << dim;
      }
    }
  }
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(cut(*d, {1, nan, 2}, 1, 1.0f)[0])) << "the mean is no number";
}

/// All four, on one device.
std::vector<float> run_all(CpuDevice& d, const Streams& s) {
  auto out = s.predict(d);
  for (const auto& more :
       {s.correct(d),
        match(d, s.activated, {s.x.begin(), s.x.begin() + std::ssize(s.activated)}, s.rows, 1e-5f),
        cut(d, s.activated, s.rows, 0.7f)})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST(Streams, EveryInstructionSetAndAnyThreadsGiveTheScalarBits) {
  Random random(95);
  auto scalar = device(Isa::kScalar);
  for (const int dim : kDims) {
    const Streams s(4, 60, dim, random);
    const auto want = run_all(*scalar, s);
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 3}) EXPECT_TRUE(same(run_all(*device(isa, threads), s), want)) << dim;
    }
  }
}

TEST(Streams, ARowDoesNotDependOnThoseBeside) {
  Random random(96);
  auto d = device(Isa::kAuto, 2);
  const Streams s(4, 40, 129, random);
  Streams one(4, 1, 129, random);
  const int row = 23;
  for (int q = 0; q < 4; ++q) {
    for (int i = 0; i < 129; ++i)
      one.x[static_cast<std::size_t>(q * one.stride() + i)] = s.at(s.x, q, row, i);
  }
  const auto coefs = s.coefs.begin() + row * 16;
  one.coefs.assign(coefs, coefs + 16);
  const auto all = s.predict(*d), alone = one.predict(*d);
  for (int q = 0; q < 4; ++q) {
    for (int i = 0; i < 129; ++i) ASSERT_TRUE(same_bits(s.at(all, q, row, i), one.at(alone, q, 0, i)));
  }
}

/// A layer that reads the K and V of another rotates its queries and stores nothing.
TEST(RopeOfQueries, WithoutKeysNothingIsStored) {
  Random random(97);
  constexpr int kDim = 32, kHeads = 2, kRows = 5, kBlock = 16;
  const auto q = random.normals(kRows * kHeads * kDim), k = random.normals(kRows * kDim);
  const auto cos = random.normals(kRows * kDim / 2), sin = random.normals(cos.size());
  const BlockId table[] = {0};
  const ops::Segment segment{0, kRows, 3, table};
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa);
    Arena arena(*d, DType::kF32, kBlock, 1, kDim, 1);
    const std::vector<std::byte> before(arena.memory.data(), arena.memory.data() + arena.memory.size());
    auto with = q, without = q, keys = k;
    const auto run = [&](std::vector<float>& queries, ops::KvLayerView kv) {
      d->ops().rope_kv_write(d->stream(), {queries.data(), keys.data(), k.data(), kHeads * kDim, kDim,
                                           cos.data(), sin.data(), kDim, kHeads, kv, &segment, 1});
    };
    ops::KvLayerView none = arena.view;
    none.num_kv_heads = 0;
    run(without, none);
    EXPECT_EQ(keys, k);
    EXPECT_EQ(std::memcmp(before.data(), arena.memory.data(), before.size()), 0);
    run(with, arena.view);
    EXPECT_TRUE(same(with, without));
    EXPECT_NE(with, q);
  }
}

}  // namespace
}  // namespace barg::test::streams_test
