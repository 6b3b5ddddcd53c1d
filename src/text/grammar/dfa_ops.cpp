// Products, concatenation and repetition of automata, and literals. Questions about an automaton are in
// dfa_queries.cpp.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "text/grammar/concat.h"
#include "text/grammar/dfa.h"
#include "text/grammar/minimise.h"
#include "text/grammar/subset.h"

namespace barg::text::grammar {
namespace {

using State = Dfa::State;
constexpr State kDead = Dfa::kDead;

// Bytes that neither of two automata tells apart.
struct JointClasses {
  std::array<std::uint8_t, 256> class_of{};
  std::vector<std::uint8_t> bytes;  // one of each class

  JointClasses(const Dfa& a, const Dfa& b) {
    std::map<std::pair<std::uint8_t, std::uint8_t>, std::uint8_t> names;
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<std::uint8_t>(i);
      const auto [at, is_new] = names.emplace(std::pair{a.byte_class(byte), b.byte_class(byte)},
                                              static_cast<std::uint8_t>(bytes.size()));
      if (is_new) bytes.push_back(byte);
      class_of[byte] = at->second;
    }
  }
};

State step(const Dfa& dfa, State s, std::uint8_t byte) { return s == kDead ? kDead : dfa.next(s, byte); }
bool accepts(const Dfa& dfa, State s) { return s != kDead && dfa.accepting(s); }

enum class Op { kIntersect, kUnite, kSubtract };

bool is_dead(Op op, State a, State b) {
  switch (op) {
    case Op::kIntersect:
      return a == kDead || b == kDead;
    case Op::kUnite:
      return a == kDead && b == kDead;
    case Op::kSubtract:
      return a == kDead;
  }
  return true;
}

bool is_accepting(Op op, bool a, bool b) {
  switch (op) {
    case Op::kIntersect:
      return a && b;
    case Op::kUnite:
      return a || b;
    case Op::kSubtract:
      return a && !b;
  }
  return false;
}

Result<Dfa> product(Op op, const Dfa& a, const Dfa& b, const DfaLimits& limits) {
  if (limits.spent()) return too_large(limits);
  if (is_dead(op, a.start(), b.start())) return Dfa{};
  limits.spend(kStepsOfAny);
  const JointClasses joint(a, b);
  std::unordered_map<std::uint64_t, State> names;
  std::vector<std::pair<State, State>> pairs;
  const auto name = [&](State x, State y) {
    if (is_dead(op, x, y)) return kDead;
    const auto [at, is_new] = names.emplace(std::uint64_t{x} << 32 | y, static_cast<State>(pairs.size()));
    if (is_new) pairs.emplace_back(x, y);
    return at->second;
  };
  name(a.start(), b.start());
  std::vector<State> table;
  std::vector<std::uint8_t> accepting;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    accepting.push_back(is_accepting(op, accepts(a, x), accepts(b, y)) ? 1 : 0);
    for (const std::uint8_t byte : joint.bytes) table.push_back(name(step(a, x, byte), step(b, y, byte)));
    limits.spend(2 * joint.bytes.size());
    if (pairs.size() > limits.states || table.size() > kMaxTableEntries) return too_large(limits);
  }
  return Dfa::make(joint.class_of, static_cast<std::uint32_t>(joint.bytes.size()), std::move(table),
                   std::move(accepting), 0);
}

// Automata one after the other: copies of `item` in a row (and `tail` behind the last), joined by one empty
// step from every accepting state to the start of what follows. An element of a set is a state of a copy.
struct Chain {
  const Dfa& item;
  const Dfa* tail = nullptr;
  std::uint32_t copies = 1;
  bool last_repeats = false;
  std::int64_t min = 1;  // copies that must be passed; with a tail: REQUIRES all

  std::uint32_t entry() const {
    return copies * item.num_states() + (tail != nullptr ? tail->num_states() : 0);
  }
  std::uint32_t size() const { return entry() + 1; }
  bool in_tail(std::uint32_t e) const { return e >= copies * item.num_states(); }
  std::uint32_t copy(std::uint32_t e) const { return e / item.num_states(); }
  State state(std::uint32_t e) const {
    return in_tail(e) ? e - copies * item.num_states() : e % item.num_states();
  }

