// FakeTokenizer: ids 0..255 are single bytes, then a few special tokens and multi-byte pieces. Small enough
// that a test can write token lists by hand, wicked enough to split characters. FakeTemplate: one line per
// message.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "barg/tokenizer.h"
#include "text/chat_template.h"

namespace barg::test {

inline constexpr TokenId kEnd = 256;    // "<|end|>": ends a generation
inline constexpr TokenId kStart = 257;  // "<|start|>": BOS
inline constexpr TokenId kHello = 258, kWorld = 259, kEmojiHead = 260, kEmojiTail = 261, kHalf = 262;
/// Markers of a dialect: those of reasoning are shown, those of calls are special.
inline constexpr TokenId kThink = 263, kThinkEnd = 264, kCall = 265, kCallEnd = 266;
inline constexpr std::int32_t kFakeVocab = 267;

class FakeTokenizer final : public Tokenizer {
 public:
  FakeTokenizer() {
    for (int b = 0; b < 256; ++b) pieces_.emplace_back(1, static_cast<char>(b));
    for (const char* s : {"<|end|>", "<|start|>", "Hello", " world", "\xF0\x9F", "\x98\x80", "D\xF0", "<think>", "</think>",
                          "<tool_call>", "</tool_call>"})
      pieces_.emplace_back(s);
  }
  /// Called with every text before it is encoded, on the encoding thread.
  std::function<void(std::string_view)> on_encode;

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    if (on_encode) on_encode(text);
    std::vector<TokenId> ids;
    if (options.add_special_tokens) ids.push_back(kStart);
    append(text, options.parse_special_tokens, ids);
    return ids;
  }
  std::vector<TokenId> encode_marked(const std::vector<MarkedText>& pieces) const override {
    std::vector<TokenId> ids;
    for (const MarkedText& p : pieces) append(p.text, p.trusted, ids);
    return ids;
  }
  /// Text that try_encode gives up on; empty: none.
  std::string gives_up_on;
  Result<std::vector<TokenId>> try_encode(std::string_view text, const EncodeOptions& options) const override {
    if (!gives_up_on.empty() && text.find(gives_up_on) != text.npos) return fail(ErrorCode::kInvalidValue, "gives up");
    return encode(text, options);
  }
  Result<std::vector<TokenId>> try_encode_marked(const std::vector<MarkedText>& pieces) const override {
    for (const MarkedText& p : pieces) {
      if (auto ids = try_encode(p.text, {}); !ids) return ids;
    }
    return encode_marked(pieces);
  }
  std::string_view token_bytes(TokenId id) const override {
    return id >= 0 && id < kFakeVocab ? std::string_view(pieces_[static_cast<std::size_t>(id)])
                                      : std::string_view();
  }
  bool is_special(TokenId id) const override {
    return id == kEnd || id == kStart || id == kCall || id == kCallEnd;
  }
  bool is_added(TokenId id) const override { return is_special(id) || id == kThink || id == kThinkEnd; }
  const std::vector<TokenId>& end_ids() const override { return ends_; }
  std::optional<TokenId> bos() const override { return kStart; }
  std::optional<TokenId> eos() const override { return kEnd; }
  std::string_view special_text(std::string_view role) const override {
    return role == "bos_token" ? "<|start|>" : role == "eos_token" ? "<|end|>" : "";
  }
  std::optional<TokenId> find(std::string_view token) const override {
    for (TokenId id = 0; id < kFakeVocab; ++id) {
      if (token_bytes(id) == token) return id;
    }
    return std::nullopt;
  }
  std::int32_t size() const override { return kFakeVocab; }
  std::optional<std::size_t> max_text_bytes() const override {
    if (!bounded) return std::nullopt;
    std::size_t longest = 1;
    for (const std::string& p : pieces_) longest = std::max(longest, p.size());
    return longest;
  }
  bool bounded = true;  ///< as one with an unknown word is not

 private:
  void append(std::string_view text, bool special, std::vector<TokenId>& ids) const {
    for (std::size_t i = 0; i < text.size();) {
      TokenId found = kNoToken;
      for (const TokenId id : {kEnd, kStart, kThink, kThinkEnd, kCall, kCallEnd}) {
        if (special && text.substr(i).starts_with(token_bytes(id))) found = id;
      }
      ids.push_back(found != kNoToken ? found : static_cast<unsigned char>(text[i]));
      i += token_bytes(ids.back()).size();
    }
  }
  std::vector<std::string> pieces_;
  std::vector<TokenId> ends_ = {kEnd};
};

class FakeTemplate final : public text::ChatTemplate {
 public:
  Result<text::MarkedString> render(const text::ChatPrompt& prompt) const override {
    text::MarkedString out;
    if (!prompt.tools.is_null()) out.text += "<|start|>tools\n" + dump_json(prompt.tools) + "\n";
    for (const Json& m : prompt.messages.as_array()) {
      const std::string role = m.find("role")->as_string();
      if (role == "developer") return fail(ErrorCode::kInvalidValue, "no developers here", "messages");
      out.text += "<|start|>" + role + "\n";
      const Json* content = m.find("content");
      const std::size_t begin = out.text.size();
      if (content && content->is_string()) out.text += content->as_string();
      if (out.text.size() > begin) out.untrusted.emplace_back(begin, out.text.size());
      const bool last = &m == &prompt.messages.as_array().back();
      if (!(last && prompt.continue_final_message)) out.text += "<|end|>\n";
    }
    if (prompt.add_generation_prompt) out.text += "<|start|>assistant\n";
    const std::string& effort = prompt.reasoning_effort;
    if (prompt.thinking.value_or(!effort.empty() && effort != "none")) out.text += "<think>";
    return out;
  }
  /// It has a switch and no levels.
  text::AppliedOptions applied(const text::ChatPrompt& prompt) const override {
    text::TemplateTraits traits;
    traits.thinking_variables = {"enable_thinking"};
    return text::apply_options(traits, prompt.thinking, prompt.reasoning_effort, prompt.kwargs);
  }
  bool has_template() const override { return true; }
  const std::string& source() const override { return source_; }

 private:
  std::string source_ = "fake";
};

inline std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace barg::test
