// What the Messages protocol is put together from: volatile lines, ids and signatures, arguments that broke off.
#include <gtest/gtest.h>

#include "base/env.h"
#include "base/json.h"
#include "server/messages_ids.h"
#include "server/messages_volatile.h"
#include "server/partial_json.h"

namespace barg::server::messages_parts_test {
namespace {

TEST(MessagesVolatile, LinesInFrontAndMarkersGo) {
  const std::pair<const char*, const char*> cases[] = {
      {"You are helpful.", "You are helpful."},
      {"", ""},
      {"x-anthropic-billing-header: cc_version=2.1.100; cch=eb6c6;", ""},
      {"x-anthropic-billing-header: cch=1;\nYou are", "You are"},
      {" \nx-anthropic-billing-header: a\r\nx-anthropic-billing-header: b\nYou\n", "You\n"},
      {"You see x-anthropic-billing-header: here", "You see x-anthropic-billing-header: here"},
      {"You\nx-anthropic-billing-header: later", "You\nx-anthropic-billing-header: later"},
      {"You\n\n<total_tokens>14999436 tokens left</total_tokens>", "You"},
      {"You\n<total_tokens>1 tokens left</total_tokens>\n<total_tokens>2,000 tokens left</total_tokens>\nend",
       "You\nend"},
      {"<total_tokens>7 tokens left</total_tokens>", ""},
      {"<total_tokens>seven tokens left</total_tokens>", "<total_tokens>seven tokens left</total_tokens>"},
      {"<total_tokens> tokens left</total_tokens>", "<total_tokens> tokens left</total_tokens>"},
      {"<total_tokens>9", "<total_tokens>9"},
      {"<total_tokens><total_tokens>3 tokens left</total_tokens>!", "<total_tokens>!"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(without_volatile_lines(text), expected) << text;
}

TEST(MessagesVolatile, AnythingElseStaysAsItIs) {
  Rng rng(7);
  constexpr std::string_view kPieces[] = {"<total_tokens>", " tokens left</total_tokens>", "\n", " ", "x-anthropic",
                                          "a", "<", "left"};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::uint64_t n = rng.below(12); n > 0; --n) text += kPieces[rng.below(std::size(kPieces))];
    EXPECT_EQ(without_volatile_lines(text), text) << "no digits, so no marker";
  }
}

TEST(MessagesVolatile, ManyMarkersTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "<total_tokens>";
  EXPECT_EQ(without_volatile_lines(text), text);
  std::string markers(1 << 20, ' ');
  for (int i = 0; i < 20'000; ++i) markers += "\n<total_tokens>5 tokens left</total_tokens>";
  EXPECT_EQ(without_volatile_lines(markers), "");
}

TEST(MessagesIds, ToolIdsArePlainUniqueAndCarryTheModelsOwn) {
  const std::string a = tool_use_id("msg_1", 0, ""), b = tool_use_id("msg_1", 1, ""), c = tool_use_id("msg_2", 0, "");
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(a, tool_use_id("msg_1", 0, ""));
  EXPECT_EQ(a.size(), 30U);
  EXPECT_FALSE(native_tool_id(a));
  for (const std::string& native : {std::string("functions.get_weather:0"), std::string("abcDEF123"), std::string("é")}) {
    const std::string id = tool_use_id("msg_1", 0, native);
    EXPECT_TRUE(id.starts_with("toolu_"));
    EXPECT_EQ(id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"), std::string::npos);
    EXPECT_EQ(native_tool_id(id), native);
    EXPECT_NE(id, tool_use_id("msg_1", 1, native)) << "models repeat their ids";
  }
  EXPECT_FALSE(native_tool_id(tool_use_id("m", 0, std::string(200, 'x')))) << "too long to carry";
  for (const char* other : {"", "toolu_", "toolu_01A09q90qw90lq917835lq9", "toolu_bdrk_01A09q90qw90", "call_1",
                            "toolu_abcdefghijkl_", "toolu_abcdefghijkl_!!", "toolu_abc-efghijkl_QQ"}) {
    EXPECT_FALSE(native_tool_id(other)) << other;
  }
}

TEST(MessagesIds, SignaturesTellWhatWasChanged) {
  const std::string key = thought_key("secret"), text = "I think";
  const std::string signature = thought_signature(key, sha256(text.data(), text.size()));
  EXPECT_EQ(check_thought(key, signature, text), Signed::kIntact);
  EXPECT_EQ(check_thought(key, signature, "I thought"), Signed::kChanged);
  EXPECT_EQ(check_thought(thought_key("other"), signature, text), Signed::kChanged);
  EXPECT_EQ(check_thought(key, signature + "A", text), Signed::kChanged);
  EXPECT_EQ(check_thought(key, "", text), Signed::kForeign);
  EXPECT_EQ(check_thought(key, "EqQBCgIYAhIM1gbcDa9GJwZA2b3h", text), Signed::kForeign);
}

// The expected values are what the client's own accumulator gives (jiter's partial mode); the Python tests compare
// every prefix with it.
TEST(PartialJson, ClosesWhatIsOpenAndDropsWhatIsNotWhole) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "{}"},
      {"  ", "{}"},
      {"x", "{}"},
      {"[1", "{}"},
      {"{", "{}"},
      {R"({"a)", "{}"},
      {R"({"a")", "{}"},
      {R"({"a":)", "{}"},
      {R"({"a":1)", R"({"a":1})"},
      {R"({"a":-)", "{}"},
      {R"({"a":1.)", "{}"},
      {R"({"a":tru)", "{}"},
      {R"({"a":true)", R"({"a":true})"},
      {R"({"a":"b)", "{}"},
      {R"({"a":"b\")", "{}"},
      {R"({"a":"b\\")", R"({"a":"b\\"})"},
      {R"({"a":"}",)", R"({"a":"}"})"},
      {R"({"a":[1,{"b":[)", R"({"a":[1,{"b":[]}]})"},
      {R"({"a":["x","y)", R"({"a":["x"]})"},
      {R"({"a":{"b":1},"c)", R"({"a":{"b":1}})"},
      {R"({"a":1,"b")", R"({"a":1})"},
      {R"({"a":1,"b":)", R"({"a":1})"},
      {R"({ "a" : 1 , "b" : [ 2 , )", R"({ "a" : 1 , "b" : [ 2]})"},
      {R"({"a":1} trailing)", R"({"a":1})"},
  };
  for (const auto& [prefix, expected] : cases) EXPECT_EQ(closed_json_object(prefix), expected) << prefix;
}

TEST(PartialJson, EveryPrefixOfEveryObjectIsAnObject) {
  const std::string whole = R"({"a":[1,-2.5e3,"q\"\\ \u00e9 }]"],"b":{"c":null,"d":[[],{}]},"e":"long, text: {","f":false})";
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    const auto json = parse_json(closed_json_object(std::string_view(whole).substr(0, n)));
    ASSERT_TRUE(json) << whole.substr(0, n);
    EXPECT_TRUE(json->is_object());
  }
  EXPECT_EQ(closed_json_object(whole), whole);
}

TEST(PartialJson, WhateverComesAnObjectComesOut) {
  Rng rng(3);
  constexpr std::string_view kBytes = "{}[],:\"\\ a1-.e\x80";
  for (int i = 0; i < 20'000; ++i) {
    std::string text = "{";
    for (std::uint64_t n = rng.below(16); n > 0; --n) text += kBytes[rng.below(kBytes.size())];
    const auto json = parse_json(closed_json_object(text), {.reject_duplicate_keys = false});
    ASSERT_TRUE(json && json->is_object()) << text;
  }
  EXPECT_EQ(closed_json_object(std::string(1 << 20, '{')), "{}");
}

}  // namespace
}  // namespace barg::server::messages_parts_test
