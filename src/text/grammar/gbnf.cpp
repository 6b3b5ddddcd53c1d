// What can be one automaton becomes one (a BytesNode): whole rules, runs of parts, groups of options. What is
// recursive or too large for that stays as it is written, by Sequence, Choice, Repeat and Ref nodes.
#include "text/grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "text/grammar/concat.h"
#include "text/grammar/gbnf_parser.h"

namespace barg::text::grammar {
namespace {

using Kind = Expression::Kind;

// Facts about expressions, found without recursion: rules may nest as deep as there are rules.
class Facts {
 public:
  explicit Facts(const GbnfRules& rules) : e_(rules.expressions) {
    find_reachable(rules.rules[rules.root].node);
    find_parents();
    find_nullable();
    find_sizes();
  }

  bool nullable(ExpressionId id) const { return nullable_[id]; }

  struct Size {
    std::uint32_t instructions = 0, depth = 0;
  };
  /// nullopt: there is recursion in it. Both are capped at kLarge.
  std::optional<Size> size(ExpressionId id) const { return sizes_[id]; }
  static constexpr std::uint32_t kLarge = 1'000'000;

  /// A kRef that leads to itself before any character; nullopt: there is none.
  std::optional<ExpressionId> left_recursion() const;

 private:
  std::vector<ExpressionId> children(ExpressionId id) const {
    const Expression& e = e_[id];
    return e.kind == Kind::kRef ? std::vector{e.index} : e.parts;
  }

  void find_reachable(ExpressionId root) {
    reachable_.assign(e_.size(), false);
    std::vector<ExpressionId> todo{root};
    while (!todo.empty()) {
      const ExpressionId id = todo.back();
      todo.pop_back();
      if (reachable_[id]) continue;
      reachable_[id] = true;
      order_.push_back(id);
      for (const ExpressionId child : children(id)) todo.push_back(child);
    }
  }

  void find_parents() {
    parents_.resize(e_.size());
    for (const ExpressionId id : order_) {
      for (const ExpressionId child : children(id)) parents_[child].push_back(id);
    }
  }

  // Sequences wait for all of their parts, all others for one.
  void find_nullable() {
    nullable_.assign(e_.size(), false);
    std::vector<std::size_t> missing(e_.size(), 1);
    std::vector<ExpressionId> todo;
    const auto set = [&](ExpressionId id) {
      if (nullable_[id]) return;
      nullable_[id] = true;
      todo.push_back(id);
    };
    for (const ExpressionId id : order_) {
      if (e_[id].kind == Kind::kSequence) missing[id] = e_[id].parts.size();
      if (missing[id] == 0 || (e_[id].kind == Kind::kRepeat && e_[id].min == 0)) set(id);
    }
    while (!todo.empty()) {
      const ExpressionId id = todo.back();
      todo.pop_back();
      for (const ExpressionId parent : parents_[id]) {
        if (missing[parent] > 0 && --missing[parent] == 0) set(parent);
      }
    }
  }

  // From the leaves up; what is in a circle or leads to one never has all its children done.
  void find_sizes() {
    sizes_.resize(e_.size());
    std::vector<std::size_t> missing(e_.size(), 0);
    std::vector<ExpressionId> todo;
    for (const ExpressionId id : order_) {
      missing[id] = children(id).size();
      if (missing[id] == 0) todo.push_back(id);
    }
    while (!todo.empty()) {
      const ExpressionId id = todo.back();
      todo.pop_back();
      sizes_[id] = measure(id);
      for (const ExpressionId parent : parents_[id]) {
        if (--missing[parent] == 0) todo.push_back(parent);
      }
    }
  }

  Size measure(ExpressionId id) const {
    std::uint64_t instructions = 1;
    std::uint32_t depth = 0;
    for (const ExpressionId child : children(id)) {
      instructions = std::min<std::uint64_t>(instructions + 1 + sizes_[child]->instructions, kLarge);
      depth = std::max(depth, sizes_[child]->depth);
    }
    const Expression& e = e_[id];
    if (e.kind == Kind::kRepeat) instructions *= static_cast<std::uint64_t>(std::max(e.min, e.max) + 1);
    return {static_cast<std::uint32_t>(std::min<std::uint64_t>(instructions, kLarge)),
            std::min(depth + 1, kLarge)};
  }

