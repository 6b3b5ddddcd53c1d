// The pieces of the Redis tier that need no server: addresses, records, the memory of keys.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "store/crc32c.h"
#include "store/redis_commands.h"
#include "store/redis_op.h"
#include "store/redis_presence.h"
#include "store/redis_record.h"
#include "store/redis_url.h"

namespace barg::store::redis_parts_test {
namespace {

using namespace barg;
using namespace barg::store;

TEST(RedisUrl, Forms) {
  const auto a = parse_redis_url("redis://example.org");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->host, "example.org");
  EXPECT_EQ(a->port, 6379);
  EXPECT_FALSE(a->tls);
  EXPECT_EQ(a->name(), "redis:example.org:6379");
  EXPECT_FALSE(a->local());

  const auto b = parse_redis_url("rediss://me:p%40ss%2F@[::1]:7000/3");
  ASSERT_TRUE(b);
  EXPECT_TRUE(b->tls);
  EXPECT_EQ(b->user, "me");
  EXPECT_EQ(b->password, "p@ss/");
  EXPECT_EQ(b->host, "::1");
  EXPECT_EQ(b->port, 7000);
  EXPECT_EQ(b->db, 3);
  EXPECT_EQ(b->name(), "rediss:[::1]:7000");
  EXPECT_TRUE(b->local());

  const auto c = parse_redis_url("redis://:secret@127.0.0.1:1/");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->password, "secret");
  EXPECT_TRUE(c->user.empty());

  const auto d = parse_redis_url("unix:///run/redis.sock?db=2");
  ASSERT_TRUE(d);
  EXPECT_EQ(d->socket_path, "/run/redis.sock");
  EXPECT_EQ(d->db, 2);
  EXPECT_EQ(d->name(), "redis:/run/redis.sock");
}

TEST(RedisUrl, RefusesAndKeepsSecrets) {
  for (const char* text : {"",
                           "http://x",
                           "redis://",
                           "redis://:hunter2@",
                           "redis://hunter2@host",
                           "redis://u:@h",
                           "redis://h:0",
                           "redis://h:65536",
                           "redis://h:",
                           "redis://h:1x",
                           "redis://h/x",
                           "redis://h/-1",
                           "redis://[::1",
                           "redis://[::1]x",
                           "redis://u:%zz@h",
                           "redis://u:%00hunter2@h",
                           "redis://u:%4@h",
                           "redis://h h",
                           "unix://relative",
                           "unix:///a?db=x",
                           "unix:///a?x=1"}) {
    const auto r = parse_redis_url(text);
    ASSERT_FALSE(r) << text;
    EXPECT_EQ(r.error().message.find("hunter2"), std::string::npos);
  }
  EXPECT_FALSE(parse_redis_url("unix:///" + std::string(200, 'x')));
}

TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c("6789", 4, crc32c("12345", 5)), 0xE3069283U);
  EXPECT_EQ(crc32c("", 0), 0U);
}

RecordFacts some_facts() {
  RecordFacts f;
  f.root.fill(1);
  f.key.block.fill(2);
  f.key.part = 3;
  f.info.parent.fill(4);
  f.info.depth = 5;
  f.info.fingerprint = 6;
  f.length = 7;
  return f;
}

TEST(RedisRecord, EveryFactAndEveryBitCounts) {
  const std::string text = "payload";
  const auto payload = std::as_bytes(std::span(text));
  const RecordFacts facts = some_facts();
  const RecordHeader header = make_header(facts, payload);
  EXPECT_TRUE(fits(header, facts, payload));
  for (std::size_t bit = 0; bit < header.size() * 8; ++bit) {
    RecordHeader other = header;
    other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(fits(other, facts, payload)) << bit;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    EXPECT_FALSE(fits(header, facts, std::as_bytes(std::span(other)))) << i;
  }
  EXPECT_FALSE(fits(header, facts, payload.first(6)));
  std::vector<RecordFacts> others(9, facts);
  others[0].root[31] ^= 1;
  others[1].key.block[0] ^= 1;
  others[2].key.part = 0;
  others[3].info.parent[5] ^= 1;
  others[4].info.depth = 6;
  others[5].info.fingerprint = 7;
  others[6].length = 8;
  others[7].kind = RecordKind::kPiece;
  others[8].pieces = 2;
  for (const RecordFacts& o : others) EXPECT_FALSE(fits(header, o, payload));
}

TEST(RedisRecord, PartsAreCutEvenlyAndWhole) {
  for (const std::uint64_t length :
       {std::uint64_t{1}, kMaxPayload - 1, kMaxPayload, kMaxPayload + 1, 2 * kMaxPayload, 2 * kMaxPayload + 1,
        7 * kMaxPayload - 63, kMaxPartBytes}) {
    const Cut cut = cut_part(length);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < cut.pieces; ++i) {
      EXPECT_EQ(cut.begin(i), sum);
      EXPECT_GT(cut.size(i), 0U);
      EXPECT_LE(cut.size(i) + kValueHeaderBytes, 1U << 20);
      sum += cut.size(i);
    }
    EXPECT_EQ(sum, length);
    EXPECT_LE(cut.pieces, kMaxPieces);
  }
  EXPECT_EQ(cut_part(kMaxPayload).pieces, 1U);
  EXPECT_EQ(cut_part(kMaxPayload + 1).pieces, 2U);
}

TEST(RedisRecord, NamesShowTheDomain) {
  const RecordFacts f = some_facts();
  std::string block;
  for (int i = 0; i < 32; ++i) block += "02";
  EXPECT_EQ(record_name(f.root, f.key), "barg:1:010101010101:" + block + ".3");
  EXPECT_EQ(piece_name("x", 4), "x/4");
}

TEST(RedisCommands, Bytes) {
  EXPECT_EQ(resp_command({"GET", "a b"}), "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
  const SetCommand s = resp_set("k", 10, 60);
  EXPECT_EQ(s.head + "0123456789" + s.tail,
            "*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\n$2\r\nEX\r\n$2\r\n60\r\n");
  const SetCommand t = resp_set("k", 1, 0);
  EXPECT_EQ(t.head + "0" + t.tail, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n0\r\n");
}

TEST(ValueSink, FillsBothRangesInAnyPieces) {
  const std::string text = "headerpayload";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    std::array<std::byte, 6> a{};
    std::array<std::byte, 7> b{};
    ValueSink sink(a, b);
    for (std::size_t at = 0; at < text.size(); at += step) sink.take(std::string_view(text).substr(at, step));
    EXPECT_EQ(sink.left(), 0U);
    EXPECT_EQ(std::memcmp(a.data(), "header", 6), 0);
    EXPECT_EQ(std::memcmp(b.data(), "payload", 7), 0);
  }
}

TEST(KeyMemory, IsBoundedAndForgetsTheOldest) {
  KeyMemory memory(100);
  const auto key = [](std::uint32_t i) {
    Key k;
    std::memcpy(k.block.data(), &i, sizeof i);
    return k;
  };
  for (std::uint32_t i = 0; i < 1000; ++i) {
    memory.put(key(i), i);
    EXPECT_LE(memory.size(), 102U);
    EXPECT_EQ(memory.seen(key(i)), i);
  }
  EXPECT_FALSE(memory.seen(key(0)));
  EXPECT_TRUE(memory.seen(key(960)));
  memory.put(key(960), 5);
  EXPECT_EQ(memory.seen(key(960)), 5);
  memory.erase(key(960));
  EXPECT_FALSE(memory.seen(key(960)));
}

}  // namespace
}  // namespace barg::store::redis_parts_test
