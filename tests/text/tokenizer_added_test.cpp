// AddedTokens: ids against Hugging Face tokenizers on random sets of literals (tests/data/tokenizers/make_added.py), and
// the work it takes, which is counted.
#include "text/tokenizer_added.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/tokenizer_data.h"

namespace barg::text::tokenizer_added_test {
namespace {

using test::ids_of;

TokenId id_of_literal(const std::string& content, TokenId& next) {
  for (int b = 0; b < 256; ++b) {
    if (content == printable_of_byte(static_cast<unsigned char>(b))) return b;
  }
  return next++;
}

// The tokenizer.json that make_added.py wrote the line for.
std::string file_of(const Json& line) {
  Json vocab = Json::object(), added = Json::array();
  for (int b = 0; b < 256; ++b) vocab.set(printable_of_byte(static_cast<unsigned char>(b)), b);
  TokenId next = 256;
  for (const Json& a : line.find("added")->as_array()) {
    const std::string &content = a.as_array()[0].as_string(), &flags = a.as_array()[1].as_string();
    Json token = Json::object({{"id", id_of_literal(content, next)}, {"content", content}});
    for (const auto& [letter, name] : {std::pair('w', "single_word"), {'l', "lstrip"}, {'r', "rstrip"}, {'n', "normalized"}, {'s', "special"}}) {
      token.set(name, flags.find(letter) != flags.npos);
    }
    added.push(token);
  }
  Json model = Json::object({{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}});
  return dump_json(Json::object({{"added_tokens", added},
                                 {"normalizer", *line.find("normalizer")},
                                 {"pre_tokenizer", Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}})},
                                 {"decoder", Json::object({{"type", "ByteLevel"}})},
                                 {"model", model}}));
}

TEST(AddedTokens, RandomSetsAsInTokenizers) {
  int rows = 0;
  for (const Json& line : test::parse_lines(test::read_data("tokenizers/added.jsonl").value_or(""))) {
    VocabData v;
    v.tokenizer_json = file_of(line);
    const auto t = make_tokenizer(v);
    ASSERT_TRUE(t) << t.error().message;
    for (const Json& row : line.find("rows")->as_array()) {
      const std::string& s = row.as_array()[0].as_string();
      const auto ids = ids_of(row.as_array()[1]);
      ASSERT_EQ((*t)->encode(s, {.add_special_tokens = false}), ids) << s << "\n" << dump_json(*line.find("added"));
      EXPECT_EQ((*t)->encode(s, {.add_special_tokens = false, .parse_special_tokens = false}), ids_of(row.as_array()[2])) << s;
      EXPECT_EQ((*t)->encode_marked({{s, true}}), ids) << s;
      ++rows;
    }
  }
  EXPECT_GE(rows, 900);
}

std::string times(std::string_view s, std::size_t n) {
  std::string out;
  while (n-- > 0) out += s;
  return out;
}

struct Found {
  std::size_t literals = 0;
  std::size_t work = 0;
};

Found find(const std::vector<AddedToken>& tokens, std::string_view text, const SpecialRule& rule = {}) {
  Found out;
  std::vector<Segment> segments;
  AddedTokens(tokens).find(text, rule, segments, &out.work);
  for (const Segment& s : segments) out.literals += s.id != kNoToken;
  return out;
}

