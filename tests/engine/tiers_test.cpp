// An engine with tiers when things go wrong, when they are slow and when it stops: the same answers, no failed request.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/tiers_support.h"
#include "store/disk_support.h"
#include "store/redis_support.h"
#include "support/memory_tier.h"
#include "support/temp_dir.h"

namespace barg::engine::tiers_test {
namespace {

using test::Answer;
using test::answer_bits;
using test::TieredEngine;

class TiersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = test::shared_data("models/llama");
    if (path_.empty()) GTEST_SKIP() << test::kNoShared;
    Rng rng(77);
    for (int p = 0; p < 10; ++p) requests_.push_back(test::request_for(test::random_prompt(rng, 100 + rng.below(150))));
    Config cold = config();
    cold.kv.memory_bytes = 16 << 20;
    cold.kv.enable_prefix_caching = false;
    for (const Answer& a : TieredEngine(cold).run(requests_)) expected_.push_back(answer_bits(a));
  }
  /// A pool of about two prompts.
  Config config(const char* restore = "reload") const {
    Config c = test::tiny_config(path_);
    c.model.max_model_len = 320;
    c.kv.memory_bytes = 500 * 3 * 2 * 2 * 16 * 4;  // tokens, layers, K and V, heads, elements, f32
    c.kv.restore = restore;
    return c;
  }
  /// In dir_: the model with so many of its layers, told that it may be long.
  void make_long_model(int num_layers) {
    std::string text = read_file(path_ + "/config.json", 1 << 16).value();
    const std::string layers = "\"num_hidden_layers\": ", length = "\"max_position_embeddings\": ";
    for (const auto& [from, to] : {std::pair{layers + "3", layers + std::to_string(num_layers)},
                                   std::pair{length + "1024", length + "131200"}}) {
      ASSERT_NE(text.find(from), std::string::npos);
      text.replace(text.find(from), from.size(), to);
    }
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      const auto name = file.path().filename().string();
      if (name == "model.safetensors" || name.starts_with("tokenizer"))
        std::filesystem::create_symlink(file.path(), dir_.path() + "/" + name);
    }
    dir_.write("config.json", text);
  }
  /// All requests, `times` over, in changing order; every answer as expected.
  void expect_answers(TieredEngine& e, int times = 3) {
    Rng rng(3);
    for (int round = 0; round < times; ++round) {
      std::vector<std::size_t> order(requests_.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
      if (round > 0) static_cast<void>(e.flush());  // writes wait for company, and these rounds take milliseconds
      std::vector<RequestId> ids;
      for (const std::size_t i : order) ids.push_back(e.client->submit(requests_[i]));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(answer_bits(e.client->wait(ids[i])[0]), expected_[order[i]]) << "request " << order[i];
      }
    }
    const auto m = e.engine->metrics();
    EXPECT_EQ(m.finished[static_cast<std::size_t>(FinishReason::kError)], 0U);
    EXPECT_EQ(m.kv.active_blocks, 0);
    EXPECT_EQ(m.num_requests_running + m.num_requests_waiting, 0);
  }
  static std::uint64_t read_from(TieredEngine& e, store::TierKind kind) {
    return e.engine->metrics().tiers.stack.kinds[static_cast<std::size_t>(kind)].bytes_read;
  }

  const test::TempDir dir_;
  std::string path_;
  std::vector<Request> requests_;
  std::vector<std::string> expected_;
};

/// A tier in memory, held by the stack, that the test can reach.
TieredEngine::MakeStack memory_stack(test::MemoryTier::Options options, test::MemoryTier** out,
                                     std::uint64_t dram_bytes = 0) {
  return [=](const store::Domain& domain) {
    auto tier = std::make_unique<test::MemoryTier>(options, test::real_clock());
    *out = tier.get();
    std::vector<std::unique_ptr<store::Tier>> tiers;
    tiers.push_back(std::move(tier));
    store::StackOptions stack;
    stack.dram_bytes = dram_bytes;
    stack.disk_admit_all = true;
    return std::make_shared<store::TierStack>(domain, std::move(tiers), stack, test::real_clock());
  };
}

test::MemoryTier::Options memory_tier(store::TierKind kind) {
  return {.kind = kind, .name = "memory", .manual = false, .capacity_bytes = 64 << 20,
          .must_probe = kind == store::TierKind::kRemote};
}

