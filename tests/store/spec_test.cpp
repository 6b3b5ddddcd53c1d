// Tiers from text: what is read, what is refused and how it is said; opening; the throttled tier.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "store/stack_support.h"
#include "store/tier_spec.h"
#include "support/temp_dir.h"

namespace barg::store::spec_test {
namespace {

TEST(TierSpec, ReadsEveryField) {
  const std::vector<std::string> texts = {
      "dram:size=256MiB,ttl=1h",
      "disk:path=/a/b=c,size=2GiB,ttl=90s,budget=100GiB/day,admit=all,throttle=8MiB/s,latency=1ms",
      "disk:path=/d,size=1.5GiB",
      "redis:url=redis://127.0.0.1:6379/2,ttl=1d,connections=2,op_timeout=500ms,tls_verify=no,ca_file=/ca",
  };
  const auto specs = parse_tiers(texts);
  ASSERT_TRUE(specs.has_value()) << specs.error().message;
  ASSERT_EQ(specs->size(), 4U);
  EXPECT_EQ((*specs)[0].size_bytes, 256U << 20);
  EXPECT_EQ((*specs)[0].ttl_s, 3600);
  const TierSpec& disk = (*specs)[1];
  EXPECT_EQ(disk.disk.directory, "/a/b=c");
  EXPECT_EQ(disk.size_bytes, 2ULL << 30);
  EXPECT_EQ(disk.ttl_s, 90);
  EXPECT_EQ(disk.bytes_per_day, 100ULL << 30);
  EXPECT_TRUE(disk.admit_all && disk.throttle);
  EXPECT_EQ(disk.throttle_bytes_per_s, 8 << 20);
  EXPECT_DOUBLE_EQ(disk.throttle_latency_s, 0.001);
  EXPECT_FALSE((*specs)[2].throttle || (*specs)[2].admit_all);
  const TierSpec& redis = (*specs)[3];
  EXPECT_EQ(redis.redis.url, "redis://127.0.0.1:6379/2");
  EXPECT_EQ(redis.redis.connections, 2);
  EXPECT_EQ(redis.redis.op_timeout_s, 0.5);
  EXPECT_FALSE(redis.redis.tls_verify);
  EXPECT_EQ(redis.ttl_s, 86400);
}

TEST(TierSpec, RefusesInWords) {
  struct Case {
    std::vector<std::string> texts;
    const char* says;
    const char* param = "kv.tiers[0]";
  };
  const std::vector<Case> cases = {
      {{""}, "dram, disk, redis"},
      {{"tape:size=1GiB"}, "'tape'"},
      {{"dram"}, "needs the field size"},
      {{"dram:"}, "needs the field size"},
      {{"dram:size"}, "size, ttl"},
      {{"dram:size="}, "field size must be a size"},
      {{"dram:size=1G"}, "field size must be a size"},
      {{"dram:size=0"}, "between 1 byte"},
      {{"dram:size=1e30TiB"}, "size"},
      {{"dram:size=-1MiB"}, "field size"},
      {{"dram:size=1MiB,size=1MiB"}, "twice"},
      {{"dram:size=1MiB,throttle=1MiB/s"}, "unknown field 'throttle'"},
      {{"dram:size=1MiB,ttl=0s"}, "field ttl"},
      {{"disk:size=1GiB"}, "needs the field path"},
      {{"disk:path=,size=1GiB"}, "field path must not be empty"},
      {{"disk:path=/a"}, "needs the field size"},
      {{"disk:path=/a,size=1GiB,budget=1GiB"}, "/day"},
      {{"disk:path=/a,size=1GiB,admit=some"}, "reuse or all"},
      {{"disk:path=/a,size=1GiB,throttle=8MiB"}, "/s"},
      {{"redis:url=http://h"}, "field url"},
      {{"redis:url=redis://h,connections=0"}, "between 1 and 64"},
      {{"dram:size=1MiB", "dram:size=2MiB"}, "only one dram", "kv.tiers[1]"},
      {{"disk:path=/a,size=1GiB", "dram:size=2MiB"}, "dram comes before disk", "kv.tiers[1]"},
      {{"disk:path=/a,size=1GiB", "disk:path=/b/../a,size=1GiB"}, "there already", "kv.tiers[1]"},
  };
  for (const Case& c : cases) {
    const auto specs = parse_tiers(c.texts);
    ASSERT_FALSE(specs.has_value()) << c.texts.back();
    EXPECT_EQ(specs.error().code, ErrorCode::kInvalidValue);
    EXPECT_EQ(specs.error().param, c.param) << specs.error().message;
    EXPECT_NE(specs.error().message.find(c.says), std::string::npos)
        << c.texts.back() << ": " << specs.error().message;
  }
  const std::vector<std::string> secret = {"redis:url=redis://:hunter2@h:99999999"};
  const auto refused = parse_tiers(secret);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message.find("hunter2"), std::string::npos);
}

const Domain kDomain{.root = {}, .part_bytes = {4096}, .label = "test"};

TEST(TierSpec, OpensAStackThatKeepsWhatItWasGiven) {
  const test::TempDir dir;
  const SteadyClock clock;
  const std::vector<std::string> texts = {"dram:size=1MiB",
                                          "disk:path=" + (dir.path() + "/kv") + ",size=64MiB,latency=1ms"};
  const SaveItem item{.key = key_of(1), .info = info_of(1), .why = SaveWhy::kSecondUse, .uses = 1};
  for (const bool again : {false, true}) {
    auto opened = open_stack(texts, kDomain, clock);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    EXPECT_TRUE(opened->warnings.empty());
    ASSERT_EQ(opened->throttles.size(), 2U);
    EXPECT_TRUE(opened->throttles[0] == nullptr && opened->throttles[1] != nullptr);
    TierStack& stack = *opened->stack;
    EXPECT_TRUE(stack.has(TierKind::kDram) && stack.has(TierKind::kDisk) && !stack.has(TierKind::kRemote));
    EXPECT_EQ(stack.wants(item), !again) << "the directory remembers";
    if (!again) {
      ASSERT_TRUE(stack.save(item, [&](Memory to) {
        const auto bytes = bytes_of(item.key, to.length);
        std::copy(bytes.begin(), bytes.end(), to.address);
        return true;
      }));
      ASSERT_TRUE(stack.flush(clock.now() + 30));
    }
    Loads loads;
    stack.load({{item.key, item.info, 1}}, 0, loads.collector());
    ASSERT_TRUE(loads.wait(1));
    EXPECT_EQ(loads.end(1).status, Status::kOk);
    EXPECT_TRUE(loads.end(1).bytes == bytes_of(item.key, 4096));
  }
}

TEST(TierSpec, WhatCannotBeOpenedIsAWarning) {
  const test::TempDir dir;
  const SteadyClock clock;
  dir.write("file", "not a directory");
  const std::string bad = "disk:path=" + (dir.path() + "/file") + "/kv,size=64MiB";
  auto opened = open_stack(std::vector<std::string>{"dram:size=1MiB", bad}, kDomain, clock);
  ASSERT_TRUE(opened.has_value());
  ASSERT_EQ(opened->warnings.size(), 1U);
  EXPECT_NE(opened->warnings[0].find("kv.tiers[1]"), std::string::npos) << opened->warnings[0];
  EXPECT_FALSE(opened->stack->has(TierKind::kDisk));
  opened = open_stack(std::vector<std::string>{bad}, kDomain, clock);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->stack, nullptr) << "no tier is left";
  const auto small = open_stack(std::vector<std::string>{"dram:size=4KiB"}, kDomain, clock);
  ASSERT_FALSE(small.has_value());
  EXPECT_EQ(small.error().param, "kv.tiers[0]");
  const auto no_file = open_stack(
      std::vector<std::string>{"redis:url=redis://127.0.0.1:1,password_file=" + (dir.path() + "/none")},
      kDomain, clock);
  ASSERT_FALSE(no_file.has_value());
  EXPECT_NE(no_file.error().message.find("password_file"), std::string::npos);
}

