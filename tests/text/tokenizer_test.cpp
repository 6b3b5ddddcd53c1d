// make_tokenizer on small vocabularies written here: the rules of each field, marked text, end ids, refusals.
#include "barg/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/tokenizer_data.h"

namespace barg::tokenizer_test {
namespace {

constexpr EncodeOptions kText{.add_special_tokens = false, .parse_special_tokens = true};
constexpr EncodeOptions kPlain{.add_special_tokens = false, .parse_special_tokens = false};

// All 256 bytes (id = byte), then "ab" 256, "abc" 257, " a" 258, "aa" 259, "aaaa" 260, then what a test adds.
Json small_file() {
  Json vocab = Json::object(), merges = Json::array();
  for (int b = 0; b < 256; ++b) vocab.set(text::printable_of_byte(static_cast<unsigned char>(b)), b);
  TokenId next = 256;
  for (const char* token : {"ab", "abc", "\u0120a", "aa", "aaaa"}) vocab.set(token, next++);
  for (const char* m : {"a b", "ab c", "\u0120 a", "a a", "aa aa"}) merges.push(m);
  Json model = Json::object({{"type", "BPE"}});
  model.set("vocab", vocab);
  model.set("merges", merges);
  Json file = Json::object();
  file.set("added_tokens", Json::array());
  file.set("normalizer", nullptr);
  file.set("pre_tokenizer", Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}));
  file.set("post_processor", nullptr);
  file.set("decoder", Json::object({{"type", "ByteLevel"}}));
  file.set("model", model);
  return file;
}

Json& add_token(Json& file, TokenId id, const char* content, bool special, const char* flag = nullptr) {
  Json token = Json::object({{"id", id}, {"content", content}, {"special", special}});
  if (flag) token.set(flag, true);
  file.find("added_tokens")->push(token);
  return file;
}

std::shared_ptr<const Tokenizer> make(const Json& file, VocabData v = {}) {
  v.tokenizer_json = dump_json(file);
  auto t = make_tokenizer(v);
  EXPECT_TRUE(t) << t.error().message;
  return t ? *t : nullptr;
}

Error refusal(const Json& file) {
  VocabData v;
  v.tokenizer_json = dump_json(file);
  auto t = make_tokenizer(v);
  EXPECT_FALSE(t);
  return t ? Error{} : t.error();
}

using Ids = std::vector<TokenId>;

TEST(Tokenizer, MergesByRankLeftmostFirst) {
  const auto t = make(small_file());
  EXPECT_EQ(t->encode("abc", kText), (Ids{257}));
  EXPECT_EQ(t->encode("aaa", kText), (Ids{259, 'a'}));
  EXPECT_EQ(t->encode("aab", kText), (Ids{'a', 256})) << "a b ranks before a a";
  EXPECT_EQ(t->encode("x abc", kText), (Ids{'x', ' ', 257})) << "a b ranks before the space";
  EXPECT_EQ(t->encode("", kText), Ids{});
  EXPECT_EQ(t->encode(std::string_view("\0a", 2), kText), (Ids{0, 'a'}));
  EXPECT_EQ(t->size(), 261);
}

TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  Json file = small_file();
  file.find("model")->find("vocab")->set("xyz", 261);  // no merge makes it
  EXPECT_EQ(make(file)->encode("xyz", kText), (Ids{'x', 'y', 'z'}));
  file.find("model")->set("ignore_merges", true);
  EXPECT_EQ(make(file)->encode("xyz", kText), (Ids{261}));
  EXPECT_EQ(make(file)->encode("xyzz", kText), (Ids{'x', 'y', 'z', 'z'}));
}

TEST(Tokenizer, BothSpellingsOfMerges) {
  Json file = small_file();
  const auto strings = make(file);
  Json pairs = Json::array();
  for (const Json& m : file.find("model")->find("merges")->as_array()) {
    const std::string& line = m.as_string();
    const auto space = line.find(' ');
    pairs.push(Json::Array{line.substr(0, space), line.substr(space + 1)});
  }
  file.find("model")->set("merges", pairs);
  EXPECT_EQ(make(file)->encode("abc aaaa", kText), strings->encode("abc aaaa", kText));
}

