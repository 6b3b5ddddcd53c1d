// Costs of all nodes, and what begins with itself.
#include <queue>

#include "text/grammar/machine_plan.h"
#include "text/grammar/machine_rest.h"

namespace barg::text::grammar::pushdown {
namespace {

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};

// Nodes are settled in order of their cost. A node's candidate is made anew when a child is settled, from the
// settled children alone: an unsettled one costs at least as much as any candidate so far, so it cannot
// better one.
class Settler {
 public:
  explicit Settler(Plan& plan)
      : plan_(plan), size_(plan.grammar.nodes.size()), work_(size_), parents_(size_) {
    for (std::size_t i = 0; i < size_; ++i) {
      const auto id = static_cast<NodeId>(i);
      for (const Child& child : children_of(plan.grammar, plan, id)) {
        parents_[child.id].push_back({id, child.needed});
        work_[id].missing += child.needed;
      }
    }
  }

  void run() {
    for (std::size_t i = 0; i < size_; ++i) {
      if (work_[i].missing == 0) propose(static_cast<NodeId>(i));
    }
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      queue_.pop();
      if (work_[top.id].settled) continue;
      work_[top.id].settled = true;
      plan_.facts[top.id] = {top.cost, top.depth};
      const std::vector<Child>& parents = parents_[top.id];  // those of one node side by side
      for (std::size_t i = 0; i < parents.size(); ++i) {
        Work& parent = work_[parents[i].id];
        parent.missing -= parents[i].needed;
        if (i + 1 < parents.size() && parents[i + 1].id == parents[i].id) continue;
        if (parent.missing == 0 && !parent.settled) propose(parents[i].id, top.id);
      }
    }
  }

 private:
  struct Entry {
    Cost cost;
    std::int32_t depth;
    NodeId id;
    bool operator>(const Entry& o) const {
      return std::tie(cost, depth, id) > std::tie(o.cost, o.depth, o.id);
    }
  };
  struct Work {
    std::int64_t missing = 0;  // needed children that are not settled
    bool settled = false, final = false;
    std::pair<Cost, std::int32_t> best = {kNever, 0};
  };

  const Facts& facts(NodeId id) const { return plan_.facts[id]; }

  void offer(NodeId id, Cost cost, std::int32_t depth) {
    const std::pair offered{cost, std::min(depth, kMaxDepth + 1)};
    if (offered >= work_[id].best) return;
    work_[id].best = offered;
    queue_.push({offered.first, offered.second, id});
  }

  /// `settled`: the child that made it worth trying, or kNoNode.
  void propose(NodeId id, NodeId settled = kNoNode) {
    if (work_[id].final) return;
    std::visit(Overload{
                   [&](const BytesNode& n) {
                     if (!n.dfa->empty()) offer(id, n.dfa->min_bytes(n.dfa->start()), 0);
                   },
                   [&](const StringNode&) { propose_string(id); },
                   [&](const TokenNode&) { offer(id, 1, 0); },
                   [&](const SequenceNode& n) { propose_sequence(id, n); },
                   [&](const ChoiceNode&) { propose_same(id, settled); },
                   [&](const RefNode&) { propose_same(id, settled); },
                   [&](const RepeatNode& n) { propose_repeat(id, n); },
                   [&](const ObjectNode&) { propose_object(id); },
                   [&](const ArrayNode&) { propose_array(id); },
               },
               plan_.grammar.nodes[id]);
  }

  void propose_string(NodeId id) {
    const TextPlan& text = plan_.text_of(id);
    if (text.empty()) return;
    const Cost cost = text.cost(text.content().dfa->start(), 0);
    if (cost != kNever) offer(id, cost + 2, 0);
  }

  void propose_same(NodeId id, NodeId settled) {
    if (settled != kNoNode) offer(id, facts(settled).min, facts(settled).depth);
  }

