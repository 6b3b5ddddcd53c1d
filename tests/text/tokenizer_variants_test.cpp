// Random small tokenizer.json files against Hugging Face tokenizers (tests/data/tokenizers/make_variants.py).
#include <gtest/gtest.h>

#include "text/tokenizer_data.h"

namespace barg {
namespace {

TEST(Variants, EveryFlagAndStepAsInTokenizers) {
  const auto text = test::read_data("tokenizers/variants.jsonl");
  ASSERT_TRUE(text);
  int cases = 0;
  for (const Json& variant : test::parse_lines(*text)) {
    VocabData v;
    v.tokenizer_json = dump_json(*variant.find("tokenizer"));
    const auto made = make_tokenizer(v);
    ASSERT_TRUE(made) << made.error().message;
    const Tokenizer& t = **made;
    for (const Json& row : variant.find("rows")->as_array()) {
      const std::string& s = row.find("text")->as_string();
      const auto ids = test::ids_of(*row.find("ids"));
      const std::string steps = dump_json(*variant.find("tokenizer")->find("pre_tokenizer"));
      EXPECT_EQ(t.encode(s, {.add_special_tokens = false, .parse_special_tokens = true}), ids) << s << "\n" << steps;
      EXPECT_EQ(t.encode(s, {.add_special_tokens = false, .parse_special_tokens = false}),
                test::ids_of(*row.find("plain")))
          << s << "\n" << steps;
      EXPECT_EQ(t.encode_marked({{s, true}}), ids);
      EXPECT_EQ(t.decode(ids, false), row.find("decoded")->as_string());
      EXPECT_EQ(t.decode(ids, true), row.find("skipped")->as_string());
      ++cases;
    }
  }
  EXPECT_GE(cases, 900);
}

}  // namespace
}  // namespace barg
