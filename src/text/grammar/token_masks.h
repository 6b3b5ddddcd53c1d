// TokenMasks: the masks of one constraint, by state of its machine.
//
//   language   the tokens that the machine takes there, and end tokens where the output is complete. Made by walking the
//              trie of the vocabulary; inside JSON strings by taking nearly all of it at once (vocabulary.h, plain_run);
//              inside names that are like no other by what is known of any such name (Machine::Walk::like)
//   narrow     of these, the tokens behind which the rest fits into a number of tokens (token_distance.h). Mostly all:
//              with each mask goes the largest min_bytes behind any of its tokens. Otherwise by groups of tokens that
//              lead to the same state
//
// Where a grammar is so ambiguous that a walk would take over a fifth of a second (kWalkWork), it ends early: the mask has
// the tokens found so far, those of one byte and those of the text that TokenDistance knows. Every text of the language can
// still be written, by other tokens. A mask that is not whole is so for every sequence in that state.
//
// Recent ones of both are kept, so that sequences in the same state share them, and a text in a string has one.
//
// Threads: thread-safe; a walk holds the machine's lock for up to a millisecond or two, where it ends early for longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/machine.h"
#include "text/grammar/token_distance.h"
#include "text/grammar/usable_tokens.h"

namespace barg::text::grammar {

std::int32_t count_bits(std::span<const std::uint64_t> words);

/// The most recently used of things made for states. It keeps no state alive: an entry whose state is gone may have the
/// address of another one, and counts for nothing. Thread-safe.
template <class T>
class Recent {
 public:
  explicit Recent(std::size_t most) : most_(most) {}

  std::shared_ptr<const T> find(const Machine::StatePtr& state) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(state.get());
    if (found == index_.end() || found->second->state.expired()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->value;
  }
  /// Also in place of another one.
  void put(const Machine::StatePtr& state, std::shared_ptr<const T> value) {
    const std::lock_guard lock(mutex_);
    if (const auto old = index_.find(state.get()); old != index_.end()) order_.erase(old->second);
    order_.push_front({state.get(), state, std::move(value)});
    index_[state.get()] = order_.begin();
    if (order_.size() <= most_) return;
    index_.erase(order_.back().address);
    order_.pop_back();
  }

 private:
  struct Entry {
    const Machine::State* address;
    std::weak_ptr<const Machine::State> state;
    std::shared_ptr<const T> value;
  };
  const std::size_t most_;
  std::mutex mutex_;
  std::list<Entry> order_;  // guarded by mutex_; most recent first
  std::unordered_map<const Machine::State*, typename std::list<Entry>::iterator> index_;  // guarded by mutex_
};

struct StateMask {
  TokenBits words;
  std::int32_t count = 0;
  std::int64_t worst_bytes = 0;  ///< min_bytes behind each of them is at most so many
  bool whole = true;             ///< false: a walk ended early
};

class TokenMasks {
 public:
  /// `machine` and `usable` outlive it. `work`: of one walk.
  TokenMasks(Machine& machine, const UsableTokens& usable, std::int64_t work = kWalkWork);

  std::shared_ptr<const StateMask> language(const Machine::StatePtr& state);
  /// Sets in `words` the bits of the tokens behind which `tokens` more suffice, and of the end tokens; or, where there
  /// are none, of those behind which the fewest do.
  void narrow(const Machine::StatePtr& state, std::int64_t tokens, TokenBits& words);
  TokenDistance& distance() { return distance_; }

 private:
  static constexpr std::size_t kMasks = 128;  // 19 KB each for 150,000 ids
  static constexpr std::size_t kGroups = 8;   // up to 100 KB or so each

  /// Tokens that lead to the same state (as Walk::like has it): their ids, or their bits where they are many.
  struct Group {
    std::weak_ptr<const Machine::State> state;
    std::vector<TokenId> ids;
    TokenBits bits;
  };
  using Groups = std::vector<Group>;
  using States = std::vector<Machine::StatePtr>;  // of groups

  StateMask make_language(const Machine::StatePtr& state);
  StateMask walked(const Machine::StatePtr& state);
  StateMask walk_language(Machine::Walk& walk, const Machine::State* state) const;
  void add_short(const Machine::StatePtr& state, StateMask& mask);
  Groups make_groups(const Machine::StatePtr& state, States& states);
  std::shared_ptr<const Groups> groups(Machine::StatePtr state, States& states);
  bool narrow_quoted(const Machine::StatePtr& state, std::int64_t tokens, TokenBits& words);
  void add_ends(TokenBits& words) const;
  static void add(const Group& group, TokenBits& words);

  Machine& machine_;
  const UsableTokens& usable_;
  const std::int64_t work_;
  TokenDistance distance_;
  Recent<StateMask> masks_{kMasks};
  Recent<Groups> groups_{kGroups};
};

}  // namespace barg::text::grammar
