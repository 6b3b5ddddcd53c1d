// TierStack on tiers in memory: what is saved where, what comes back, and every way in which it may not.
#include <gtest/gtest.h>

#include <atomic>

#include "store/stack_support.h"

namespace barg::store::stack_test {
namespace {

constexpr int kInDram = 0, kOnDisk = 1, kInRemote = 2, kNowhere = 3;

/// Another tier, and what happens while it is asked.
class WatchedTier final : public Tier {
 public:
  explicit WatchedTier(std::unique_ptr<Tier> inner) : inner_(std::move(inner)) {}
  std::function<void()> once;  ///< during the next lookup

  TierKind kind() const override { return inner_->kind(); }
  const std::string& name() const override { return inner_->name(); }
  bool up() const override { return inner_->up(); }
  void find(std::span<const Key> keys, std::span<Presence> out) override {
    inner_->find(keys, out);
    if (const auto now = std::exchange(once, nullptr)) now();
  }
  void probe(std::vector<Key> keys, double deadline,
             std::function<void(std::vector<Presence>)> done) override {
    inner_->probe(std::move(keys), deadline, std::move(done));
  }
  void get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report) override {
    inner_->get(ticket, std::move(items), deadline, std::move(report));
  }
  void put(Ticket ticket, std::vector<PutItem> items, ReportFn report) override {
    inner_->put(ticket, std::move(items), std::move(report));
  }
  void cancel(Ticket ticket) override { inner_->cancel(ticket); }
  void erase(std::span<const Key> keys) override { inner_->erase(keys); }
  void touch(std::span<const Key> keys) override { inner_->touch(keys); }
  bool flush(double deadline) override { return inner_->flush(deadline); }
  TierStats stats() const override { return inner_->stats(); }