  std::uint32_t next(std::uint32_t e, std::uint8_t byte) const {
    if (e == entry()) return kDead;
    const State to = (in_tail(e) ? *tail : item).next(state(e), byte);
    return to == kDead ? kDead : e - state(e) + to;
  }
  /// The end of the empty step from e, or kDead.
  std::uint32_t empty_step(std::uint32_t e) const {
    if (e == entry()) return item.start();
    if (in_tail(e) || !item.accepting(state(e))) return kDead;
    if (copy(e) + 1 < copies) return (copy(e) + 1) * item.num_states() + item.start();
    if (tail != nullptr) return copies * item.num_states() + tail->start();
    return last_repeats ? copy(e) * item.num_states() + item.start() : kDead;
  }
  bool accepting(std::uint32_t e) const {
    if (e == entry()) return min == 0;
    if (in_tail(e)) return tail->accepting(state(e));
    return tail == nullptr && item.accepting(state(e)) && copy(e) + 1 >= min;
  }
};

class ChainSubsets {
 public:
  ChainSubsets(const Chain& chain, const DfaLimits& limits)
      : chain_(chain),
        limits_(limits),
        joint_(chain.item, chain.tail != nullptr ? *chain.tail : chain.item),
        seen_(chain.size(), 0) {}

  Result<Dfa> run() {
    if (limits_.spent()) return too_large(limits_);
    auto made = build();
    limits_.spend(kStepsOfAny + steps_);
    return made;
  }

 private:
  Result<Dfa> build() {
    add(chain_.entry());
    sets_.intern(take());
    std::vector<State> table;
    std::vector<std::uint8_t> accepting;
    for (State s = 0; s < sets_.size(); ++s) {
      const SetTable::Set set = sets_[s];
      accepting.push_back(std::ranges::any_of(set, [&](auto e) { return chain_.accepting(e); }) ? 1 : 0);
      for (const std::uint8_t byte : joint_.bytes) {
        for (const std::uint32_t e : set) add(chain_.next(e, byte));
        steps_ += set.size() + 1;
        table.push_back(members_.empty() ? kDead : sets_.intern(take()));
        if (exhausted() || table.size() > kMaxTableEntries) return too_large(limits_);
      }
    }
    return Dfa::make(joint_.class_of, static_cast<std::uint32_t>(joint_.bytes.size()), std::move(table),
                     std::move(accepting), 0);
  }

  bool exhausted() const {
    return sets_.size() > limits_.states || steps_ > kStepsPerState * limits_.states ||
           sets_.members() > kMembersPerState * limits_.states;
  }
  void add(std::uint32_t e) {
    for (; e != kDead && seen_[e] == 0; e = chain_.empty_step(e)) {
      seen_[e] = 1;
      members_.push_back(e);
      ++steps_;
    }
  }
  SetTable::Set take() {
    for (const std::uint32_t e : members_) seen_[e] = 0;
    std::ranges::sort(members_);
    return std::exchange(members_, {});
  }

  const Chain& chain_;
  const DfaLimits& limits_;
  JointClasses joint_;
  std::vector<std::uint8_t> seen_;
  SetTable::Set members_;
  SetTable sets_;
  std::uint64_t steps_ = 0;
};

// The words as a tree, as transitions; state 0 is the start. REQUIRES sorted, distinct words.
struct Tree {
  std::vector<Transition> transitions;
  std::vector<std::uint8_t> accepting{0};

  explicit Tree(const std::vector<std::string>& words) {
    std::vector<State> path{0};  // the states of the word before
    std::string_view before;
    for (const std::string& word : words) {
      const auto common = static_cast<std::size_t>(std::ranges::mismatch(before, word).in1 - before.begin());
      path.resize(common + 1);
      for (std::size_t i = common; i < word.size(); ++i) {
        const auto to = static_cast<State>(accepting.size());
        transitions.push_back({path.back(), static_cast<std::uint8_t>(word[i]), to});
        accepting.push_back(0);
        path.push_back(to);
      }
      accepting[path.back()] = 1;
      before = word;
    }
  }
};

}  // namespace

Dfa dfa_literal(std::string_view bytes) { return dfa_literals({std::string(bytes)}); }

Dfa dfa_literals(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  std::vector<std::string> sorted = words;
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const Tree tree(sorted);
  const auto states = static_cast<std::uint32_t>(tree.accepting.size());
  // Equal endings are shared before there is a table.
  const std::vector<std::uint32_t> block = equivalence_blocks(states, 256, tree.transitions, tree.accepting);
  std::array<std::uint8_t, 256> class_of{};
  std::uint32_t classes = 1;  // class 0: bytes of no word, unless all are used
  std::array<bool, 256> used{};
  for (const Transition& t : tree.transitions) used[t.label] = true;
  if (std::ranges::all_of(used, [](bool u) { return u; })) classes = 0;
  for (std::size_t b = 0; b < 256; ++b) {
    if (used[b]) class_of[b] = static_cast<std::uint8_t>(classes++);
  }
  const std::uint32_t blocks = *std::ranges::max_element(block) + 1;
  std::vector<State> table(std::size_t{blocks} * classes, kDead);
  for (const Transition& t : tree.transitions)
    table[block[t.from] * std::size_t{classes} + class_of[t.label]] = block[t.to];
  std::vector<std::uint8_t> accepting(blocks);
  for (State s = 0; s < states; ++s) accepting[block[s]] = tree.accepting[s];
  return Dfa::make(class_of, classes, std::move(table), std::move(accepting), block[0]);
}

