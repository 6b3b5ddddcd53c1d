// TierStack under several threads that save, load, cancel, look up and pin at random, while its tiers fail,
// lose, damage and delay: bytes are never wrong, every part of every load ends once, and all counters return
// to zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "store/stack_support.h"
#include "store/throttle.h"

namespace barg::store::stack_fuzz_test {
namespace {

constexpr std::uint64_t kBlocks = 400;

/// One load, checked as it comes back. Shared with the callbacks.
struct Checked {
  std::vector<std::atomic<int>> calls;
  std::atomic<std::size_t> left;
  std::atomic<bool> wrong{false};
  explicit Checked(std::size_t n) : calls(n), left(n) {}
};

struct Totals {
  std::atomic<std::uint64_t> ok{0}, missing{0}, cancelled{0}, timeout{0}, other{0}, saved{0}, probes{0},
      probed{0};
};

class Actor {
 public:
  Actor(TierStack& stack, const Clock& clock, Totals& totals, std::uint64_t seed)
      : stack_(stack), clock_(clock), totals_(totals), rng_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (rng_.below(12)) {
        case 0:
        case 1:
        case 2:
        case 3:
          save();
          break;
        case 4:
        case 5:
        case 6:
          load();
          break;
        case 7:
          if (!open_.empty()) stack_.cancel(open_[rng_.below(open_.size())].first);
          break;
        case 8:
          stack_.pin(keys(rng_.below(8)), rng_.below(2) == 0 ? 0 : clock_.now() + 5);
          break;
        case 9:
          probe();
          break;
        default: {
          const auto k = keys(rng_.below(30));
          std::vector<std::uint8_t> out(k.size());
          bool unknown = false;
          stack_.find(k, out, &unknown);
        }
      }
      while (open_.size() > 20) finish_oldest();
    }
    while (!open_.empty()) finish_oldest();
  }

 private:
  std::uint64_t block() { return rng_.below(kBlocks); }
  std::vector<Key> keys(std::uint64_t n) {
    std::vector<Key> out;
    const std::uint64_t first = block();
    for (std::uint64_t i = 0; i < n; ++i)
      out.push_back(key_of((first + i) % kBlocks, static_cast<std::uint32_t>(i % 2)));
    return out;
  }
  void save() {
    const std::uint64_t id = block();
    const SaveItem item{.key = key_of(id, static_cast<std::uint32_t>(rng_.below(2))),
                        .info = info_of(id),
                        .why = static_cast<SaveWhy>(rng_.below(3)),
                        .uses = static_cast<std::int32_t>(rng_.below(2))};
    if (!stack_.wants(item)) return;
    const bool taken = stack_.save(item, [&](Memory to) {
      const auto bytes = bytes_of(item.key, to.length);
      std::copy(bytes.begin(), bytes.end(), to.address);
      return true;
    });
    if (taken) ++totals_.saved;
  }
  void load() {
    const std::uint64_t first = block();
    std::vector<TierStack::Want> wants(1 + rng_.below(20));
    for (std::size_t i = 0; i < wants.size(); ++i) {
      const std::uint64_t id = (first + i) % kBlocks;
      wants[i] = {key_of(id, static_cast<std::uint32_t>(rng_.below(2))), info_of(id), i};
    }
    auto checked = std::make_shared<Checked>(wants.size());
    std::vector<Key> asked;
    for (const auto& w : wants) asked.push_back(w.key);
    const double deadline = rng_.below(3) == 0 ? clock_.now() + rng_.uniform() * 0.3 : 0;
    const Ticket ticket =
        stack_.load(std::move(wants), deadline, [this, checked, asked](const TierStack::Loaded& l) {
          if (l.status == Status::kOk) {
            const auto bytes = bytes_of(asked[l.tag], l.bytes.length);
            if (!std::equal(bytes.begin(), bytes.end(), l.bytes.address)) checked->wrong = true;
          }
          ++(l.status == Status::kOk          ? totals_.ok
             : l.status == Status::kMissing   ? totals_.missing
             : l.status == Status::kCancelled ? totals_.cancelled
             : l.status == Status::kTimeout   ? totals_.timeout
                                              : totals_.other);
          ++checked->calls[l.tag];
          --checked->left;
        });
    open_.emplace_back(ticket, checked);
  }
  void probe() {
    ++totals_.probes;
    const auto k = keys(1 + rng_.below(10));
    stack_.probe(k, rng_.below(2) == 0 ? 0 : clock_.now() + 0.1,
                 [this, n = k.size()](std::vector<std::uint8_t> kinds) {
                   if (kinds.size() == n) ++totals_.probed;
                 });
  }
  void finish_oldest() {
    const auto& checked = open_.front().second;
    ASSERT_TRUE(eventually([&] { return checked->left == 0; }));
    EXPECT_FALSE(checked->wrong) << "wrong bytes";
    for (const auto& calls : checked->calls) EXPECT_EQ(calls, 1);
    open_.pop_front();
  }