 private:
  std::unique_ptr<Tier> inner_;
};

// ---- DRAM alone

TEST_F(StackTest, DramGivesBackWhatWasSaved) {
  open(dram(64));
  for (std::uint64_t id = 0; id < 20; ++id) EXPECT_TRUE(save(id));
  EXPECT_FALSE(save(3)) << "it is there already: nobody need touch the bytes";
  EXPECT_EQ(find({0, 19, 20}), (std::vector<int>{kInDram, kInDram, kNowhere}));
  Loads loads;
  load(loads, {0, 7, 20, 19});
  ASSERT_TRUE(loads.wait(4));
  for (const std::uint64_t id : {0, 7, 19}) expect_bytes(loads, id, TierKind::kDram);
  EXPECT_EQ(loads.end(20).status, Status::kMissing);
  expect_idle();
}

TEST_F(StackTest, DramEvictsTheLeastRecentlyUsed) {
  open(dram(64));  // of which an eighth stands free
  for (std::uint64_t id = 0; id < 100; ++id) EXPECT_TRUE(save(id * 100));
  const StackStats s = stack_->stats();
  EXPECT_EQ(s.kinds[0].entries, 56U);
  EXPECT_EQ(s.kinds[0].evictions, 44U);
  EXPECT_EQ(find({0, 4300, 4400, 9900}), (std::vector<int>{kNowhere, kNowhere, kInDram, kInDram}));
  expect_idle();
}

TEST_F(StackTest, WhatCouldNotBeCopiedIsNotKept) {
  open(dram(64));
  const SaveItem item{.key = key_of(3), .info = info_of(3), .why = SaveWhy::kEvicted, .uses = 0};
  EXPECT_FALSE(stack_->save(item, [](Memory) { return false; }));
  EXPECT_EQ(find({3}), (std::vector<int>{kNowhere}));
  EXPECT_TRUE(stack_->wants(item)) << "it may be tried again";
  EXPECT_TRUE(save(3));
  EXPECT_EQ(find({3}), (std::vector<int>{kInDram}));
  expect_idle();
}

TEST_F(StackTest, PartsOfSeveralLengthsShareTheArena) {
  const Domain domain{.root = {}, .part_bytes = {4096, 10000}, .label = "test"};
  stack_ = std::make_unique<TierStack>(domain, std::vector<std::unique_ptr<Tier>>{},
                                       StackOptions{.dram_bytes = 40 * 4096}, clock_);
  Loads loads;
  for (std::uint64_t id = 0; id < 400; ++id) {
    const std::uint32_t part = id < 100 ? 0 : id < 200 ? 1 : static_cast<std::uint32_t>(id % 2);
    const SaveItem item{.key = key_of(id, part), .info = {}, .why = SaveWhy::kEvicted, .uses = 0};
    ASSERT_TRUE(stack_->wants(item));
    ASSERT_TRUE(stack_->save(item, [&](Memory to) {
      EXPECT_EQ(to.length, domain.part_bytes[part]);
      const auto bytes = bytes_of(item.key, to.length);
      std::copy(bytes.begin(), bytes.end(), to.address);
      return true;
    })) << id;
    stack_->load({{item.key, {}, id}}, 0, loads.collector());
    ASSERT_TRUE(loads.wait(id + 1));
    EXPECT_TRUE(loads.end(id).bytes == bytes_of(item.key, domain.part_bytes[part])) << id;
  }
  EXPECT_LE(stack_->stats().kinds[0].used_bytes, 40U * 4096);
  expect_idle();
}

TEST_F(StackTest, DamageInDramIsFoundAndForgotten) {
  StackOptions options = dram(64);
  std::atomic<bool> damage{false};
  options.damage = [&](const Key& key, Memory m) {
    if (damage.load() && key == key_of(5)) m.address[17] ^= std::byte{1};
  };
  open(options);
  for (std::uint64_t id = 4; id < 7; ++id) save(id);
  damage = true;
  Loads loads;
  load(loads, {4, 5, 6});
  ASSERT_TRUE(loads.wait(3));
  expect_bytes(loads, 4, TierKind::kDram);
  EXPECT_EQ(loads.end(5).status, Status::kMissing);
  expect_bytes(loads, 6, TierKind::kDram);
  EXPECT_EQ(find({4, 5, 6}), (std::vector<int>{kInDram, kNowhere, kInDram}));
  EXPECT_EQ(stack_->stats().verify_failed, 1U);
  damage = false;
  EXPECT_TRUE(save(5)) << "it can be saved again";
  expect_idle();
}

// ---- DRAM and disk

TEST_F(StackTest, ASecondUseIsCopiedToDiskAndRemoteWithoutAnyEviction) {
  auto* disk = add_disk();
  auto* remote = add_remote();
  open(dram(64));
  EXPECT_TRUE(save(1, SaveWhy::kSecondUse)) << "from the device: it lies nowhere yet";
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)) && remote->holds(key_of(1)); }));
  EXPECT_EQ(find({1}), std::vector<int>{kOnDisk}) << "only staged, not kept in DRAM";
  EXPECT_TRUE(save(2));
  EXPECT_FALSE(save(2, SaveWhy::kSecondUse)) << "copied from DRAM";
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(2)) && remote->holds(key_of(2)); }));
  EXPECT_FALSE(save(2, SaveWhy::kSecondUse)) << "it is everywhere";
  EXPECT_TRUE(save(3, SaveWhy::kEvicted, 1)) << "used by a request before it was evicted";
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(3)) && remote->holds(key_of(3)); }));
  EXPECT_EQ(find({3}), std::vector<int>{kInDram});
  expect_idle();
}

TEST_F(StackTest, AReadFromDramIsASecondUse) {
  auto* disk = add_disk();
  open(dram(64));
  save(1);
  save(2);
  Loads loads;
  load(loads, {1});
  ASSERT_TRUE(loads.wait(1));
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  EXPECT_FALSE(disk->holds(key_of(2)));
  expect_idle();
}

TEST_F(StackTest, WhatDramEvictsGoesToDiskOnlyWhenItCameBack) {
  auto* disk = add_disk();
  open(dram(64));
  const auto flood = [&](std::uint64_t first) {  // pushes out everything else
    for (std::uint64_t id = first; id < first + 60; ++id) save(id * 100);
  };
  save(1);
  flood(1000);
  EXPECT_FALSE(disk->holds(key_of(1))) << "used once: gone";
  EXPECT_EQ(find({1}), std::vector<int>{kNowhere});
  EXPECT_GT(dropped(DropReason::kNoAdmission), 0U);
  EXPECT_TRUE(eventually([&] { return stack_->stats().kinds[0].rereads == 1; })) << "asked for, and gone";
  EXPECT_TRUE(save(1)) << "computed again";
  flood(2000);
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); })) << "its key was remembered";
  expect_idle();
}

