#include "text/tokenizer_added.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode.h"

namespace barg::text {
namespace {

// Start of the code point that ends before `end`. REQUIRES end > 0.
std::size_t previous(std::string_view s, std::size_t end) {
  std::size_t i = end - 1;
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool word_before(std::string_view s, std::size_t at) {
  return at > 0 && is_word(decode_utf8(s, previous(s, at)).value);
}

bool word_after(std::string_view s, std::size_t at) { return at < s.size() && is_word(decode_utf8(s, at).value); }

std::size_t spaces_before(std::string_view s, std::size_t at) {
  while (at > 0) {
    const std::size_t p = previous(s, at);
    if (!(class_at(s, p).bits & kSpace)) break;
    at = p;
  }
  return at;
}

std::size_t spaces_after(std::string_view s, std::size_t at) {
  for (;;) {
    const ClassAt c = class_at(s, at);
    if (!(c.bits & kSpace)) return at;
    at += c.bytes;
  }
}

}  // namespace

void AddedTokens::add(const AddedToken& token) {
  CHECK(!token.content.empty() && token.content.size() <= kMaxLiteralBytes);
  std::int32_t node = 0;
  for (const char byte : token.content) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      fresh.next_sibling = nodes_[static_cast<std::size_t>(node)].first_child;
      nodes_[static_cast<std::size_t>(node)].first_child = next;
      nodes_.push_back(fresh);
      if (node == 0) roots_[static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  std::int32_t& slot = nodes_[static_cast<std::size_t>(node)].token;
  if (slot >= 0) return;
  slot = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::int32_t AddedTokens::child(std::int32_t node, char byte) const {
  if (node == 0) return roots_[static_cast<unsigned char>(byte)];
  std::int32_t c = nodes_[static_cast<std::size_t>(node)].first_child;
  while (c >= 0 && nodes_[static_cast<std::size_t>(c)].byte != byte) c = nodes_[static_cast<std::size_t>(c)].next_sibling;
  return c;
}

// Longest literal at `at` (with `trusted`: the longest admissible). `range` is a cursor into `trusted`.
std::int32_t AddedTokens::match_at(std::string_view text, std::size_t at, const std::vector<Span>* trusted,
                                   std::size_t& range) const {
  std::int32_t best = -1;
  std::int32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node < 0) break;
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token < 0) continue;
    if (trusted && tokens_[static_cast<std::size_t>(token)].special) {
      while (range < trusted->size() && (*trusted)[range].end <= at) ++range;
      const bool inside =
          range < trusted->size() && (*trusted)[range].begin <= at && i + 1 <= (*trusted)[range].end;
      if (!inside) continue;
    }
    best = token;
  }
  return best;
}

void AddedTokens::find(std::string_view text, const SpecialRule& rule, std::vector<Segment>& out) const {
  std::size_t done = 0, range = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (roots_[static_cast<unsigned char>(text[at])] < 0) {
      ++at;
      continue;
    }
    const std::int32_t index = match_at(text, at, rule.trusted, range);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = at, end = at + token.content.size();
    at = end;
    if (token.special && !rule.all && !rule.trusted) continue;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin), done);
    if (token.rstrip) end = spaces_after(text, end);
    if (begin >= end) {  // all of it is white space that the token before swallowed
      done = std::max(done, end);
      continue;
    }
    if (done < begin) out.push_back({{done, begin}, kNoToken});
    out.push_back({{begin, end}, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, kNoToken});
}

}  // namespace barg::text
