// Paged attention against float64, and against itself: alone, in a batch, in chunks, decoded, cut into any work list.
#include "cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "attention_case.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Copies;
using emu::Device;
using emu::Order;

/// About normal, of a place.
float number(int what, int sequence, int position, int head, int d) {
  const std::uint64_t x = static_cast<std::uint64_t>(what) << 60 ^ static_cast<std::uint64_t>(sequence) << 48 ^
                    static_cast<std::uint64_t>(position) << 24 ^ static_cast<std::uint64_t>(head) << 12 ^
                    static_cast<std::uint64_t>(d);
  return test::normal_of(x);
}

constexpr int kQ = 0, kK = 1, kV = 2;

/// K or V of a token and head: as bytes, and as the numbers that these say.
struct Stored {
  std::vector<std::byte> bytes;
  float scale = 1;
  std::vector<double> values;
};

Stored stored(const AttentionCase& c, int what, int sequence, int position, int head) {
  std::vector<float> x(static_cast<std::size_t>(c.dim));
  for (int d = 0; d < c.dim; ++d) x[static_cast<std::size_t>(d)] = number(what, sequence, position, head, d);
  const bool bad = c.bad_numbers && position == kBadPosition;
  Stored s;
  s.values.resize(x.size());
  s.bytes.resize(static_cast<std::size_t>(kv_row_bytes(c.kv, c.dim)));
  if (c.kv == KvType::kFp8) {
    float most = 0;
    for (const float v : x) most = std::max(most, std::fabs(v));
    s.scale = bad && what == kV ? std::nanf("") : most / 448;
    for (std::size_t d = 0; d < x.size(); ++d) {
      const std::uint8_t code = std::isnan(s.scale) ? 0 : ops::f32_to_f8(x[d] * (1 / s.scale));
      s.bytes[d] = static_cast<std::byte>(code);
      s.values[d] = static_cast<double>(ops::f8_to_f32_256th(code)) * 256 * static_cast<double>(s.scale);
    }
    return s;
  }
  for (std::size_t d = 0; d < x.size(); ++d) {
    if (bad && what == kV) x[d] = d == 0 ? 0 : x[d];
    if (bad && what == kK) x[d] = std::nanf("");
    const bool f16 = c.kv == KvType::kF16;
    const std::uint16_t h = f16 ? ops::f32_to_f16(x[d]) : ops::f32_to_bf16(x[d]);
    std::memcpy(s.bytes.data() + 2 * d, &h, 2);
    s.values[d] = static_cast<double>(f16 ? ops::f16_to_f32(h) : ops::bf16_to_f32(h));
  }
  return s;
}

template <class T>
T* uploaded(Device& device, const std::vector<T>& data, const std::string& name) {
  auto* const p = static_cast<T*>(device.allocate(std::max<std::size_t>(data.size() * sizeof(T), 1), name));
  device.upload(p, data.data(), data.size() * sizeof(T));
  return p;
}

/// First key that the row at `position` sees.
int first_key(const AttentionCase& c, int position) {
  return c.window > 0 ? std::max(0, position - c.window + 1) : 0;
}

