// The emulated device: what kernels may rely on, and what it finds in kernels that rely on more. Each small kernel here
// has one fault; a program without hooks sees those that barriers, collectives and explicit accesses show.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "cuda/prelude.cuh"
#include "emu/emu.h"
#include "emu/lanes.h"

namespace barg::cuda {
namespace {

using emu::Copies;
using emu::Device;
using emu::Finding;
using emu::Order;
using emu::Schedule;
using Kind = emu::Finding::Kind;

struct Args {
  float* in = nullptr;
  float* out = nullptr;
  std::int32_t* counter = nullptr;
};

std::vector<Schedule> schedules() {
  std::vector<Schedule> out;
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    for (const Copies copies : {Copies::kLate, Copies::kEarly, Copies::kRandom}) {
      for (std::uint64_t seed = 1; seed <= (order == Order::kRandom ? 3 : 1); ++seed) out.push_back({order, order, copies, seed});
    }
  }
  return out;
}

/// Runs a kernel on 1,024 floats in and out; what it was found to do.
template <auto Kernel>
class Trial {
 public:
  explicit Trial(const Schedule& schedule = {}, const LaunchShape& shape = {.grid_x = 2, .threads = 128},
                 const emu::Fault& fault = {})
      : device_(schedule) {
    device_.set_fault(fault);
    Args args;
    args.in = static_cast<float*>(device_.allocate(4096, "in"));
    args.out = static_cast<float*>(device_.allocate(4096, "out"));
    args.counter = static_cast<std::int32_t*>(device_.allocate(4, "counter"));
    std::vector<float> in(1024);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    device_.upload(args.in, in.data(), 4096);
    const std::int32_t zero = 0;
    device_.upload(args.counter, &zero, 4);
    launch<Kernel>(device_.stream(), shape, args);
    out.resize(1024);
    device_.download(out.data(), args.out, 4096);
    for (const Finding& f : device_.take_findings()) {
      kinds.insert(f.kind);
      text += std::string(kind_name(f.kind)) + " at " + f.where + " in " + f.kernel + ": " + f.what + "\n";
    }
  }

  std::set<Kind> kinds;
  std::string text;
  std::vector<float> out;

 private:
  Device device_;
};

/// The line of a kernel's barrier, wait or release that a fault is seeded at.
std::uint32_t marked_line = 0;

/// Sums 128 numbers through shared memory.
BARG_KERNEL block_sum(Args p) {
  BARG_SHARED(float, sums, 128);
  const int t = thread_id();
  sums[t] = p.in[block_x() * 128 + t];
  marked_line = __LINE__ + 1;
  sync_block();
  for (int width = 64; width >= 1; width /= 2) {
    if (t < width) sums[t] += sums[t + width];
    sync_block();
  }
  if (t == 0) p.out[block_x()] = sums[0];
}

TEST(Emulator, ABlockSumIsRightInEveryOrder) {
  for (const Schedule& s : schedules()) {
    const Trial<block_sum> run(s);
    EXPECT_EQ(run.text, "");
    EXPECT_EQ(run.out[0], 127 * 64);
    EXPECT_EQ(run.out[1], 127 * 64 + 128 * 128);
  }
}

BARG_KERNEL warp_sums(Args p) {
  float v = p.in[thread_id()];
  for (int m = 16; m >= 1; m /= 2) v += shuffle_xor(v, m);
  const float third = shuffle(v, 3);
  const float below = shuffle_up(static_cast<float>(lane_id()), 1);
  p.out[thread_id()] = third + below + static_cast<float>(ballot(lane_id() % 2 == 0) == 0x55555555u);
}

TEST(Emulator, WarpExchangesAreThoseOfTheManual) {
  for (const Schedule& s : schedules()) {
    const Trial<warp_sums> run(s, {.threads = 64});
    EXPECT_EQ(run.text, "");
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32, sum = 31 * 16 + (t / 32) * 32 * 32;
      EXPECT_EQ(run.out[static_cast<std::size_t>(t)], static_cast<float>(sum + std::max(lane - 1, 0) + 1)) << t;
    }
  }
}

/// A ring of two stages: 16 rows of 128 numbers, each added up by the thread of its column.
template <int kLeft>
BARG_KERNEL ring(Args p) {
  BARG_SHARED(float, stage, 2 * 128);
  const auto fetch = [&](int row) {
    if (thread_id() < 32) cp_async16(stage + row % 2 * 128 + 4 * thread_id(), p.in + row % 8 * 128 + 4 * thread_id(), row < 8);
    cp_commit();
  };
  fetch(0);
  float sum = 0;
  for (int row = 0; row < 10; ++row) {
    fetch(row + 1);
    marked_line = __LINE__ + 1;
    cp_wait<kLeft>();
    sync_block();
    sum += stage[row % 2 * 128 + thread_id()];
    sync_block();
  }
  cp_wait<0>();
  p.out[thread_id()] = sum;
}

