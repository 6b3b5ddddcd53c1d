// TokenDistance: how many tokens suffice from a state of the machine to a whole output. The smallest of three bounds:
//
//   bytes    Machine::min_bytes: each byte of the language is a token of its own
//   spelled  the fewest tokens that spell one certain shortest text: from each state the same first byte that comes
//            nearer to the end, so that the text behind any of its bytes is that of the state there
//   found    the distance in the graph of states and tokens, where a search that looks at few tokens finds it
//
// What masks rely on (token_masks.h): where the bound of a state is d > 0, there is a usable token to a state whose bound
// is at most d - 1. For `spelled` it is the first token of the best spelling. For `found` it is the first token of the
// path: a search looks at whole levels, so the one from the next state looks at a part of what this one did, and is not
// given up either. All three depend on the state alone, not on what was asked before.
//
// A text or a search that takes too much work is not looked at: then it is the bytes. Work is a function of the state, too.
//
// Threads: thread-safe; one mutex, held for up to milliseconds, where much work is needed for a fifth of a second. Memory: bounded, and no state is kept alive by it; what is
// forgotten is computed again.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/machine.h"
#include "text/grammar/usable_tokens.h"

namespace barg::text::grammar {

class TokenDistance {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// `machine` and `usable` outlive it. Every byte of the machine's alphabet is a usable token. `work`: of finding one
  /// text; a search takes a quarter, so that its first token is found by whoever walks with all of it.
  TokenDistance(Machine& machine, const UsableTokens& usable, std::int64_t work = kWalkWork);

  /// Do so many tokens suffice?
  bool within(const Machine::StatePtr& state, std::int64_t tokens);
  std::int64_t tokens(const Machine::StatePtr& state);
  /// The tokens that the text of `spelled` may begin with, and the states behind them.
  std::vector<std::pair<TokenId, Machine::StatePtr>> spelled_tokens(const Machine::StatePtr& from);

 private:
  static constexpr std::int64_t kUnknown = -1;
  static constexpr std::int64_t kLongestText = 1 << 14;  // beyond it, bytes
  static constexpr std::int64_t kSearchSteps = 1 << 14;  // nodes of the trie that a search looks at
  static constexpr std::size_t kRemembered = 1 << 16;
  static constexpr std::int32_t kTokens = 256;           // symbols: bytes, then tokens

  using WeakState = std::weak_ptr<const Machine::State>;
  struct Known {
    WeakState state;           // expired: this is of another state that had the address
    std::int32_t symbol = -1;  // of its shortest text
    WeakState next;            // behind it
    std::int64_t work = 0;     // of finding it
    std::int64_t spelled = kUnknown;
    std::int64_t found = kUnknown;
  };
  struct Path {
    std::vector<Machine::StatePtr> states;  // those before each symbol, then the last
    std::vector<std::int32_t> symbols;
    bool whole = false;
  };

  Known& know(const Machine::StatePtr& state);
  Machine::StatePtr step(Machine::Walk& walk, const Machine::StatePtr& from);
  /// Of at most so many symbols.
  Path path(Machine::Walk& walk, Machine::StatePtr from, std::int64_t symbols);
  std::int64_t spelled(const Machine::StatePtr& from);
  std::int64_t spell(const std::vector<std::int32_t>& symbols, std::size_t from, const std::vector<std::int64_t>& behind) const;
  std::int64_t found(const Machine::StatePtr& from);
  std::int64_t search(const Machine::State* from);

  Machine& machine_;
  const UsableTokens& usable_;
  const std::int64_t work_;
  std::vector<std::uint8_t> bytes_;  // of the alphabet, as they are tried
  std::mutex mutex_;
  WalkStack stack_;                                            // guarded by mutex_
  std::unordered_map<const Machine::State*, Known> known_;     // guarded by mutex_
};

}  // namespace barg::text::grammar
