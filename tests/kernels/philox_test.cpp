// gumbel_filter: equal hits on every ISA, and no id whose exact score reaches the bar is missed.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "fixture.h"

namespace barg::test::philox_test {
namespace {

struct Case {
  std::vector<float> x;
  std::vector<std::int32_t> blocks;
  ops::GumbelFilterParams params{};
};

Case random_case(Random& random, std::int32_t dim, float offset) {
  Case c;
  c.x = random.normals(static_cast<std::size_t>(dim), 3.0f);
  if (dim > 5) c.x[5] = -std::numeric_limits<float>::infinity();
  for (std::int32_t b = 0; b * ops::kBlockMax < dim; ++b) {
    if (dim < 200 || random.below(4) > 0) c.blocks.push_back(b);
  }
  c.params.x = c.x.data();
  c.params.dim = dim;
  c.params.blocks = c.blocks.data();
  c.params.num_blocks = static_cast<std::int32_t>(c.blocks.size());
  c.params.seed = static_cast<std::uint64_t>(random.below(1 << 30)) << 33 |
                  static_cast<std::uint64_t>(random.below(1 << 30));
  c.params.position = static_cast<std::uint32_t>(random.below(1 << 30)) * 5u;
  c.params.choice = static_cast<std::uint32_t>(random.below(128));
  c.params.max = *std::max_element(c.x.begin(), c.x.end());
  c.params.slope = 1.2e7f / (0.25f + static_cast<float>(random.below(8)) / 4.0f);
  c.params.offset = offset;
  return c;
}

std::vector<std::int32_t> hits(Isa isa, Case& c) {
  std::vector<std::int32_t> out(64 * c.blocks.size() + 1, -1);
  c.params.hits = out.data();
  out.resize(static_cast<std::size_t>(device(isa)->ops().gumbel_filter(c.params)));
  return out;
}

TEST(GumbelFilter, EqualHitsOnEveryIsa) {
  Random random(3);
  for (const std::int32_t dim : {1, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 1000, 4096 + 17}) {
    for (const float offset : {1.0e9f, 1.20e9f, 1.26e9f, 1.4e9f}) {
      Case c = random_case(random, dim, offset);
      const auto want = hits(Isa::kScalar, c);
      for (const Isa isa : vector_isas())
        EXPECT_EQ(hits(isa, c), want) << ops::isa_name(isa) << ", dim " << dim;
    }
  }
}

TEST(GumbelFilter, WordsArePhilox) {
  // Random123's known answer for a zero counter and key: 6627e8d5 e169c58d bc57ac4c 9b00dbd8. With x = max an
  // id is a hit from its own word's level on, and not one step below it.
  const std::uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    for (int id = 0; id < 4; ++id) {
      const auto level = static_cast<float>(words[id] >> 8);
      const auto bar = static_cast<float>(ops::float_bits(level));
      Case c;
      c.x.assign(64, -1.0f);
      c.x[static_cast<std::size_t>(id)] = 0;
      c.blocks = {0};
      c.params = {.x = c.x.data(),
                  .dim = 64,
                  .blocks = c.blocks.data(),
                  .num_blocks = 1,
                  .seed = 0,
                  .position = 0,
                  .choice = 0,
                  .max = 0,
                  .slope = 1e10f,
                  .offset = bar,
                  .hits = nullptr};
      EXPECT_EQ(hits(isa, c), std::vector<std::int32_t>{id});
      c.params.offset = std::nextafter(bar, 0.0f);
      EXPECT_TRUE(hits(isa, c).empty());
    }
  }
}

}  // namespace
}  // namespace barg::test::philox_test
