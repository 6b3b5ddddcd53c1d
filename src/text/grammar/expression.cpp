#include "text/grammar/expression.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/grammar/concat.h"
#include "text/grammar/program.h"
#include "text/grammar/subset.h"
#include "text/grammar/symbols.h"

namespace barg::text::grammar {
namespace {

constexpr std::uint32_t kDead = Dfa::kDead;
constexpr std::uint64_t kInstructionsPerState = 20;

// The subset construction over symbols. A set has the kChars instructions that may take the next character;
// one number more says that the text may end here. `^` is passed before the first character only, `$` only to
// find out whether the text may end.
class Subsets {
 public:
  Subsets(const Program& program, const Symbols& symbols, bool search, const DfaLimits& limits)
      : program_(program),
        symbols_(symbols),
        search_(search),
        limits_(limits),
        may_end_(static_cast<std::uint32_t>(program.code.size())),
        seen_(program.code.size(), 0),
        seen_at_end_(program.code.size(), 0),
        targets_(symbols.count) {}

  std::uint64_t steps() const { return steps_; }
  /// nullopt: beyond the limits.
  std::optional<SymbolDfa> run() {
    sets_.intern(closure({program_.entry}, true));
    for (std::uint32_t s = 0; s < sets_.size(); ++s) {
      const SetTable::Set set = sets_[s];
      dfa_.accepting.push_back(!set.empty() && set.back() == may_end_ ? 1 : 0);
      if (set == all()) {
        for (std::uint32_t symbol = 0; symbol < symbols_.count; ++symbol)
          dfa_.transitions.push_back({s, symbol, s});
        steps_ += symbols_.count;
      } else {
        step(s, set);
      }
      if (exhausted()) return std::nullopt;
    }
    dfa_.states = sets_.size();
    return std::move(dfa_);
  }

 private:
  bool exhausted() const {
    return sets_.size() > limits_.states || dfa_.transitions.size() > kMaxTableEntries ||
           steps_ > kStepsPerState * limits_.states ||
           sets_.members() + target_sets_.members() > kMembersPerState * limits_.states;
  }

  // What a search has found: any text may follow. Of no instruction, so it is unlike all other sets.
  SetTable::Set all() const { return {may_end_ + 1, may_end_}; }

  void step(std::uint32_t from, const SetTable::Set& set) {
    std::vector<std::uint32_t> touched;
    for (const std::uint32_t at : set) {
      if (at == may_end_ || program_.code[at].set == kNoSet) continue;
      const Instruction& i = program_.code[at];
      steps_ += symbols_.of_set[i.set].size();
      if (exhausted()) return;
      for (const std::uint32_t symbol : symbols_.of_set[i.set]) {
        if (targets_[symbol].empty()) touched.push_back(symbol);
        targets_[symbol].push_back(i.next);
      }
    }
    for (const std::uint32_t symbol : touched) {
      if (exhausted()) return;
      const std::uint32_t to = state_of(std::exchange(targets_[symbol], {}));
      if (to != kDead) dfa_.transitions.push_back({from, symbol, to});
    }
  }

  // Many symbols lead to the same instructions: their closure is found once.
  std::uint32_t state_of(SetTable::Set targets) {
    std::ranges::sort(targets);
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    const std::uint32_t name = target_sets_.intern(targets);
    if (name == closures_.size()) {
      const SetTable::Set set = closure(targets, false);
      closures_.push_back(set.empty() ? kDead : sets_.intern(set));
    }
    return closures_[name];
  }

  SetTable::Set closure(const SetTable::Set& from, bool at_start) {
    SetTable::Set set;
    SetTable::Set ends;  // behind every `$` that was met
    bool match = false;
    walk(from, seen_, [&](std::uint32_t at, const Instruction& i) {
      if (i.kind == Instruction::Kind::kChars) set.push_back(at);
      if (i.kind == Instruction::Kind::kTextEnd) ends.push_back(i.next);
      match |= i.kind == Instruction::Kind::kMatch;
      return i.kind == Instruction::Kind::kTextStart && at_start;
    });
    if (match && search_) return all();
    walk(ends, seen_at_end_, [&](std::uint32_t, const Instruction& i) {
      match |= i.kind == Instruction::Kind::kMatch;
      return i.kind == Instruction::Kind::kTextEnd || (i.kind == Instruction::Kind::kTextStart && at_start);
    });
    std::ranges::sort(set);
    if (match) set.push_back(may_end_);
    return set;
  }

  // Calls visit(place, instruction) for all that is reached without a character; it says whether to pass an
  // anchor.
  template <class Visit>
  void walk(const SetTable::Set& from, std::vector<std::uint8_t>& seen, Visit visit) {
    SetTable::Set visited;
    SetTable::Set todo;
    const auto push = [&](std::uint32_t at) {
      if (seen[at] != 0) return;
      seen[at] = 1;
      visited.push_back(at);
      todo.push_back(at);
    };
    for (const std::uint32_t at : from) push(at);
    while (!todo.empty()) {
      const std::uint32_t at = todo.back();
      todo.pop_back();
      const Instruction& i = program_.code[at];
      const bool pass = visit(at, i);
      if (i.kind == Instruction::Kind::kSplit) push(i.other);
      if (pass || i.kind == Instruction::Kind::kSplit) push(i.next);
    }
    for (const std::uint32_t at : visited) seen[at] = 0;
    steps_ += visited.size();
  }

