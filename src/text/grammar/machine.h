// Machine: runs a Grammar over bytes. A lazily determinised pushdown automaton.
//
// A configuration is (terminal, its local state, stack of frames); a frame is a composite node with one word
// of its own data (place in a sequence, count of items, index of an interned list of names seen), linked to
// its parent and interned, so equal stacks are one pointer. A State is an interned, sorted set of
// configurations closed under everything that needs no input; its transitions are remembered by byte. So the
// common case of a step is one load, and memory holds what outputs have visited, not what the grammar could
// do.
//
// Every State other than dead can reach acceptance by bytes and tokens (`min_bytes` is finite): dead ends are
// never entered. Ambiguous grammars keep all readings, at most kMaxConfigs of them, the cheapest to bring to an end:
// dropping others narrows the language and never widens it, and never makes the way to an end longer.
//
// Limits: compile() refuses what is too large, left recursion and the empty language. The remembered states
// are bounded: beyond Limits::memory_bytes they are forgotten as a whole, and whoever holds a State keeps its
// own alive (a step from it is then remembered among the new ones). Composites nest at most 1000 deep: what
// would have to go deeper is not begun.
//
// Threads: thread-safe; one mutex inside, held for microseconds. The static functions take no lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "barg/types.h"
#include "text/grammar/node.h"

namespace barg::text::grammar {

struct MachineLimits {
  std::size_t nodes = 200'000;
  std::size_t memory_bytes = std::size_t{64} << 20;  ///< of remembered states
};

class Machine {
 public:
  struct State;  ///< opaque; compared by pointer
  using StatePtr = std::shared_ptr<const State>;

  static constexpr std::size_t kMaxConfigs = 2048;

  /// kUnsupported: too large, left-recursive, or nested too deep; kInvalidValue: the language is empty.
  static Result<std::shared_ptr<Machine>> compile(Grammar grammar, const MachineLimits& limits = {});
  ~Machine();

  StatePtr start();
  /// nullptr: no output begins so.
  StatePtr next(const StatePtr& from, std::uint8_t byte);
  StatePtr next_token(const StatePtr& from, TokenId id);  ///< a TokenNode's token
  /// The ids of TokenNodes that may come next, ascending.
  std::vector<TokenId> tokens(const StatePtr& from);
  static bool accepting(const State& state);
  /// Bytes (a token counts as one) of a shortest way to a whole output; 0 if accepting. Exact.
  static std::int64_t min_bytes(const State& state);
  /// Every string of at most this many "plain" characters (bytes >= 0x20 without '"' and '\', whole UTF-8
  /// characters) may come next, and all states on the way are JSON string content or the like; 0 where that
  /// is not known, kUnboundedRun without end. A bound from below, what masks use to take many tokens at once.
  static constexpr std::int64_t kUnboundedRun = INT64_MAX;
  static std::int64_t plain_run(const State& state);
  /// Over all states reachable by such a run of plain characters, this one too: at least the largest
  /// min_bytes.
  static std::int64_t plain_run_worst(const State& state);

  /// The walk of a trie holds the lock once instead of at every byte: while it lives no other function of the
  /// Machine may be called on its thread. Raw pointers are valid while the Walk lives. A state from elsewhere
  /// is any that its caller keeps alive.
  class Walk {
   public:
    explicit Walk(Machine& machine);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    const State* next(const State* from, std::uint8_t byte);  ///< nullptr: dead
    const State* next_token(const State* from, TokenId id);
    std::vector<TokenId> tokens(const State* from);  ///< as Machine::tokens
    /// The state itself; or, inside a name that can no longer be one that its object has had or declares, one
    /// that all such names of the object share. It takes the same bytes, with the same min_bytes behind them, as
    /// long as behind the first quote there is no other and no comma: those may begin a next name, which has to be
    /// another one.
    const State* like(const State* state);
    StatePtr keep(const State* state);               ///< beyond the Walk
    /// What all next() and next_token() of this Walk were worth, about 100 ns each: the same whatever is remembered.
    std::int64_t work() const;
    /// Where the Walk has come to remember more than the Machine may: forgets what no StatePtr keeps, but for these
    /// states, which get new addresses (nullptr stays).
    void forget_but(std::span<const State*> states);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  /// All bytes that any text of the language may need: each must be a usable single-byte token of the
  /// vocabulary.
  std::vector<std::uint8_t> alphabet() const;
  /// The ids of all TokenNodes, ascending: each must be usable too.
  std::vector<TokenId> token_alphabet() const;

 private:
  struct Impl;
  explicit Machine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Whole text against the machine: nullopt if it is accepted, else the offset of the first byte that cannot
/// stand there (the text's size where it is only incomplete).
std::optional<std::size_t> first_failure(Machine& machine, std::string_view text);

}  // namespace barg::text::grammar
