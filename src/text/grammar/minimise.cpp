#include "text/grammar/minimise.h"

#include <numeric>
#include <utility>

namespace barg::text::grammar {
namespace {

// A refinable partition of 0..n-1: the members of a set lie side by side, the marked ones first.
class Partition {
 public:
  explicit Partition(std::uint32_t n) : items_(n), place_(n), set_of_(n, 0) {
    std::iota(items_.begin(), items_.end(), 0U);
    std::iota(place_.begin(), place_.end(), 0U);
    if (n > 0) sets_.push_back({0, n, 0});
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(sets_.size()); }
  std::uint32_t set_of(std::uint32_t item) const { return set_of_[item]; }
  std::uint32_t first(std::uint32_t set) const { return sets_[set].first; }
  std::uint32_t end(std::uint32_t set) const { return sets_[set].end; }
  std::uint32_t item(std::uint32_t place) const { return items_[place]; }

  /// REQUIRES an item that is not marked.
  void mark(std::uint32_t item) {
    Set& set = sets_[set_of_[item]];
    const std::uint32_t to = set.first + set.marked;
    const std::uint32_t from = place_[item];
    std::swap(items_[from], items_[to]);
    place_[items_[from]] = from;
    place_[item] = to;
    if (set.marked++ == 0) touched_.push_back(set_of_[item]);
  }

  /// Parts the marked from the unmarked; the smaller part becomes a set of its own, at the end.
  void split() {
    for (const std::uint32_t s : touched_) {
      Set& set = sets_[s];
      const std::uint32_t middle = set.first + set.marked;
      const bool marked_is_smaller = set.marked <= set.end - middle;
      set.marked = 0;
      if (middle == set.end) continue;
      Set part{set.first, middle, 0};
      if (marked_is_smaller) {
        set.first = middle;
      } else {
        part = {middle, set.end, 0};
        set.end = middle;
      }
      const auto name = static_cast<std::uint32_t>(sets_.size());
      for (std::uint32_t p = part.first; p < part.end; ++p) set_of_[items_[p]] = name;
      sets_.push_back(part);
    }
    touched_.clear();
  }

 private:
  struct Set {
    std::uint32_t first, end, marked;
  };
  std::vector<std::uint32_t> items_, place_, set_of_;
  std::vector<Set> sets_;
  std::vector<std::uint32_t> touched_;
};

// Lists of transitions by a key: those of key k are at places starts[k] .. starts[k + 1].
struct Grouped {
  std::vector<std::uint32_t> starts, transitions;
};

template <class Key>
Grouped group(const std::vector<Transition>& transitions, std::uint32_t keys, Key key) {
  Grouped g{std::vector<std::uint32_t>(keys + 1, 0), std::vector<std::uint32_t>(transitions.size())};
  for (const Transition& t : transitions) ++g.starts[key(t) + 1];
  std::partial_sum(g.starts.begin(), g.starts.end(), g.starts.begin());
  std::vector<std::uint32_t> next(g.starts.begin(), g.starts.end() - 1);
  for (std::uint32_t i = 0; i < transitions.size(); ++i) g.transitions[next[key(transitions[i])]++] = i;
  return g;
}

}  // namespace

std::vector<std::uint32_t> equivalence_blocks(std::uint32_t states, std::uint32_t labels,
                                              const std::vector<Transition>& transitions,
                                              const std::vector<std::uint8_t>& accepting) {
  Partition blocks(states);
  for (std::uint32_t s = 0; s < states; ++s) {
    if (accepting[s] != 0) blocks.mark(s);
  }
  blocks.split();

  // Splitters ("cords"): sets of transitions with one label into one block. First all of a label.
  Partition cords(static_cast<std::uint32_t>(transitions.size()));
  const Grouped by_label = group(transitions, labels, [](const Transition& t) { return t.label; });
  for (std::uint32_t l = 1; l < labels; ++l) {
    for (std::uint32_t i = by_label.starts[l]; i < by_label.starts[l + 1]; ++i)
      cords.mark(by_label.transitions[i]);
    cords.split();
  }
  const Grouped into = group(transitions, states, [](const Transition& t) { return t.to; });

  // The first block needs no turn: what it would split, the other blocks and the cords of whole labels do.
  std::uint32_t block = 1;
  for (std::uint32_t cord = 0; cord < cords.size(); ++cord) {
    for (std::uint32_t p = cords.first(cord); p < cords.end(cord); ++p)
      blocks.mark(transitions[cords.item(p)].from);
    blocks.split();
    for (; block < blocks.size(); ++block) {
      for (std::uint32_t p = blocks.first(block); p < blocks.end(block); ++p) {
        const std::uint32_t s = blocks.item(p);
        for (std::uint32_t i = into.starts[s]; i < into.starts[s + 1]; ++i) cords.mark(into.transitions[i]);
      }
      cords.split();
    }
  }
  std::vector<std::uint32_t> result(states);
  for (std::uint32_t s = 0; s < states; ++s) result[s] = blocks.set_of(s);
  return result;
}

}  // namespace barg::text::grammar
