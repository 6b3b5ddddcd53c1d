// Copies of KV blocks and their way to and from a staging buffer, byte for byte; what must not be touched stays.
#include "cuda/kv_copy.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;

std::vector<std::byte> random_bytes(std::mt19937& random, std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

struct CopyResult {
  std::vector<std::byte> memory, want;
  test::Findings findings;
};

/// `count` of 12 blocks of `bytes` bytes, with a gap behind each, to others.
CopyResult run_copy(std::int64_t bytes, int count, const emu::Schedule& schedule, const emu::Fault& fault = {}) {
  std::mt19937 random(static_cast<unsigned>(bytes));
  Device device(schedule);
  CopyResult r;
  const std::int64_t stride = bytes + 48;
  r.want = random_bytes(random, static_cast<std::size_t>(12 * stride));
  std::vector<BlockId> blocks(12);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  const std::vector<BlockId> src(blocks.begin(), blocks.begin() + count), dst(blocks.begin() + count, blocks.begin() + 2 * count);
  KvCopyArgs args{};
  args.base = test::uploaded(device, r.want, "blocks");
  args.block_stride = stride;
  args.block_bytes = bytes;
  args.src = test::uploaded(device, src, "src");
  args.dst = test::uploaded(device, dst, "dst");
  for (int i = 0; i < count; ++i) {
    std::memcpy(r.want.data() + dst[static_cast<std::size_t>(i)] * stride,
                r.want.data() + src[static_cast<std::size_t>(i)] * stride, static_cast<std::size_t>(bytes));
  }
  device.set_fault(fault);
  device.count_sites(true);
  launch<kv_copy_kernel>(device.stream(), kv_copy_launch(bytes, count, 1), args);
  r.findings = test::findings(device);
  r.memory = test::downloaded(device, args.base, r.want.size());
  return r;
}

TEST(KvCopy, CopiesWholeBlocksAndNothingElse) {
  int turn = 0;
  for (const std::int64_t bytes : {16, 1008, 16384, 16400, 50000}) {
    for (const int count : {1, 5}) {
      const CopyResult r = run_copy(bytes / 16 * 16, count, test::schedule(turn++));
      EXPECT_EQ(r.findings.text, "");
      EXPECT_TRUE(r.memory == r.want) << bytes << " " << count;
    }
  }
}

/// Two groups, the second of which has let go of a block, and their parts of a logical block.
class Staged {
 public:
  explicit Staged(const emu::Schedule& schedule, const emu::Fault& fault = {}) : device_(schedule) {
    std::mt19937 random(5);
    device_.set_fault(fault);
    device_.count_sites(true);
    for (std::size_t g = 0; g < 2; ++g) {
      stored_[g] = random_bytes(random, static_cast<std::size_t>(10 * kStride[g]));
      blocks_[g] = g == 0 ? std::vector<BlockId>{7, 0, 9, 4} : std::vector<BlockId>{1, kNoBlock, 8, 2};
      groups_.push_back({test::uploaded(device_, stored_[g], "group"), kStride[g], kBytes[g],
                         test::uploaded(device_, blocks_[g], "table"), kOffset[g]});
    }
    staged_ = random_bytes(random, static_cast<std::size_t>(4 * kStagingStride));
    args_.groups = test::uploaded(device_, groups_, "groups");
    args_.staging = test::uploaded(device_, staged_, "staging");
    args_.staging_stride = kStagingStride;
  }

  bool gathers() {
    launch<kv_gather_kernel>(device_.stream(), shape(), args_);
    each_part([&](std::size_t stored, std::size_t staged, std::size_t g) {
      std::memcpy(staged_.data() + staged, stored_[g].data() + stored, static_cast<std::size_t>(kBytes[g]));
    });
    return all_as_expected();
  }
  bool scatters() {
    launch<kv_scatter_kernel>(device_.stream(), shape(), args_);
    each_part([&](std::size_t stored, std::size_t staged, std::size_t g) {
      std::memcpy(stored_[g].data() + stored, staged_.data() + staged, static_cast<std::size_t>(kBytes[g]));
    });
    return all_as_expected();
  }
  test::Findings findings() { return test::findings(device_); }

 private:
  static constexpr std::int64_t kBytes[] = {33008, 4096}, kStride[] = {33024, 4096}, kOffset[] = {0, 33008},
                                kStagingStride = 33008 + 4096 + 32;

  static LaunchShape shape() { return kv_copy_launch(kBytes[0], 4, 2); }
  template <class F>
  void each_part(const F& f) {
    for (std::size_t g = 0; g < 2; ++g) {
      for (std::size_t i = 0; i < 4; ++i) {
        if (blocks_[g][i] == kNoBlock) continue;
        f(static_cast<std::size_t>(blocks_[g][i] * kStride[g]),
          static_cast<std::size_t>(static_cast<std::int64_t>(i) * kStagingStride + kOffset[g]), g);
      }
    }
  }
  bool all_as_expected() {
    bool same = test::downloaded(device_, args_.staging, staged_.size()) == staged_;
    for (std::size_t g = 0; g < 2; ++g)
      same = same && test::downloaded(device_, groups_[g].base, stored_[g].size()) == stored_[g];
    return same;
  }

  Device device_;
  std::vector<std::byte> stored_[2], staged_;
  std::vector<BlockId> blocks_[2];
  std::vector<KvStagedGroup> groups_;
  KvStageArgs args_{};
};

TEST(KvStage, GathersAndScattersThePartsOfAllGroups) {
  for (int turn = 0; turn < 3; ++turn) {
    Staged gather(test::schedule(turn));
    EXPECT_TRUE(gather.gathers());
    EXPECT_EQ(gather.findings().text, "");
    Staged scatter(test::schedule(turn + 4));
    EXPECT_TRUE(scatter.scatters());
    EXPECT_EQ(scatter.findings().text, "");
  }
}

TEST(KvStage, AccessesAreWide) {
  Staged gather({});
  gather.gathers();
  gather.scatters();
  test::expect_wide(gather.findings());
}

TEST(KvCopyFaults, EachIsSeenByItsDetector) {
  using test::value;
  const auto next = [](double x) { return x + 16; };
  EXPECT_FALSE(run_copy(16384, 3, {}, value("copy.from", next)).memory == run_copy(16384, 3, {}).memory);
  EXPECT_FALSE(run_copy(16384, 3, {}, value("copy.to", [](double x) { return x > 0 ? x - 1 : x; })).memory ==
               run_copy(16384, 3, {}).memory);
  const CopyResult longer = run_copy(16368, 1, {}, value("copy.bytes", next));
  EXPECT_FALSE(longer.memory == longer.want);
  EXPECT_TRUE(run_copy(16384, 3, {}, value("copy.to", [](double) { return 12; })).findings.kinds.contains(test::Kind::kOutside));
  EXPECT_FALSE(Staged({}, value("copy.offset", next)).gathers());
  EXPECT_FALSE(Staged({}, value("copy.offset", next)).scatters());
}

}  // namespace
}  // namespace barg::cuda