TEST_F(StackTest, AReadFromDiskLandsInDramAndIsNotReadTwice) {
  auto* disk = add_disk();
  open(dram(64));
  for (std::uint64_t id = 1; id < 6; ++id) disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  EXPECT_EQ(find({1, 2, 3, 9}), (std::vector<int>{kOnDisk, kOnDisk, kOnDisk, kNowhere}));
  Loads loads;
  load(loads, {1, 2, 3});
  ASSERT_TRUE(loads.wait(3));
  for (const std::uint64_t id : {1, 2, 3}) expect_bytes(loads, id, TierKind::kDisk);
  EXPECT_EQ(find({1, 4}), (std::vector<int>{kInDram, kOnDisk}));
  Loads again;
  load(again, {1, 2, 3});
  ASSERT_TRUE(again.wait(3));
  for (const std::uint64_t id : {1, 2, 3}) expect_bytes(again, id, TierKind::kDram);
  EXPECT_EQ(disk->reads(key_of(1)), 1U);
  const StackStats s = stack_->stats();
  EXPECT_EQ(s.kinds[1].hits, 4U);
  EXPECT_EQ(s.kinds[1].bytes_read, 3 * kPart);
  EXPECT_EQ(s.kinds[1].duplicate_bytes, 3 * kPart);
  expect_idle();
}

TEST_F(StackTest, APartThatDramEvictsWhileALoadLooksBelowIsReadFromThere) {
  auto* disk = add_disk();
  auto owned = std::make_unique<WatchedTier>(std::move(tiers_[0]));
  WatchedTier* watched = owned.get();
  tiers_[0] = std::move(owned);
  open(dram(64));
  for (const std::uint64_t id : {100, 200})
    disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  save(100);
  watched->once = [&] {
    for (std::uint64_t id = 10; id < 70; ++id) save(id * 100);
  };
  Loads loads;
  load(loads, {100, 200});
  ASSERT_TRUE(loads.wait(2));
  for (const std::uint64_t id : {100, 200}) expect_bytes(loads, id, TierKind::kDisk);
  expect_idle();
}

TEST_F(StackTest, TwoLoadsOfOneKeyReadOnce) {
  auto* disk = add_disk(true);
  open(dram(64));
  for (std::uint64_t id = 1; id < 4; ++id) disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  Loads a, b;
  load(a, {1, 2});
  load(b, {2, 3});
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 3; }));
  while (disk->finish()) {
  }
  ASSERT_TRUE(a.wait(2) && b.wait(2));
  expect_bytes(a, 2, TierKind::kDisk);
  expect_bytes(b, 2, TierKind::kDisk);
  EXPECT_EQ(disk->reads(key_of(2)), 1U);
  expect_idle();
}

TEST_F(StackTest, ADamagedPartOnDiskIsGoneAndTheRemoteOneIsRead) {
  auto* disk = add_disk();
  auto* remote = add_remote();
  open(dram(64));
  for (std::uint64_t id = 1; id < 3; ++id) {
    disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
    disk->corrupt(key_of(id));
  }
  remote->insert(key_of(2), info_of(2), bytes_of(key_of(2), kPart));
  Loads loads;
  load(loads, {1, 2});
  ASSERT_TRUE(loads.wait(2));
  EXPECT_EQ(loads.end(1).status, Status::kCorrupt);
  expect_bytes(loads, 2, TierKind::kRemote);
  EXPECT_EQ(stack_->stats().verify_failed, 2U);
  EXPECT_EQ(find({1, 2}), (std::vector<int>{kNowhere, kInDram}));
  expect_idle();
}

TEST_F(StackTest, DamageInDramIsNotWrittenToDiskAsTruth) {
  auto* disk = add_disk();
  StackOptions options = dram(64);
  std::atomic<bool> damage{false};
  options.damage = [&](const Key&, Memory m) {
    if (damage.load()) m.address[0] ^= std::byte{1};
  };
  open(options);
  save(1);
  damage = true;
  EXPECT_FALSE(save(1, SaveWhy::kSecondUse));
  EXPECT_TRUE(eventually([&] { return stack_->stats().verify_failed == 1; }));
  expect_idle();
  EXPECT_FALSE(disk->holds(key_of(1)));
  EXPECT_EQ(find({1}), std::vector<int>{kNowhere});
}

TEST_F(StackTest, WritesGoTogether) {
  auto* disk = add_disk();
  auto* remote = add_remote();
  open(dram(2048));  // an eighth of what stands free in it is a batch: 32 parts
  for (std::uint64_t id = 0; id < 30; ++id) EXPECT_TRUE(save(id, SaveWhy::kSecondUse));
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(29)) && remote->holds(key_of(29)); })) << "nothing follows";
  EXPECT_LT(disk->batches() + remote->batches(), 30U) << "of 60 writes";
  expect_idle();
}