TEST(Tokenizer, LongPiecesEqualShortOnes) {
  const auto t = make(small_file());
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string s(1 + rng() % 200, 'a');
    for (char& c : s) c = "abc"[rng() % 3];
    // The naive rule: lowest rank, leftmost, over and over.
    std::vector<std::string> parts;
    for (const char c : s) parts.emplace_back(1, c);
    const std::vector<std::pair<std::string, std::string>> ranks = {{"a", "b"}, {"ab", "c"}, {"a", "a"}, {"aa", "aa"}};
    for (bool merged = true; merged;) {
      merged = false;
      for (const auto& [left, right] : ranks) {
        for (std::size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
          if (parts[i] != left || parts[i + 1] != right) continue;
          parts[i] += right;
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    Ids want;
    for (const std::string& p : parts) want.push_back(*t->find(p));
    ASSERT_EQ(t->encode(s, kText), want) << s;
  }
}

TEST(Tokenizer, MissingBytesAreDroppedOrUnknown) {
  Json file = small_file();
  Json& vocab = *file.find("model")->find("vocab");
  std::erase_if(vocab.as_object(), [](const auto& m) { return m.first == "q" || m.first == "z"; });
  EXPECT_EQ(make(file)->encode("aqzb", kText), (Ids{256})) << "as tokenizers: what has no token is left out";
  vocab.set("<unk>", 261);
  file.find("model")->set("unk_token", "<unk>");
  EXPECT_EQ(make(file)->encode("aqzb", kText), (Ids{'a', 261, 261, 'b'}));
  file.find("model")->set("fuse_unk", true);
  EXPECT_EQ(make(file)->encode("aqzb", kText), (Ids{'a', 261, 'b'}));
}

TEST(AddedTokens, FlagsOfLiterals) {
  Json file = small_file();
  add_token(file, 300, "<s>", true);
  add_token(file, 301, "<l>", false, "lstrip");
  add_token(file, 302, "<r>", false, "rstrip");
  add_token(file, 303, "word", false, "single_word");
  add_token(file, 304, "<s>x", false);
  const auto t = make(file);
  EXPECT_EQ(t->encode("a<s>b", kText), (Ids{'a', 300, 'b'}));
  EXPECT_EQ(t->encode("<s>x", kText), (Ids{304})) << "leftmost-longest";
  EXPECT_EQ(t->encode("a \t<l> b", kText), (Ids{'a', 301, ' ', 'b'}));
  EXPECT_EQ(t->encode("a <r> \n b", kText), (Ids{'a', ' ', 302, 'b'}));
  EXPECT_EQ(t->encode("<r>  <l>", kText), (Ids{302, 301})) << "lstrip stops at the token before";
  EXPECT_EQ(t->encode("a-word-b", kText), (Ids{'a', '-', 303, '-', 'b'}));
  EXPECT_EQ(t->encode("swords", kText), (Ids{'s', 'w', 'o', 'r', 'd', 's'}));
  EXPECT_EQ(t->encode("a<s>b", kPlain), (Ids{'a', '<', 's', '>', 'b'}));
  EXPECT_EQ(t->encode("<s>x<r>", kPlain), (Ids{304, 302})) << "literals that are not special stay tokens";
  EXPECT_EQ(t->size(), 305);
  EXPECT_TRUE(t->is_special(300));
  EXPECT_FALSE(t->is_special(301));
  EXPECT_FALSE(t->is_special(-1));
  EXPECT_FALSE(t->is_special(1000));
  EXPECT_EQ(t->token_bytes(299), "") << "a hole between vocabulary and added tokens";
}

TEST(AddedTokens, NormalizedOnesAreMatchedAfterNfc) {
  Json file = small_file();
  file.set("normalizer", Json::object({{"type", "NFC"}}));
  add_token(file, 300, "e\u0301", false, "normalized");  // is normalised itself: U+00E9
  add_token(file, 301, "o\u0301", false);
  const auto t = make(file);
  EXPECT_EQ(t->encode("\u00e9", kText), (Ids{300}));
  EXPECT_EQ(t->encode("e\u0301", kText), (Ids{300}));
  EXPECT_EQ(t->encode("o\u0301", kText), (Ids{301}));
  EXPECT_EQ(t->encode("\u00f3", kText), (Ids{0xC3, 0xB3}));
}

TEST(AddedTokens, OverrideTheVocabulary) {
  Json file = small_file();
  add_token(file, 257, "<new>", true);  // 257 was "abc"
  const auto t = make(file);
  EXPECT_EQ(t->token_bytes(257), "<new>");
  EXPECT_EQ(t->find("<new>"), 257);
  EXPECT_EQ(t->encode("<new>", kText), (Ids{257}));
}

TEST(PostProcessor, BosAndEosAroundTheText) {
  Json file = small_file();
  add_token(file, 300, "<s>", true);
  add_token(file, 301, "</s>", true);
  const auto special = [](const char* id) { return Json::object({{"SpecialToken", Json::object({{"id", id}})}}); };
  Json tokens = Json::object();
  tokens.set("<s>", Json::object({{"ids", Json::Array{300}}}));
  tokens.set("</s>", Json::object({{"ids", Json::Array{301, 301}}}));
  Json processor = Json::object({{"type", "TemplateProcessing"}});
  processor.set("single", Json::Array{special("<s>"), Json::object({{"Sequence", Json::object({{"id", "A"}})}}), special("</s>")});
  processor.set("special_tokens", tokens);
  file.set("post_processor", Json::object({{"type", "Sequence"},
                                           {"processors", Json::Array{Json::object({{"type", "ByteLevel"}}), processor}}}));
  const auto t = make(file);
  EXPECT_EQ(t->encode("a", {}), (Ids{300, 'a', 301, 301}));
  EXPECT_EQ(t->encode("a", kText), (Ids{'a'}));
  EXPECT_EQ(t->encode_marked({{"a", true}}), (Ids{'a'})) << "marked text never gets a BOS";
}

TEST(PostProcessor, LlamaClassesTakeItFromTheConfig) {
  Json file = small_file();
  add_token(file, 300, "<s>", true);
  add_token(file, 301, "</s>", true);
  file.set("post_processor", Json::object({{"type", "ByteLevel"}}));
  VocabData v;
  v.tokenizer_config_json = R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true,
      "add_eos_token": false, "bos_token": {"content": "<s>"}, "eos_token": "</s>"})";
  const auto t = make(file, v);
  EXPECT_EQ(t->encode("a", {}), (Ids{300, 'a'}));
  EXPECT_EQ(t->bos(), 300);
  EXPECT_EQ(t->eos(), 301);
  EXPECT_EQ(t->special_text("bos_token"), "<s>");
  EXPECT_EQ(t->special_text("pad_token"), "");
  v.tokenizer_config_json = R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false, "add_eos_token": true,
      "bos_token": "<s>", "eos_token": "</s>"})";
  EXPECT_EQ(make(file, v)->encode("a", {}), (Ids{'a', 301}));
  v.tokenizer_config_json = R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": true, "bos_token": "<s>"})";
  EXPECT_EQ(make(file, v)->encode("a", {}), (Ids{'a'}));
}

