// The disk tier on a disk that fails: EIO, ENOSPC (a shim and a small tmpfs), short writes, flipped bits,
// garbage in the directory, and a random walk under all of them. The rule is always the same: never wrong
// bytes, and it recovers.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "store/disk_support.h"

namespace barg::store::disk_test::disk_fault_test {
namespace {

struct Rig {
  TempDir dir;
  Domain domain = domain_of();
  SharedClock clock;
  std::shared_ptr<FaultyIo> io = std::make_shared<FaultyIo>();
  DiskOptions options() {
    DiskOptions o = options_for(dir.path());
    o.clock = &clock;
    o.io = io;
    return o;
  }
};

void flip_bit(const std::filesystem::path& path, std::uint64_t bit) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(static_cast<std::streamoff>(bit / 8));
  const char c = static_cast<char>(f.get() ^ (1 << (bit % 8)));
  f.seekp(static_cast<std::streamoff>(bit / 8));
  f.put(c);
}

TEST(DiskFaults, ReadErrorsQuarantineThenTakeTheTierDownAndItComesBack) {
  Rig rig;
  const auto tier = must_open(rig.options(), rig.domain);
  put_parts(*tier, rig.domain, range(0, 300));
  const std::size_t all = tier->stats().entries;
  rig.io->f.read_error = EIO;
  EXPECT_EQ(get_parts(*tier, rig.domain, {0})[0], Status::kIoError);
  EXPECT_TRUE(tier->stats().up);
  EXPECT_LT(tier->stats().entries, all) << "its segment is quarantined";
  EXPECT_EQ(get_parts(*tier, rig.domain, {100})[0], Status::kIoError);
  EXPECT_EQ(get_parts(*tier, rig.domain, {200})[0], Status::kIoError);
  EXPECT_FALSE(tier->stats().up) << "three strikes";
  EXPECT_EQ(get_parts(*tier, rig.domain, {299})[0], Status::kUnavailable);
  EXPECT_EQ(put_parts(*tier, rig.domain, {1000})[0], Status::kUnavailable);
  Presence there = Presence::kPresent;
  const Key key = key_of(299);
  tier->find({&key, 1}, {&there, 1});
  EXPECT_EQ(there, Presence::kAbsent);
  EXPECT_NE(tier->stats().last_error.find("Input/output error"), std::string::npos);
  rig.clock.advance(2);  // a probe that fails: the next pause is longer
  rig.io->f.read_error = 0;
  EXPECT_TRUE(eventually([&] {
    rig.clock.advance(0.01);
    return tier->stats().up;
  }));
  rig.clock.advance(100);
  EXPECT_TRUE(eventually([&] { return tier->stats().entries == all; }))
      << "quarantined segments are read again";
  EXPECT_EQ(count(get_parts(*tier, rig.domain, range(0, 300)), Status::kOk), 300U);
}

TEST(DiskFaults, WriteErrorsFailTheBatchAndKeepTheRest) {
  Rig rig;
  const auto tier = must_open(rig.options(), rig.domain);
  put_parts(*tier, rig.domain, range(0, 10));
  rig.io->f.write_error = EIO;
  EXPECT_EQ(put_parts(*tier, rig.domain, {100})[0], Status::kIoError);
  rig.io->f.write_error = 0;
  EXPECT_EQ(count(get_parts(*tier, rig.domain, range(0, 10)), Status::kOk), 10U);
  EXPECT_EQ(put_parts(*tier, rig.domain, {100})[0], Status::kOk);
  EXPECT_EQ(get_parts(*tier, rig.domain, {100})[0], Status::kOk);
}

TEST(DiskFaults, ShortWritesAreFinished) {
  Rig rig;
  rig.io->f.longest_write = 3 * 4096;
  auto tier = must_open(rig.options(), rig.domain);
  EXPECT_EQ(count(put_parts(*tier, rig.domain, range(0, 100)), Status::kOk), 100U);
  tier.reset();
  tier = must_open(rig.options(), rig.domain);
  EXPECT_EQ(count(get_parts(*tier, rig.domain, range(0, 100)), Status::kOk), 100U);
}

TEST(DiskFaults, AFullDiskEvictsThenPausesThenGoesOn) {
  Rig rig;
  rig.io->f.space = 4 << 20;  // of a capacity of 64 MiB
  const auto tier = must_open(rig.options(), rig.domain);
  EXPECT_EQ(count(put_parts(*tier, rig.domain, range(0, 600)), Status::kOk), 600U);
  EXPECT_GT(tier->stats().evicted, 0U);
  EXPECT_EQ(count(get_parts(*tier, rig.domain, range(560, 600)), Status::kOk), 40U);
  // Somebody else fills the disk, and nothing of ours can be given up.
  rig.io->f.space = 0;
  rig.io->f.write_error = ENOSPC;
  const auto put = put_parts(*tier, rig.domain, range(1000, 1400));
  EXPECT_EQ(count(put, Status::kNoSpace), 400U);
  EXPECT_GT(tier->stats().no_space, 0U);
  EXPECT_TRUE(tier->stats().up) << "reading goes on";
  rig.io->f.write_error = 0;
  rig.io->f.space = 8 << 20;
  EXPECT_EQ(put_parts(*tier, rig.domain, {1000})[0], Status::kNoSpace) << "the pause is not over";
  rig.clock.advance(100);
  EXPECT_EQ(put_parts(*tier, rig.domain, {1000})[0], Status::kOk);
}

TEST(DiskFaults, AFullTmpfs) {
  TempDir dir;
  const std::string path = dir.path() + "/small";
  ::mkdir(path.c_str(), 0700);
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=6m") != 0) GTEST_SKIP() << "mounting needs privileges";
  struct Unmount {
    std::string path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } unmount{path};
  const Domain d = domain_of();
  DiskOptions o = options_for(path);
  {
    const auto tier = must_open(o, d);
    EXPECT_EQ(count(put_parts(*tier, d, range(0, 1000)), Status::kOk), 1000U);
    EXPECT_GT(tier->stats().evicted, 0U);
    EXPECT_EQ(count(get_parts(*tier, d, range(960, 1000)), Status::kOk), 40U);
  }
  const auto tier = must_open(o, d);
  EXPECT_EQ(count(get_parts(*tier, d, range(960, 1000)), Status::kOk), 40U);
}

TEST(DiskFaults, OneBitFlippedInEveryFile) {
  std::size_t ok = 0, asked = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Rig rig;
    { put_parts(*must_open(rig.options(), rig.domain), rig.domain, range(0, 300)); }
    Rng rng(seed);
    for (const auto& file : rig.dir.files(".kv"))
      flip_bit(file, rng.below(std::filesystem::file_size(file) * 8));
    const auto tier = must_open(rig.options(), rig.domain);
    const auto got = get_parts(*tier, rig.domain, range(0, 300));  // fails if wrong bytes pass
    const std::uint64_t failed = count(got, Status::kCorrupt);
    EXPECT_EQ(tier->stats().verify_failed, failed);
    EXPECT_EQ(count(get_parts(*tier, rig.domain, range(0, 300)), Status::kCorrupt), 0U)
        << "what failed is forgotten";
    ok += count(got, Status::kOk);
    asked += got.size();
  }
  EXPECT_GE(ok, asked * 95 / 100);
  EXPECT_LT(ok, asked) << "no flip hit a payload: is it flipping?";
}