// ---- throttle

struct Throttle : testing::Test {
  Throttle() {
    auto memory = std::make_unique<test::MemoryTier>(test::MemoryTier::Options{}, clock);
    inner = memory.get();
    for (std::uint64_t id = 0; id < 8; ++id)
      inner->insert(key_of(id), info_of(id), bytes_of(key_of(id), 1000));
    tier = throttled(std::move(memory), control, clock);
  }
  void get(std::uint64_t id, Ticket ticket, double deadline = 0) {
    tier->get(ticket, {{key_of(id), info_of(id), {MemoryKind::kHost, buffers[id].data(), 1000}, id}},
              deadline, [this, id](const Report& r) {
                statuses[id] = static_cast<int>(r.status);
                ++reported;
              });
  }
  /// Real time passes without anything being reported that should not be.
  bool stays(int n) {
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (reported != n) return false;
    }
    return true;
  }
  test::SharedClock clock;
  std::shared_ptr<ThrottleControl> control = std::make_shared<ThrottleControl>();
  test::MemoryTier* inner = nullptr;
  std::array<std::array<std::byte, 1000>, 8> buffers{};
  std::array<std::atomic<int>, 8> statuses{};
  std::atomic<int> reported{0};
  std::unique_ptr<Tier> tier;
};

TEST_F(Throttle, BytesHaveTheirTimeAndLatencyOnTop) {
  control->bytes_per_s = 1000;
  control->latency_s = 0.5;
  for (std::uint64_t id = 0; id < 3; ++id) get(id, static_cast<Ticket>(id + 1));
  EXPECT_TRUE(stays(0));
  clock.advance(1.4);
  EXPECT_TRUE(stays(0));
  clock.advance(0.2);  // 1.6: the first, of 1 s and 0.5 s
  EXPECT_TRUE(eventually([&] { return reported == 1; }));
  EXPECT_TRUE(stays(1));
  clock.advance(1);
  EXPECT_TRUE(eventually([&] { return reported == 2; }));
  control->bytes_per_s = 0;
  clock.advance(1);
  EXPECT_TRUE(eventually([&] { return reported == 3; }));
  control->latency_s = 0;
  get(4, static_cast<Ticket>(9));
  EXPECT_TRUE(eventually([&] { return reported == 4; })) << "as fast as the tier is";
  EXPECT_TRUE(std::equal(buffers[4].begin(), buffers[4].end(), bytes_of(key_of(4), 1000).begin()));
}

