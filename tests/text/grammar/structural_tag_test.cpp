// Structural tags: which outputs they allow, with their words as tokens and as text, and what is refused by which name.
#include "text/grammar/structural_tag.h"

#include <gtest/gtest.h>

#include "text/dialect_support.h"
#include "text/grammar/machine.h"

namespace barg::text::grammar::structural_tag_test {
namespace {

using test::MarkerTokenizer;

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

/// What a model with these added tokens may say.
class Tags {
 public:
  Tags(std::string_view spec, std::vector<MarkerTokenizer::Marker> added) : tokenizer_(std::move(added)) {
    auto grammar = structural_tag_grammar(json(spec), tokenizer_, {});
    EXPECT_TRUE(grammar) << spec << grammar.error().message;
    if (!grammar) return;
    auto machine = Machine::compile(std::move(grammar->grammar));
    EXPECT_TRUE(machine) << spec << machine.error().message;
    if (machine) machine_ = *machine;
  }

  /// `spelled`: added tokens in `text` as bytes.
  bool allow(std::string_view text, bool spelled = false) {
    if (!machine_) return false;
    auto state = machine_->start();
    for (const TokenId id : tokenizer_.encode(text, {.add_special_tokens = false, .parse_special_tokens = !spelled})) {
      state = id < 256 ? machine_->next(state, static_cast<std::uint8_t>(id)) : machine_->next_token(state, id);
      if (!state) return false;
    }
    return Machine::accepting(*state);
  }

 private:
  MarkerTokenizer tokenizer_;
  std::shared_ptr<Machine> machine_;
};

struct Case {
  const char* spec;
  std::vector<const char*> allowed, refused;
};

const std::vector<Case> kCases = {
    {R"({"format":{"type":"tag","begin":"<f>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</f>"}})",
     {"<f>12</f>", "<f>-3</f>"}, {"<f>x</f>", "12", "<f>12", "<f>12</f> ", "<f></f>"}},
    {R"({"format":{"type":"tag","begin":"<f>","content":{"type":"any_text"},"end":["</f>","</g>"]}})",
     {"<f></f>", "<f>a < b\nc</f>", "<f>x</g>"}, {"<f>x", "<f>a</f>b</f>", "<f>a</g>b</f>"}},
    {R"({"format":{"type":"sequence","elements":[{"type":"any_text"},{"type":"const_string","value":"--"},{"type":"regex","pattern":"[0-9]+"}]}})",
     {"--1", "so-so --22"}, {"", "--", "1", "a--b--3", "--1x"}},
    {R"({"format":{"type":"or","elements":[{"type":"const_string","value":"yes"},{"type":"grammar","grammar":"root ::= \"no\" \"!\"*"}]}})",
     {"yes", "no", "no!!"}, {"", "yes!", "maybe"}},
    {R"({"format":{"type":"triggered_tags","triggers":["<f"],"tags":[
        {"begin":"<f=a>","content":{"type":"json_schema","json_schema":{"const":1}},"end":"</f>"},
        {"begin":"<f=b>","content":{"type":"any_text"},"end":"</f>"}]}})",
     {"", "text", "<f=a>1</f>", "x<f=a>1</f>y<f=b>any <f thing</f>z", "a < b"}, {"<f", "x<f=a>2</f>", "<f=c>1</f>", "<f=a>1</f><f"}},
    {R"({"format":{"type":"triggered_tags","triggers":["<f"],"at_least_one":true,"tags":[{"begin":"<f>","content":{"type":"const_string","value":"1"},"end":"</f>"}]}})",
     {"<f>1</f>", "a<f>1</f>b<f>1</f>"}, {"", "text"}},
    {R"({"format":{"type":"triggered_tags","triggers":["<f"],"stop_after_first":true,"tags":[{"begin":"<f>","content":{"type":"const_string","value":"1"},"end":"</f>"}]}})",
     {"", "text", "a<f>1</f>"}, {"<f>1</f>b", "<f>1</f><f>1</f>"}},
    {R"({"format":{"type":"tags_with_separator","separator":",","tags":[{"begin":"<f>","content":{"type":"const_string","value":"1"},"end":"</f>"}]}})",
     {"", "<f>1</f>", "<f>1</f>,<f>1</f>"}, {",", "<f>1</f>,", "<f>1</f><f>1</f>"}},
    {R"({"format":{"type":"tags_with_separator","separator":"","at_least_one":true,"stop_after_first":true,"tags":[{"begin":"<f>","content":{"type":"const_string","value":"1"},"end":"</f>"}]}})",
     {"<f>1</f>"}, {"", "<f>1</f><f>1</f>"}},
    {R"({"structures":[{"begin":"<f=a>","schema":{"type":"boolean"},"end":"</f>"},{"begin":"<f=b>","end":"</f>"}],"triggers":["<f="]})",
     {"", "so", "<f=a>true</f>", "x<f=a>false</f>y<f=b>[1, 2]</f>"}, {"<f=a>1</f>", "<f=b>x</f>", "<f="}},
};

