// The row operations: right against float64, equal in bits on every instruction set and in every batch.
#include "fixture.h"

namespace barg::test::rows_test {
namespace {

constexpr int kDims[] = {1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 576, 1001};

std::vector<float> run_norm(CpuDevice& d, const std::vector<float>& x, const std::vector<float>& weight,
                            float offset, int rows) {
  std::vector<float> out(x.size(), -7.0f);
  const auto dim = static_cast<std::int32_t>(weight.size());
  d.ops().rms_norm(d.stream(), {x.data(), weight.data(), offset, 1e-5f, rows, dim, out.data()});
  return out;
}

TEST(RmsNorm, AgreesWithDoubleAndBetweenInstructionSets) {
  Random random(11);
  auto scalar = device(Isa::kScalar);
  for (const int dim : kDims) {
    const int rows = 3;
    const auto x = random.normals(static_cast<std::size_t>(rows) * dim);
    const auto weight = random.normals(static_cast<std::size_t>(dim));
    const auto got = run_norm(*scalar, x, weight, 1.0f, rows);
    std::vector<double> want;
    for (int row = 0; row < rows; ++row) {
      double squares = 0.0;
      for (int i = 0; i < dim; ++i) squares += std::pow(static_cast<double>(x[row * dim + i]), 2);
      for (int i = 0; i < dim; ++i)
        want.push_back(x[row * dim + i] / std::sqrt(squares / dim + 1e-5) * (weight[i] + 1.0));
    }
    EXPECT_LE(distance(got, want), 1e-5) << dim;
    for (const Isa isa : vector_isas())
      EXPECT_TRUE(same(got, run_norm(*device(isa), x, weight, 1.0f, rows))) << dim;
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsBatchOrThreads) {
  Random random(12);
  auto one = device(Isa::kAuto, 1);
  const auto weight = random.normals(577);
  const auto x = random.normals(577 * 200);
  const auto alone = run_norm(*one, {x.begin() + 577 * 150, x.begin() + 577 * 151}, weight, 0.0f, 1);
  for (const int threads : {1, 2, 3}) {
    const auto all = run_norm(*device(Isa::kAuto, threads), x, weight, 0.0f, 200);
    EXPECT_TRUE(same(alone, {all.begin() + 577 * 150, all.begin() + 577 * 151}));
  }
}

/// Rows prepared by the norm are those that linear prepares from the norm's floats.
TEST(RmsNorm, PreparedRowsGiveTheResultsOfItsFloats) {
  Random random(15);
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    auto d = device(isa, 2);
    for (const int dim : {32, 96, 576}) {
      for (const int rows : {1, 3, 70}) {
        const Weights w(*d, DType::kQ4_1, 48, dim, random);
        const auto x = random.normals(static_cast<std::size_t>(rows) * dim);
        const auto weight = random.normals(static_cast<std::size_t>(dim));
        const auto floats = run_norm(*d, x, weight, 0.0f, rows);
        const auto want = run_linear(*d, w.view, Recipe::kInt8, floats.data(), rows, dim);
        for (const bool both : {false, true}) {
          Buffer prepared(d->ops().prepared_bytes(rows, dim, Recipe::kInt8));
          std::vector<float> out(x.size()), got(want.size());
          d->ops().rms_norm(d->stream(), {x.data(), weight.data(), 0.0f, 1e-5f, rows, dim,
                                          both ? out.data() : nullptr, prepared.data()});
          EXPECT_TRUE(!both || same(out, floats));
          d->ops().linear(d->stream(), {.weight = w.view,
                                        .recipe = Recipe::kInt8,
                                        .x = nullptr,
                                        .rows = rows,
                                        .x_stride = 0,
                                        .bias = nullptr,
                                        .out = got.data(),
                                        .out_stride = 48,
                                        .workspace = nullptr,
                                        .prepared = prepared.data()});
          EXPECT_TRUE(same(got, want)) << ops::isa_name(isa) << " " << rows << " x " << dim;
        }
      }
    }
  }
}

/// A norm of parts of rows: `heads` of `dim`, rows `stride` apart.
struct HeadNorm {
  ops::NormKind kind;
  int heads, dim, rows;
  bool own_weights, bias;

