// WordPiece and WordLevel: the models of encoders.
//
// WordPiece takes, again and again, the longest token that the rest of the word begins with; tokens inside a word are
// spelled with a prefix ("##"). A word that cannot be cut so, or is too long, is one `unk`.
//
//   "unaffable" -> "un", "##aff", "##able"
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/byte_trie.h"
#include "text/token_model.h"

namespace barg::text {

struct WordPieceOptions {
  std::string prefix = "##";
  std::size_t max_chars = 100;
  TokenId unk = kNoToken;  ///< an id of the vocabulary
};

class WordPiece final : public TokenModel {
 public:
  /// `never`: ids whose spelling is no token of a word (control tokens). A word costs its bytes x the longest token that
  /// fits into one: see usable(). REQUIRES tokens of at most ByteTrie::kMaxBytes together.
  WordPiece(const Vocab& vocab, const WordPieceOptions& options, const std::vector<TokenId>& never);
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  std::optional<std::size_t> max_bytes() const override { return std::nullopt; }
  std::string_view kind() const override { return "WordPiece"; }
  /// May a word that is not too long contain a token of so many bytes?
  static bool usable(const WordPieceOptions& options, std::size_t bytes) {
    return bytes <= 4 * options.max_chars + options.prefix.size();
  }

 private:
  ByteTrie trie_;
  std::uint32_t inside_;  ///< node behind the prefix
  std::size_t max_chars_;
  TokenId unk_;
};

/// Whole words, or `unk`.
class WordLevel final : public TokenModel {
 public:
  WordLevel(std::shared_ptr<const Vocab> vocab, TokenId unk, std::vector<TokenId> never)
      : vocab_(std::move(vocab)), unk_(unk), never_(std::move(never)) {}
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  std::optional<std::size_t> max_bytes() const override { return std::nullopt; }
  std::string_view kind() const override { return "WordLevel"; }

 private:
  std::shared_ptr<const Vocab> vocab_;
  TokenId unk_;
  std::vector<TokenId> never_;
};

}  // namespace barg::text
