// PrefixTree: a block-granular trie of prefixes. An edge is the chained digest of one block (keys.h), so a
// digest names its whole path and one hash table finds any node:
//
//        root --d0--> [n0] --d1--> [n1] --d2--> [n2]
//                          \--d1'-> [n1']
//
// A node holds one block per group, or kNoBlock where the group has none (its window passed and the block was
// evicted). A node lives as long as it holds a block or has children.
//
// Invariants:
//  1. find() and the accessors never change anything.
//  2. A node's digest is unique; parent and child links agree; the table holds exactly the live nodes.
//  3. No node without block and children (prune() removes them up the path).
//
// Threads: engine thread only. Not here: blocks' states and their order of eviction (block_pool.h), which
// hits are usable (manager.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "barg/types.h"
#include "base/hash.h"
#include "kv/block_pool.h"

namespace barg::kv {

class PrefixTree {
 public:
  explicit PrefixTree(std::int32_t num_groups);
  /// Memory for so many nodes, so that insert() does not allocate.
  void reserve(std::int64_t nodes);

  static constexpr NodeId kRoot = 0;

  /// The node of a digest, or kNoNode. Read-only.
  NodeId find(const Digest& digest) const;
  BlockId block(NodeId n, std::int32_t group) const { return blocks_[slot(n, group)]; }
  NodeId parent(NodeId n) const { return at(n).parent; }
  NodeId first_child(NodeId n) const { return at(n).first_child; }
  NodeId next_sibling(NodeId n) const { return at(n).next; }
  const Digest& digest(NodeId n) const { return at(n).digest; }
  /// Live nodes without the root.
  std::int64_t size() const { return static_cast<std::int64_t>(nodes_.size() - free_.size()) - 1; }

  /// What tiers keep beside the bytes: the digest of the block before (of the first: the namespace's root),
  /// blocks before this one, 64 bits of its tokens.
  const Digest& parent_digest(NodeId n) const { return at(n).parent_digest; }
  std::int32_t depth(NodeId n) const { return at(n).depth; }
  std::uint64_t fingerprint(NodeId n) const { return at(n).fingerprint; }

  /// A new node without blocks. REQUIRES: `digest` not in the tree. Give it a block before the next prune().
  NodeId insert(NodeId parent, const Digest& digest, const Digest& parent_digest, std::uint64_t fingerprint);
  void set_block(NodeId n, std::int32_t group, BlockId b) { blocks_[slot(n, group)] = b; }
  /// Removes `n` if it is an empty leaf, then its parents as long as they are. Legal on a removed node.
  void prune(NodeId n);

  /// All live nodes, parents before children (tests, integrity).
  std::vector<NodeId> nodes() const;
  /// Digest over structure and blocks.
  Digest state_digest() const;
  void check_integrity() const;

 private:
  struct Node {
    Digest digest{};
    NodeId parent = kNoNode, first_child = kNoNode, prev = kNoNode, next = kNoNode;
    NodeId same_bucket = kNoNode;  // the next node of its bucket
    std::int32_t depth = -1;
    bool live = false;
    std::uint64_t fingerprint = 0;
    Digest parent_digest{};
  };

  const Node& at(NodeId n) const { return nodes_[static_cast<std::size_t>(n)]; }
  Node& at(NodeId n) { return nodes_[static_cast<std::size_t>(n)]; }
  std::size_t slot(NodeId n, std::int32_t g) const {
    return static_cast<std::size_t>(n) * static_cast<std::size_t>(num_groups_) + static_cast<std::size_t>(g);
  }
  /// Digests are uniform: their first bytes are the hash.
  NodeId& bucket(const Digest& d) {
    std::size_t h;
    std::memcpy(&h, d.data(), sizeof h);
    return buckets_[h & (buckets_.size() - 1)];
  }
  void spread(std::size_t buckets);
  bool empty(NodeId n) const;

  std::int32_t num_groups_;
  std::vector<Node> nodes_;
  std::vector<BlockId> blocks_;  // [node][group]
  std::vector<NodeId> free_;
  std::vector<NodeId> buckets_;  // a power of two, at least as many as nodes
};

}  // namespace barg::kv