  const Expressions& e_;
  std::vector<bool> reachable_, nullable_;
  std::vector<ExpressionId> order_;  // all that are reachable
  std::vector<std::vector<ExpressionId>> parents_;
  std::vector<std::optional<Size>> sizes_;
};

std::optional<ExpressionId> Facts::left_recursion() const {
  enum Mark : std::uint8_t { kNew, kOpen, kDone };
  struct Place {
    ExpressionId id;
    std::size_t next = 0;  // of its children
  };
  std::vector<Mark> marks(e_.size(), kNew);
  for (const ExpressionId start : order_) {
    std::vector<Place> path;
    const auto enter = [&](ExpressionId id) {
      marks[id] = kOpen;
      path.push_back({id});
    };
    if (marks[start] == kNew) enter(start);
    while (!path.empty()) {
      Place& place = path.back();
      const Expression& e = e_[place.id];
      const std::size_t count = e.kind == Kind::kRef ? 1 : e.parts.size();
      const bool hidden = e.kind == Kind::kSequence && place.next > 0 && !nullable_[e.parts[place.next - 1]];
      const bool never = e.kind == Kind::kRepeat && e.max == 0;
      if (place.next == count || hidden || never) {
        marks[place.id] = kDone;
        path.pop_back();
        continue;
      }
      const ExpressionId child = e.kind == Kind::kRef ? e.index : e.parts[place.next];
      ++place.next;
      if (marks[child] == kOpen) {
        const auto first = std::ranges::find(path, child, &Place::id);
        return std::ranges::find_if(first, path.end(),
                                    [&](const Place& p) { return e_[p.id].kind == Kind::kRef; })
            ->id;
      }
      if (marks[child] == kNew) enter(child);
    }
  }
  return std::nullopt;
}

class Emitter {
 public:
  Emitter(GbnfRules& rules, const Facts& facts, std::int64_t* work)
      : e_(rules.expressions), facts_(facts), work_(work) {}

  Result<Grammar> run(ExpressionId root) {
    grammar_.spacing = Spacing::kNone;
    grammar_.root = reference(root);
    while (!error_ && !waiting_.empty()) {
      const ExpressionId ref = waiting_.back();
      waiting_.pop_back();
      bodies_[ref] = emit(e_[ref].index);
    }
    if (error_) return std::unexpected(*error_);
    for (const auto& [node, ref] : references_) {
      std::get<RefNode>(grammar_.nodes[static_cast<std::size_t>(node)]).target = bodies_[ref];
    }
    return std::move(grammar_);
  }

 private:
  // What becomes one automaton: enough for what people write, little enough that trying costs nothing.
  static constexpr std::uint32_t kMaxInstructions = 2'000, kMaxDepth = 700, kMaxStates = 1'000;
  static constexpr std::int64_t kMaxInstructionsTried = 400'000;  // in all
  static constexpr int kMaxFailures = 50;

  NodeId reference(ExpressionId ref) {
    if (bodies_.emplace(ref, kNoNode).second) waiting_.push_back(ref);
    references_.emplace_back(grammar_.add(RefNode{}), ref);
    return references_.back().first;
  }

  bool exhausted() const { return tried_ > kMaxInstructionsTried || failures_ > kMaxFailures; }

  bool may_be_automaton(ExpressionId id) const {
    const auto size = facts_.size(id);
    return !exhausted() && size && size->instructions <= kMaxInstructions && size->depth <= kMaxDepth;
  }

  // Several parts as one automaton, by a new expression around them; kNoNode: it would be too large.
  NodeId automaton(Kind kind, const std::vector<ExpressionId>& parts) {
    std::uint32_t instructions = 0;
    for (const ExpressionId part : parts) instructions += facts_.size(part)->instructions + 1;
    tried_ += instructions;
    if (instructions > kMaxInstructions || exhausted()) return kNoNode;
    const ExpressionId id = parts.size() == 1 ? parts[0] : e_.add({.kind = kind, .parts = parts});
    auto dfa = expression_dfa(e_, id, false, {.states = kMaxStates, .work = work_});
    if (!dfa) {
      ++failures_;
      return kNoNode;
    }
    return bytes(std::make_shared<const Dfa>(std::move(*dfa)));
  }