TEST(Emulator, CopiesArriveByTheirWait) {
  for (const Schedule& s : schedules()) {
    const Trial<ring<1>> run(s, {.threads = 128});
    EXPECT_EQ(run.text, "");
    for (int t = 0; t < 128; ++t) EXPECT_EQ(run.out[static_cast<std::size_t>(t)], static_cast<float>(28 * 128 + 8 * t)) << t;
  }
}

TEST(Emulator, AWaitForTooLittleReadsWhatHasNotCome) {
  const Trial<ring<2>> late({}, {.threads = 128});
  EXPECT_NE(late.out[5], static_cast<float>(28 * 128 + 8 * 5)) << "late copies show it";
  if (emu::hooked()) {
    const Trial<ring<2>> early({.copies = Copies::kEarly}, {.threads = 128});
    EXPECT_TRUE(early.kinds.contains(Kind::kPending)) << early.text;
  }
}

BARG_KERNEL transposes(Args p) {
  BARG_SHARED(std::uint16_t, tile, 4 * 64);
  for (int i = lane_id(); i < 256; i += 32) tile[i] = static_cast<std::uint16_t>(i);
  sync_block();
  std::uint32_t plain[4], turned[4];
  ldmatrix_x4(plain, tile + 8 * lane_id());
  ldmatrix_x4_trans(turned, tile + 8 * lane_id());
  for (int m = 0; m < 4; ++m) {
    p.out[m * 32 + lane_id()] = static_cast<float>(plain[m] & 0xffffu);
    p.out[128 + m * 32 + lane_id()] = static_cast<float>(turned[m] >> 16);
  }
}

TEST(Emulator, LdmatrixHandsOutRowsAndColumns) {
  const Trial<transposes> run({}, {.threads = 32});
  EXPECT_EQ(run.text, "");
  for (int m = 0; m < 4; ++m) {
    for (int l = 0; l < 32; ++l) {
      const auto at = static_cast<std::size_t>(m * 32 + l);
      EXPECT_EQ(run.out[at], static_cast<float>(64 * m + l / 4 * 8 + 2 * (l % 4)));
      EXPECT_EQ(run.out[128 + at], static_cast<float>(64 * m + (2 * (l % 4) + 1) * 8 + l / 4));
    }
  }
}

// The layouts that CuTe publishes (include/cute/atom/mma_traits_sm80.hpp, copy_traits_sm75.hpp), as shape:stride of
// (lane, register) to the element's number, column by column.
TEST(Emulator, LanesAreThoseOfCuTe) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {  // ((4, 8), (2, 2, 2)) : ((32, 1), (16, 8, 128)) of 16 x 16
      const int at = lane % 4 * 32 + lane / 4 + i % 2 * 16 + i / 2 % 2 * 8 + i / 4 * 128;
      EXPECT_EQ(emu::mma_a_element(lane, i).row, at % 16);
      EXPECT_EQ(emu::mma_a_element(lane, i).column, at / 16);
    }
    for (int i = 0; i < 4; ++i) {  // ((4, 8), (2, 2)) : ((16, 1), (8, 64)) of 8 (n) x 16 (k)
      const int at = lane % 4 * 16 + lane / 4 + i % 2 * 8 + i / 2 * 64;
      EXPECT_EQ(emu::mma_b_element(lane, i).column, at % 8);
      EXPECT_EQ(emu::mma_b_element(lane, i).row, at / 8);
    }
    for (int i = 0; i < 4; ++i) {  // ((4, 8), (2, 2)) : ((32, 1), (16, 8)) of 16 x 8
      const int at = lane % 4 * 32 + lane / 4 + i % 2 * 16 + i / 2 * 8;
      EXPECT_EQ(emu::mma_d_element(lane, i).row, at % 16);
      EXPECT_EQ(emu::mma_d_element(lane, i).column, at / 16);
    }
    for (int e = 0; e < 2; ++e) {  // (32, (32, 4)) : (32, (1, 1024)) in bits of rows of 128
      const int bit = lane * 32 + e * 16;
      EXPECT_EQ(emu::ldmatrix_element(lane, e).row, bit / 128);
      EXPECT_EQ(emu::ldmatrix_element(lane, e).column, bit % 128 / 16);
    }
  }
}

