#include "text/grammar/machine_names.h"

#include <queue>

namespace barg::text::grammar::pushdown {
namespace {

struct Search {
  Cost bound;  // cost so far and at least so much more
  Cost cost;
  NamePlace at;
  bool operator>(const Search& o) const { return std::tie(bound, cost) > std::tie(o.bound, o.cost); }
};

/// From the end of the value of a member on, whose data is `behind`.
Cost finish_cost(const MemberContext& m, ObjectAt behind, const std::vector<TakenName>& taken) {
  return plus(plus(members_cost(m.object(), behind, taken, m.value()), 1), rest_of(m.frame.parent));
}

/// `name`: missing bytes of a name of the others before its quote; `spelled`: what the whole name costs.
Cost with_other(const MemberContext& m, std::int32_t other, Cost name, Cost spelled) {
  const ObjectPlan& object = m.object();
  const ObjectAt behind = m.behind(object.size());
  std::vector<TakenName> taken;
  if (needs_names(object, behind)) {
    taken = taken_names(seen_of(m.frame));
    taken.push_back({other, spelled});
  }
  return plus(plus(name, plus(2, m.value()(object.others[other].value))), finish_cost(m, behind, taken));
}

}  // namespace

Cost cheapest_name(const Content& content, const NameTree& names, const NamePlace& from) {
  if (from.free()) return content.distance[from.state];
  std::priority_queue<Search, std::vector<Search>, std::greater<>> queue;
  queue.push({content.distance[from.state], 0, from});
  Cost best = kNever;
  while (!queue.empty() && queue.top().bound < best) {
    const Search top = queue.top();
    queue.pop();
    if (content.dfa->accepting(top.at.state) && !top.at.avoided(names)) best = std::min(best, top.cost);
    for (int b = 0; b < 256 && top.bound < best; ++b) {
      NamePlace to = top.at;
      if (!step(content, names, to, static_cast<std::uint8_t>(b))) continue;
      const Cost cost = top.cost + spelled(static_cast<std::uint8_t>(b)),
                 bound = cost + content.distance[to.state];
      if (to.free()) {
        best = std::min(best, bound);
      } else if (bound < best) {
        queue.push({bound, cost, to});
      }
    }
  }
  return best;
}

ObjectAt MemberContext::behind(std::int32_t place) const {
  const std::int32_t count = at().count;
  const bool counts = object().max != INT64_MAX || count < object().min;
  return {std::min(place + 1, object().size()), count + (counts ? 1 : 0)};
}

bool declared_open(const MemberContext& m, std::int32_t property) {
  const ObjectPlan& object = m.object();
  const ObjectAt at = m.at();
  if (property < at.place || property > object.next_required[at.place]) return false;
  if (at.count >= object.max || m.value()(object.properties[property].value) == kNever) return false;
  return members_cost(object, m.behind(property), {}, m.value()) != kNever;
}

bool others_open(const MemberContext& m, std::int32_t other) {
  const ObjectPlan& object = m.object();
  const ObjectAt at = m.at();
  return object.required_count[at.place] == 0 && at.count < object.max &&
         m.value()(object.others[other].value) != kNever && !object.others[other].names->dfa->empty();
}

Cost declared_cost(const MemberContext& m, std::int32_t tree_node) {
  const ObjectPlan& object = m.object();
  const NameTree::Node& node = object.names.node(tree_node);
  Cost best = kNever;
  const auto try_one = [&](std::int32_t i) {
    if (!declared_open(m, i)) return;
    const ObjectPlan::Property& p = object.properties[i];
    const Cost head = plus(p.spelled - node.cost + 2, m.value()(p.value));
    best = std::min(best, plus(head, finish_cost(m, m.behind(i), {})));
  };
  // Those that are open lie side by side, and so do those below the node: the fewer are looked through.
  const std::int32_t first = m.at().place, end = std::min(object.next_required[first] + 1, object.size());
  m.count(std::min(end - first, node.last - node.first), false);
  if (end - first < node.last - node.first) {
    for (std::int32_t i = first; i < end; ++i) {
      if (object.names.is_below(i, node)) try_one(i);
    }
  } else {
    for (const std::int32_t i : object.names.below(node)) try_one(i);
  }
  return best;
}

Cost declared_cost(const MemberContext& m, const TextLocal& local) {
  const auto start = static_cast<std::int32_t>(local.state);
  if (local.escape.kind == Escape::kNone) return declared_cost(m, start);
  const NameTree& names = m.object().names;
  const auto step = [&](std::int32_t& at, std::uint8_t b) {
    return (at = names.child(at, b)) != NameTree::kNone;
  };
  Cost best = kNever;
  for (const CodeRange& range : escape_ranges(local.escape)) {
    std::vector<std::int32_t> targets;
    walk_range(start, range.lo, range.hi, step, targets);
    for (const std::int32_t at : targets) best = std::min(best, plus(range.missing, declared_cost(m, at)));
  }
  return best;
}

Cost other_cost(const MemberContext& m, std::int32_t other, const NamePlace& at) {
  const ObjectPlan& object = m.object();
  m.count(at.free() ? 1 : 8, true);  // a search over bytes that ends soon
  const Cost name = cheapest_name(*object.others[other].names, object.names, at);
  return name == kNever ? kNever : with_other(m, other, name, at.weight + name);
}

Cost other_cost(const MemberContext& m, std::int32_t other, const TextLocal& local, const PartialName& name) {
  const ObjectPlan& object = m.object();
  const Content& content = *object.others[other].names;
  const NamePlace start{local.state, name.declared, name.seen, name.spelled};
  if (local.escape.kind == Escape::kNone) return other_cost(m, other, start);
  const bool weigh = needs_names(object, m.behind(object.size()));
  const auto move = [&](NamePlace& at, std::uint8_t b) {
    if (weigh) at.weight += spelled(b);
    return step(content, object.names, at, b);
  };
  Cost best = kNever;
  for (const CodeRange& range : escape_ranges(local.escape)) {
    std::vector<NamePlace> targets;
    walk_range(start, range.lo, range.hi, move, targets);
    for (const NamePlace& at : targets) best = std::min(best, plus(range.missing, other_cost(m, other, at)));
  }
  return best;
}

Cost member_cost(const MemberContext& m) {
  const ObjectPlan& object = m.object();
  Cost best = declared_cost(m, 0);
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(object.others.size()); ++k) {
    if (!others_open(m, k)) continue;
    best = std::min(best, other_cost(m, k, {object.others[k].names->dfa->start(), 0, seen_of(m.frame), 0}));
  }
  return plus(best, 1);
}

Cost other_plain_worst(const MemberContext& m, std::int32_t other, std::uint32_t state) {
  static constexpr std::int64_t kPlainAscii = 94;
  const ObjectPlan& object = m.object();
  const Content& content = *object.others[other].names;
  if (!content.plain[state] || needs_names(object, m.behind(object.size()))) return kNever;
  // Each further character can leave all but a 94th of the names to be avoided.
  const std::int64_t avoided = object.size() + (seen_of(m.frame) ? seen_of(m.frame)->total : 0);
  Cost evade = 0;
  for (std::int64_t left = avoided; left > 0; left /= kPlainAscii) ++evade;
  return with_other(m, other, evade + content.plain_worst, 0);
}

}  // namespace barg::text::grammar::pushdown
