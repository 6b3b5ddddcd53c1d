// The disk tier's contract: round trips, durability, eviction, expiry, deadlines, cancelling, sharing.
#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "store/disk_support.h"

namespace barg::store::disk_test::disk_tier_test {
namespace {

TEST(DiskTier, RoundTripOfManySizesAlignedOrNot) {
  for (const bool uring : {true, false}) {
    for (const bool direct : {true, false}) {
      TempDir dir;
      const Domain d = domain_of({1, 511, 4096, 4097, 12288, 100000});
      DiskOptions o = options_for(dir.path());
      o.use_io_uring = uring;
      o.use_direct_io = direct;
      const auto tier = must_open(o, d);
      for (std::uint32_t part = 0; part < d.part_bytes.size(); ++part) {
        EXPECT_EQ(count(put_parts(*tier, d, range(0, 12), part), Status::kOk), 12U);
        for (const std::size_t shift : {std::size_t{0}, std::size_t{512}, std::size_t{3}}) {
          EXPECT_EQ(count(get_parts(*tier, d, range(0, 12), part, shift), Status::kOk), 12U)
              << part << " " << shift;
        }
      }
      EXPECT_EQ(get_parts(*tier, d, {99})[0], Status::kMissing);
      const TierStats s = tier->stats();
      EXPECT_EQ(s.entries, 72U);
      EXPECT_EQ(s.verify_failed, 0U);
      EXPECT_EQ(s.reads_in_flight + s.writes_in_flight, 0U);
    }
  }
}

TEST(DiskTier, PartIsPresentOnceReportedAndASecondPutWritesNothing) {
  TempDir dir;
  const Domain d = domain_of();
  const auto tier = must_open(options_for(dir.path()), d);
  const std::vector<Key> keys{key_of(5), key_of(6)};
  std::vector<Presence> there(2);
  tier->find(keys, there);
  EXPECT_EQ(there[0], Presence::kAbsent);
  EXPECT_EQ(put_parts(*tier, d, {5, 5})[1], Status::kOk);
  tier->find(keys, there);
  EXPECT_EQ(there[0], Presence::kPresent);
  EXPECT_EQ(there[1], Presence::kAbsent);
  EXPECT_EQ(tier->stats().bytes_written, 16384U);
  EXPECT_EQ(put_parts(*tier, d, {5})[0], Status::kOk);
  EXPECT_EQ(tier->stats().bytes_written, 16384U);
  tier->erase(keys);
  EXPECT_EQ(get_parts(*tier, d, {5})[0], Status::kMissing);
}

TEST(DiskTier, NothingIsVisibleBeforeItIsDurable) {
  TempDir dir;
  const Domain d = domain_of();
  DiskOptions o = options_for(dir.path());
  const auto io = std::make_shared<FaultyIo>();
  o.io = io;
  const auto tier = must_open(o, d);
  ASSERT_EQ(put_parts(*tier, d, {1})[0], Status::kOk);
  EXPECT_GE(io->f.syncs, 2U) << "header and batch";
  io->f.sync_error = EIO;
  EXPECT_EQ(put_parts(*tier, d, {2})[0], Status::kIoError);
  EXPECT_EQ(get_parts(*tier, d, {2})[0], Status::kMissing);
  EXPECT_EQ(get_parts(*tier, d, {1})[0], Status::kOk);
  io->f.sync_error = 0;
  EXPECT_EQ(put_parts(*tier, d, {2})[0], Status::kOk);
}

/// What reads do not see.
TEST(DiskTier, PaddingIsZeroWhereverThePayloadLay) {
  for (const bool direct : {true, false}) {
    TempDir dir;
    const Domain d = domain_of({10000});
    DiskOptions o = options_for(dir.path());
    o.use_direct_io = direct;
    EXPECT_EQ(count(put_parts(*must_open(o, d), d, range(0, 10)), Status::kOk), 10U);
    std::ifstream file(dir.files(".kv").at(0), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (std::uint64_t n = 0; n < 10; ++n) {
      const std::size_t at = kSegmentHeaderBytes + n * record_bytes(10000) + kIoAlign;
      ASSERT_GE(bytes.size(), at + io_padded(10000));
      EXPECT_TRUE(is_part(n, 0, std::as_bytes(std::span(bytes)).subspan(at, 10000))) << n;
      EXPECT_EQ(bytes.substr(at + 10000, io_padded(10000) - 10000),
                std::string(io_padded(10000) - 10000, '\0'));
    }
  }
}

TEST(DiskTier, MoreThanOneWriteTakes) {
  TempDir dir;
  const Domain d = domain_of({4096, 300000});
  DiskOptions o = options_for(dir.path());
  o.segment_bytes = 16 << 20;
  o.capacity_bytes = 128 << 20;
  const auto tier = must_open(o, d);
  EXPECT_EQ(count(put_parts(*tier, d, range(0, 1200)), Status::kOk), 1200U) << "pieces";
  EXPECT_EQ(count(put_parts(*tier, d, range(0, 60), 1), Status::kOk), 60U) << "bytes";
  EXPECT_EQ(count(get_parts(*tier, d, range(0, 1200)), Status::kOk), 1200U);
  EXPECT_EQ(count(get_parts(*tier, d, range(0, 60), 1), Status::kOk), 60U);
}

TEST(DiskTier, WhatWasDamagedOnItsWayIsNotBelieved) {
  TempDir dir;
  const Domain d = domain_of();
  const auto tier = must_open(options_for(dir.path()), d);
  std::vector<std::byte> bytes(16384);
  fill_part(4, 0, bytes);
  PutItem item{
      key_of(4), info_of(4), {MemoryKind::kHost, bytes.data(), bytes.size()}, 0, payload_hash(bytes)};
  bytes[100] ^= std::byte{1};  // after the checksum was made
  Reports reports;
  tier->put(Ticket{1}, {item}, reports.sink());
  reports.wait(1);
  EXPECT_EQ(get_parts(*tier, d, {4})[0], Status::kCorrupt);
  EXPECT_EQ(tier->stats().verify_failed, 1U);
}

TEST(DiskTier, AnotherInfoIsCorrupt) {
  TempDir dir;
  const Domain d = domain_of();
  const auto tier = must_open(options_for(dir.path()), d);
  put_parts(*tier, d, {3});
  std::vector<std::byte> to(16384);
  for (const int field : {0, 1, 2}) {
    put_parts(*tier, d, {3});  // the refused record is forgotten
    GetItem item{key_of(3), info_of(3), {MemoryKind::kHost, to.data(), to.size()}, 0};
    if (field == 0) item.info.parent[0] ^= 1;
    if (field == 1) ++item.info.depth;
    if (field == 2) ++item.info.fingerprint;
    Reports reports;
    tier->get(Ticket{1}, {item}, 0, reports.sink());
    EXPECT_EQ(reports.wait(1)[0], Status::kCorrupt) << field;
  }
  EXPECT_EQ(tier->stats().verify_failed, 3U);
}

TEST(DiskTier, ReopenKeepsEverything) {
  TempDir dir;
  const Domain d = domain_of({16384, 5000});
  for (int round = 0; round < 3; ++round) {
    const auto tier = must_open(options_for(dir.path()), d);
    const std::uint64_t had = 100U * static_cast<unsigned>(round);
    EXPECT_EQ(count(get_parts(*tier, d, range(0, had), 0), Status::kOk), had);
    EXPECT_EQ(count(get_parts(*tier, d, range(0, had), 1), Status::kOk), had);
    put_parts(*tier, d, range(had, had + 100), 0);
    put_parts(*tier, d, range(had, had + 100), 1);
  }
  EXPECT_TRUE(dir.files(".tail").empty()) << "a clean close seals";
  EXPECT_EQ(dir.files(".lock").size(), 1U) << "lock files of dead writers are cleaned away";
}

TEST(DiskTier, OpeningReadsAtMostOneHundredth) {
  TempDir dir;
  const Domain d = domain_of({65536});
  DiskOptions o = options_for(dir.path());
  o.segment_bytes = 8 << 20;
  {
    const auto tier = must_open(o, d);
    ASSERT_EQ(count(put_parts(*tier, d, range(0, 600)), Status::kOk), 600U);
  }
  const auto io = std::make_shared<FaultyIo>();
  o.io = io;
  const auto tier = must_open(o, d);
  EXPECT_EQ(tier->stats().entries, 600U);
  EXPECT_GT(io->f.bytes_read, 0U);
  EXPECT_LE(io->f.bytes_read, 600U * 65536U / 100);
}

TEST(DiskTier, CapacityIsKeptAndTheLeastRecentlyUsedGo) {
  TempDir dir;
  const Domain d = domain_of();
  SharedClock clock;
  DiskOptions o = options_for(dir.path());
  o.capacity_bytes = 8 << 20;
  o.clock = &clock;
  const auto tier = must_open(o, d);
  for (std::uint64_t n = 0; n < 1200; n += 20) {
    clock.advance(10);
    put_parts(*tier, d, range(n, n + 20));
    get_parts(*tier, d, range(0, std::min<std::uint64_t>(n + 20, 40)));  // the start of the chain stays hot
    std::uint64_t on_disk = 0;
    for (const auto& f : dir.files("")) on_disk += std::filesystem::file_size(f);
    ASSERT_LE(on_disk, o.capacity_bytes + 100) << "the lock file is not counted";
  }
  const TierStats s = tier->stats();
  EXPECT_GT(s.evicted, 500U);
  EXPECT_LE(s.bytes_used, o.capacity_bytes);
  EXPECT_GT(s.entries, 200U);
  EXPECT_EQ(count(get_parts(*tier, d, range(0, 40)), Status::kOk), 40U) << "hot records are moved";
  EXPECT_EQ(count(get_parts(*tier, d, range(1100, 1200)), Status::kOk), 100U) << "the newest are there";
  EXPECT_LT(count(get_parts(*tier, d, range(40, 600)), Status::kOk), 100U) << "the old ones went";
}

TEST(DiskTier, UsingALeafKeepsItsAncestors) {
  TempDir dir;
  const Domain d = domain_of();
  SharedClock clock;
  DiskOptions o = options_for(dir.path());
  o.capacity_bytes = 8 << 20;
  o.clock = &clock;
  const auto tier = must_open(o, d);
  put_parts(*tier, d, range(0, 30));
  get_parts(*tier, d, range(0, 30));
  for (std::uint64_t n = 0; n < 1000; n += 20) {
    clock.advance(10);
    put_parts(*tier, d, range(5000 + n, 5020 + n));
    tier->touch(std::vector<Key>{key_of(29)});  // the leaf alone
  }
  EXPECT_EQ(count(get_parts(*tier, d, range(0, 30)), Status::kOk), 30U);
}

TEST(DiskTier, PartsExpire) {
  TempDir dir;
  const Domain d = domain_of();
  SharedClock clock;
  std::atomic<std::uint64_t> unix_time{1'000'000};
  DiskOptions o = options_for(dir.path());
  o.clock = &clock;
  o.ttl_s = 100;
  o.unix_time = [&] { return unix_time.load(); };
  auto tier = must_open(o, d);
  put_parts(*tier, d, {1, 2});
  clock.advance(60);
  unix_time += 60;
  tier->touch(std::vector<Key>{key_of(1)});  // the parent: touching 2 would keep both
  clock.advance(60);
  unix_time += 60;
  EXPECT_EQ(get_parts(*tier, d, {2})[0], Status::kMissing);
  EXPECT_EQ(get_parts(*tier, d, {1})[0], Status::kOk);
  tier.reset();
  unix_time += 10000;
  tier = must_open(o, d);
  EXPECT_EQ(tier->stats().entries, 0U) << "time goes on while nobody runs";
  EXPECT_TRUE(eventually([&] { return dir.files(".kv").empty(); })) << "dead segments go";
}

TEST(DiskTier, WhatHasExpiredGivesItsRoomBackUnasked) {
  TempDir dir;
  const Domain d = domain_of();
  SharedClock clock;
  DiskOptions o = options_for(dir.path());
  o.clock = &clock;
  o.ttl_s = 100;
  const auto tier = must_open(o, d);
  put_parts(*tier, d, {1, 2});
  clock.advance(110);
  EXPECT_TRUE(eventually([&] { return tier->stats().entries == 0; }));
  EXPECT_EQ(tier->stats().evicted, 2U);
}

TEST(DiskTier, DeadlinesCancelAndCloseWhileTheDiskHangs) {
  TempDir dir;
  const Domain d = domain_of();
  SharedClock clock;
  const auto io = std::make_shared<FaultyIo>();
  DiskOptions o = options_for(dir.path());
  o.clock = &clock;
  o.io = io;
  o.io_threads = 1;
  auto tier = must_open(o, d);
  put_parts(*tier, d, range(0, 300));
  io->f.stall(true);
  std::vector<std::byte> to(16384);
  const auto want = [&](std::uint64_t n) {
    return GetItem{key_of(n), info_of(n), {MemoryKind::kHost, to.data(), to.size()}, n};
  };
  Reports started, late, cancelled, closed;
  tier->get(Ticket{7}, {want(1)}, 0, started.sink());
  {
    std::unique_lock lock(io->f.gate_mutex);
    io->f.gate.wait(lock, [&] { return io->f.waiting == 1; });
  }
  tier->get(Ticket{8}, {want(2), want(3)}, clock.now() + 5, late.sink());
  tier->get(Ticket{9}, {want(4), want(5)}, 0, cancelled.sink());
  tier->get(Ticket{10}, {want(6)}, 0, closed.sink());
  tier->cancel(Ticket{9});
  clock.advance(6);
  for (const auto& [tag, status] : late.wait(2)) EXPECT_EQ(status, Status::kTimeout);
  for (const auto& [tag, status] : cancelled.wait(2)) EXPECT_EQ(status, Status::kCancelled);
  EXPECT_EQ(started.count(), 0U);
  std::jthread closing([&] { tier.reset(); });
  io->f.stall(false);
  closing.join();
  EXPECT_EQ(started.wait(1)[1], Status::kOk);
  EXPECT_EQ(closed.count(), 1U) << "reported at the latest when the tier closes";
}

TEST(DiskTier, FlushWaitsForWhatWasAccepted) {
  TempDir dir;
  const Domain d = domain_of();
  DiskOptions o = options_for(dir.path());
  o.commit_delay_s = 3600;  // only a flush ends the wait for company
  const auto tier = must_open(o, d);
  put_parts(*tier, d, {1});
  std::vector<std::byte> bytes(16384);
  fill_part(2, 0, bytes);
  Reports reports;
  tier->put(Ticket{1}, {{key_of(2), info_of(2), {MemoryKind::kHost, bytes.data(), bytes.size()}, 0}},
            reports.sink());
  EXPECT_TRUE(tier->flush(0));
  EXPECT_EQ(reports.count(), 1U);
  EXPECT_EQ(get_parts(*tier, d, {2})[0], Status::kOk);
}

TEST(DiskTier, OpenErrorsAreSentences) {
  TempDir dir;
  const Domain d = domain_of();
  DiskOptions o = options_for(dir.path() + "/a/b");
  EXPECT_NE(open_disk_tier(o, d).error().message.find("cannot be used: No such file"), std::string::npos);
  std::ofstream(dir.path() + "/file") << "x";
  o.directory = dir.path() + "/file";
  EXPECT_NE(open_disk_tier(o, d).error().message.find("Not a directory"), std::string::npos);
  o.directory = dir.path();
  o.capacity_bytes = 50000;
  EXPECT_NE(open_disk_tier(o, d).error().message.find("too small"), std::string::npos);
  o = options_for(dir.path());
  EXPECT_FALSE(open_disk_tier(o, domain_of({})).has_value());
  EXPECT_FALSE(open_disk_tier(o, domain_of(std::vector<std::uint64_t>(500, 4096))).has_value());
}

TEST(DiskShared, TwoWritersReadEachOther) {
  TempDir dir;
  const Domain d = domain_of();
  const auto a = must_open(options_for(dir.path()), d);
  const auto b = must_open(options_for(dir.path()), d);
  put_parts(*a, d, range(0, 150));  // several sealed segments and one that is being written
  put_parts(*b, d, range(150, 300));
  ASSERT_TRUE(eventually([&] { return a->stats().entries == 300 && b->stats().entries == 300; }))
      << a->stats().entries << " " << b->stats().entries;
  EXPECT_EQ(count(get_parts(*a, d, range(0, 300)), Status::kOk), 300U);
  EXPECT_EQ(count(get_parts(*b, d, range(0, 300)), Status::kOk), 300U);
  put_parts(*a, d, {150});
  EXPECT_EQ(a->stats().bytes_written, 150U * 16384U) << "what the other has is not written again";
  put_parts(*a, d, range(300, 302));  // goes on in the segment that b follows
  ASSERT_TRUE(eventually([&] { return b->stats().entries == 302; }));
  EXPECT_EQ(count(get_parts(*b, d, {300, 301}), Status::kOk), 2U);
}

TEST(DiskShared, AVanishedForeignSegmentIsAMiss) {
  TempDir dir;
  const Domain d = domain_of();
  const auto a = must_open(options_for(dir.path()), d);
  put_parts(*a, d, range(0, 150));
  DiskOptions slow = options_for(dir.path());
  slow.rescan_s = 3600;
  const auto b = must_open(slow, d);
  EXPECT_EQ(count(get_parts(*b, d, {149}), Status::kOk), 1U);
  for (const auto& file : dir.files(".kv")) std::filesystem::remove(file);
  const auto got = get_parts(*b, d, range(0, 100));
  EXPECT_EQ(count(got, Status::kOk) + count(got, Status::kMissing), 100U);
  EXPECT_GE(count(got, Status::kMissing), 40U);
  const TierStats s = b->stats();
  EXPECT_EQ(s.io_errors + s.verify_failed, 0U);
  EXPECT_TRUE(s.up);
}

TEST(DiskShared, AHeaderThatIsThereBeforeItsPayloadIsAMiss) {
  TempDir dir;
  const Domain d = domain_of();
  const auto a = must_open(options_for(dir.path()), d);
  put_parts(*a, d, range(0, 10));
  {
    std::fstream tail(dir.files(".tail").at(0), std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t n = 0; n < 5; ++n) {  // as far as another machine sees it by now
      tail.seekp(
          static_cast<std::streamoff>(kSegmentHeaderBytes + n * record_bytes(16384) + kIoAlign + 8192));
      tail.write(std::string(8192, '\0').data(), 8192);
    }
  }
  const auto b = must_open(options_for(dir.path()), d);
  ASSERT_EQ(b->stats().entries, 10U);
  EXPECT_EQ(count(get_parts(*b, d, range(0, 5)), Status::kMissing), 5U);
  EXPECT_EQ(count(get_parts(*b, d, range(5, 10)), Status::kOk), 5U) << "the segment is not to blame";
  EXPECT_EQ(b->stats().verify_failed, 0U);
  EXPECT_EQ(b->stats().last_error, "");
  EXPECT_EQ(count(put_parts(*b, d, range(0, 5)), Status::kOk), 5U);
  EXPECT_EQ(count(get_parts(*b, d, range(0, 10)), Status::kOk), 10U);
}

TEST(DiskShared, OnlyTheOwnerDeletes) {
  TempDir dir;
  const Domain d = domain_of();
  const auto a = must_open(options_for(dir.path()), d);
  put_parts(*a, d, range(0, 150));
  const std::size_t files = dir.files(".kv").size();
  ASSERT_GE(files, 2U);
  DiskOptions o = options_for(dir.path());
  o.capacity_bytes = 3 << 20;
  {
    const auto b = must_open(o, d);
    put_parts(*b, d, range(1000, 1400));  // b has to clean, but only its own
    EXPECT_LE(b->stats().bytes_used, o.capacity_bytes);
  }
  EXPECT_EQ(count(get_parts(*a, d, range(0, 150)), Status::kOk), 150U);
}

TEST(DiskShared, ForeignDomainsAreNotReadAndGoFirst) {
  TempDir dir;
  const Domain mine = domain_of({16384}, 1), theirs = domain_of({16384}, 2);
  {
    const auto tier = must_open(options_for(dir.path()), theirs);
    put_parts(*tier, theirs, range(0, 150));
  }
  {
    const auto tier = must_open(options_for(dir.path()), mine);
    EXPECT_EQ(tier->stats().entries, 0U);
    EXPECT_GT(tier->stats().bytes_used, 150U * 16384U) << "adopted: they take room";
    EXPECT_EQ(get_parts(*tier, mine, {3})[0], Status::kMissing);
    put_parts(*tier, mine, range(0, 100));
  }
  {
    const auto back = must_open(options_for(dir.path()), theirs);
    EXPECT_EQ(count(get_parts(*back, theirs, range(0, 150)), Status::kOk), 150U)
        << "kept while there is room";
  }
  DiskOptions o = options_for(dir.path());
  o.capacity_bytes = 8 << 20;
  {
    const auto tier = must_open(o, mine);
    put_parts(*tier, mine, range(100, 350));
    EXPECT_EQ(count(get_parts(*tier, mine, range(0, 350)), Status::kOk), 350U) << "theirs went first";
  }
}

TEST(DiskShared, SameRootOtherSizesIsAnotherDomain) {
  TempDir dir;
  {
    const auto tier = must_open(options_for(dir.path()), domain_of({16384}));
    put_parts(*tier, domain_of({16384}), range(0, 10));
  }
  const auto tier = must_open(options_for(dir.path()), domain_of({8192}));
  EXPECT_EQ(tier->stats().entries, 0U);
}

}  // namespace
}  // namespace barg::store::disk_test::disk_tier_test