  void propose_sequence(NodeId id, const SequenceNode& n) {
    Cost cost = 0;
    std::int32_t depth = 0;
    for (std::size_t i = 0; i < n.parts.size(); ++i) {
      cost = plus(cost, facts(n.parts[i]).min);
      depth = std::max(depth, facts(n.parts[i]).depth + (i + 1 < n.parts.size()));
    }
    offer(id, cost, depth);
  }

  void propose_repeat(NodeId id, const RepeatNode& n) {
    const RepeatPlan& repeat = plan_.repeat_of(id);
    if (repeat.max >= 0 && repeat.max < repeat.min) return;
    if (repeat.min == 0) return offer(id, 0, 0);
    const Facts none{0, 0};
    const Facts& item = facts(n.item);
    const Facts& separator = n.separator == kNoNode || repeat.min == 1 ? none : facts(n.separator);
    offer(id, plus(times(item.min, repeat.min), times(separator.min, repeat.min - 1)),
          1 + std::max(item.depth, separator.depth));
  }

  void propose_array(NodeId id) {
    const ArrayPlan& array = plan_.array_of(id);
    const Cost cost = items_cost(array, {}, 0, ValueCost(plan_, 0));
    if (cost == kNever) return;
    std::int32_t depth = 0;
    if (cost > 0) {
      for (const Child& child : children_of(plan_.grammar, plan_, id)) {
        if (work_[child.id].settled) depth = std::max(depth, facts(child.id).depth);
      }
    }
    offer(id, std::max<Cost>(0, cost - 1) + 2, 1 + depth);
  }

  void propose_object(NodeId id) {
    ObjectPlan& object = plan_.objects[plan_.slot[id]];
    price(object);
    const Cost cost = members_cost(object, {}, {}, ValueCost(plan_, 0));
    const bool chosen = object.min > object.required_count[0];
    work_[id].final = !chosen;
    if (cost == kNever) return;
    std::int32_t depth = 0;
    for (const Child& child : children_of(plan_.grammar, plan_, id)) {
      if ((child.needed || chosen) && work_[child.id].settled) depth = std::max(depth, facts(child.id).depth);
    }
    offer(id, std::max<Cost>(0, cost - 1) + 2, 1 + depth);
  }

  void price(ObjectPlan& object) const {
    for (auto& p : object.properties) p.cost = plus(p.spelled + 4, facts(p.value).min);
    for (auto& o : object.others) o.cost = plus(4, facts(o.value).min);
    for (std::int32_t i = object.size(); i-- > 0;) {
      const auto& p = object.properties[i];
      object.required_cost[i] =
          p.required ? plus(object.required_cost[i + 1], p.cost) : object.required_cost[i + 1];
    }
  }

 public:
  void price_all() {
    for (ObjectPlan& object : plan_.objects) price(object);
  }

 private:
  Plan& plan_;
  std::size_t size_;
  std::vector<Work> work_;
  std::vector<std::vector<Child>> parents_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

void add_array_children(const ArrayPlan& array, std::vector<Child>& out) {
  for (std::int64_t i = 0; i < array.places(); ++i) {
    out.push_back({array.prefix[i], i < array.min || array.min_counted > 0});
  }
  for (const NodeId option : array.options) out.push_back({option, false});
  if (array.counted != kNoNode) out.push_back({array.counted, false});
  if (array.uncounted != kNoNode) out.push_back({array.uncounted, false});
}

/// Where a node may begin with another before any byte; `deeper`: with a frame of its own below it.
struct Corner {
  NodeId to;
  bool deeper;
};

std::vector<Corner> corners_of(const Plan& plan, NodeId id) {
  std::vector<Corner> out;
  const auto empty = [&](NodeId child) { return plan.facts[child].min == 0; };
  if (plan.facts[id].min == kNever) return out;
  std::visit(Overload{
                 [&](const SequenceNode& n) {
                   for (std::size_t i = 0; i < n.parts.size(); ++i) {
                     out.push_back({n.parts[i], i + 1 < n.parts.size()});
                     if (!empty(n.parts[i])) break;
                   }
                 },
                 [&](const ChoiceNode& n) {
                   for (const NodeId option : n.options) out.push_back({option, false});
                 },
                 [&](const RefNode& n) {
                   out.push_back({n.target, false});
                 },
                 [&](const RepeatNode& n) {
                   if (n.max == 0) return;
                   out.push_back({n.item, n.max != 1});
                   if (n.separator != kNoNode && n.max != 1 && empty(n.item))
                     out.push_back({n.separator, true});
                 },
                 [](const auto&) {},
             },
             plan.grammar.nodes[id]);
  std::erase_if(out, [&](const Corner& c) { return plan.facts[c.to].min == kNever; });
  return out;
}

// Tarjan's components without recursion: numbers `component` so that nodes on a common cycle share one.
class Components {
 public:
  explicit Components(const Plan& plan)
      : plan_(plan), component(plan.facts.size(), 0), order_(plan.facts.size(), 0), low_(order_) {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (order_[i] == 0) visit(static_cast<NodeId>(i));
    }
  }