TEST(StructuralTag, AllowsWhatItSays) {
  for (const Case& c : kCases) {
    // All as text; the tags' own words as tokens, whole or in part.
    const std::vector<std::vector<MarkerTokenizer::Marker>> vocabularies = {
        {}, {{"<f>", true}, {"</f>", true}, {"<f=a>", true}}, {{"</f>", false}}};
    for (const auto& added : vocabularies) {
      Tags tags(c.spec, added);
      for (const char* text : c.allowed) EXPECT_TRUE(tags.allow(text)) << c.spec << "\n" << text << " " << added.size();
      for (const char* text : c.refused) EXPECT_FALSE(tags.allow(text)) << c.spec << "\n" << text << " " << added.size();
    }
  }
}

TEST(StructuralTag, AWordThatIsATokenIsNotItsSpelling) {
  Tags tags(kCases[0].spec, {{"<f>", true}, {"</f>", true}});
  EXPECT_TRUE(tags.allow("<f>12</f>"));
  EXPECT_FALSE(tags.allow("<f>12</f>", true));
}

TEST(StructuralTag, WhatHasNoEffectIsListed) {
  const MarkerTokenizer tokenizer({});
  const auto tags = structural_tag_grammar(
      json(R"({"format":{"type":"json_schema","json_schema":{"$schema":"http://json-schema.org/draft-07/schema#",
           "definitions":{"a":{"type":"string"}},"$ref":"#/definitions/a","maxLength":3}}})"), tokenizer, {});
  ASSERT_TRUE(tags) << tags.error().message;
  ASSERT_EQ(tags->unenforced.size(), 1U);
  EXPECT_EQ(tags->unenforced[0].pointer, "format.json_schema#");
  EXPECT_EQ(tags->unenforced[0].keyword, "maxLength");
}

TEST(StructuralTag, ItsPartsShareOneBoundOfWork) {
  const MarkerTokenizer tokenizer({});
  const auto parts = [](int count) {
    std::string out = R"({"format":{"type":"sequence","elements":[)";
    for (int i = 0; i < count; ++i) out += (i > 0 ? "," : "") + std::string(R"({"type":"regex","pattern":"[ab]*a[ab]{6}"})");
    return json(out + "]}}");
  };
  std::int64_t work = 1'000'000;
  ASSERT_TRUE(structural_tag_grammar(parts(1), tokenizer, {.work = &work}));
  const std::int64_t used = 1'000'000 - work;
  const auto refused = structural_tag_grammar(parts(static_cast<int>(1'000'000 / used) + 2), tokenizer, {.work = &work});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().param.find("format.elements["), std::string::npos) << refused.error().param;
}

