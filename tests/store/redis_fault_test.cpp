// The Redis tier against servers that misbehave: no wrong byte is ever reported as right, every item is
// reported once, and nothing waits longer than its limits.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "store/redis_support.h"

namespace barg::store::redis_fault_test {
namespace {

using namespace barg;
using namespace barg::test;

using Words = std::vector<std::string>;
using Peer = ScriptedServer::Peer;

constexpr std::uint64_t kSmall = 3000, kLarge = 2'500'000;

/// What a healthy server does, in memory.
class FakeStore {
 public:
  std::string answer(const Words& w) {
    const std::lock_guard lock(mutex_);
    if (w[0] == "PING") return "+PONG\r\n";
    if (w[0] == "SET") {
      ++sets;
      values[w[1]] = w[2];
      return "+OK\r\n";
    }
    if (w[0] == "GET") {
      const auto it = values.find(w[1]);
      if (it == values.end()) return "$-1\r\n";
      return "$" + std::to_string(it->second.size()) + "\r\n" + it->second + "\r\n";
    }
    if (w[0] == "EXISTS" || w[0] == "EXPIRE") return values.contains(w[1]) ? ":1\r\n" : ":0\r\n";
    if (w[0] == "DEL") {
      ++dels;
      return ":" + std::to_string(values.erase(w[1])) + "\r\n";
    }
    return "+OK\r\n";
  }
  void serve(Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      if (!peer.send(answer(w))) return;
    }
  }
  std::map<std::string, std::string> values;  // touched by tests only while nothing is under way
  std::atomic<int> sets = 0, dels = 0;

 private:
  std::mutex mutex_;
};

TestPart small_part(std::uint64_t n) { return TestPart(n, 0, kSmall); }
Domain domain() { return test_domain({kSmall, kLarge}); }

/// Lets a server's script go on, also when the test fails.
struct Finally {
  std::atomic<bool>& flag;
  bool value;
  ~Finally() { flag = value; }
};

RedisOptions one_connection(const std::string& url) {
  RedisOptions o = test_options(url);
  o.connections = 1;
  return o;
}

TEST(RedisFaults, AHealthyServerServes) {
  FakeStore store;
  ScriptedServer server([&](Peer& p) { store.serve(p); });
  const auto tier = make_tier(test_options(server.url()), domain());
  ASSERT_TRUE(up(*tier));
  const std::vector<TestPart> parts = {small_part(1), TestPart(2, 1, kLarge), small_part(3)};
  EXPECT_EQ(get_all(*tier, parts), std::vector(3, Status::kMissing));
  EXPECT_EQ(put_all(*tier, parts), std::vector(3, Status::kOk));
  EXPECT_EQ(store.sets, 1 + 1 + 4);  // the large one: a head and three pieces
  EXPECT_EQ(get_all(*tier, parts), std::vector(3, Status::kOk));
  EXPECT_EQ(put_all(*tier, parts), std::vector(3, Status::kOk));
  EXPECT_EQ(store.sets, 6) << "what is there is not written again";
  const TierStats s = tier->stats();
  EXPECT_EQ(s.gets, 6U);
  EXPECT_EQ(s.get_ok, 3U);
  EXPECT_EQ(s.get_missing, 3U);
  EXPECT_EQ(s.put_ok, 6U);
  EXPECT_EQ(s.bytes_read, 2 * kSmall + kLarge);
  EXPECT_EQ(s.bytes_written, 2 * kSmall + kLarge);
  EXPECT_EQ(s.reads_in_flight + s.writes_in_flight, 0U);
  EXPECT_EQ(s.last_error, "");
}

// ---- damage ----

/// Puts one part, changes what the server holds, and gets it.
Status get_after(const TestPart& part, const std::function<void(std::map<std::string, std::string>&)>& change,
                 TierStats* stats = nullptr, bool* gone = nullptr) {
  FakeStore store;
  ScriptedServer server([&](Peer& p) { store.serve(p); });
  const auto tier = make_tier(one_connection(server.url()), domain());
  EXPECT_TRUE(up(*tier));
  EXPECT_EQ(put_all(*tier, {part}), std::vector{Status::kOk});
  change(store.values);
  const Status s = get_all(*tier, {part})[0];
  if (stats != nullptr) *stats = tier->stats();
  const std::string name = record_name(domain().root, part.key);
  if (gone != nullptr) *gone = get_all(*tier, {part})[0] == Status::kMissing && !store.values.contains(name);
  return s;
}

TEST(RedisFaults, DamagedForeignAndShortValuesAreRemoved) {
  const TestPart part = small_part(1);
  const std::string name = record_name(domain().root, part.key);
  const auto value_of = [](const Domain& d, const TestPart& p, BlockInfo info) {
    const RecordFacts f{d.root, p.key, info, p.bytes.size(), RecordKind::kWhole, 0, 1};
    const RecordHeader h = make_header(f, p.bytes);
    return std::string(reinterpret_cast<const char*>(h.data()), h.size()) +
           std::string(reinterpret_cast<const char*>(p.bytes.data()), p.bytes.size());
  };
  const std::string right = value_of(domain(), part, part.info);
  std::vector<std::string> wrong;
  for (const std::size_t at : {0UL, 8UL, 20UL, 60UL, 130UL, 165UL, 190UL, 192UL, 3000UL, right.size() - 1}) {
    wrong.push_back(right);
    wrong.back()[at] ^= 0x10;
  }
  wrong.push_back(value_of(domain(), small_part(2), part.info));  // another key
  wrong.push_back(value_of(test_domain({kSmall}, 9), part, part.info));
  for (int i = 0; i < 3; ++i) {
    BlockInfo other = part.info;
    if (i == 0) other.depth += 1;
    if (i == 1) other.fingerprint ^= 1;
    if (i == 2) other.parent[0] ^= 1;
    wrong.push_back(value_of(domain(), part, other));
  }
  wrong.emplace_back();
  wrong.emplace_back("OK");
  wrong.push_back(right.substr(0, right.size() - 1));
  wrong.push_back(right + "x");
  wrong.push_back(right.substr(0, kValueHeaderBytes));
  wrong.emplace_back(5U << 20, 'x');

  EXPECT_EQ(get_after(part, [&](auto& v) { EXPECT_EQ(v.at(name), right); }), Status::kOk);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    TierStats stats;
    bool gone = false;
    EXPECT_EQ(get_after(
                  part, [&](auto& v) { v.at(name) = wrong[i]; }, &stats, &gone),
              Status::kCorrupt)
        << i;
    EXPECT_EQ(stats.verify_failed, 1U) << i;
    EXPECT_TRUE(stats.up) << i;
    EXPECT_TRUE(gone) << i;
  }
}

