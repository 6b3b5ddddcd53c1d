// GGUF vocabularies, and the prompts of SmolLM2.
#include <gtest/gtest.h>

#include <cmath>

#include "text/charsmap_data.h"
#include "text/tokenizer_data.h"
#include "text/token_model.h"

namespace barg::tokenizer_gguf_test {
namespace {

using test::ids_of;
using Ids = std::vector<TokenId>;

constexpr EncodeOptions kText{.add_special_tokens = false, .parse_special_tokens = true};
constexpr EncodeOptions kPlain{.add_special_tokens = false, .parse_special_tokens = false};

// What a converter writes for a tokenizer.json.
VocabData gguf_of(const Json& file, const char* pre) {
  VocabData v;
  v.ggml_model = "gpt2";
  v.ggml_pre = pre;
  const auto put = [&](std::size_t id, const std::string& text, std::int32_t type) {
    if (v.tokens.size() <= id) v.tokens.resize(id + 1), v.token_types.resize(id + 1, 5);
    v.tokens[id] = text;
    v.token_types[id] = type;
  };
  for (const auto& [text, id] : file.find("model")->find("vocab")->as_object()) {
    put(static_cast<std::size_t>(id.as_int()), text, 1);
  }
  for (const Json& t : file.find("added_tokens")->as_array()) {
    put(static_cast<std::size_t>(t.find("id")->as_int()), t.find("content")->as_string(),
        t.find("special")->as_bool() ? 3 : 4);
  }
  for (const Json& m : file.find("model")->find("merges")->as_array()) {
    v.merges.push_back(m.is_string() ? m.as_string() : m.as_array()[0].as_string() + " " + m.as_array()[1].as_string());
  }
  return v;
}

// ---- a vocabulary of bytes, for what files may say

VocabData small_gguf() {
  VocabData v;
  v.ggml_model = "gpt2";
  v.ggml_pre = "gpt-2";
  for (char c = '!'; c <= '~'; ++c) v.tokens.emplace_back(1, c);
  v.tokens.emplace_back("ab");
  v.tokens.emplace_back("<|im_end|>");
  v.tokens.emplace_back("<tool>");
  v.tokens.emplace_back("[PAD97]");
  v.tokens.emplace_back("[PAD98]");
  v.token_types.assign(v.tokens.size(), 1);
  v.token_types[95] = 3;
  v.token_types[96] = 4;
  v.token_types[97] = v.token_types[98] = 5;
  v.merges = {"a b"};
  return v;
}

// One for each kind of `pre`: equal to the tokenizer.json of that model.
class GgufPre : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(GgufPre, EqualsTokenizerJson) {
  const auto [name, pre] = GetParam();
  const auto text = test::read_data("tokenizers/" + std::string(name) + ".json");
  const auto strings = test::read_data("tokenizers/strings.jsonl");
  const auto rows = test::read_data("tokenizers/" + std::string(name) + ".jsonl");
  if (!text || !strings || !rows) GTEST_SKIP() << test::kNoShared;
  const auto file = parse_json(*text, {.max_members = 0, .reject_duplicate_keys = false});
  ASSERT_TRUE(file);
  VocabData v = gguf_of(*file, pre);
  v.add_bos = false;
  const auto t = make_tokenizer(v);
  ASSERT_TRUE(t) << t.error().message;
  const auto expected = test::parse_lines(*rows);
  const auto inputs = test::parse_lines(*strings);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string& s = inputs[i].find("text")->as_string();
    const Json* plain = expected[i].find("plain");
    ASSERT_EQ((*t)->encode(s, kText), ids_of(*expected[i].find("ids"))) << s;
    ASSERT_EQ((*t)->encode(s, kPlain), ids_of(plain ? *plain : *expected[i].find("ids"))) << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufPre,
                         testing::Values(std::pair("smollm2", "smollm"), std::pair("gpt-2", "gpt-2"),
                                         std::pair("mpt", "mpt"), std::pair("llama3", "llama-bpe"),
                                         std::pair("qwen2", "qwen2"), std::pair("qwen36", "qwen35"),
                                         std::pair("gpt-oss", "gpt-4o"), std::pair("mistral-nemo", "tekken"),
                                         std::pair("deepseek-coder", "deepseek-coder"),
                                         std::pair("deepseek-v3", "deepseek-v3")),
                         [](const auto& info) {
                           std::string name = info.param.second;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

/// A trained tokenizer without the flags that a GGUF file loses.
Json without_flags(Json file) {
  for (Json& t : file.find("added_tokens")->as_array()) {
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) t.set(flag, false);
  }
  return file;
}

// Kinds of `pre` whose models are not here: a tokenizer trained with the published pattern, in both containers. That its
// tokenizer.json is read as Hugging Face tokenizers reads it, tokenizer_variants_test.cpp checks.
TEST(Gguf, PublishedPatternsOfOtherKinds) {
  int files = 0;
  const auto lines = test::parse_lines(test::read_data("tokenizers/trained.jsonl").value_or(""));
  struct Case {
    const char* kind;
    const char* pre;
    bool ignore_merges;
  };
  static constexpr Case kCases[] = {{"tekken ", "falcon-h1", true}, {"llama3 ", "smaug-bpe", true},     {"llama3 ", "pixtral", true},
                                    {"kimi ", "kimi-k2", true},     {"deepseek-llm ", "deepseek-llm", false}, {"seed-coder ", "seed-coder", false},
                                    {"deepseek-v3 ", "joyai-llm", false}};
  for (const auto& [kind, pre, ignore_merges] : kCases) {
    const Json* pre_tokenizer = nullptr;
    for (const Json& line : lines) {
      if (line.find("name")->as_string().starts_with(kind)) pre_tokenizer = line.find("tokenizer")->find("pre_tokenizer");
    }
    ASSERT_TRUE(pre_tokenizer) << kind;
    // A vocabulary has no merges across the borders of its own pattern: those of others show what this one cuts.
    for (const Json& line : lines) {
      const std::string& name = line.find("name")->as_string();
      const auto is = [&](const char* other) { return name.starts_with(other); };
      if (!is(kind) && !is("llama3 ") && !is("any-regex ") && !is("o200k ")) continue;
      Json file = without_flags(*line.find("tokenizer"));
      file.set("pre_tokenizer", *pre_tokenizer);
      file.find("model")->set("ignore_merges", ignore_merges);
      VocabData hf, gguf = gguf_of(file, pre);
      hf.tokenizer_json = dump_json(file);
      gguf.add_bos = false;
      const auto want = make_tokenizer(hf), got = make_tokenizer(gguf);
      ASSERT_TRUE(want) << want.error().message;
      ASSERT_TRUE(got) << got.error().message;
      for (const Json& row : line.find("rows")->as_array()) {
        const std::string& s = row.find("text")->as_string();
        EXPECT_EQ((*got)->encode(s, kText), (*want)->encode(s, kText)) << pre << ": " << s;
      }
      EXPECT_EQ((*got)->encode(" whole", kText), (*want)->encode(" whole", kText)) << pre << ": a word that no merges make";
      for (const Json& row : test::parse_lines(test::read_data("tokenizers/strings.jsonl").value_or(""))) {
        const std::string& s = row.find("text")->as_string();
        EXPECT_EQ((*got)->encode(s, kText), (*want)->encode(s, kText)) << pre << ": " << s;
      }
      ++files;
    }
  }
  EXPECT_EQ(files, 26);
}

TEST(Gguf, BosOfOtherKinds) {
  for (const auto& [pre, bos] : {std::pair("falcon-h1", true), {"pixtral", true}, {"midm-2.0", true}, {"smaug-bpe", false}, {"deepseek-llm", false},
                                 {"kimi-k2", false}, {"seed-coder", false}, {"joyai-llm", false}}) {
    VocabData v = small_gguf();
    v.ggml_pre = pre;
    v.bos = 95;
    const auto t = make_tokenizer(v);
    ASSERT_TRUE(t) << t.error().message;
    EXPECT_EQ((*t)->encode("a", {}).size(), bos ? 2u : 1u) << pre;
  }
}

// LFM2 splits as Llama 3 does. Files of LFM2.5 have the same name, and a pattern that is spelled in another way.
TEST(Gguf, Lfm2SplitsByThePatternOfItsTokenizerJson) {
  const auto text = test::read_data("tokenizers/llama3.json");
  const auto strings = test::read_data("tokenizers/strings.jsonl");
  if (!text || !strings) GTEST_SKIP() << test::kNoShared;
  auto file = parse_json(*text, {.max_members = 0, .reject_duplicate_keys = false});
  ASSERT_TRUE(file);
  VocabData gguf = gguf_of(*file, "lfm2");
  gguf.add_bos = false;
  Json& split = file->find("pre_tokenizer")->find("pretokenizers")->as_array()[0];
  *split.find("pattern")->find("Regex") =
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s)";
  VocabData json;
  json.tokenizer_json = dump_json(*file);
  const auto a = make_tokenizer(gguf), b = make_tokenizer(json);
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(b) << b.error().message;
  for (const Json& line : test::parse_lines(*strings)) {
    const std::string& s = line.find("text")->as_string();
    ASSERT_EQ((*a)->encode(s, kText), (*b)->encode(s, kText)) << s;
  }
}

// llama.cpp's own vocabularies and strings. It does not apply NFC: where its ids differ on text that NFC changes,
// Hugging Face is right, and the ids must be those of the composed text.
TEST(Gguf, VocabulariesOfLlamaCpp) {
  int files = 0, cases = 0, differing = 0;
  for (const std::string name : {"gpt-2", "mpt", "deepseek-coder", "llama-bpe", "qwen2", "llama-spm", "phi-3"}) {
    const auto bytes = test::read_data("vocab/" + name + ".gguf");
    const auto inputs = test::read_data("vocab/" + name + ".gguf.inp");
    const auto outputs = test::read_data("vocab/" + name + ".gguf.out");
    if (!bytes || !inputs || !outputs) continue;
    const auto v = test::GgufKeys::read(*bytes);
    ASSERT_TRUE(v);
    const auto t = make_tokenizer(*v);
    ASSERT_TRUE(t) << name << ": " << t.error().message;
    ++files;
    const std::string border = "\n__ggml_vocab_test__\n";
    std::string_view in = *inputs, out = *outputs;
    while (!out.empty()) {
      const std::string_view line = out.substr(0, out.find('\n'));
      out.remove_prefix(std::min(out.size(), line.size() + 1));
      const std::size_t end = in.find(border);
      const std::string_view text = in.substr(0, end);
      in.remove_prefix(end == std::string_view::npos ? in.size() : end + border.size());
      std::string got;
      for (const TokenId id : (*t)->encode(text, kText)) got += " " + std::to_string(id);
      differing += got != line;
      ++cases;
      EXPECT_TRUE(got == line || (name == "mpt" || name == "qwen2")) << name << ": " << text;
    }
  }
  if (files == 0) GTEST_SKIP() << test::kNoShared;
  EXPECT_GE(cases, 40 * files);
  EXPECT_LE(differing, 2) << "only what NFC changes";
}

// ---- llama and bert, as a converter writes them for a tokenizer.json that is here

Json model_file(const std::string& name) {
  auto j = parse_json(test::read_data(name).value_or(""), {.max_members = 0, .reject_duplicate_keys = false});
  EXPECT_TRUE(j) << name;
  return j ? *j : Json();
}

VocabData spm_gguf(const Json& file) {
  VocabData v = gguf_of(file, "");
  v.ggml_model = "llama";
  v.merges.clear();
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    v.scores.push_back(-static_cast<float>(i));
    if (text::byte_of_token(v.tokens[i]) >= 0) v.token_types[i] = 6;
  }
  v.unk = 0;
  v.bos = 1;
  v.eos = 2;
  return v;
}

TEST(Gguf, LlamaEqualsTokenizerJson) {
  const Json file = model_file("models/llama/tokenizer.json");
  VocabData hf;
  hf.tokenizer_json = dump_json(file);
  const auto want = make_tokenizer(hf);
  const auto got = make_tokenizer(spm_gguf(file));
  ASSERT_TRUE(want && got) << got.error().message;
  int cases = 0;
  for (const Json& row : test::parse_lines(test::read_data("tokenizers/strings.jsonl").value_or(""))) {
    const std::string& s = row.find("text")->as_string();
    const Ids ids = (*want)->encode(s, {});
    EXPECT_EQ((*got)->encode(s, {}), ids) << s;
    EXPECT_EQ((*got)->decode(ids, true), (*want)->decode(ids, true)) << s;
    ++cases;
  }
  EXPECT_GE(cases, 500);
  EXPECT_EQ((*got)->size(), (*want)->size());
}

TEST(Gguf, LlamaFlags) {
  const Json file = model_file("models/llama/tokenizer.json");
  VocabData v = spm_gguf(file);
  v.add_space_prefix = false;
  auto t = make_tokenizer(v);
  ASSERT_TRUE(t) << t.error().message;
  const Ids x = (*t)->encode("x", kText);
  EXPECT_EQ((*t)->encode("x", {}).front(), 1) << "a BOS unless the file says otherwise";
  EXPECT_EQ((*t)->decode((*t)->encode(" x", kText), true), " x") << "no prefix, and nothing to take back";
  v.add_bos = false;
  EXPECT_EQ((*make_tokenizer(v))->encode("x", {}), x);
  // A token of equal score made first, whatever the rank of its parts, would be another vocabulary: scores decide.
  v.tokens = {"<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc"};
  v.token_types = {2, 3, 3, 1, 1, 1, 1, 1};
  v.scores = {0, 0, 0, -1, -2, -3, -5, -4};
  EXPECT_EQ((*make_tokenizer(v))->encode("abc", kText), (Ids{3, 7}));
  v.scores[6] = -3;
  EXPECT_EQ((*make_tokenizer(v))->encode("abc", kText), (Ids{6, 5}));
  v.tokens.emplace_back("<|user|>");
  v.token_types.push_back(3);
  v.scores.push_back(0);
  EXPECT_EQ((*make_tokenizer(v))->encode("<|user|> \na", kText), (Ids{8, 0, 3})) << "no tokens: one unknown";
  v.ggml_architecture = "phi3";
  EXPECT_EQ((*make_tokenizer(v))->encode("<|user|> \na", kText), (Ids{8, 3})) << "Phi-3 takes the white space behind";
}

TEST(Gguf, Gemma4HasMergesAndNoPrefix) {
  VocabData v = spm_gguf(model_file("models/llama/tokenizer.json"));
  v.ggml_model = "gemma4";
  v.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a"};
  v.token_types = {2, 3, 3, 1, 1, 1, 1, 1};
  v.merges = {"a b", "\u2581 a"};
  const auto t = make_tokenizer(v);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ((*t)->encode("ab a", kText), (Ids{6, 7}));
  EXPECT_EQ((*t)->decode({7, 7}, true), " a a");
}

TEST(Gguf, BertEqualsTokenizerJson) {
  int files = 0;
  for (const Json& trained : test::parse_lines(test::read_data("tokenizers/trained.jsonl").value_or(""))) {
    if (!trained.find("name")->as_string().starts_with("wordpiece")) continue;
    VocabData v;
    v.ggml_model = "bert";
    for (const auto& [token, id] : trained.find("tokenizer")->find("model")->find("vocab")->as_object()) {
      const auto i = static_cast<std::size_t>(id.as_int());
      if (v.tokens.size() <= i) v.tokens.resize(i + 1), v.token_types.resize(i + 1, 5);
      const bool control = token.starts_with("[") && token.size() > 2;
      v.tokens[i] = control ? token : token.starts_with("##") && token.size() > 2 ? token.substr(2) : "\u2581" + token;
      v.token_types[i] = control ? 3 : 1;
    }
    v.cls = 2;
    v.sep = 3;
    const auto t = make_tokenizer(v);
    ASSERT_TRUE(t) << t.error().message;
    for (const Json& row : trained.find("rows")->as_array()) {
      const std::string& s = row.find("text")->as_string();
      if (s.find("\u2581") != std::string::npos) continue;  // a file cannot tell the mark from its own
      EXPECT_EQ((*t)->encode(s, {}), ids_of(*row.find("around"))) << s;
      EXPECT_EQ((*t)->decode(ids_of(*row.find("ids")), false), row.find("decoded")->as_string());
    }
    ++files;
  }
  EXPECT_EQ(files, 2) << "with and without capital letters";
}

/// A Unigram model of the trained ones, with the map that tests have, in both containers.
TEST(Gguf, T5EqualsTokenizerJson) {
  int files = 0;
  for (const Json& trained : test::parse_lines(test::read_data("tokenizers/trained.jsonl").value_or(""))) {
    if (trained.find("name")->as_string() != "unigram t5") continue;
    Json file = *trained.find("tokenizer");
    const auto json = [](const char* text) { return *parse_json(text); };
    std::string map = test::charsmap_blob();
    Json precompiled = json(R"({"type": "Precompiled"})");
    std::string base64 = to_base64url(map);
    std::ranges::replace(base64, '-', '+');
    std::ranges::replace(base64, '_', '/');
    precompiled.set("precompiled_charsmap", base64);
    file.set("normalizer", precompiled);
    file.set("pre_tokenizer", json(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace",
        "replacement": "\u2581", "prepend_scheme": "always", "split": true}]})"));
    file.set("decoder", json(R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true})"));
    VocabData hf, v;
    v.ggml_model = "t5";
    v.ggml_charsmap = std::move(map);
    Json pieces = Json::array();
    for (const Json& piece : file.find("model")->find("vocab")->as_array()) {
      v.tokens.push_back(piece.as_array()[0].as_string());
      v.token_types.push_back(1);
      v.scores.push_back(static_cast<float>(piece.as_array()[1].as_double()));
      pieces.push(Json::Array{v.tokens.back(), static_cast<double>(v.scores.back())});  // GGUF has no more digits
    }
    file.find("model")->set("vocab", pieces);
    hf.tokenizer_json = dump_json(file);
    for (const Json& added : file.find("added_tokens")->as_array()) {
      const auto id = static_cast<std::size_t>(added.find("id")->as_int());
      v.token_types[id] = added.find("content")->as_string() == "<unk>" ? 2 : 3;
      v.scores[id] = -10000;
    }
    v.eos = 1;
    const auto want = make_tokenizer(hf), got = make_tokenizer(v);
    ASSERT_TRUE(want) << want.error().message;
    ASSERT_TRUE(got) << got.error().message;
    for (const Json& row : trained.find("rows")->as_array()) {
      const std::string& s = row.find("text")->as_string();
      const Ids ids = (*want)->encode(s, {});
      EXPECT_EQ((*got)->encode(s, {}), ids) << s;
      EXPECT_EQ((*got)->decode(ids, false), (*want)->decode(ids, false));
    }
    EXPECT_EQ((*got)->kind(), "Unigram");
    v.remove_extra_whitespaces = false;
    EXPECT_GT((*make_tokenizer(v))->encode("a   a", {}).size(), (*got)->encode("a   a", {}).size());
    v.add_space_prefix = false;
    EXPECT_EQ((*make_tokenizer(v))->decode((*make_tokenizer(v))->encode("a", kText), false), "a");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

// What converters write as the score of a control token is no measure for a character without a piece.
TEST(Gguf, T5UnknownCharactersAreMeasuredByThePieces) {
  VocabData v;
  v.ggml_model = "t5";
  v.tokens = {"<unk>", "</s>", "ab", "cd", "bcd"};
  v.token_types = {2, 3, 1, 1, 1};
  v.scores = {0, -10000, -30, -30, -1};
  v.add_space_prefix = false;
  const auto t = make_tokenizer(v);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ((*t)->encode("abcd", kText), (Ids{0, 4})) << "-41, where two pieces are -60";
}

TEST(Gguf, SmolLm2FromItsFile) {
  const std::string path = test::smollm2_gguf();
  if (path.empty()) GTEST_SKIP() << "skipped: no SmolLM2 GGUF";
  const auto v = test::GgufKeys::read(test::read_file(path).substr(0, 8u << 20));
  ASSERT_TRUE(v);
  const auto t = make_tokenizer(*v);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ((*t)->size(), 49152);
  EXPECT_EQ((*t)->bos(), 1);
  EXPECT_EQ((*t)->eos(), 2);
  EXPECT_EQ((*t)->special_text("eos_token"), "<|im_end|>");
  EXPECT_EQ((*t)->end_ids(), (Ids{0, 2}));
  EXPECT_EQ((*t)->encode("x", {}), (*t)->encode("x", kText)) << "the file says add_bos_token = false";
  const auto strings = test::read_data("tokenizers/strings.jsonl");
  const auto rows = test::read_data("tokenizers/smollm2.jsonl");
  ASSERT_TRUE(strings && rows);
  const auto inputs = test::parse_lines(*strings), expected = test::parse_lines(*rows);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ((*t)->encode(inputs[i].find("text")->as_string(), kText), ids_of(*expected[i].find("ids")));
  }
}

