// Norm, and rotation with the KV write, in the launch of the product before them: to the bit what kernels of their own make
// of it, whichever blocks come last.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "cuda/norm.cuh"
#include "gemm_case.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Copies;
using emu::Order;
using test::downloaded;
using test::room;
using test::uploaded;

constexpr int kBlockTokens = 16;
constexpr float kEps = 1e-5f;

std::vector<float> normals(int what, int n) {
  std::vector<float> v;
  for (int i = 0; i < n; ++i) v.push_back(test::normal_of(static_cast<std::uint64_t>(what) << 40 ^ static_cast<unsigned>(i)));
  return v;
}

int rotary_dim(const Behind& b) { return b.head_dim - (b.interleaved ? 6 : b.head_dim / 4); }

struct Tokens {
  int count, position;
};
/// Sequences of the rows, most of them short.
std::vector<Tokens> sequences(int rows) {
  std::vector<Tokens> all;
  for (int row = 0; row < rows; row += all.back().count) {
    const int s = static_cast<int>(all.size());
    all.push_back({std::min(1 + s % 3 * 4, rows - row), 11 * s});
  }
  return all;
}

}  // namespace

BehindLaunch::BehindLaunch(emu::Device& device, const GemmCase& c, const GemmPlan& plan, GemmArgs& args)
    : device_(device), c_(c), product_(args) {
  if (c.behind.norm) make_norm();
  if (c.behind.q_heads > 0) make_rope();
  if (c.behind.alone) return;
  if (c.behind.norm) {
    counters_ = static_cast<std::size_t>(gemm_norm_counters(plan));
    norm_.counters = uploaded(device, std::vector<std::int32_t>(counters_), "counters of rows");
    args.norm = norm_;
  }
  if (c.behind.q_heads > 0) {
    counters_ = static_cast<std::size_t>(gemm_rope_counters(plan, c.behind.q_heads, c.behind.kv_heads));
    rope_.counters = uploaded(device, std::vector<std::int32_t>(counters_), "counters of heads");
    args.rope = rope_;
  }
}

void BehindLaunch::make_norm() {
  const auto n = static_cast<std::size_t>(c_.rows * c_.n);
  norm_.weight = uploaded(device_, normals(1, c_.n), "norm");
  norm_.offset = 1;
  norm_.eps = kEps;
  norm_.half = room<std::uint16_t>(device_, n, "normed half");
  if (c_.behind.norm_out) norm_.out = room<float>(device_, n, "normed");
}

void BehindLaunch::make_rope() {
  const Behind& b = c_.behind;
  RopeKvArgs& r = rope_.args;
  r.q = product_.out;
  r.k = r.q + b.q_heads * b.head_dim;
  r.v = r.k + b.kv_heads * b.head_dim;
  r.q_stride = r.kv_stride = product_.out_stride;
  if (b.head_norm) r.q_norm = uploaded(device_, normals(2, b.head_dim), "q norm");
  if (b.head_norm) r.k_norm = uploaded(device_, normals(3, b.head_dim), "k norm");
  r.norm_eps = kEps;
  r.norm_offset = 0;
  r.rotary_dim = rotary_dim(b);
  r.cos = uploaded(device_, normals(4, c_.rows * r.rotary_dim / 2), "cos");
  r.sin = uploaded(device_, normals(5, c_.rows * r.rotary_dim / 2), "sin");
  r.interleaved = b.interleaved;
  r.num_q_heads = b.q_heads;
  r.rows = product_.rows;
  rope_.type = b.kv;
  const auto plane = static_cast<std::int64_t>(kv_plane_bytes(b.kv, kBlockTokens, b.head_dim));
  r.kv.block_stride = 2 * plane * b.kv_heads + 256;
  r.kv.head_stride = 2 * plane;
  r.kv.v_offset = plane;
  r.kv.block_tokens = kBlockTokens;
  r.kv.num_kv_heads = b.kv_heads;
  r.kv.head_dim = b.head_dim;
  std::vector<ops::Segment> segments;
  BlockId blocks = 0;
  int row = 0;
  for (const Tokens& s : sequences(c_.rows)) {
    std::vector<BlockId> table;
    for (int at = 0; at < s.position + s.count; at += kBlockTokens) table.push_back(blocks++);
    std::reverse(table.begin(), table.end());
    segments.push_back({row, s.count, s.position, uploaded(device_, table, "table")});
    row += s.count;
  }
  r.segments = uploaded(device_, segments, "segments");
  r.num_segments = static_cast<std::int32_t>(segments.size());
  kv_bytes_ = static_cast<std::size_t>(blocks * r.kv.block_stride);
  r.kv.base = room<std::byte>(device_, kv_bytes_, "kv");
}

