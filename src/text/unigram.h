// Unigram: of all ways to cut a pre-token into pieces of the vocabulary, the one whose scores add up highest
// (Viterbi). Of equal sums the cut whose last piece begins first counts, as in Hugging Face tokenizers.
//
// A character that is no piece costs 10 less than the worst piece. Unknown characters in a row are one unknown: a
// token of that very text if there is one, else its bytes (<0x0A> tokens) with byte_fallback, else `unk`.
//
// Time is bytes x longest piece at most, and pieces are at most kMaxPieceBytes; memory is 16 bytes a byte.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/byte_trie.h"
#include "text/token_model.h"

namespace barg::text {

inline constexpr std::size_t kMaxPieceBytes = 512;

struct UnigramOptions {
  std::vector<double> scores = {};
  TokenId unk = kNoToken;  ///< an id of the vocabulary
  bool byte_fallback = false;
};

class Unigram final : public TokenModel {
 public:
  /// `options.scores` by id, finite. `never`: ids whose spelling is no piece (control tokens). REQUIRES pieces of at most
  /// kMaxPieceBytes, ByteTrie::kMaxBytes together.
  Unigram(std::shared_ptr<const Vocab> vocab, UnigramOptions options, const std::vector<TokenId>& never);

  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  std::optional<std::size_t> max_bytes() const override;
  std::string_view kind() const override { return "Unigram"; }

 private:
  /// The best cut of the text up to a place.
  struct Best {
    double score = 0;
    std::uint32_t begin = kNowhere;  ///< of its last piece
    TokenId id = kNoToken;
  };
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;

  std::vector<Best> search(std::string_view piece) const;
  void unknown(std::string_view text, std::vector<TokenId>& out) const;

  std::shared_ptr<const Vocab> vocab_;
  ByteTrie trie_;
  UnigramOptions options_;
  double unk_score_ = 0;
  std::vector<TokenId> byte_ids_;  ///< empty without byte_fallback
};

}  // namespace barg::text
