// Dequantisation to the bit: blocks of every ggml type with ggml's own values (corner cases first), read back
// through what the decoder uses: read_rows, pack and embed, and linear on unit vectors. And how large they
// are in memory.
#include "model/quants.h"

#include "model/ggml_types.h"
#include "model/golden_kit.h"

namespace barg::model::test::quants_test {
namespace {

struct Named {
  std::uint32_t id;
  int bar;  ///< percent of the file's size that the packed one may have; 0: only dequantised exactly
};

constexpr Named kTypes[] = {{30, 105}, {2, 105},  {3, 105},  {8, 105},  {6, 160},  {7, 160},
                            {10, 160}, {11, 160}, {12, 160}, {13, 160}, {14, 160}, {20, 160},
                            {23, 160}, {39, 160}, {40, 160}, {16, 0},   {17, 0},   {18, 0},
                            {19, 0},   {21, 0},   {22, 0},   {29, 0},   {34, 0},   {35, 0}};

/// Rows of blocks as a matrix [blocks, values of a block], packed.
struct Packed {
  Packed(ops::CpuDevice& device, const Tensor& t) {
    const auto n = static_cast<std::int32_t>(t.shape[0]);
    weight = {n, static_cast<std::int32_t>(t.shape[1]), *t.type.dtype, nullptr};
    std::vector<std::byte> rows(static_cast<std::size_t>(n) * read_row_bytes(t));
    // In two parts, as a loader that works slab by slab would.
    read_rows(t, 0, n / 3, rows.data());
    read_rows(t, n / 3, n - n / 3, rows.data() + static_cast<std::size_t>(n / 3) * read_row_bytes(t));
    storage.resize(device.ops().packed_bytes(weight.dtype, n, weight.k, ops::Packing::kStored) + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(storage.data()) + 63) / 64 * 64);
    device.ops().pack(device.stream(),
                      {.src = rows.data(), .n = n, .k = weight.k, .dtype = weight.dtype, .dst = aligned});
    weight.data = aligned;
  }
  ops::PackedWeight weight;
  std::vector<std::byte> storage;
};

/// Equal bits; a NaN is a NaN, and a zero that went through an integer has lost its sign.
::testing::AssertionResult same_values(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " numbers";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0 || (a[i] == 0 && b[i] == 0) ||
        (a[i] != a[i] && b[i] != b[i]))
      continue;
    return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

/// All rows through the embedding, the last first.
std::vector<float> gathered(ops::CpuDevice& device, const ops::PackedWeight& w) {
  const auto n = static_cast<std::size_t>(w.n), k = static_cast<std::size_t>(w.k);
  std::vector<std::int32_t> ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<std::int32_t>(n - 1 - i);
  std::vector<float> out(n * k), reversed(n * k);
  device.ops().embed(device.stream(),
                     {.table = w, .ids = ids.data(), .rows = w.n, .scale = 1, .out = reversed.data()});
  for (std::size_t i = 0; i < n; ++i) std::copy_n(&reversed[i * k], k, &out[(n - 1 - i) * k]);
  return out;
}

/// Column i of the weight from linear on unit vector i: [k, n].
std::vector<float> products(ops::CpuDevice& device, const ops::PackedWeight& w) {
  const auto n = static_cast<std::size_t>(w.n), k = static_cast<std::size_t>(w.k);
  std::vector<float> unit(k * k, 0.0f), out(k * n);
  for (std::size_t i = 0; i < k; ++i) unit[i * k + i] = 1;
  device.ops().linear(device.stream(), {.weight = w,
                                        .recipe = Recipe::kF32,
                                        .x = unit.data(),
                                        .rows = w.k,
                                        .x_stride = w.k,
                                        .bias = nullptr,
                                        .out = out.data(),
                                        .out_stride = w.n,
                                        .workspace = nullptr});
  return out;
}

class Quants : public ::testing::TestWithParam<Named> {};

TEST_P(Quants, PackedRowsReadBackAsGgmlsValues) {
  const std::string path = barg::test::shared_data("quants/quants.safetensors");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path);
  const StoredType type = *ggml_type(GetParam().id);
  const std::string name = type.name;
  Tensor t = g.tensor(name + ".blocks");
  const auto want = g.floats(name + ".values");
  const std::int64_t rows = t.shape[0];
  ASSERT_EQ(t.shape[1], type.block_bytes);
  t.type = type;
  t.shape = {rows, type.block_elements};
  for (const ops::Isa isa : {ops::Isa::kScalar, ops::Isa::kAuto}) {
    ops::CpuDevice device({.threads = 1, .isa = isa});
    const Packed p(device, t);
    const auto k = static_cast<std::size_t>(p.weight.k), n = static_cast<std::size_t>(rows);
    EXPECT_TRUE(same_values(gathered(device, p.weight), want)) << device.isa_name();
    const auto product = products(device, p.weight);
    for (std::size_t r = 0; r < n; ++r) {
      bool finite = true;
      for (std::size_t i = 0; i < k; ++i) finite = finite && std::isfinite(want[r * k + i]);
      // 0 * inf is NaN in a sum; and 0 + -0 is +0.
      for (std::size_t i = 0; finite && i < k; ++i)
        ASSERT_EQ(product[i * n + r], want[r * k + i]) << name << " block " << r << " element " << i;
    }
  }
}

TEST_P(Quants, PackedSizeStaysNearTheFilesSize) {
  const StoredType type = *ggml_type(GetParam().id);
  ops::CpuDevice device({.threads = 1});
  const std::size_t packed = device.ops().packed_bytes(*type.dtype, 64, 512, ops::Packing::kStored);
  const std::size_t file = std::size_t{64} * 512 / type.block_elements * type.block_bytes;
  // Lattices are spelt out, to a third of f32.
  if (GetParam().bar == 0) {
    EXPECT_LE(packed, std::size_t{64} * 512 * 10 / 8) << type.name;
    return;
  }
  EXPECT_LE(packed * 100, file * static_cast<std::size_t>(GetParam().bar)) << type.name;
}

INSTANTIATE_TEST_SUITE_P(Types, Quants, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(ggml_type(info.param.id)->name); });

}  // namespace
}  // namespace barg::model::test::quants_test