template <Half T>
BARG_KERNEL product(Args p) {
  // a[m][k] = m + k / 4, b[k][n] = k - n: exact in both formats.
  const int g = lane_id() / 4, t = lane_id() % 4;
  const auto av = [](int m, int k) { return static_cast<float>(m) + static_cast<float>(k) / 4; };
  const auto bv = [](int k, int n) { return static_cast<float>(k - n); };
  std::uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    const int m = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
    a[i] = pack2<T>(av(m, k), av(m, k + 1));
  }
  for (int i = 0; i < 2; ++i) b[i] = pack2<T>(bv(2 * t + 8 * i, g), bv(2 * t + 8 * i + 1, g));
  float d[4] = {1, 1, 1, 1};
  mma_16816<T>(d, a, b);
  for (int i = 0; i < 4; ++i) p.out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

TEST(Emulator, MmaIsTheProduct) {
  const auto check = [](const std::vector<float>& out) {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        float sum = 1;
        for (int k = 0; k < 16; ++k) sum += (static_cast<float>(m) + static_cast<float>(k) / 4) * static_cast<float>(k - n);
        EXPECT_EQ(out[static_cast<std::size_t>(m * 8 + n)], sum);
      }
    }
  };
  check(Trial<product<Half::kF16>>({}, {.threads = 32}).out);
  check(Trial<product<Half::kBF16>>({}, {.threads = 32}).out);
}

// ---- kernels with one fault each

BARG_KERNEL no_barrier(Args p) {
  BARG_SHARED(float, v, 128);
  v[thread_id()] = p.in[thread_id()];
  p.out[thread_id()] = v[127 - thread_id()];
}
BARG_KERNEL no_warp_barrier(Args p) {
  BARG_SHARED(float, v, 128);
  v[thread_id()] = p.in[thread_id()];
  shuffle(0, 0);  // orders no memory
  p.out[thread_id()] = v[thread_id() ^ 1];
}
BARG_KERNEL warp_barrier(Args p) {
  BARG_SHARED(float, v, 128);
  v[thread_id()] = p.in[thread_id()];
  marked_line = __LINE__ + 1;
  sync_warp();
  p.out[block_x() * 128 + thread_id()] = v[thread_id() ^ 1];
}
BARG_KERNEL never_written(Args p) {
  BARG_SHARED(float, v, 129);
  v[thread_id()] = 1;
  sync_block();
  p.out[thread_id()] = v[thread_id() + 1];
}
BARG_KERNEL beyond_global(Args p) { store16(p.out + 4 * (thread_id() + 129), load16(p.in)); }
BARG_KERNEL beyond_shared(Args p) {
  BARG_SHARED(float, v, 64);
  BARG_SHARED(float, w, 64);
  shared_store16(v + 4 * (thread_id() % 17), {});
  w[thread_id() % 64] = 0;
  p.out[thread_id()] = 0;
}
BARG_KERNEL hosts_memory(Args p) {
  static float outside[4];
  store16(outside, load16(p.in));
}
BARG_KERNEL misaligned(Args p) { store16(p.out + 1, load16(p.in)); }
BARG_KERNEL two_barriers(Args p) {
  if (thread_id() < 64) {
    sync_block();
  } else {
    sync_block();
  }
  p.out[thread_id()] = 0;
}
BARG_KERNEL some_leave(Args p) {
  if (thread_id() >= 64) return;
  sync_block();
  p.out[thread_id()] = 0;
}
BARG_KERNEL half_a_warp(Args p) {
  if (thread_id() % 32 < 16) p.out[thread_id()] = shuffle_xor(1.0f, 1);
}
BARG_KERNEL two_collectives(Args p) {
  const bool odd = thread_id() % 2 != 0;
  p.out[thread_id()] = odd ? shuffle_xor(1.0f, 1) : shuffle_xor(2.0f, 1);
}
BARG_KERNEL left_copies(Args p) {
  BARG_SHARED(float, v, 4 * 128);
  cp_async16(v + 4 * thread_id(), p.in, true);
  cp_commit();
}
BARG_KERNEL two_blocks_one_place(Args p) { p.out[thread_id()] = static_cast<float>(block_x()); }
/// Blocks add up through memory; the last one to come reads what the others wrote.
template <bool kCounted>
BARG_KERNEL last_block(Args p) {
  BARG_SHARED(std::int32_t, last, 1);
  p.out[128 + block_x() * 128 + thread_id()] = 1;
  sync_block();
  marked_line = __LINE__ + 1;
  if (thread_id() == 0) last[0] = kCounted ? publish_count(p.counter) : atomic_add(p.counter, 1);
  sync_block();
  if (last[0] != 1) return;
  p.out[thread_id()] = load_published(p.out + 128 + thread_id()) + load_published(p.out + 256 + thread_id());
}