/// The arena with the K and V of every sequence up to its last row: nothing else of it is written.
class Memory {
 public:
  Memory(Device& device, const AttentionCase& c) : device_(device), case_(c) {
    const auto plane = static_cast<std::int64_t>(kv_plane_bytes(c.kv, c.block_tokens, c.dim));
    int blocks = 3;
    for (const Rows& r : c.rows) blocks += (r.position + r.count + c.block_tokens - 1) / c.block_tokens;
    free_.resize(static_cast<std::size_t>(blocks));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(7));
    view.block_stride = 2 * plane * c.kv_heads + 256;
    view.head_stride = 2 * plane;
    view.v_offset = plane;
    view.block_tokens = c.block_tokens;
    view.num_kv_heads = c.kv_heads;
    view.head_dim = c.dim;
    view.base = static_cast<std::byte*>(device.allocate(static_cast<std::size_t>(blocks * view.block_stride), "kv"));
  }

  ops::Segment segment(const Rows& r, int row_begin) {
    std::vector<BlockId> table;
    const int first = first_key(case_, r.position), last = r.position + r.count - 1;
    for (int b = 0; b <= last / case_.block_tokens; ++b) {
      if ((b + 1) * case_.block_tokens <= first) {
        table.push_back(kNoBlock);  // the window has left it
        continue;
      }
      table.push_back(free_.back());
      free_.pop_back();
      for (int i = 0; i < case_.block_tokens; ++i) {
        const int position = b * case_.block_tokens + i;
        if (position <= last) write(table.back(), i, r.sequence, position);
      }
    }
    return {row_begin, r.count, r.position, uploaded(device_, table, "table")};
  }

  ops::KvLayerView view{};

 private:
  void write(BlockId block, int at, int sequence, int position) {
    for (int head = 0; head < case_.kv_heads; ++head) {
      std::byte* const planes = view.base + block * view.block_stride + head * view.head_stride;
      for (const int what : {kK, kV}) {
        std::byte* const plane = planes + (what == kV ? view.v_offset : 0);
        const Stored s = stored(case_, what, sequence, position, head);
        device_.upload(plane + static_cast<std::size_t>(at) * s.bytes.size(), s.bytes.data(), s.bytes.size());
        if (case_.kv != KvType::kFp8) continue;
        device_.upload(plane + case_.block_tokens * case_.dim + at * 4, &s.scale, 4);
      }
    }
  }

  Device& device_;
  const AttentionCase& case_;
  std::vector<BlockId> free_;
};

}  // namespace

AttentionResult run_attention(const AttentionCase& c) {
  Device device(c.schedule);
  Memory memory(device, c);
  const int heads = c.group * c.kv_heads;
  std::vector<ops::Segment> segments;
  int rows = 0;
  AttentionResult result;
  for (const Rows& r : c.rows) {
    segments.push_back(memory.segment(r, rows));
    rows += r.count;
    if (r.count == 0) continue;
    const int keys = r.position + r.count - first_key(c, r.position);
    const int row_bytes = kv_row_bytes(c.kv, c.dim) + (c.kv == KvType::kFp8 ? 4 : 0);
    result.kv_ideal += static_cast<std::uint64_t>(2 * keys * row_bytes * c.kv_heads);
  }
  const std::int64_t stride = heads * c.dim + 8;  // of q; 8 numbers of another tensor between
  std::vector<float> q(static_cast<std::size_t>(rows * stride), std::nanf(""));
  int row = 0;
  for (const Rows& r : c.rows) {
    for (int i = 0; i < r.count; ++i, ++row) {
      for (int h = 0; h < heads; ++h) {
        for (int d = 0; d < c.dim; ++d) {
          q[static_cast<std::size_t>(row * stride + h * c.dim + d)] = 3 * number(kQ, r.sequence, r.position + i, h, d);
        }
      }
    }
  }
  AttentionArgs args{};
  args.q = uploaded(device, q, "q");
  args.q_stride = stride;
  const std::size_t numbers = static_cast<std::size_t>(rows * heads * c.dim);
  args.out = static_cast<float*>(device.allocate(std::max<std::size_t>(numbers * 4, 1), "out"));
  args.out_stride = heads * c.dim;
  args.half = static_cast<std::uint16_t*>(device.allocate(std::max<std::size_t>(numbers * 2, 1), "half"));
  args.half_type = Half::kBF16;
  args.scale = 1 / std::sqrt(static_cast<float>(c.dim)) * 1.44269504f;
  args.window = c.window;
  args.group = c.group;
  args.kv = memory.view;
  args.segments = uploaded(device, segments, "segments");
  with_attention_shape(c.kv, c.dim, c.wide, c.block_shared_bytes, [&]<class S>() {
    result.shared_bytes = S::kSharedBytes;
    AttentionPlan plan;
    plan_attention({.segments = segments.data(),
                    .num_segments = static_cast<std::int32_t>(segments.size()),
                    .queries = S::kQueries,
                    .group = c.group,
                    .num_kv_heads = c.kv_heads,
                    .head_dim = c.dim,
                    .window = c.window,
                    .workers = c.workers,
                    .max_slot_floats = c.shared_out ? std::int64_t{1} << 30 : 0},
                   plan);
    for (const AttentionItem& item : plan.items) result.parts = std::max(result.parts, item.parts);
    args.items = uploaded(device, plan.items, "items");
    args.num_items = uploaded(device, std::vector<std::int32_t>{static_cast<std::int32_t>(plan.items.size())}, "count");
    args.slots = static_cast<float*>(device.allocate(static_cast<std::size_t>(plan.slot_floats * 4 + 4), "slots"));
    std::vector<std::int32_t> counters(static_cast<std::size_t>(plan.counters) + 1);
    args.counters = uploaded(device, counters, "counters");
    device.take_traffic(memory.view.base);
    device.count_sites(c.count_sites);
    device.set_fault(c.fault);
    launch<attention_kernel<S>>(device.stream(), S::launch(c.workers), args);
    device.download(counters.data(), args.counters, counters.size() * 4);
    result.counters_are_zero = std::count(counters.begin(), counters.end(), 0) == plan.counters + 1;
  });
  result.kv_read = device.take_traffic(memory.view.base).read;
  for (const emu::Finding& f : device.take_findings()) {
    result.kinds.insert(f.kind);
    result.text += std::string(emu::kind_name(f.kind)) + " at " + f.where + " in " + f.kernel + ": " + f.what + "\n";
  }
  if (c.count_sites) result.sites = device.take_sites();
  result.out.resize(numbers);
  result.half.resize(numbers);
  device.download(result.out.data(), args.out, numbers * 4);
  device.download(result.half.data(), args.half, numbers * 2);
  return result;
}