  std::size_t stride() const { return static_cast<std::size_t>(heads) * dim + 5; }
  std::vector<float> run(CpuDevice& d, std::vector<float> x, const std::vector<float>& weight,
                         const std::vector<float>& shift, bool in_place) const {
    std::vector<float> out(x.size(), -7.0f);
    const auto step = static_cast<std::int64_t>(stride());
    d.ops().norm(d.stream(), {.kind = kind,
                              .x = x.data(),
                              .x_stride = step,
                              .weight = weight.data(),
                              .weight_stride = own_weights ? dim : 0,
                              .bias = bias ? shift.data() : nullptr,
                              .weight_offset = 1.0f,
                              .eps = 1e-5f,
                              .rows = rows,
                              .groups = heads,
                              .dim = dim,
                              .out = in_place ? x.data() : out.data(),
                              .out_stride = step});
    return in_place ? x : out;
  }
  std::vector<double> want(const std::vector<float>& x, const std::vector<float>& weight,
                           const std::vector<float>& shift) const {
    std::vector<double> out(x.size(), -7.0);
    for (int r = 0; r < rows; ++r) {
      for (int h = 0; h < heads; ++h) {
        const std::size_t at = r * stride() + static_cast<std::size_t>(h) * dim;
        double mean = 0, squares = 0;
        for (int i = 0; kind == ops::NormKind::kLayer && i < dim; ++i)
          mean += x[at + i] / static_cast<double>(dim);
        for (int i = 0; i < dim; ++i) squares += std::pow(x[at + i] - mean, 2) / dim;
        for (int i = 0; i < dim; ++i) {
          const double w = weight[static_cast<std::size_t>(own_weights ? h * dim + i : i)] + 1.0;
          out[at + i] = (x[at + i] - mean) / std::sqrt(squares + 1e-5) * w + (bias ? shift[i] : 0.0f);
        }
      }
    }
    return out;
  }
};

TEST(Norm, OfHeadsAndRowsAgreesWithDoubleAndBetweenInstructionSets) {
  Random random(16);
  auto scalar = device(Isa::kScalar);
  for (const auto kind : {ops::NormKind::kRms, ops::NormKind::kLayer}) {
    for (const int dim : {2, 16, 17, 64, 100, 577}) {
      for (const int form : {0, 1, 2, 3}) {
        const HeadNorm n{kind, 1 + form, dim, 3, form % 2 == 1, form < 2};
        std::vector<float> x = random.normals(n.stride() * 3),
                           shift = random.normals(static_cast<std::size_t>(dim));
        for (float& v : x) v += 1.5f;  // a mean that matters
        const auto weight = random.normals(static_cast<std::size_t>(n.heads) * dim);
        const auto got = n.run(*scalar, x, weight, shift, false);
        EXPECT_LE(distance(got, n.want(x, weight, shift)), 3e-5) << dim << " form " << form;
        for (const Isa isa : vector_isas()) {
          EXPECT_TRUE(same(got, n.run(*device(isa, 2), x, weight, shift, false))) << dim;
          auto there = n.run(*device(isa, 2), x, weight, shift, true);
          for (int r = 0; r < n.rows; ++r) {  // between the rows nothing is written
            for (std::size_t i = n.stride() - 5; i < n.stride(); ++i) {
              EXPECT_EQ(there[r * n.stride() + i], x[r * n.stride() + i]);
              there[r * n.stride() + i] = -7.0f;
            }
          }
          EXPECT_TRUE(same(got, there)) << "in place, " << dim;
        }
      }
    }
  }
}

TEST(Scales, OfRowsAndSumsAreTheSpecifications) {
  Random random(17);
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    auto d = device(isa, 3);
    for (const int dim : {1, 16, 37, 5000}) {
      const auto x = random.normals(static_cast<std::size_t>(dim) * 3), y = random.normals(x.size());
      const float scales[] = {0.22f, -1.5f, 3.0f};
      auto sum = x, scaled = x;
      d->ops().add_scaled(d->stream(), {sum.data(), y.data(), 0.22f, static_cast<std::int64_t>(x.size())});
      d->ops().scale_rows(d->stream(), {scaled.data(), dim, scales, 3, dim});
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(sum[i], ops::fma(y[i], 0.22f, x[i]));
        ASSERT_EQ(scaled[i], x[i] * scales[i / static_cast<std::size_t>(dim)]);
      }
    }
  }
}