TEST_F(TiersTest, EveryKindOfFaultIsRecomputed) {
  for (const auto kind : {store::TierKind::kDisk, store::TierKind::kRemote}) {
    for (const auto fault : {store::Status::kIoError, store::Status::kCorrupt, store::Status::kMissing,
                             store::Status::kTimeout, store::Status::kNoSpace, store::Status::kUnavailable}) {
      test::MemoryTier* tier = nullptr;
      TieredEngine e(config("reload"), memory_stack(memory_tier(kind), &tier));
      auto count = std::make_shared<std::atomic<unsigned>>(0);
      const bool puts = fault == store::Status::kNoSpace || fault == store::Status::kUnavailable;
      tier->set_fault([=](bool put, const store::Key&) {
        return put == puts && count->fetch_add(1) % 3 == 0 ? fault : store::Status::kOk;
      });
      expect_answers(e);
      EXPECT_GT(count->load(), 0U) << "the tier was not used";
      if (!puts && kind == store::TierKind::kDisk) {
        EXPECT_GT(e.engine->metrics().tiers.restore.parts_failed, 0U) << store::status_name(fault);
      }
    }
  }
}

TEST_F(TiersTest, ATierThatGoesAndComesBack) {
  test::MemoryTier* tier = nullptr;
  TieredEngine e(config("reload"), memory_stack(memory_tier(store::TierKind::kDisk), &tier));
  expect_answers(e);
  const std::uint64_t before = read_from(e, store::TierKind::kDisk);
  EXPECT_GT(before, 0U);
  tier->set_up(false);
  expect_answers(e);
  tier->set_up(true);
  expect_answers(e);
  EXPECT_GT(read_from(e, store::TierKind::kDisk), before);
}

TEST_F(TiersTest, DamagedBlocksAreRecomputedAndCounted) {
  TieredEngine e(config("reload"), [](const store::Domain& domain) {
    store::StackOptions options;
    options.dram_bytes = 8 << 20;
    options.damage = [n = std::make_shared<std::atomic<unsigned>>(0)](const store::Key&, store::Memory m) {
      if (n->fetch_add(1) % 2 == 0) m.address[m.length / 3] ^= std::byte{1};
    };
    return std::make_shared<store::TierStack>(domain, std::vector<std::unique_ptr<store::Tier>>{}, options,
                                              test::real_clock());
  });
  expect_answers(e);
  const auto m = e.engine->metrics();
  EXPECT_GT(m.tiers.stack.verify_failed, 0U);
  EXPECT_GT(m.tiers.restore.parts_failed, 0U);
}

TEST_F(TiersTest, ATierThatNeverAnswersCostsADeadlineEach) {
  for (const auto kind : {store::TierKind::kDisk, store::TierKind::kRemote}) {
    test::MemoryTier* tier = nullptr;
    auto options = memory_tier(kind);
    options.manual = true;
    TieredEngine e(config("auto"), memory_stack(options, &tier));
    std::atomic<bool> writing{true}, over{false};
    std::jthread hands([&] {  // writes are done at first, then nothing is
      while (!over) {
        if (!writing || !tier->finish()) std::this_thread::yield();
      }
    });
    expect_answers(e, 1);
    ASSERT_TRUE(e.flush());
    writing = false;
    expect_answers(e, 1);
    const auto m = e.engine->metrics();
    if (kind == store::TierKind::kDisk) {
      EXPECT_GT(m.tiers.restore.deadlines, 0U);
    } else {
      EXPECT_GT(m.tiers.restore.lookups, 0U);
    }
    writing = true;
    e.stop();
    over = true;
  }
}

TEST_F(TiersTest, TheDirectoryGoesInMidRun) {
  const std::string path = dir_.path() + "/kv";
  TieredEngine e(config(), {"disk:path=" + path + ",size=64MiB,admit=all"});
  expect_answers(e, 1);
  ASSERT_TRUE(e.flush());
  expect_answers(e, 1);
  EXPECT_GT(read_from(e, store::TierKind::kDisk), 0U);
  std::filesystem::remove_all(path);
  expect_answers(e);
  std::ofstream(path) << "in the way";
  expect_answers(e);
}

TEST_F(TiersTest, TheServerIsKilledAndComesBack) {
  test::RealRedis redis;
  TieredEngine e(config(), {"dram:size=1MiB", "redis:url=" + redis.url() + ",op_timeout=200ms"});
  ASSERT_TRUE(e.wait_up());
  expect_answers(e, 6);
  redis.pause();
  expect_answers(e, 1);
  redis.resume();
  redis.stop();
  expect_answers(e);
  redis.start();
  expect_answers(e);
}