TEST(DiskFaults, ADamagedPageOfHeaderTableOrTrailerLosesNothing) {
  for (const int where : {0, 1, 2}) {
    Rig rig;
    { put_parts(*must_open(rig.options(), rig.domain), rig.domain, range(0, 150)); }
    for (const auto& file : rig.dir.files(".kv")) {
      const std::uint64_t size = std::filesystem::file_size(file);
      const std::uint64_t table = size - footer_bytes(1);
      flip_bit(file, 8 * (where == 0 ? 40 : where == 1 ? table + 20 : trailer_offset(size) + 16));
    }
    const auto tier = must_open(rig.options(), rig.domain);
    EXPECT_EQ(count(get_parts(*tier, rig.domain, range(0, 150)), Status::kOk), 150U) << where;
  }
}

TEST(DiskFaults, RepeatedCorruptionCondemnsTheSegment) {
  Rig rig;
  const auto tier = must_open(rig.options(), rig.domain);
  put_parts(*tier, rig.domain, range(0, 100));
  const std::size_t before = tier->stats().entries;
  rig.io->f.flip_every = 1;
  for (std::uint64_t n = 0; n < 3; ++n) EXPECT_EQ(get_parts(*tier, rig.domain, {n})[0], Status::kCorrupt);
  rig.io->f.flip_every = 0;
  EXPECT_EQ(tier->stats().verify_failed, 3U);
  EXPECT_LT(tier->stats().entries, before - 30);
  EXPECT_EQ(get_parts(*tier, rig.domain, {10})[0], Status::kMissing);
  EXPECT_EQ(put_parts(*tier, rig.domain, {10})[0], Status::kOk);
}

