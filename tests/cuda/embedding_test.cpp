// Rows of a packed embedding table in every format: the CPU's bits, whose ids they are, accesses, seeded errors.
#include "cuda/embedding.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "cpu_reference.h"
#include "cuda/gemm_repack.cuh"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;
using Ids = std::vector<std::int32_t>;

struct EmbedCase {
  GemmFormat format = GemmFormat::kQ8_0;
  int vocab = 37, dim = 512;
  Ids ids{3, 0, 36, 3, 9, 31, 16};
  Ids previous{};  ///< empty: nullptr
  float scale = 1;
  emu::Schedule schedule{};
  emu::Fault fault{};
};

struct EmbedResult {
  std::vector<std::byte> table;
  std::vector<float> out;
  test::Findings findings;
  std::uint64_t read = 0;  ///< bytes of the packed table
};

std::size_t row_bytes(const EmbedCase& c) {
  const GemmLayout layout = gemm_layout(c.format);
  return static_cast<std::size_t>(c.dim / layout.block * layout.block_bytes);
}

/// As files have it: random bytes, but scales that are numbers.
std::vector<std::byte> random_table(const EmbedCase& c) {
  std::mt19937 random(static_cast<unsigned>(c.dim + c.vocab));
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::byte> table(row_bytes(c) * static_cast<std::size_t>(c.vocab));
  for (std::byte& b : table) b = static_cast<std::byte>(random());
  const auto put_half = [&](std::size_t at) {
    const std::uint16_t h = ops::f32_to_f16(normal(random));
    std::memcpy(table.data() + at, &h, 2);
  };
  const auto block = static_cast<std::size_t>(gemm_layout(c.format).block_bytes);
  for (std::size_t at = 0; at < table.size(); at += block) {
    const bool has_minimum = c.format == GemmFormat::kQ4_1 || c.format == GemmFormat::kQ4_K;
    put_half(c.format == GemmFormat::kQ6_K ? at + 208 : at);
    if (has_minimum) put_half(at + 2);
  }
  return table;
}

template <GemmFormat F>
void launch_embed(Device& device, const EmbedCase& c, const EmbedResult& r, EmbedArgs args) {
  const GemmRepackArgs repack{.rows = test::uploaded(device, r.table, "file"),
                              .count = c.vocab,
                              .k = c.dim,
                              .weight = const_cast<std::byte*>(args.weight),
                              .first_tile = 0};
  const LaunchShape shape{.grid_x = gemm_repack_grid(F, c.vocab, c.dim), .threads = kGemmRepackThreads};
  launch<gemm_repack_kernel<F>>(device.stream(), shape, repack);
  device.set_fault(c.fault);
  device.count_sites(true);
  device.take_traffic(const_cast<std::byte*>(args.weight));
  launch<embed_kernel<F>>(device.stream(), embed_launch(args.rows, args.k), args);
}

EmbedResult run_embed(const EmbedCase& c) {
  Device device(c.schedule);
  EmbedResult r;
  r.table = random_table(c);
  const auto bytes = static_cast<std::size_t>(gemm_weight_bytes(c.format, c.vocab, c.dim));
  EmbedArgs args{};
  args.weight = test::room<std::byte>(device, bytes, "table");
  args.n = c.vocab;
  args.k = c.dim;
  args.ids = test::uploaded(device, c.ids, "ids");
  args.previous = c.previous.empty() ? nullptr : test::uploaded(device, c.previous, "previous");
  args.rows = static_cast<int>(c.ids.size());
  args.scale = c.scale;
  const std::size_t numbers = c.ids.size() * static_cast<std::size_t>(c.dim);
  args.out = test::room<float>(device, numbers, "out");
  switch (c.format) {
    case GemmFormat::kF16: launch_embed<GemmFormat::kF16>(device, c, r, args); break;
    case GemmFormat::kBF16: launch_embed<GemmFormat::kBF16>(device, c, r, args); break;
    case GemmFormat::kQ8_0: launch_embed<GemmFormat::kQ8_0>(device, c, r, args); break;
    case GemmFormat::kQ4_0: launch_embed<GemmFormat::kQ4_0>(device, c, r, args); break;
    case GemmFormat::kQ4_1: launch_embed<GemmFormat::kQ4_1>(device, c, r, args); break;
    case GemmFormat::kQ4_K: launch_embed<GemmFormat::kQ4_K>(device, c, r, args); break;
    case GemmFormat::kQ6_K: launch_embed<GemmFormat::kQ6_K>(device, c, r, args); break;
  }
  r.findings = test::findings(device);
  r.read = device.take_traffic(const_cast<std::byte*>(args.weight)).read;
  r.out = test::downloaded(device, args.out, numbers);
  return r;
}

std::uint32_t ggml_type(GemmFormat f) {
  switch (f) {
    case GemmFormat::kF16: return 1;
    case GemmFormat::kBF16: return 30;
    case GemmFormat::kQ8_0: return 8;
    case GemmFormat::kQ4_0: return 2;
    case GemmFormat::kQ4_1: return 3;
    case GemmFormat::kQ4_K: return 12;
    case GemmFormat::kQ6_K: return 14;
  }
  return 0;
}

