// The schema front end by example: order, references, combinations, what is refused and how, limits.
#include "text/grammar/schema.h"

#include <gtest/gtest.h>

#include "text/grammar/schema_support.h"

namespace barg::text::grammar::schema_test {
namespace {

using schemas::Schema;

void expect_refused(std::string_view schema, std::string_view pointer, std::string_view keyword,
                    ErrorCode code = ErrorCode::kUnsupported, SchemaOptions options = {}) {
  const Schema compiled(schema, options);
  ASSERT_FALSE(compiled.ok()) << schema;
  EXPECT_EQ(compiled.error.code, code) << compiled.error.message;
  EXPECT_NE(compiled.error.message.find("at " + std::string(pointer) + ","), std::string::npos)
      << compiled.error.message;
  EXPECT_NE(compiled.error.message.find("'" + std::string(keyword) + "'"), std::string::npos) << compiled.error.message;
}

/// Texts that are of the schema, and texts that are not.
void expect_texts(std::string_view schema, const std::vector<std::string>& yes, const std::vector<std::string>& no,
                  SchemaOptions options = {}) {
  const Schema compiled(schema, options);
  ASSERT_TRUE(compiled.ok()) << schema << ": " << compiled.error.message;
  for (const std::string& text : yes) EXPECT_TRUE(compiled.text(text)) << schema << " <- " << text;
  for (const std::string& text : no) EXPECT_FALSE(compiled.text(text)) << schema << " <- " << text;
}

TEST(SchemaFrontEnd, Scalars) {
  expect_texts(R"({"type":"integer","minimum":3,"maximum":12})", {"3", "12", "7.0"},
               {"2", "13", "07", "7.5", "7.0000", "\"7\""});
  expect_texts(R"({"type":"number"})", {"0", "-1.5", "1e9"}, {".5", "1.", "true", "01"});
  expect_texts(R"({"enum":[1,"a",null,false,[1,{"b":2}]]})",
               {"1", "1.0", "\"a\"", "\"\\u0061\"", "null", "false", "[1, {\"b\": 2}]"},
               {"2", "true", "\"b\"", "[1]", "[1,{\"b\":3}]"});
  expect_texts(R"({"type":"string","minLength":2,"maxLength":3})", {"\"ab\"", "\"äöü\"", R"("\n\ud83c\udf43")"},
               {"\"a\"", "\"abcd\""});
  expect_texts(R"({"type":"string","pattern":"^a+$","maxLength":2})", {"\"a\"", "\"aa\""},
               {"\"\"", "\"aaa\"", "\"ab\""});
  expect_texts(R"({"type":["integer","null"]})", {"null", "5"}, {"\"5\"", "5.5", "{}"});
  expect_texts(R"({"type":"number","multipleOf":0.01,"minimum":0,"exclusiveMaximum":1})", {"0", "0.25", "0.99"},
               {"1", "0.255", "-0.01"});
  expect_texts(R"({"type":"integer","format":"int32"})", {"2147483647"}, {"2147483648"});
}

TEST(SchemaFrontEnd, DeclaredPropertiesComeInTheirOrderThenOthers) {
  expect_texts(R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["a"]})",
               {R"({"b":1,"a":"x"})", R"({"a":"x"})", R"({"a":"x","z":1,"c":[]})", R"({"a":"x","c":[],"z":1})"},
               {R"({"a":"x","b":1})", R"({"b":1})", R"({"z":1,"a":"x"})", R"({"a":"x","a":"y"})",
                R"({"a":"x","z":1,"\u007a":2})"});
  // What is only required comes behind what is declared.
  expect_texts(R"({"required":["r"],"properties":{"p":{}},"type":"object"})", {R"({"p":1,"r":2})"},
               {R"({"r":2,"p":1})"});
  expect_texts(R"({"type":"object","allOf":[{"required":["b"]}],"properties":{"a":{},"b":{}}})", {R"({"a":1,"b":2})"},
               {R"({"b":2,"a":1})"});
  // A base of allOf or $ref stands where the schema names it.
  expect_texts(R"({"type":"object","allOf":[{"$ref":"#/$defs/base"}],"properties":{"own":{}},
                   "$defs":{"base":{"properties":{"id":{"type":"integer"}},"required":["id"]}}})",
               {R"({"id":1,"own":2})"}, {R"({"own":2,"id":1})", R"({"own":2})"});
  expect_texts(R"({"type":"object","properties":{"own":{}},"allOf":[{"properties":{"id":{}}}]})",
               {R"({"own":2,"id":1})"}, {R"({"id":1,"own":2})"});
}