  const Program& program_;
  const Symbols& symbols_;
  bool search_;
  const DfaLimits& limits_;
  std::uint32_t may_end_;
  std::vector<std::uint8_t> seen_, seen_at_end_;
  std::vector<SetTable::Set> targets_;  // by symbol, while a step is made
  SetTable sets_, target_sets_;
  std::vector<std::uint32_t> closures_;  // by target set: the state
  SymbolDfa dfa_;
  std::uint64_t steps_ = 0;
};

// Only states that can accept (all are reachable), and of the equivalent ones one.
SymbolDfa minimised(const SymbolDfa& dfa, std::uint32_t symbols) {
  std::vector<std::vector<std::uint32_t>> before(dfa.states);
  for (const Transition& t : dfa.transitions) before[t.to].push_back(t.from);
  std::vector<std::uint8_t> alive(dfa.accepting);
  std::vector<std::uint32_t> todo;
  for (std::uint32_t s = 0; s < dfa.states; ++s) {
    if (alive[s] != 0) todo.push_back(s);
  }
  while (!todo.empty()) {
    const std::uint32_t t = todo.back();
    todo.pop_back();
    for (const std::uint32_t s : before[t]) {
      if (alive[s] == 0) {
        alive[s] = 1;
        todo.push_back(s);
      }
    }
  }
  if (alive[0] == 0) return {};
  std::vector<std::uint32_t> name(dfa.states, kDead);
  SymbolDfa living;
  for (std::uint32_t s = 0; s < dfa.states; ++s) {
    if (alive[s] == 0) continue;
    name[s] = living.states++;
    living.accepting.push_back(dfa.accepting[s]);
  }
  for (const Transition& t : dfa.transitions) {
    if (alive[t.from] != 0 && alive[t.to] != 0)
      living.transitions.push_back({name[t.from], t.label, name[t.to]});
  }
  const auto block = equivalence_blocks(living.states, symbols, living.transitions, living.accepting);
  // The block of the start is number 0, as encode_utf8 wants it.
  std::vector<std::uint32_t> number(living.states, kDead);
  SymbolDfa small;
  std::vector<std::uint8_t> first(living.states, 0);
  for (std::uint32_t s = 0; s < living.states; ++s) {
    if (number[block[s]] != kDead) continue;
    first[s] = 1;
    number[block[s]] = small.states++;
    small.accepting.push_back(living.accepting[s]);
  }
  for (const Transition& t : living.transitions) {
    if (first[t.from] != 0)
      small.transitions.push_back({number[block[t.from]], t.label, number[block[t.to]]});
  }
  return small;
}

// Before a match any text: the entry again after every character. Not where `^` holds all of it to the start.
void add_search_loop(Program& program, std::uint32_t all_set) {
  std::vector<std::uint8_t> seen(program.code.size(), 0);
  std::vector<std::uint32_t> todo{program.entry};
  bool held = true;
  while (!todo.empty()) {
    const std::uint32_t at = todo.back();
    todo.pop_back();
    if (std::exchange(seen[at], 1) != 0) continue;
    const Instruction& i = program.code[at];
    if (i.kind == Instruction::Kind::kChars || i.kind == Instruction::Kind::kMatch ||
        i.kind == Instruction::Kind::kTextEnd) {
      held = false;
    }
    if (i.kind != Instruction::Kind::kSplit) continue;
    todo.push_back(i.next);
    todo.push_back(i.other);
  }
  if (held) return;
  const auto any = static_cast<std::uint32_t>(program.code.size());
  program.code.push_back({Instruction::Kind::kChars, all_set, any + 1, 0});
  program.code.push_back({Instruction::Kind::kSplit, 0, program.entry, any});
  program.entry = any + 1;
}

}  // namespace

Result<Dfa> expression_dfa(const Expressions& expressions, ExpressionId root, bool search,
                           const DfaLimits& limits) {
  if (limits.spent()) return too_large(limits);
  auto program = compile_program(expressions, root, kInstructionsPerState * limits.states);
  if (!program) return too_large(limits);
  limits.spend(kStepsOfAny + program->code.size());
  if (search) add_search_loop(*program, expressions.num_sets());
  // Only the sets in use, so that symbols are few.
  const CodeSet all = CodeSet::all();
  std::unordered_map<std::uint32_t, std::uint32_t> numbers;
  std::vector<const CodeSet*> sets;
  const auto use = [&](std::uint32_t set) {
    const auto [at, is_new] = numbers.emplace(set, static_cast<std::uint32_t>(sets.size()));
    if (is_new) sets.push_back(set == expressions.num_sets() ? &all : &expressions.set(set));
    return at->second;
  };
  for (Instruction& i : program->code) {
    if (i.kind == Instruction::Kind::kChars && i.set != kNoSet) i.set = use(i.set);
  }
  if (search) use(expressions.num_sets());
  const auto symbols = Symbols::make(sets, kStepsPerState * limits.states);
  if (!symbols) return too_large(limits);
  Subsets subsets(*program, *symbols, search, limits);
  const auto dfa = subsets.run();
  limits.spend(subsets.steps());
  if (!dfa) return too_large(limits);
  const SymbolDfa small = minimised(*dfa, symbols->count);
  if (small.states == 0) return Dfa{};
  return encode_utf8(small, *symbols, limits);
}

}  // namespace barg::text::grammar