namespace {

template <KvType kKv>
void launch_rope(emu::Device& device, const RopeKvArgs& args) {
  const LaunchShape shape{.grid_x = rope_kv_grid(args.rows, args.num_q_heads, args.kv.num_kv_heads),
                          .threads = kRopeThreads};
  switch (args.kv.head_dim) {
    case 64: return launch<rope_kv_kernel<kKv, 64>>(device.stream(), shape, args);
    case 96: return launch<rope_kv_kernel<kKv, 96>>(device.stream(), shape, args);
    case 128: return launch<rope_kv_kernel<kKv, 128>>(device.stream(), shape, args);
    default: return launch<rope_kv_kernel<kKv, 256>>(device.stream(), shape, args);
  }
}

}  // namespace

void BehindLaunch::launch() {
  if (c_.behind.norm) {
    const NormArgs args{.x = product_.out,
                        .x_stride = product_.out_stride,
                        .weight = norm_.weight,
                        .weight_stride = 0,
                        .offset = norm_.offset,
                        .eps = norm_.eps,
                        .rows = c_.rows,
                        .groups = 1,
                        .dim = c_.n,
                        .out = norm_.out,
                        .out_stride = c_.n,
                        .half = norm_.half};
    if (c_.type == Half::kF16) {
      cuda::launch<norm_kernel<Half::kF16>>(device_.stream(), norm_launch(c_.rows, 1), args);
    } else {
      cuda::launch<norm_kernel<Half::kBF16>>(device_.stream(), norm_launch(c_.rows, 1), args);
    }
  }
  if (c_.behind.q_heads == 0) return;
  switch (c_.behind.kv) {
    case KvType::kF16: return launch_rope<KvType::kF16>(device_, rope_.args);
    case KvType::kBF16: return launch_rope<KvType::kBF16>(device_, rope_.args);
    case KvType::kFp8: return launch_rope<KvType::kFp8>(device_, rope_.args);
  }
}

void BehindLaunch::take(GemmResult& result) {
  const auto n = static_cast<std::size_t>(c_.rows * c_.n);
  if (c_.behind.norm) result.normed_half = downloaded(device_, norm_.half, n);
  if (norm_.out != nullptr) result.normed = downloaded(device_, norm_.out, n);
  if (c_.behind.q_heads > 0) {
    result.kv_written = device_.take_traffic(rope_.args.kv.base).written;
    result.kv = downloaded(device_, rope_.args.kv.base, kv_bytes_);
  }
  if (counters_ == 0) return;
  const std::int32_t* const counters = norm_.counters != nullptr ? norm_.counters : rope_.counters;
  for (const std::int32_t count : downloaded(device_, counters, counters_)) {
    result.counters_are_zero = result.counters_are_zero && count == 0;
  }
}

