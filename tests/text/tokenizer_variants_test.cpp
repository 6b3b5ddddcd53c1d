// Small tokenizer.json files of every kind against Hugging Face tokenizers: random ones (tests/data/tokenizers/
// make_variants.py, make_pipelines.py) and trained ones (tests/python/trained_tokenizers.py).
#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/tokenizer_data.h"

namespace barg::tokenizer_variants_test {
namespace {

using test::ids_of;

std::string streamed(const Tokenizer& t, const std::vector<TokenId>& ids) {
  text::Detokenizer detokenizer(t, false);
  std::string out;
  for (const TokenId id : ids) detokenizer.push(id, out);
  return out += detokenizer.flush();
}

void check_row(const Tokenizer& t, const Json& row) {
  const std::string& s = row.find("text")->as_string();
  const auto ids = ids_of(*row.find("ids"));
  EXPECT_EQ(t.encode(s, {.add_special_tokens = false, .parse_special_tokens = true}), ids) << s;
  if (const Json* plain = row.find("plain"); !plain->is_null()) {
    EXPECT_EQ(t.encode(s, {.add_special_tokens = false, .parse_special_tokens = false}), ids_of(*plain)) << s;
  }
  if (const Json* around = row.find("around")) {
    EXPECT_EQ(t.encode(s, {}), ids_of(*around)) << s;
  }
  EXPECT_EQ(t.encode_marked({{s, true}}), ids);
  EXPECT_EQ(t.decode(ids, false), row.find("decoded")->as_string()) << s;
  EXPECT_EQ(t.decode(ids, true), row.find("skipped")->as_string()) << s;
  EXPECT_EQ(streamed(t, ids), row.find("decoded")->as_string()) << s;
}

int check_file(const std::string& name) {
  const auto text = test::read_data("tokenizers/" + name);
  if (!text) return 0;
  int rows = 0;
  for (const Json& variant : test::parse_lines(*text)) {
    VocabData v;
    v.tokenizer_json = dump_json(*variant.find("tokenizer"));
    const auto made = make_tokenizer(v);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      continue;
    }
    const int failures = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    for (const Json& row : variant.find("rows")->as_array()) check_row(**made, row), ++rows;
    if (testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() == failures) continue;
    for (const char* part : {"normalizer", "pre_tokenizer", "decoder", "added_tokens"}) {
      ADD_FAILURE() << part << ": " << dump_json(*variant.find("tokenizer")->find(part));
    }
  }
  return rows;
}

TEST(Variants, ByteLevelWithEveryFlagAndStep) { EXPECT_GE(check_file("variants.jsonl"), 900); }
TEST(Variants, EveryModelNormalizerStepAndDecoder) { EXPECT_GE(check_file("pipelines.jsonl"), 900); }
TEST(Variants, TrainedOfEveryKind) { EXPECT_GE(check_file("trained.jsonl"), 400); }

}  // namespace
}  // namespace barg::tokenizer_variants_test
