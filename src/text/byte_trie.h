// ByteTrie: strings to token ids, walked a byte at a time. Nodes are numbers, edges one hash table of
// (node, byte) -> node, so a step is a look-up whatever the fan-out. The table is keyed by a secret: a file cannot be
// made in which everything collides.
//
//   add("ab", 7):  root --a--> 1 --b--> 2 (7)
//
// Immutable once filled, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "barg/types.h"
#include "base/env.h"

namespace barg::text {

class ByteTrie {
 public:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNoNode = 0xFFFFFFFF;
  static constexpr std::size_t kMaxBytes = (std::size_t{1} << 28) - 1;  ///< of all keys together

  ByteTrie() : values_(1, kNoToken) {}
  /// Of equal keys the later counts. REQUIRES at most kMaxBytes of keys in all.
  void add(std::string_view key, TokenId value);
  /// The node behind `byte`, kNoNode if no key goes on so.
  std::uint32_t step(std::uint32_t node, unsigned char byte) const;
  /// The node behind all of `key`, from the root.
  std::uint32_t walk(std::string_view key) const;
  /// The key that ends here, kNoToken if none.
  TokenId value(std::uint32_t node) const { return values_[node]; }

 private:
  // node << 36 | byte << 28 | child; no child is the root, so an edge is never 0.
  std::size_t slot_of(std::uint64_t from) const;
  void insert(std::uint64_t edge);

  std::uint64_t secret_ = random_seed();
  std::vector<std::uint64_t> edges_;  ///< open addressing, power of two, at most half full
  std::vector<TokenId> values_;       ///< by node
};

}  // namespace barg::text