TEST(ScaleLogits, CapsAndFindsTheMaximaOfWhatItWrites) {
  Random random(18);
  const float inf = ops::bits_float(0x7f800000u);
  auto scalar = device(Isa::kScalar);
  for (const int dim : {1, 63, 64, 65, 544, 9000}) {
    for (const float cap : {0.0f, 0.5f, 30.0f}) {
      const std::size_t blocks = static_cast<std::size_t>((dim + ops::kBlockMax - 1) / ops::kBlockMax);
      auto x = random.normals(static_cast<std::size_t>(dim) * 2, 20.0f);
      for (const float special : {inf, -inf, ops::bits_float(0x7fc00000u), 0.0f, -0.0f})
        x[static_cast<std::size_t>(random.below(dim))] = special;
      const auto run = [&](CpuDevice& d) {
        auto out = x;
        std::vector<float> maxima(2 * blocks);
        d.ops().scale_logits(d.stream(), {out.data(), dim, 2, dim, 0.25f, cap, maxima.data()});
        out.insert(out.end(), maxima.begin(), maxima.end());
        return out;
      };
      const auto got = run(*scalar);
      for (std::size_t i = static_cast<std::size_t>(dim); i < x.size();
           ++i) {  // the second row has no specials
        const double v = x[i] * 0.25;
        EXPECT_NEAR(got[i], cap > 0 ? std::tanh(v / cap) * cap : v, 1e-6 * (cap + std::abs(v))) << i;
        EXPECT_GE(got[x.size() + blocks + (i - static_cast<std::size_t>(dim)) / ops::kBlockMax], got[i]);
      }
      for (const Isa isa : vector_isas())
        EXPECT_TRUE(same(got, run(*device(isa, 2)))) << dim << " cap " << cap;
    }
  }
}

TEST(Tanh, VectorHasTheScalarBitsOverADenseSample) {
  constexpr int kStep = 1021;
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += kStep)
    x.push_back(ops::bits_float(static_cast<std::uint32_t>(bits)));
  auto want = x;
  for (float& v : want) v = ops::tanh(v);
  for (const Isa isa : vector_isas()) {
    auto d = device(isa, 2);
    auto out = x;
    const auto dim = static_cast<std::int32_t>(x.size());
    d->ops().scale_logits(d->stream(), {out.data(), dim, 1, dim, 1.0f, 1.0f, nullptr});
    EXPECT_TRUE(same(want, out));
  }
}

TEST(GateMul, AgreesBetweenInstructionSetsAlsoInRemainderLanes) {
  Random random(13);
  auto scalar = device(Isa::kScalar);
  for (const int dim : kDims) {
    const int stride = 2 * dim + 3;
    const auto in = random.normals(static_cast<std::size_t>(stride) * 2, 20.0f);
    const auto run = [&](CpuDevice& d) {
      std::vector<float> out(static_cast<std::size_t>(dim) * 2);
      d.ops().gate_mul(d.stream(), {in.data(), in.data() + dim, stride, 2, dim, out.data()});
      return out;
    };
    const auto got = run(*scalar);
    for (int i = 0; i < dim; ++i) EXPECT_EQ(got[i], ops::silu(in[i]) * in[dim + i]);
    for (const Isa isa : vector_isas()) EXPECT_TRUE(same(got, run(*device(isa)))) << dim;
  }
}

