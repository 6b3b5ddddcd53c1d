#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace barg::text {
namespace {

// GPT-2's alphabet: bytes that print as Latin-1 stand for themselves, the others follow from U+0100 in order.
constexpr bool prints(unsigned b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

constexpr std::array<char16_t, 256> kPrintable = [] {
  std::array<char16_t, 256> t{};
  char16_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) t[b] = prints(b) ? static_cast<char16_t>(b) : next++;
  return t;
}();

constexpr std::size_t kAlphabetEnd = 0x100 + 68;  // 68 bytes do not print

constexpr std::array<std::int16_t, kAlphabetEnd> kByteOf = [] {
  std::array<std::int16_t, kAlphabetEnd> t{};
  for (auto& b : t) b = -1;
  for (unsigned b = 0; b < 256; ++b) t[kPrintable[b]] = static_cast<std::int16_t>(b);
  return t;
}();

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 29);
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

constexpr std::uint64_t kEmptyPair = ~std::uint64_t{0};

}  // namespace

std::optional<std::string> bytes_of_printable(std::string_view spelling) {
  std::string out;
  out.reserve(spelling.size());
  for (std::size_t i = 0; i < spelling.size();) {
    const char32_t cp = next_code_point(spelling, i);
    if (cp >= kAlphabetEnd || kByteOf[cp] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kByteOf[cp]));
  }
  return out;
}

std::string printable_of_byte(unsigned char byte) {
  std::string out;
  append_utf8(out, kPrintable[byte]);
  return out;
}

// ---- Vocab

std::pair<std::string, bool> Vocab::read(std::string_view spelling) const {
  if (!printable_) return {std::string(spelling), true};
  auto bytes = bytes_of_printable(spelling);
  if (bytes) return {std::move(*bytes), true};
  return {std::string(spelling), false};
}

void Vocab::add(TokenId id, std::string_view spelling) {
  CHECK(id >= 0 && id < kMaxTokens && !has(id));
  if (id >= size()) entries_.resize(static_cast<std::size_t>(id) + 1);
  const auto [text, plain] = read(spelling);
  entries_[static_cast<std::size_t>(id)] = {arena_.size(), static_cast<std::uint32_t>(text.size()), true, plain};
  arena_ += text;
  longest_ = std::max(longest_, text.size());
  if (2 * (used_ + 1) > slots_.size()) grow();
  index(id);
}

// Eight bytes a step: multiply, fold the 128 bits to 64.
std::size_t Vocab::hash(std::string_view bytes) const {
  __extension__ typedef unsigned __int128 Unsigned;
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<Unsigned>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const std::uint64_t factor = secret_ | 1;
  std::uint64_t h = secret_ ^ bytes.size();
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t part = 0;
    std::memcpy(&part, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    h = fold(h ^ part ^ 0x9E3779B97F4A7C15ull, factor);
  }
  return fold(h, 0xD6E8FEB86659FD93ull);
}

void Vocab::grow() {
  slots_.assign(std::max<std::size_t>(1024, slots_.size() * 2), kNoToken);
  used_ = 0;
  for (TokenId id = 0; id < size(); ++id) {
    if (has(id)) index(id);
  }
}

void Vocab::index(TokenId id) {
  const Entry& e = entries_[static_cast<std::size_t>(id)];
  const std::string_view key = view(e);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash(key) & mask;
  for (; slots_[at] != kNoToken; at = (at + 1) & mask) {
    const Entry& other = entries_[static_cast<std::size_t>(slots_[at])];
    if (other.plain == e.plain && view(other) == key) break;  // the later id wins
  }
  if (slots_[at] == kNoToken) ++used_;
  slots_[at] = id;
}

TokenId Vocab::lookup(std::string_view bytes, bool plain) const {
  if (slots_.empty()) return kNoToken;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash(bytes) & mask; slots_[at] != kNoToken; at = (at + 1) & mask) {
    const Entry& e = entries_[static_cast<std::size_t>(slots_[at])];
    if (e.set && e.plain == plain && view(e) == bytes) return slots_[at];
  }
  return kNoToken;
}

std::optional<TokenId> Vocab::find(std::string_view spelling) const {
  const auto [bytes, plain] = read(spelling);
  const TokenId id = lookup(bytes, plain);
  if (id == kNoToken) return std::nullopt;
  return id;
}

