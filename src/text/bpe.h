// Vocab and Bpe: the vocabulary of every model, and the tables and the merge loop of BPE.
//
// Vocab maps ids to spellings and back. In a printable one (byte-level models) a spelling in GPT-2's alphabet
// ("Ġthe") stands for bytes (" the"); any other spelling stands for itself (an added token with a real space in it).
// So an entry is {bytes, plain?}, and that pair is the key of the way back. In any other vocabulary every spelling
// stands for itself.
//
// The symbols that Bpe starts from are bytes (byte-level) or characters; a character without a token of its own is the
// tokens of its bytes (<0xC3>), or unknown, or dropped.
//
// Bpe merges, again and again, the adjacent pair of lowest rank, leftmost first on ties. Short pieces are scanned;
// long ones use a heap of (rank, position), O(n log n): a piece of megabytes costs seconds, not years.
//
// Both are immutable once built and safe from any thread. Their hash tables are keyed by a secret, so a file
// cannot be made in which everything collides; nothing depends on their order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/result.h"
#include "barg/types.h"
#include "base/env.h"
#include "text/token_model.h"

namespace barg::text {

/// More ids than any published vocabulary (262,144 for Gemma) by far; a file that asks for more is malformed.
inline constexpr TokenId kMaxTokens = 1024 * 1024;

class Vocab {
 public:
  explicit Vocab(bool printable) : printable_(printable) {}
  bool printable() const { return printable_; }
  /// REQUIRES 0 <= id < kMaxTokens and id not set yet (see has); a spelling set twice belongs to the later id.
  void add(TokenId id, std::string_view spelling);
  bool has(TokenId id) const { return id >= 0 && id < size() && entries_[static_cast<std::size_t>(id)].set; }

  /// The bytes that a spelling stands for, and whether find_bytes would find them.
  std::pair<std::string, bool> read(std::string_view spelling) const;
  std::optional<TokenId> find(std::string_view spelling) const;
  /// The token that stands for `bytes`, by a printable spelling in a printable vocabulary; kNoToken if none.
  TokenId find_bytes(std::string_view bytes) const { return lookup(bytes, true); }
  /// Bytes the token stands for; empty if the id is unused or out of range.
  std::string_view bytes(TokenId id) const;
  /// Bytes of the longest token.
  std::size_t longest() const { return longest_; }
  /// Highest id + 1.
  TokenId size() const { return static_cast<TokenId>(entries_.size()); }

 private:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    bool set = false;
    bool plain = false;  ///< what find_bytes finds
  };
  TokenId lookup(std::string_view bytes, bool plain) const;
  void index(TokenId id);
  void grow();
  std::string_view view(const Entry& e) const { return std::string_view(arena_).substr(e.offset, e.length); }

  bool printable_;
  std::string arena_;
  std::vector<Entry> entries_;
  std::size_t hash(std::string_view bytes) const;

  std::uint64_t secret_ = random_seed();
  std::vector<TokenId> slots_;  ///< open addressing, power of two, at most half full
  std::size_t used_ = 0;
  std::size_t longest_ = 0;
};

/// Bytes that a spelling in GPT-2's printable alphabet stands for, or nullopt if it has another character.
std::optional<std::string> bytes_of_printable(std::string_view spelling);
/// The printable character of a byte, as UTF-8.
std::string printable_of_byte(unsigned char byte);

struct Merge {
  TokenId left, right, result;
};

struct BpeOptions {
  bool byte_level = true;      ///< symbols are bytes and the vocabulary is printable; else they are characters
  bool ignore_merges = false;  ///< a piece that is a token as a whole is emitted as it is
  TokenId unk = kNoToken;      ///< for symbols without a token; kNoToken drops them
  bool fuse_unk = false;       ///< neighbouring unknown symbols are one `unk`
  // -- characters only
  bool byte_fallback = false;  ///< a character without a token is its bytes, if all of them are tokens
  std::string prefix = {};     ///< before every symbol of a piece but the first
  std::string suffix = {};     ///< behind the last one
  std::vector<TokenId> never_whole = {};  ///< ids that ignore_merges must not produce (control tokens)
};

class Bpe final : public TokenModel {
 public:
  /// `merges` in rank order, ids valid in `vocab`. Of equal pairs the later counts.
  Bpe(std::shared_ptr<const Vocab> vocab, const std::vector<Merge>& merges, BpeOptions options);
  Bpe(const Bpe&) = delete;

  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  std::optional<std::size_t> max_bytes() const override;
  std::string_view kind() const override { return options_.byte_level ? "byte-level BPE" : "BPE of characters"; }

 private:
  struct Pair {
    std::uint64_t key;  ///< left << 32 | right
    std::uint32_t rank;
    TokenId result;
  };
  struct Symbol {
    TokenId id;
    std::uint32_t rank;  ///< of the pair with `next`, kNoRank if none
    std::int32_t prev, next;
  };
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
  static constexpr std::size_t kShortPiece = 24;

  const Pair* find(TokenId left, TokenId right) const;
  void insert(const Merge& merge, std::uint32_t rank);
  void find_whole();
  std::uint32_t rank_of(TokenId left, TokenId right) const;
  void initial_bytes(std::string_view piece, std::vector<TokenId>& ids) const;
  void initial_characters(std::string_view piece, std::vector<TokenId>& ids) const;
  bool fall_back(std::string_view symbol, std::vector<TokenId>& ids) const;
  void merge_short(TokenId* ids, std::size_t n, std::vector<TokenId>& out) const;
  void merge_long(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const;
  void encode_merging(std::string_view piece, std::vector<TokenId>& out) const;

  std::shared_ptr<const Vocab> vocab_;
  BpeOptions options_;
  std::uint64_t secret_ = random_seed();
  std::vector<Pair> pairs_;            ///< open addressing, power of two, at most half full
  TokenId byte_ids_[256];              ///< of the bytes; of <0x00> to <0xFF> where symbols are characters
  std::vector<bool> whole_;            ///< tokens whose bytes encode to themselves: no merging needed
  std::size_t max_whole_bytes_ = 0;
};

}  // namespace barg::text
