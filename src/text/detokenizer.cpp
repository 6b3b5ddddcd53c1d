#include "text/detokenizer.h"

#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace barg::text {

std::string Detokenizer::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

void Detokenizer::push(TokenId id, std::string& out) {
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return;
  std::string_view bytes = tokenizer_.token_bytes(id);
  if (!started_) {
    const std::string_view first = tokenizer_.first_token_bytes(id);
    started_ = !bytes.empty() || !first.empty();
    bytes = first;
  }
  if (pending_.empty() && is_valid_utf8(bytes)) {
    out += bytes;
    return;
  }
  pending_ += bytes;
  const std::size_t ready = complete_utf8_prefix(pending_);
  out += repair_utf8(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
}

std::string Detokenizer::flush() {
  started_ = false;
  return repair_utf8(std::exchange(pending_, {}));
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : nodes_(1), include_stop_(include_stop) {
  for (std::size_t i = 0; i < stops.size(); ++i) {
    sizes_.push_back(stops[i].size());
    if (!stops[i].empty()) insert(stops[i], static_cast<int>(i));
  }
  link();
}

void StopMatcher::insert(std::string_view stop, int index) {
  std::int32_t node = 0;
  for (const char byte : stop) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      fresh.depth = nodes_[static_cast<std::size_t>(node)].depth + 1;
      fresh.next_sibling = nodes_[static_cast<std::size_t>(node)].first_child;
      nodes_[static_cast<std::size_t>(node)].first_child = next;
      nodes_.push_back(fresh);
    }
    node = next;
  }
  std::int32_t& slot = nodes_[static_cast<std::size_t>(node)].stop;
  if (slot < 0) slot = index;  // of equal strings the first counts
}

// Breadth first: the failure link of a node is shorter than the node, so it is ready when needed. A node that
// ends no stop string inherits the longest one that ends there from its failure link.
void StopMatcher::link() {
  std::vector<std::int32_t> queue = {0};
  for (std::size_t q = 0; q < queue.size(); ++q) {
    const std::int32_t parent = queue[q];
    for (std::int32_t c = nodes_[static_cast<std::size_t>(parent)].first_child; c >= 0;
         c = nodes_[static_cast<std::size_t>(c)].next_sibling) {
      Node& node = nodes_[static_cast<std::size_t>(c)];
      node.fail = parent == 0 ? 0 : step(nodes_[static_cast<std::size_t>(parent)].fail, node.byte);
      if (node.stop < 0) node.stop = nodes_[static_cast<std::size_t>(node.fail)].stop;
      queue.push_back(c);
    }
  }
}

std::int32_t StopMatcher::child(std::int32_t node, char byte) const {
  std::int32_t c = nodes_[static_cast<std::size_t>(node)].first_child;
  while (c >= 0 && nodes_[static_cast<std::size_t>(c)].byte != byte) c = nodes_[static_cast<std::size_t>(c)].next_sibling;
  return c;
}

std::int32_t StopMatcher::step(std::int32_t node, char byte) const {
  for (;;) {
    const std::int32_t c = child(node, byte);
    if (c >= 0) return c;
    if (node == 0) return 0;
    node = nodes_[static_cast<std::size_t>(node)].fail;
  }
}

StopMatcher::Out StopMatcher::push(std::string_view text) {
  Out out;
  out.stop = stop_;
  if (stop_ >= 0) return out;
  held_ += text;
  const std::size_t before = held_.size() - text.size();
  for (std::size_t i = before; i < held_.size(); ++i) {
    state_ = step(state_, held_[i]);
    const Node& node = nodes_[static_cast<std::size_t>(state_)];
    if (node.stop < 0) continue;
    stop_ = out.stop = node.stop;
    const std::size_t end = i + 1;
    out.text = held_.substr(0, include_stop_ ? end : end - sizes_[static_cast<std::size_t>(stop_)]);
    held_.clear();
    return out;
  }
  const std::size_t keep = nodes_[static_cast<std::size_t>(state_)].depth;
  DCHECK(keep <= held_.size());
  out.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

StopMatcher::Out StopMatcher::flush() {
  Out out;
  out.stop = stop_;
  out.text = std::exchange(held_, {});
  state_ = 0;
  return out;
}

}  // namespace barg::text