std::string_view Vocab::bytes(TokenId id) const {
  return has(id) ? view(entries_[static_cast<std::size_t>(id)]) : std::string_view();
}

// ---- Bpe

Bpe::Bpe(std::shared_ptr<const Vocab> vocab, const std::vector<Merge>& merges, BpeOptions options)
    : vocab_(std::move(vocab)), options_(std::move(options)) {
  pairs_.assign(std::bit_ceil(std::max<std::size_t>(16, merges.size() * 2)), Pair{kEmptyPair, 0, kNoToken});
  for (std::size_t rank = 0; rank < merges.size(); ++rank) insert(merges[rank], static_cast<std::uint32_t>(rank));
  for (unsigned b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = vocab_->find_bytes(options_.byte_level ? std::string_view(&byte, 1)
                                                          : token_of_byte(static_cast<unsigned char>(b)));
  }
  // Elsewhere pieces are often whole texts, and no token.
  if (options_.byte_level || options_.ignore_merges) find_whole();
}

void Bpe::find_whole() {
  std::vector<bool> never(static_cast<std::size_t>(vocab_->size()), false);
  for (const TokenId id : options_.never_whole) {
    if (vocab_->has(id)) never[static_cast<std::size_t>(id)] = true;
  }
  whole_.assign(static_cast<std::size_t>(vocab_->size()), false);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocab_->size(); ++id) {
    const std::string_view bytes = vocab_->bytes(id);
    if (bytes.empty() || never[static_cast<std::size_t>(id)] || vocab_->find_bytes(bytes) != id) continue;
    if (!options_.ignore_merges) {
      if (bytes.size() > 256) continue;  // rare, and a hostile file of long ones must not cost a start-up
      ids.clear();
      encode_merging(bytes, ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    whole_[static_cast<std::size_t>(id)] = true;
    max_whole_bytes_ = std::max(max_whole_bytes_, bytes.size());
  }
}

void Bpe::insert(const Merge& merge, std::uint32_t rank) {
  const std::uint64_t key = pair_key(merge.left, merge.right);
  const std::size_t mask = pairs_.size() - 1;
  std::size_t at = mix(key ^ secret_) & mask;
  while (pairs_[at].key != kEmptyPair && pairs_[at].key != key) at = (at + 1) & mask;
  pairs_[at] = {key, rank, merge.result};
}

const Bpe::Pair* Bpe::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = pairs_.size() - 1;
  for (std::size_t at = mix(key ^ secret_) & mask;; at = (at + 1) & mask) {
    if (pairs_[at].key == key) return &pairs_[at];
    if (pairs_[at].key == kEmptyPair) return nullptr;
  }
}

std::uint32_t Bpe::rank_of(TokenId left, TokenId right) const {
  const Pair* p = find(left, right);
  return p ? p->rank : kNoRank;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  if (piece.size() <= max_whole_bytes_) {
    const TokenId id = vocab_->find_bytes(piece);
    if (id != kNoToken && whole_[static_cast<std::size_t>(id)]) {
      out.push_back(id);
      return;
    }
  }
  encode_merging(piece, out);
}

std::optional<std::size_t> Bpe::max_bytes() const {
  constexpr std::size_t kCharacter = 4;
  const bool all_bytes = std::ranges::count(byte_ids_, kNoToken) == 0;
  if (all_bytes && (options_.byte_level || options_.byte_fallback)) return vocab_->longest();
  // Each symbol that has no token is an unknown one; or it is none, or one with its neighbours.
  if (options_.unk == kNoToken || options_.fuse_unk) return std::nullopt;
  return std::max(vocab_->longest(), kCharacter);
}

void Bpe::encode_merging(std::string_view piece, std::vector<TokenId>& out) const {
  if (options_.byte_level && piece.size() <= kShortPiece) {
    TokenId ids[kShortPiece];
    std::size_t n = 0;
    bool simple = true;
    for (const char c : piece) {
      const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
      simple = simple && id != kNoToken;
      ids[n++] = id;
    }
    if (simple) return merge_short(ids, n, out);
  }
  std::vector<TokenId> ids;
  options_.byte_level ? initial_bytes(piece, ids) : initial_characters(piece, ids);
  if (ids.size() <= kShortPiece) return merge_short(ids.data(), ids.size(), out);
  merge_long(ids, out);
}