 private:
  struct Call {
    NodeId id;
    std::vector<Corner> corners;
    std::size_t next = 0;
  };

  void enter(NodeId id) {
    order_[id] = low_[id] = ++counter_;
    open_.push_back(id);
    calls_.push_back({id, corners_of(plan_, id)});
  }

  void leave(NodeId id) {
    if (low_[id] != order_[id]) return;
    ++components_;
    NodeId member;
    do {
      member = open_.back();
      open_.pop_back();
      component[member] = components_;
    } while (member != id);
  }

  void visit(NodeId root) {
    enter(root);
    while (!calls_.empty()) {
      Call& call = calls_.back();
      const NodeId id = call.id;
      if (call.next == call.corners.size()) {
        leave(id);
        calls_.pop_back();
        if (!calls_.empty()) low_[calls_.back().id] = std::min(low_[calls_.back().id], low_[id]);
        continue;
      }
      const NodeId to = call.corners[call.next++].to;
      if (order_[to] == 0) {
        enter(to);
      } else if (component[to] == 0) {
        low_[id] = std::min(low_[id], order_[to]);
      }
    }
  }

  const Plan& plan_;

 public:
  std::vector<std::int32_t> component;

 private:
  std::vector<std::int32_t> order_, low_;
  std::vector<NodeId> open_;
  std::vector<Call> calls_;
  std::int32_t counter_ = 0, components_ = 0;
};

}  // namespace

std::vector<Child> children_of(const Grammar& grammar, const Plan& plan, NodeId id) {
  std::vector<Child> out;
  std::visit(Overload{
                 [&](const SequenceNode& n) {
                   for (const NodeId part : n.parts) out.push_back({part, true});
                 },
                 [&](const ChoiceNode& n) {
                   for (const NodeId option : n.options) out.push_back({option, false});
                 },
                 [&](const RefNode& n) {
                   out.push_back({n.target, false});
                 },
                 [&](const RepeatNode& n) {
                   out.push_back({n.item, n.min > 0});
                   if (n.separator != kNoNode) out.push_back({n.separator, n.min > 1});
                 },
                 [&](const ObjectNode& n) {
                   for (const auto& p : n.properties) out.push_back({p.value, p.required});
                   for (const auto& o : n.others) out.push_back({o.value, false});
                 },
                 [&](const ArrayNode&) { add_array_children(plan.array_of(id), out); },
                 [](const auto&) {},
             },
             grammar.nodes[id]);
  return out;
}

void find_facts(Plan& plan) {
  Settler settler(plan);
  settler.run();
  settler.price_all();
}

Result<void> refuse_left_recursion(const Plan& plan) {
  const Components components(plan);
  for (std::size_t i = 0; i < plan.facts.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    for (const Corner& c : corners_of(plan, id)) {
      if (c.deeper && components.component[id] == components.component[c.to]) {
        return fail(
            ErrorCode::kUnsupported,
            "The grammar is left-recursive: a rule begins with itself (node " + std::to_string(id) + ").");
      }
    }
  }
  return {};
}

}  // namespace barg::text::grammar::pushdown