TEST(EndIds, UnionOfIdsAndNames) {
  Json file = small_file();
  add_token(file, 300, "<|im_end|>", true);
  add_token(file, 301, "<|eot_id|>", false);  // not a control token: an ordinary word
  add_token(file, 302, "<|end|>", true);
  VocabData v;
  v.eos = 5;
  v.eos_ids = {7, 5, -3, 99999};
  v.eot = 6;
  EXPECT_EQ(make(file, v)->end_ids(), (Ids{5, 6, 7, 300, 302}));
  add_token(file, 303, "<|return|>", true);
  add_token(file, 304, "<|call|>", true);
  EXPECT_EQ(make(file, v)->end_ids(), (Ids{5, 6, 7, 300, 303, 304})) << "harmony: <|end|> ends only a message";
}

// ---- marked text

std::shared_ptr<const Tokenizer> chat_tokenizer() {
  Json file = small_file();
  add_token(file, 300, "<|im|>", true);
  add_token(file, 301, "<|end|>", true);
  add_token(file, 302, "<think>", false);
  add_token(file, 303, "|end", true);
  return make(file);
}

TEST(Marked, UntrustedLiteralsAreText) {
  const auto t = chat_tokenizer();
  const Ids plain = t->encode("<|end|>", kPlain);
  Ids want = {300, 'u'};
  want.insert(want.end(), plain.begin(), plain.end());
  want.push_back(301);
  EXPECT_EQ(t->encode_marked({{"<|im|>u", true}, {"<|end|>", false}, {"<|end|>", true}}), want);
  EXPECT_EQ(t->encode_marked({{"<think>", false}}), (Ids{302})) << "not special: a word like others";
}