  TierStack& stack_;
  const Clock& clock_;
  Totals& totals_;
  Rng rng_;
  std::deque<std::pair<Ticket, std::shared_ptr<Checked>>> open_;
};

class StackFuzz : public StackTest, public testing::WithParamInterface<int> {};

TEST_P(StackFuzz, NeverWrongBytesAndEverythingEndsOnce) {
  const bool with_dram = GetParam() % 2 == 0;
  std::array<test::MemoryTier*, 3> raw = {
      add({.kind = TierKind::kDisk, .name = "a", .capacity_bytes = 80 * kPart}), add_disk(),
      add_remote(false, true)};
  auto control = std::make_shared<ThrottleControl>();
  control->bytes_per_s = 4e6;
  control->latency_s = 0.0005;
  if (GetParam() >= 2) tiers_[1] = throttled(std::move(tiers_[1]), control, clock_);
  std::atomic<std::uint64_t> coin{7};
  const auto luck = [&coin](std::uint64_t n) { return Rng(coin.fetch_add(1)).below(n); };
  for (auto* tier : raw) {
    tier->set_fault([&luck](bool put, const Key&) {
      const std::uint64_t dice = luck(40);
      return dice == 0           ? Status::kIoError
             : dice == 1         ? Status::kUnavailable
             : dice == 2 && put  ? Status::kNoSpace
             : dice == 3 && !put ? Status::kCorrupt
                                 : Status::kOk;
    });
  }
  StackOptions options = with_dram ? dram(64) : StackOptions{.staging_bytes = 24 * kPart};
  options.ttl_s = {3, 5, 0};
  options.ghost_factor = 2;
  open(options);
  Totals totals;
  std::atomic<bool> stop{false};
  std::jthread chaos([&] {
    Rng rng(99);
    while (!stop) {
      clock_.advance(0.002);
      auto* tier = raw[rng.below(raw.size())];
      const Key key = key_of(rng.below(kBlocks), static_cast<std::uint32_t>(rng.below(2)));
      if (rng.below(4) == 0) tier->forget(key);
      if (rng.below(4) == 0) tier->corrupt(key);
      if (rng.below(200) == 0) tier->set_up(false);
      if (rng.below(20) == 0) tier->set_up(true);
      if (rng.below(50) == 0) stack_->tick();
      if (rng.below(50) == 0) (void)stack_->stats();
      std::this_thread::yield();
    }
    for (auto* tier : raw) tier->set_up(true);
  });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        Actor(*stack_, clock_, totals, static_cast<std::uint64_t>(GetParam() * 10 + t)).run(8000);
      });
    }
  }
  EXPECT_TRUE(eventually([&] { return totals.probes == totals.probed; }));
  stop = true;
  chaos.join();
  clock_.advance(1000);
  // What still waits for company reaches the throttled tier later, where its time must pass.
  EXPECT_TRUE(eventually([&] {
    clock_.advance(0.01);
    const StackStats stats = stack_->stats();
    return stats.loads + stats.reads_in_flight + stats.writes_in_flight == 0;
  }));
  expect_idle();
  EXPECT_GT(totals.ok, 1000U);
  EXPECT_GT(totals.missing, 100U);
  EXPECT_GT(totals.cancelled, 10U);
  EXPECT_GT(totals.saved, 500U);
  const StackStats s = stack_->stats();
  EXPECT_GT(s.verify_failed, 0U);
  EXPECT_GT(s.kinds[1].bytes_read, 0U);
  EXPECT_GT(s.kinds[2].bytes_read, 0U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StackFuzz, testing::Range(0, 4));

}  // namespace
}  // namespace barg::store::stack_fuzz_test
