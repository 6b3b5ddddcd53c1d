#include "base/json.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace barg::json_test {
namespace {

TEST(Json, ReadsAndWritesWhatItRead) {
  const char* text = R"({"b":1,"a":[true,false,null,-5,1.5,"x\n\u00e9"],"o":{},"big":18446744073709551615})";
  const auto v = parse_json(text);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(dump_json(*v), "{\"b\":1,\"a\":[true,false,null,-5,1.5,\"x\\né\"],\"o\":{},\"big\":18446744073709551615}");
  EXPECT_EQ(v->find("big")->as_uint(), 18446744073709551615ULL);
  EXPECT_EQ(v->find("missing"), nullptr);
}

TEST(Json, Styles) {
  const Json v = Json::object({{"b", Json::array()}, {"a", Json(Json::Array{1, "é😀"})}});
  EXPECT_EQ(dump_json(v, {.spaces = true}), "{\"b\": [], \"a\": [1, \"é😀\"]}");
  EXPECT_EQ(dump_json(v, {.ensure_ascii = true, .sort_keys = true}), R"({"a":[1,"\u00e9\ud83d\ude00"],"b":[]})");
  EXPECT_EQ(dump_json(v, {.indent = 2}), "{\n  \"b\": [],\n  \"a\": [\n    1,\n    \"é😀\"\n  ]\n}");
}

TEST(Json, Doubles) {
  EXPECT_EQ(dump_json(Json(1.0)), "1.0");
  EXPECT_EQ(dump_json(Json(0.1)), "0.1");
  EXPECT_EQ(dump_json(Json(1e300)), "1e+300");
}

TEST(Json, RefusesWhatIsNotOneDocument) {
  for (const char* bad : {"", " ", "{", "[1,]", "nul", "1 2", "{} {}", "{\"a\":1,\"a\":2}", "1e999", "-1e999",
                          "99999999999999999999999", "\"\xff\"", "\"\\ud800\"", "\xef\xbb\xbf{}", "NaN", "Infinity",
                          "'a'", "{a:1}", "[1", "\"\x01\"", "01", "+1", ".5", "1."}) {
    EXPECT_FALSE(parse_json(bad)) << bad;
  }
}

TEST(Json, DepthIsBounded) {
  const std::string deep(100'000, '[');
  const auto v = parse_json(deep);
  ASSERT_FALSE(v);
  EXPECT_NE(v.error().message.find("64 levels"), std::string::npos) << v.error().message;
  const std::string fits = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(fits));
  EXPECT_FALSE(parse_json("[" + fits + "]"));
}

TEST(Json, ValuesAreSmall) {
  // A body of 8 MiB holds four million numbers.
  static_assert(sizeof(Json) <= 40 && std::is_nothrow_move_constructible_v<Json>);
}

TEST(Json, APartMayReplaceTheWhole) {
  Json v = Json::object({{"a", Json::object({{"b", Json::Array{"a text that is not stored in place", 2}}})}});
  v = *v.find("a");
  v = std::move(*v.find("b"));
  EXPECT_EQ(dump_json(v), R"(["a text that is not stored in place",2])");
  v = v.as_array()[1];
  EXPECT_EQ(v.as_int(), 2);
}

TEST(Json, KeysAreBounded) {
  std::string text = "{";
  for (int i = 0; i < 2000; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  text.back() = '}';
  EXPECT_FALSE(parse_json(text));
  EXPECT_TRUE(parse_json(text, {.max_members = 0}));
}

TEST(Json, IntegersKeepTheirKind) {
  EXPECT_TRUE(parse_json("5")->is_integer());
  EXPECT_FALSE(parse_json("5.0")->is_integer());
  EXPECT_EQ(parse_json("-9223372036854775808")->as_int(), INT64_MIN);
  EXPECT_EQ(parse_json("9223372036854775808")->type(), Json::Type::kUint);
}

TEST(Json, ErrorsSayWhere) {
  const auto v = parse_json("{\"a\": tru}");
  ASSERT_FALSE(v);
  EXPECT_NE(v.error().message.find("at byte 10"), std::string::npos) << v.error().message;
}

}  // namespace
}  // namespace barg::json_test
