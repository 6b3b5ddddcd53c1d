#include "text/grammar/vocabulary.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"

namespace barg::text::grammar {
namespace {

constexpr std::int64_t kLevels = 32;  // characters of the longest tokens that have a bitmap of their own

using Token = std::pair<std::string_view, TokenId>;

void set_bit(std::vector<std::uint64_t>& words, TokenId id) {
  words[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
}

/// Builds a trie from tokens in ascending order of bytes, no bytes twice.
class TrieBuilder {
 public:
  explicit TrieBuilder(Trie& trie) : trie_(trie) {}

  void add(std::string_view bytes, TokenId id, std::int64_t chars) {
    std::size_t common = 0;
    const auto shared = [&](std::size_t i) { return trie_[path_[i]].byte == static_cast<std::uint8_t>(bytes[i]); };
    while (common < path_.size() && common < bytes.size() && shared(common)) ++common;
    leave(common);
    for (std::size_t i = common; i < bytes.size(); ++i) {
      path_.push_back(static_cast<std::uint32_t>(trie_.size()));
      trie_.push_back({.depth = static_cast<std::uint16_t>(i + 1), .byte = static_cast<std::uint8_t>(bytes[i])});
    }
    TrieNode& node = trie_[path_.back()];
    node.token = id;
    node.most_chars = static_cast<std::uint8_t>(std::min<std::int64_t>(chars, 255));
  }
  void finish() { leave(0); }

 private:
  /// Up to depth `depth`: the subtrees behind it are complete.
  void leave(std::size_t depth) {
    while (path_.size() > depth) {
      TrieNode& node = trie_[path_.back()];
      node.end = static_cast<std::uint32_t>(trie_.size());
      path_.pop_back();
      if (path_.empty()) continue;
      TrieNode& parent = trie_[path_.back()];
      parent.most_chars = std::max(parent.most_chars, node.most_chars);
    }
  }

  Trie& trie_;
  std::vector<std::uint32_t> path_;  // nodes from the root to the last token's end
};

}  // namespace

int plain_chars(std::string_view bytes) {
  int chars = 0;
  for (const char c : bytes) {
    const auto b = static_cast<std::uint8_t>(c);
    if (b < 0x20 || b == '"' || b == '\\') return -1;
    chars += (b & 0xC0) != 0x80 ? 1 : 0;
  }
  return is_valid_utf8(bytes) ? chars : -1;
}

Vocabulary::Vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> markers, std::int32_t vocab_size)
    : same_(static_cast<std::size_t>(vocab_size), kNoToken), present_(words(), 0) {
  CHECK(vocab_size >= tokenizer.size());
  single_.fill(kNoToken);
  first_.fill(kNoChild);
  copy_text(tokenizer, markers);
  fill();
}

void Vocabulary::copy_text(const Tokenizer& tokenizer, std::span<const TokenId> markers) {
  begins_.reserve(same_.size() + 1);
  for (TokenId id = 0; id < size(); ++id) {
    begins_.push_back(text_.size());
    if (id >= tokenizer.size() || tokenizer.is_special(id)) continue;
    const std::string_view bytes = tokenizer.token_bytes(id);
    const bool marker = std::find(markers.begin(), markers.end(), id) != markers.end();
    if (!marker && bytes.size() <= kMaxBytes) text_ += bytes;
  }
  begins_.push_back(text_.size());
}

void Vocabulary::fill() {
  std::vector<Token> tokens;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view text = bytes(id);
    if (!text.empty()) tokens.emplace_back(text, id);
    const std::size_t quote = text.find('"');
    if (quote != text.npos && text.find_first_of(",\"", quote + 1) != text.npos) quoted_.push_back(id);
  }
  std::sort(tokens.begin(), tokens.end());
  TrieBuilder all(all_), plain(plain_), odd(odd_);
  std::vector<std::pair<std::int64_t, TokenId>> plain_tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto& [bytes, id] = tokens[i];
    set_bit(present_, id);
    const std::int64_t chars = plain_chars(bytes);
    if (chars >= 0) plain_tokens.emplace_back(chars, id);
    if (i > 0 && tokens[i - 1].first == bytes) {
      same_[static_cast<std::size_t>(tokens[i - 1].second)] = id;
      continue;
    }
    longest_ = std::max(longest_, std::ssize(bytes));
    if (bytes.size() == 1) single_[static_cast<std::uint8_t>(bytes[0])] = id;
    all.add(bytes, id, 0);
    (chars >= 0 ? plain : odd).add(bytes, id, std::max<std::int64_t>(chars, 0));
  }
  all.finish();
  plain.finish();
  odd.finish();
  for (std::uint32_t i = 0; i < all_.size(); i = all_[i].end) first_[all_[i].byte] = i;
  fill_levels(plain_tokens);
}

void Vocabulary::fill_levels(const std::vector<std::pair<std::int64_t, TokenId>>& plain) {
  for (const auto& [chars, id] : plain) longest_plain_ = std::max(longest_plain_, chars);
  const auto levels = static_cast<std::size_t>(std::min(longest_plain_, kLevels)) + 1;
  levels_.assign(levels + 1, std::vector<std::uint64_t>(words(), 0));
  for (const auto& [chars, id] : plain) {
    for (auto k = static_cast<std::size_t>(chars); k < levels; ++k) set_bit(levels_[k], id);
    set_bit(levels_.back(), id);
  }
}

Vocabulary::Plain Vocabulary::plain_up_to(std::int64_t chars) const {
  if (chars >= longest_plain_) return {levels_.back(), std::numeric_limits<std::int64_t>::max()};
  const std::int64_t level = std::min(chars, std::ssize(levels_) - 2);
  return {levels_[static_cast<std::size_t>(level)], level};
}

std::uint32_t Vocabulary::child(std::uint32_t parent, std::uint8_t byte) const {
  if (parent == kRoot) return first_[byte];
  for (std::uint32_t i = parent + 1; i < all_[parent].end; i = all_[i].end) {
    if (all_[i].byte == byte) return i;
  }
  return kNoChild;
}

TokenId Vocabulary::find(std::string_view bytes) const {
  std::uint32_t node = kRoot;
  for (const char c : bytes) {
    node = child(node, static_cast<std::uint8_t>(c));
    if (node == kNoChild) return kNoToken;
  }
  return node == kRoot ? kNoToken : all_[node].token;
}

std::shared_ptr<const Vocabulary> make_vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> markers,
                                                  std::int32_t vocab_size) {
  return std::make_shared<const Vocabulary>(tokenizer, markers, vocab_size);
}

}  // namespace barg::text::grammar
