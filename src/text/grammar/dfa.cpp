#include "text/grammar/dfa.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/check.h"
#include "text/grammar/minimise.h"

namespace barg::text::grammar {
namespace {

using State = Dfa::State;
constexpr State kDead = Dfa::kDead;

// An automaton as it is given to make().
struct Raw {
  std::uint32_t classes = 1;
  std::vector<State> table;
  std::vector<std::uint8_t> accepting;
  State start = kDead;

  std::uint32_t states() const { return static_cast<std::uint32_t>(accepting.size()); }
  std::span<const State> row(State s) const { return {table.data() + std::size_t{s} * classes, classes}; }
};

std::vector<std::uint8_t> reachable(const Raw& raw) {
  std::vector<std::uint8_t> seen(raw.states(), 0);
  std::vector<State> todo{raw.start};
  seen[raw.start] = 1;
  while (!todo.empty()) {
    const State s = todo.back();
    todo.pop_back();
    for (const State t : raw.row(s)) {
      if (t != kDead && seen[t] == 0) {
        seen[t] = 1;
        todo.push_back(t);
      }
    }
  }
  return seen;
}

// Arrows backwards, without their bytes: the states before s are at places starts[s] .. starts[s + 1].
struct Backwards {
  std::vector<std::uint32_t> starts, states;

  explicit Backwards(const Raw& raw) : starts(raw.states() + 1, 0) {
    for (const State t : raw.table) {
      if (t != kDead) ++starts[t + 1];
    }
    for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
    states.resize(starts.back());
    std::vector<std::uint32_t> next(starts.begin(), starts.end() - 1);
    for (State s = 0; s < raw.states(); ++s) {
      for (const State t : raw.row(s)) {
        if (t != kDead) states[next[t]++] = s;
      }
    }
  }
};

// Steps of a shortest way to acceptance, kInfinite where there is none.
std::vector<std::uint32_t> distances(const Raw& raw) {
  std::vector<std::uint32_t> distance(raw.states(), Dfa::kInfinite);
  std::vector<State> queue;
  for (State s = 0; s < raw.states(); ++s) {
    if (raw.accepting[s] == 0) continue;
    distance[s] = 0;
    queue.push_back(s);
  }
  const Backwards before(raw);
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const State t = queue[i];
    for (std::uint32_t p = before.starts[t]; p < before.starts[t + 1]; ++p) {
      const State s = before.states[p];
      if (distance[s] != Dfa::kInfinite) continue;
      distance[s] = distance[t] + 1;
      queue.push_back(s);
    }
  }
  return distance;
}

// Only states that are reached and can accept, numbered anew in their old order.
Raw trim(const Raw& raw) {
  Raw out;
  out.classes = raw.classes;
  if (raw.start == kDead) return out;
  const std::vector<std::uint8_t> reached = reachable(raw);
  const std::vector<std::uint32_t> distance = distances(raw);
  if (distance[raw.start] == Dfa::kInfinite) return out;
  std::vector<State> name(raw.states(), kDead);
  for (State s = 0; s < raw.states(); ++s) {
    if (reached[s] == 0 || distance[s] == Dfa::kInfinite) continue;
    name[s] = out.states();
    out.accepting.push_back(raw.accepting[s] != 0 ? 1 : 0);
  }
  out.table.reserve(std::size_t{out.states()} * raw.classes);
  for (State s = 0; s < raw.states(); ++s) {
    if (name[s] == kDead) continue;
    for (const State t : raw.row(s)) out.table.push_back(t == kDead ? kDead : name[t]);
  }
  out.start = name[raw.start];
  return out;
}

// One state for each block of equivalent ones, numbered in the order of a walk from the start: equal
// languages (over the same classes) give equal tables.
Raw minimise(const Raw& raw) {
  std::vector<Transition> transitions;
  for (State s = 0; s < raw.states(); ++s) {
    const auto row = raw.row(s);
    for (std::uint32_t c = 0; c < raw.classes; ++c) {
      if (row[c] != kDead) transitions.push_back({s, c, row[c]});
    }
  }
  const std::vector<std::uint32_t> block =
      equivalence_blocks(raw.states(), raw.classes, transitions, raw.accepting);
  std::vector<State> name(raw.states(), kDead);  // by block
  std::vector<State> representative{raw.start};
  name[block[raw.start]] = 0;
  Raw out;
  out.classes = raw.classes;
  out.start = 0;
  for (State n = 0; n < representative.size(); ++n) {
    const State s = representative[n];
    out.accepting.push_back(raw.accepting[s]);
    for (const State t : raw.row(s)) {
      if (t != kDead && name[block[t]] == kDead) {
        name[block[t]] = static_cast<State>(representative.size());
        representative.push_back(t);
      }
      out.table.push_back(t == kDead ? kDead : name[block[t]]);
    }
  }
  return out;
}

// Classes whose columns are equal become one; classes are numbered in the order of their lowest byte.
void merge_classes(Raw& raw, std::array<std::uint8_t, 256>& class_of) {
  std::map<std::vector<State>, std::uint8_t> known;
  std::vector<std::uint32_t> name(raw.classes, kDead);  // by old class
  std::vector<std::uint32_t> columns;                   // by new class: an old one
  for (int byte = 0; byte < 256; ++byte) {
    const std::uint32_t old = class_of[static_cast<std::size_t>(byte)];
    CHECK(old < raw.classes);
    if (name[old] == kDead) {
      std::vector<State> column(raw.states());
      for (State s = 0; s < raw.states(); ++s) column[s] = raw.row(s)[old];
      const auto [at, is_new] = known.emplace(std::move(column), static_cast<std::uint8_t>(columns.size()));
      if (is_new) columns.push_back(old);
      name[old] = at->second;
    }
    class_of[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(name[old]);
  }
  std::vector<State> table;
  table.reserve(std::size_t{raw.states()} * columns.size());
  for (State s = 0; s < raw.states(); ++s) {
    for (const std::uint32_t old : columns) table.push_back(raw.row(s)[old]);
  }
  raw.table = std::move(table);
  raw.classes = static_cast<std::uint32_t>(columns.size());
}

}  // namespace

Dfa Dfa::make(std::array<std::uint8_t, 256> class_of, std::uint32_t classes, std::vector<State> table,
              std::vector<std::uint8_t> accepting, State start) {
  CHECK(classes >= 1 && classes <= 256 && table.size() == accepting.size() * classes);
  CHECK(start == kDead || start < accepting.size());
  Raw raw{classes, std::move(table), std::move(accepting), start};
  raw = trim(raw);
  Dfa dfa;
  if (raw.start == kDead) return dfa;
  // Merging first makes few transitions to minimise; of the walk in minimise() the order is that of the
  // classes.
  merge_classes(raw, class_of);
  raw = minimise(raw);
  merge_classes(raw, class_of);
  dfa.class_of_ = class_of;
  dfa.classes_ = raw.classes;
  dfa.min_bytes_ = distances(raw);
  dfa.worst_ = *std::max_element(dfa.min_bytes_.begin(), dfa.min_bytes_.end());
  dfa.table_ = std::move(raw.table);
  dfa.accepting_ = std::move(raw.accepting);
  dfa.start_ = raw.start;
  return dfa;
}

bool Dfa::matches(std::string_view bytes) const {
  State s = start_;
  for (const char byte : bytes) {
    if (s == kDead) return false;
    s = next(s, static_cast<std::uint8_t>(byte));
  }
  return s != kDead && accepting(s);
}

}  // namespace barg::text::grammar
