// Rows of the embedding table in every stored type: the CPU's bits, accesses, seeded errors.
#include "cuda/embedding.cuh"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cpu_reference.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;

struct EmbedCase {
  TableType type = TableType::kQ8_0;
  int vocab = 17, dim = 512;
  std::vector<std::int32_t> ids{3, 0, 16, 3, 9};
  float scale = 1;
  emu::Schedule schedule{};
  emu::Fault fault{};
};

struct EmbedResult {
  std::vector<std::byte> table;
  std::vector<float> out;
  test::Findings findings;
  std::uint64_t read = 0;
};

std::size_t row_bytes(const EmbedCase& c) {
  return static_cast<std::size_t>(c.dim / table_block_elements(c.type) * table_block_bytes(c.type));
}

/// Random bytes, but scales that are numbers.
std::vector<std::byte> random_table(const EmbedCase& c) {
  std::mt19937 random(static_cast<unsigned>(c.dim + c.vocab));
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::byte> table(row_bytes(c) * static_cast<std::size_t>(c.vocab));
  for (std::byte& b : table) b = static_cast<std::byte>(random());
  const auto put_half = [&](std::size_t at) {
    const std::uint16_t h = ops::f32_to_f16(normal(random));
    std::memcpy(table.data() + at, &h, 2);
  };
  const auto block = static_cast<std::size_t>(table_block_bytes(c.type));
  for (std::size_t at = 0; at < table.size(); at += block) {
    switch (c.type) {
      case TableType::kF32:
        for (std::size_t i = 0; i < 4; ++i) {
          const float x = normal(random);
          std::memcpy(table.data() + at + 4 * i, &x, 4);
        }
        break;
      case TableType::kF16:
      case TableType::kBF16:
        for (std::size_t i = 0; i < 4; ++i) put_half(at + 2 * i);
        break;
      case TableType::kQ8_0:
      case TableType::kQ4_0: put_half(at); break;
      case TableType::kQ4_1:
      case TableType::kQ4_K:
        put_half(at);
        put_half(at + 2);
        break;
      case TableType::kQ6_K: put_half(at + 208); break;
    }
  }
  return table;
}

template <TableType kType>
void launch_embed(Device& device, const EmbedArgs& args, int rows) {
  launch<embed_kernel<kType>>(device.stream(), embed_launch(rows, args.dim), args);
}

EmbedResult run_embed(const EmbedCase& c) {
  Device device(c.schedule);
  EmbedResult r;
  r.table = random_table(c);
  EmbedArgs args{};
  args.table = test::uploaded(device, r.table, "table");
  args.vocab = c.vocab;
  args.dim = c.dim;
  args.ids = test::uploaded(device, c.ids, "ids");
  args.scale = c.scale;
  const std::size_t numbers = c.ids.size() * static_cast<std::size_t>(c.dim);
  args.out = test::room<float>(device, numbers, "out");
  device.set_fault(c.fault);
  device.count_sites(true);
  device.take_traffic(const_cast<std::byte*>(args.table));
  const int rows = static_cast<int>(c.ids.size());
  switch (c.type) {
    case TableType::kF32: launch_embed<TableType::kF32>(device, args, rows); break;
    case TableType::kF16: launch_embed<TableType::kF16>(device, args, rows); break;
    case TableType::kBF16: launch_embed<TableType::kBF16>(device, args, rows); break;
    case TableType::kQ8_0: launch_embed<TableType::kQ8_0>(device, args, rows); break;
    case TableType::kQ4_0: launch_embed<TableType::kQ4_0>(device, args, rows); break;
    case TableType::kQ4_1: launch_embed<TableType::kQ4_1>(device, args, rows); break;
    case TableType::kQ4_K: launch_embed<TableType::kQ4_K>(device, args, rows); break;
    case TableType::kQ6_K: launch_embed<TableType::kQ6_K>(device, args, rows); break;
  }
  r.findings = test::findings(device);
  r.read = device.take_traffic(const_cast<std::byte*>(args.table)).read;
  r.out = test::downloaded(device, args.out, numbers);
  return r;
}

std::uint32_t ggml_type(TableType t) {
  switch (t) {
    case TableType::kF32: return 0;
    case TableType::kF16: return 1;
    case TableType::kBF16: return 30;
    case TableType::kQ8_0: return 8;
    case TableType::kQ4_0: return 2;
    case TableType::kQ4_1: return 3;
    case TableType::kQ4_K: return 12;
    case TableType::kQ6_K: return 14;
  }
  return 0;
}

bool is_the_cpus(const EmbedCase& c, const EmbedResult& r) {
  const std::vector<float> want = cpu::embedded(ggml_type(c.type), r.table, c.vocab, c.dim, c.ids, c.scale);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!(r.out[i] == want[i])) return false;  // a zero may have lost its sign; a NaN is nobody's
  }
  return want.size() == r.out.size();
}

class Embed : public testing::TestWithParam<TableType> {};

TEST_P(Embed, GivesTheCpusRows) {
  const int unit = table_block_elements(GetParam());
  int turn = 0;
  for (const int blocks : {1, 3, 1024 / unit, 1024 / unit + 1}) {
    for (const float scale : {1.0F, 33.9411F}) {
      EmbedCase c{.type = GetParam(), .dim = blocks * unit, .scale = scale, .schedule = test::schedule(turn++)};
      const EmbedResult r = run_embed(c);
      EXPECT_EQ(r.findings.text, "") << c.dim;
      EXPECT_TRUE(is_the_cpus(c, r)) << c.dim;
    }
  }
}

TEST_P(Embed, ReadsARowOnceInWholeSectors) {
  const EmbedCase c{.type = GetParam(), .dim = 2048};
  const EmbedResult r = run_embed(c);
  test::expect_wide(r.findings);
  // Two tiles a row, each with up to a sector before and behind it.
  EXPECT_LE(r.read, c.ids.size() * (row_bytes(c) + 4 * 32));
}

std::string type_name(const testing::TestParamInfo<TableType>& info) {
  return std::array{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"}[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Types, Embed,
                         testing::Values(TableType::kF32, TableType::kF16, TableType::kBF16, TableType::kQ8_0,
                                         TableType::kQ4_0, TableType::kQ4_1, TableType::kQ4_K, TableType::kQ6_K),
                         type_name);

TEST(EmbedFaults, EachIsSeenByItsDetector) {
  struct Mutant {
    const char* name;
    test::Kind detector;  ///< kDeadlock: the numbers are wrong
    emu::Fault fault;
  };
  const test::Kind numbers = test::Kind::kDeadlock;
  const std::vector<Mutant> mutants = {
      {"no barrier behind the bytes", test::Kind::kRace,
       test::fault_at(emu::Fault::Kind::kNoBarrier, "embedding.cuh", "The bytes of the tile are there", "sync_block();")},
      {"the next row", numbers, test::value("embed.row", [](double x) { return x < 16 ? x + 1 : x; })},
      {"a row that there is not", numbers, test::value("embed.row", [](double) { return 3000; })},  // and reads nothing
      {"the scale twice", numbers, test::value("embed.scale", [](double x) { return x * x; })},
  };
  for (const Mutant& m : mutants) {
    if (m.detector == test::Kind::kRace && !emu::hooked()) continue;
    EmbedCase c{.scale = 3};
    EXPECT_TRUE(is_the_cpus(c, run_embed(c)));
    c.fault = m.fault;
    const EmbedResult r = run_embed(c);
    EXPECT_TRUE(m.detector == numbers ? !is_the_cpus(c, r) : r.findings.kinds.contains(m.detector)) << m.name;
  }
}

}  // namespace
}  // namespace barg::cuda
