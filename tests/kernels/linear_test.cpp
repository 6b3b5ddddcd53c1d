// linear, pack and embed: right (against float64 and ggml's values), and equal in bits whatever the
// instruction set, the number of rows, the place in the batch and the number of threads.
#include <algorithm>
#include <fstream>

#include "fixture.h"
#include "support/data.h"

namespace barg::test::linear_test {
namespace {

std::string shape(DType t, int n, int k, int rows) {
  return std::string(dtype_name(t)) + " n=" + std::to_string(n) + " k=" + std::to_string(k) +
         " rows=" + std::to_string(rows);
}

std::vector<double> linear_f64(const Weights& w, const std::vector<float>& x, int rows, const float* bias) {
  std::vector<double> out;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < w.view.n; ++n) {
      double sum = bias != nullptr ? bias[n] : 0.0;
      for (int k = 0; k < w.view.k; ++k) {
        sum += static_cast<double>(x[static_cast<std::size_t>(r) * w.view.k + k]) *
               w.dense[static_cast<std::size_t>(n) * w.view.k + k];
      }
      out.push_back(sum);
    }
  }
  return out;
}

/// Activations rounded to int8 as the recipe says (a scale per 16), back as floats.
std::vector<float> rounded_activations(const std::vector<float>& x) {
  constexpr std::size_t kScaleElements = 16;
  std::vector<float> out(x.size());
  for (std::size_t b = 0; b < x.size(); b += kScaleElements) {
    float max = 0.0f;
    for (std::size_t i = b; i < b + kScaleElements; ++i) max = std::max(max, std::abs(x[i]));
    const float d = max / 127.0f;
    for (std::size_t i = b; i < b + kScaleElements; ++i) {
      out[i] = d > 0.0f ? d * std::nearbyint(x[i] * (1.0f / d)) : 0.0f;
    }
  }
  return out;
}

int random_k(DType type, Random& random) {
  return is_quantised(type) ? 32 * random.between(1, 40) : random.between(1, 700);
}

TEST(Linear, ScalarAgreesWithDouble) {
  Random random(1);
  auto d = device(Isa::kScalar);
  for (const DType type : kAllTypes) {
    for (int i = 0; i < 4; ++i) {
      const int n = random.between(1, 70);
      const int k = random_k(type, random);
      const int rows = random.between(1, 5);
      SCOPED_TRACE(shape(type, n, k, rows));
      const Weights w(*d, type, n, k, random);
      const auto x = random.normals(static_cast<std::size_t>(rows) * k);
      const auto bias = random.normals(static_cast<std::size_t>(n));
      const double tolerance = 1e-5 * std::sqrt(k) + 1e-5;
      EXPECT_LE(distance(run_linear(*d, w.view, Recipe::kF32, x.data(), rows, k, bias.data()),
                         linear_f64(w, x, rows, bias.data())),
                tolerance);
      const auto rounded = multiplies_int8(type) ? rounded_activations(x) : x;
      EXPECT_LE(distance(run_linear(*d, w.view, Recipe::kInt8, x.data(), rows, k),
                         linear_f64(w, rounded, rows, nullptr)),
                tolerance);
    }
  }
}

TEST(Linear, EveryInstructionSetGivesTheScalarBits) {
  Random random(2);
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa, 2);
    for (const DType type : kAllTypes) {
      for (const int rows : {1, 1, 2, 3, 4, 5, 7, 8, 13, 50}) {
        const int n = random.between(1, rows == 1 ? 300 : 60);
        const int k = random_k(type, random);
        SCOPED_TRACE(shape(type, n, k, rows));
        const Weights w(*scalar, type, n, k, random);
        const int stride = k + random.below(9);
        const auto x = random.normals(static_cast<std::size_t>(rows) * stride);
        const auto bias = random.normals(static_cast<std::size_t>(n));
        for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
          EXPECT_TRUE(same(run_linear(*scalar, w.view, recipe, x.data(), rows, stride, bias.data()),
                           run_linear(*fast, w.view, recipe, x.data(), rows, stride, bias.data())))
              << recipe_name(recipe);
        }
      }
    }
  }
}

TEST(Linear, DeepAndWideShapesGiveTheScalarBits) {  // past every K chunk and panel group
  Random random(3);
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa, 1);
    for (const DType type : kAllTypes) {
      for (const auto& [n, k, rows] : {std::array{17, 1536, 5}, {33, 2048, 1}, {1100, 64, 1}, {200, 96, 2}}) {
        SCOPED_TRACE(shape(type, n, k, rows));
        const Weights w(*scalar, type, n, k, random);
        const auto x = random.normals(static_cast<std::size_t>(rows) * k);
        for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
          EXPECT_TRUE(same(run_linear(*scalar, w.view, recipe, x.data(), rows, k),
                           run_linear(*fast, w.view, recipe, x.data(), rows, k)))
              << recipe_name(recipe);
        }
      }
    }
  }
}

