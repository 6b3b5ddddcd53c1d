// The tier service between a pool of plain memory and a stack whose lower tier is in the hands of the test.
#include "runtime/tier_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "support/memory_tier.h"

namespace barg::runtime::tier_service_test {
namespace {

using sched::CancelLoadCommand;
using sched::CancelPartsCommand;
using sched::LoadCommand;
using sched::LoadId;
using sched::LookupAnswer;
using sched::LookupCommand;
using sched::LookupId;
using sched::PartLoaded;
using sched::Place;
using sched::SaveCommand;
using sched::StoredBlock;
using sched::TierEvent;

constexpr std::uint64_t kBytes = 4096;

/// A pool of two groups; may hold a copy that is being made until it is let go.
class Pool final : public KvAccess {
 public:
  explicit Pool(std::size_t blocks) : memory_(2, std::vector<std::vector<std::byte>>(blocks)) {
    for (auto& group : memory_) {
      for (auto& block : group) block.assign(kBytes, std::byte{0});
    }
  }
  const std::vector<std::uint64_t>& part_bytes() const override { return part_bytes_; }
  bool copy_out(std::int32_t group, BlockId block, store::Memory to) override {
    {
      std::unique_lock lock(mutex_);
      const int number = ++outs_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_ || number > held_outs_; });
    }
    std::memcpy(to.address, at(group, block).data(), to.length);
    return true;
  }
  bool copy_in(std::int32_t group, BlockId block, store::Memory from) override {
    {
      std::unique_lock lock(mutex_);
      ++ins_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_; });
    }
    std::memcpy(at(group, block).data(), from.address, from.length);
    return true;
  }
  std::vector<std::byte>& at(std::int32_t group, BlockId block) {
    return memory_[static_cast<std::size_t>(group)][static_cast<std::size_t>(block)];
  }
  void fill(BlockId block, int value) {
    for (std::int32_t g = 0; g < 2; ++g) at(g, block).assign(kBytes, static_cast<std::byte>(value + g));
  }
  bool holds(std::int32_t group, BlockId block, int value) {
    return at(group, block) == std::vector<std::byte>(kBytes, static_cast<std::byte>(value + group));
  }
  /// Copies do not end; of those out, the first `outs`.
  void hold(bool held, int outs = INT32_MAX) {
    std::lock_guard lock(mutex_);
    held_ = held;
    held_outs_ = outs;
    changed_.notify_all();
  }
  void wait_outs(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outs_ >= n; });
  }
  void wait_ins(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ins_ >= n; });
  }
  int outs() const {
    std::lock_guard lock(mutex_);
    return outs_;
  }

 private:
  const std::vector<std::uint64_t> part_bytes_{kBytes, kBytes};
  std::vector<std::vector<std::vector<std::byte>>> memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int outs_ = 0, ins_ = 0, held_outs_ = 0;
};

StoredBlock block(int number) {
  StoredBlock b;
  b.digest = sha256(&number, sizeof number);
  b.depth = number;
  b.fingerprint = static_cast<std::uint64_t>(number) * 3;
  return b;
}

class TierServiceTest : public ::testing::Test {
 protected:
  /// `disk`: a tier below DRAM that the test drives by hand.
  void open(std::uint64_t dram_bytes, bool lower = false, store::TierKind kind = store::TierKind::kDisk,
            bool admit_all = true) {
    store::Domain domain;
    domain.part_bytes = pool_.part_bytes();
    domain.label = "test";
    std::vector<std::unique_ptr<store::Tier>> tiers;
    if (lower) {
      auto tier = std::make_unique<test::MemoryTier>(
          test::MemoryTier::Options{.kind = kind,
                                    .name = "lower",
                                    .manual = true,
                                    .capacity_bytes = 1 << 20,
                                    .must_probe = kind == store::TierKind::kRemote},
          clock_);
      lower_ = tier.get();
      tiers.push_back(std::move(tier));
    }
    store::StackOptions options;
    options.dram_bytes = dram_bytes;
    options.disk_admit_all = admit_all;
    stack_ = std::make_unique<store::TierStack>(domain, std::move(tiers), options, clock_);
    service_ = make_tier_service(pool_, *stack_, clock_, [this] { notified_.fetch_add(1); });
  }
  void TearDown() override {
    service_.reset();
    if (stack_ != nullptr && lower_ != nullptr) {
      while (lower_->finish()) {
      }
    }
    stack_.reset();
  }

