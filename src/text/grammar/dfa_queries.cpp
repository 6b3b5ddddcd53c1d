// Questions about automata: disjoint, equal, which words, how long.
#include <algorithm>
#include <deque>
#include <unordered_set>

#include "text/grammar/dfa.h"

namespace barg::text::grammar {
namespace {

using State = Dfa::State;
constexpr State kDead = Dfa::kDead;

// A byte of every class.
std::vector<std::uint8_t> class_bytes(const Dfa& a) {
  std::vector<std::uint8_t> bytes;
  for (int b = 0; b < 256; ++b) {
    // Classes are numbered in the order of their lowest byte.
    if (a.byte_class(static_cast<std::uint8_t>(b)) == bytes.size())
      bytes.push_back(static_cast<std::uint8_t>(b));
  }
  return bytes;
}

// All states, each before those it leads to; nullopt: there is a circle.
std::optional<std::vector<State>> topological_order(const Dfa& a) {
  const std::vector<std::uint8_t> bytes = class_bytes(a);
  std::vector<std::uint32_t> arrows(a.num_states(), 0);
  for (State s = 0; s < a.num_states(); ++s) {
    for (const std::uint8_t b : bytes) {
      if (const State t = a.next(s, b); t != kDead) ++arrows[t];
    }
  }
  std::vector<State> order;
  if (arrows[a.start()] == 0) order.push_back(a.start());
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const std::uint8_t b : bytes) {
      if (const State t = a.next(order[i], b); t != kDead && --arrows[t] == 0) order.push_back(t);
    }
  }
  if (order.size() != a.num_states()) return std::nullopt;
  return order;
}

bool starts_character(std::uint8_t byte) { return (byte & 0xC0) != 0x80; }

std::int64_t fewest_characters(const Dfa& a) {
  std::vector<std::int64_t> distance(a.num_states(), -1);
  std::deque<std::pair<State, std::int64_t>> queue{{a.start(), 0}};
  while (!queue.empty()) {
    const auto [s, d] = queue.front();
    queue.pop_front();
    if (distance[s] >= 0) continue;
    distance[s] = d;
    if (a.accepting(s)) return d;
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<std::uint8_t>(i);
      const State t = a.next(s, byte);
      if (t == kDead || distance[t] >= 0) continue;
      if (starts_character(byte)) {
        queue.emplace_back(t, d + 1);
      } else {
        queue.emplace_front(t, d);
      }
    }
  }
  return 0;
}

std::optional<std::int64_t> most_characters(const Dfa& a) {
  const auto order = topological_order(a);
  if (!order) return std::nullopt;
  std::vector<std::int64_t> length(a.num_states(), 0);
  std::int64_t most = 0;
  for (const State s : *order) {
    if (a.accepting(s)) most = std::max(most, length[s]);
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<std::uint8_t>(i);
      const State t = a.next(s, byte);
      if (t != kDead) length[t] = std::max(length[t], length[s] + (starts_character(byte) ? 1 : 0));
    }
  }
  return most;
}

// Whether there are at most `most` words. REQUIRES no circle.
bool has_at_most(const Dfa& a, const std::vector<State>& order, std::size_t most) {
  std::vector<std::size_t> words(a.num_states(), 0);
  for (auto s = order.rbegin(); s != order.rend(); ++s) {
    std::size_t n = a.accepting(*s) ? 1 : 0;
    for (int b = 0; b < 256; ++b) {
      if (const State t = a.next(*s, static_cast<std::uint8_t>(b)); t != kDead) n += words[t];
      if (n > most) return false;  // every state is on the way of a word, and begins as many
    }
    words[*s] = n;
  }
  return true;
}

}  // namespace

bool dfa_disjoint(const Dfa& a, const Dfa& b) {
  if (a.empty() || b.empty()) return true;
  constexpr std::size_t kMostPairs = 4'000'000;
  std::vector<std::uint8_t> bytes;
  std::unordered_set<std::uint32_t> classes;
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    if (classes.insert(std::uint32_t{a.byte_class(byte)} << 8 | b.byte_class(byte)).second)
      bytes.push_back(byte);
  }
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::pair<State, State>> todo{{a.start(), b.start()}};
  while (!todo.empty()) {
    const auto [x, y] = todo.back();
    todo.pop_back();
    if (a.accepting(x) && b.accepting(y)) return false;
    for (const std::uint8_t byte : bytes) {
      const State s = a.next(x, byte);
      const State t = b.next(y, byte);
      if (s != kDead && t != kDead && seen.insert(std::uint64_t{s} << 32 | t).second) todo.emplace_back(s, t);
    }
    if (seen.size() > kMostPairs) return false;
  }
  return true;
}

bool dfa_equal(const Dfa& a, const Dfa& b) { return a == b; }

std::optional<std::vector<std::string>> dfa_words(const Dfa& a, std::size_t most) {
  std::vector<std::string> words;
  if (a.empty()) return words;
  const auto order = topological_order(a);
  if (!order || !has_at_most(a, *order, most)) return std::nullopt;
  struct Place {
    State state;
    int byte;  // the next to try
  };
  std::vector<Place> path{{a.start(), 0}};
  std::string word;
  if (a.accepting(a.start())) words.push_back(word);
  while (!path.empty()) {
    Place& place = path.back();
    if (place.byte == 256) {
      path.pop_back();
      if (!word.empty()) word.pop_back();
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(place.byte++);
    const State t = a.next(place.state, byte);
    if (t == kDead) continue;
    word.push_back(static_cast<char>(byte));
    path.push_back({t, 0});
    if (a.accepting(t)) words.push_back(word);
  }
  return words;
}

DfaLengths dfa_char_lengths(const Dfa& a) {
  if (a.empty()) return {.fewest = 0, .most = 0};
  return {.fewest = fewest_characters(a), .most = most_characters(a)};
}

}  // namespace barg::text::grammar