TEST(SchemaFrontEnd, NamesOfProperties) {
  expect_texts(
      R"({"type":"object","properties":{"a":{"type":"integer"}},"patternProperties":{"^x":{"type":"string"},"y$":{"minLength":2}},
                   "additionalProperties":false})",
      {R"({"a":1,"x":"s","xy":"st","y":"st"})", "{}", R"({"y":1})"},
      {R"({"xy":"s"})", R"({"b":1})", R"({"x":1})", R"({"y":"s"})"});
  expect_texts(
      R"({"type":"object","propertyNames":{"pattern":"^[a-z]{2,3}$"},"additionalProperties":{"type":"integer"}})",
      {R"({"ab":1,"abc":2})"}, {R"({"a":1})", R"({"abcd":1})", R"({"ab":"1"})"});
  expect_texts(R"({"type":"object","minProperties":1,"maxProperties":2})", {R"({"a":1})", R"({"a":1,"b":2})"},
               {"{}", R"({"a":1,"b":2,"c":3})"});
  expect_texts(R"({"type":"object","properties":{"no":false}})", {"{}", R"({"yes":1})"},
               {R"({"no":1})", R"({"yes":1,"no":1})"});
}

TEST(SchemaFrontEnd, Arrays) {
  expect_texts(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
               {"[1]", R"([1,"a"])"}, {"[]", R"(["a"])", R"([1,"a",2])"});
  expect_texts(R"({"type":"array","contains":{"const":1},"minContains":2,"maxContains":3,"items":{"type":"integer"}})",
               {"[1,1]", "[2,1,3,1,1]"}, {"[1]", "[1,1,1,1]", "[1,1,\"a\"]"});
  expect_texts(R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":2})",
               {R"(["a","b"])", R"(["c","a","b"])"},
               {R"(["a"])", R"(["a","a"])", R"(["a","\u0061"])", R"(["a","b","c","a"])"});
  expect_texts(R"({"type":"array","items":{"enum":[[1],[1.0],{"a":2}]},"uniqueItems":true})",
               {"[[1]]", R"([{"a":2},[1.0]])"}, {"[[1],[1]]", "[[1],[1.0]]"});
  expect_texts(
      R"({"type":"array","prefixItems":[{"type":"boolean"},{"type":"boolean"}],"items":false,"uniqueItems":true})",
      {"[]", "[true]", "[true,false]"}, {"[true,true]", "[1]"});
  expect_texts(R"({"type":"array","prefixItems":[{"type":"string"}],"contains":{"type":"integer"},"maxItems":3})",
               {R"(["a",1])", R"(["a","b",2])", "[\"a\",1,1]"}, {R"(["a"])", R"(["a","b","c"])", "[1]"});
}

