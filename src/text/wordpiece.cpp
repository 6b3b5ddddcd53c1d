#include "text/wordpiece.h"

#include <algorithm>
#include <utility>

namespace barg::text {

WordPiece::WordPiece(const Vocab& vocab, const WordPieceOptions& options, const std::vector<TokenId>& never)
    : max_chars_(options.max_chars), unk_(options.unk) {
  for (TokenId id = 0; id < vocab.size(); ++id) {
    if (vocab.has(id) && usable(options, vocab.bytes(id).size())) trie_.add(vocab.bytes(id), id);
  }
  for (const TokenId id : never) {
    if (vocab.has(id)) trie_.add(vocab.bytes(id), kNoToken);
  }
  inside_ = trie_.walk(options.prefix);
}

void WordPiece::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (static_cast<std::size_t>(std::ranges::count_if(piece, starts)) > max_chars_) {
    out.push_back(unk_);
    return;
  }
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < piece.size();) {
    std::uint32_t node = at == 0 ? ByteTrie::kRoot : inside_;
    TokenId longest = kNoToken;
    std::size_t end = at;
    for (std::size_t i = at; i < piece.size() && node != ByteTrie::kNoNode; ++i) {
      node = trie_.step(node, static_cast<unsigned char>(piece[i]));
      if (node == ByteTrie::kNoNode || trie_.value(node) == kNoToken) continue;
      longest = trie_.value(node);
      end = i + 1;
    }
    if (longest == kNoToken) {
      out.resize(before);
      out.push_back(unk_);
      return;
    }
    out.push_back(longest);
    at = end;
  }
}

void WordLevel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  const TokenId id = vocab_->find_bytes(piece);
  out.push_back(id == kNoToken || std::ranges::binary_search(never_, id) ? unk_ : id);
}

}  // namespace barg::text