TEST(Marked, ALiteralAcrossTheBorderIsText) {
  const auto t = chat_tokenizer();
  for (std::size_t cut = 1; cut < 6; ++cut) {
    const std::string_view s = "<|im|>";
    EXPECT_EQ(t->encode_marked({{s.substr(0, cut), true}, {s.substr(cut), false}}), t->encode(s, kPlain)) << cut;
    EXPECT_EQ(t->encode_marked({{s.substr(0, cut), false}, {s.substr(cut), true}}), t->encode(s, kPlain)) << cut;
    EXPECT_EQ(t->encode_marked({{s.substr(0, cut), true}, {s.substr(cut), true}}), (Ids{300})) << cut;
  }
}

TEST(Marked, TextFromOutsideCannotHideATemplatesToken) {
  const auto t = chat_tokenizer();
  // Joined it reads "<|end|>", leftmost at the user's "<"; the template's own "|end" must still count.
  EXPECT_EQ(t->encode_marked({{"<", false}, {"|end", true}, {"|>", false}}), (Ids{'<', 303, '|', '>'}));
}

TEST(Marked, NormalizedSpecialsFollowTheSameRule) {
  Json file = small_file();
  add_token(file, 300, "<r>", true);
  add_token(file, 301, "<n>", true, "normalized");
  const auto t = make(file);
  EXPECT_EQ(t->encode_marked({{"<r><n>", true}, {"a", false}}), (Ids{300, 301, 'a'}));
  EXPECT_EQ(t->encode_marked({{"<r>", true}, {"<n>", false}, {"<n>", true}}), (Ids{300, '<', 'n', '>', 301}));
}

TEST(Marked, PiecesAreJoined) {
  const auto t = chat_tokenizer();
  EXPECT_EQ(t->encode_marked({{"x ", true}, {"a", false}, {"b", true}, {"c", false}}), t->encode("x abc", kText));
}

TEST(Marked, RandomPiecesNeverMakeASpecialTokenFromOutside) {
  const auto t = chat_tokenizer();
  std::mt19937 rng(5);
  const std::vector<std::string> bits = {"<|im|>", "<|end|>", "<|", "|>", "im", "end", "<", "|end", "a", " ", "<think>"};
  int suppressed = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> texts(1 + rng() % 6);
    std::vector<MarkedText> pieces;
    std::string joined, trusted_text, untrusted;
    for (std::string& s : texts) {
      for (unsigned k = rng() % 4; k > 0; --k) s += bits[rng() % bits.size()];
      pieces.push_back({s, rng() % 2 == 0});
      joined += s;
      untrusted += std::string(s.size(), pieces.back().trusted ? '.' : 'u');
      // Special literals of the trusted runs alone: untrusted text is a border no literal crosses.
      trusted_text += pieces.back().trusted ? s : s.empty() ? "" : "\x01";
    }
    const auto count = [&](const Ids& ids) {
      return std::count_if(ids.begin(), ids.end(), [&](TokenId id) { return t->is_special(id); });
    };
    const Ids ids = t->encode_marked(pieces);
    ASSERT_EQ(t->decode(ids, false), joined);
    ASSERT_EQ(count(ids), count(t->encode(trusted_text, kText))) << joined;
    const Ids plain = t->encode(joined, kText);
    bool touched = false;  // does the plain path have a special token on untrusted bytes?
    std::size_t at = 0;
    for (const TokenId id : plain) {
      const std::size_t n = t->token_bytes(id).size();
      touched = touched || (t->is_special(id) && untrusted.substr(at, n).find('u') != std::string::npos);
      at += n;
    }
    if (!touched) {
      ASSERT_EQ(ids, plain) << joined;
    }
    suppressed += touched;
  }
  EXPECT_GT(suppressed, 500);
}

// ---- robustness

