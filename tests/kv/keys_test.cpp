// Keys are injective in (runner root, salt, tokens, spans), and depend on nothing else.
#include "kv/keys.h"

#include <gtest/gtest.h>

#include <map>

#include "base/env.h"

namespace barg::kv::keys_test {
namespace {

struct Content {
  std::string root, salt;
  std::vector<TokenId> tokens;
  std::vector<PromptSpan> spans;
};

/// A readable form that two contents share only if they are equal where a key of `blocks` blocks can see
/// them.
std::string canonical(const Content& c, std::int32_t blocks, std::int32_t b) {
  std::string out =
      std::to_string(c.root.size()) + ":" + c.root + "|" + std::to_string(c.salt.size()) + ":" + c.salt;
  for (std::int32_t i = 0; i < blocks * b; ++i)
    out += "," + std::to_string(c.tokens[static_cast<std::size_t>(i)]);
  for (const auto& s : c.spans) {
    if (s.offset >= blocks * b) continue;
    out += ";" + std::to_string(s.offset) + "+" + std::to_string(s.length) + "=" +
           std::to_string(s.digest.size()) + ":" + s.digest;
  }
  return out;
}

Digest chain(const Content& c, std::int32_t blocks, std::int32_t b, std::size_t split) {
  const std::span<const TokenId> all(c.tokens);
  const TokenView log{all.first(split), all.subspan(split), c.spans};
  Digest d = root_key(c.root, c.salt);
  for (std::int32_t i = 0; i < blocks; ++i) d = block_key(d, log, i, b);
  return d;
}

TEST(Keys, AreInjectiveUnderFuzzedFields) {
  Rng rng(1);
  std::map<std::string, Digest> by_content;
  std::map<Digest, std::string> by_key;
  const auto text = [&rng] {
    std::string s;
    for (auto n = rng.below(4); n > 0; --n) s += "ab\0\1"[rng.below(4)];
    return s;
  };
  for (int round = 0; round < 20000; ++round) {
    Content c{text(), text(), {}, {}};
    const auto b = static_cast<std::int32_t>(1 + rng.below(3));
    const auto blocks = static_cast<std::int32_t>(rng.below(4));
    for (std::int32_t i = 0; i < blocks * b + 2; ++i)
      c.tokens.push_back(static_cast<TokenId>(rng.below(3)) - 1);
    if (blocks > 0 && rng.below(2) == 0) {
      c.spans.push_back(
          {static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(blocks * b))), 1, text(), nullptr});
    }
    const std::string canon = std::to_string(b) + "/" + std::to_string(blocks) + canonical(c, blocks, b);
    const Digest key = chain(c, blocks, b, rng.below(c.tokens.size() + 1));
    // How tokens split into prompt and outputs is invisible.
    const auto [content_it, first_seen] = by_content.emplace(canon, key);
    EXPECT_TRUE(first_seen || content_it->second == key) << canon;
    const auto [key_it, fresh] = by_key.emplace(key, canon);
    // Different block sizes are different runners; within one, equal keys mean equal contents.
    EXPECT_TRUE(fresh || blocks == 0 || key_it->second == canon) << canon;
    if (HasFailure()) return;
  }
}

TEST(Keys, RootAndSaltAreNotJustConcatenated) {
  EXPECT_NE(root_key("ab", "c"), root_key("a", "bc"));
  EXPECT_NE(root_key("abc", ""), root_key("", "abc"));
}

TEST(Keys, ABlockKeyIsAFixedFunction) {
  // A change here invalidates every stored block of every tier: it must be deliberate.
  const std::vector<TokenId> tokens{1, 2, 3, 4};
  const Digest d = block_key(root_key("runner", "salt"), {tokens, {}, {}}, 0, 4);
  Sha256 root, block;
  root.update(std::string("\x01\x06\0\0\0\0\0\0\0runner\x02\x04\0\0\0\0\0\0\0salt", 28));
  const Digest r = root.finish();
  block.update(std::string("\x03\x20\0\0\0\0\0\0\0", 9)).update(r.data(), r.size());
  block.update(std::string("\x04\x10\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0", 25));
  EXPECT_EQ(hex(d), hex(block.finish()));
}

TEST(Keys, AMessageIsTheSameHoweverItsFieldsFillTheEncoder) {
  Rng rng(3);
  const auto little = [](std::uint64_t v, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i));
    return out;
  };
  for (std::size_t size = 0; size < 700; ++size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(rng.next());
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < size % 200; ++i) tokens.push_back(static_cast<TokenId>(rng.below(1 << 20)));
    const std::span<const TokenId> all(tokens);
    const std::size_t cut = rng.below(all.size() + 1);
    const std::vector<std::int64_t> numbers(size % 50, -7);
    std::string message = "\x02" + little(size, 8) + text + "\x04" + little(4 * tokens.size(), 8);
    for (const TokenId t : tokens) message += little(static_cast<std::uint32_t>(t), 4);
    message += "\x05" + little(8 * numbers.size(), 8);
    for (const std::int64_t n : numbers) message += little(static_cast<std::uint64_t>(n), 8);
    message += "\x06" + little(size / 2, 8) + text.substr(0, size / 2);

    using Field = KeyEncoder::Field;
    const Digest got = KeyEncoder()
                           .bytes(Field::kSalt, text)
                           .tokens(all.first(cut), all.subspan(cut))
                           .numbers(Field::kSpanPlace, numbers)
                           .bytes(Field::kSpanDigest, std::string_view(text).substr(0, size / 2))
                           .finish();
    ASSERT_EQ(hex(got), hex(sha256(message.data(), message.size()))) << size;
  }
}

}  // namespace
}  // namespace barg::kv::keys_test