// The rendered prompt with the contents of the messages marked as coming from outside.
TEST(SmolLm2, PromptsAsMarkedText) {
  const auto goldens = test::read_data("smollm2/goldens.json");
  const auto t = test::published_tokenizer("smollm2");
  if (!goldens || !t) GTEST_SKIP() << test::kNoShared;
  const auto file = parse_json(*goldens, {.max_members = 0});
  ASSERT_TRUE(file);
  int literals = 0, cases = 0;
  for (const Json& c : file->find("cases")->as_array()) {
    const std::string& prompt = c.find("prompt")->as_string();
    const Ids want = ids_of(*c.find("prompt_ids"));
    std::vector<MarkedText> pieces;
    std::size_t at = 0;
    if (const Json* messages = c.find("messages")) {
      for (const Json& m : messages->as_array()) {
        const std::string& content = m.find("content")->as_string();
        const std::size_t begin = prompt.find(content, at);
        ASSERT_NE(begin, std::string::npos);
        pieces.push_back({std::string_view(prompt).substr(at, begin - at), true});
        pieces.push_back({std::string_view(prompt).substr(begin, content.size()), false});
        at = begin + content.size();
        literals += content.find("<|im_") != std::string::npos;
      }
    }
    pieces.push_back({std::string_view(prompt).substr(at), true});
    EXPECT_EQ(t->encode_marked(pieces), want) << c.find("id")->as_string();
    ++cases;
  }
  EXPECT_GE(cases, 20);
  EXPECT_GE(literals, 1) << "one prompt has literals of special tokens in its content";
}