  NodeId bytes(DfaPtr dfa) {
    return dfa->empty() ? grammar_.add(ChoiceNode{}) : grammar_.add(BytesNode{std::move(dfa)});
  }

  NodeId emit(ExpressionId id) {
    if (error_) return kNoNode;
    if (e_[id].kind == Kind::kChars) return chars(id);
    if (e_[id].kind == Kind::kRef) return reference(id);
    if (may_be_automaton(id)) {
      if (const NodeId node = automaton(Kind::kSequence, {id}); node != kNoNode) return node;
    }
    const Expression e = e_[id];  // a copy: emitting adds expressions
    switch (e.kind) {
      case Kind::kSequence:
        return grammar_.add(SequenceNode{sequence(e.parts)});
      case Kind::kChoice:
        return grammar_.add(ChoiceNode{choice(e.parts)});
      default:
        break;
    }
    // Empty items need no counting.
    const std::int64_t min = facts_.nullable(e.parts[0]) ? 0 : e.min;
    const NodeId item = emit(e.parts[0]);
    return grammar_.add(RepeatNode{.item = item, .min = min, .max = e.max < 0 ? kUnbounded : e.max});
  }

  std::vector<NodeId> sequence(const std::vector<ExpressionId>& parts) {
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < parts.size();) {
      std::vector<ExpressionId> run;
      std::uint32_t instructions = 0;
      for (std::size_t j = i; j < parts.size() && may_be_automaton(parts[j]); ++j) {
        instructions += facts_.size(parts[j])->instructions + 1;
        if (instructions > kMaxInstructions) break;
        run.push_back(parts[j]);
      }
      const NodeId node = run.size() > 1 ? automaton(Kind::kSequence, run) : kNoNode;
      nodes.push_back(node != kNoNode ? node : emit(parts[i]));
      i += node != kNoNode ? run.size() : 1;
    }
    return nodes;
  }

  std::vector<NodeId> choice(const std::vector<ExpressionId>& parts) {
    std::vector<ExpressionId> together, alone;
    std::uint32_t instructions = 0;
    for (const ExpressionId part : parts) {
      const bool small = may_be_automaton(part);
      if (small) instructions += facts_.size(part)->instructions + 1;
      (small && instructions <= kMaxInstructions ? together : alone).push_back(part);
    }
    std::vector<NodeId> nodes;
    const NodeId node = together.size() > 1 ? automaton(Kind::kChoice, together) : kNoNode;
    if (node != kNoNode) {
      nodes.push_back(node);
    } else {
      alone.insert(alone.begin(), together.begin(), together.end());
    }
    for (const ExpressionId part : alone) nodes.push_back(emit(part));
    return nodes;
  }

  NodeId chars(ExpressionId id) {
    DfaPtr& dfa = of_set_[e_[id].index];
    if (dfa == nullptr) {
      auto made = expression_dfa(e_, id, false, {.work = work_});
      if (!made) {
        error_ = made.error();
        return kNoNode;
      }
      dfa = std::make_shared<const Dfa>(std::move(*made));
    }
    return bytes(dfa);
  }

  Expressions& e_;
  const Facts& facts_;
  std::int64_t* const work_;
  Grammar grammar_;
  std::map<ExpressionId, NodeId> bodies_;  // of rules, by their kRef; kNoNode: not emitted yet
  std::vector<ExpressionId> waiting_;      // those rules
  std::vector<std::pair<NodeId, ExpressionId>> references_;
  std::map<std::uint32_t, DfaPtr> of_set_;
  std::optional<Error> error_;
  std::int64_t tried_ = 0;
  int failures_ = 0;
};

}  // namespace

Result<Grammar> parse_gbnf(std::string_view source, std::int64_t* work) {
  auto rules = parse_gbnf_rules(source);
  if (!rules) return std::unexpected(rules.error());
  const Facts facts(*rules);
  if (const auto ref = facts.left_recursion()) {
    const auto rule = std::ranges::find(rules->rules, *ref, &GbnfRule::node);
    return fail(ErrorCode::kUnsupported,
                concat("rule '", rule->name, "' is left-recursive: it begins with itself"));
  }
  return Emitter(*rules, facts, work).run(rules->rules[rules->root].node);
}

}  // namespace barg::text::grammar
