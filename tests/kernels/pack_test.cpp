// pack against the layout's description (layout.h), byte by byte: every type, widths that are no multiple of
// a panel, depths that are no multiple of a vector, sources at odd addresses.
#include <gtest/gtest.h>

#include "cpu/layout.h"
#include "fixture.h"

namespace barg::test::pack_test {
namespace {

/// The packed bytes, written from the table in layout.h; padding columns are zero.
std::vector<std::uint8_t> expected(DType type, std::int32_t n, std::int32_t k, const std::uint8_t* src) {
  const std::size_t row_bytes = static_cast<std::size_t>(k) / block_elements(type) * block_bytes(type);
  std::vector<std::uint8_t> out;
  // A line: `bytes` bytes from offset `at` of sixteen rows, one after the other.
  const auto line = [&](std::int32_t panel, std::size_t at, std::size_t bytes) {
    for (std::int32_t c = panel * 16; c < panel * 16 + 16; ++c) {
      for (std::size_t i = 0; i < bytes; ++i)
        out.push_back(c < n ? src[static_cast<std::size_t>(c) * row_bytes + at + i] : 0);
    }
  };
  for (std::int32_t panel = 0; panel < (n + 15) / 16; ++panel) {
    for (std::size_t b = 0; b < row_bytes / block_bytes(type); ++b) {
      const std::size_t at = b * block_bytes(type);
      if (!is_quantised(type)) {
        line(panel, at, block_bytes(type));
        continue;
      }
      if (is_converted(type)) {
        for (std::size_t w = 0; w < block_bytes(type) / 4; ++w) line(panel, at + w * 4, 4);
        continue;
      }
      const std::size_t fields = type == DType::kQ4_1 ? 2 : 1;
      for (std::size_t f = 0; f < fields; ++f) line(panel, at + f * 2, 2);
      for (std::size_t u = 0; u < (type == DType::kQ8_0 ? 8 : 4); ++u)
        line(panel, at + fields * 2 + u * 4, 4);
    }
  }
  return out;
}

TEST(Pack, IsTheLayoutByteForByte) {
  Random random(11);
  for (const DType type : kAllTypes) {
    const bool blocks = is_quantised(type);
    for (const std::int32_t n : {1, 7, 15, 16, 17, 33, 40, 64}) {
      for (const std::int32_t k : blocks ? std::vector{32, 96, 576} : std::vector{1, 3, 8, 21, 32, 45}) {
        const std::size_t bytes = static_cast<std::size_t>(n) *
                                  (static_cast<std::size_t>(k) / block_elements(type)) * block_bytes(type);
        std::vector<std::uint8_t> raw(bytes + 3);
        for (std::uint8_t& b : raw) b = static_cast<std::uint8_t>(random.below(256));
        const std::vector<std::uint8_t> want = expected(type, n, k, raw.data() + 3);
        for (const int threads : {1, 3}) {
          const auto d = device(Isa::kAuto, threads);
          ASSERT_EQ(d->ops().packed_bytes(type, n, k, ops::Packing::kStored), want.size());
          Buffer packed(want.size());
          std::memset(packed.data(), 0xEE, want.size());
          d->ops().pack(d->stream(), {raw.data() + 3, n, k, type, packed.data()});
          ASSERT_EQ(std::memcmp(packed.data(), want.data(), want.size()), 0)
              << dtype_name(type) << " n " << n << " k " << k << ", " << threads << " threads";
        }
      }
    }
  }
}

/// The same of bf16 pairs: values by the formats' descriptions, each rounded once.
std::vector<std::uint8_t> expected_pairs(DType type, std::int32_t n, std::int32_t k,
                                         const std::uint8_t* src) {
  const std::size_t per_block = block_elements(type), row_blocks = static_cast<std::size_t>(k) / per_block;
  const auto value = [&](std::int32_t row, std::int32_t i) -> std::uint16_t {
    if (row >= n || i >= k) return 0;
    float values[32];
    const std::size_t block =
        static_cast<std::size_t>(row) * row_blocks + static_cast<std::size_t>(i) / per_block;
    dequantise(type, src + block * block_bytes(type), values);
    return ops::f32_to_bf16(values[static_cast<std::size_t>(i) % per_block]);
  };
  std::vector<std::uint8_t> out;
  for (std::int32_t panel = 0; panel < (n + 15) / 16; ++panel) {
    for (std::int32_t i = 0; i < k; i += 2) {
      for (std::int32_t c = panel * 16; c < panel * 16 + 16; ++c) {
        for (const std::uint16_t half : {value(c, i), value(c, i + 1)}) {
          out.push_back(static_cast<std::uint8_t>(half & 255));
          out.push_back(static_cast<std::uint8_t>(half >> 8));
        }
      }
    }
  }
  return out;
}

TEST(Pack, Bf16PairsAreTheLayoutByteForByte) {
  Random random(12);
  for (const DType type : kAllTypes) {
    for (const std::int32_t n : {1, 15, 16, 17, 64}) {
      const bool blocks = is_quantised(type);
      for (const std::int32_t k :
           blocks ? std::vector{32, 96, 576} : std::vector{1, 2, 3, 45, 255, 257, 600}) {
        const auto d = device(Isa::kAuto, 2);
        Weights w(*d, type, n, k, random, ops::Packing::kBF16Pairs);
        std::memset(w.packed.data(), 0xEE, w.packed.size());
        d->ops().pack(d->stream(), {w.raw.data(), n, k, type, w.packed.data(), w.view.packing});
        const std::vector<std::uint8_t> want = expected_pairs(type, n, k, w.raw.data());
        ASSERT_EQ(w.packed.size(), want.size());
        ASSERT_EQ(std::memcmp(w.view.data, want.data(), want.size()), 0)
            << dtype_name(type) << " n " << n << " k " << k;
      }
    }
  }
}

/// Reading past a row's end would fault.
TEST(Pack, ReadsNothingBehindTheLastRow) {
  for (const DType type : kAllTypes) {
    const std::int32_t n = 17, k = 96;
    const std::size_t bytes = static_cast<std::size_t>(n) *
                              (static_cast<std::size_t>(k) / block_elements(type)) * block_bytes(type);
    const std::size_t pages = (bytes + 4095) / 4096 * 4096;
    GuardedBuffer source(pages);
    const auto d = device(Isa::kAuto);
    for (const ops::Packing packing : {ops::Packing::kStored, ops::Packing::kBF16Pairs}) {
      Buffer packed(d->ops().packed_bytes(type, n, k, packing));
      d->ops().pack(d->stream(), {source.data() + pages - bytes, n, k, type, packed.data(), packing});
    }
  }
}

}  // namespace
}  // namespace barg::test::pack_test
