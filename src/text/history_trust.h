// Our own words inside a client's: the markers around reasoning that a template expects in the content, the example of
// a call in a description of tools. The renderer marks all of a message as the client's. Each such piece is
// therefore led by a word that no client can write (a digest of all that it has written), which is taken out of the
// rendering again: what follows it is given back to the template, and its markers become tokens.
//
// One render, one thread. Time in proportion to the prompt.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/marked_string.h"

namespace barg::text {

/// 64 hex digits that occur in none of `client`, whatever is in it: their digest. REQUIRES all of a request that reaches
/// the rendering to be there (messages, tools, documents, template arguments): what is left out could hold it.
std::string unforeseen_word(std::initializer_list<const Json*> client);

class OwnWords {
 public:
  using Range = std::pair<std::size_t, std::size_t>;

  /// Marks nothing: everything in a message stays the client's (probes).
  OwnWords() = default;
  /// `client` as for unforeseen_word().
  explicit OwnWords(std::initializer_list<const Json*> client);

  /// `words` as they go into a message; of them the byte ranges `ours` (ascending, disjoint) are not the client's.
  std::string add(std::string words, std::vector<Range> ours);
  /// Takes the marks out of `rendered`. What the template changed stays the client's.
  void give_back(MarkedString& rendered) const;

 private:
  struct Piece {
    std::string words;
    std::vector<Range> ours;
  };
  std::string mark(std::size_t i) const { return nonce_ + std::to_string(i) + ";"; }

  std::string nonce_;  ///< "" marks nothing
  std::vector<Piece> pieces_;
};

}  // namespace barg::text