TEST_F(StackTest, SeveralDirectoriesShareTheParts) {
  auto* first = add({.kind = TierKind::kDisk, .name = "a"});
  auto* second = add({.kind = TierKind::kDisk, .name = "b"});
  open(dram(64));
  for (std::uint64_t id = 0; id < 40; ++id) EXPECT_TRUE(save(id, SaveWhy::kSecondUse) || true);
  ASSERT_TRUE(stack_->flush(clock_.now() + 1));
  const auto a = first->stats().entries, b = second->stats().entries;
  EXPECT_GT(a, 5U);
  EXPECT_GT(b, 5U);
  Loads loads;
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 0; id < 40; ++id) {
    if (first->holds(key_of(id)) || second->holds(key_of(id))) ids.push_back(id);
  }
  load(loads, ids);
  ASSERT_TRUE(loads.wait(ids.size()));
  for (const auto id : ids) expect_bytes(loads, id, TierKind::kDisk);
  expect_idle();
}

TEST_F(StackTest, WhatADiskLostIsWrittenToItAgainWhenItIsReadFromDram) {
  auto* disk = add({.kind = TierKind::kDisk, .name = "disk", .capacity_bytes = 1 << 20});
  open(dram(64));
  save(1);
  save(1, SaveWhy::kSecondUse);
  ASSERT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  expect_idle();
  disk->set_up(false);
  disk->forget(key_of(1));
  Loads loads;
  load(loads, {1});
  ASSERT_TRUE(loads.wait(1));
  expect_bytes(loads, 1, TierKind::kDram);
  expect_idle();
  EXPECT_EQ(stack_->stats().kinds[1].evictions, 0U) << "a tier that is down says nothing";
  disk->set_up(true);
  Loads again;
  load(again, {1});
  ASSERT_TRUE(again.wait(1));
  expect_bytes(again, 1, TierKind::kDram);
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  expect_idle();
  EXPECT_EQ(stack_->stats().kinds[1].writes, 2U);
  EXPECT_EQ(stack_->stats().kinds[1].evictions, 1U);
}

TEST_F(StackTest, WhatATierLostByItselfIsWrittenToItAgain) {
  auto* disk =
      add({.kind = TierKind::kDisk, .name = "disk", .capacity_bytes = 1 << 20});  // losses are counted
  auto* remote = add_remote();
  open(dram(64));
  save(1, SaveWhy::kSecondUse);
  ASSERT_TRUE(eventually([&] { return disk->holds(key_of(1)) && remote->holds(key_of(1)); }));
  expect_idle();
  disk->forget(key_of(1));
  EXPECT_EQ(find({1}), std::vector<int>{kInRemote});
  remote->forget(key_of(1));
  EXPECT_EQ(find({1}), std::vector<int>{kNowhere}) << "computed again, and used again:";
  EXPECT_TRUE(eventually([&] { return save(1, SaveWhy::kSecondUse); }));
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)) && remote->holds(key_of(1)); }));
  expect_idle();
  const StackStats s = stack_->stats();
  EXPECT_EQ(s.kinds[1].evictions, 1U);
  EXPECT_EQ(s.kinds[1].rereads, 1U);
  EXPECT_EQ(s.kinds[1].writes, 2U);
  EXPECT_EQ(s.kinds[1].useful_writes, 0U);
}

TEST_F(StackTest, ATierThatIsDownHasLostNothing) {
  auto* disk =
      add({.kind = TierKind::kDisk, .name = "disk", .capacity_bytes = 1 << 20});  // losses are counted
  open(dram(64));
  save(1, SaveWhy::kSecondUse);
  ASSERT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  expect_idle();
  disk->set_up(false);
  const auto queries = stack_->stats().kinds[0].queries;
  EXPECT_EQ(find({1}), std::vector<int>{kNowhere});
  ASSERT_TRUE(eventually([&] { return stack_->stats().kinds[0].queries > queries; }));
  EXPECT_EQ(stack_->stats().kinds[1].queries, 0U) << "it was not asked";
  EXPECT_EQ(stack_->stats().kinds[1].evictions, 0U);
  disk->set_up(true);
  EXPECT_EQ(find({1}), std::vector<int>{kOnDisk});
}