Dfa dfa_valid_utf8() {
  // States: 0 between characters; 1, 2, 3: that many bytes to come; then the first bytes that bind the
  // second.
  enum : State { kReady, kOne, kTwo, kThree, kE0, kED, kF0, kF4, kStates };
  struct Row {
    int first, last;  // bytes
    std::array<State, kStates> to;
  };
  constexpr State d = kDead;
  constexpr Row rows[] = {
      {0x00, 0x7F, {kReady, d, d, d, d, d, d, d}},
      {0x80, 0x8F, {d, kReady, kOne, kTwo, d, kOne, d, kTwo}},
      {0x90, 0x9F, {d, kReady, kOne, kTwo, d, kOne, kTwo, d}},
      {0xA0, 0xBF, {d, kReady, kOne, kTwo, kOne, d, kTwo, d}},
      {0xC0, 0xC1, {d, d, d, d, d, d, d, d}},
      {0xC2, 0xDF, {kOne, d, d, d, d, d, d, d}},
      {0xE0, 0xE0, {kE0, d, d, d, d, d, d, d}},
      {0xE1, 0xEC, {kTwo, d, d, d, d, d, d, d}},
      {0xED, 0xED, {kED, d, d, d, d, d, d, d}},
      {0xEE, 0xEF, {kTwo, d, d, d, d, d, d, d}},
      {0xF0, 0xF0, {kF0, d, d, d, d, d, d, d}},
      {0xF1, 0xF3, {kThree, d, d, d, d, d, d, d}},
      {0xF4, 0xF4, {kF4, d, d, d, d, d, d, d}},
      {0xF5, 0xFF, {d, d, d, d, d, d, d, d}},
  };
  constexpr std::uint32_t classes = std::size(rows);
  std::array<std::uint8_t, 256> class_of{};
  std::vector<State> table(std::size_t{kStates} * classes);
  for (std::uint32_t c = 0; c < classes; ++c) {
    for (int byte = rows[c].first; byte <= rows[c].last; ++byte) {
      class_of[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(c);
    }
    for (State s = 0; s < kStates; ++s) table[s * classes + c] = rows[c].to[s];
  }
  std::vector<std::uint8_t> accepting(kStates, 0);
  accepting[kReady] = 1;
  return Dfa::make(class_of, classes, std::move(table), std::move(accepting), kReady);
}

Result<Dfa> dfa_intersect(const Dfa& a, const Dfa& b, const DfaLimits& limits) {
  return product(Op::kIntersect, a, b, limits);
}

Result<Dfa> dfa_unite(const Dfa& a, const Dfa& b, const DfaLimits& limits) {
  return product(Op::kUnite, a, b, limits);
}

Result<Dfa> dfa_subtract(const Dfa& a, const Dfa& b, const DfaLimits& limits) {
  return product(Op::kSubtract, a, b, limits);
}

Result<Dfa> dfa_concat(const Dfa& a, const Dfa& b, const DfaLimits& limits) {
  if (a.empty() || b.empty()) return Dfa{};
  const Chain chain{.item = a, .tail = &b};
  return ChainSubsets(chain, limits).run();
}

Result<Dfa> dfa_repeat(const Dfa& item, std::int64_t min, std::int64_t max, const DfaLimits& limits) {
  min = std::max<std::int64_t>(min, 0);
  if (max >= 0 && max < min) return Dfa{};
  if (max == 0 || (item.empty() && min == 0)) return dfa_literal("");
  if (item.empty()) return Dfa{};
  const std::int64_t copies = max < 0 ? std::max<std::int64_t>(min, 1) : max;
  // A copy adds a state at least, unless all its words are empty or it can be passed over.
  if (copies > std::int64_t{limits.states} * 50 / item.num_states()) return too_large(limits);
  const Chain chain{
      .item = item, .copies = static_cast<std::uint32_t>(copies), .last_repeats = max < 0, .min = min};
  return ChainSubsets(chain, limits).run();
}

}  // namespace barg::text::grammar
