// Models, normalizers and decoders other than byte-level BPE, on small vocabularies written here: the rules that no
// file of the data shows, the bounds, and what text of a client must not become.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/charsmap_data.h"
#include "text/detokenizer.h"
#include "text/grammar/vocabulary.h"
#include "text/normalizer.h"
#include "text/token_model.h"
#include "text/tokenizer_data.h"
#include "text/unicode_classes.h"

namespace barg::tokenizer_models_test {
namespace {

using Ids = std::vector<TokenId>;
constexpr EncodeOptions kText{.add_special_tokens = false, .parse_special_tokens = true};
constexpr EncodeOptions kPlain{.add_special_tokens = false, .parse_special_tokens = false};

Json parsed(std::string_view text) {
  auto j = parse_json(text);
  EXPECT_TRUE(j) << j.error().message;
  return j ? *j : Json();
}

Result<std::shared_ptr<const Tokenizer>> try_make(const Json& file) {
  VocabData v;
  v.tokenizer_json = dump_json(file);
  return make_tokenizer(v);
}

std::shared_ptr<const Tokenizer> make(const Json& file) {
  auto t = try_make(file);
  EXPECT_TRUE(t) << t.error().message;
  return t ? *t : nullptr;
}

// <unk> <s> </s>, the 256 bytes from 3, then U+2581, a, b, _a, ab, aa, aaaa.
constexpr TokenId kMark = 259, kA = 260, kB = 261, kSpaceA = 262, kAb = 263, kAa = 264, kAaaa = 265;
Json vocabulary() {
  Json vocab = Json::object({{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}});
  for (int b = 0; b < 256; ++b) vocab.set(std::string(text::token_of_byte(static_cast<unsigned char>(b))), 3 + b);
  TokenId next = kMark;
  for (const char* t : {"\u2581", "a", "b", "\u2581a", "ab", "aa", "aaaa"}) vocab.set(t, next++);
  return vocab;
}

Json specials() {
  Json list = Json::array();
  for (const auto& [content, id] : {std::pair("<unk>", 0), {"<s>", 1}, {"</s>", 2}}) {
    list.push(Json::object({{"id", id}, {"content", content}, {"special", true}}));
  }
  return list;
}

Json sentence_piece() {
  Json file = parsed(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}, "pre_tokenizer": null,
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "merges": [["\u2581", "a"], ["a", "b"], ["a", "a"], ["aa", "aa"]]}})");
  file.find("model")->set("vocab", vocabulary());
  file.set("added_tokens", specials());
  return file;
}

