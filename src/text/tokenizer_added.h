// AddedTokens: literals that are cut out of the text before pre-tokenisation ("<|im_start|>", "<think>").
//
// The rules are those of tokenizers' added_vocabulary.rs: leftmost-longest; single_word rejects a match with a
// word character beside it; lstrip and rstrip swallow neighbouring white space, not beyond the match before.
//
//   find("Hi<|im_end|>\n") -> {"Hi"}, {<|im_end|>, id}, {"\n"}
//
// The text is read from its end to its beginning by an Aho-Corasick automaton of the literals spelt backwards: its
// state says at once which is the longest literal that begins here, so nothing is read twice. Time is linear in
// the text whatever the literals and the spaces around them; memory is 17 bytes for each byte of the literals.
//
// Immutable once built, safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "barg/types.h"
#include "text/split.h"

namespace barg::text {

inline constexpr std::size_t kMaxLiteralBytes = 4096;
inline constexpr std::size_t kMaxAllLiteralBytes = 16 << 20;  ///< the readers refuse more: no published file has 1 MiB

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
  AddedTokens() = default;
  /// REQUIRES contents not empty and at most kMaxLiteralBytes. Of equal contents a special token's counts, else the
  /// first.
  explicit AddedTokens(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }

  /// Tiles `text` with segments. A special literal that `rule.all` turns off is passed over as a whole (other
  /// literals inside it are not looked for), as tokenizers' encode_special_tokens does. With `rule.trusted` the
  /// longest literal that is admissible at a place is taken instead, so that text from outside can neither make
  /// a special token nor hide one. `work`, where given, grows by the steps taken: a few for each byte.
  void find(std::string_view text, const SpecialRule& rule, std::vector<Segment>& out,
            std::size_t* work = nullptr) const;

 private:
  using State = std::uint32_t;  ///< a node; 0 is the root
  /// In the order of a breadth-first walk: the children of one lie side by side, and end where the next one's begin.
  struct Node {
    State first_child = 0;
    State fail = 0;              ///< the longest other ending of what led here that leads somewhere
    std::int32_t token = -1;     ///< index of the longest literal that begins where this state is met
    std::int32_t ordinary = -1;  ///< the same without special ones
  };
  /// A literal that begins at a byte of the text.
  struct Hit {
    std::size_t at;
    std::int32_t token;
  };

  void build_trie(const std::vector<std::uint32_t>& order);
  void link();
  State child(State state, char byte) const;
  State step(State state, char byte, std::size_t& work) const;
  /// The longest literal inside `span` at each place, from right to left.
  void scan(std::string_view text, Span span, bool ordinary_only, std::vector<Hit>& hits, std::size_t& work) const;
  std::vector<Hit> hits_by_trust(std::string_view text, const std::vector<Span>& trusted, std::size_t& work) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                ///< and one behind the last
  std::vector<char> bytes_;                ///< the byte that leads to a node
  std::array<State, 256> roots_{};         ///< children of the root by byte; 0: none
};

}  // namespace barg::text
