// The Redis tier with Debian's redis-server, started by each test in a directory of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "store/redis_support.h"
#include "store/stack.h"

namespace barg::store::redis_live_test {
namespace {

using namespace barg;
using namespace barg::test;

constexpr std::uint64_t kSmall = 5000, kBlock = 368640, kLarge = 3'000'001;

Domain domain() { return test_domain({kSmall, kBlock, kLarge}); }

std::vector<TestPart> some_parts(std::uint64_t first, std::uint64_t count) {
  std::vector<TestPart> out;
  const std::uint64_t lengths[] = {kSmall, kBlock, kLarge};
  for (std::uint64_t i = first; i < first + count; ++i) {
    const std::uint32_t part = i % 8 == 7 ? 2 : i % 2;
    out.emplace_back(i, part, lengths[part]);
  }
  return out;
}

class RedisLive : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have("redis-server")) GTEST_SKIP() << "skipped: no redis-server";
  }
};

std::size_t count(const std::vector<Status>& v, Status s) {
  return static_cast<std::size_t>(std::count(v.begin(), v.end(), s));
}

TEST_F(RedisLive, TwoTiersShareBatches) {
  RealRedis server;
  const auto a = make_tier(test_options(server.url() + "?db=3"), domain());
  const auto b = make_tier(test_options(server.url() + "?db=3"), domain());
  const auto other =
      make_tier(test_options(server.url() + "?db=3"), test_domain({kSmall, kBlock, kLarge}, 9));
  ASSERT_TRUE(up(*a) && up(*b) && up(*other));
  const auto parts = some_parts(0, 48);
  EXPECT_EQ(count(get_all(*b, parts), Status::kMissing), 48U);
  std::vector<Presence> found(48);
  std::vector<Key> keys;
  for (const auto& p : parts) keys.push_back(p.key);
  b->find(keys, found);
  EXPECT_EQ(found, std::vector(48, Presence::kAbsent)) << "seen to be absent just now";

  EXPECT_EQ(count(put_all(*a, parts), Status::kOk), 48U);
  EXPECT_TRUE(a->flush(steady().now() + 10));
  a->find(keys, found);
  EXPECT_EQ(found, std::vector(48, Presence::kPresent));
  EXPECT_EQ(count(get_all(*b, parts), Status::kOk), 48U);
  EXPECT_EQ(count(put_all(*b, parts), Status::kOk), 48U);
  EXPECT_EQ(b->stats().bytes_written, 0U) << "what is there is not sent again";
  EXPECT_EQ(count(get_all(*other, parts), Status::kMissing), 48U) << "another domain sees nothing";

  b->erase(keys);  // b did not write them
  a->erase(std::vector<Key>{keys[0], keys[7]});
  EXPECT_TRUE(eventually([&] { return get_all(*b, {parts[7]})[0] == Status::kMissing; }));
  EXPECT_TRUE(eventually([&] { return get_all(*b, {parts[0]})[0] == Status::kMissing; }));
  EXPECT_EQ(count(get_all(*b, parts), Status::kOk), 46U);
  EXPECT_EQ(a->stats().verify_failed + b->stats().verify_failed + other->stats().verify_failed, 0U);
}

TEST_F(RedisLive, ProbeAsksOnlyWhatIsUnknown) {
  RealRedis server;
  const auto a = make_tier(test_options(server.url()), domain());
  const auto b = make_tier(test_options(server.url()), domain());
  ASSERT_TRUE(up(*a) && up(*b));
  std::vector<TestPart> parts;
  for (std::uint64_t i = 0; i < 1500; ++i) parts.emplace_back(i, 0, kSmall);
  std::vector<TestPart> stored;
  for (std::uint64_t i = 0; i < 1500; i += 3) stored.push_back(parts[i]);
  ASSERT_EQ(count(put_all(*a, stored), Status::kOk), stored.size());
  for (int round = 0; round < 2; ++round) {
    const auto p = probe_all(*b, parts);
    ASSERT_EQ(p.size(), parts.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      ASSERT_EQ(p[i], i % 3 == 0 ? Presence::kPresent : Presence::kAbsent) << i;
    }
  }
  // The second round came from memory.
  EXPECT_NE(server.command("INFO commandstats").find("cmdstat_exists:calls=2000,"), std::string::npos);
}

