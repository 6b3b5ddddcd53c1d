// Detokenizer and StopMatcher: from sampled ids to the text a client may see, one token at a time.
//
//   ids -> Detokenizer -> complete UTF-8 -> StopMatcher -> text that can no longer become part of a stop string
//
// Invariants:
//  1. The concatenation of everything Detokenizer returns (flush included) equals Tokenizer::decode of all ids; after
//     continue_text(), the bytes that token_bytes() says, whatever stands first.
//  2. Detokenizer holds back at most three bytes, and only while they are the start of a character.
//  3. StopMatcher holds back exactly the longest suffix of its input that is a prefix of a stop string: no byte
//     of a stop string leaks, and nothing else waits.
//  4. Whatever the split of the input into pushes, both give the same concatenated output.
//
// One generation owns one of each; not thread-safe. The tokenizer must outlive the Detokenizer. Neither knows
// stop *ids*: the engine cuts those before decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "barg/tokenizer.h"

namespace barg::text {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  /// Text that `id` completes: always whole characters, possibly none. Bytes that are not UTF-8 become U+FFFD,
  /// one per maximal subpart (as Python's errors="replace"). Ids without a token contribute nothing.
  std::string push(TokenId id);
  /// The ids to come go on with a text: the first word among them keeps its space.
  void continue_text() { started_ = true; }
  /// The same, appended to `out`; allocates nothing when the token is whole characters.
  void push(TokenId id, std::string& out);
  /// What was held back (U+FFFD for an unfinished character); empty if nothing was. Ready for a new text after.
  std::string flush();
  /// Bytes held back, 0..3.
  std::size_t held() const { return pending_.size(); }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool started_ = false;  ///< a token of the text has been seen
  std::string pending_;  ///< start of an unfinished character
};

/// Aho-Corasick over the bytes of all stop strings.
///
/// The match that *ends* first wins; of several ending at one byte, the longest (so the cut is as early as the
/// matched byte allows and does not depend on how the text arrives). Memory is linear in the bytes of `stops`.
class StopMatcher {
 public:
  /// Empty stop strings are ignored (indices still count them). `include_stop`: the stop string itself is part
  /// of the output.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  struct Out {
    std::string text;  ///< may be shown now
    int stop = -1;     ///< index of the stop string that matched, -1 while none has
  };
  /// After a match every further call gives no text and the same index.
  Out push(std::string_view text);
  /// End of the generation: the text held back, which is no stop string.
  Out flush();
  /// Bytes held back now.
  std::size_t held() const { return held_.size(); }
  /// There is nothing to look for: whatever is pushed comes out as it is.
  bool idle() const { return nodes_.size() == 1; }
  bool stopped() const { return stop_ >= 0; }

 private:
  struct Node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t fail = 0;
    std::int32_t stop = -1;         ///< index of the longest stop string that is a suffix of this node
    std::uint32_t depth = 0;
    char byte = 0;
  };
  std::int32_t child(std::int32_t node, char byte) const;
  std::int32_t step(std::int32_t node, char byte) const;
  void insert(std::string_view stop, int index);
  void link();

  std::vector<Node> nodes_;         ///< nodes_[0] is the root
  std::vector<std::size_t> sizes_;  ///< bytes of each stop string
  bool include_stop_;
  std::int32_t state_ = 0;
  int stop_ = -1;
  std::string held_;                ///< invariant: size equals nodes_[state_].depth between calls
};

}  // namespace barg::text