TEST(SchemaFrontEnd, References) {
  expect_texts(R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},
                   "kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}}})",
               {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[{"v":3}]}]})"}, {R"({"v":1,"kids":[{"kids":[]}]})"});
  // Siblings count since 2019-09; draft 7 ignores them and says so.
  constexpr std::string_view kSiblings =
      R"({"properties":{"a":{"$ref":"#/definitions/i","maximum":5}},"definitions":{"i":{"type":"integer"}}})";
  expect_texts(kSiblings, {R"({"a":5})"}, {R"({"a":6})", R"({"a":1.5})"});
  expect_texts(kSiblings, {R"({"a":6})"}, {R"({"a":1.5})"}, {.draft = Draft::k7});
  const Schema old(kSiblings, {.draft = Draft::k7});
  ASSERT_EQ(old.enforced.without_effect.size(), 1U);
  EXPECT_EQ(old.enforced.without_effect[0].pointer, "#/properties/a");
  EXPECT_EQ(old.enforced.without_effect[0].keyword, "maximum");
  EXPECT_TRUE(old.enforced.unenforced.empty());
  expect_texts(R"({"items":{"$ref":"#/$defs/a~1b%25~0c"},"type":"array","$defs":{"a/b%~c":{"type":"integer"}}})",
               {"[1]"}, {"[true]"});
  expect_texts(R"({"$id":"http://x/y/root.json","type":"array","items":{"$ref":"../z/item.json#here"},
                   "$defs":{"i":{"$id":"/z/item.json","$defs":{"j":{"$anchor":"here","type":"integer"}}}}})",
               {"[1]"}, {"[true]"});
  // The intersection of two recursive schemas ends.
  expect_texts(R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],
                   "$defs":{"a":{"type":"object","properties":{"n":{"$ref":"#/$defs/a"},"x":{"type":"integer"}},"required":["x"]},
                            "b":{"type":"object","properties":{"n":{"$ref":"#/$defs/b"},"x":{"minimum":3}}}}})",
               {R"({"x":3})", R"({"n":{"n":{"x":4},"x":5},"x":3})"},
               {R"({"x":2})", R"({"n":{"x":2},"x":3})", R"({"n":{},"x":3})"});
}

TEST(SchemaFrontEnd, Combinations) {
  expect_texts(R"({"allOf":[{"type":"string"},{"maxLength":3},{"pattern":"^a"}]})", {"\"abc\""},
               {"\"abcd\"", "\"b\"", "1"});
  expect_texts(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}],"enum":[1,2.5,"a","ab"]})",
               {"1", "\"a\""}, {"2.5", "\"ab\"", "2"});
  expect_texts(R"({"oneOf":[{"type":"number","multipleOf":3},{"type":"number","multipleOf":5}]})", {"3", "5", "9"},
               {"15", "0", "1"});
  expect_texts(R"({"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},
                            {"properties":{"kind":{"const":"b"},"y":{"type":"string"}},"required":["kind","y"]}],"type":"object"})",
               {R"({"kind":"a","x":1})", R"({"kind":"b","y":"s","x":"any"})"},
               {R"({"kind":"a","y":"s"})", R"({"kind":"c"})", R"({"x":1})"});
  expect_texts(R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})", {R"({"a":1})", R"({"b":1})"},
               {"{}", R"({"a":1,"b":1})"});
  expect_texts(R"({"not":{"type":["object","array"]}})", {"1", "\"x\"", "null"}, {"{}", "[]"});
  expect_texts(R"({"type":"string","not":{"enum":["a","b"]}})", {"\"c\"", "\"ab\""}, {"\"a\"", "\"b\"", "1"});
  expect_texts(R"({"type":"object","properties":{"c":{"enum":["US","DE"]},"zip":{"type":"string"}},"required":["c"],
                   "if":{"properties":{"c":{"const":"US"}}},"then":{"properties":{"zip":{"pattern":"^[0-9]{5}$"}},"required":["zip"]},
                   "else":{"properties":{"zip":{"maxLength":4}}}})",
               {R"({"c":"US","zip":"12345"})", R"({"c":"DE","zip":"abc"})", R"({"c":"DE"})"},
               {R"({"c":"US"})", R"({"c":"US","zip":"abc"})", R"({"c":"DE","zip":"12345"})"});
  expect_texts(
      R"({"type":"object","properties":{"card":{"type":"integer"},"address":{"type":"string"}},"dependentRequired":{"card":["address"]}})",
      {"{}", R"({"address":"x"})", R"({"card":1,"address":"x"})"}, {R"({"card":1})"});
}

TEST(SchemaFrontEnd, Unevaluated) {
  expect_texts(
      R"({"type":"object","allOf":[{"properties":{"a":{}}}],"properties":{"b":{}},"unevaluatedProperties":false})",
      {R"({"a":1,"b":2})", "{}"}, {R"({"c":1})"});
  expect_texts(
      R"({"type":"object","anyOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}],"unevaluatedProperties":false})",
      {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}", R"({"a":1,"c":1})"});
}