TEST(GateMul, RowsOfUpMayLieFurtherApart) {
  Random random(16);
  constexpr int kDim = 19, kRows = 3, kUp = 50;
  const auto gate = random.normals(kDim * kRows), up = random.normals(kUp * kRows);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    std::vector<float> out(kDim * kRows);
    auto d = device(isa);
    d->ops().gate_mul(d->stream(), {.gate = gate.data(),
                                    .up = up.data(),
                                    .in_stride = kDim,
                                    .rows = kRows,
                                    .dim = kDim,
                                    .out = out.data(),
                                    .activation = ops::Activation::kGeluTanh,
                                    .gate_scale = 1,
                                    .up_stride = kUp});
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kDim; ++i)
        EXPECT_EQ(out[r * kDim + i], ops::gelu_tanh(gate[r * kDim + i]) * up[r * kUp + i]) << r << " " << i;
    }
  }
}

TEST(GateMul, VectorExpHasTheScalarBitsOverADenseSample) {
  constexpr int kStep = 1021;
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += kStep)
    x.push_back(ops::bits_float(static_cast<std::uint32_t>(bits)));
  const std::vector<float> one(x.size(), 1.0f);
  std::vector<float> want(x.size());
  for (const auto activation : {ops::Activation::kSilu, ops::Activation::kGeluTanh, ops::Activation::kGeluErf}) {
    const auto function = activation == ops::Activation::kSilu       ? ops::silu
                          : activation == ops::Activation::kGeluTanh ? ops::gelu_tanh
                                                                     : ops::gelu_erf;
    for (std::size_t i = 0; i < x.size(); ++i) want[i] = function(x[i]) * 1.0f;
    for (const Isa isa : vector_isas()) {
      auto d = device(isa, 2);
      std::vector<float> out(x.size());
      const auto dim = static_cast<std::int32_t>(x.size());
      d->ops().gate_mul(d->stream(), {x.data(), one.data(), dim, 1, dim, out.data(), activation});
      EXPECT_TRUE(same(want, out)) << static_cast<int>(activation);
    }
  }
}

TEST(GateMul, WithoutTheOtherHalfItIsTheActivation) {
  Random random(14);
  for (const int dim : kDims) {
    auto x = random.normals(static_cast<std::size_t>(dim) * 3, 3.0f);
    std::vector<float> want;
    for (const float v : x) want.push_back(ops::gelu_erf(v));
    for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
      auto d = device(isa, 2);
      std::vector<float> out = x;
      d->ops().gate_mul(d->stream(), {out.data(), nullptr, dim, 3, dim, out.data(), ops::Activation::kGeluErf});
      EXPECT_TRUE(same(want, out)) << dim;
    }
  }
}

// --- row_stats -------------------------------------------------------------------------------------------

struct Stats {
  std::vector<float> values;  ///< max, argmax, logsumexp, finite of each row
};

Stats run_stats(CpuDevice& d, const std::vector<float>& x, int rows, int dim) {
  std::vector<float> max(rows), lse(rows);
  std::vector<std::int32_t> argmax(rows);
  std::vector<std::uint8_t> finite(rows);
  d.ops().row_stats(d.stream(),
                    {x.data(), dim, rows, dim, max.data(), argmax.data(), lse.data(), finite.data()});
  Stats stats;
  for (int r = 0; r < rows; ++r) {
    stats.values.insert(stats.values.end(),
                        {max[r], static_cast<float>(argmax[r]), lse[r], static_cast<float>(finite[r])});
  }
  return stats;
}

