// Tokenizers of published models against Hugging Face tokenizers 0.23.3, id by id.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "base/hash.h"
#include "text/tokenizer_data.h"

namespace barg::tokenizer_published_test {
namespace {

static_assert(std::endian::native == std::endian::little, "the hashes are over little-endian ids");

using test::ids_of;

constexpr EncodeOptions kText{.add_special_tokens = false, .parse_special_tokens = true};
constexpr EncodeOptions kPlain{.add_special_tokens = false, .parse_special_tokens = false};

class Published : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto strings = test::read_data("tokenizers/strings.jsonl");
    auto rows = test::read_data("tokenizers/" + std::string(GetParam()) + ".jsonl");
    std::string error;
    tokenizer_ = test::published_tokenizer(GetParam(), &error);
    ASSERT_EQ(error, "");
    if (!strings || !rows || !tokenizer_) GTEST_SKIP() << test::kNoShared;
    strings_ = test::parse_lines(*strings);
    rows_ = test::parse_lines(*rows);
    ASSERT_EQ(strings_.size(), rows_.size());
    ASSERT_GE(strings_.size(), 500u);
  }
  const std::string& text(std::size_t i) const { return strings_[i].find("text")->as_string(); }
  const Json& category(std::size_t i) const { return *strings_[i].find("category"); }

  void ids_of_every_string();
  void no_token_is_more_text_than_it_may();
  void special_literals_as_plain_text();
  void decode_gives_the_text_back();
  void marked_paths_equal_the_unmarked();
  void corpus_and_special_tokens_around();

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Json> strings_, rows_;
};

// One test a file: loading the large ones costs more than all the checks.
TEST_P(Published, AgreesWithHuggingFace) {
  ids_of_every_string();
  no_token_is_more_text_than_it_may();
  special_literals_as_plain_text();
  decode_gives_the_text_back();
  marked_paths_equal_the_unmarked();
  corpus_and_special_tokens_around();
}

void Published::ids_of_every_string() {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    EXPECT_EQ(tokenizer_->encode(text(i), kText), ids_of(*rows_[i].find("ids"))) << i << ": " << text(i);
  }
}

void Published::no_token_is_more_text_than_it_may() {
  const auto most = tokenizer_->max_text_bytes();
  for (std::size_t i = 0; most && i < rows_.size(); ++i)
    EXPECT_GE(rows_[i].find("ids")->size() * *most, text(i).size()) << i << ": " << text(i);
}

void Published::special_literals_as_plain_text() {
  int differing = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Json* plain = rows_[i].find("plain");
    differing += plain != nullptr;
    EXPECT_EQ(tokenizer_->encode(text(i), kPlain), ids_of(plain ? *plain : *rows_[i].find("ids"))) << text(i);
  }
  EXPECT_GT(differing, 0);
}

void Published::decode_gives_the_text_back() {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Json* other = rows_[i].find("text");
    EXPECT_EQ(tokenizer_->decode(ids_of(*rows_[i].find("ids")), false), other ? other->as_string() : text(i)) << i;
  }
}

// All text untrusted is the plain path; all trusted, in whatever pieces, is the ordinary one.
void Published::marked_paths_equal_the_unmarked() {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::string_view s = text(i);
    const auto ids = ids_of(*rows_[i].find("ids"));
    std::size_t cut = s.size() / 2;
    while (cut > 0 && (static_cast<unsigned char>(s[cut]) & 0xC0) == 0x80) --cut;
    EXPECT_EQ(tokenizer_->encode_marked({{s, true}}), ids) << s;
    EXPECT_EQ(tokenizer_->encode_marked({{s.substr(0, cut), true}, {"", false}, {s.substr(cut), true}}), ids) << s;
    if (!rows_[i].find("plain")) {
      EXPECT_EQ(tokenizer_->encode_marked({{s, false}}), ids) << s;
      EXPECT_EQ(tokenizer_->encode_marked({{s.substr(0, cut), true}, {s.substr(cut), false}}), ids) << s;
      EXPECT_EQ(tokenizer_->encode_marked({{s.substr(0, cut), false}, {s.substr(cut), true}}), ids) << s;
    }
  }
}

