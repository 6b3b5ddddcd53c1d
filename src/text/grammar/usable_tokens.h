// UsableTokens: what of a vocabulary one constraint may draw, and where its tokens lead from a state of the machine.
// Immutable once filled; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "text/grammar/machine.h"
#include "text/grammar/vocabulary.h"

namespace barg::text::grammar {

using TokenBits = std::vector<std::uint64_t>;  ///< bit id % 64 of word id / 64

inline bool has_bit(std::span<const std::uint64_t> words, TokenId id) {
  return (words[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64) & 1) != 0;
}
inline void set_bit(std::span<std::uint64_t> words, TokenId id) {
  words[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
}

inline void clear_bit(std::span<std::uint64_t> words, TokenId id) {
  words[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << (static_cast<std::size_t>(id) % 64));
}

struct UsableTokens {
  std::shared_ptr<const Vocabulary> vocabulary;
  TokenBits drawable;         ///< ids of the vocabulary that the request lets be drawn
  TokenBits spelled;          ///< of these, those that bytes spell and that end nothing
  TokenBits walked;           ///< of these, all but Vocabulary::quoted(): what Walk::like holds for
  std::vector<TokenId> quoted;  ///< the others
  std::vector<TokenId> ends;  ///< of these, those that end an output; ascending

  /// Sets `walked` and `quoted`.
  void split_quoted() {
    walked = spelled;
    for (const TokenId id : vocabulary->quoted()) {
      if (!has_bit(spelled, id)) continue;
      quoted.push_back(id);
      clear_bit(walked, id);
    }
  }
  bool is_end(TokenId id) const { return std::binary_search(ends.begin(), ends.end(), id); }
  /// Does a node of a trie stand for a token that is usable?
  bool any(const TrieNode& node) const {
    TokenId id = node.token;
    while (id != kNoToken && !has_bit(spelled, id)) id = vocabulary->same(id);
    return id != kNoToken;
  }
  /// A token of the grammar itself: where it ends the output, the output must be complete behind it.
  bool may_name(TokenId id, const Machine::State& behind) const {
    return has_bit(drawable, id) && (!is_end(id) || Machine::accepting(behind));
  }
};

/// Memory of walks: states along the path from the root.
class WalkStack {
 public:
  explicit WalkStack(const Vocabulary& vocabulary)
      : states_(static_cast<std::size_t>(vocabulary.longest_bytes()) + 1) {}
  std::vector<const Machine::State*>& states() { return states_; }

 private:
  std::vector<const Machine::State*> states_;
};

/// Work of one walk (Machine::Walk::work) where masks are made: about a fifth of a second.
inline constexpr std::int64_t kWalkWork = 2'000'000;

/// How far walks go: nodes of tries, counted down; and what Walk::work() may come to. Where many readings of an ambiguous
/// grammar go on side by side a walk ends by its work.
struct WalkLimits {
  std::int64_t nodes = std::numeric_limits<std::int64_t>::max();
  std::int64_t work = std::numeric_limits<std::int64_t>::max();
  /// Whoever gets a state uses it at once, or keeps it by Walk::keep: others may be forgotten on the way.
  bool forgetful = false;
};

/// emit(node, state) for every token of `trie` that the machine takes behind `from`, by Walk::like. Subtrees without a
/// token of more than `chars` characters are left out (only of the plain trie; -1: none). False: it would be beyond the
/// limits.
template <class Emit>
bool walk_trie(Machine::Walk& machine, const Machine::State* from, const Trie& trie, int chars, WalkStack& stack,
               WalkLimits& limits, Emit emit) {
  constexpr std::size_t kForgetEvery = 1024;  // nodes
  auto& states = stack.states();
  states[0] = from;
  for (std::size_t i = 0; i < trie.size();) {
    const TrieNode& node = trie[i];
    if (node.most_chars <= chars) {
      i = node.end;
      continue;
    }
    if (--limits.nodes < 0 || machine.work() > limits.work) return false;
    if (limits.forgetful && i % kForgetEvery == 0) machine.forget_but(std::span(states).first(node.depth));
    const Machine::State* to = machine.next(states[node.depth - 1U], node.byte);
    if (to == nullptr) {
      i = node.end;
      continue;
    }
    to = machine.like(to);
    if (node.token != kNoToken) emit(node, to);
    states[node.depth] = to;
    ++i;
  }
  return true;
}

/// emit(id, state) for every usable token but the quoted ones that may come behind `from`. False as in walk_trie().
template <class Emit>
bool each_token(Machine::Walk& machine, const Machine::State* from, const UsableTokens& usable, WalkStack& stack,
                WalkLimits& limits, Emit emit) {
  const std::vector<TokenId> named = machine.tokens(from);
  for (const TokenId id : named) {
    if (--limits.nodes < 0) return false;
    const Machine::State* to = machine.next_token(from, id);
    if (to != nullptr && usable.may_name(id, *to)) emit(id, to);
  }
  const Vocabulary& vocabulary = *usable.vocabulary;
  const auto spelled = [&](const TrieNode& node, const Machine::State* to) {
    for (TokenId id = node.token; id != kNoToken; id = vocabulary.same(id)) {
      if (has_bit(usable.walked, id) && !std::binary_search(named.begin(), named.end(), id)) emit(id, to);
    }
  };
  return walk_trie(machine, from, vocabulary.all(), -1, stack, limits, spelled);
}

/// The same for the quoted ones, without Walk::like.
template <class Emit>
bool each_quoted(Machine::Walk& machine, const Machine::State* from, const UsableTokens& usable, const WalkLimits& limits,
                 Emit emit) {
  for (const TokenId id : usable.quoted) {
    if (machine.work() > limits.work) return false;
    const Machine::State* to = from;
    for (const char c : usable.vocabulary->bytes(id)) {
      to = machine.next(to, static_cast<std::uint8_t>(c));
      if (to == nullptr) break;
    }
    if (to != nullptr) emit(id, to);
  }
  return true;
}

/// The same for the tokens of one byte.
template <class Emit>
void each_byte(Machine::Walk& machine, const Machine::State* from, const UsableTokens& usable, Emit emit) {
  for (int byte = 0; byte < 256; ++byte) {
    TokenId id = usable.vocabulary->single(static_cast<std::uint8_t>(byte));
    if (id == kNoToken) continue;
    const Machine::State* to = machine.next(from, static_cast<std::uint8_t>(byte));
    for (; to != nullptr && id != kNoToken; id = usable.vocabulary->same(id)) {
      if (has_bit(usable.spelled, id)) emit(id, to);
    }
  }
}

}  // namespace barg::text::grammar
