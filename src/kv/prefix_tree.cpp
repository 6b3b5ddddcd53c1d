#include "kv/prefix_tree.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace barg::kv {

PrefixTree::PrefixTree(std::int32_t num_groups) : num_groups_(num_groups) {
  CHECK(num_groups > 0);
  nodes_.emplace_back().live = true;
  blocks_.assign(static_cast<std::size_t>(num_groups), kNoBlock);
  spread(16);
}

void PrefixTree::reserve(std::int64_t nodes) {
  const auto n = static_cast<std::size_t>(nodes) + 1;
  nodes_.reserve(n);
  free_.reserve(n);
  blocks_.reserve(n * static_cast<std::size_t>(num_groups_));
  if (n > buckets_.size()) spread(std::bit_ceil(n));
}

/// Into so many buckets.
void PrefixTree::spread(std::size_t buckets) {
  buckets_.assign(buckets, kNoNode);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    if (!nodes_[i].live) continue;
    NodeId& head = bucket(nodes_[i].digest);
    nodes_[i].same_bucket = head;
    head = static_cast<NodeId>(i);
  }
}

NodeId PrefixTree::find(const Digest& digest) const {
  NodeId n = const_cast<PrefixTree*>(this)->bucket(digest);
  while (n != kNoNode && at(n).digest != digest) n = at(n).same_bucket;
  return n;
}

NodeId PrefixTree::insert(NodeId parent, const Digest& digest, const Digest& parent_digest,
                          std::uint64_t fingerprint) {
  NodeId n;
  if (free_.empty()) {
    n = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
    blocks_.resize(blocks_.size() + static_cast<std::size_t>(num_groups_), kNoBlock);
  } else {
    n = free_.back();
    free_.pop_back();
  }
  CHECK(at(parent).live && find(digest) == kNoNode);
  if (nodes_.size() > buckets_.size()) spread(2 * buckets_.size());  // `n` itself is not live yet
  Node& x = at(n);
  NodeId& head = bucket(digest);
  x = {.digest = digest,
       .parent = parent,
       .next = at(parent).first_child,
       .same_bucket = head,
       .depth = at(parent).depth + 1,
       .live = true,
       .fingerprint = fingerprint,
       .parent_digest = parent_digest};
  head = n;
  if (x.next != kNoNode) at(x.next).prev = n;
  at(parent).first_child = n;
  return n;
}

bool PrefixTree::empty(NodeId n) const {
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    if (block(n, g) != kNoBlock) return false;
  }
  return true;
}

void PrefixTree::prune(NodeId n) {
  while (n != kRoot && at(n).live && at(n).first_child == kNoNode && empty(n)) {
    Node& x = at(n);
    (x.prev == kNoNode ? at(x.parent).first_child : at(x.prev).next) = x.next;
    if (x.next != kNoNode) at(x.next).prev = x.prev;
    NodeId* link = &bucket(x.digest);
    while (*link != n) link = &at(*link).same_bucket;
    *link = x.same_bucket;
    const NodeId parent = x.parent;
    x = {};
    free_.push_back(n);
    n = parent;
  }
}

std::vector<NodeId> PrefixTree::nodes() const {
  std::vector<NodeId> out{kRoot};
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (NodeId c = first_child(out[i]); c != kNoNode; c = next_sibling(c)) out.push_back(c);
  }
  out.erase(out.begin());
  return out;
}

Digest PrefixTree::state_digest() const {
  Sha256 h;
  for (NodeId n : nodes()) {
    h.update(digest(n).data(), digest(n).size());
    h.update(digest(parent(n)).data(), digest(parent(n)).size());
    h.update(&blocks_[slot(n, 0)], static_cast<std::size_t>(num_groups_) * sizeof(BlockId));
  }
  return h.finish();
}

void PrefixTree::check_integrity() const {
  std::int64_t walked = 0;
  for (NodeId n : nodes()) {
    ++walked;
    CHECK(at(n).live && find(digest(n)) == n);
    CHECK(at(n).first_child != kNoNode || !empty(n));
    CHECK(depth(n) == depth(parent(n)) + 1);
    CHECK(parent(n) == kRoot || parent_digest(n) == digest(parent(n)));
    NodeId prev = kNoNode;
    for (NodeId c = first_child(n); c != kNoNode; prev = c, c = next_sibling(c)) {
      CHECK(at(c).parent == n && at(c).prev == prev);
    }
  }
  CHECK(walked == size());
}

}  // namespace barg::kv