Json unigram() {
  Json file = sentence_piece(), pieces = Json::array();
  const Json ids = vocabulary();
  for (const auto& [piece, id] : ids.as_object()) pieces.push(Json::Array{piece, -1.0 - 0.001 * static_cast<double>(id.as_int())});
  file.set("model", Json::object({{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", true}}));
  file.find("model")->set("vocab", pieces);
  return file;
}

Json word_piece(int max_chars = 100) {
  Json file = parsed(R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "un": 3,
      "##aff": 4, "##able": 5, "##a": 6, "a": 7, "aa": 8, "##aa": 9, ".": 10, "e": 11, "\u4e2d": 12}}})");
  file.find("model")->set("max_input_chars_per_word", max_chars);
  Json list = Json::array();
  for (const auto& [content, id] : {std::pair("[UNK]", 0), {"[CLS]", 1}, {"[SEP]", 2}}) {
    list.push(Json::object({{"id", id}, {"content", content}, {"special", true}}));
  }
  file.set("added_tokens", list);
  return file;
}

TEST(SentencePiece, SpacesBytesAndTheFirstWord) {
  const auto t = make(sentence_piece());
  EXPECT_EQ(t->encode("a ab", kText), (Ids{kSpaceA, kSpaceA, kB})) << "the mark merges before b does";
  EXPECT_EQ(t->encode("\u00e9", kText), (Ids{kMark, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(t->encode("b<s>b", kText), (Ids{kMark, kB, 1, kMark, kB})) << "each piece between literals is prefixed";
  EXPECT_EQ(t->encode("", kText), Ids{});
  EXPECT_EQ(t->decode({kSpaceA, kSpaceA, kB}, false), "a ab");
  EXPECT_EQ(t->token_bytes(kSpaceA), " a");
  EXPECT_EQ(t->first_token_bytes(kSpaceA), "a");
  EXPECT_EQ(t->token_bytes(3 + 0xC3), "\xC3");
  EXPECT_EQ(t->token_bytes(1), "<s>");
}

TEST(SentencePiece, TokensOfGrammarsAreTheBytesThatAreShown) {
  const auto t = make(sentence_piece());
  const auto v = text::grammar::make_vocabulary(*t, {}, t->size());
  EXPECT_EQ(v->find(" a"), kSpaceA);
  EXPECT_EQ(v->single(0xC3), 3 + 0xC3);
  EXPECT_EQ(v->find("<s>"), kNoToken);
  text::Detokenizer shown(*t, true);
  shown.continue_text();
  std::string all;
  for (const TokenId id : {kSpaceA, kB, 3 + 0xC3, 3 + 0xA9}) {
    EXPECT_EQ(v->bytes(id), t->token_bytes(id));
    shown.push(id, all);
  }
  EXPECT_EQ(all, " ab\u00e9");
}

TEST(Unigram, BestSumOfScores) {
  Json file = unigram();
  file.set("normalizer", nullptr);
  file.find("model")->set("vocab", parsed(R"([["<unk>", 0], ["<s>", 0], ["</s>", 0], ["a", 0], ["b", 0], ["c", 0],
    ["d", 0], ["cd", 1], ["ab", 2], ["abc", 5], ["abcd", 10]])"));
  file.find("model")->set("byte_fallback", false);
  const auto t = make(file);
  EXPECT_EQ(t->encode("abcdacdxx", kText), (Ids{10, 3, 7, 0})) << "unknowns in a row are one";
  EXPECT_EQ(t->encode("xaxx", kText), (Ids{0, 3, 0}));
}

TEST(Unigram, OfEqualSumsTheLongestLastPieceIsKept) {
  Json file = unigram();
  file.set("normalizer", nullptr);
  file.find("model")->set("vocab", parsed(R"([["<unk>", -9], ["a", -1], ["aa", -2], ["aaa", -3]])"));
  file.set("added_tokens", nullptr);
  EXPECT_EQ(make(file)->encode("aaaa", kText), (Ids{1, 3})) << "as in tokenizers";
}

TEST(WordPiece, LongestFirstOrUnknown) {
  const auto t = make(word_piece());
  EXPECT_EQ(t->encode("Un\u00e1ff\u00e0ble.", {}), (Ids{1, 3, 4, 5, 10, 2}));
  EXPECT_EQ(t->encode("unb a", kText), (Ids{0, 7}));
  EXPECT_EQ(t->encode("a\u4e2da", kText), (Ids{7, 12, 7})) << "a Chinese character is a word";
  EXPECT_EQ(t->encode(std::string(101, 'a'), kText), (Ids{0}));
  EXPECT_EQ(t->decode({3, 4, 5, 10, 7}, false), "unaffable. a");
  EXPECT_EQ(t->decode({4, 7}, false), "##aff a");
}

TEST(Models, TextOfAClientIsNoControlToken) {
  for (Json file : {sentence_piece(), unigram()}) {
    const auto t = make(file);
    for (const bool trusted : {false, true}) {
      const Ids ids = t->encode_marked({{"a ", true}, {"</s>", trusted}, {"<s>", trusted}});
      for (const TokenId id : ids) EXPECT_FALSE(!trusted && t->is_special(id));
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), trusted ? 1 : 0);
    }
  }
  Json words = word_piece();
  words.set("pre_tokenizer", Json::object({{"type", "WhitespaceSplit"}}));
  words.set("normalizer", nullptr);
  EXPECT_EQ(make(words)->encode("[SEP]", kPlain), (Ids{0}));
  words.set("model", parsed(R"({"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}})"));
  EXPECT_EQ(make(words)->encode("[SEP]", kPlain), (Ids{0}));
  EXPECT_EQ(make(words)->encode("[SEP]", kText), (Ids{2}));
}

TEST(Models, EightMebibytesOfOneLetter) {
  const std::size_t n = 8U << 20;
  const std::string letters(n, 'a'), unknown(n, 'z');
  EXPECT_EQ(make(sentence_piece())->encode(letters, kText).size(), n / 4 + 2) << "_a, fours, two and one";
  const auto pieces = make(unigram());
  EXPECT_EQ(pieces->encode(letters, kText).size(), n / 4 + 1);
  EXPECT_EQ(pieces->encode(unknown, kText).size(), n + 1) << "the bytes of one long unknown";
  EXPECT_EQ(make(word_piece())->encode(letters, kText), (Ids{0}));
  EXPECT_EQ(make(word_piece(INT32_MAX))->encode(letters, kText).size(), n / 2);
}

TEST(Models, NormalizersDoNotGrowWithoutEnd) {
  Json file = sentence_piece(), parts = Json::array();
  const std::string content(64, 'a');
  for (int i = 0; i < 60; ++i) {
    parts.push(Json::object({{"type", "Replace"}, {"pattern", Json::object({{"String", "a"}})}, {"content", content}}));
  }
  file.set("normalizer", Json::object({{"type", "Sequence"}, {"normalizers", parts}}));
  EXPECT_LT(make(file)->encode(std::string(1000, 'a'), kText).size(), 100'000u);
}

TEST(Models, DecodersDoNotGrowWithoutEnd) {
  Json file = sentence_piece(), steps = Json::array();
  const std::string content(64, 'a');
  for (int i = 0; i < 4; ++i) {
    steps.push(Json::object({{"type", "Replace"}, {"pattern", Json::object({{"String", "a"}})}, {"content", content}}));
  }
  file.set("decoder", Json::object({{"type", "Sequence"}, {"decoders", steps}}));
  EXPECT_EQ(make(file)->token_bytes(kA), content) << "once; 64 times that is too much";
}

/// `part` of a SentencePiece file replaced.
std::optional<std::size_t> most_with(const char* part, std::string_view value) {
  Json file = sentence_piece();
  file.set(part, parsed(value));
  return make(file)->max_text_bytes();
}

TEST(Models, BytesThatATokenStandsForAtMost) {
  using Most = std::optional<std::size_t>;
  EXPECT_EQ(make(sentence_piece())->max_text_bytes(), Most(6)) << "<0x0A> is the longest spelling";
  EXPECT_EQ(make(unigram())->max_text_bytes(), Most(6));
  EXPECT_EQ(make(word_piece())->max_text_bytes(), Most()) << "any word may be [UNK], and spaces are in no token";
  Json file = sentence_piece();
  file.find("model")->set("byte_fallback", false);
  EXPECT_EQ(make(file)->max_text_bytes(), Most()) << "a row of unknown characters is one token";
  file.find("model")->set("fuse_unk", false);
  EXPECT_EQ(make(file)->max_text_bytes(), Most(6));
  file.find("model")->set("unk_token", nullptr);
  EXPECT_EQ(make(file)->max_text_bytes(), Most()) << "unknown characters are dropped";
  file = unigram();
  file.find("model")->set("byte_fallback", false);
  EXPECT_EQ(make(file)->max_text_bytes(), Most());
  // Normalizers: what they drop, and what they make shorter.
  EXPECT_EQ(most_with("normalizer", R"({"type": "NFKC"})"), Most(24));
  EXPECT_EQ(most_with("normalizer", R"({"type": "Lowercase"})"), Most(18));
  EXPECT_EQ(most_with("normalizer", R"({"type": "ByteLevel"})"), Most(6));
  EXPECT_EQ(most_with("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})"), Most(72));
  EXPECT_EQ(most_with("normalizer", R"({"type": "Replace", "pattern": {"String": "abcde"}, "content": "ab"})"), Most(18));
  for (const char* dropping :
       {R"({"type": "StripAccents"})", R"({"type": "Strip"})", R"({"type": "Nmt"})", R"({"type": "BertNormalizer"})",
        R"({"type": "Replace", "pattern": {"String": "a"}, "content": ""})",
        R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": "a"})",
        R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})"})
    EXPECT_EQ(most_with("normalizer", dropping), Most()) << dropping;
  // Pre-tokenizers.
  EXPECT_EQ(most_with("pre_tokenizer", R"({"type": "Digits"})"), Most(6));
  EXPECT_EQ(most_with("pre_tokenizer", R"({"type": "Metaspace", "replacement": "_"})"), Most(6));
  for (const char* dropping : {R"({"type": "WhitespaceSplit"})", R"({"type": "Whitespace"})",
                               R"({"type": "CharDelimiterSplit", "delimiter": "x"})",
                               R"({"type": "Punctuation", "behavior": "Removed"})"})
    EXPECT_EQ(most_with("pre_tokenizer", dropping), Most()) << dropping;
  // Literals, and the spaces that some take along.
  const std::string literal(100, 'x'), tail = R"(, "content": ")" + literal + R"("}])";
  EXPECT_EQ(most_with("added_tokens", R"([{"id": 300)" + tail), Most(100));
  EXPECT_EQ(most_with("added_tokens", R"([{"id": 300, "rstrip": true)" + tail), Most());
  EXPECT_EQ(most_with("added_tokens", R"([{"id": 300, "lstrip": true)" + tail), Most());
}

// Of every character, and of what has the most bytes for the form's: the factors that max_text_bytes() counts on.
TEST(Models, NormalFormsShrinkTextByTheirFactorAtMost) {
  const auto check = [](const text::NormalizerPtr& n, const std::string& s) {
    const std::string out = text::normalized(n.get(), s);
    ASSERT_LE(s.size(), out.size() * *n->shrinks()) << s << " becomes " << out;
  };
  using text::NormalForm;
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    const auto n = text::form_normalizer(form);
    for (char32_t cp = 1; cp < 0x110000; ++cp) {
      std::string s;
      if (cp < 0xD800 || cp > 0xDFFF) append_utf8(s, cp);
      check(n, s);
    }
    for (const char* s : {"\u1112\u1161\u11ab", "\u2126\u0313\u0300\u0345", "\U0001D6FC\u0313\u0300\u0345", "\U0001D400\u0300"})
      check(n, s);
  }
  const auto lower = text::lowercase_normalizer();
  for (char32_t cp = 1; cp < 0x110000; ++cp) {
    std::string s;
    if (cp < 0xD800 || cp > 0xDFFF) append_utf8(s, cp);
    check(lower, s);
  }
}

TEST(Models, RefusalsNameTheField) {
  const auto param = [](Json file, const char* part, std::string_view value) {
    file.set(part, parsed(value));
    const auto t = try_make(file);
    EXPECT_FALSE(t) << value;
    return t ? std::string() : t.error().param;
  };
  const Json spm = sentence_piece();
  EXPECT_EQ(param(spm, "model", R"({"type": "Unigram", "vocab": [["a", 0]]})"), "model.unk_id");
  EXPECT_EQ(param(spm, "model", R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})"), "model.unk_id");
  EXPECT_EQ(param(spm, "model", R"({"type": "Unigram", "vocab": [["a"]], "unk_id": 0})"), "model.vocab");
  EXPECT_EQ(param(spm, "model", R"({"type": "WordPiece", "vocab": {"a": 0}})"), "model.unk_token");
  EXPECT_EQ(param(spm, "model", R"({"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "b"})"), "model.unk_token");
  EXPECT_EQ(param(spm, "model", R"({"type": "Unigram", "unk_id": 0, "vocab": [[")" + std::string(513, 'a') + R"(", 0]]})"),
            "model.vocab");
  EXPECT_EQ(param(spm, "model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "b"})"), "model.unk_token");
  EXPECT_EQ(param(spm, "decoder", R"({"type": "CTC"})"), "decoder.type");
  EXPECT_EQ(param(spm, "decoder", R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
      {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})"), "decoder.decoders.type");
  EXPECT_EQ(param(spm, "decoder", R"({"type": "BPEDecoder", "suffix": "</w>"})"), "decoder.type");
  const std::string fused = R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, )";
  EXPECT_EQ(param(spm, "decoder", fused + R"({"type": "Metaspace", "replacement": "_"}]})"), "decoder.decoders.type");
  EXPECT_EQ(param(spm, "decoder", fused + R"({"type": "Strip", "content": " ", "start": 0, "stop": 1}]})"),
            "decoder.decoders.stop");
  EXPECT_EQ(param(spm, "decoder", fused + R"({"type": "Strip", "content": " ", "start": 2, "stop": 0}]})"),
            "decoder.decoders.start");
  EXPECT_EQ(param(spm, "normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "a"})"),
            "normalizer.pattern.String");
  EXPECT_EQ(param(spm, "normalizer", R"({"type": "Replace", "pattern": {"Regex": "(?<=a*)b"}, "content": "a"})"),
            "normalizer.pattern.Regex");
  EXPECT_EQ(param(spm, "post_processor", R"({"type": "BertProcessing", "sep": ["x", 9999], "cls": ["y", 1]})"),
            "post_processor");
  EXPECT_EQ(param(spm, "post_processor", R"({"type": "BertProcessing", "sep": ["x", -1], "cls": ["y", 1]})"),
            "post_processor.sep");
  EXPECT_EQ(param(spm, "post_processor", R"({"type": "Sequence", "processors": [{"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]},
      {"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}]})"), "post_processor.processors.type");
  EXPECT_EQ(param(spm, "pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated"})"),
            "pre_tokenizer.pattern.Regex");
  EXPECT_EQ(param(spm, "added_tokens", R"([{"id": -1, "content": "x"}])"), "added_tokens.id");
  EXPECT_EQ(param(spm, "normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "!"})"),
            "normalizer.precompiled_charsmap");
  EXPECT_EQ(param(spm, "pre_tokenizer", R"({"type": "FixedLength", "length": 0})"), "pre_tokenizer.length");
  EXPECT_EQ(param(spm, "pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})"), "pre_tokenizer.replacement");
  EXPECT_EQ(param(spm, "pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "always"})"),
            "pre_tokenizer.add_prefix_space");
}

