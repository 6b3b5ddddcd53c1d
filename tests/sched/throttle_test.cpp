// A throttled tier on simulated time: a machine of known prefill rate, a tier of 2 to 64 MB/s across the
// break-even. Regret against always reloading and always recomputing, the gain of both ends at once, and how
// fast a changed speed is believed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/sim.h"

namespace barg::test::throttle_test {
namespace {

constexpr std::int32_t kBlock = 16, kHistory = 64;  // tokens; blocks of the history that is restored
constexpr double kPartBytes = 128 << 10;

/// 1 ms a step and 1 ms a token: 128 KiB of KV every 16 ms, so the break-even is near 8 MB/s.
double step_cost(const Sim&, const sched::StepPlan& plan) { return 1e-3 + 1e-3 * plan.rows(); }

SimConfig machine(sched::RestoreMode mode, double bytes_per_s, int depth = 1, std::int32_t budget = 512) {
  SimConfig c;
  c.pipeline_depth = depth;
  c.budget = budget;
  c.block_tokens = kBlock;
  c.groups = {{0, 3 * kHistory}};
  c.max_model_len = 4000;
  c.eviction = kv::Eviction::kLru;
  c.vocab = 1000;
  c.prompt_max = 10;
  c.itl_target_ms = 1e6;
  c.check_every_step = false;
  c.tiers.enabled = true;
  c.tiers.planner.mode = mode;
  c.tiers.load_share = 1;
  c.tier.part_bytes = kPartBytes;
  c.tier.bytes_per_s = {0, 1e12, bytes_per_s, bytes_per_s};
  c.tier.latency_s = {0, 0, 1e-4, 1e-3};
  c.tier.remote = false;
  return c;
}

/// One user whose history has always been evicted when the next turn comes.
struct User {
  explicit User(const SimConfig& config) : sim(config, 11) {
    sim.set_cost(&step_cost);
    prompt = sim.random_tokens(kBlock * kHistory + 5);
    turn();
    evict();
    turn();  // nothing is known about the tier yet: a trial
  }

  /// Time to the first token.
  double turn() {
    const double begin = sim.now();
    const RequestId id = sim.submit(make_request(prompt, 1));
    sim.drain();
    last = sim.delivered(id).stats;
    return last.first_token_s - begin;
  }
  void evict() {
    for (int i = 0; i < 4; ++i) {
      sim.submit(make_request(sim.random_tokens(kBlock * 2 * kHistory), 1));
      sim.drain();
    }
    sim.tiers().move_all(sched::Place::kDisk);
  }
  /// Median of the times to the first token.
  double median(int turns) {
    std::vector<double> times;
    for (int i = 0; i < turns; ++i) {
      evict();
      times.push_back(turn());
    }
    EXPECT_TRUE(sim.errors_in_device().empty()) << sim.errors_in_device();
    std::nth_element(times.begin(), times.begin() + turns / 2, times.end());
    return times[static_cast<std::size_t>(turns / 2)];
  }
  sched::RestoreChoice choice_of_a_turn() {
    const auto before = sim.scheduler().tier_counters().plans;
    evict();
    const auto middle = sim.scheduler().tier_counters().plans;
    EXPECT_EQ(before, middle);
    turn();
    const auto& after = sim.scheduler().tier_counters().plans;
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (after[i] > before[i]) return static_cast<sched::RestoreChoice>(i);
    }
    return sched::RestoreChoice::kRecompute;  // nothing was left to restore
  }

  Sim sim;
  std::vector<TokenId> prompt;
  RequestStats last;
};

/// Of a machine that launches `depth` steps ahead, of `budget` rows: what is launched cannot be taken back
/// when the tier turns out to be quicker.
void compare(int depth, std::int32_t budget) {
  double best_gain = 0;
  for (const double mb : {2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 16.0, 23.0, 32.0, 45.0, 64.0}) {
    SCOPED_TRACE(std::to_string(mb) + " MB/s, depth " + std::to_string(depth) + ", budget " +
                 std::to_string(budget));
    const auto median = [&](sched::RestoreMode mode, int turns) {
      return User(machine(mode, mb * 1e6, depth, budget)).median(turns);
    };
    const double reload = median(sched::RestoreMode::kReload, 5);
    const double recompute = median(sched::RestoreMode::kRecompute, 5);
    const double both = median(sched::RestoreMode::kBoth, 5);
    const double planned = median(sched::RestoreMode::kAuto, 9);
    const double better = std::min(reload, recompute);
    const double ideal = 1 / (1 / reload + 1 / recompute);  // as if work could be shared out exactly
    EXPECT_LE(planned, 1.1 * better);
    EXPECT_LE(both, 1.15 * ideal);
    const bool near = mb >= 4 && mb <= 16;
    EXPECT_GE(better, near ? 1.3 * both : 0);
    best_gain = std::max(best_gain, better / planned);
    char line[200];
    std::snprintf(line, sizeof line, "reload %.3f, recompute %.3f, both %.3f, planned %.3f s", reload,
                  recompute, both, planned);
    ::testing::Test::RecordProperty("at_" + std::to_string(static_cast<int>(mb)) + "_MB_per_s", line);
  }
  EXPECT_GE(best_gain, 1.3);  // the planner finds it by itself
}

TEST(Throttle, RegretIsSmallAtEverySpeedAndBothEndsWinNearTheBreakEven) { compare(1, 512); }

TEST(Throttle, SoItIsWithStepsOfOtherSizesAndLaunchedFurtherAhead) {
  compare(0, 128);
  compare(2, 128);
  compare(2, 512);
}

TEST(Throttle, AChangedSpeedFlipsTheChoiceWithin20Requests) {
  for (const auto& [faster, fast, slow] :
       {std::tuple{false, 64e6, 2e6}, {true, 64e6, 2e6}, {false, 400e6, 0.5e6}, {true, 400e6, 0.5e6}}) {
    User user(machine(sched::RestoreMode::kAuto, faster ? slow : fast));
    for (int i = 0; i < 6; ++i) user.choice_of_a_turn();
    const auto before = user.choice_of_a_turn();
    EXPECT_EQ(before == sched::RestoreChoice::kReload, !faster);
    user.sim.tiers().config.bytes_per_s[2] = faster ? fast : slow;
    int turns = 1;
    const auto flipped = [&](sched::RestoreChoice c) {
      return (c == sched::RestoreChoice::kReload) == faster;
    };
    while (turns < 40 && !flipped(user.choice_of_a_turn())) ++turns;
    EXPECT_LE(turns, 20) << (faster ? "faster" : "slower");
  }
}

}  // namespace
}  // namespace barg::test::throttle_test