TEST(SchemaFrontEnd, WhatIsRefusedNamesPointerAndKeyword) {
  expect_refused(R"({"properties":{"a":{"x-order":3}}})", "#/properties/a", "x-order");
  expect_refused(R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", "#", "uniqueItems");
  expect_refused(R"x({"properties":{"a":{"pattern":"(?=x)"}}})x", "#/properties/a", "pattern");
  expect_refused(R"({"properties":{"a/b":{"format":"color"}}})", "#/properties/a~1b", "format");
  expect_refused(R"({"$ref":"https://json-schema.org/draft/2020-12/schema"})", "#", "$ref");
  expect_refused(R"({"$dynamicRef":"#x"})", "#", "$dynamicRef");
  expect_refused(R"({"$schema":"http://json-schema.org/draft-04/schema#"})", "#", "$schema");
  expect_refused(R"({"dependencies":{"a":["b"]}})", "#", "dependencies");
  expect_refused(R"({"prefixItems":[{}]})", "#", "prefixItems", ErrorCode::kUnsupported, {.draft = Draft::k7});
  expect_refused(R"({"not":{"type":"array","uniqueItems":true}})", "#", "not");
}

TEST(SchemaFrontEnd, WhatIsNoSchemaIsInvalid) {
  constexpr auto kInvalid = ErrorCode::kInvalidValue;
  expect_refused(R"({"properties":{"a":{"type":"strin"}}})", "#/properties/a", "type", kInvalid);
  expect_refused(R"({"minLength":-1})", "#", "minLength", kInvalid);
  expect_refused(R"({"required":["a","a"]})", "#", "required", kInvalid);
  expect_refused(R"({"items":[{}]})", "#", "items", kInvalid);
  expect_refused(R"({"anyOf":[]})", "#", "anyOf", kInvalid);
  expect_refused(R"({"multipleOf":0})", "#", "multipleOf", kInvalid);
  expect_refused(R"({"$ref":"#/$defs/none"})", "#", "$ref", kInvalid);
  expect_refused(R"({"$ref":"#"})", "#", "$ref", kInvalid);
  expect_refused(R"({"$ref":"#x","$defs":{"a":{"$anchor":"x","type":"null"},"b":{"$anchor":"x","type":"string"}}})",
                 "#/$defs/b", "$anchor", kInvalid);
  expect_refused(
      R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})",
      "#/$defs/a", "$ref", kInvalid);
  expect_refused(R"({"pattern":"("})", "#", "pattern", kInvalid);
  for (const std::string_view nothing :
       {R"(false)", R"({"type":"string","enum":[1]})", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"type":"object","required":["a"],"properties":{"a":false}})", R"({"allOf":[{"const":1},{"const":2}]})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"}) {
    const Schema compiled(nothing);
    EXPECT_FALSE(compiled.ok()) << nothing;
    EXPECT_EQ(compiled.error.code, kInvalid) << nothing;
    EXPECT_NE(compiled.error.message.find("no value satisfies"), std::string::npos) << compiled.error.message;
  }
  // At nested places it is an option that never comes.
  expect_texts(R"({"anyOf":[{"type":"string","enum":[1]},{"type":"null"}],"title":"x"})", {"null"}, {"1", "\"a\""});
}

TEST(SchemaFrontEnd, LenientWidensAndLists) {
  const auto lenient = [](std::string_view schema) { return Schema(schema, {.lenient = true}); };
  const Schema tags = lenient(
      R"({"type":"object","properties":{"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true,"x-a":1}},"required":["tags"]})");
  ASSERT_TRUE(tags.ok()) << tags.error.message;
  ASSERT_EQ(tags.enforced.unenforced.size(), 2U);
  EXPECT_EQ(tags.enforced.unenforced[0].pointer, "#/properties/tags");
  EXPECT_EQ(tags.enforced.unenforced[0].keyword, "uniqueItems");
  EXPECT_EQ(tags.enforced.unenforced[1].keyword, "x-a");
  EXPECT_EQ(tags.enforced.enforced_keywords, (std::vector<std::string>{"items", "properties", "required", "type"}));
  EXPECT_TRUE(tags.text(R"({"tags":["a","a"]})"));
  EXPECT_FALSE(tags.text(R"({"tags":[1]})"));
  // Below `not` leaving something out would forbid more: `not` goes.
  const Schema inverted = lenient(R"x({"type":"string","not":{"pattern":"(?=x)"}})x");
  ASSERT_TRUE(inverted.ok()) << inverted.error.message;
  EXPECT_TRUE(inverted.text("\"y\""));
  EXPECT_TRUE(inverted.text("\"x\""));
  EXPECT_FALSE(inverted.text("1"));
  // Names that a lost pattern would have allowed are not "additional".
  const Schema names = lenient(R"x({"type":"object","patternProperties":{"(?!x)":{}},"additionalProperties":false})x");
  ASSERT_TRUE(names.ok()) << names.error.message;
  EXPECT_TRUE(names.text(R"({"y":1})"));
  EXPECT_EQ(names.enforced.unenforced.size(), 2U);
  // The same where the negation is met only inside of a value.
  const Schema counted(R"({"type":"array","contains":{"type":"string","x-a":1},"maxContains":1})", {.lenient = true});
  ASSERT_TRUE(counted.ok()) << counted.error.message;
  EXPECT_TRUE(counted.text(R"(["a",1])"));
  EXPECT_FALSE(counted.text("[1]"));
  // What is no keyword of the draft may have any value.
  const Schema older(R"({"contains":{"const":1},"minContains":"object","dependentRequired":3})",
                     {.draft = Draft::k7, .lenient = true});
  ASSERT_TRUE(older.ok()) << older.error.message;
  EXPECT_FALSE(older.text("[2]"));
  EXPECT_EQ(older.enforced.unenforced.size(), 2U);
  // "Exactly one" becomes "at least one".
  const Schema one =
      lenient(R"({"oneOf":[{"type":"array","uniqueItems":true},{"type":"array","items":{"type":"integer"}}]})");
  ASSERT_TRUE(one.ok()) << one.error.message;
  EXPECT_TRUE(one.text("[1,1]"));
  EXPECT_FALSE(one.text("{}"));
  EXPECT_FALSE(one.enforced.unenforced.empty());
}

TEST(SchemaFrontEnd, WhatIsLeftOutIsListedOnceHoweverOftenItIsReferredTo) {
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    std::string defs = R"x("d0":{"type":"string","x-a":1,"pattern":"(?=x)"})x";
    for (int i = 1; i <= 60; ++i) {
      const std::string before = R"({"$ref":"#/$defs/d)" + std::to_string(i - 1) + "\"}";
      const bool one = std::string_view(keyword) == "oneOf";
      defs += ",\"d" + std::to_string(i) + "\":{\"" + keyword + "\":[" + before + (one ? "" : "," + before) + "]}";
    }
    const Schema doubled("{\"$defs\":{" + defs + R"(},"$ref":"#/$defs/d60"})", {.lenient = true});
    ASSERT_TRUE(doubled.ok()) << doubled.error.message;
    EXPECT_EQ(doubled.enforced.unenforced.size(), 2U) << keyword;
    EXPECT_TRUE(doubled.text("\"a\""));
    EXPECT_FALSE(doubled.text("1"));
  }
}

TEST(SchemaFrontEnd, WorkIsBoundedAndShared) {
  const auto patterns = [](int count) {
    std::string out = R"({"type":"object","properties":{)";
    for (int i = 0; i < count; ++i)
      out += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"pattern":"^[ab]*a[ab]{6}x)" + std::to_string(i) + "$\"}";
    return out + "}}";
  };
  std::int64_t work = 2'000'000;
  ASSERT_TRUE(Schema(patterns(3), {.work = &work}).ok());
  const std::int64_t used = 2'000'000 - work;
  EXPECT_GT(used, 3000);
  const Schema refused(patterns(5 * static_cast<int>(2'000'000 / used)), {.work = &work});
  EXPECT_EQ(refused.error.code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error.message.find("too much work"), std::string::npos) << refused.error.message;
  EXPECT_GT(work, -used) << "it ended where the bound was met";
  EXPECT_FALSE(Schema(patterns(1), {.work = &work}).ok()) << "nothing is left to others";
  EXPECT_TRUE(Schema(patterns(1)).ok());
  // Each pair is small, and to see whether it has a text of the length takes a walk.
  std::string lengths = R"({"allOf":[)";
  for (const char* side : {"x", "y"}) {
    lengths += (side[0] == 'x' ? "{\"anyOf\":[" : ",{\"anyOf\":[");
    for (int i = 0; i < 40; ++i)
      lengths += (i > 0 ? "," : "") + (R"({"type":"string","minLength":3000,"pattern":")" + (side + std::to_string(i)) + "\"}");
    lengths += "]}";
  }
  work = 2'000'000;
  EXPECT_FALSE(Schema(lengths + "]}", {.work = &work}).ok());
  EXPECT_LT(work, 0);
}