TEST_F(RedisLive, ALoginThatLacks) {
  RealRedis server({"--requirepass", "se:cr@t"});
  RedisOptions o = test_options(server.url());
  o.min_pause_s = o.max_pause_s = 1000;
  const auto tier = make_tier(o, domain());
  EXPECT_TRUE(eventually([&] { return tier->stats().last_error.find("NOAUTH") != std::string::npos; }));
  EXPECT_EQ(get_all(*tier, some_parts(0, 1))[0], Status::kUnavailable);
}

/// Also on a TCP port that was free just now.
std::unique_ptr<RealRedis> on_tcp(std::vector<std::string> options, const std::string& flag, int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  ::close(fd);
  options.insert(options.end(), {"--bind", "127.0.0.1", flag, std::to_string(port)});
  return std::make_unique<RealRedis>(std::move(options));
}

TEST_F(RedisLive, LoginsOverTcpByName) {
  int port = 0;
  const auto server = on_tcp(
      {"--requirepass", "se:cr@t", "--user", "kv", "on", ">word", "~barg:*", "+get", "+set", "+exists"},
      "--port", port);
  const auto parts = some_parts(0, 8);
  const std::string host = "localhost:" + std::to_string(port);
  const auto right = make_tier(test_options("redis://:se%3Acr%40t@" + host + "/1"), domain());
  ASSERT_TRUE(up(*right));
  EXPECT_EQ(count(put_all(*right, parts), Status::kOk), 8U);
  EXPECT_EQ(count(get_all(*right, parts), Status::kOk), 8U);

  // A user who may do no more than what is needed: not even PING.
  const auto user = make_tier(test_options("redis://kv:word@" + host), domain());
  ASSERT_TRUE(up(*user)) << user->stats().last_error;
  EXPECT_EQ(count(put_all(*user, parts), Status::kOk), 8U);
  EXPECT_EQ(count(get_all(*user, parts), Status::kOk), 8U);

  RedisOptions o = test_options("redis://:wrong@" + host);
  o.min_pause_s = o.max_pause_s = 1000;
  const auto wrong = make_tier(o, domain());
  EXPECT_TRUE(eventually([&] { return wrong->stats().last_error.find("WRONGPASS") != std::string::npos; }))
      << wrong->stats().last_error;
  EXPECT_EQ(get_all(*wrong, parts), std::vector(8, Status::kUnavailable));
  EXPECT_FALSE(wrong->stats().up);
}

TEST_F(RedisLive, AStoppedServerTimesOutAndComesBack) {
  RealRedis server;
  RedisOptions o = test_options(server.url());
  o.op_timeout_s = 0.3;
  o.connect_timeout_s = 0.3;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  const auto parts = some_parts(0, 16);
  ASSERT_EQ(count(put_all(*tier, parts), Status::kOk), 16U);
  server.pause();
  const auto stopped = get_all(*tier, parts);
  EXPECT_EQ(count(stopped, Status::kOk), 0U);
  EXPECT_GE(count(stopped, Status::kTimeout), 1U);
  EXPECT_TRUE(eventually([&] { return !tier->stats().up; }));
  EXPECT_EQ(get_all(*tier, parts), std::vector(16, Status::kUnavailable));
  EXPECT_EQ(put_all(*tier, parts), std::vector(16, Status::kUnavailable));
  server.resume();
  EXPECT_TRUE(eventually([&] { return count(get_all(*tier, parts), Status::kOk) == 16; }));
}

TEST_F(RedisLive, KilledAbsentAndRestarted) {
  RealRedis server;
  server.stop();
  const auto tier = make_tier(test_options(server.url()), domain());
  const auto parts = some_parts(0, 16);
  EXPECT_EQ(get_all(*tier, parts), std::vector(16, Status::kUnavailable)) << "not there at the start";
  server.start();
  ASSERT_TRUE(up(*tier));
  EXPECT_EQ(count(put_all(*tier, parts), Status::kOk), 16U);

  std::atomic<bool> go_on = true;
  std::jthread reader([&] {
    while (go_on) get_all(*tier, parts);  // checks bytes and that each is reported once
  });
  for (int round = 0; round < 3; ++round) {
    server.stop();
    EXPECT_TRUE(eventually([&] { return !tier->stats().up; }));
    server.start();
    EXPECT_TRUE(up(*tier));
    EXPECT_TRUE(eventually([&] { return count(put_all(*tier, parts), Status::kOk) == 16; }));
    EXPECT_TRUE(eventually([&] { return count(get_all(*tier, parts), Status::kOk) == 16; }));
  }
  go_on = false;
  reader.join();
  EXPECT_EQ(tier->stats().verify_failed, 0U);
}