TEST(Gguf, TypesOfTokens) {
  const auto t = make_tokenizer(small_gguf());
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ((*t)->encode("ab<|im_end|><tool>", kText), (Ids{94, 95, 96}));
  EXPECT_EQ((*t)->encode("<tool>", kPlain), (Ids{96}));
  EXPECT_TRUE((*t)->is_special(95));
  EXPECT_FALSE((*t)->is_special(96));
  EXPECT_EQ((*t)->size(), 97) << "rows that the converter invented are padding";
  EXPECT_EQ((*t)->token_bytes(97), "");
  EXPECT_EQ((*t)->encode("[PAD97]", kText).size(), 7u);
  EXPECT_EQ((*t)->end_ids(), (Ids{95}));
}

TEST(Gguf, BosIsImpliedByPreAndOverriddenByTheKey) {
  VocabData v = small_gguf();
  v.bos = 95;
  EXPECT_EQ((*make_tokenizer(v))->encode("a", {}), (Ids{'a' - '!'}));
  v.ggml_pre = "llama-bpe";
  EXPECT_EQ((*make_tokenizer(v))->encode("a", {}), (Ids{95, 'a' - '!'}));
  v.add_bos = false;
  v.add_eos = true;
  v.eos = 96;
  EXPECT_EQ((*make_tokenizer(v))->encode("a", {}), (Ids{'a' - '!', 96}));
}