TEST(SchemaFrontEnd, BoundsThatTheMachineRefusesNamePointerAndKeyword) {
  expect_refused(R"({"properties":{"a":{"type":"string","minLength":10000000}}})", "#/properties/a", "minLength");
  expect_refused(R"({"items":{"type":"string","pattern":"^(ab|c)*$","maxLength":3000000,"minLength":2500000}})", "#/items", "minLength");
  expect_refused(R"({"items":{"type":"array","minItems":3000000000}})", "#/items", "minItems");
  std::string many = R"({"items":{"type":"object","minProperties":3,"properties":{)";
  for (int i = 0; i < 600; ++i) many += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":{}";
  expect_refused(many + "}}}", "#/items", "minProperties");
}

TEST(SchemaFrontEnd, LimitsAreErrors) {
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_EQ(Schema(deep).error.code, ErrorCode::kUnsupported);
  std::string wide = R"({"type":"object","dependentRequired":{)";
  for (int i = 0; i < 60; ++i)
    wide += (i > 0 ? "," : "") + ("\"a" + std::to_string(i) + "\":[\"b" + std::to_string(i) + "\"]");
  EXPECT_EQ(Schema(wide + "}}").error.code, ErrorCode::kUnsupported);
  std::string many = R"({"allOf":[)";
  for (int i = 0; i < 40; ++i)
    many += (i > 0 ? "," : "") + (R"({"anyOf":[{"required":["a)" + std::to_string(i) + R"("]},{"required":["b)" +
                                  std::to_string(i) + R"("]}]})");
  EXPECT_EQ(Schema(many + "]}").error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(Schema(R"({"title":")" + std::string(2000, 'x') + "\"}", {.max_bytes = 1000}).error.code,
            ErrorCode::kTooLarge);
  std::string large = R"({"type":"object","properties":{)";
  for (int i = 0; i < 300; ++i) large += (i > 0 ? "," : "") + ("\"p" + std::to_string(i) + R"(":{"type":"integer"})");
  EXPECT_TRUE(Schema(large + "}}").ok());
  EXPECT_EQ(Schema(large + "}}", {.max_nodes = 20}).error.code, ErrorCode::kUnsupported);
}