TEST_F(StackTest, WhatCameAfterALookupIsNotLost) {
  auto* disk =
      add({.kind = TierKind::kDisk, .name = "disk", .capacity_bytes = 1 << 20});  // losses are counted
  open(dram(64));
  save(2);
  std::atomic<bool> busy{false}, go_on{false};
  stack_->load({{key_of(2), info_of(2), 2}}, 0, [&](const TierStack::Loaded&) {  // on the stack's thread
    busy = true;
    go_on.wait(false);
  });
  ASSERT_TRUE(eventually([&] { return busy.load(); }));
  const auto queries = stack_->stats().kinds[0].queries;
  EXPECT_EQ(find({1}), std::vector<int>{kNowhere}) << "noted, but not in the books";
  disk->insert(key_of(1), info_of(1), bytes_of(key_of(1), kPart));
  EXPECT_FALSE(save(1, SaveWhy::kSecondUse)) << "another process has written it";
  go_on = true;
  go_on.notify_one();
  ASSERT_TRUE(eventually([&] { return stack_->stats().kinds[0].queries > queries; }));
  EXPECT_EQ(stack_->stats().kinds[1].evictions, 0U);
  expect_idle();
}

// ---- without DRAM

TEST_F(StackTest, WithoutDramABlockThatComesBackIsKeptOnDisk) {
  auto* disk = add_disk();
  open({.staging_bytes = 16 * kPart});
  EXPECT_FALSE(save(1)) << "no second use: nobody touches the bytes";
  EXPECT_EQ(dropped(DropReason::kNoAdmission), 1U);
  EXPECT_TRUE(save(1)) << "it was remembered";
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  EXPECT_TRUE(save(2, SaveWhy::kEvicted, 1));
  ASSERT_TRUE(stack_->flush(clock_.now() + 1));
  Loads loads;
  load(loads, {1, 2});
  ASSERT_TRUE(loads.wait(2));
  expect_bytes(loads, 1, TierKind::kDisk);
  expect_bytes(loads, 2, TierKind::kDisk);
  EXPECT_EQ(find({1}), std::vector<int>{kOnDisk});
  expect_idle();
  EXPECT_EQ(stack_->stats().arena_bytes, 0U);
}

TEST_F(StackTest, ALoadLargerThanStagingIsReadInTurns) {
  auto* disk = add_disk();
  open({.staging_bytes = 8 * kPart});
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 0; id < 200; ++id) {
    ids.push_back(id);
    disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  }
  Loads loads;
  load(loads, ids);
  ASSERT_TRUE(loads.wait(200));
  for (const auto id : ids) expect_bytes(loads, id, TierKind::kDisk);
  expect_idle();
}

TEST_F(StackTest, AdmitAllKeepsEveryBlock) {
  auto* disk = add_disk();
  open({.staging_bytes = 16 * kPart, .disk_admit_all = true});
  EXPECT_TRUE(save(1));
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
}

// ---- deadlines, cancels, failures

TEST_F(StackTest, AfterTheDeadlineBytesLandInDramOnly) {
  auto* disk = add_disk(true);
  auto* remote = add_remote();
  open(dram(64));
  disk->insert(key_of(1), info_of(1), bytes_of(key_of(1), kPart));
  Loads loads;
  load(loads, {1}, clock_.now() + 1);
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 1; }));
  // The tier has begun: it knows nothing of the deadline any more.
  disk->ignore_deadlines();
  clock_.advance(2);
  stack_->tick();
  ASSERT_TRUE(loads.wait(1));
  EXPECT_EQ(loads.end(1).status, Status::kTimeout);
  EXPECT_TRUE(disk->finish());
  EXPECT_EQ(find({1}), std::vector<int>{kInDram});
  EXPECT_EQ(loads.calls(1), 1);
  EXPECT_EQ(stack_->stats().late, 1U);
  EXPECT_FALSE(remote->holds(key_of(1)));
  expect_idle();
}

TEST_F(StackTest, AReadThatDidNotBeginByItsDeadlineIsATimeout) {
  auto* disk = add_disk(true);
  open(dram(64));
  disk->insert(key_of(1), info_of(1), bytes_of(key_of(1), kPart));
  Loads hurried, patient;
  load(hurried, {1}, clock_.now() + 1);
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 1; }));
  load(patient, {1});
  clock_.advance(2);
  ASSERT_TRUE(disk->finish()) << "the tier gives up";
  ASSERT_TRUE(hurried.wait(1));
  EXPECT_EQ(hurried.end(1).status, Status::kTimeout);
  EXPECT_EQ(patient.ended(), 0U) << "who has time is not hurt by who has none";
  ASSERT_TRUE(eventually([&] { return disk->finish(); }));
  ASSERT_TRUE(patient.wait(1));
  expect_bytes(patient, 1, TierKind::kDisk);
  expect_idle();
}