TEST_F(RedisLive, AServerWithoutMemory) {
  RealRedis server({"--maxmemory", "4mb", "--maxmemory-policy", "noeviction"});
  RedisOptions o = test_options(server.url());
  o.write_pause_s = 0.01;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  const auto parts = some_parts(0, 32);
  const auto written = put_all(*tier, parts);
  EXPECT_GE(count(written, Status::kOk), 1U);
  EXPECT_GE(count(written, Status::kNoSpace), 1U);
  EXPECT_EQ(count(written, Status::kOk) + count(written, Status::kNoSpace), 32U);
  const auto read = get_all(*tier, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(read[i], written[i] == Status::kOk ? Status::kOk : Status::kMissing) << i;
  }
  server.command("FLUSHALL");
  EXPECT_TRUE(eventually([&] { return put_all(*tier, {parts[1]})[0] == Status::kOk; }));
}

TEST_F(RedisLive, AServerThatEvictsOrIsEmptied) {
  RealRedis server({"--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru"});
  const auto tier = make_tier(test_options(server.url()), domain());
  ASSERT_TRUE(up(*tier));
  const auto parts = some_parts(0, 64);
  std::atomic<bool> go_on = true;
  std::jthread flusher([&] {
    while (go_on) {
      server.command("FLUSHALL");
      ::usleep(2000);
    }
  });
  for (int round = 0; round < 10; ++round) {
    for (const Status s : put_all(*tier, parts)) EXPECT_TRUE(s == Status::kOk || s == Status::kNoSpace);
    for (const Status s : get_all(*tier, parts)) EXPECT_TRUE(s == Status::kOk || s == Status::kMissing);
  }
  go_on = false;
  flusher.join();
  EXPECT_EQ(tier->stats().verify_failed, 0U);
  EXPECT_TRUE(tier->stats().up);
}

TEST_F(RedisLive, AStackWritesAgainWhatAnEmptiedServerLost) {
  RealRedis server;
  RedisOptions o = test_options(server.url());
  o.present_ttl_s = 0.01;  // soon the server is asked, not what was seen of it
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(make_tier(o, domain()));
  ASSERT_TRUE(up(*tiers[0]));
  TierStack stack(domain(), std::move(tiers), StackOptions{}, steady());
  const TestPart part(1, 0, kSmall);
  const auto save = [&] {
    const SaveItem item{.key = part.key, .info = part.info, .why = SaveWhy::kSecondUse};
    return stack.wants(item) &&
           stack.save(item, [&](Memory to) {
             std::copy(part.bytes.begin(), part.bytes.end(), to.address);
             return true;
           });
  };
  const auto where = [&] {
    std::atomic<int> kind = -1;
    stack.probe({part.key}, 0, [&](const std::vector<std::uint8_t>& kinds) { kind = kinds[0]; });
    EXPECT_TRUE(eventually([&] { return kind >= 0; }));
    return kind.load();
  };
  EXPECT_TRUE(save());
  EXPECT_TRUE(stack.flush(steady().now() + 10));
  EXPECT_EQ(where(), static_cast<int>(TierKind::kRemote));
  EXPECT_FALSE(save()) << "it is there";
  server.command("FLUSHALL");
  EXPECT_TRUE(eventually([&] { return where() == static_cast<int>(kNumTierKinds); }));
  EXPECT_TRUE(eventually([&] { return save(); })) << "computed again, and used again";
  EXPECT_TRUE(stack.flush(steady().now() + 10));
  EXPECT_TRUE(server.command("DBSIZE").starts_with(":1"));
  EXPECT_EQ(where(), static_cast<int>(TierKind::kRemote));
}

TEST_F(RedisLive, PartsExpireUnlessUsed) {
  RealRedis server;
  RedisOptions o = test_options(server.url());
  o.ttl_s = 1000;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier));
  const std::vector<TestPart> parts = {TestPart(1, 0, kSmall), TestPart(2, 2, kLarge)};
  ASSERT_EQ(count(put_all(*tier, parts), Status::kOk), 2U);
  std::vector<std::string> names = {record_name(domain().root, parts[0].key),
                                    record_name(domain().root, parts[1].key)};
  names.push_back(piece_name(names[1], 0));
  const auto ttl = [&](const std::string& name) {
    return std::stoi(server.command("TTL " + name).substr(1));
  };
  for (const auto& n : names) {
    EXPECT_GT(ttl(n), 900);
    server.command("EXPIRE " + n + " 100");
  }
  tier->touch(std::vector<Key>{parts[0].key, parts[1].key});
  for (const auto& n : names) EXPECT_TRUE(eventually([&] { return ttl(n) > 900; })) << n;
  for (const auto& n : names) server.command("EXPIRE " + n + " 100");
  EXPECT_EQ(count(put_all(*tier, parts), Status::kOk), 2U);
  for (const auto& n : names) EXPECT_TRUE(eventually([&] { return ttl(n) > 900; })) << n;
}