double worst_error(const AttentionCase& c, const std::vector<float>& out) {
  std::map<std::array<int, 4>, Stored> cache;
  const auto get = [&](int what, int sequence, int position, int head) -> const std::vector<double>& {
    const auto [it, added] = cache.try_emplace({what, sequence, position, head});
    if (added) it->second = stored(c, what, sequence, position, head);
    return it->second.values;
  };
  double worst = 0;
  std::size_t at = 0;
  for (const Rows& r : c.rows) {
    for (int i = 0; i < r.count; ++i) {
      const int last = r.position + i, first = first_key(c, last);
      for (int h = 0; h < c.group * c.kv_heads; ++h) {
        std::vector<double> scores, want(static_cast<std::size_t>(c.dim));
        for (int j = first; j <= last; ++j) {
          const auto& k = get(kK, r.sequence, j, h / c.group);
          double dot = 0;
          for (int d = 0; d < c.dim; ++d) {
            dot += 3.0 * static_cast<double>(number(kQ, r.sequence, last, h, d)) * k[static_cast<std::size_t>(d)];
          }
          scores.push_back(dot / std::sqrt(c.dim));
        }
        const double max = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (int j = first; j <= last; ++j) {
          const double e = std::exp(scores[static_cast<std::size_t>(j - first)] - max);
          const auto& v = get(kV, r.sequence, j, h / c.group);
          for (std::size_t d = 0; d < want.size(); ++d) want[d] += e * v[d];
          sum += e;
        }
        double error = 0, size = 0;
        for (const double w : want) {
          error += std::pow(static_cast<double>(out[at++]) - w / sum, 2);
          size += std::pow(w / sum, 2);
        }
        const double relative = std::sqrt(error / size);
        worst = relative <= worst ? worst : relative;  // so that a NaN is the worst of all
      }
    }
  }
  return worst;
}

double tolerance(KvType kv) { return kv == KvType::kF16 ? 2e-3 : 1.5e-2; }

namespace {

void expect_right(const AttentionCase& c) {
  const AttentionResult r = run_attention(c);
  EXPECT_EQ(r.text, "");
  EXPECT_TRUE(r.counters_are_zero);
  EXPECT_LT(worst_error(c, r.out), tolerance(c.kv));
  for (std::size_t i = 0; i < r.out.size(); ++i) ASSERT_EQ(r.half[i], ops::f32_to_bf16(r.out[i])) << i;
}

/// Out of the rows of `all`, those of rows[which].
std::vector<float> part(const AttentionCase& c, const std::vector<float>& all, std::size_t which) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < which; ++i) begin += static_cast<std::size_t>(c.rows[i].count);
  const auto width = static_cast<std::size_t>(c.group * c.kv_heads * c.dim);
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin * width);
  return {from, from + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(c.rows[which].count) * width)};
}