TEST(RowStats, AgreesWithDoubleAndBetweenInstructionSets) {
  Random random(15);
  auto scalar = device(Isa::kScalar);
  for (const int dim : {1, 5, 8, 16, 17, 100, 4099}) {
    const auto x = random.normals(static_cast<std::size_t>(dim) * 4, 4.0f);
    const auto got = run_stats(*scalar, x, 4, dim);
    for (int r = 0; r < 4; ++r) {
      const auto begin = x.begin() + std::ptrdiff_t{r} * dim;
      const auto top = std::max_element(begin, begin + dim);
      double sum = 0.0;
      for (auto it = begin; it != begin + dim; ++it) sum += std::exp(static_cast<double>(*it) - *top);
      EXPECT_EQ(got.values[r * 4], *top);
      EXPECT_EQ(got.values[r * 4 + 1], static_cast<float>(top - begin));
      EXPECT_NEAR(got.values[r * 4 + 2], std::log(sum) + *top, 1e-5);
      EXPECT_EQ(got.values[r * 4 + 3], 1.0f);
    }
    for (const Isa isa : vector_isas())
      EXPECT_TRUE(same(got.values, run_stats(*device(isa, 2), x, 4, dim).values)) << dim;
  }
}

TEST(RowStats, SpecialRows) {
  const float inf = ops::bits_float(0x7f800000u);
  const float nan = ops::bits_float(0x7fc00000u);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa);
    for (const int dim : {1, 3, 8, 21, 40}) {
      for (int at = 0; at < dim; ++at) {
        std::vector<float> x(static_cast<std::size_t>(dim), -inf);
        auto stats = run_stats(*d, x, 1, dim).values;
        EXPECT_EQ(stats[3], 0.0f) << "nothing finite";
        EXPECT_EQ(stats[1], 0.0f);
        x[at] = 2.0f;
        stats = run_stats(*d, x, 1, dim).values;
        EXPECT_EQ(stats[0], 2.0f);
        EXPECT_EQ(stats[1], static_cast<float>(at));
        EXPECT_EQ(stats[2], 2.0f);
        EXPECT_EQ(stats[3], 1.0f);
        x.assign(x.size(), 2.0f);
        EXPECT_EQ(run_stats(*d, x, 1, dim).values[1], 0.0f) << "the lowest index wins";
        for (const float bad : {inf, nan}) {
          x[at] = bad;
          EXPECT_EQ(run_stats(*d, x, 1, dim).values[3], 0.0f);
        }
      }
    }
  }
}

TEST(RowStats, TiesZerosAndNansAgreeBetweenInstructionSets) {
  Random random(16);
  auto scalar = device(Isa::kScalar);
  const float values[] = {0.0f, -0.0f, 1.0f, -ops::bits_float(0x7f800000u), ops::bits_float(0x7fc00000u),
                          -3.0f};
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa);
    for (int i = 0; i < 2000; ++i) {
      const int dim = random.between(1, 40);
      const int kinds = random.between(1, 6);
      std::vector<float> x(static_cast<std::size_t>(dim));
      for (float& v : x) v = values[random.below(kinds)];
      ASSERT_TRUE(same(run_stats(*scalar, x, 1, dim).values, run_stats(*fast, x, 1, dim).values)) << i;
    }
  }
}

TEST(CopyBlocks, CopiesWholeBlocks) {
  auto d = device(Isa::kAuto);
  std::vector<std::byte> memory(6 * 40);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
  auto want = memory;
  std::copy_n(memory.begin() + 40, 40, want.begin() + 200);
  std::copy_n(memory.begin() + 120, 40, want.begin());
  const BlockId src[] = {1, 3, 2};
  const BlockId dst[] = {5, 0, 2};
  d->ops().copy_blocks(d->stream(), {memory.data(), 40, src, dst, 3});
  EXPECT_EQ(memory, want);
}

TEST(AllReduce, OfOneRankChangesNothing) {
  auto d = device(Isa::kAuto);
  std::vector<float> x = {1.0f, 2.0f};
  d->ops().all_reduce(d->stream(), {x.data(), 2, 0, 1});
  EXPECT_EQ(x, (std::vector<float>{1.0f, 2.0f}));
}

// --- threads ---------------------------------------------------------------------------------------------

constexpr int kRows = 131,
              kDim = 544;  // so much that every thread gets some, and no multiple of their number