/// The kernel takes nothing from our rings any more: their descriptors are something else.
int break_rings() {
  int broken = 0;
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(e.path(), gone) != "anon_inode:[io_uring]") continue;
    ::dup2(other, std::stoi(e.path().filename().string()));
    ++broken;
  }
  ::close(other);
  return broken;
}

TEST(DiskFaults, ARingThatTheKernelRefusesEndsItsReadsAndIsReplaced) {
  TempDir dir;
  std::ofstream(dir.path() + "/file") << std::string(4096, 'x');
  const auto queue = uring_read_queue(4);
  if (!queue) GTEST_SKIP() << "no io_uring here";
  const FileRef file = *system_io(false)->open(dir.path() + "/file", OpenMode::kRead, false);
  std::string to(4096, '-');
  ReadOp ops[3];
  std::vector<ReadOp*> done;
  for (int round = 0; round < 2; ++round) {
    ASSERT_GT(break_rings(), 0);
    for (ReadOp& op : ops) {
      op = {.file = file, .pieces = {{to.data(), to.size()}}, .num_pieces = 1};
      queue->push(&op);
    }
    done.clear();
    queue->wait(done);
    ASSERT_EQ(done.size(), 3U);
    for (const ReadOp& op : ops) EXPECT_LT(op.result, 0);
    EXPECT_EQ(to[0], '-');
    queue->push(&ops[0]);
    done.clear();
    queue->wait(done);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(ops[0].result, 4096);
    EXPECT_EQ(std::exchange(to, std::string(4096, '-')), std::string(4096, 'x'));
    queue->wait(done);
    EXPECT_EQ(done.size(), 1U) << "nothing is in flight: it returns";
  }
}

TEST(DiskFaults, ATierWhoseRingsBreakGoesOn) {
  Rig rig;
  const auto tier = must_open(rig.options(), rig.domain);
  put_parts(*tier, rig.domain, range(0, 10));
  ASSERT_EQ(count(get_parts(*tier, rig.domain, range(0, 10)), Status::kOk), 10U);
  if (break_rings() == 0) GTEST_SKIP() << "no io_uring here";
  EXPECT_GT(count(get_parts(*tier, rig.domain, range(0, 10)), Status::kIoError), 0U);
  EXPECT_TRUE(eventually([&] {
    rig.clock.advance(1);
    return count(get_parts(*tier, rig.domain, range(0, 10)), Status::kOk) == 10;
  }));
}

TEST(DiskFaults, GarbageInTheDirectory) {
  Rig rig;
  { put_parts(*must_open(rig.options(), rig.domain), rig.domain, range(0, 10)); }
  const std::string good = rig.dir.files(".kv").at(0).string();
  WriterId dead{};
  const auto path = [&](std::uint64_t id, const char* end) {
    return rig.dir.path() + "/" + segment_stem(dead, id) + end;
  };
  std::ofstream(path(1, ".kv")) << "not a segment";
  std::ofstream(path(2, ".tail")).flush();
  std::filesystem::copy_file(good, path(3, ".kv"));
  std::filesystem::resize_file(path(3, ".kv"), 3ULL << 30);  // sparse: claims much
  std::filesystem::copy_file(good, path(4, ".kv"));
  std::filesystem::resize_file(path(4, ".kv"), 6ULL << 30);
  std::filesystem::copy_file(good, path(5, ".kv"));
  std::filesystem::resize_file(path(5, ".kv"), 5000);
  std::filesystem::copy_file(good, path(6, ".tail"));  // sealed, but the rename was lost
  ::mkfifo(path(7, ".kv").c_str(), 0600);
  std::filesystem::create_symlink("/dev/zero", path(8, ".kv"));
  std::filesystem::create_directory(path(9, ".kv"));
  std::ofstream(rig.dir.path() + "/seg-xyz.kv") << "x";
  std::ofstream(rig.dir.path() + "/notes.txt") << "mine";
  DiskOptions o = rig.options();
  o.capacity_bytes = 1ULL << 40;
  {
    const auto tier = must_open(o, rig.domain);
    EXPECT_EQ(count(get_parts(*tier, rig.domain, range(0, 10)), Status::kOk), 10U);
    EXPECT_EQ(count(put_parts(*tier, rig.domain, range(10, 100)), Status::kOk), 90U);
  }
  EXPECT_TRUE(std::filesystem::exists(rig.dir.path() + "/notes.txt"));
}