TEST(RedisFaults, PiecesThatLackOrDoNotFitTheirHeadAreNoPart) {
  const TestPart part(5, 1, kLarge);
  const std::string name = record_name(domain().root, part.key);
  bool gone = false;
  TierStats stats;
  const auto lacking = [&](auto& v) { v.erase(piece_name(name, 1)); };
  EXPECT_EQ(get_after(part, lacking, &stats, &gone), Status::kMissing);
  EXPECT_TRUE(gone) << "a head without its pieces would make put() believe that the part is there";
  EXPECT_EQ(stats.verify_failed, 0U);
  EXPECT_EQ(get_after(part, [&](auto& v) { v.erase(name); }), Status::kMissing);
  EXPECT_EQ(
      get_after(
          part, [&](auto& v) { std::swap(v[piece_name(name, 0)], v[piece_name(name, 1)]); }, &stats, &gone),
      Status::kCorrupt);
  EXPECT_TRUE(gone);
  EXPECT_EQ(get_after(part, [&](auto& v) { v[piece_name(name, 2)][500] ^= 1; }), Status::kCorrupt);
  EXPECT_EQ(get_after(part, [&](auto& v) { v[name][200] ^= 1; }), Status::kCorrupt);
  // A piece that is whole and names this part, but holds other bytes than the head was made for.
  const auto mixed = [&](auto& v) {
    const Cut cut = cut_part(kLarge);
    const std::vector<std::byte> other(cut.size(1), std::byte{1});
    const RecordFacts f{domain().root, part.key, part.info, kLarge, RecordKind::kPiece, 1, cut.pieces};
    const RecordHeader h = make_header(f, other);
    v[piece_name(name, 1)] = std::string(reinterpret_cast<const char*>(h.data()), h.size()) +
                             std::string(reinterpret_cast<const char*>(other.data()), other.size());
  };
  EXPECT_EQ(get_after(part, mixed), Status::kCorrupt);
}

// ---- the protocol ----