  void save(int number, BlockId b, SaveCommand::Why why = SaveCommand::Why::kEvicted) {
    for (std::int32_t g = 0; g < 2; ++g)
      service_->submit(SaveCommand{.why = why, .group = g, .block = b, .stored = block(number), .uses = 0});
  }
  static LoadCommand load_of(std::uint64_t id, std::vector<std::pair<int, BlockId>> blocks, double deadline = 0) {
    LoadCommand load{.id = LoadId{id}, .parts = {}, .deadline = deadline};
    for (const auto& [number, b] : blocks) {
      for (std::int32_t g = 0; g < 2; ++g)
        load.parts.push_back({.index = number, .group = g, .block = b, .stored = block(number)});
    }
    return load;
  }
  LookupAnswer look(std::uint64_t id, const std::vector<int>& numbers) {
    LookupCommand lookup{.id = LookupId{id}, .blocks = {}, .deadline = 0};
    for (const int n : numbers) lookup.blocks.push_back(block(n));
    service_->submit(std::move(lookup));
    auto events = poll();
    EXPECT_EQ(events.size(), 1U);
    return events.empty() ? LookupAnswer{} : std::get<LookupAnswer>(events[0]);
  }
  std::vector<TierEvent> poll() {
    std::vector<TierEvent> out;
    service_->poll(out);
    return out;
  }
  /// Until there are so many; the lower tier ends what waits there meanwhile.
  std::vector<TierEvent> wait_events(std::size_t count, bool finish = true) {
    std::vector<TierEvent> out;
    while (out.size() < count) {
      if (finish && lower_ != nullptr) lower_->finish();
      service_->poll(out);
      std::this_thread::yield();
    }
    EXPECT_EQ(out.size(), count);
    return out;
  }
  template <class F>
  static void wait_until(F condition) {
    while (!condition()) std::this_thread::yield();
  }

  test::SharedClock clock_;
  Pool pool_{16};
  test::MemoryTier* lower_ = nullptr;
  std::atomic<int> notified_{0};
  std::unique_ptr<store::TierStack> stack_;
  std::unique_ptr<TierService> service_;
};

TEST_F(TierServiceTest, WhatIsEvictedComesBackElsewhere) {
  open(1 << 20);
  pool_.fill(3, 40);
  save(7, 3);
  pool_.fill(3, 99);  // the plan reuses it at once
  const LookupAnswer answer = look(1, {7, 8});
  EXPECT_EQ(answer.id, LookupId{1});
  EXPECT_EQ(answer.places, (std::vector<Place>{Place::kDram, Place::kDram, Place::kNowhere, Place::kNowhere}));
  EXPECT_EQ(notified_.load(), 0) << "the engine thread asked itself";
  service_->submit(load_of(5, {{7, 11}}));
  for (const TierEvent& e : wait_events(2)) {
    const auto& part = std::get<PartLoaded>(e);
    EXPECT_TRUE(part.ok);
    EXPECT_EQ(part.id, LoadId{5});
    EXPECT_EQ(part.index, 7);
    EXPECT_EQ(part.from, Place::kDram);
    EXPECT_EQ(part.bytes, kBytes);
  }
  EXPECT_GE(notified_.load(), 1);
  EXPECT_TRUE(pool_.holds(0, 11, 40) && pool_.holds(1, 11, 40));
  EXPECT_TRUE(look(2, {7}).speeds[static_cast<std::size_t>(Place::kDram)].up);
}