TEST(Linear, HostileNumbersGiveTheScalarBits) {
  Random random(4);
  auto scalar = device(Isa::kScalar);
  const float inf = ops::bits_float(0x7f800000u);
  const float special[] = {0.0f,   -0.0f,   inf,   -inf,  ops::bits_float(0x7fc00000u),
                           1e-42f, -1e-38f, 3e38f, 127.0f};
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa);
    for (const DType type : kAllTypes) {
      Weights w(*scalar, type, 40, 96, random);
      for (std::size_t i = 0; i < w.raw.size(); ++i) {  // raw bytes: scales may be inf or NaN
        w.raw[i] = static_cast<std::uint8_t>(random.below(256));
      }
      scalar->ops().pack(scalar->stream(), {w.raw.data(), 40, 96, type, w.packed.data()});
      for (int round = 0; round < 20; ++round) {
        auto x = random.normals(3 * 96);
        for (int i = 0; i < round; ++i)
          x[static_cast<std::size_t>(random.below(3 * 96))] = special[random.below(9)];
        for (const int rows : {1, 3}) {
          for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
            ASSERT_TRUE(same(run_linear(*scalar, w.view, recipe, x.data(), rows, 96),
                             run_linear(*fast, w.view, recipe, x.data(), rows, 96)))
                << shape(type, 40, 96, rows) << " " << recipe_name(recipe) << " round " << round;
          }
        }
      }
    }
  }
}

TEST(Linear, BlocksOfTinyNumbersGiveTheScalarBits) {  // scales at and below the end of the normal range
  Random random(10);
  auto scalar = device(Isa::kScalar);
  for (const Isa isa : vector_isas()) {
    auto fast = device(isa);
    for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
      const Weights w(*scalar, type, 16, 64, random);
      for (float sigma = 1e-33f; sigma > 0.0f; sigma *= 0.3f) {
        const auto x = random.normals(64, sigma);
        EXPECT_TRUE(same(run_linear(*scalar, w.view, Recipe::kInt8, x.data(), 1, 64),
                         run_linear(*fast, w.view, Recipe::kInt8, x.data(), 1, 64)))
            << dtype_name(type) << " " << sigma;
      }
    }
  }
}

TEST(Linear, NotANumberIsSeenByEveryOutputOfItsRow) {
  Random random(5);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa);
    const Weights w(*d, DType::kQ4_1, 20, 64, random);
    for (const std::uint32_t bits : {0x7fc00000u, 0x7f800000u}) {
      auto x = random.normals(64);
      x[40] = ops::bits_float(bits);
      for (const float v : run_linear(*d, w.view, Recipe::kInt8, x.data(), 1, 64))
        EXPECT_FALSE(std::isfinite(v));
    }
  }
}

TEST(Linear, ARowHasTheSameBitsInEveryBatchAndPlace) {
  Random random(6);
  constexpr int kRows = 70;
  auto d = device(Isa::kAuto, 2);
  for (const DType type : kAllTypes) {
    const int k = is_quantised(type) ? 608 : 601;
    const Weights w(*d, type, 83, k, random);
    const auto row = random.normals(static_cast<std::size_t>(k));
    for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
      const auto alone = run_linear(*d, w.view, recipe, row.data(), 1, k);
      for (int rows = 1; rows <= kRows; ++rows) {
        auto x = random.normals(static_cast<std::size_t>(rows) * k);
        const int place = rows % 2 == 0 ? 0 : random.below(rows);
        std::copy(row.begin(), row.end(), x.begin() + std::ptrdiff_t{place} * k);
        const auto out = run_linear(*d, w.view, recipe, x.data(), rows, k);
        const auto begin = out.begin() + std::ptrdiff_t{place} * 83;
        ASSERT_TRUE(same(alone, {begin, begin + 83}))
            << shape(type, 83, k, rows) << " place " << place << " " << recipe_name(recipe);
      }
    }
  }
}