/// Every kernel that there is: (type, head size, wide).
class AttentionKernel : public testing::TestWithParam<std::tuple<KvType, int, bool>> {
 protected:
  AttentionCase shape() const {
    AttentionCase c;
    std::tie(c.kv, c.dim, c.wide) = GetParam();
    return c;
  }
  /// Differs from kernel to kernel, so that together they cover what all of them need not.
  int turn() const {
    const auto [kv, dim, wide] = GetParam();
    return static_cast<int>(kv) + dim / 32 + (wide ? 5 : 0);
  }
  emu::Schedule schedule() const {
    const Order orders[] = {Order::kForward, Order::kReverse, Order::kRandom};
    const Copies copies[] = {Copies::kLate, Copies::kRandom, Copies::kEarly};
    return {orders[turn() % 3], orders[(turn() + 1) % 3], copies[turn() / 3 % 3], static_cast<std::uint64_t>(turn())};
  }
};

TEST_P(AttentionKernel, DecodesLengthsAroundEveryEdge) {
  AttentionCase c = shape();
  c.schedule = schedule();
  c.group = std::array{4, 3, 7, 1, 16, 8, 2, 5}[static_cast<std::size_t>(turn()) % 8];
  c.block_tokens = std::array{16, 32, 64}[static_cast<std::size_t>(turn()) % 3];
  const int edge = c.block_tokens;
  const std::vector<int> lengths[2] = {{1, edge - 1, edge, edge + 1, 33, 256, 257}, {2, 31, 32, 127, 128, 129, 255, 513}};
  for (const int length : lengths[turn() % 2]) c.rows.push_back({static_cast<int>(c.rows.size()), length - 1});
  c.rows.push_back({90, 40, 0});  // no rows at all
  expect_right(c);
}

TEST_P(AttentionKernel, PrefillsChunks) {
  AttentionCase c = shape();
  c.schedule = schedule();
  c.kv_heads = 2;
  c.group = std::array{3, 1, 2, 7}[static_cast<std::size_t>(turn()) % 4];
  c.block_tokens = std::array{32, 64, 16}[static_cast<std::size_t>(turn()) % 3];
  c.rows = {{1, 0, 1}, {2, 0, 21}, {3, 250, 9}, {4, 100, 3}};
  expect_right(c);
}

TEST_P(AttentionKernel, SeesAWindow) {
  AttentionCase c = shape();
  c.schedule = schedule();
  c.group = 2;
  c.block_tokens = std::array{64, 16, 32}[static_cast<std::size_t>(turn()) % 3];
  c.window = std::array{1, 33, 128, 200}[static_cast<std::size_t>(turn()) % 4];
  c.rows = {{1, 0, 4}, {2, 255, 2}, {3, 300, 12}, {4, 511}};
  expect_right(c);
}

std::string kernel_name(const std::tuple<KvType, int, bool>& kernel) {
  const auto [kv, dim, wide] = kernel;
  return name_of(kv) + "_" + std::to_string(dim) + (wide ? "_wide" : "_narrow");
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionKernel,
                         testing::Combine(testing::Values(KvType::kF16, KvType::kBF16, KvType::kFp8),
                                          testing::Values(64, 96, 128, 256), testing::Bool()),
                         [](const auto& info) { return kernel_name(info.param); });

TEST(Attention, RandomShapesAreRight) {
  std::mt19937 random(20);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 6; ++i) {
    AttentionCase c;
    c.kv = static_cast<KvType>(below(3));
    c.dim = std::array{64, 96, 128}[static_cast<std::size_t>(below(3))];
    c.group = 1 + below(16);
    c.kv_heads = 1 + below(2);
    c.block_tokens = 16 << below(3);
    c.window = below(3) == 0 ? 1 + below(300) : 0;
    c.wide = below(2) == 0;
    c.workers = 1 + below(5);
    c.shared_out = below(4) != 0;
    for (int n = 1 + below(3); n > 0; --n) c.rows.push_back({n, below(400), 1 + below(6)});
    c.schedule = {static_cast<Order>(below(3)), static_cast<Order>(below(3)), static_cast<Copies>(below(3)), random()};
    SCOPED_TRACE(testing::Message() << name_of(c.kv) << " dim " << c.dim << " group " << c.group << " case " << i);
    expect_right(c);
  }
}