/// Slow enough that requests end, pause and are preempted while their blocks are on the way.
TEST_F(TiersTest, StormOfCancelsWhileBlocksAreLoaded) {
  for (const char* restore : {"reload", "both", "auto"}) {
    TieredEngine e(config(restore),
                   {"disk:path=" + dir_.path() + "/kv,size=64MiB,admit=all,throttle=64MiB/s,latency=1ms"});
    Rng rng(11);
    expect_answers(e, 1);
    ASSERT_TRUE(e.flush());
    std::vector<std::pair<RequestId, std::size_t>> kept;
    std::vector<RequestId> gone;
    for (int i = 0; i < 150; ++i) {
      const std::size_t which = rng.below(requests_.size());
      const RequestId id = e.client->submit(requests_[which]);
      if (rng.below(3) == 0) {
        gone.push_back(id);
        for (std::uint64_t spin = rng.below(200); spin > 0; --spin) std::this_thread::yield();
        if (rng.below(2) == 0) e.engine->pause(id, true);
        e.engine->cancel(id);
      } else {
        if (rng.below(4) == 0) {
          e.engine->pause(id, true);
          e.engine->pause(id, false);
        }
        kept.emplace_back(id, which);
      }
      if (rng.below(8) == 0) e.client->wait(kept.empty() ? id : kept.back().first);
    }
    for (const auto& [id, which] : kept) EXPECT_EQ(answer_bits(e.client->wait(id)[0]), expected_[which]);
    for (const RequestId id : gone) e.client->wait(id);
    const auto m = e.engine->metrics();
    EXPECT_GT(m.tiers.restore.loads, 0U);
    expect_answers(e, 1);
  }
}

TEST_F(TiersTest, ACleanStopWritesWhatWasAccepted) {
  const std::vector<std::string> specs{"disk:path=" + dir_.path() + "/kv,size=64MiB,admit=all,throttle=16MiB/s"};
  TieredEngine e(config(), specs);
  expect_answers(e, 1);
  const auto accepted = [&] {
    const auto stats = e.stack->stats();
    return stats.kinds[1].writes;
  };
  e.engine->drain();
  e.client.reset();
  e.engine.reset();  // as serve does it: engine first, then the tiers
  const auto written = accepted();
  EXPECT_GT(written, 0U);
  EXPECT_TRUE(e.stack->flush(0)) << "something was still on its way";
  e.stop();
  e.start();
  EXPECT_EQ(e.stack->stats().tiers[0].stats.entries, written);
}

TEST_F(TiersTest, PinnedPromptsOutliveOthers) {
  Rng rng(5);
  TieredEngine e(config(), {"dram:size=1MiB"});
  Request pinned = requests_[0];
  pinned.cache_pin_s = 3600;
  Request plain = requests_[1];
  e.run({pinned, plain});
  for (int i = 0; i < 30; ++i) e.run({test::request_for(test::random_prompt(rng, 200), 1)});
  const auto got = e.run({pinned, plain});
  EXPECT_EQ(answer_bits(got[0]), expected_[0]);
  EXPECT_EQ(answer_bits(got[1]), expected_[1]);
  EXPECT_GT(got[0].stats.cached_by_place[1], 0);
  EXPECT_EQ(got[1].stats.cached_by_place[1], 0) << "DRAM is large enough for all: nothing was shown";
}

TEST_F(TiersTest, RecomputeReadsNothing) {
  TieredEngine e(config("recompute"), {"dram:size=8MiB"});
  expect_answers(e);
  EXPECT_EQ(read_from(e, store::TierKind::kDram), 0U);
}

TEST_F(TiersTest, RefusesAModeThatIsNone) {
  Config c = config("sideways");
  auto loaded = test::load_tiny(c);
  const auto made = make_engine(c, std::move(loaded.runner), test::real_clock());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().param, "kv.restore");
}

/// Users whose histories have been evicted when their turns come, on a throttled disk.
struct ThrottledUsers {
  enum class Turn : std::uint8_t { kRead, kComputed, kBetween };