TEST(Linear, ThreadsChangeNothing) {
  Random random(7);
  auto one = device(Isa::kAuto, 1);
  for (const int threads : {2, 3}) {
    auto many = device(Isa::kAuto, threads);
    for (const DType type : kAllTypes) {
      for (const int rows : {1, 2, 9, 130}) {
        const Weights w(*one, type, 1000, 64, random);
        const auto x = random.normals(static_cast<std::size_t>(rows) * 64);
        for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
          EXPECT_TRUE(same(run_linear(*one, w.view, recipe, x.data(), rows, 64),
                           run_linear(*many, w.view, recipe, x.data(), rows, 64)))
              << shape(type, 1000, 64, rows) << " " << threads << " threads";
        }
      }
    }
  }
}

// --- embed -----------------------------------------------------------------------------------------------

std::vector<float> run_embed(CpuDevice& d, const ops::PackedWeight& table,
                             const std::vector<std::int32_t>& ids, float scale) {
  std::vector<float> out(ids.size() * static_cast<std::size_t>(table.k));
  d.ops().embed(d.stream(), {table, ids.data(), static_cast<std::int32_t>(ids.size()), scale, out.data()});
  return out;
}

TEST(Embed, GathersTheExactValuesTimesTheScale) {
  Random random(8);
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa, 2);
    for (const DType type : kAllTypes) {
      const Weights w(*d, type, 77, 96, random);
      std::vector<std::int32_t> ids(300);
      for (auto& id : ids) id = random.below(77);
      for (const float scale : {1.0f, 11.3137f}) {
        std::vector<float> want;
        for (const auto id : ids) {
          for (int i = 0; i < 96; ++i) want.push_back(w.dense[static_cast<std::size_t>(id) * 96 + i] * scale);
        }
        EXPECT_TRUE(same(want, run_embed(*d, w.view, ids, scale)))
            << dtype_name(type) << " " << d->isa_name();
      }
    }
  }
}

/// Tensor bytes of a safetensors file.
std::vector<std::uint8_t> tensor(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const std::size_t entry = header.find("\"" + name + "\"");
  const std::size_t offsets = header.find("\"data_offsets\"", entry);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (entry == std::string::npos ||
      std::sscanf(header.c_str() + header.find('[', offsets), "[%lu, %lu]", &begin, &end) != 2) {
    std::sscanf(header.c_str() + header.find('[', offsets), "[%lu,%lu]", &begin, &end);
  }
  std::vector<std::uint8_t> bytes(end - begin);
  file.seekg(static_cast<std::streamoff>(8 + header_bytes + begin));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

TEST(Embed, DequantisesGgmlBlocksToTheBit) {
  const std::string path = shared_data("quants/quants.safetensors");
  if (path.empty()) GTEST_SKIP() << kNoShared;
  for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
    auto d = device(isa);
    for (const auto& [type, name] :
         {std::pair{DType::kQ8_0, "Q8_0"}, {DType::kQ4_0, "Q4_0"}, {DType::kQ4_1, "Q4_1"}}) {
      const auto blocks = tensor(path, std::string(name) + ".blocks");
      const auto values = tensor(path, std::string(name) + ".values");
      ASSERT_EQ(blocks.size(), 64 * block_bytes(type));
      std::vector<float> want(values.size() / 4);
      std::memcpy(want.data(), values.data(), values.size());
      Buffer packed(d->ops().packed_bytes(type, 64, 32, ops::Packing::kStored));
      d->ops().pack(d->stream(), {blocks.data(), 64, 32, type, packed.data()});
      std::vector<std::int32_t> ids(64);
      for (int i = 0; i < 64; ++i) ids[static_cast<std::size_t>(i)] = i;
      EXPECT_TRUE(same(want, run_embed(*d, {64, 32, type, packed.data()}, ids, 1.0f))) << name;
    }
  }
}

TEST(Pack, TakesAnyAlignmentAndKeepsTheFileSize) {
  Random random(9);
  auto d = device(Isa::kScalar);
  for (const DType type : kAllTypes) {
    const Weights w(*d, type, 32, 64, random);
    EXPECT_EQ(d->ops().packed_bytes(type, 32, 64, ops::Packing::kStored), w.raw.size()) << dtype_name(type);
    std::vector<std::uint8_t> shifted(w.raw.size() + 1);
    std::memcpy(shifted.data() + 1, w.raw.data(), w.raw.size());
    Buffer packed(w.raw.size());
    d->ops().pack(d->stream(), {shifted.data() + 1, 32, 64, type, packed.data()});
    EXPECT_EQ(std::memcmp(packed.data(), w.view.data, w.raw.size()), 0) << dtype_name(type);
  }
}

}  // namespace
}  // namespace barg::test::linear_test