// Fewer cuts than the model's would be other ids.
TEST(Tokenizer, APatternThatGivesUpIsAnError) {
  const std::string pattern = "q*(?:xa*a*a*a*b|y)", hostile = "x" + std::string(2000, 'a');
  const Json split = Json::object({{"type", "Split"}, {"pattern", Json::object({{"Regex", pattern}})}, {"behavior", "Isolated"}});
  const Json bytes = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  Json before = small_file(), after = small_file();
  before.set("normalizer", Json::object({{"type", "Replace"}, {"pattern", Json::object({{"Regex", pattern}})}, {"content", "z"}}));
  after.set("pre_tokenizer", Json::object({{"type", "Sequence"}, {"pretokenizers", Json(Json::Array{split, bytes})}}));
  for (const Json& file : {before, after}) {
    const auto t = make(file);
    const auto ids = t->try_encode(hostile, kText), marked = t->try_encode_marked({{"y", true}, {hostile, false}});
    ASSERT_FALSE(ids);
    ASSERT_FALSE(marked);
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidValue);
    EXPECT_NE(ids.error().message.find(pattern), std::string::npos) << ids.error().message;
    EXPECT_FALSE(t->encode(hostile, kText).empty());
    const auto harmless = t->try_encode("xaaby", kText);
    ASSERT_TRUE(harmless);
    EXPECT_EQ(*harmless, t->encode("xaaby", kText));
    EXPECT_EQ(*t->try_encode_marked({{"xaaby", true}}), *harmless);
  }
}

TEST(Tokenizer, InvalidUtf8IsRepairedNotTrusted) {
  const auto t = make(small_file());
  const std::string bad = "a\xFF" "b\xE4\xB8";
  EXPECT_EQ(t->encode(bad, kText), t->encode(repair_utf8(bad), kText));
  EXPECT_EQ(t->encode_marked({{bad, false}}), t->encode(repair_utf8(bad), kText));
}

TEST(Tokenizer, EightMebibytesOfOneLetter) {
  const auto t = make(small_file());
  const std::size_t n = 8u << 20;
  const Ids ids = t->encode(std::string(n, 'a'), kText);
  EXPECT_EQ(ids.size(), n / 4);
  EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [](TokenId id) { return id == 260; }));
}

// Merges whose result is one of their halves: each takes a symbol away all the same, so there is an end.
TEST(Tokenizer, MergesInCirclesEnd) {
  Json file = small_file();
  Json& model = *file.find("model");
  model.find("vocab")->set("", 261);
  Json merges = Json::array();
  for (const char* m : {"a ", " a", " ", "a a", "aa ", "aa aa"}) merges.push(m);
  model.set("merges", merges);
  const auto t = make(file);
  const std::size_t n = 100'000;
  const Ids ids = t->encode(std::string(n, 'a'), kText);
  EXPECT_EQ(ids.size(), n / 4);
  EXPECT_EQ(t->decode(ids, false), std::string(n, 'a'));
}

TEST(Tokenizer, EndlessCombiningMarksAreNotQuadratic) {
  Json file = small_file();
  file.set("normalizer", Json::object({{"type", "NFC"}}));
  const auto t = make(file);
  std::string s = "a";
  for (int i = 0; i < 500'000; ++i) s += "\u0301\u0323";  // classes 230, 220: each pair is out of order
  EXPECT_EQ(t->encode(s, kText).size(), 2u * 1'000'000u + 1) << "U+1EA1 takes one U+0323; the rest stays";
}

TEST(Tokenizer, ManyThreadsEncodeAtOnce) {
  const auto t = make(small_file());
  const std::string s = "abc aaaa \u00e9 abc \u4e2d 123 aab";
  const Ids want = t->encode(s, kText);
  std::vector<std::jthread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t k = 0; k < wrong.size(); ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < 500; ++i) wrong[k] += t->encode(s, kText) != want;
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// ---- refusals

TEST(Refused, EveryUnsupportedFieldIsNamed) {
  const auto with = [](const char* key, Json value) {
    Json file = small_file();
    file.set(key, std::move(value));
    return refusal(file);
  };
  const auto model = [](const char* key, Json value) {
    Json file = small_file();
    file.find("model")->set(key, std::move(value));
    return refusal(file);
  };
  const auto type = [](const char* name) { return Json::object({{"type", name}}); };
  const auto split = [](const char* pattern) {
    return Json::object({{"type", "Split"}, {"pattern", Json::object({{"Regex", pattern}})}, {"behavior", "Isolated"}});
  };
  EXPECT_EQ(model("type", "Wordy").param, "model.type");
  EXPECT_EQ(model("end_of_word_suffix", std::string(65, 'w')).param, "model.end_of_word_suffix");
  EXPECT_EQ(model("unk_token", "<nope>").param, "model.unk_token");
  EXPECT_EQ(with("normalizer", type("NFX")).param, "normalizer.type");
  EXPECT_EQ(with("normalizer", Json::object({{"type", "Prepend"}, {"prepend", std::string(65, 'p')}})).param,
            "normalizer.prepend");
  EXPECT_EQ(with("normalizer", Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}})).param,
            "normalizer.precompiled_charsmap");
  EXPECT_EQ(with("pre_tokenizer", type("UnicodeScripts")).param, "pre_tokenizer.type");
  EXPECT_EQ(with("pre_tokenizer", type("Metaspace")).param, "pre_tokenizer.replacement");
  EXPECT_EQ(with("pre_tokenizer", split("(")).param, "pre_tokenizer.pattern.Regex");
  EXPECT_EQ(with("pre_tokenizer", split("[a&&b]")).param, "pre_tokenizer.pattern.Regex");
  EXPECT_EQ(with("post_processor", type("PairProcessing")).param, "post_processor.type");
  EXPECT_EQ(with("post_processor", type("RobertaProcessing")).param, "post_processor.cls");
  EXPECT_EQ(with("decoder", type("WordPiece")).param, "decoder.type");
  EXPECT_EQ(with("decoder", nullptr).param, "decoder.type");
  for (const Error& e : {model("type", "Wordy"), with("decoder", type("WordPiece")), with("decoder", type("CTC"))}) {
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_NE(e.message.find(e.param), std::string::npos) << "the message says which field";
  }
}