  ThrottledUsers(const Config& config, const std::string& directory)
      : e(config, {"disk:path=" + directory + "/kv,size=64MiB,admit=all,throttle=1GiB/s"}) {
    Rng rng(21);
    for (int h = 0; h < 6; ++h) {
      histories.push_back(test::request_for(test::random_prompt(rng, 64 * 64 + 12), 1));
      expected.push_back(answer_bits(e.run({histories.back()})[0]));
    }
  }
  /// Read is what was planned to be and more than half came; a trial is neither.
  Turn turn() {
    const std::size_t h = turns++ % histories.size();
    const auto before = e.engine->metrics().tiers.restore;
    const Answer a = e.run({histories[h]})[0];
    EXPECT_EQ(answer_bits(a), expected[h]);
    const auto after = e.engine->metrics().tiers.restore;
    if (after.plans[0] > before.plans[0]) return Turn::kComputed;
    const bool most = a.stats.cached_by_place[2] > static_cast<int>(histories[h].prompt.size()) / 2;
    return after.trials == before.trials && most ? Turn::kRead : Turn::kBetween;
  }
  /// Turns until two in a row are such.
  int turns_until(Turn wanted) {
    int n = 0;
    for (int row = 0; row < 2 && n < 40; ++n) row = turn() == wanted ? row + 1 : 0;
    return n;
  }

  TieredEngine e;
  std::vector<Request> histories;
  std::vector<std::string> expected;
  std::size_t turns = 0;
};

/// On real clocks: at the low speed a history takes 12 s, at the high one some milliseconds, and to compute it takes some
/// tens.
TEST_F(TiersTest, AThrottleChangedInMidRunFlipsTheChoiceWithin20Requests) {
  make_long_model(3);
  Config c = test::tiny_config(dir_.path());
  c.kv.restore = "auto";
  c.kv.block_size = 64;
  c.model.max_model_len = 4200;
  c.kv.memory_bytes = 8600 * 3 * 2 * 2 * 16 * 4;  // two of six histories
  ThrottledUsers users(c, dir_.path());
  ASSERT_TRUE(users.e.flush());
  EXPECT_LE(users.turns_until(ThrottledUsers::Turn::kRead), 20);
  const auto throttle = users.e.throttles.at(0);
  std::array<int, 3> slow{}, fast{};
  for (std::size_t round = 0; round < 3; ++round) {
    throttle->bytes_per_s = 256 << 10;
    slow[round] = users.turns_until(ThrottledUsers::Turn::kComputed);
    throttle->bytes_per_s = 1e12;
    fast[round] = users.turns_until(ThrottledUsers::Turn::kRead);
    std::printf("[ flipped  ] after %d requests on a slow tier, %d on a fast one\n", slow[round], fast[round]);
  }
  // The middle one: on real clocks a machine that stands still for a moment looks like a slow tier, or a slow model.
  for (auto* turns : {&slow, &fast}) {
    std::sort(turns->begin(), turns->end());
    EXPECT_LE((*turns)[1], 20);
  }
}

/// The real disk tier on a disk that is full, at first by what it holds itself and then by others.
TEST_F(TiersTest, ADiskWithoutSpace) {
  const auto io = std::make_shared<store::disk_test::FaultyIo>();
  io->f.space = 1 << 20;
  TieredEngine e(config(), [&](const store::Domain& domain) {
    store::DiskOptions disk;
    disk.directory = dir_.path() + "/kv";
    disk.capacity_bytes = 64 << 20;
    disk.clock = &test::real_clock();
    disk.io = io;
    std::vector<std::unique_ptr<store::Tier>> tiers;
    tiers.push_back(std::move(store::open_disk_tier(disk, domain).value()));
    return std::make_shared<store::TierStack>(domain, std::move(tiers), store::StackOptions{.disk_admit_all = true},
                                              test::real_clock());
  });
  expect_answers(e);
  io->f.space = 0;
  io->f.write_error = ENOSPC;
  expect_answers(e);
  EXPECT_TRUE(e.flush());
  EXPECT_GT(e.stack->stats().tiers[0].stats.no_space, 0U);
}

/// A long prompt goes to all tiers and comes back from each. On one layer of the tiny model, told that it may be so long,
/// attention costs nothing (nobody wants the hidden states of a prompt's rows); on two, 131,072 tokens take minutes.
class LongPromptTest : public TiersTest, public ::testing::WithParamInterface<std::pair<std::size_t, int>> {
 protected:
  void SetUp() override {
    TiersTest::SetUp();
    if (IsSkipped()) return;
    make_long_model(GetParam().second);
  }