TEST(RedisFaults, AnswersMayComeInAnyPieces) {
  FakeStore store;
  std::atomic<std::size_t> cut = 0;
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      const std::string a = store.answer(w);
      const std::size_t n = w[0] == "GET" ? std::min(cut.load(), a.size()) : a.size();
      if (!peer.send(a.substr(0, n))) return;
      if (n == a.size()) continue;
      ::usleep(200);  // so that the pieces arrive alone
      if (!peer.send(a.substr(n))) return;
    }
  });
  const Domain d = test_domain({200});
  const TestPart part(1, 0, 200);
  const auto tier = make_tier(one_connection(server.url()), d);
  ASSERT_TRUE(up(*tier));
  ASSERT_EQ(put_all(*tier, {part})[0], Status::kOk);
  for (std::size_t i = 0; i < 402; ++i) {  // "$392\r\n", 392 bytes, "\r\n"
    cut = i;
    ASSERT_EQ(get_all(*tier, {part})[0], Status::kOk) << i;
  }
}

TEST(RedisFaults, AnAnswerCutOffAtAnyByteIsNoAnswer) {
  FakeStore store;
  std::atomic<std::size_t> cut = 0;
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      const std::string a = store.answer(w);
      if (w[0] == "GET" && cut < a.size()) {
        peer.send(a.substr(0, cut));
        return;
      }
      if (!peer.send(a)) return;
    }
  });
  const Domain d = test_domain({200});
  const TestPart part(1, 0, 200);
  RedisOptions o = one_connection(server.url());
  o.max_failures = 1000;
  const auto tier = make_tier(o, d);
  ASSERT_TRUE(up(*tier));
  cut = 1000;
  ASSERT_EQ(put_all(*tier, {part})[0], Status::kOk);
  for (std::size_t i = 0; i < 400; i += 3) {
    cut = i;
    ASSERT_EQ(get_all(*tier, {part})[0], Status::kIoError) << i;
  }
  cut = 1000;
  EXPECT_EQ(get_all(*tier, {part})[0], Status::kOk) << "it comes back";
}

TEST(RedisFaults, WhatIsNotAnAnswerLosesTheConnectionOnly) {
  const std::vector<std::string> answers = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                            "\r\n",
                                            "$99999999999999999999\r\n",
                                            "$9223372036854775807\r\n",
                                            "*1000000000\r\n",
                                            "*1\r\n$1\r\nx\r\n",
                                            ":1\r\n",
                                            "+OK\r\n",
                                            "-" + std::string(100000, 'x'),
                                            "$-5\r\n",
                                            "$3\r\nabcde\r\n",
                                            std::string(1000, '\0'),
                                            "%1\r\n",
                                            "*-1\r\n$-1\r\n$-1\r\n"};
  for (const std::string& answer : answers) {
    std::atomic<int> connections = 0;
    FakeStore store;
    ScriptedServer server([&](Peer& peer) {
      const bool bad = ++connections == 1;
      for (Words w = peer.command(); !w.empty(); w = peer.command()) {
        if (!peer.send(bad && w[0] == "GET" ? answer : store.answer(w))) return;
      }
    });
    const auto tier = make_tier(one_connection(server.url()), domain());
    ASSERT_TRUE(up(*tier));
    const TestPart part = small_part(1);
    ASSERT_EQ(put_all(*tier, {part})[0], Status::kOk);
    const Status first = get_all(*tier, {part})[0];
    EXPECT_NE(first, Status::kOk) << answer.substr(0, 40);
    EXPECT_NE(first, Status::kTimeout) << answer.substr(0, 40);
    ASSERT_TRUE(eventually([&] { return connections > 1; })) << answer.substr(0, 40);
    EXPECT_TRUE(eventually([&] { return get_all(*tier, {part})[0] == Status::kOk; })) << answer.substr(0, 40);
    EXPECT_NE(tier->stats().last_error, "");
  }
}