template <auto Kernel>
void expect_found(Kind kind, bool needs_hooks) {
  if (needs_hooks && !emu::hooked()) return;
  for (const Schedule& s : schedules()) {
    const Trial<Kernel> run(s);
    EXPECT_TRUE(run.kinds.contains(kind)) << kind_name(kind) << " was not found, but: " << run.text;
  }
}
template <auto Kernel>
void expect_clean() {
  for (const Schedule& s : schedules()) EXPECT_EQ(Trial<Kernel>(s).text, "");
}

TEST(EmulatorFinds, RacesAndWhatIsNotWritten) {
  expect_found<no_barrier>(Kind::kRace, true);
  expect_found<no_warp_barrier>(Kind::kRace, true);
  expect_clean<warp_barrier>();
  expect_found<never_written>(Kind::kUninitialised, true);
  expect_found<two_blocks_one_place>(Kind::kRace, true);
}

TEST(EmulatorFinds, BlocksThatTakeEachOthersWordForIt) {
  expect_clean<last_block<true>>();
  expect_found<last_block<false>>(Kind::kRace, true);
}

TEST(EmulatorFinds, AccessesOutside) {
  expect_found<beyond_global>(Kind::kOutside, false);
  expect_found<beyond_shared>(Kind::kOutside, false);
  expect_found<hosts_memory>(Kind::kOutside, false);
  expect_found<misaligned>(Kind::kMisaligned, false);
}

TEST(EmulatorFinds, ThreadsThatDoNotMeet) {
  expect_found<two_barriers>(Kind::kDivergentBarrier, false);
  expect_found<some_leave>(Kind::kDivergentBarrier, false);
  expect_found<half_a_warp>(Kind::kDeadlock, false);
  expect_found<two_collectives>(Kind::kDivergentWarp, false);
  expect_found<left_copies>(Kind::kUnfinishedCopy, false);
}

/// The kernel as it is has no finding; with the fault at its marked line it has one of `kind`.
template <auto Kernel>
void expect_fault_found(emu::Fault::Kind fault, Kind kind, int grid = 2) {
  const LaunchShape shape{.grid_x = grid, .threads = 128};
  ASSERT_EQ(Trial<Kernel>({}, shape).text, "");
  const emu::Fault seeded{.kind = fault, .file_ends_with = "emulator_test.cpp", .line = marked_line};
  EXPECT_TRUE(Trial<Kernel>({}, shape, seeded).kinds.contains(kind));
  const emu::Fault elsewhere{.kind = fault, .file_ends_with = "emulator_test.cpp", .line = marked_line + 1000};
  EXPECT_EQ(Trial<Kernel>({}, shape, elsewhere).text, "");
}

TEST(EmulatorFinds, SeededFaults) {
  if (!emu::hooked()) return;
  using Fault = emu::Fault::Kind;
  expect_fault_found<block_sum>(Fault::kNoBarrier, Kind::kRace);
  expect_fault_found<warp_barrier>(Fault::kNoWarpBarrier, Kind::kRace);
  expect_fault_found<ring<1>>(Fault::kWaitOneLess, Kind::kPending, 1);
  expect_fault_found<last_block<true>>(Fault::kNoRelease, Kind::kRace);
}

BARG_KERNEL strided(Args p) {
  BARG_SHARED(float, v, 32 * 32);
  v[32 * lane_id()] = 0;                                     // one bank
  const Vec16 wide = load16(p.in + 4 * lane_id());           // as wide as it gets
  shared_store16(v + 4 * lane_id(), wide);
  const Vec16 far = load16(p.in + 32 * lane_id());           // half of each sector
  shared_store16(v + 32 * lane_id(), far);                   // eight lanes on four banks
}

TEST(EmulatorLint, CountsSectorsAndBanks) {
  Device device;
  Args args;
  args.in = static_cast<float*>(device.allocate(4096, "in"));
  const std::vector<float> zeros(1024);
  device.upload(args.in, zeros.data(), 4096);
  device.count_sites(true);
  launch<strided>(device.stream(), {.threads = 32}, args);
  std::vector<std::array<std::uint64_t, 3>> global, shared;
  for (const emu::SiteCount& c : device.take_sites()) (c.shared ? shared : global).push_back({c.requests, c.units, c.ideal});
  std::sort(global.begin(), global.end());
  std::sort(shared.begin(), shared.end());
  using Rows = std::vector<std::array<std::uint64_t, 3>>;
  EXPECT_EQ(global, (Rows{{1, 16, 16}, {1, 32, 16}}));
  Rows expected{{1, 4, 4}, {1, 32, 4}};
  if (emu::hooked()) expected.push_back({1, 32, 1});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(shared, expected);
  EXPECT_EQ(device.take_traffic(args.in).read, 2 * 512U);
}

}  // namespace
}  // namespace barg::cuda