// ---- Unicode

std::string hex_of(std::string_view s) {
  std::string out;
  char buffer[16];
  for (std::size_t i = 0; i < s.size();) {
    const text::CodePoint c = text::decode_utf8(s, i);
    i += c.bytes;
    std::snprintf(buffer, sizeof buffer, out.empty() ? "%X" : ".%X", static_cast<unsigned>(c.value));
    out += buffer;
  }
  return out;
}

// Every code point's NFD, NFKD and lower case, and its classes, as tokenizers 0.23.3 has them: one hash of all.
TEST(Unicode, EveryCodePointAsInTokenizers) {
  std::string all;
  for (char32_t cp = 0; cp < 0x110000; ++cp) {
    if (cp >= 0xD800 && cp < 0xE000) continue;
    std::string s, lower;
    append_utf8(s, cp);
    text::append_lower(lower, cp);
    all += hex_of(s) + " " + hex_of(text::to_form(text::NormalForm::kNfd, s)) + " " +
           hex_of(text::to_form(text::NormalForm::kNfkd, s)) + " " + hex_of(lower);
    for (const bool is : {text::is_old_mark(cp), text::is_old_nonspacing(cp), text::is_old_punctuation(cp),
                          (text::char_class(cp) & text::kSpace) != 0, text::is_word(cp)}) {
      all += is ? " 1" : " 0";
    }
    all += "\n";
  }
  EXPECT_EQ(hex(sha256(all.data(), all.size())), "ce97b7fbe9ad881d9a0f5d94680a0958e540dabda9bef708eea76e776ba96962");
}