/// Rows `ids`.
bool is_the_cpus(const EmbedCase& c, const EmbedResult& r, const Ids& ids) {
  const std::vector<float> want = cpu::embedded(ggml_type(c.format), r.table, c.vocab, c.dim, ids, c.scale);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!(r.out[i] == want[i])) return false;  // a zero may have lost its sign; a NaN is nobody's
  }
  return want.size() == r.out.size();
}
bool is_the_cpus(const EmbedCase& c, const EmbedResult& r) { return is_the_cpus(c, r, c.ids); }

class Embed : public testing::TestWithParam<GemmFormat> {};

TEST_P(Embed, GivesTheCpusRows) {
  const int block = std::max(gemm_layout(GetParam()).block, 8);
  int turn = 0;
  for (const int blocks : {1, 3, 1024 / block, 1024 / block + 1}) {
    for (const float scale : {1.0F, 33.9411F}) {
      EmbedCase c{.format = GetParam(), .dim = blocks * block, .scale = scale, .schedule = test::schedule(turn++)};
      const EmbedResult r = run_embed(c);
      EXPECT_EQ(r.findings.text, "") << c.dim;
      EXPECT_TRUE(is_the_cpus(c, r)) << c.dim;
    }
  }
}

TEST_P(Embed, ReadsNoMoreThanItsPairsOfRows) {
  const EmbedCase c{.format = GetParam(), .dim = 2048};
  const EmbedResult r = run_embed(c);
  // A lane's codes are of two rows. The factors of 32 columns are four bytes of a sector for eight pairs of rows, and
  // Q6_K's upper bits half a sector: both narrow, and small beside the codes.
  std::set<std::string> narrow;
  for (const auto& [marker, call] : {std::pair{"std::uint32_t high(", "words()"},
                                     {"GemmFactor factor(", "std::uint32_t w = "},
                                     {"GemmFactor factor(", "{half(words()[kSupers"},
                                     {"GemmFactor factor(", "std::uint32_t d = "},
                                     {"GemmFactor factor(", "words()[kScales + (step / 2 * 2 + 1)"}}) {
    narrow.insert("gemm_unit.cuh:" + std::to_string(test::line_after("gemm_unit.cuh", marker, call)));
  }
  test::expect_wide(r.findings, narrow);
  const std::size_t threads = c.ids.size() * 2048 / 8;
  const std::size_t codes = threads * 4 * static_cast<std::size_t>(gemm_layout(c.format).code_words);
  EXPECT_GE(r.read, codes);
  EXPECT_LE(r.read, codes + (emu::hooked() ? threads * 2 * 12 : 0));
}

TEST_P(Embed, TakesIdsThatAnEarlierStepChose) {
  EmbedCase c{.format = GetParam(), .ids = {-2, 5, -1, -4, -2}, .previous = {9, 36, 1, 0}};
  const EmbedResult r = run_embed(c);
  EXPECT_EQ(r.findings.text, "");
  EXPECT_TRUE(is_the_cpus(c, r, {36, 5, 9, 0, 36}));
}

TEST_P(Embed, WhatIsNoIdGivesZeros) {
  EmbedCase c{.format = GetParam(), .ids = {-1, 37, -2, 7}, .previous = {-1, 1 << 30}};
  const EmbedResult r = run_embed(c);
  EXPECT_EQ(r.findings.text, "");
  const auto end = r.out.begin() + 3 * c.dim;
  EXPECT_EQ(std::count(r.out.begin(), end, 0.0F), 3 * c.dim);
  EmbedResult row;
  row.table = r.table;
  row.out.assign(end, r.out.end());
  EXPECT_TRUE(is_the_cpus(c, row, {7}));
}

std::string format_name(const testing::TestParamInfo<GemmFormat>& info) { return gemm_layout(info.param).name; }
INSTANTIATE_TEST_SUITE_P(Formats, Embed,
                         testing::Values(GemmFormat::kF16, GemmFormat::kBF16, GemmFormat::kQ8_0, GemmFormat::kQ4_0,
                                         GemmFormat::kQ4_1, GemmFormat::kQ4_K, GemmFormat::kQ6_K),
                         format_name);

TEST(EmbedFaults, EachChangesTheNumbers) {
  const std::vector<std::pair<const char*, emu::Fault>> mutants = {
      {"the next row", test::value("embed.id", [](double x) { return x < 36 ? x + 1 : x; })},
      {"a row that there is not", test::value("embed.id", [](double) { return 3000; })},
      {"the next lane", test::value("embed.lane", [](double x) { return x < 31 ? x + 1 : x; })},
      {"the scale twice", test::value("embed.scale", [](double x) { return x * x; })},
  };
  EmbedCase c{.scale = 3};
  EXPECT_TRUE(is_the_cpus(c, run_embed(c)));
  for (const auto& [name, fault] : mutants) {
    c.fault = fault;
    EXPECT_FALSE(is_the_cpus(c, run_embed(c))) << name;
  }
}

}  // namespace
}  // namespace barg::cuda