/// Floats of an operation on one device, then what it stored as bytes.
struct Output {
  std::vector<float> floats = {};
  std::vector<std::byte> bytes = {};
};

template <class Run>
void expect_equal_bits_on_all_threads(Run&& run) {
  const Output want = run(*device(Isa::kScalar, 1));
  std::vector<Isa> isas = vector_isas();
  isas.push_back(Isa::kScalar);
  for (const Isa isa : isas) {
    for (int threads = 1; threads <= 8; ++threads) {
      SCOPED_TRACE(std::string(ops::isa_name(isa)) + ", " + std::to_string(threads) + " threads");
      const Output got = run(*device(isa, threads));
      EXPECT_TRUE(same(want.floats, got.floats));
      EXPECT_TRUE(want.bytes == got.bytes);
    }
  }
}

TEST(RowThreads, RmsNorm) {
  Random random(31);
  const auto x = random.normals(kRows * kDim), weight = random.normals(kDim);
  expect_equal_bits_on_all_threads([&](CpuDevice& d) { return Output{run_norm(d, x, weight, 1.0f, kRows)}; });
}

TEST(RowThreads, GateMul) {
  Random random(32);
  const auto in = random.normals(2 * kRows * kDim, 5.0f);
  expect_equal_bits_on_all_threads([&](CpuDevice& d) {
    Output out{std::vector<float>(kRows * kDim)};
    d.ops().gate_mul(d.stream(), {in.data(), in.data() + kDim, 2 * kDim, kRows, kDim, out.floats.data()});
    return out;
  });
}

TEST(RowThreads, RowStats) {
  Random random(33);
  const auto x = random.normals(kRows * 1001, 4.0f);
  expect_equal_bits_on_all_threads([&](CpuDevice& d) { return Output{run_stats(d, x, kRows, 1001).values}; });
}

TEST(RowThreads, Embed) {
  for (const DType type : kAllTypes) {
    SCOPED_TRACE(dtype_name(type));
    std::vector<std::int32_t> ids(kRows);
    for (int i = 0; i < kRows; ++i) ids[i] = i * 7 % 40;
    expect_equal_bits_on_all_threads([&](CpuDevice& d) {
      Random random(34);  // every device packs the same table
      const Weights w(d, type, 40, kDim, random);
      Output out{std::vector<float>(kRows * kDim)};
      d.ops().embed(d.stream(), {w.view, ids.data(), kRows, 1.5f, out.floats.data()});
      return out;
    });
  }
}

/// Scatters over two sequences, the second of which begins within a block.
TEST(RowThreads, RopeKvWrite) {
  constexpr int kHeads = 4, kKvHeads = 2, kHead = 80, kRotary = 64, kBlock = 16, kFirst = 20;
  const BlockId first[] = {3, 0}, second[] = {9, 1, 2, 5, 4, 6, 10, 8, 7};
  const ops::Segment segments[] = {{0, kFirst, 0, first}, {kFirst, kRows - kFirst, 18, second}};
  Random random(35);
  const auto q = random.normals(kRows * kHeads * kHead);
  const auto k = random.normals(kRows * kKvHeads * kHead), v = random.normals(k.size());
  const auto cos = random.normals(kRows * kRotary / 2), sin = random.normals(cos.size());
  for (const DType type : kKvTypes) {
    SCOPED_TRACE(dtype_name(type));
    expect_equal_bits_on_all_threads([&](CpuDevice& d) {
      const Arena arena(d, type, kBlock, kKvHeads, kHead, 11);
      Output out{q};
      auto keys = k;
      d.ops().rope_kv_write(
          d.stream(), {out.floats.data(), keys.data(), v.data(), kHeads * kHead, kKvHeads * kHead, cos.data(),
                       sin.data(), kRotary, kHeads, arena.view, segments, 2});
      out.floats.insert(out.floats.end(), keys.begin(), keys.end());
      out.bytes.assign(arena.memory.data(), arena.memory.data() + arena.memory.size());
      return out;
    });
  }
}

}  // namespace
}  // namespace barg::test::rows_test