TEST(Attention, NoScheduleChangesABit) {
  AttentionCase c;
  c.kv = KvType::kBF16;
  c.kv_heads = 2;
  c.rows = {{1, 300}, {2, 40, 2}};
  const AttentionResult first = run_attention(c);
  EXPECT_GT(first.parts, 1);
  std::uint64_t seed = 1;
  for (const Order threads : {Order::kForward, Order::kReverse, Order::kRandom}) {
    for (const Order blocks : {Order::kReverse, Order::kRandom}) {
      for (const Copies copies : {Copies::kLate, Copies::kEarly, Copies::kRandom}) {
        c.schedule = {threads, blocks, copies, ++seed};
        const AttentionResult r = run_attention(c);
        EXPECT_EQ(r.text, "");
        EXPECT_EQ(r.out, first.out);
      }
    }
  }
}

/// Where a block has 99 KiB of shared memory, K and V take turns in one place if they do not fit beside one another.
TEST(Attention, IsTheSameWhereABlockHasLittleMemory) {
  int turns = 0;
  for (const KvType kv : {KvType::kF16, KvType::kBF16, KvType::kFp8}) {
    for (const int dim : {64, 128, 256}) {
      for (const bool wide : {false, true}) {
        AttentionCase c;
        c.kv = kv;
        c.dim = dim;
        c.wide = wide;
        c.group = 3;
        c.kv_heads = 2;
        c.window = wide ? 0 : 150;
        c.rows = {{1, 250, 9}, {2, 0, 1}, {3, 129, 2}, {4, 40, 0}};
        c.schedule = {Order::kRandom, Order::kRandom, turns % 2 == 0 ? Copies::kLate : Copies::kEarly,
                      static_cast<std::uint64_t>(dim)};
        const AttentionResult usual = run_attention(c);
        c.block_shared_bytes = kLeastBlockShared;
        const AttentionResult little = run_attention(c);
        SCOPED_TRACE(testing::Message() << name_of(kv) << " " << dim << (wide ? " wide" : " narrow"));
        EXPECT_LE(little.shared_bytes, kLeastBlockShared);
        EXPECT_EQ(little.text, "");
        EXPECT_TRUE(little.counters_are_zero);
        EXPECT_EQ(little.out, usual.out);
        turns += little.shared_bytes < usual.shared_bytes ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(turns, 6) << "heads of 256 numbers, and many queries of 128, in 16 bits";
}

TEST(Attention, NoRowsIsNoWork) {
  AttentionCase c;
  EXPECT_EQ(run_attention(c).text, "");
  c.rows = {{1, 20, 0}};
  EXPECT_EQ(run_attention(c).text, "");
}

class AttentionBits : public testing::TestWithParam<KvType> {
 protected:
  AttentionCase shape() const {
    AttentionCase c;
    c.kv = GetParam();
    c.dim = c.kv == KvType::kF16 ? 96 : c.kv == KvType::kBF16 ? 128 : 64;
    c.group = 3;
    c.kv_heads = 2;
    return c;
  }
};

/// Sequence 5, positions 505 .. 522: across a split's edge, with two splits before it.
TEST_P(AttentionBits, AreThoseOfThePositionAlone) {
  AttentionCase whole = shape();
  whole.rows = {{5, 505, 18}};
  const AttentionResult prefill = run_attention(whole);
  EXPECT_EQ(prefill.text, "");
  EXPECT_LT(worst_error(whole, prefill.out), tolerance(whole.kv));

  AttentionCase other = whole;
  other.wide = true;
  EXPECT_EQ(run_attention(other).out, prefill.out) << "64 queries a block, not 16";

  other = whole;
  other.shared_out = false;
  const AttentionResult alone = run_attention(other);
  EXPECT_EQ(alone.parts, 1);
  EXPECT_GT(prefill.parts, 1);
  EXPECT_EQ(alone.out, prefill.out) << "one block for all splits";

  for (const int tokens : {32, 64}) {
    other = whole;
    other.block_tokens = tokens;
    EXPECT_EQ(run_attention(other).out, prefill.out) << "blocks of " << tokens;
  }

  other = whole;  // the same rows as many segments of a batch: chunks of 1, 4 (drafts), 6 and 7 rows, others between
  other.workers = 7;
  other.rows = {{5, 505, 6}, {6, 200, 2}, {5, 511, 1}, {5, 512, 4}, {7, 3, 5}, {5, 516, 7}};
  const std::vector<float> batch = run_attention(other).out;
  std::vector<float> joined;
  for (const std::size_t i : {0, 2, 3, 5}) {
    const std::vector<float> chunk = part(other, batch, i);
    joined.insert(joined.end(), chunk.begin(), chunk.end());
  }
  EXPECT_EQ(joined, prefill.out) << "in chunks and in a batch";

  for (const int position : {505, 511, 512, 522}) {
    other = whole;
    other.rows = {{5, position, 1}};
    const auto width = static_cast<std::ptrdiff_t>(whole.group * whole.kv_heads * whole.dim);
    const auto at = prefill.out.begin() + (position - 505) * width;
    EXPECT_EQ(run_attention(other).out, std::vector<float>(at, at + width)) << "decode of " << position;
  }
}

TEST_P(AttentionBits, AreThoseOfThePositionAloneInAWindow) {
  AttentionCase whole = shape();
  whole.window = 140;
  whole.rows = {{5, 380, 10}};
  const AttentionResult prefill = run_attention(whole);
  EXPECT_LT(worst_error(whole, prefill.out), tolerance(whole.kv));
  AttentionCase other = whole;
  other.wide = true;
  other.rows = {{5, 380, 3}, {5, 383, 1}, {5, 384, 6}};
  EXPECT_EQ(run_attention(other).out, prefill.out);
}

TEST_P(AttentionBits, DoNotSeeALaterTokensBadNumbers) {
  AttentionCase good = shape();
  good.rows = {{5, kBadPosition - 3, 6}};
  AttentionCase bad = good;
  bad.bad_numbers = true;
  const std::vector<float> a = run_attention(good).out, b = run_attention(bad).out;
  const auto row = a.size() / 6;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i / row < 3) {
      ASSERT_EQ(a[i], b[i]) << i;
    } else {
      ASSERT_TRUE(std::isnan(b[i])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionBits, testing::Values(KvType::kF16, KvType::kBF16, KvType::kFp8),
                         [](const auto& info) { return name_of(info.param); });

/// Sites that use more than they need, with the reason; anything else must stay within the budgets.
struct Exception {
  const char* file;
  const char* marker;  ///< in the line before it, or on it
  const char* call;
  const char* reason;
};
constexpr Exception kExceptions[] = {
    {"attention.cuh", "void store_halves(std::uint16_t*", "*reinterpret_cast",
     "16 bits of 8 dimensions are half a sector; the other half follows, and output is a thousandth of the traffic"},
};

TEST(AttentionLint, DecodeReadsEachByteOnceAndWideAccessesStayWide) {
  for (const KvType kv : {KvType::kF16, KvType::kBF16, KvType::kFp8}) {
    AttentionCase c;
    c.kv = kv;
    c.dim = kv == KvType::kBF16 ? 96 : 128;
    c.kv_heads = 2;
    c.rows = {{1, 299}, {2, 256}, {3, 63}};
    c.count_sites = true;
    const AttentionResult r = run_attention(c);
    EXPECT_LE(static_cast<double>(r.kv_read), 1.05 * static_cast<double>(r.kv_ideal));
    if (emu::hooked() || kv != KvType::kFp8) {
      EXPECT_GE(r.kv_read, r.kv_ideal);
    }
    std::set<std::string> allowed;
    for (const Exception& e : kExceptions) {
      allowed.insert(e.file + (":" + std::to_string(test::line_after(e.file, e.marker, e.call))));
    }
    std::uint64_t units = 0, ideal = 0;
    EXPECT_GT(r.sites.size(), 8U);
    for (const emu::SiteCount& s : r.sites) {
      if (!s.shared) units += s.units, ideal += s.ideal;
      if (allowed.contains(s.where)) continue;
      EXPECT_LE(static_cast<double>(s.units), (s.shared ? 2.0 : 1.1) * static_cast<double>(s.ideal))
          << name_of(kv) << (s.shared ? ": bank cycles at " : ": sectors at ") << s.where;
    }
    EXPECT_LE(static_cast<double>(units), 1.02 * static_cast<double>(ideal));
  }
}

}  // namespace
}  // namespace barg::cuda
