// AddedTokens: literals that are cut out of the text before pre-tokenisation ("<|im_start|>", "<think>").
//
// The rules are those of tokenizers' added_vocabulary.rs: leftmost-longest; single_word rejects a match with a
// word character beside it; lstrip and rstrip swallow neighbouring white space, not beyond the match before.
//
//   find("Hi<|im_end|>\n") -> {"Hi"}, {<|im_end|>, id}, {"\n"}
//
// Immutable once built, safe from any thread. Time is O(text x longest literal) and in practice one table look-up
// a byte; literals longer than kMaxLiteralBytes are refused at load.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "barg/types.h"
#include "text/split.h"

namespace barg::text {

inline constexpr std::size_t kMaxLiteralBytes = 4096;

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;  ///< matched after the normalizer has run, and itself normalised
  bool special = false;
};

/// A part of the text: a literal with its id, or plain text with kNoToken.
struct Segment {
  Span span;
  TokenId id = kNoToken;
};

/// Which literals of special tokens count.
struct SpecialRule {
  bool all = true;                              ///< false and no `trusted`: none
  const std::vector<Span>* trusted = nullptr;   ///< only those inside one of these ascending, separate ranges
};

class AddedTokens {
 public:
  AddedTokens() : nodes_(1) { roots_.fill(-1); }

  /// REQUIRES content not empty and at most kMaxLiteralBytes. Of equal contents the first counts.
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  /// Tiles `text` with segments. A special literal that `rule.all` turns off is passed over as a whole (other
  /// literals inside it are not looked for), as tokenizers' encode_special_tokens does. With `rule.trusted` the
  /// longest literal that is admissible at a place is taken instead, so that text from outside can neither make
  /// a special token nor hide one.
  void find(std::string_view text, const SpecialRule& rule, std::vector<Segment>& out) const;

 private:
  struct Node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t token = -1;  ///< index into tokens_
    char byte = 0;
  };
  std::int32_t child(std::int32_t node, char byte) const;
  std::int32_t match_at(std::string_view text, std::size_t at, const std::vector<Span>* trusted,
                        std::size_t& range) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_;  ///< children of the root, by byte
};

}  // namespace barg::text
