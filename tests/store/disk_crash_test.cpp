// SIGKILL at random points of a writing store, tails torn afterwards, and two real processes on one
// directory.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "store/disk_support.h"

namespace barg::store::disk_test::disk_crash_test {
namespace {

/// What the child tells, in memory both see.
struct Board {
  std::atomic<std::uint64_t> durable{0};  ///< parts [first, durable) were reported kOk
  std::atomic<bool> stop{false};
};

class SharedBoard {
 public:
  SharedBoard() {
    void* p = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (p) Board;
  }
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  Board* operator->() { return board_; }

 private:
  Board* board_ = nullptr;
};

/// So many parts a writer writes at most: a third of what the store holds, so that none is cleaned away before a
/// loaded machine lets the test look.
constexpr std::uint64_t kMostParts = 500;

/// A child that writes parts first, first + 1, ... in batches, then rests, until it is killed or told to stop.
pid_t start_writer(const DiskOptions& o, const Domain& d, std::uint64_t first, SharedBoard& board) {
  board->durable = first;
  board->stop = false;
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  auto tier = open_disk_tier(o, d);
  if (!tier) ::_exit(3);
  Rng rng(first);
  for (std::uint64_t next = first; !board->stop;) {
    if (next - first >= kMostParts) {
      ::usleep(1000);
      continue;
    }
    const std::uint64_t last = next + 1 + rng.below(12);
    for (const Status s : put_parts(**tier, d, range(next, last))) {
      if (s != Status::kOk) ::_exit(4);
    }
    next = last;
    board->durable = last;
  }
  tier->reset();
  ::_exit(0);
}

void kill_and_wait(pid_t pid) {
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << status;
}

DiskOptions small_store(const std::string& path) {
  DiskOptions o = options_for(path);
  o.capacity_bytes = 16 << 20;
  o.segment_bytes = 128 << 10;
  return o;
}

TEST(DiskCrash, KilledAtRandomPointsNothingDurableIsLost) {
  const int rounds = std::getenv("BARG_TEST_LONG") != nullptr ? 2000 : 200;
  TempDir dir = TempDir::in_memory();
  const Domain d = domain_of({8192});
  const DiskOptions o = small_store(dir.path());
  SharedBoard board;
  Rng rng(7);
  std::uint64_t first = 0, warm = 0, durable = 0;
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    const pid_t pid = start_writer(o, d, first, board);
    // Some while it opens, adopts and cleans, most while it writes, seals and commits.
    const std::uint64_t goal = first + (round % 8 == 0 ? 0 : 1 + rng.below(60));
    ASSERT_TRUE(eventually([&] { return board->durable >= goal; }));
    for (std::uint64_t spin = rng.below(200'000); spin > 0; --spin) asm volatile("");
    kill_and_wait(pid);
    const std::uint64_t last = board->durable;
    const auto tier = must_open(o, d);
    const auto numbers = range(first, last + 12);   // also those that may have been on their way
    const auto got = get_parts(*tier, d, numbers);  // fails on wrong bytes
    warm += count({got.begin(), got.begin() + static_cast<std::ptrdiff_t>(last - first)}, Status::kOk);
    durable += last - first;
    EXPECT_LE(tier->stats().bytes_used, o.capacity_bytes);
    EXPECT_EQ(tier->stats().io_errors, 0U);
    first = last + 1000;
  }
  EXPECT_EQ(warm, durable);
  EXPECT_GT(durable, static_cast<std::uint64_t>(rounds) * 10);
  EXPECT_LE(dir.files(".lock").size(), 1U);
}

TEST(DiskCrash, TornTailsLoseOnlyWhatIsTorn) {
  TempDir origin = TempDir::in_memory();
  const Domain d = domain_of({8192});
  const DiskOptions o = small_store(origin.path());
  SharedBoard board;
  const pid_t pid = start_writer(o, d, 0, board);
  ASSERT_TRUE(eventually([&] { return board->durable >= 100; }));
  kill_and_wait(pid);
  const std::uint64_t last = board->durable;
  Rng rng(3);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    TempDir dir = TempDir::in_memory();
    std::filesystem::copy(origin.path(), dir.path(), std::filesystem::copy_options::recursive);
    std::uint64_t in_tail = 0;
    for (const auto& tail : dir.files(".tail")) {
      const std::uint64_t size = std::filesystem::file_size(tail);
      in_tail += size / (8192 + 4096);
      const std::uint64_t sector = rng.below(size / 512 + 1) * 512;
      if (round % 2 == 0) {
        std::filesystem::resize_file(tail, sector);
      } else {
        std::fstream f(tail, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(static_cast<std::streamoff>(sector));
        f << std::string(512, '\xA5');
      }
    }
    DiskOptions copy = o;
    copy.directory = dir.path();
    const auto tier = must_open(copy, d);
    const auto got = get_parts(*tier, d, range(0, last));
    EXPECT_GE(count(got, Status::kOk) + in_tail, last) << "sealed segments are whole";
    EXPECT_EQ(count(put_parts(*tier, d, range(0, last)), Status::kOk), last);
    EXPECT_EQ(count(get_parts(*tier, d, range(0, last)), Status::kOk), last);
  }
}

TEST(DiskCrash, AWriterThatIsReadDiesAndIsAdopted) {
  TempDir dir = TempDir::in_memory();
  const Domain d = domain_of({8192});
  const DiskOptions o = small_store(dir.path());
  SharedBoard board;
  const pid_t pid = start_writer(o, d, 0, board);
  auto reader = must_open(o, d);
  // Cross reads while the other writes: whatever is found is right.
  ASSERT_TRUE(
      eventually([&] { return count(get_parts(*reader, d, range(0, board->durable)), Status::kOk) >= 100; }));
  kill_and_wait(pid);
  const std::uint64_t last = board->durable;
  ASSERT_TRUE(eventually([&] { return reader->stats().entries >= last; }));
  EXPECT_EQ(count(get_parts(*reader, d, range(0, last)), Status::kOk), last);
  EXPECT_EQ(reader->stats().bytes_used, 0U) << "another's segments are not ours while we only read them";
  reader.reset();
  reader = must_open(o, d);
  EXPECT_GT(reader->stats().bytes_used, 0U) << "adopted";
  EXPECT_EQ(count(get_parts(*reader, d, range(0, last)), Status::kOk), last);
}

TEST(DiskCrash, ALivingWritersSegmentsAreNotAdopted) {
  TempDir dir = TempDir::in_memory();
  const Domain d = domain_of({8192});
  const DiskOptions o = small_store(dir.path());
  SharedBoard board;
  const pid_t pid = start_writer(o, d, 0, board);
  ASSERT_TRUE(eventually([&] { return board->durable >= 60; }));
  {
    const auto other = must_open(o, d);
    EXPECT_EQ(other->stats().bytes_used, 0U);
  }
  board->stop = true;
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it was not disturbed: " << status;
}

}  // namespace
}  // namespace barg::store::disk_test::disk_crash_test