TEST_F(Throttle, ANewRateCountsForWhatIsOnItsWay) {
  control->bytes_per_s = 10;
  get(0, static_cast<Ticket>(1));
  get(1, static_cast<Ticket>(2));
  EXPECT_TRUE(stays(0));
  clock.advance(10);  // 100 of 1000 bytes
  EXPECT_TRUE(stays(0));
  control->bytes_per_s = 1000;
  clock.advance(0.85);
  EXPECT_TRUE(stays(0));
  clock.advance(0.1);  // 1050 bytes
  EXPECT_TRUE(eventually([&] { return reported == 1; })) << "at ten bytes a second it would take 90 s more";
  control->bytes_per_s = 1;
  clock.advance(1);
  EXPECT_TRUE(stays(1)) << "at a thousand it would be over";
  control->bytes_per_s = 10000;
  clock.advance(0.1);
  EXPECT_TRUE(eventually([&] { return reported == 2; }));
}

TEST_F(Throttle, IdleTimeIsNotSavedUp) {
  control->bytes_per_s = 1000;
  clock.advance(100);
  EXPECT_TRUE(stays(0));
  get(0, static_cast<Ticket>(1));
  clock.advance(0.9);
  EXPECT_TRUE(stays(0));
  clock.advance(0.2);
  EXPECT_TRUE(eventually([&] { return reported == 1; }));
}

TEST_F(Throttle, WhatWaitsInLineIsCancelledOrTimesOutUndone) {
  control->bytes_per_s = 1000;
  get(0, static_cast<Ticket>(1));
  get(1, static_cast<Ticket>(2));
  get(2, static_cast<Ticket>(3), clock.now() + 1);
  tier->cancel(static_cast<Ticket>(2));
  EXPECT_TRUE(eventually([&] { return reported == 1; }));
  EXPECT_EQ(statuses[1], static_cast<int>(Status::kCancelled));
  clock.advance(1.5);
  EXPECT_TRUE(eventually([&] { return reported == 3; }));
  EXPECT_EQ(statuses[0], static_cast<int>(Status::kOk));
  EXPECT_EQ(statuses[2], static_cast<int>(Status::kTimeout));
  EXPECT_EQ(inner->reads(key_of(1)) + inner->reads(key_of(2)), 0U);
  get(3, static_cast<Ticket>(4));
  get(5, static_cast<Ticket>(5));
  tier.reset();
  EXPECT_EQ(reported, 5) << "closing ends what waits";
}

}  // namespace
}  // namespace barg::store::spec_test
