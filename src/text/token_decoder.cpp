#include "text/token_decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/bpe.h"

namespace barg::text {
namespace {

constexpr std::size_t kMaxGrowth = 256;  ///< bytes; a file that would make more of a token gets it unchanged

std::string replaced(std::string_view text, const std::vector<Span>& matches, std::string_view content) {
  std::string out;
  std::size_t at = 0;
  for (const Span& m : matches) {
    out.append(text, at, m.begin - at);
    out += content;
    at = m.end;
  }
  return out.append(text, at);
}

std::string replace_all(std::string_view text, const std::string& pattern, std::string_view content) {
  std::vector<Span> matches;
  (void)literal_matcher(pattern)->find_all(text, matches);  // never gives up
  return replaced(text, matches, content);
}

// What a tokenizer's cleanup takes back, in this order.
std::string clean_up(std::string text) {
  static constexpr std::array<std::pair<const char*, const char*>, 11> kRules = {{{" .", "."},
                                                                                 {" ?", "?"},
                                                                                 {" !", "!"},
                                                                                 {" ,", ","},
                                                                                 {" ' ", "'"},
                                                                                 {" n't", "n't"},
                                                                                 {" 'm", "'m"},
                                                                                 {" do not", " don't"},
                                                                                 {" 's", "'s"},
                                                                                 {" 've", "'ve"},
                                                                                 {" 're", "'re"}}};
  if (text.find(' ') == std::string::npos) return text;
  for (const auto& [from, to] : kRules) text = replace_all(text, from, to);
  return text;
}

std::string strip(std::string_view text, const std::string& content, std::size_t start, std::size_t stop) {
  for (; start > 0 && text.starts_with(content); --start) text.remove_prefix(content.size());
  for (; stop > 0 && text.ends_with(content); --stop) text.remove_suffix(content.size());
  return std::string(text);
}

std::string word_piece(std::string text, const TokenDecoder::Step& step, bool first) {
  if (!first) text = text.starts_with(step.content) ? text.substr(step.content.size()) : " " + text;
  return step.flag ? clean_up(std::move(text)) : text;
}

std::string apply(const TokenDecoder::Step& step, std::string text, bool first) {
  using Kind = TokenDecoder::Kind;
  switch (step.kind) {
    case Kind::kByteLevel: return bytes_of_printable(text).value_or(text);
    case Kind::kReplace: {
      std::vector<Span> matches;
      (void)step.pattern->find_all(text, matches);  // a token: too short to give up on
      if (matches.empty() || matches.size() * step.content.size() > text.size() + kMaxGrowth) return text;
      return replaced(text, matches, step.content);
    }
    case Kind::kMetaspace: return replace_all(text, step.content, first && step.flag ? "" : " ");
    case Kind::kWordPiece: return word_piece(std::move(text), step, first);
    case Kind::kStrip: return strip(text, step.content, step.start, step.stop);
    case Kind::kStripText: return first ? strip(text, step.content, 1, 0) : text;
    case Kind::kSpaces: return first ? text : " " + text;
    case Kind::kByteFallback: break;
  }
  const int byte = byte_of_token(text);
  return byte < 0 ? text : std::string(1, static_cast<char>(byte));
}

}  // namespace

bool TokenDecoder::first_is_like_others() const {
  return std::ranges::none_of(steps_, [](const Step& s) {
    return (s.kind == Kind::kMetaspace && s.flag) || s.kind == Kind::kWordPiece || s.kind == Kind::kStripText ||
           s.kind == Kind::kSpaces;
  });
}

std::string TokenDecoder::decode(std::string_view token, bool first) const {
  std::string text(token);
  for (const Step& step : steps_) text = apply(step, std::move(text), first);
  return text;
}

TokenTexts::Place TokenTexts::place(std::string_view text) {
  const Place out{arena_.size(), static_cast<std::uint32_t>(text.size())};
  arena_ += text;
  return out;
}

void TokenTexts::set(TokenId id, std::string_view middle, std::string_view first) {
  const auto i = static_cast<std::size_t>(id);
  if (i >= entries_.size()) entries_.resize(i + 1);
  Entry& e = entries_[i];
  e.middle = place(middle);
  // Mostly what is left when something in front goes.
  const bool shared = middle.ends_with(first);
  e.first = shared ? Place{e.middle.begin + (middle.size() - first.size()), static_cast<std::uint32_t>(first.size())}
                   : place(first);
}

std::string_view TokenTexts::view(TokenId id, Place Entry::*form) const {
  if (id < 0 || static_cast<std::size_t>(id) >= entries_.size()) return {};
  const Place& p = entries_[static_cast<std::size_t>(id)].*form;
  return std::string_view(arena_).substr(p.begin, p.size);
}

}  // namespace barg::text
