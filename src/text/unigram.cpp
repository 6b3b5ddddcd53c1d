#include "text/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "text/unicode.h"

namespace barg::text {

Unigram::Unigram(std::shared_ptr<const Vocab> vocab, UnigramOptions options, const std::vector<TokenId>& never)
    : vocab_(std::move(vocab)), options_(std::move(options)) {
  double lowest = std::numeric_limits<double>::infinity();
  for (const double s : options_.scores) lowest = std::min(lowest, s);
  unk_score_ = lowest - 10;
  for (TokenId id = 0; id < vocab_->size(); ++id) {
    if (vocab_->has(id)) trie_.add(vocab_->bytes(id), id);
  }
  for (const TokenId id : never) {
    if (vocab_->has(id)) trie_.add(vocab_->bytes(id), kNoToken);  // nor what is spelled the same
  }
  if (!options_.byte_fallback) return;
  for (unsigned b = 0; b < 256; ++b) {
    byte_ids_.push_back(vocab_->find_bytes(token_of_byte(static_cast<unsigned char>(b))));
  }
}

std::vector<Unigram::Best> Unigram::search(std::string_view piece) const {
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, TokenId id) {
    Best& b = best[end];
    if (b.begin == kNowhere || score > b.score) b = {score, static_cast<std::uint32_t>(begin), id};
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t after = at + decode_utf8(piece, at).bytes;
    const double so_far = best[at].score;
    bool single = false;
    std::uint32_t node = ByteTrie::kRoot;
    for (std::size_t i = at; i < piece.size(); ++i) {
      node = trie_.step(node, static_cast<unsigned char>(piece[i]));
      if (node == ByteTrie::kNoNode) break;
      const TokenId id = trie_.value(node);
      if (id == kNoToken) continue;
      offer(at, i + 1, options_.scores[static_cast<std::size_t>(id)] + so_far, id);
      single = single || i + 1 == after;
    }
    if (!single) offer(at, after, unk_score_ + so_far, options_.unk);
    at = after;
  }
  return best;
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out) const {
  CHECK(piece.size() < kNowhere);
  const std::vector<Best> best = search(piece);
  std::vector<std::uint32_t> ends;  // of the chosen pieces, last first
  for (std::size_t end = piece.size(); end > 0; end = best[end].begin) ends.push_back(static_cast<std::uint32_t>(end));
  std::size_t unknown_from = piece.size();  // where a row of unknowns began
  for (std::size_t k = ends.size(); k-- > 0;) {
    const Best& b = best[ends[k]];
    if (b.id == options_.unk) {
      unknown_from = std::min<std::size_t>(unknown_from, b.begin);
      if (k > 0 && best[ends[k - 1]].id == options_.unk) continue;
      unknown(piece.substr(unknown_from, ends[k] - unknown_from), out);
      unknown_from = piece.size();
    } else {
      out.push_back(b.id);
    }
  }
}

std::optional<std::size_t> Unigram::max_bytes() const {
  if (byte_ids_.empty() || std::ranges::count(byte_ids_, kNoToken) > 0) return std::nullopt;
  return vocab_->longest();
}

void Unigram::unknown(std::string_view text, std::vector<TokenId>& out) const {
  const std::uint32_t node = trie_.walk(text);
  if (node != ByteTrie::kNoNode && trie_.value(node) != kNoToken) {
    out.push_back(trie_.value(node));
    return;
  }
  const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  const bool spelled =
      !byte_ids_.empty() && std::ranges::all_of(text, [&](char c) { return id_of(c) != kNoToken; });
  if (!spelled) {
    out.push_back(options_.unk);
    return;
  }
  for (const char c : text) out.push_back(id_of(c));
}

}  // namespace barg::text