  Answer run(TieredEngine& e, const char* what, const Request& request) {
    const Histogram before = e.engine->metrics().plan_seconds;
    const double start = test::real_clock().now();
    Answer a = e.run({request})[0];
    const double seconds = test::real_clock().now() - start;
    const Histogram after = e.engine->metrics().plan_seconds;
    const auto& by = a.stats.cached_by_place;
    const auto plans = after.count() - before.count();
    std::size_t median = 0;
    for (std::uint64_t below = 0; median < after.bounds().size(); ++median) {
      below += after.counts()[median] - before.counts()[median];
      if (2 * below >= plans) break;
    }
    std::printf("[ %-8s ] %zu tokens in %.2f s; cached: device %d, dram %d, disk %d, remote %d; %llu plans, %.1f us in the "
                "mean, most at most %.0f us\n",
                what, request.prompt.size(), seconds, by[0], by[1], by[2], by[3],
                static_cast<unsigned long long>(plans),
                (after.sum() - before.sum()) / static_cast<double>(std::max<std::uint64_t>(plans, 1)) * 1e6,
                median < after.bounds().size() ? after.bounds()[median] * 1e6 : 1e6);
    return a;
  }
};

TEST_P(LongPromptTest, GoesThroughAllTiersAndBack) {
  const auto [length, layers] = GetParam();
  Config c = test::tiny_config(dir_.path());
  c.kv.restore = "reload";
  c.kv.memory_bytes = (length + 1088) * static_cast<std::size_t>(layers) * 2 * 2 * 16 * 4;
  c.scheduler.max_num_batched_tokens = 4096;
  Rng rng(1);
  const Request request = test::request_for(test::random_prompt(rng, length), 40);
  const auto whole = static_cast<std::int32_t>(length / 16 - 1) * 16;
  test::RealRedis redis;
  const std::string disk = "disk:path=" + dir_.path() + "/kv,size=2GiB,admit=all";

  TieredEngine e(c, {"dram:size=256MiB", disk, "redis:url=" + redis.url()});
  ASSERT_TRUE(e.wait_up());
  const std::string cold = answer_bits(run(e, "cold", request));
  Answer again = run(e, "device", request);
  EXPECT_EQ(answer_bits(again), cold);
  EXPECT_GE(again.stats.cached_by_place[0], whole);
  // A second use takes every block to the disk and the pool within a moment.
  const auto written = [&](std::size_t kind) { return e.stack->stats().kinds[kind].writes; };
  const double until = test::real_clock().now() + 120;
  const std::uint64_t most = length / 16 - 16;
  while ((written(1) < most || written(2) < most) && test::real_clock().now() < until) std::this_thread::yield();
  EXPECT_GE(written(1), most);
  EXPECT_GE(written(2), most);
  ASSERT_TRUE(e.flush());

  e.stop();
  e.specs = {"dram:size=256MiB", disk};
  e.start();
  // A machine that stutters gives up what takes too long, and computes it.
  const auto came = [&](std::size_t place) {
    return again.stats.cached_by_place[place] >= whole * 9 / 10 || e.engine->metrics().tiers.restore.deadlines > 0;
  };
  again = run(e, "disk", request);
  EXPECT_EQ(answer_bits(again), cold);
  EXPECT_TRUE(came(2));

  e.client.reset();  // another engine on the same stack: its pool is empty, DRAM is not
  e.engine.reset();
  const auto kept = e.stack;
  e.specs.clear();
  e.make_stack = [&](const store::Domain&) { return kept; };
  e.start();
  again = run(e, "dram", request);
  EXPECT_EQ(answer_bits(again), cold);
  EXPECT_TRUE(came(1));

  e.stop();
  e.make_stack = nullptr;
  e.specs = {"redis:url=" + redis.url()};
  e.start();
  ASSERT_TRUE(e.wait_up());
  again = run(e, "remote", request);
  EXPECT_EQ(answer_bits(again), cold);
  EXPECT_TRUE(came(3));
}

std::vector<std::pair<std::size_t, int>> long_prompts() {
  std::vector<std::pair<std::size_t, int>> out{{4'096, 1}, {16'384, 2}, {131'072, 1}};
  if (std::getenv("BARG_TEST_LONG") != nullptr) out.emplace_back(131'072, 2);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Lengths, LongPromptTest, ::testing::ValuesIn(long_prompts()), [](const auto& i) {
  return std::to_string(i.param.first) + "_" + std::to_string(i.param.second);
});

}  // namespace
}  // namespace barg::engine::tiers_test