TEST(RedisFaults, AnAnswerBeforeTheQuestionIsWholeDoesNotFreeItsBytes) {
  constexpr std::uint64_t kHuge = 40ULL
                                  << 20;  // more than the sockets between hold while the server does not read
  std::atomic<bool> done = false;
  ScriptedServer server([&](Peer& peer) {
    if (!peer.login()) return;
    if (peer.command().empty()) return;  // EXISTS
    peer.send(":0\r\n");
    if (!peer.wait_input()) return;
    for (std::uint32_t i = 0; i < cut_part(kHuge).pieces; ++i) peer.send("+OK\r\n");
    while (!done) ::usleep(1000);
  });
  const Finally let_go{done, true};
  RedisOptions o = one_connection(server.url());
  o.min_pause_s = o.max_pause_s = 1000;
  o.max_failures = 1;
  const auto tier = make_tier(o, test_domain({kHuge}));
  ASSERT_TRUE(up(*tier));
  EXPECT_EQ(put_all(*tier, {TestPart(1, 0, kHuge)})[0], Status::kIoError);
  EXPECT_NE(tier->stats().last_error.find("before it was asked"), std::string::npos)
      << tier->stats().last_error;
}

// ---- slow, silent, gone ----

TEST(RedisFaults, ADripIsCutOffAtTheLimit) {
  FakeStore store;
  std::atomic<bool> drip = true;
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      const std::string a = store.answer(w);
      if (w[0] != "GET" || !drip) {
        if (!peer.send(a)) return;
        continue;
      }
      for (const char c : a) {
        if (!peer.send({&c, 1})) return;
        ::usleep(5000);
      }
    }
  });
  RedisOptions o = one_connection(server.url());
  o.op_timeout_s = 0.2;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  const TestPart part = small_part(1);
  ASSERT_EQ(put_all(*tier, {part})[0], Status::kOk);
  EXPECT_EQ(get_all(*tier, {part})[0], Status::kTimeout);
  drip = false;
  EXPECT_TRUE(eventually([&] { return get_all(*tier, {part})[0] == Status::kOk; }));
}

TEST(RedisFaults, AnItemsOwnDeadlineEndsTheItemAndNotTheConnection) {
  FakeStore store;
  std::atomic<int> connections = 0;
  std::atomic<bool> held = true;
  ScriptedServer server([&](Peer& peer) {
    ++connections;
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      const std::string a = store.answer(w);
      if (w[0] != "GET") {
        if (!peer.send(a)) return;
        continue;
      }
      if (!peer.send(a.substr(0, a.size() / 2))) return;
      while (held) ::usleep(1000);
      if (!peer.send(a.substr(a.size() / 2))) return;
    }
  });
  const Finally let_go{held, false};
  const auto tier = make_tier(one_connection(server.url()), domain());
  ASSERT_TRUE(up(*tier));
  const TestPart part = small_part(1);
  ASSERT_EQ(put_all(*tier, {part})[0], Status::kOk);
  // Half of the first has come when it ends, and its memory is gone when the rest comes.
  EXPECT_EQ(get_all(*tier, {part, part}, steady().now() + 0.1), std::vector(2, Status::kTimeout));
  EXPECT_EQ(probe_all(*tier, {small_part(9)}, steady().now() + 0.1), std::vector{Presence::kUnknown});
  held = false;
  EXPECT_EQ(get_all(*tier, {part})[0], Status::kOk);
  EXPECT_EQ(connections, 1);
  EXPECT_EQ(tier->stats().get_timeout, 2U);
}

TEST(RedisFaults, QueuedItemsEndAtTheirDeadlineOrWhenCancelled) {
  std::atomic<bool> release = false;
  ScriptedServer server([&](Peer& peer) {
    if (!peer.login()) return;
    while (!release) ::usleep(1000);
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      if (!peer.send("$-1\r\n")) return;
    }
  });
  const Finally let_go{release, true};
  RedisOptions o = one_connection(server.url());
  o.max_inflight_bytes = 1;  // one at a time
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  std::vector<std::byte> to(kSmall);
  const auto item = [&](std::uint64_t tag) {
    const TestPart p = small_part(tag);
    return GetItem{p.key, p.info, {MemoryKind::kHost, to.data(), to.size()}, tag};
  };
  Reports reports, late, cancelled;
  tier->get(Ticket{5}, {item(0)}, 0, reports.fn());
  ASSERT_TRUE(eventually([&] { return tier->stats().reads_in_flight == 1; }));
  tier->get(Ticket{6}, {item(0), item(1)}, 0, cancelled.fn());
  tier->cancel(Ticket{6});
  ASSERT_TRUE(cancelled.wait(2));
  tier->get(Ticket{7}, {item(0), item(1), item(2)}, steady().now() + 0.05, late.fn());
  ASSERT_TRUE(late.wait(3));
  EXPECT_EQ(late.count(Status::kTimeout), 3U);
  EXPECT_GE(cancelled.count(Status::kCancelled), 1U);
  release = true;
  ASSERT_TRUE(reports.wait(1));
  EXPECT_EQ(reports[0], Status::kMissing);
}