TEST_F(StackTest, CancelEndsALoadAndSparesTheOther) {
  auto* disk = add_disk(true);
  open(dram(64));
  for (std::uint64_t id = 1; id < 4; ++id) disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  Loads a, b;
  const Ticket first = load(a, {1, 2});
  load(b, {2, 3});
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 3; }));
  stack_->cancel(first);
  ASSERT_TRUE(a.wait(2));
  EXPECT_EQ(a.end(1).status, Status::kCancelled);
  EXPECT_EQ(a.end(2).status, Status::kCancelled);
  while (disk->finish()) {
  }
  ASSERT_TRUE(b.wait(2));
  expect_bytes(b, 2, TierKind::kDisk);
  expect_bytes(b, 3, TierKind::kDisk);
  EXPECT_EQ(a.calls(1) + a.calls(2), 2);
  stack_->cancel(first);  // twice is nothing
  expect_idle();
}

TEST_F(StackTest, ACancelledLoadThatNobodySharesIsCancelledInTheTier) {
  auto* disk = add_disk(true);
  open(dram(64));
  for (std::uint64_t id = 1; id < 4; ++id) disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  Loads loads;
  const Ticket ticket = load(loads, {1, 2, 3});
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 3; }));
  stack_->cancel(ticket);
  while (disk->finish()) {
  }
  ASSERT_TRUE(loads.wait(3));
  EXPECT_EQ(disk->reads(key_of(1)) + disk->reads(key_of(2)) + disk->reads(key_of(3)), 0U);
  expect_idle();
}

TEST_F(StackTest, ADownLevelIsSkippedAndCounted) {
  auto* disk = add_disk();
  auto* remote = add_remote();
  open(dram(64));
  disk->set_up(false);
  stack_->tick();
  EXPECT_TRUE(save(1, SaveWhy::kSecondUse));
  EXPECT_TRUE(eventually([&] { return remote->holds(key_of(1)); }));
  expect_idle();  // and no longer staged
  EXPECT_EQ(dropped(DropReason::kDown), 1U);
  EXPECT_FALSE(stack_->speeds()[1].up);
  Loads loads;
  load(loads, {1});
  ASSERT_TRUE(loads.wait(1));
  expect_bytes(loads, 1, TierKind::kRemote);
  disk->set_up(true);
  stack_->tick();
  EXPECT_FALSE(save(1, SaveWhy::kSecondUse)) << "the bytes are in DRAM by now";
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  expect_idle();
}

TEST_F(StackTest, ALevelIsUpFromTheMomentItsTierIs) {
  auto* remote = add_remote();
  remote->set_up(false);
  open(dram(64));
  stack_->tick();
  EXPECT_FALSE(stack_->speeds()[2].up);
  remote->set_up(true);  // a server that has just let us in; nothing has been ticked since
  EXPECT_TRUE(stack_->speeds()[2].up);
  EXPECT_TRUE(save(1, SaveWhy::kSecondUse));
  EXPECT_TRUE(eventually([&] { return remote->holds(key_of(1)); }));
  EXPECT_EQ(dropped(DropReason::kDown), 0U);
  remote->set_up(false);
  EXPECT_FALSE(stack_->speeds()[2].up);
  save(2, SaveWhy::kSecondUse);
  EXPECT_EQ(dropped(DropReason::kDown), 1U);
  expect_idle();
}

TEST_F(StackTest, FailuresOfWritesAreCountedByTheirReason) {
  auto* disk = add_disk();
  open(dram(64));
  disk->set_fault([](bool put, const Key& key) {
    return !put ? Status::kOk : key == key_of(1) ? Status::kNoSpace : Status::kIoError;
  });
  save(1, SaveWhy::kSecondUse);
  save(2, SaveWhy::kSecondUse);
  expect_idle();
  EXPECT_EQ(dropped(DropReason::kNoSpace), 1U);
  EXPECT_EQ(dropped(DropReason::kError), 1U);
  disk->set_fault(nullptr);
  EXPECT_TRUE(save(1, SaveWhy::kEvicted)) << "it is wanted still";
  EXPECT_TRUE(eventually([&] { return disk->holds(key_of(1)); }));
  expect_idle();
}