TEST(Gguf, ControlTokensAreNoWholePieces) {
  VocabData v = small_gguf();
  v.ggml_pre = "llama-bpe";  // ignore_merges
  v.add_bos = false;
  v.tokens[95] = "EOT";
  const auto t = make_tokenizer(v);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ((*t)->encode("EOT", kPlain).size(), 3u) << "a word of a client must not become a control token";
  EXPECT_EQ((*t)->encode("EOT", kText), (Ids{95}));
}

TEST(Gguf, RefusalsNameTheKey) {
  const auto param = [](auto change) {
    VocabData v = small_gguf();
    change(v);
    const auto t = make_tokenizer(v);
    EXPECT_FALSE(t);
    if (t) return std::string();
    EXPECT_NE(t.error().message.find(t.error().param), std::string::npos);
    return t.error().param;
  };
  using V = VocabData;
  EXPECT_EQ(param([](V& v) { v.ggml_model = "rwkv"; }), "tokenizer.ggml.model");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "t5"; }), "tokenizer.ggml.scores");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "t5", v.scores.assign(v.tokens.size(), INFINITY); }), "tokenizer.ggml.scores");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "t5", v.scores.assign(v.tokens.size(), 0); }), "tokenizer.ggml.unknown_token_id");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "t5", v.scores.assign(v.tokens.size(), 0), v.tokens[5] = std::string(513, 'x'); }),
            "tokenizer.ggml.tokens");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "t5", v.scores.assign(v.tokens.size(), 0), v.unk = 3, v.ggml_charsmap = "AAAA"; }),
            "tokenizer.ggml.precompiled_charsmap");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "llama"; }), "tokenizer.ggml.scores");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "llama", v.scores.assign(v.tokens.size(), NAN); }), "tokenizer.ggml.scores");
  EXPECT_EQ(param([](V& v) { v.ggml_model = "bert"; }), "tokenizer.ggml.bos_token_id");
  EXPECT_EQ(param([](V& v) { v.ggml_pre = "somebody-new"; }), "tokenizer.ggml.pre");
  EXPECT_EQ(param([](V& v) { v.ggml_pre = ""; }), "tokenizer.ggml.pre");
  EXPECT_EQ(param([](V& v) { v.tokens.clear(); }), "tokenizer.ggml.tokens");
  EXPECT_EQ(param([](V& v) { v.token_types.pop_back(); }), "tokenizer.ggml.token_type");
  EXPECT_EQ(param([](V& v) { v.tokens.emplace_back("\xE2\x98"), v.token_types.push_back(4); }), "tokenizer.ggml.tokens")
      << "half a character, cut out of the text, would leave the other half";
  EXPECT_EQ(param([](V& v) { v.merges.emplace_back("ab"); }), "tokenizer.ggml.merges");
  EXPECT_EQ(param([](V& v) { v.merges.emplace_back("a z"); }), "tokenizer.ggml.merges");
  EXPECT_EQ(param([](V& v) { v.merges.emplace_back(""); }), "tokenizer.ggml.merges");
  EXPECT_EQ(param([](V& v) { v.bos = 99; }), "tokenizer.ggml.bos_token_id");
  EXPECT_EQ(param([](V& v) { v.eos = -1; }), "tokenizer.ggml.eos_token_id");
  EXPECT_EQ(param([](V& v) { v.add_bos = true; }), "tokenizer.ggml.bos_token_id");
}

}  // namespace
}  // namespace barg::tokenizer_gguf_test