TEST(SchemaFrontEnd, AnyObject) {
  auto machine = Machine::compile(any_object_grammar(Spacing::kFlexible));
  ASSERT_TRUE(machine.has_value());
  EXPECT_FALSE(first_failure(**machine, R"({"a": [1, {"b": null}], "c": "d"})").has_value());
  EXPECT_TRUE(first_failure(**machine, "[]").has_value());
  EXPECT_TRUE(first_failure(**machine, R"({"a":1,"a":2})").has_value());
}

TEST(SchemaFrontEnd, Drafts) {
  EXPECT_EQ(parse_draft("7").value(), Draft::k7);
  EXPECT_EQ(parse_draft("2019-09").value(), Draft::k2019);
  EXPECT_FALSE(parse_draft("4").has_value());
  const Schema named(
      R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],"additionalItems":false})");
  ASSERT_TRUE(named.ok()) << named.error.message;
  EXPECT_EQ(named.enforced.draft, Draft::k7);
  EXPECT_EQ(named.enforced.enforced_keywords, (std::vector<std::string>{"additionalItems", "items", "type"}));
  EXPECT_TRUE(named.text("[1]"));
  EXPECT_FALSE(named.text("[1,2]"));
}

}  // namespace
}  // namespace barg::text::grammar::schema_test