TEST_F(StackTest, AFailedReadEndsWithItsStatus) {
  auto* disk = add_disk();
  open(dram(64));
  for (std::uint64_t id = 1; id < 3; ++id) disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  disk->set_fault([](bool, const Key& key) { return key == key_of(1) ? Status::kIoError : Status::kOk; });
  Loads loads;
  load(loads, {1, 2});
  ASSERT_TRUE(loads.wait(2));
  EXPECT_EQ(loads.end(1).status, Status::kIoError);
  expect_bytes(loads, 2, TierKind::kDisk);
  expect_idle();
}

TEST_F(StackTest, WritesBeyondTheRoomForThemAreDroppedNotQueued) {
  auto* disk = add_disk(true);
  open({.staging_bytes = 16 * kPart});
  int taken = 0;
  for (std::uint64_t id = 0; id < 40; ++id) taken += save(id, SaveWhy::kSecondUse) ? 1 : 0;
  const StackStats s = stack_->stats();
  EXPECT_LE(s.arena_bytes, 16 * kPart);
  EXPECT_EQ(s.writes_in_flight, 12U) << "three quarters: reads need room too";
  EXPECT_EQ(dropped(DropReason::kNoStaging), 28U);
  while (eventually([&] { return disk->waiting() > 0 || stack_->stats().writes_in_flight == 0; }) &&
         disk->finish()) {
  }
  expect_idle();
  EXPECT_EQ(disk->stats().entries, 12U);
  EXPECT_TRUE(save(39, SaveWhy::kSecondUse));
  while (!disk->finish()) std::this_thread::yield();
  expect_idle();
}

TEST_F(StackTest, SecondUsesLeaveRoomForEvictions) {
  auto* disk = add_disk(true);
  open(dram(64));  // of which a quarter stands free, and three quarters of that may be on their way to disk
  for (std::uint64_t id = 0; id < 40; ++id) save(id, SaveWhy::kSecondUse);
  EXPECT_EQ(stack_->stats().writes_in_flight, 12U);
  for (std::uint64_t id = 100; id < 200; ++id)
    EXPECT_TRUE(save(id)) << "what the device evicts is always taken";
  while (eventually([&] { return disk->waiting() > 0 || stack_->stats().writes_in_flight == 0; }) &&
         disk->finish()) {
  }
  expect_idle();
}

TEST_F(StackTest, WritesAreDroppedWhileALevelIsSlow) {
  auto* disk = add_disk(true);
  StackOptions options = dram(64);
  options.slow_write_s = 2;
  open(options);
  save(1, SaveWhy::kSecondUse);
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 1; }));
  clock_.advance(100);
  disk->finish();
  expect_idle();
  EXPECT_TRUE(save(2, SaveWhy::kSecondUse)) << "one goes, to see whether it is still slow";
  save(3, SaveWhy::kSecondUse);
  EXPECT_EQ(dropped(DropReason::kSlow), 1U);
  ASSERT_TRUE(eventually([&] { return disk->finish(); }));
  expect_idle();
}

TEST_F(StackTest, TheWriteBudgetBounds) {
  auto* disk = add({.kind = TierKind::kDisk, .name = "disk", .capacity_bytes = 1 << 30});
  StackOptions options = dram(64);
  options.disk_bytes_per_day = 24 * 4 * kPart;  // four an hour, and four at once
  open(options);
  for (std::uint64_t id = 0; id < 10; ++id) save(id, SaveWhy::kSecondUse);
  expect_idle();
  EXPECT_EQ(disk->stats().entries, 4U);
  EXPECT_EQ(dropped(DropReason::kBudget), 6U);
  clock_.advance(1800);
  for (std::uint64_t id = 10; id < 20; ++id) save(id, SaveWhy::kSecondUse);
  expect_idle();
  EXPECT_EQ(disk->stats().entries, 6U);
}

TEST_F(StackTest, TheRemoteIsAskedWhereItMightKnowMore) {
  auto* remote = add_remote(false, true);
  open(dram(64));
  remote->insert(key_of(1), info_of(1), bytes_of(key_of(1), kPart));
  save(2);
  bool unknown = false;
  EXPECT_EQ(find({2, 1, 3}, &unknown), (std::vector<int>{kInDram, kNowhere, kNowhere}));
  EXPECT_TRUE(unknown);
  std::atomic<bool> done{false};
  std::vector<std::uint8_t> kinds;
  stack_->probe({key_of(2), key_of(1), key_of(3)}, 0, [&](std::vector<std::uint8_t> k) {
    kinds = std::move(k);
    done = true;
  });
  ASSERT_TRUE(eventually([&] { return done.load(); }));
  EXPECT_EQ(kinds, (std::vector<std::uint8_t>{kInDram, kInRemote, kNowhere}));
  EXPECT_EQ(find({1, 3}, &unknown), (std::vector<int>{kInRemote, kNowhere}));
  EXPECT_FALSE(unknown) << "told, and remembered by the tier";
}

