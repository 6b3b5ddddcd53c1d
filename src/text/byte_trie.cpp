#include "text/byte_trie.h"

#include <algorithm>

#include "base/check.h"

namespace barg::text {
namespace {

constexpr int kChildBits = 28;
constexpr std::uint64_t kChildMask = (std::uint64_t{1} << kChildBits) - 1;

std::uint64_t from_key(std::uint32_t node, unsigned char byte) { return static_cast<std::uint64_t>(node) << 8 | byte; }

}  // namespace

std::size_t ByteTrie::slot_of(std::uint64_t from) const {
  std::uint64_t x = from ^ secret_;
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  const std::size_t mask = edges_.size() - 1;
  std::size_t at = x & mask;
  while (edges_[at] != 0 && edges_[at] >> kChildBits != from) at = (at + 1) & mask;
  return at;
}

void ByteTrie::insert(std::uint64_t edge) { edges_[slot_of(edge >> kChildBits)] = edge; }

std::uint32_t ByteTrie::step(std::uint32_t node, unsigned char byte) const {
  if (edges_.empty()) return kNoNode;
  const std::uint64_t edge = edges_[slot_of(from_key(node, byte))];
  return edge == 0 ? kNoNode : static_cast<std::uint32_t>(edge & kChildMask);
}

std::uint32_t ByteTrie::walk(std::string_view key) const {
  std::uint32_t node = kRoot;
  for (const char c : key) {
    node = step(node, static_cast<unsigned char>(c));
    if (node == kNoNode) break;
  }
  return node;
}

void ByteTrie::add(std::string_view key, TokenId value) {
  std::uint32_t node = kRoot;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = step(node, byte);
    if (next == kNoNode) {
      next = static_cast<std::uint32_t>(values_.size());
      CHECK(next <= kChildMask);
      values_.push_back(kNoToken);
      if (2 * values_.size() > edges_.size()) {
        std::vector<std::uint64_t> old(std::max<std::size_t>(1024, edges_.size() * 2), 0);
        old.swap(edges_);
        for (const std::uint64_t edge : old) {
          if (edge != 0) insert(edge);
        }
      }
      insert(from_key(node, byte) << kChildBits | next);
    }
    node = next;
  }
  values_[node] = value;
}

}  // namespace barg::text