void Bpe::initial_bytes(std::string_view piece, std::vector<TokenId>& ids) const {
  ids.reserve(piece.size());
  bool unknown_before = false;
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNoToken) {
      ids.push_back(id);
    } else if (options_.unk != kNoToken && !(unknown_before && options_.fuse_unk)) {
      ids.push_back(options_.unk);
    }
    unknown_before = id == kNoToken;
  }
}

void Bpe::initial_characters(std::string_view piece, std::vector<TokenId>& ids) const {
  ids.reserve(piece.size());
  bool waiting = false;  // an unknown that further ones may join; bytes do not end it
  std::string spelled;
  for (std::size_t i = 0; i < piece.size();) {
    std::string_view symbol = piece.substr(i, decode_utf8(piece, i).bytes);
    const bool first = i == 0, last = i + symbol.size() == piece.size();
    i += symbol.size();
    if ((!first && !options_.prefix.empty()) || (last && !options_.suffix.empty())) {
      spelled = (first ? "" : options_.prefix) + std::string(symbol) + (last ? options_.suffix : "");
      symbol = spelled;
    }
    const TokenId id = vocab_->find_bytes(symbol);
    if (id != kNoToken) {
      if (waiting) ids.push_back(options_.unk);
      waiting = false;
      ids.push_back(id);
    } else if (!fall_back(symbol, ids) && options_.unk != kNoToken) {
      if (waiting && !options_.fuse_unk) ids.push_back(options_.unk);
      waiting = true;
    }
  }
  if (waiting) ids.push_back(options_.unk);
}

bool Bpe::fall_back(std::string_view symbol, std::vector<TokenId>& ids) const {
  if (!options_.byte_fallback) return false;
  const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (std::ranges::any_of(symbol, [&](char c) { return id_of(c) == kNoToken; })) return false;
  for (const char c : symbol) ids.push_back(id_of(c));
  return true;
}

void Bpe::merge_short(TokenId* ids, std::size_t n, std::vector<TokenId>& out) const {
  std::uint32_t ranks[kShortPiece];
  for (std::size_t i = 0; i + 1 < n; ++i) ranks[i] = rank_of(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = find(ids[best], ids[best + 1])->result;
    for (std::size_t i = best + 1; i + 1 < n; ++i) ids[i] = ids[i + 1];
    for (std::size_t i = best + 1; i + 2 < n; ++i) ranks[i] = ranks[i + 1];
    --n;
    if (best > 0) ranks[best - 1] = rank_of(ids[best - 1], ids[best]);
    if (best + 1 < n) ranks[best] = rank_of(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + n);
}

void Bpe::merge_long(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const {
  CHECK(ids.size() < 0x7FFFFFFF);
  std::vector<Symbol> s(ids.size());
  std::vector<std::uint64_t> heap;  // rank << 32 | position; an entry counts only while the symbol has that rank
  const auto entry = [&](std::size_t i) { return static_cast<std::uint64_t>(s[i].rank) << 32 | i; };
  const auto last = static_cast<std::int32_t>(ids.size()) - 1;
  for (std::int32_t i = 0; i <= last; ++i) {
    const auto k = static_cast<std::size_t>(i);
    s[k] = {ids[k], i < last ? rank_of(ids[k], ids[k + 1]) : kNoRank, i - 1, i < last ? i + 1 : -1};
    if (s[k].rank != kNoRank) heap.push_back(entry(k));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto rerank = [&](std::int32_t i) {
    Symbol& a = s[static_cast<std::size_t>(i)];
    a.rank = a.next < 0 ? kNoRank : rank_of(a.id, s[static_cast<std::size_t>(a.next)].id);
    if (a.rank == kNoRank) return;
    heap.push_back(entry(static_cast<std::size_t>(i)));
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<std::int32_t>(top & 0xFFFFFFFF);
    Symbol& a = s[static_cast<std::size_t>(i)];
    if (a.rank != static_cast<std::uint32_t>(top >> 32)) continue;
    Symbol& b = s[static_cast<std::size_t>(a.next)];
    a.id = find(a.id, b.id)->result;
    a.next = b.next;
    if (b.next >= 0) s[static_cast<std::size_t>(b.next)].prev = i;
    b.rank = kNoRank;  // b is gone; entries that name it are void
    rerank(i);
    if (a.prev >= 0) rerank(a.prev);
  }
  for (std::int32_t i = 0; i >= 0; i = s[static_cast<std::size_t>(i)].next) out.push_back(s[static_cast<std::size_t>(i)].id);
}

}  // namespace barg::text