TEST_F(StackTest, PinnedPartsStayAndExpiredOnesGo) {
  StackOptions options = dram(64);
  options.ttl_s[0] = 100;
  open(options);
  for (std::uint64_t id = 0; id < 20; ++id) save(id * 100);
  std::vector<Key> keys;
  for (std::uint64_t id = 0; id < 20; ++id) keys.push_back(key_of(id * 100));
  stack_->pin(keys, clock_.now() + 1000);  // a quarter: 14 of 56
  for (std::uint64_t id = 100; id < 200; ++id) save(id * 100);
  EXPECT_EQ(find({0, 1300, 1400, 1900}), (std::vector<int>{kInDram, kInDram, kNowhere, kNowhere}));
  clock_.advance(200);
  stack_->tick();
  EXPECT_EQ(stack_->stats().kinds[0].entries, 14U) << "only pinned ones outlive their time";
  stack_->pin(keys, 0);
  clock_.advance(200);
  stack_->tick();
  EXPECT_EQ(stack_->stats().kinds[0].entries, 0U);
  expect_idle();
}

TEST_F(StackTest, SpeedsAreMeasured) {
  auto* disk = add_disk(true);
  open(dram(64));
  EXPECT_FALSE(stack_->speeds()[1].measured);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 0; id < 3; ++id) {
    ids.push_back(id);
    disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  }
  Loads loads;
  load(loads, ids);
  ASSERT_TRUE(eventually([&] { return disk->waiting() == 3; }));
  EXPECT_EQ(stack_->speeds()[1].queued_bytes, 3 * kPart);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1);
    disk->finish();
  }
  const TierSpeed speed = stack_->speeds()[1];
  EXPECT_TRUE(speed.measured);
  EXPECT_NEAR(speed.bytes_per_s, kPart, 1);
  EXPECT_NEAR(speed.latency_s, 0, 1e-6) << "the first came after as long as the others";
  clock_.advance(7);
  EXPECT_NEAR(stack_->speeds()[1].age_s, 7, 1e-6);
}

TEST_F(StackTest, DestructionEndsEverythingOnce) {
  auto* disk = add_disk(true);
  open(dram(64));
  for (std::uint64_t id = 1; id < 9; ++id) disk->insert(key_of(id), info_of(id), bytes_of(key_of(id), kPart));
  save(20);
  save(21, SaveWhy::kSecondUse);
  Loads loads;
  load(loads, {1, 2, 3, 4});
  load(loads, {5, 6});
  std::atomic<int> probes{0};
  stack_->probe({key_of(1)}, 0, [&](const std::vector<std::uint8_t>&) { ++probes; });
  stack_.reset();
  EXPECT_EQ(loads.ended(), 6U);
  for (std::uint64_t id = 1; id < 7; ++id) {
    EXPECT_EQ(loads.calls(id), 1);
    EXPECT_EQ(loads.end(id).status, Status::kCancelled);
  }
  EXPECT_EQ(probes.load(), 1);
}

TEST_F(StackTest, FindOfALongPromptIsQuick) {
  add_disk();
  const Domain domain{.root = {}, .part_bytes = {64}, .label = "test"};
  stack_ = std::make_unique<TierStack>(domain, std::move(tiers_), StackOptions{.dram_bytes = 10000 * 4096},
                                       clock_);
  std::vector<Key> keys;
  for (std::uint64_t id = 0; id < 8192; ++id) {
    const SaveItem item{.key = key_of(id), .info = {}, .why = SaveWhy::kEvicted, .uses = 0};
    ASSERT_TRUE(stack_->save(item, [](Memory to) {
      std::fill_n(to.address, to.length, std::byte{1});
      return true;
    }));
    keys.push_back(item.key);
  }
  std::vector<std::uint8_t> out(keys.size());
  bool unknown = false;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) stack_->find(keys, out, &unknown);
  const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 10;
  RecordProperty("find_of_8192_ms", std::to_string(took * 1000));
  EXPECT_EQ(std::count(out.begin(), out.end(), kInDram) > 7000, true);
}

}  // namespace
}  // namespace barg::store::stack_test