TEST_F(TierServiceTest, AnEvictionWaitsForTheCopyOfTheSameBlock) {
  open(1 << 20);
  pool_.fill(2, 10);
  pool_.hold(true, 1);
  service_->submit(SaveCommand{
      .why = SaveCommand::Why::kEarly, .group = 0, .block = 2, .stored = block(1), .uses = 0});
  pool_.wait_outs(1);  // the thread is in the middle of it
  std::atomic<bool> submitted{false};
  std::jthread engine([&] {
    save(1, 2);
    submitted = true;
    pool_.fill(2, 77);
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(submitted.load());
  pool_.hold(false);
  engine.join();
  service_->submit(load_of(1, {{1, 5}}));
  wait_events(2);
  EXPECT_TRUE(pool_.holds(0, 5, 10) && pool_.holds(1, 5, 10));
}

TEST_F(TierServiceTest, AQueuedCopyOfABlockThatIsReusedIsDropped) {
  open(1 << 20);
  pool_.fill(1, 10);
  pool_.fill(2, 20);
  pool_.hold(true);
  service_->submit(SaveCommand{
      .why = SaveCommand::Why::kEarly, .group = 0, .block = 1, .stored = block(1), .uses = 0});
  pool_.wait_outs(1);
  service_->submit(SaveCommand{
      .why = SaveCommand::Why::kEarly, .group = 0, .block = 2, .stored = block(2), .uses = 0});
  service_->submit(load_of(9, {{50, 2}}));  // another content is to come to block 2, without an eviction told
  wait_events(2);                           // (nobody has it)
  pool_.fill(2, 99);
  pool_.hold(false);
  service_->submit(SaveCommand{
      .why = SaveCommand::Why::kEarly, .group = 1, .block = 3, .stored = block(3), .uses = 0});
  pool_.wait_outs(2);  // the queue has come to the end
  EXPECT_EQ(pool_.outs(), 2);
  EXPECT_EQ(look(1, {2}).places[0], Place::kNowhere);
}

TEST_F(TierServiceTest, DropSavesLeavesNothingToCopy) {
  open(1 << 20);
  pool_.hold(true);
  for (int n = 0; n < 4; ++n) save(n, n, SaveCommand::Why::kEarly);
  pool_.wait_outs(1);
  std::jthread letting_go([&] { pool_.hold(false); });
  service_->drop_saves();
  const int outs = pool_.outs();
  save(10, 10, SaveCommand::Why::kEarly);
  pool_.wait_outs(outs + 2);
  service_->drop_saves();  // waits for the copy that is being made
  EXPECT_EQ(pool_.outs(), outs + 2);
  EXPECT_EQ(look(1, {10}).places, std::vector<Place>(2, Place::kDram));
}

TEST_F(TierServiceTest, ACancelledPartIsNeverWritten) {
  open(0, true);
  pool_.fill(1, 10);
  pool_.fill(2, 20);
  save(1, 1);
  save(2, 2);
  wait_until([&] { return lower_->finish(), look(1, {1, 2}).places == std::vector<Place>(4, Place::kDisk); });
  service_->submit(load_of(1, {{1, 8}, {2, 9}}));
  wait_until([&] { return lower_->waiting() == 4; });
  service_->submit(CancelPartsCommand{.id = LoadId{1}, .first = 2, .last = 3});
  auto events = wait_events(2);
  for (const TierEvent& e : events) EXPECT_EQ(std::get<PartLoaded>(e).index, 1);
  while (lower_->finish()) {
  }
  EXPECT_TRUE(poll().empty());
  EXPECT_TRUE(pool_.holds(0, 8, 10));
  EXPECT_EQ(pool_.at(0, 9), std::vector<std::byte>(kBytes, std::byte{0}));

  service_->submit(load_of(2, {{1, 12}}));
  wait_until([&] { return lower_->waiting() == 2; });
  service_->submit(CancelLoadCommand{.id = LoadId{2}});
  while (lower_->finish()) {
  }
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(pool_.at(0, 12), std::vector<std::byte>(kBytes, std::byte{0}));
  service_->submit(CancelLoadCommand{.id = LoadId{2}});  // once more, and of one that never was
  service_->submit(CancelLoadCommand{.id = LoadId{77}});
}

TEST_F(TierServiceTest, ACancelTakesBackWhatWasQueued) {
  open(1 << 20);
  pool_.fill(1, 10);
  save(1, 1);
  service_->submit(load_of(1, {{1, 8}}));
  wait_until([&] { return notified_.load() > 0 && pool_.holds(1, 8, 10); });
  service_->submit(CancelLoadCommand{.id = LoadId{1}});
  EXPECT_TRUE(poll().empty());
}

TEST_F(TierServiceTest, ACancelWaitsForTheCopyIntoTheBlock) {
  open(1 << 20);
  pool_.fill(1, 10);
  save(1, 1);
  pool_.hold(true);
  service_->submit(load_of(1, {{1, 8}}));
  pool_.wait_ins(1);
  std::atomic<bool> cancelled{false};
  std::jthread engine([&] {
    service_->submit(CancelLoadCommand{.id = LoadId{1}});
    cancelled = true;
    pool_.fill(8, 55);
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(cancelled.load());
  pool_.hold(false);
  engine.join();
  stack_->flush(clock_.now() + 1);
  EXPECT_TRUE(pool_.holds(0, 8, 55)) << "written after the cancel";
  EXPECT_TRUE(poll().empty());
}

TEST_F(TierServiceTest, WhatIsLateEndsAtItsDeadline) {
  open(0, true);
  pool_.fill(1, 10);
  save(1, 1);
  wait_until([&] { return lower_->finish(), look(1, {1}).places[1] == Place::kDisk; });
  service_->submit(load_of(1, {{1, 8}}, clock_.now() + 1));
  wait_until([&] { return lower_->waiting() == 2; });
  EXPECT_TRUE(poll().empty());
  clock_.advance(2);
  const auto events = wait_events(2, false);
  for (const TierEvent& e : events) EXPECT_FALSE(std::get<PartLoaded>(e).ok);
  pool_.fill(8, 66);  // it is somebody else's now
  while (lower_->finish()) {
  }
  stack_->flush(clock_.now() + 1);
  EXPECT_TRUE(pool_.holds(0, 8, 66));
  EXPECT_TRUE(poll().empty()) << "an end twice";
}

TEST_F(TierServiceTest, ARemoteTierIsAskedAndMayBeTooSlow) {
  open(0, true, store::TierKind::kRemote);
  LookupCommand lookup{.id = LookupId{1}, .blocks = {block(1)}, .deadline = clock_.now() + 1};
  service_->submit(LookupCommand(lookup));
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(std::get<LookupAnswer>(wait_events(1)[0]).places, std::vector<Place>(2, Place::kNowhere));
  lookup.id = LookupId{2};
  lookup.blocks = {block(2)};
  service_->submit(LookupCommand(lookup));
  clock_.advance(2);
  const auto late = wait_events(1, false);
  EXPECT_EQ(std::get<LookupAnswer>(late[0]).id, LookupId{2});
  while (lower_->finish()) {
  }
  EXPECT_TRUE(poll().empty()) << "an answer twice";
}

TEST_F(TierServiceTest, PinsHoldForWhatIsSavedLater) {
  open(1 << 20, true, store::TierKind::kDisk, false);
  const std::vector<Digest> pinned{block(1).digest};
  service_->pin(pinned, clock_.now() + 10);
  pool_.fill(1, 10);
  pool_.fill(2, 20);
  save(1, 1);
  save(2, 2);
  // The pinned block goes to the lower tier at once; the other one would when it leaves DRAM, had it been read.
  wait_until([&] { return lower_->waiting() == 2; });
  while (lower_->finish()) {
  }
  stack_->flush(clock_.now() + 1);
  EXPECT_EQ(stack_->stats().kinds[1].writes, 2U);
  for (int n = 100; n < 400; ++n) save(n, 4);  // more than DRAM holds
  EXPECT_EQ(look(1, {1, 2}).places,
            (std::vector<Place>{Place::kDram, Place::kDram, Place::kNowhere, Place::kNowhere}));
  clock_.advance(20);
  save(1, 3);
  save(3, 3);
  stack_->flush(clock_.now() + 1);
  EXPECT_EQ(stack_->stats().kinds[1].writes, 2U);
}

TEST_F(TierServiceTest, DestructionEndsWhatIsOpen) {
  open(0, true);
  pool_.fill(1, 10);
  save(1, 1);
  wait_until([&] { return lower_->finish(), look(1, {1}).places[1] == Place::kDisk; });
  service_->submit(load_of(1, {{1, 8}}));
  wait_until([&] { return lower_->waiting() == 2; });
  service_.reset();
  while (lower_->finish()) {
  }
  EXPECT_EQ(pool_.at(0, 8), std::vector<std::byte>(kBytes, std::byte{0}));
}

/// Many loads, cancels and saves at once: every part ends once, and a block that was given back is not written any more.
TEST_F(TierServiceTest, StormOfLoadsAndCancels) {
  open(1 << 22);
  for (int n = 0; n < 8; ++n) {
    pool_.fill(0, 10 + 2 * n);
    save(n, 0);
  }
  Rng rng(5);
  std::uint64_t id = 0;
  int ended = 0;
  for (int round = 0; round < 2000; ++round) {
    const int n = static_cast<int>(rng.below(8));
    const auto b = static_cast<BlockId>(1 + rng.below(15));
    pool_.fill(b, 0);
    service_->submit(load_of(++id, {{n, b}}));
    std::vector<TierEvent> events;
    for (std::uint64_t spin = rng.below(3); spin > 0; --spin) std::this_thread::yield();
    service_->poll(events);
    const bool cancel = rng.below(2) == 0;
    if (cancel) {
      service_->submit(CancelLoadCommand{.id = LoadId{id}});
      pool_.fill(b, 100);
    } else {
      while (events.size() < 2) service_->poll(events);
      EXPECT_TRUE(pool_.holds(0, b, 10 + 2 * n) && pool_.holds(1, b, 10 + 2 * n));
      ++ended;
    }
    EXPECT_LE(events.size(), 2U);
    for (const TierEvent& e : events) EXPECT_EQ(std::get<PartLoaded>(e).id, LoadId{id});
    if (cancel) {
      EXPECT_TRUE(poll().empty());
      EXPECT_TRUE(pool_.holds(0, b, 100));
    }
  }
  EXPECT_GT(ended, 500);
}

}  // namespace
}  // namespace barg::runtime::tier_service_test
