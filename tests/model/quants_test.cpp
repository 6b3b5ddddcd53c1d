// Dequantisation to the bit: 64 blocks of each type with ggml's own values (corner cases first), read back
// through what the decoder uses, pack + embed, and through linear on unit vectors.
#include "model/golden_kit.h"

namespace barg::model::test {
namespace {

struct Named {
  const char* name;
  DType type;
};

/// Rows of `blocks` [64, bytes] as a matrix [64, block_elements], packed.
struct Packed {
  Packed(ops::CpuDevice& device, const Tensor& blocks, DType type) {
    weight = {64, static_cast<std::int32_t>(block_elements(type)), type, nullptr};
    storage.resize(device.ops().packed_bytes(type, weight.n, weight.k, ops::Packing::kStored) + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(storage.data()) + 63) / 64 * 64);
    device.ops().pack(
        device.stream(),
        {.src = blocks.bytes.data(), .n = weight.n, .k = weight.k, .dtype = type, .dst = aligned});
    weight.data = aligned;
  }
  ops::PackedWeight weight;
  std::vector<std::byte> storage;
};

class Quants : public ::testing::TestWithParam<Named> {};

TEST_P(Quants, PackedRowsReadBackAsGgmlsValues) {
  const std::string path = barg::test::shared_data("quants/quants.safetensors");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path);
  const std::string name = GetParam().name;
  const auto want = g.floats(name + ".values");
  std::vector<std::int32_t> ids(64);
  for (std::size_t i = 0; i < 64; ++i) ids[i] = static_cast<std::int32_t>(63 - i);
  for (const ops::Isa isa : {ops::Isa::kScalar, ops::Isa::kAuto}) {
    ops::CpuDevice device({.threads = 1, .isa = isa});
    const Packed p(device, g.tensor(name + ".blocks"), GetParam().type);
    const auto k = static_cast<std::size_t>(p.weight.k);
    std::vector<float> out(64 * k), reversed(64 * k);
    device.ops().embed(
        device.stream(),
        {.table = p.weight, .ids = ids.data(), .rows = 64, .scale = 1, .out = reversed.data()});
    for (std::size_t i = 0; i < 64; ++i) std::copy_n(&reversed[i * k], k, &out[(63 - i) * k]);
    EXPECT_TRUE(same_bits(out, want)) << device.isa_name();

    std::vector<float> unit(k * k, 0.0f), product(k * 64);
    for (std::size_t i = 0; i < k; ++i) unit[i * k + i] = 1;
    std::vector<std::byte> scratch(
        device.ops().prepared_bytes(static_cast<std::int32_t>(k), p.weight.k, Recipe::kF32) + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    device.ops().linear(device.stream(), {.weight = p.weight,
                                          .recipe = Recipe::kF32,
                                          .x = unit.data(),
                                          .rows = p.weight.k,
                                          .x_stride = p.weight.k,
                                          .bias = nullptr,
                                          .out = product.data(),
                                          .out_stride = 64,
                                          .workspace = aligned});
    for (std::size_t n = 0; n < 64; ++n) {
      bool finite = true;
      for (std::size_t i = 0; i < k; ++i) finite = finite && std::isfinite(want[n * k + i]);
      // 0 * inf is NaN in a sum; and 0 + -0 is +0.
      for (std::size_t i = 0; finite && i < k; ++i)
        EXPECT_EQ(product[i * 64 + n], want[n * k + i]) << name << " block " << n << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Quants,
                         ::testing::Values(Named{"BF16", DType::kBF16}, Named{"Q4_0", DType::kQ4_0},
                                           Named{"Q4_1", DType::kQ4_1}, Named{"Q8_0", DType::kQ8_0}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace barg::model::test