namespace {

/// Behind the product in one launch as in two.
void expect_same(GemmCase c) {
  SCOPED_TRACE(testing::Message() << name_of(c) << " n " << c.n << " rows " << c.rows << " head of " << c.behind.head_dim);
  c.behind.alone = false;
  const GemmResult one = run_gemm(c);
  EXPECT_EQ(one.text, "");
  EXPECT_TRUE(one.counters_are_zero);
  EXPECT_TRUE(one.gaps_are_untouched);
  c.behind.alone = true;
  const GemmResult two = run_gemm(c);
  EXPECT_EQ(two.text, "");
  EXPECT_TRUE(one.out == two.out);
  EXPECT_TRUE(one.normed == two.normed);
  EXPECT_TRUE(one.normed_half == two.normed_half);
  EXPECT_TRUE(one.kv == two.kv);
  EXPECT_EQ(one.kv_written, two.kv_written);
}

GemmCase norm_case(int n, int rows) {
  GemmCase c;
  c.behind.norm = true;
  c.accumulate = true;
  c.n = n;
  c.rows = rows;
  return c;
}

GemmCase heads_case(int q_heads, int kv_heads, int head_dim, int rows) {
  GemmCase c;
  c.behind.q_heads = q_heads;
  c.behind.kv_heads = kv_heads;
  c.behind.head_dim = head_dim;
  c.n = (q_heads + 2 * kv_heads) * head_dim;
  c.k = 64;
  c.rows = rows;
  return c;
}

constexpr std::array kRows = {1, 2, 7, 8, 9, 16, 33, 63, 64};

emu::Schedule any_schedule(int turn) {
  emu::Schedule s = test::schedule(turn);
  s.copies = static_cast<Copies>(turn % 3);
  return s;
}

constexpr std::pair<GemmFormat, Half> kPairs[] = {
    {GemmFormat::kF16, Half::kF16},   {GemmFormat::kBF16, Half::kBF16}, {GemmFormat::kQ8_0, Half::kF16},
    {GemmFormat::kQ8_0, Half::kBF16}, {GemmFormat::kQ4_0, Half::kF16},  {GemmFormat::kQ4_0, Half::kBF16},
    {GemmFormat::kQ4_1, Half::kF16},  {GemmFormat::kQ4_1, Half::kBF16}, {GemmFormat::kQ4_K, Half::kF16},
    {GemmFormat::kQ4_K, Half::kBF16}, {GemmFormat::kQ6_K, Half::kF16},  {GemmFormat::kQ6_K, Half::kBF16},
};

TEST(GemmNorm, IsThatOfTheKernelInEveryFormat) {
  int turn = 0;
  for (const auto& [format, type] : kPairs) {
    for (const int rows : {kRows[static_cast<std::size_t>(turn) % 4], kRows[4 + static_cast<std::size_t>(turn) % 3]}) {
      GemmCase c = norm_case(std::array{136, 292, 576}[static_cast<std::size_t>(turn) % 3], rows);
      c.format = format;
      c.type = type;
      c.bias = turn % 2 == 0;
      c.behind.norm_out = turn % 3 != 0;
      c.schedule = any_schedule(turn++);
      expect_same(c);
    }
  }
}

TEST(GemmNorm, IsThatOfTheKernelForEveryNumberOfRows) {
  int turn = 0;
  for (const int rows : kRows) {
    for (const bool shared_out : {false, true}) {
      GemmCase c = norm_case(200, rows);
      c.k = 512;
      c.shared_out = shared_out;
      c.schedule = any_schedule(turn++);
      expect_same(c);
    }
  }
}

/// More numbers than the ring holds, few of them, and more rows than one block has.
TEST(GemmNorm, OfLongAndShortRowsAndOfSeveralBlocks) {
  for (const auto& [n, rows, tile] : {std::tuple{5200, 2, GemmTile::kNarrow},
                                      {4300, 5, GemmTile::kMiddle},
                                      {4, 3, GemmTile::kNarrow},
                                      {132, 20, GemmTile::kNarrow},
                                      {68, 70, GemmTile::kMiddle}}) {
    if (emu::hooked() && n > 4000) continue;
    GemmCase c = norm_case(n, rows);
    c.k = 64;
    c.tile = tile;
    c.schedule.blocks = Order::kRandom;
    expect_same(c);
  }
}

TEST(GemmNorm, NoScheduleChangesABit) {
  GemmCase c = norm_case(264, 9);
  c.k = 768;
  c.shared_out = true;
  const GemmResult first = run_gemm(c);
  for (int turn = 1; turn < 9; ++turn) {
    c.schedule = any_schedule(turn);
    const GemmResult r = run_gemm(c);
    EXPECT_EQ(r.text, "");
    EXPECT_TRUE(r.normed == first.normed);
  }
}

TEST(GemmNorm, ReadsARowOnceMoreAndWideAccessesStayWide) {
  for (const int rows : {5, 64}) {
    GemmCase c = norm_case(640, rows);
    c.k = 64;
    c.count_sites = true;
    const GemmResult r = run_gemm(c);
    EXPECT_EQ(r.out_read, 2U * 4 * static_cast<unsigned>(rows * c.n));  // old numbers, new ones
    test::expect_wide({{}, {}, r.sites});
  }
}

TEST(GemmRope, IsThatOfTheKernelInEveryFormat) {
  int turn = 0;
  for (const auto& [format, type] : kPairs) {
    for (const bool few : {true, false}) {
      GemmCase c = heads_case(1 + turn % 3, 1 + turn / 2 % 2, std::array{64, 96, 128, 256, 96}[static_cast<std::size_t>(turn) % 5],
                              kRows[static_cast<std::size_t>(few ? turn % 4 : 4 + turn % 3)]);
      c.format = format;
      c.type = type;
      c.k = std::max(gemm_layout(format).block, 64);
      c.bias = turn % 2 == 0;
      c.behind.kv = static_cast<KvType>(turn % 3);
      c.behind.head_norm = turn % 4 != 0;
      c.behind.interleaved = turn % 3 == 1;
      c.schedule = any_schedule(turn++);
      expect_same(c);
    }
  }
}

TEST(GemmRope, IsThatOfTheKernelForEveryNumberOfRows) {
  int turn = 0;
  for (const int rows : kRows) {
    for (const bool shared_out : {false, true}) {
      GemmCase c = heads_case(2, 1, std::array{64, 96, 128}[static_cast<std::size_t>(turn) % 3], rows);
      c.k = 512;
      c.shared_out = shared_out;
      c.behind.kv = static_cast<KvType>(turn / 2 % 3);
      c.schedule = any_schedule(turn++);
      expect_same(c);
    }
  }
}

/// A layer whose keys are another's, and rows of several blocks.
TEST(GemmRope, OfQAloneAndOfSeveralBlocks) {
  expect_same(heads_case(3, 0, 96, 4));
  GemmCase c = heads_case(1, 2, 96, 20);
  c.tile = GemmTile::kNarrow;
  c.schedule = {Order::kReverse, Order::kRandom, Copies::kEarly, 3};
  expect_same(c);
}

TEST(GemmRope, NoScheduleChangesABit) {
  GemmCase c = heads_case(2, 2, 96, 9);
  c.k = 768;
  c.shared_out = true;
  c.behind.kv = KvType::kFp8;
  const GemmResult first = run_gemm(c);
  for (int turn = 1; turn < 9; ++turn) {
    c.schedule = any_schedule(turn);
    const GemmResult r = run_gemm(c);
    EXPECT_EQ(r.text, "");
    EXPECT_TRUE(r.out == first.out);
    EXPECT_TRUE(r.kv == first.kv);
  }
}

TEST(GemmRope, ReadsEachHeadOnceAndWideAccessesStayWide) {
  for (const int rows : {5, 64}) {
    GemmCase c = heads_case(2, 1, 128, rows);
    c.count_sites = true;
    const GemmResult r = run_gemm(c);
    EXPECT_EQ(r.out_read, 4U * static_cast<unsigned>(rows * c.n));
    EXPECT_EQ(r.kv_written, emu::hooked() ? 2U * 2 * 128 * static_cast<unsigned>(rows) : 0U);
    // The segments of 32 lanes are 24 bytes apart.
    const auto line = [](const char* call) {
      return "rope_kv.cuh:" + std::to_string(test::line_after("rope_kv.cuh", "bool find_segment", call));
    };
    test::expect_wide({{}, {}, r.sites}, {line("row_begin"), line("row_count")});
  }
}

TEST(GemmPlan, WhatComesBehindPaysWithFewRows) {
  EXPECT_TRUE(gemm_norm_pays(1, 4096));
  EXPECT_TRUE(gemm_norm_pays(4, 4096));
  EXPECT_FALSE(gemm_norm_pays(8, 4096));
  EXPECT_TRUE(gemm_norm_pays(16, 1024));
  EXPECT_FALSE(gemm_norm_pays(64, 1024));
  EXPECT_FALSE(gemm_norm_pays(65, 16));
  EXPECT_TRUE(gemm_rope_pays(8));
  EXPECT_TRUE(gemm_rope_pays(16));
  EXPECT_FALSE(gemm_rope_pays(17));
  for (const int rows : {1, 8, 9, 64, 65}) {
    const GemmPlan plan = plan_gemm({GemmFormat::kBF16, 4096, 4096, false, rows, 132});
    EXPECT_EQ(gemm_has_behind(plan), rows <= 64);
    EXPECT_EQ(gemm_rope_counters(plan, 32, 8), 40);
  }
}

}  // namespace
}  // namespace barg::cuda
