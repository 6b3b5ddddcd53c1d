// What is kept, for how long, for whom, and how much of it.
#include "server/responses_store.h"

#include <gtest/gtest.h>

#include <thread>

namespace barg::server::responses_store_test {
namespace {

using List = std::vector<ItemList>;

ItemList list_of(std::size_t bytes) { return std::make_shared<const std::string>(bytes, 'x'); }

std::shared_ptr<StoredResponse> response(std::size_t bytes = 10, std::string owner = "",
                                         bool streamed = false, List history = {}) {
  return std::make_shared<StoredResponse>(StoredResponse::Origin{.owner = std::move(owner),
                                                                 .history = std::move(history),
                                                                 .input = list_of(bytes),
                                                                 .background = false,
                                                                 .streamed = streamed});
}

struct Store {
  ManualClock clock;
  ResponseStore store;
  explicit Store(std::size_t bytes, double ttl = 100) : store({.bytes = bytes, .ttl_s = ttl}, clock) {}

  std::shared_ptr<StoredResponse> add(const std::string& id, std::size_t bytes, std::string owner = "") {
    auto r = response(bytes, std::move(owner));
    EXPECT_TRUE(store.insert(id, r));
    r->begin("{}");
    finish(id, *r);
    return r;
  }
  void finish(const std::string& id, StoredResponse& r) {
    r.finish("{}", "[]");
    store.recharge(id);
  }
  bool has(const std::string& id) { return store.find(id, "") != nullptr; }
};

TEST(ResponseStore, TheLeastRecentlyUsedGoFirst) {
  Store s(25'000);
  s.add("a", 5'000);
  s.add("b", 5'000);
  s.add("c", 5'000);
  EXPECT_TRUE(s.has("a"));  // used again
  s.add("d", 10'000);
  EXPECT_FALSE(s.has("b"));
  EXPECT_TRUE(s.has("a"));
  EXPECT_TRUE(s.has("c"));
  EXPECT_TRUE(s.has("d"));
  EXPECT_LE(s.store.bytes(), 25'000U);
}

TEST(ResponseStore, AnAgeEndsItFromWhenItWasFinished) {
  Store s(1 << 20, 10);
  auto running = response();
  ASSERT_TRUE(s.store.insert("r", running));
  s.add("a", 10);
  s.clock.advance(9.5);
  EXPECT_TRUE(s.has("a"));
  s.clock.advance(0.5);
  EXPECT_FALSE(s.has("a"));
  EXPECT_TRUE(s.has("r")) << "a running one does not age";
  s.finish("r", *running);
  s.clock.advance(9);
  EXPECT_TRUE(s.has("r")) << "being read does not make it younger, and it is young";
  s.clock.advance(1);
  EXPECT_FALSE(s.has("r"));
  EXPECT_EQ(s.store.size(), 0U);
  EXPECT_EQ(s.store.bytes(), 0U);
}

TEST(ResponseStore, KeysDoNotSeeEachOther) {
  Store s(1 << 20);
  s.add("a", 10, "alice");
  EXPECT_EQ(s.store.find("a", "bob"), nullptr);
  EXPECT_EQ(s.store.find("a", ""), nullptr);
  EXPECT_FALSE(s.store.erase("a", "bob"));
  EXPECT_NE(s.store.find("a", "alice"), nullptr);
  EXPECT_TRUE(s.store.erase("a", "alice"));
  EXPECT_FALSE(s.store.erase("a", "alice"));
  EXPECT_EQ(s.store.bytes(), 0U);
}

TEST(ResponseStore, RunningOnesStayAndAreCounted) {
  Store s(10'000);
  auto running = response(6'000);
  ASSERT_TRUE(s.store.insert("r", running));
  EXPECT_TRUE(running->kept());
  s.add("a", 1'000);
  auto large = response(8'000);
  EXPECT_FALSE(s.store.insert("large", large)) << "nothing that runs goes for it";
  EXPECT_FALSE(large->kept());
  EXPECT_TRUE(s.has("r"));
  EXPECT_FALSE(s.store.insert("r", response())) << "an id is taken once";
  s.finish("r", *running);
  EXPECT_TRUE(s.store.insert("large", large)) << "now it may go";
  EXPECT_FALSE(s.has("r"));
}

TEST(ResponseStore, WhatIsSharedIsChargedToEachSoThatTheSumBounds) {
  Store s(20'000);
  const ItemList shared = list_of(4'000);
  for (int i = 0; i < 10; ++i) {
    auto r = response(10, "", false, {shared, shared});
    ASSERT_TRUE(s.store.insert("r" + std::to_string(i), r));
    s.finish("r" + std::to_string(i), *r);
  }
  EXPECT_EQ(s.store.size(), 2U);
  EXPECT_LE(s.store.bytes(), 20'000U);
}

TEST(ResponseStore, OffMeansOff) {
  Store s(0);
  EXPECT_FALSE(s.store.enabled());
  EXPECT_FALSE(s.store.insert("a", response()));
  EXPECT_EQ(s.store.find("a", ""), nullptr);
}

TEST(ResponseStore, EventsThatGrowMakeRoomAndAreDroppedInTheEnd) {
  Store s(300'000);
  s.add("a", 200'000);
  auto r = response(10, "", true);
  ASSERT_TRUE(s.store.insert("r", r));
  const std::string event = "event: x\ndata: " + std::string(2'000, 'y') + "\n\n";
  std::string got;
  std::size_t at = 0;
  for (int i = 0; i < 60; ++i) {
    if (r->append(event, 1)) s.store.recharge("r");
    EXPECT_LE(s.store.bytes(), 300'000U);
  }
  r->read(at, 1 << 20, got);
  EXPECT_EQ(got.size(), 60 * event.size());
  EXPECT_FALSE(s.has("a")) << "a stream that runs is worth more than an old answer";
  for (int i = 0; i < 200; ++i) {
    if (r->append(event, 1)) s.store.recharge("r");
  }
  EXPECT_LE(s.store.bytes(), 300'000U);
  EXPECT_TRUE(r->read(at, 1, got).lost);
  s.finish("r", *r);
  EXPECT_TRUE(s.has("r")) << "the answer itself is there";
}

TEST(ResponseStore, AStreamBeyondItsLimitLosesItsEvents) {
  Store s(1ULL << 30);
  auto r = response(10, "", true);
  ASSERT_TRUE(s.store.insert("r", r));
  const std::string event = "event: x\ndata: " + std::string(1 << 20, 'y') + "\n\n";
  for (std::size_t i = 0; i * event.size() < kMaxEventBytes; ++i) {
    if (r->append(event, 1)) s.store.recharge("r");
  }
  std::string got;
  std::size_t at = 0;
  EXPECT_TRUE(r->read(at, 1, got).lost);
  EXPECT_LT(s.store.bytes(), 1U << 20);
}

TEST(StoredResponse, ReadsWholeEventsFromWhereASequenceNumberSays) {
  auto r = response(10, "", true);
  r->append("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", 2);
  r->append("event: c\ndata: 3\n\n", 1);
  std::string got;
  std::size_t at = r->position_after(-1).value();
  EXPECT_FALSE(r->read(at, 1, got).over);
  EXPECT_EQ(got, "event: a\ndata: 1\n\n") << "one event at least, and no half one";
  got.clear();
  at = r->position_after(0).value();
  r->read(at, 1 << 20, got);
  EXPECT_EQ(got, "event: b\ndata: 2\n\nevent: c\ndata: 3\n\n");
  EXPECT_EQ(r->position_after(2), at);
  EXPECT_EQ(r->position_after(3), std::nullopt) << "the event in front of it has not come";
  got.clear();
  EXPECT_FALSE(r->read(at, 1, got).over) << "it runs";
  r->finish("{}", "[]");
  EXPECT_TRUE(r->read(at, 1, got).over);
}

TEST(StoredResponse, FollowersAreWokenUntilTheyLeave) {
  auto r = response(10, "", true);
  int stays = 0, leaves = 0;
  ASSERT_TRUE(r->follow([&] { ++stays; }));
  const auto id = r->follow([&] { ++leaves; });
  ASSERT_TRUE(id);
  r->append("event: a\ndata: 1\n\n", 1);
  r->unfollow(*id);
  r->unfollow(*id);
  r->append("event: b\ndata: 2\n\n", 1);
  r->finish("{}", "[]");
  EXPECT_EQ(stays, 3);
  EXPECT_EQ(leaves, 1);
  EXPECT_TRUE(r->follow([] {})) << "what is finished can be read by any number";
}

TEST(StoredResponse, AFollowerThatLeavesMakesRoomAtOnce) {
  auto crowded = response(10, "", true);
  std::optional<StoredResponse::FollowerId> last;
  for (std::size_t i = 0; i < kMaxFollowers; ++i) {
    last = crowded->follow([] {});
    ASSERT_TRUE(last);
  }
  EXPECT_FALSE(crowded->follow([] {}));
  crowded->unfollow(*last);
  EXPECT_TRUE(crowded->follow([] {}));
  EXPECT_FALSE(crowded->follow([] {}));
}

TEST(ResponseStore, SaysWhatItHolds) {
  Store s(1 << 20, 10);
  s.add("a", 5'000);
  auto running = response(7'000);
  ASSERT_TRUE(s.store.insert("r", running));
  EXPECT_EQ(s.store.held().count, 2U);
  EXPECT_GE(s.store.held().bytes, 12'000U);
  s.clock.advance(10);
  EXPECT_EQ(s.store.held().count, 1U) << "what is too old is not held";
  EXPECT_EQ(s.store.held().bytes, running->bytes());
}

TEST(StoredResponse, CancelReachesTheRunningOneOnly) {
  auto r = response();
  int asked = 0, done = 0;
  r->set_cancel([&](std::function<void()> then) {
    ++asked;
    then();
  });
  r->cancel([&] { ++done; });
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(done, 1);
  r->finish("{\"a\":1}", "[]");
  r->finish("{\"a\":2}", "[]");
  EXPECT_EQ(r->object(), "{\"a\":1}") << "the first end counts";
  r->cancel([&] { ++done; });
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(done, 2);
}

TEST(ResponseStore, ErasingARunningOneCancelsIt) {
  Store s(1 << 20);
  auto r = response();
  ASSERT_TRUE(s.store.insert("r", r));
  bool cancelled = false;
  r->set_cancel([&](std::function<void()> then) {
    cancelled = true;
    then();
  });
  EXPECT_TRUE(s.store.erase("r", ""));
  EXPECT_TRUE(cancelled);
}

TEST(ResponseStore, ManyThreadsAtOnce) {
  SteadyClock clock;
  ResponseStore store({.bytes = 200'000, .ttl_s = 100}, clock);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      Rng rng(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 500; ++i) {
        const std::string id = std::to_string(rng.below(40));
        auto r = response(rng.below(8'000), "", true);
        if (store.insert(id, r)) {
          if (r->append("event: a\ndata: 1\n\n", 1)) store.recharge(id);
          r->finish("{}", "[]");
          store.recharge(id);
        }
        if (const auto found = store.find(std::to_string(rng.below(40)), "")) (void)found->object();
        if (rng.below(4) == 0) store.erase(std::to_string(rng.below(40)), "");
      }
    });
  }
  threads.clear();
  EXPECT_LE(store.bytes(), 200'000U);
}

}  // namespace
}  // namespace barg::server::responses_store_test
