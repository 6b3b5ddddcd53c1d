// Dfa: a regular language of byte strings as a deterministic automaton, and how such are made and combined.
//
// Always trimmed (every state is reachable and can accept), so "alive" is "not dead"; the empty language has no
// states. Made from regular expressions (regex.h), literals, ranges of numbers (numbers.h), formats (formats.h); the
// schema front end intersects and complements them. Immutable once built; any thread. Every operation is bounded by
// Limits and fails with kUnsupported ("too large") instead of growing; many share a bound of the work.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"

namespace barg::text::grammar {

struct DfaLimits {
  std::uint32_t states = 20'000;  ///< of any automaton on the way, before minimising; time is bounded in proportion
  /// Steps that are left to all who share it, counted down (20 million take about a second); nullptr: without end.
  /// Below 0 everything is too large.
  std::int64_t* work = nullptr;

  void spend(std::uint64_t steps) const {
    if (work != nullptr) *work -= static_cast<std::int64_t>(steps);
  }
  bool spent() const { return work != nullptr && *work < 0; }
};

/// What one constraint may take, with all that it is made of: two or three seconds.
inline constexpr std::int64_t kCompileWork = 50'000'000;

class Dfa {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0xFFFF'FFFF;
  static constexpr std::uint32_t kInfinite = 0xFFFF'FFFF;

  bool empty() const { return accepting_.empty(); }  ///< no string at all
  State start() const { return start_; }             ///< kDead if empty()
  State next(State s, std::uint8_t byte) const { return table_[s * classes_ + class_of_[byte]]; }
  bool accepting(State s) const { return accepting_[s] != 0; }
  /// Bytes of a shortest way from `s` to acceptance.
  std::uint32_t min_bytes(State s) const { return min_bytes_[s]; }
  /// Largest min_bytes of any state.
  std::uint32_t worst_min_bytes() const { return worst_; }
  std::uint32_t num_states() const { return static_cast<std::uint32_t>(accepting_.size()); }
  bool matches(std::string_view bytes) const;
  /// Bytes of one class lead to the same states everywhere; classes are numbered in the order of their lowest byte.
  std::uint8_t byte_class(std::uint8_t byte) const { return class_of_[byte]; }
  std::uint32_t num_classes() const { return classes_; }
  /// Equal languages, that is: a minimal automaton is unique, and states and classes are numbered by its form.
  bool operator==(const Dfa&) const = default;

  /// From raw parts, untrimmed and not minimal; trims and minimises (Hopcroft or Moore). `table` is
  /// [states][classes], kDead allowed.
  static Dfa make(std::array<std::uint8_t, 256> class_of, std::uint32_t classes, std::vector<State> table,
                  std::vector<std::uint8_t> accepting, State start);

 private:
  std::array<std::uint8_t, 256> class_of_{};
  std::uint32_t classes_ = 1;
  std::vector<State> table_;
  std::vector<std::uint8_t> accepting_;
  std::vector<std::uint32_t> min_bytes_;
  std::uint32_t worst_ = 0;
  State start_ = kDead;
};

using DfaPtr = std::shared_ptr<const Dfa>;

Dfa dfa_literal(std::string_view bytes);
/// Any of them. Takes memory for each byte of the words: the caller bounds them.
Dfa dfa_literals(const std::vector<std::string>& words);
Dfa dfa_valid_utf8();                                      ///< all valid UTF-8 (no surrogates, no overlong forms)
Result<Dfa> dfa_intersect(const Dfa& a, const Dfa& b, const DfaLimits& limits = {});
Result<Dfa> dfa_unite(const Dfa& a, const Dfa& b, const DfaLimits& limits = {});
/// What is in `a` and not in `b`.
Result<Dfa> dfa_subtract(const Dfa& a, const Dfa& b, const DfaLimits& limits = {});
Result<Dfa> dfa_concat(const Dfa& a, const Dfa& b, const DfaLimits& limits = {});
/// `item` min..max times (max < 0: without end).
Result<Dfa> dfa_repeat(const Dfa& item, std::int64_t min, std::int64_t max, const DfaLimits& limits = {});
/// False also where it would take too long to tell (millions of pairs of states).
bool dfa_disjoint(const Dfa& a, const Dfa& b);
bool dfa_equal(const Dfa& a, const Dfa& b);
/// All words, in order of bytes, if there are at most `most`.
std::optional<std::vector<std::string>> dfa_words(const Dfa& a, std::size_t most);
/// Languages of valid UTF-8 only: fewest and most characters of a word (most: nullopt = without end).
struct DfaLengths {
  std::int64_t fewest = 0;
  std::optional<std::int64_t> most;
};
DfaLengths dfa_char_lengths(const Dfa& a);

}  // namespace barg::text::grammar