// Each of them took time by the square of the text, or by the text times the longest literal.
TEST(AddedTokens, WorkIsLinearInTheText) {
  constexpr std::size_t kN = 20'000, kPerByte = 4;
  const std::string spaces(kN, ' '), letters(kN, 'a'), wide = times("\u3000", kN / 3);
  const auto one = [](std::string content, bool lstrip, bool rstrip) {
    return std::vector<AddedToken>{{.id = 1, .content = std::move(content), .lstrip = lstrip, .rstrip = rstrip}};
  };
  for (const std::string_view text : {std::string_view(spaces), std::string_view(wide)}) {
    const std::string space(text.substr(0, text[0] == ' ' ? 1 : 3));
    for (const bool lstrip : {false, true}) {
      const Found f = find(one(space, lstrip, !lstrip), text);
      EXPECT_EQ(f.literals, text.size() / space.size());
      EXPECT_LE(f.work, kPerByte * text.size());
    }
  }
  const std::string gaps = times("x" + std::string(999, ' '), 200);
  EXPECT_EQ(find(one("x", true, true), gaps).literals, 200u);
  EXPECT_LE(find(one("x", true, true), gaps).work, kPerByte * gaps.size());
  // Almost there at every byte, and never.
  EXPECT_LE(find(one(std::string(4000, 'a') + "b", false, false), letters).work, kPerByte * kN);
  EXPECT_LE(find(one("b" + std::string(4000, 'a'), false, false), letters).work, kPerByte * kN);
  auto two = one(std::string(4000, 'a') + "b", false, false);
  two.push_back({.id = 2, .content = "a"});
  EXPECT_EQ(find(two, letters).literals, kN);
  EXPECT_LE(find(two, letters).work, kPerByte * kN);
  // One inside the other, four thousand times, and hardly any of them may be seen.
  std::vector<AddedToken> nested;
  for (std::size_t n = 1; n <= 2000; ++n) {
    nested.push_back({.id = static_cast<TokenId>(n), .content = std::string(n, 'a'), .special = n > 1});
  }
  EXPECT_EQ(find(nested, letters).literals, kN / 2000);
  std::vector<Span> trusted;
  for (std::size_t at = 0; at + 4 <= kN; at += 4) trusted.push_back({at, at + 3});
  const Found f = find(nested, letters, {.all = false, .trusted = &trusted});
  EXPECT_EQ(f.literals, kN / 2) << "three bytes that are trusted, and the one between them";
  EXPECT_LE(f.work, 2 * kPerByte * kN);
}

TEST(AddedTokens, ManyLiterals) {
  std::vector<AddedToken> tokens;
  std::string text;
  for (TokenId i = 0; i < 100'000; ++i) {
    tokens.push_back({.id = i, .content = "<|reserved_special_token_" + std::to_string(i) + "|>", .special = true});
    if (i % 100 == 0) text += "x " + tokens.back().content;
  }
  std::vector<Segment> segments;
  std::size_t work = 0;
  AddedTokens(tokens).find(text, {}, segments, &work);
  ASSERT_EQ(segments.size(), 2000u);
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(segments[2 * i + 1].id, static_cast<TokenId>(100 * i));
  EXPECT_LE(work, 4 * text.size());
}

TEST(AddedTokens, OfEqualContentsASpecialOneCounts) {
  std::vector<Segment> segments;
  AddedTokens({{.id = 1, .content = "a"}, {.id = 2, .content = "a", .special = true}, {.id = 3, .content = "a", .special = true}})
      .find("a", {}, segments);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].id, 2);
  segments.clear();
  AddedTokens().find("a", {}, segments);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].id, kNoToken);
}

TEST(AddedTokens, TooManyBytesOfThemAreRefused) {
  VocabData v;
  v.ggml_model = "gpt2";
  v.ggml_pre = "gpt-2";
  for (int i = 0; i < 4100; ++i) {
    std::string token = std::to_string(i);
    token.resize(kMaxLiteralBytes, 'x');
    v.tokens.push_back(std::move(token));
    v.token_types.push_back(4);
  }
  const auto gguf = make_tokenizer(v);
  ASSERT_FALSE(gguf);
  EXPECT_EQ(gguf.error().param, "tokenizer.ggml.tokens");
  Json added = Json::array();
  for (std::size_t i = 0; i < v.tokens.size(); ++i) added.push(Json::object({{"id", static_cast<int>(i)}, {"content", v.tokens[i]}}));
  VocabData hf;
  hf.tokenizer_json = dump_json(Json::object(
      {{"added_tokens", added}, {"model", Json::object({{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}})}}));
  const auto json = make_tokenizer(hf);
  ASSERT_FALSE(json);
  EXPECT_NE(json.error().message.find("16 MiB"), std::string::npos) << json.error().message;
}

}  // namespace
}  // namespace barg::text::tokenizer_added_test