void Published::corpus_and_special_tokens_around() {
  const auto meta_text = test::read_data("tokenizers/meta.json");
  const auto corpus = test::read_data("tokenizers/corpus.txt");
  if (!meta_text || !corpus) return;  // the small core of the checkout has neither
  const auto meta = parse_json(*meta_text, {.max_members = 0});
  ASSERT_TRUE(meta);
  const Json& mine = *meta->find(GetParam());
  for (const auto& [s, ids] : mine.find("with_special_tokens")->as_object()) {
    EXPECT_EQ(tokenizer_->encode(s, {}), ids_of(ids)) << s;
  }
  std::string_view rest = *corpus;
  std::size_t block = 0;
  for (const Json& want : mine.find("corpus")->as_array()) {
    const std::size_t end = rest.find('\x1e');
    const auto ids = tokenizer_->encode(rest.substr(0, end), kText);
    EXPECT_EQ(static_cast<std::int64_t>(ids.size()), want.find("ids")->as_int()) << "block " << block;
    EXPECT_EQ(hex(sha256(ids.data(), ids.size() * sizeof(TokenId))), want.find("sha256")->as_string()) << block;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++block;
  }
  EXPECT_TRUE(rest.empty());
  EXPECT_GT(block, 10u);
}

INSTANTIATE_TEST_SUITE_P(Files, Published,
                         testing::Values("smollm2", "gpt-2", "mpt", "qwen2", "qwen36", "llama3", "gpt-oss",
                                         "mistral-nemo", "deepseek-v3", "deepseek-coder", "llama2", "phi-3",
                                         "mistral-v3", "gemma3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// The rendered chat of the tiny models: BOS from the template, tokenizer_config.json as published models have it.
TEST(TinyModels, ChatPrompts) {
  int models = 0;
  for (const std::string& name : test::data_names("models")) {
    const auto goldens = test::read_data("models/" + name + "/goldens.json");
    VocabData v;
    v.tokenizer_json = test::read_data("models/" + name + "/tokenizer.json").value_or("");
    v.tokenizer_config_json = test::read_data("models/" + name + "/tokenizer_config.json").value_or("");
    if (!goldens || v.tokenizer_json.empty()) continue;
    const auto t = make_tokenizer(v);
    ASSERT_TRUE(t) << name << ": " << t.error().message;
    const auto file = parse_json(*goldens, {.max_members = 0});
    ASSERT_TRUE(file);
    const Json* chat = file->find("prompts")->find("chat");
    if (!chat || !chat->find("prompt")) continue;  // embedding models
    const auto ids = ids_of(*chat->find("input_ids"));
    EXPECT_EQ((*t)->encode(chat->find("prompt")->as_string(), kText), ids) << name;
    EXPECT_EQ((*t)->encode_marked({{chat->find("prompt")->as_string(), true}}), ids) << name;
    const auto greedy = ids_of(*chat->find("greedy"));
    // Of bytes that are no character, tokenizers' ByteFallback also takes their neighbours away: compared up to there.
    const bool bytes = v.tokenizer_json.find("ByteFallback") != std::string::npos;
    const auto known = [&](const std::string& s) { return bytes ? s.substr(0, s.find("\uFFFD")) : s; };
    for (const bool skip : {false, true}) {
      const std::string& want = chat->find(skip ? "greedy_text_without_special" : "greedy_text")->as_string();
      const std::string head = known(want), got = (*t)->decode(greedy, skip);
      EXPECT_TRUE(head == want ? got == want : got.starts_with(head)) << name << ": " << got;
    }
    ++models;
  }
  EXPECT_GE(models, 4) << "the checkout itself has four";
}

// The same models as GGUF files: the vocabulary of a file gives the ids of the model's tokenizer.json.
TEST(TinyModels, GgufFiles) {
  int files = 0;
  for (const std::string& name : test::data_names("gguf", ".gguf")) {
    const auto bytes = test::read_data("gguf/" + name + ".gguf");
    const auto goldens = test::read_data("gguf/" + name + ".goldens.json");
    if (!bytes || !goldens) continue;
    const auto v = test::GgufKeys::read(*bytes);
    ASSERT_TRUE(v);
    const auto t = make_tokenizer(*v);
    ASSERT_TRUE(t) << name << ": " << t.error().message;
    const auto file = parse_json(*goldens, {.max_members = 0});
    ASSERT_TRUE(file);
    const Json* chat = file->find("prompts")->find("chat");
    if (!chat || !chat->find("prompt")) continue;
    EXPECT_EQ((*t)->encode(chat->find("prompt")->as_string(), kText), ids_of(*chat->find("input_ids"))) << name;
    ++files;
  }
  if (files == 0) GTEST_SKIP() << test::kNoShared;
}

}  // namespace
}  // namespace barg::tokenizer_published_test
