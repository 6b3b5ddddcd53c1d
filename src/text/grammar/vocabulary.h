// Vocabulary: the tokens of one tokenizer as tries of their bytes, ready for masks. Built once per model (tens of
// milliseconds), immutable, any thread.
//
// A trie is one flat array in preorder: a node's children follow it, and `end` is where a walk goes on that does not
// enter its subtree:
//
//   index    0    1    2    3          "a", "ab", "ac", "b":  walk = for (i = 0; i < size;) alive ? ++i : i = end
//   byte     a    b    c    b
//   depth    1    2    2    1
//   end      3    2    3    4
//
// Tokens of equal bytes are one node; same() goes from one to the next. A *plain* token consists of whole characters
// of UTF-8, none of which JSON strings treat specially: no byte below 0x20, no '"', no '\'. Inside strings nearly every
// token is plain, and all of up to so many characters are a bitmap that is ready; only the others, the *odd* ones, are
// walked.
//
// Absent, because bytes cannot spell them: special tokens, those in `markers` (of the model's dialect), those without
// bytes; and tokens over kMaxBytes.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/tokenizer.h"

namespace barg::text::grammar {

struct TrieNode {
  std::uint32_t end = 0;        ///< index behind its subtree
  TokenId token = kNoToken;     ///< the lowest id that ends here
  std::uint16_t depth = 0;      ///< bytes from the root to here, this one included
  std::uint8_t byte = 0;
  std::uint8_t most_chars = 0;  ///< in the plain trie: characters of the longest token of the subtree, at most 255
};
using Trie = std::vector<TrieNode>;

class Vocabulary {
 public:
  static constexpr std::size_t kMaxBytes = 4096;

  struct Plain {
    std::span<const std::uint64_t> words;
    std::int64_t chars = 0;  ///< every plain token of up to so many characters is in `words`, and no other
  };

  /// As make_vocabulary().
  Vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> markers, std::int32_t vocab_size);

  std::int32_t size() const { return static_cast<std::int32_t>(same_.size()); }
  std::size_t words() const { return (same_.size() + 63) / 64; }
  const Trie& all() const { return all_; }
  const Trie& plain() const { return plain_; }
  const Trie& odd() const { return odd_; }
  /// Ids with a quote and behind it another one or a comma, ascending: they may end a name and begin the next.
  const std::vector<TokenId>& quoted() const { return quoted_; }
  /// Bit of every id of all().
  std::span<const std::uint64_t> present() const { return present_; }
  /// The largest ready set with at most `chars` >= 0 characters a token. `chars` of all plain tokens: without end.
  Plain plain_up_to(std::int64_t chars) const;
  /// Empty for absent ids.
  std::string_view bytes(TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(text_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }
  /// The next higher id with the same bytes, or kNoToken.
  TokenId same(TokenId id) const { return same_[static_cast<std::size_t>(id)]; }
  /// The lowest id that is this byte alone, or kNoToken.
  TokenId single(std::uint8_t byte) const { return single_[byte]; }
  /// The lowest id with these bytes, or kNoToken.
  TokenId find(std::string_view bytes) const;
  /// The child of node `parent` in all(), or kNoNode; kRoot has the first bytes as children.
  static constexpr std::uint32_t kRoot = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t kNoChild = kRoot - 1;
  std::uint32_t child(std::uint32_t parent, std::uint8_t byte) const;
  std::int64_t longest_bytes() const { return longest_; }  ///< of any token, at least 1

 private:
  void copy_text(const Tokenizer& tokenizer, std::span<const TokenId> markers);
  void fill();
  void fill_levels(const std::vector<std::pair<std::int64_t, TokenId>>& plain);

  std::string text_;                    // the bytes of all tokens
  std::vector<std::size_t> begins_;     // [size + 1] into text_
  Trie all_, plain_, odd_;
  std::vector<TokenId> same_;           // [size]
  std::vector<std::uint64_t> present_;  // [words]
  std::vector<TokenId> quoted_;
  std::vector<std::vector<std::uint64_t>> levels_;  // [characters][words]; behind them, all plain tokens
  std::array<TokenId, 256> single_{};
  std::array<std::uint32_t, 256> first_{};  // nodes of depth 1 in all_
  std::int64_t longest_ = 1;
  std::int64_t longest_plain_ = 0;  // characters
};

/// `vocab_size` >= tokenizer.size(): ids beyond that are never allowed.
std::shared_ptr<const Vocabulary> make_vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> markers,
                                                  std::int32_t vocab_size);

/// Characters of a plain token; -1: it is odd.
int plain_chars(std::string_view bytes);

}  // namespace barg::text::grammar
