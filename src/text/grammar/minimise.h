// Which states of a partial automaton accept the same words: Hopcroft's refinement in the form of Valmari
// (2012), which works on the transitions there are, in O(m log m), whatever the alphabet. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace barg::text::grammar {

struct Transition {
  std::uint32_t from, label, to;
};

/// The block of every state; blocks are numbered from 0. REQUIRES a deterministic automaton in which every
/// state can reach acceptance (a missing transition is dead), labels < `labels`.
std::vector<std::uint32_t> equivalence_blocks(std::uint32_t states, std::uint32_t labels,
                                              const std::vector<Transition>& transitions,
                                              const std::vector<std::uint8_t>& accepting);

}  // namespace barg::text::grammar
