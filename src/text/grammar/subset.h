// The subset construction's sets: sorted lists of numbers, each known by the place where it was first seen.
// Owned by one construction; not thread-safe.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "barg/result.h"
#include "text/grammar/concat.h"
#include "text/grammar/dfa.h"

namespace barg::text::grammar {

class SetTable {
 public:
  using Set = std::vector<std::uint32_t>;

  /// REQUIRES a sorted set.
  std::uint32_t intern(const Set& set) {
    const auto [at, is_new] = names_.emplace(set, static_cast<std::uint32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(&at->first);
      members_ += set.size();
    }
    return at->second;
  }
  const Set& operator[](std::uint32_t name) const { return *sets_[name]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(sets_.size()); }
  std::uint64_t members() const { return members_; }  ///< of all sets together: the memory they take

 private:
  struct Hash {
    std::size_t operator()(const Set& set) const {
      std::uint64_t h = 0x9E3779B97F4A7C15ULL ^ set.size();
      for (const std::uint32_t x : set) {
        h = (h ^ x) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
      }
      return static_cast<std::size_t>(h);
    }
  };
  std::unordered_map<Set, std::uint32_t, Hash> names_;
  std::vector<const Set*> sets_;  // keys of names_, which stay where they are
  std::uint64_t members_ = 0;
};

/// A construction's least, in steps: what surrounds it.
inline constexpr std::uint64_t kStepsOfAny = 1'000;

inline std::unexpected<Error> too_large(const DfaLimits& limits) {
  if (limits.spent())
    return fail(ErrorCode::kUnsupported, "too large: all automata together take too much work");
  return fail(ErrorCode::kUnsupported,
              concat("too large: the automaton needs over ", limits.states, " states"));
}

/// What constructions may cost, in proportion to the states they may have: elementary steps (at the default
/// limits a second at most), and members of sets that are remembered.
inline constexpr std::uint64_t kStepsPerState = 1'000;
inline constexpr std::uint64_t kMembersPerState = 200;

/// Entries of a table [states][classes], and transitions.
inline constexpr std::uint64_t kMaxTableEntries = 3'000'000;

}  // namespace barg::text::grammar
