// An automaton from a rule: states are values, a step says where a byte leads. For languages that are easier
// said as a small program than as an expression: digits compared with a bound, residues, times of a day.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/subset.h"

namespace barg::text::grammar {

/// `step(state, byte) -> std::optional<State>` for the bytes of `alphabet` (distinct; all others are dead),
/// `accepting(state) -> bool`. State has operator<=>. kUnsupported beyond the limits.
template <class State, class Step, class Accepting>
Result<Dfa> explore(State start, std::string_view alphabet, Step step, Accepting accepting,
                    const DfaLimits& limits) {
  if (limits.spent()) return too_large(limits);
  limits.spend(kStepsOfAny);
  std::array<std::uint8_t, 256> class_of{};
  for (std::size_t i = 0; i < alphabet.size(); ++i) {
    class_of[static_cast<std::uint8_t>(alphabet[i])] = static_cast<std::uint8_t>(i + 1);
  }
  const auto classes = static_cast<std::uint32_t>(alphabet.size() + 1);
  std::map<State, Dfa::State> names{{start, 0}};
  std::vector<State> states{start};
  std::vector<Dfa::State> table;
  std::vector<std::uint8_t> accepts;
  for (std::size_t s = 0; s < states.size(); ++s) {
    accepts.push_back(accepting(states[s]) ? 1 : 0);
    table.push_back(Dfa::kDead);
    for (const char byte : alphabet) {
      const std::optional<State> to = step(states[s], byte);
      if (!to) {
        table.push_back(Dfa::kDead);
        continue;
      }
      const auto [at, is_new] = names.emplace(*to, static_cast<Dfa::State>(states.size()));
      if (is_new) states.push_back(*to);
      table.push_back(at->second);
    }
    limits.spend(2 * alphabet.size());
    if (states.size() > limits.states) return too_large(limits);
  }
  return Dfa::make(class_of, classes, std::move(table), std::move(accepts), 0);
}

}  // namespace barg::text::grammar