TEST(Unicode, FormsOfText) {
  using text::NormalForm;
  using text::to_form;
  EXPECT_EQ(to_form(NormalForm::kNfkc, "\uFB01\u00B2 e\u0301"), "fi2 \u00e9");
  EXPECT_EQ(to_form(NormalForm::kNfd, "\uAC01"), "\u1100\u1161\u11A8");
  EXPECT_EQ(to_form(NormalForm::kNfkc, "\u32FF"), "\u32FF") << "newer than tokenizers' tables";
  EXPECT_TRUE(text::is_old_control(0xAD));
  EXPECT_FALSE(text::is_old_control('\n'));
}

// ---- SentencePiece's compiled map

TEST(Charsmap, MapsClustersAndCharacters) {
  const auto map = text::charsmap_normalizer(test::charsmap_blob());
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(text::normalized(map->get(), "x\uFB01\u00B2"), "xfi2");
  EXPECT_EQ(text::normalized(map->get(), "e\u0301"), "\u00e9") << "a cluster as a whole";
  EXPECT_EQ(text::normalized(map->get(), "a\r\nb"), "a b");
  EXPECT_EQ(text::normalized(map->get(), "a\u200Bb"), "ab");
}

TEST(Charsmap, BrokenBlobsAreRefusedOrHarmless) {
  std::string blob = test::charsmap_blob();
  EXPECT_FALSE(text::charsmap_normalizer(""));
  EXPECT_FALSE(text::charsmap_normalizer(std::string(4, '\0')));
  EXPECT_FALSE(text::charsmap_normalizer(std::string(8, '\x7F')));
  for (std::size_t i = 4; i < blob.size(); i += 7) {
    std::string broken = blob;
    broken[i] = static_cast<char>(~broken[i]);
    const auto map = text::charsmap_normalizer(broken);
    if (!map) continue;
    EXPECT_TRUE(is_valid_utf8(text::normalized(map->get(), "e\u0301 \uFB01\u00B2\r\n\u200B xyz")));
  }
}

}  // namespace
}  // namespace barg::tokenizer_models_test