TEST(StructuralTag, RefusalsNameTheMember) {
  struct Row {
    std::string spec, param;
    ErrorCode code = ErrorCode::kInvalidValue;
  };
  std::string deep = R"({"type":"any_text"})";
  for (int i = 0; i < 40; ++i) deep = R"({"type":"tag","begin":"a","end":"b","content":)" + deep + "}";
  std::string many = R"({"type":"const_string","value":"a"})";
  for (int i = 0; i < 5000; ++i) many += R"(,{"type":"const_string","value":"a"})";
  const std::string odd = R"({"type":"string","minSum":3})";
  const std::vector<Row> rows = {
      {R"({"format":{"type":"dance"}})", "format.type", ErrorCode::kUnsupported},
      {R"({"format":{}})", "format.type"},
      {R"({"format":7})", "format.type"},
      {R"({"format":{"type":"any_text","excludes":["a"]}})", "format.excludes", ErrorCode::kUnsupported},
      {R"({"format":{"type":"const_string"}})", "format.value"},
      {R"({"format":{"type":"json_schema"}})", "format.json_schema"},
      {R"({"format":{"type":"json_schema","json_schema":)" + odd + R"(,"style":"xml"}})", "format.style", ErrorCode::kUnsupported},
      {R"({"format":{"type":"json_schema","json_schema":{"type":"object","dependentRequired":7}}})", "format.json_schema"},
      {R"({"format":{"type":"regex","pattern":"("}})", "format.pattern"},
      {R"({"format":{"type":"grammar","grammar":"x"}})", "format.grammar"},
      {R"({"format":{"type":"sequence","elements":[]}})", "format.elements"},
      {R"({"format":{"type":"or","elements":[{"type":"any_text"},{"type":"const_string"}]}})", "format.elements[1].value"},
      {R"({"format":{"type":"tag","begin":"a","end":7,"content":{"type":"any_text"}}})", "format.end"},
      {R"({"format":{"type":"tag","begin":"a","end":"b"}})", "format.content"},
      {R"({"format":{"type":"triggered_tags","triggers":["<"],"tags":[{"begin":"x","content":{"type":"any_text"},"end":"y"}]}})",
       "format.triggers"},
      {R"({"format":{"type":"triggered_tags","triggers":[""],"tags":[{"begin":"x","content":{"type":"any_text"},"end":"y"}]}})",
       "format.triggers"},
      {R"({"format":{"type":"triggered_tags","triggers":["x"],"at_least_one":1,"tags":[{"begin":"x","content":{"type":"any_text"},"end":"y"}]}})",
       "format.at_least_one"},
      {R"({"structures":[],"triggers":["x"]})", "structures"},
      {R"({"structures":[{"begin":"x","end":"y"}]})", "triggers"},
      {R"({"structures":[{"begin":"x"}],"triggers":["x"]})", "structures[0].end"},
      {R"({"format":{"type":"sequence","elements":[)" + many + "]}}", "format.elements"},
  };
  const MarkerTokenizer tokenizer({});
  for (const Row& row : rows) {
    const auto grammar = structural_tag_grammar(json(row.spec), tokenizer, {});
    ASSERT_FALSE(grammar) << row.spec.substr(0, 200);
    EXPECT_EQ(grammar.error().param, row.param) << row.spec.substr(0, 200) << grammar.error().message;
    EXPECT_EQ(grammar.error().code, row.code) << row.spec.substr(0, 200) << grammar.error().message;
  }
  EXPECT_FALSE(structural_tag_grammar(json(R"({"format":)" + deep + "}"), tokenizer, {}));
  const auto listed = structural_tag_grammar(json(R"({"format":{"type":"json_schema","json_schema":{"type":"string","pattern":"(?=a)b"}}})"),
                                             tokenizer, {.lenient = true});
  ASSERT_TRUE(listed) << listed.error().message;
  ASSERT_EQ(listed->unenforced.size(), 1U);
  EXPECT_EQ(listed->unenforced[0].pointer, "format.json_schema#");
}

}  // namespace
}  // namespace barg::text::grammar::structural_tag_test