TEST_F(RedisLive, Tls) {
  if (!have("openssl")) GTEST_SKIP() << "skipped: no openssl";
  TempDir dir;
  const std::string key = dir.path() + "/key.pem", cert = dir.path() + "/cert.pem",
                    other = dir.path() + "/other.pem";
  for (const std::string& out : {cert, other}) {
    ASSERT_TRUE(run_program({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
                             out == cert ? key : dir.path() + "/unused.pem", "-out", out, "-days", "2",
                             "-subj", "/CN=barg test", "-addext", "subjectAltName=DNS:localhost"}));
  }
  int port = 0;
  const auto server = on_tcp({"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
                              "--tls-auth-clients", "optional"},
                             "--tls-port", port);
  const std::string at = ":" + std::to_string(port);
  RedisOptions o = test_options("rediss://localhost" + at);
  o.ca_file = cert;
  o.cert_file = cert;
  o.key_file = key;
  const auto tier = make_tier(o, domain());
  ASSERT_TRUE(up(*tier)) << tier->stats().last_error;
  const auto parts = some_parts(0, 24);
  EXPECT_EQ(count(put_all(*tier, parts), Status::kOk), 24U);
  EXPECT_EQ(count(get_all(*tier, parts), Status::kOk), 24U);
  EXPECT_EQ(tier->name(), "rediss:localhost" + at);

  o.min_pause_s = o.max_pause_s = 1000;
  const auto refused = [&](const std::string& url, const std::string& ca, const std::string& why) {
    o.url = url;
    o.ca_file = ca;
    const auto t = make_tier(o, domain());
    EXPECT_TRUE(eventually([&] { return !t->stats().last_error.empty(); })) << url;
    EXPECT_NE(t->stats().last_error.find(why), std::string::npos) << url << ": " << t->stats().last_error;
    EXPECT_FALSE(t->stats().up);
  };
  refused("rediss://localhost" + at, other, "certificate");  // signed by somebody else
  refused("rediss://localhost" + at, "", "certificate");     // unknown to the system
  refused("rediss://127.0.0.1" + at, cert, "IP address");    // not its name
  o.tls_verify = false;
  o.url = "rediss://127.0.0.1" + at;
  o.ca_file.clear();
  const auto trusting = make_tier(o, domain());
  ASSERT_TRUE(up(*trusting)) << trusting->stats().last_error;
  EXPECT_EQ(count(get_all(*trusting, parts), Status::kOk), 24U);

  o.ca_file = dir.path() + "/absent.pem";
  const auto bad = make_redis_tier(o, domain());
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("absent.pem"), std::string::npos);
}

TEST(RedisOptionsTest, Refusals) {
  const auto refuses = [](const std::function<void(RedisOptions&)>& change) {
    RedisOptions o = test_options("redis://127.0.0.1:1");
    change(o);
    return !make_redis_tier(o, domain());
  };
  EXPECT_TRUE(refuses([](auto& o) { o.url = "127.0.0.1"; }));
  EXPECT_TRUE(refuses([](auto& o) { o.connections = 0; }));
  EXPECT_TRUE(refuses([](auto& o) { o.threads = 0; }));
  EXPECT_TRUE(refuses([](auto& o) { o.op_timeout_s = 0; }));
  EXPECT_TRUE(refuses([](auto& o) { o.ttl_s = 0.5; }));
  EXPECT_TRUE(refuses([](auto& o) { o.ca_file = "/x"; }));
  EXPECT_TRUE(refuses([](auto& o) { o.max_inflight_bytes = 0; }));
  EXPECT_FALSE(make_redis_tier(test_options("redis://127.0.0.1:1"), test_domain({0})));
  EXPECT_FALSE(refuses([](auto&) {})) << "an absent server is no error";
}

TEST(RedisOptionsTest, ANameThatDoesNotResolveDoesNotHoldUpTheEnd) {
  RedisOptions o = test_options("redis://no-such-host.invalid:1");
  o.connect_timeout_s = 0.05;
  const auto tier = make_tier(o, domain());
  EXPECT_EQ(get_all(*tier, {TestPart(1, 0, kSmall)})[0], Status::kUnavailable);
}

}  // namespace
}  // namespace barg::store::redis_live_test
