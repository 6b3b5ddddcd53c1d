// A tokenizer from hostile files: whatever loads must encode and decode without breaking its promises.
//
// The input is a tokenizer.json, or, after a first line "GGUF <pre>" or "GGUF <kind>:<pre>", one token a line as
// "<type digit><text>", an empty line, and one merge a line. Scores fall with the ids.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "barg/tokenizer.h"
#include "base/check.h"
#include "base/utf8.h"

namespace {

using namespace barg;

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
  return line;
}

VocabData gguf_vocab(std::string_view text) {
  VocabData v;
  const std::string_view head = take_line(text);
  const std::size_t colon = head.find(':');
  v.ggml_model = colon == std::string_view::npos ? "gpt2" : head.substr(0, colon);
  v.ggml_pre = colon == std::string_view::npos ? head : head.substr(colon + 1);
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.empty()) break;
    v.token_types.push_back(line[0] - '0');
    v.tokens.emplace_back(line.substr(1));
    v.scores.push_back(-static_cast<float>(v.scores.size() / 2));  // some are equal
  }
  while (!text.empty()) v.merges.emplace_back(take_line(text));
  v.eos = 0;
  return v;
}

void check_ids(const Tokenizer& t, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) CHECK(id >= 0 && id < t.size());
}

void exercise(const Tokenizer& t) {
  static constexpr std::string_view kTexts[] = {
      "", " ", "Hello, World!  12345", "it's\r\n\n \t<|im_end|><s></s> a\u0301\u0323 \u4e2d\u6587 \U0001F600", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
      "\xFF\xC0\x80\xED\xA0\x80"};
  for (const std::string_view text : kTexts) {
    for (const bool special : {true, false}) {
      const auto ids = t.encode(text, {.add_special_tokens = special, .parse_special_tokens = special});
      check_ids(t, ids);
      CHECK(is_valid_utf8(t.decode(ids, special)));
    }
    const std::size_t half = text.size() / 2;
    for (const bool trusted : {true, false}) {
      check_ids(t, t.encode_marked({{text.substr(0, half), trusted}, {text.substr(half), !trusted}}));
    }
    check_ids(t, t.encode_marked({{text, false}}));
  }
  check_ids(t, t.end_ids());
  for (TokenId id = -1; id <= t.size() && id < 300; ++id) (void)t.token_bytes(id), (void)t.is_special(id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  VocabData v;
  if (text.starts_with("GGUF ")) {
    v = gguf_vocab(text.substr(5));
  } else {
    v.tokenizer_json = text;
    v.tokenizer_config_json = R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<s>"})";
  }
  const auto t = make_tokenizer(v);
  if (!t) {
    CHECK(!t.error().message.empty());
    return 0;
  }
  exercise(**t);
  return 0;
}