/// Puts, gets, erasures and reopenings in random order on a small store, while faults come and go.
void random_walk(std::uint64_t seed, int steps) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rig rig;
  rig.domain = domain_of({4096, 9000});
  Rng rng(seed);
  DiskOptions o = rig.options();
  o.capacity_bytes = 2 << 20;
  o.segment_bytes = 256 << 10;
  const auto calm = [&] {
    Faults& f = rig.io->f;
    f.read_error = f.write_error = f.sync_error = f.flip_every = 0;
    f.longest_write = SIZE_MAX;
  };
  auto tier = must_open(o, rig.domain);
  std::set<std::pair<std::uint64_t, std::uint32_t>> put;
  for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
    Faults& f = rig.io->f;
    const std::uint32_t part = static_cast<std::uint32_t>(rng.below(2));
    const std::uint64_t first = rng.below(300);
    const auto numbers = range(first, first + 1 + rng.below(8));
    switch (rng.below(12)) {
      case 0:
        calm();
        break;
      case 1:
        f.read_error_every = 1 + static_cast<int>(rng.below(9)), f.read_error = EIO;
        break;
      case 2:
        f.write_error = rng.below(2) == 0 ? EIO : ENOSPC;
        break;
      case 3:
        f.sync_error = rng.below(2) == 0 ? EIO : ENOSPC;
        break;
      case 4:
        f.flip_every = 2 + static_cast<int>(rng.below(5));
        break;
      case 5:
        f.longest_write = 4096 * (1 + rng.below(4));
        break;
      case 6:
        rig.clock.advance(rng.uniform() * 90);
        break;
      case 7: {
        std::vector<Key> keys;
        for (const std::uint64_t n : numbers) keys.push_back(key_of(n, part));
        tier->erase(keys);
        for (const Status s : get_parts(*tier, rig.domain, numbers, part)) EXPECT_NE(s, Status::kOk);
        break;
      }
      case 8:
        if (rng.below(4) != 0) break;
        calm();
        tier.reset();
        tier = must_open(o, rig.domain);
        break;
      default:
        put_parts(*tier, rig.domain, numbers, part);
        for (const std::uint64_t n : numbers) put.emplace(n, part);
    }
    const std::uint64_t at = rng.below(300);
    const auto got = get_parts(*tier, rig.domain, range(at, at + 6), part);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i] != Status::kOk || put.contains({at + i, part}));
    }
    const TierStats s = tier->stats();
    EXPECT_LE(s.bytes_used, o.capacity_bytes);
    EXPECT_EQ(s.reads_in_flight + s.writes_in_flight, 0U);
    EXPECT_EQ(s.gets, s.get_ok + s.get_missing + s.get_failed + s.get_timeout);
    EXPECT_EQ(s.puts, s.put_ok + s.put_failed + s.put_dropped);
  }
  calm();
  EXPECT_TRUE(eventually([&] {
    rig.clock.advance(1);
    return tier->stats().up;
  }));
  rig.clock.advance(100);
  EXPECT_EQ(count(put_parts(*tier, rig.domain, range(900, 920)), Status::kOk), 20U) << "it recovers";
  EXPECT_EQ(count(get_parts(*tier, rig.domain, range(900, 920)), Status::kOk), 20U);
}

TEST(DiskFaults, RandomWalkNeverServesWrongBytes) {
  const bool thorough = std::getenv("BARG_TEST_LONG") != nullptr;
  for (std::uint64_t seed = 1; seed <= (thorough ? 200U : 12U); ++seed)
    random_walk(seed, thorough ? 600 : 150);
}

}  // namespace
}  // namespace barg::store::disk_test::disk_fault_test