TEST(RedisFaults, ASilentServerIsDownAndAnswersAtOnce) {
  std::atomic<bool> talk = false;
  FakeStore store;
  ScriptedServer server([&](Peer& peer) {
    if (!talk) return peer.drain();
    store.serve(peer);
  });
  RedisOptions o = test_options(server.url());
  o.connect_timeout_s = 0.1;
  const auto tier = make_tier(o, domain());
  const TestPart part = small_part(1);
  EXPECT_EQ(get_all(*tier, {part})[0], Status::kUnavailable);  // queued while it tried to connect, or refused
  EXPECT_EQ(put_all(*tier, {part})[0], Status::kUnavailable);
  EXPECT_FALSE(tier->stats().up);
  std::vector<Presence> out(1);
  tier->find(std::vector{part.key}, out);
  EXPECT_EQ(out[0], Presence::kAbsent);
  EXPECT_NE(tier->stats().last_error.find("does not answer"), std::string::npos) << tier->stats().last_error;
  talk = true;
  ASSERT_TRUE(up(*tier));
  EXPECT_TRUE(eventually([&] { return put_all(*tier, {part})[0] == Status::kOk; }));
  EXPECT_EQ(get_all(*tier, {part})[0], Status::kOk);
}

TEST(RedisFaults, TheTierMayGoAtAnyMoment) {
  ScriptedServer server([&](Peer& peer) {
    if (!peer.login()) return;
    peer.drain();
  });
  for (int round = 0; round < 20; ++round) {
    Reports gets, puts;
    std::vector<TestPart> parts;
    std::vector<GetItem> get;
    std::vector<PutItem> put;
    for (std::uint64_t i = 0; i < 20; ++i) parts.push_back(small_part(i));
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Memory m{MemoryKind::kHost, parts[i].bytes.data(), kSmall};
      get.push_back({parts[i].key, parts[i].info, m, i});
      put.push_back({parts[i].key, parts[i].info, m, i});
    }
    std::atomic<int> probed = 0;
    {
      const auto tier = make_tier(test_options(server.url()), domain());
      if (round % 2 == 0) {
        ASSERT_TRUE(up(*tier));
      }
      tier->put(Ticket{1}, put, puts.fn());
      tier->get(Ticket{2}, get, 0, gets.fn());
      tier->probe({parts[0].key}, 0, [&](std::vector<Presence>) { ++probed; });
    }
    ASSERT_EQ(gets.count(Status::kUnavailable), 20U);
    ASSERT_EQ(puts.count(Status::kUnavailable), 20U);
    EXPECT_TRUE(gets.once() && puts.once());
    EXPECT_EQ(probed, 1);
  }
}

// ---- what a server may say ----

/// The status of a put or get that the server answers with this error; checks that the tier lives on.
Status said(const std::string& error, bool write, TierStats* stats) {
  FakeStore store;
  std::atomic<bool> on = true;
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      const bool now = on && w[0] == (write ? "SET" : "GET");
      if (!peer.send(now ? "-" + error + "\r\n" : store.answer(w))) return;
    }
  });
  RedisOptions o = one_connection(server.url());
  o.write_pause_s = 0.05;
  const auto tier = make_tier(o, domain());
  EXPECT_TRUE(up(*tier));
  const TestPart part = small_part(1);
  const Status s = write ? put_all(*tier, {part})[0] : get_all(*tier, {part})[0];
  *stats = tier->stats();
  on = false;
  EXPECT_TRUE(eventually([&] { return put_all(*tier, {part})[0] == Status::kOk; })) << error;
  EXPECT_EQ(get_all(*tier, {part})[0], Status::kOk) << error;
  return s;
}