TEST(Refused, MalformedFiles) {
  const auto code = [](const std::string& text) {
    VocabData v;
    v.tokenizer_json = text;
    const auto t = make_tokenizer(v);
    EXPECT_FALSE(t) << text;
    return t ? ErrorCode::kInternal : t.error().code;
  };
  EXPECT_EQ(code("{"), ErrorCode::kBadFile);
  EXPECT_EQ(code("[]"), ErrorCode::kBadFile);
  EXPECT_EQ(code("{}"), ErrorCode::kBadFile);
  const auto model = [](Json vocab, Json merges) {
    Json file = small_file();
    file.find("model")->set("vocab", std::move(vocab));
    file.find("model")->set("merges", std::move(merges));
    return refusal(file).param;
  };
  const Json ab = Json::object({{"a", 0}, {"b", 1}});
  EXPECT_EQ(model(Json::object({{"a", -1}}), Json::array()), "model.vocab");
  EXPECT_EQ(model(Json::object({{"a", 2147483647}}), Json::array()), "model.vocab");
  EXPECT_EQ(model(Json::object({{"a", 1.5}}), Json::array()), "model.vocab");
  EXPECT_EQ(model(Json::object({{"a", 0}, {"b", 0}}), Json::array()), "model.vocab");
  EXPECT_EQ(model(ab, Json::Array{"ab"}), "model.merges");
  EXPECT_EQ(model(ab, Json::Array{"a b"}), "model.merges") << "\"ab\" is no token";
  EXPECT_EQ(model(ab, Json::Array{"a b c"}), "model.merges");
  EXPECT_EQ(model(ab, Json::Array{7}), "model.merges");
  Json file = small_file();
  add_token(file, 1 << 20, "<far>", true);
  EXPECT_EQ(refusal(file).param, "added_tokens.id");
  EXPECT_FALSE(make_tokenizer(VocabData{})) << "no tokenizer at all";
}

TEST(Refused, AnEndlessTemplate) {
  Json file = small_file(), items = Json::array();
  const Json item = Json::object({{"SpecialToken", Json::object({{"id", "a"}})}});
  const Json ids = Json::object({{"a", Json::object({{"ids", Json::Array{97}}})}});
  for (int i = 0; i < 64; ++i) items.push(item);
  const auto set = [&] {
    Json processor = Json::object({{"type", "TemplateProcessing"}, {"single", items}, {"special_tokens", ids}});
    file.set("post_processor", std::move(processor));
  };
  set();
  EXPECT_EQ(make(file)->encode("", {}).size(), 64u);
  items.push(item);
  set();
  EXPECT_EQ(refusal(file).param, "post_processor.single");
}

TEST(Refused, ALiteralThatNfcMakesTooLong) {
  std::string notes;  // U+1D160 is three code points in NFC
  for (int i = 0; i < 1000; ++i) notes += "\U0001D160";
  Json file = small_file();
  add_token(file, 300, notes.c_str(), false, "normalized");
  EXPECT_NE(make(file), nullptr) << "4,000 bytes as they are";
  file.set("normalizer", Json::object({{"type", "NFC"}}));
  EXPECT_EQ(refusal(file).param, "added_tokens");
}

}  // namespace
}  // namespace barg::tokenizer_test