TEST(RedisFaults, ErrorRepliesBecomeStatuses) {
  TierStats s;
  EXPECT_EQ(said("OOM command not allowed when used memory > 'maxmemory'.", true, &s), Status::kNoSpace);
  EXPECT_EQ(s.no_space, 1U);
  EXPECT_NE(s.last_error.find("OOM"), std::string::npos);
  EXPECT_EQ(said("READONLY You can't write against a read only replica.", true, &s), Status::kIoError);
  EXPECT_EQ(said("MISCONF Redis is configured to save RDB snapshots", true, &s), Status::kIoError);
  EXPECT_EQ(said("LOADING Redis is loading the dataset in memory", false, &s), Status::kUnavailable);
  EXPECT_EQ(said("NOAUTH Authentication required.", true, &s), Status::kUnavailable);
  EXPECT_EQ(said("MOVED 3999 127.0.0.1:6381", false, &s), Status::kIoError);
  EXPECT_NE(s.last_error.find("Redis Cluster"), std::string::npos);
  EXPECT_EQ(said("WRONGTYPE Operation against a key holding the wrong kind of value", false, &s),
            Status::kCorrupt);
  EXPECT_EQ(said("NOPERM this user has no permissions", false, &s), Status::kIoError);
  EXPECT_EQ(said("\x01\x02 strange", false, &s), Status::kIoError);
  EXPECT_EQ(s.last_error.find('\x01'), std::string::npos);
}

TEST(RedisFaults, AServerThatRefusesEverythingIsDown) {
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      if (!peer.send(w[0] == "PING" ? "+PONG\r\n" : "-NOPERM no\r\n")) return;
    }
  });
  RedisOptions o = one_connection(server.url());
  o.min_pause_s = o.max_pause_s = 1000;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  EXPECT_TRUE(eventually([&] { return get_all(*tier, {small_part(1)})[0] == Status::kUnavailable; }));
  EXPECT_FALSE(tier->stats().up);
}

TEST(RedisFaults, AFullServerIsLeftAloneForAWhile) {
  FakeStore store;
  std::atomic<int> writes = 0;
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      if (w[0] == "SET") ++writes;
      if (!peer.send(w[0] == "SET" ? "-OOM no room\r\n" : store.answer(w))) return;
    }
  });
  RedisOptions o = one_connection(server.url());
  o.write_pause_s = 1000;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  EXPECT_EQ(put_all(*tier, {small_part(1)})[0], Status::kNoSpace);
  for (std::uint64_t i = 2; i < 30; ++i) EXPECT_EQ(put_all(*tier, {small_part(i)})[0], Status::kNoSpace);
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(tier->stats().put_dropped, 28U);
  EXPECT_EQ(get_all(*tier, {small_part(1)})[0], Status::kMissing) << "reads go on";
}

TEST(RedisFaults, ALoginIsNeverRepeatedInAnError) {
  ScriptedServer server([&](Peer& peer) {
    for (Words w = peer.command(); !w.empty(); w = peer.command()) {
      if (!peer.send("-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n")) return;
    }
  });
  RedisOptions o = one_connection("redis://:hunter2@" + server.url().substr(8));
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(eventually([&] { return !tier->stats().last_error.empty(); }));
  EXPECT_EQ(tier->stats().last_error.find("hunter2"), std::string::npos) << tier->stats().last_error;
  EXPECT_EQ(tier->name().find("hunter2"), std::string::npos);
}

TEST(RedisFaults, WritesBeyondTheBudgetAreRefused) {
  ScriptedServer server([&](Peer& peer) {
    if (!peer.login()) return;
    peer.drain();
  });
  RedisOptions o = one_connection(server.url());
  o.max_inflight_bytes = 3 * kSmall;
  Reports reports;
  {
    const auto tier = make_tier(o, domain());
    ASSERT_TRUE(up(*tier));
    std::vector<TestPart> parts;
    for (std::uint64_t i = 0; i < 10; ++i) parts.push_back(small_part(i));
    std::vector<PutItem> items;
    for (std::uint64_t i = 0; i < 10; ++i) {
      items.push_back({parts[i].key, parts[i].info, {MemoryKind::kHost, parts[i].bytes.data(), kSmall}, i});
    }
    tier->put(Ticket{1}, items, reports.fn());
    ASSERT_TRUE(reports.wait(7));
    EXPECT_EQ(reports.count(Status::kNoSpace), 7U);
    EXPECT_FALSE(tier->flush(steady().now() + 0.01));
    Reports device;
    tier->get(Ticket{2},
              {{parts[0].key, parts[0].info, {MemoryKind::kDevice, parts[0].bytes.data(), kSmall}, 0}}, 0,
              device.fn());
    ASSERT_TRUE(device.wait(1));
    EXPECT_EQ(device[0], Status::kIoError);
  }
  ASSERT_TRUE(reports.wait(10));
  EXPECT_TRUE(reports.once());
}

}  // namespace
}  // namespace barg::store::redis_fault_test
