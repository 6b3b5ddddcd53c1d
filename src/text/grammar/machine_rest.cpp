#include "text/grammar/machine_rest.h"

#include <bit>

namespace barg::text::grammar::pushdown {
namespace {

/// So many members at this cost each.
struct Offer {
  Cost cost;
  std::int64_t count;
};

Cost cheapest(std::vector<Offer>& offers, std::int64_t needed) {
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) { return a.cost < b.cost; });
  Cost total = 0;
  for (const Offer& o : offers) {
    const std::int64_t taken = std::min(o.count, needed);
    total = plus(total, times(o.cost, taken));
    needed -= taken;
    if (needed == 0) return total;
  }
  return kNever;
}

void offer_names(const ObjectPlan& plan, std::int32_t k, const std::vector<TakenName>& taken,
                 std::int64_t needed, std::vector<Offer>& offers) {
  const ObjectPlan::Other& other = plan.others[k];
  std::vector<std::int64_t> left = other.words;
  for (const TakenName& name : taken) {
    if (name.other == k && name.spelled < static_cast<Cost>(left.size())) --left[name.spelled];
  }
  for (std::size_t cost = 0; cost < left.size() && needed > 0; ++cost) {
    if (left[cost] <= 0) continue;
    offers.push_back({plus(other.cost, static_cast<Cost>(cost)), left[cost]});
    needed -= left[cost];
  }
}

/// REQUIRES that `needed` > 0 members must follow beside the required ones.
Cost further_cost(const ObjectPlan& plan, ObjectAt at, std::int64_t needed,
                  const std::vector<TakenName>& taken, const ValueCost& value) {
  std::vector<Offer> offers;
  for (std::int32_t i = at.place; i < plan.size(); ++i) {
    const ObjectPlan::Property& p = plan.properties[i];
    if (!p.required && value(p.value) != kNever) offers.push_back({p.cost, 1});
  }
  for (std::size_t k = 0; k < plan.others.size(); ++k) {
    if (value(plan.others[k].value) == kNever) continue;
    offer_names(plan, static_cast<std::int32_t>(k), taken, needed, offers);
  }
  return cheapest(offers, needed);
}

bool required_fit(const ObjectPlan& plan, std::int32_t place, const ValueCost& value) {
  if (value.all(plan.deepest)) return true;
  for (std::int32_t i = plan.next_required[place]; i < plan.size(); i = plan.next_required[i + 1]) {
    if (value(plan.properties[i].value) == kNever) return false;
  }
  return true;
}

/// Cost of `needed` further uncounted-or-counted items, of which at most `room` may be counted.
Cost any_items_cost(Cost counted, Cost uncounted, std::int64_t needed, std::int64_t room) {
  if (uncounted <= counted) return times(uncounted, needed);
  const std::int64_t chosen = std::min(needed, room);
  return plus(times(counted, chosen), times(uncounted, needed - chosen));
}

Cost prefix_cost(const ArrayPlan& plan, std::int64_t begin, std::int64_t end, const ValueCost& value) {
  if (begin >= end) return 0;
  if (value.all(plan.deepest)) {
    return plan.prefix_cost[end] >= kNever ? kNever : plan.prefix_cost[end] - plan.prefix_cost[begin];
  }
  Cost total = 0;
  for (std::int64_t i = begin; i < end; ++i) total = plus(total, plus(1, value(plan.prefix[i])));
  return total;
}

Cost options_cost(const ArrayPlan& plan, std::int64_t needed, std::uint64_t taken, const ValueCost& value) {
  std::vector<Offer> offers;
  for (std::size_t i = 0; i < plan.options.size(); ++i) {
    const Cost cost = value(plan.options[i]);
    if ((taken >> i & 1) == 0 && cost != kNever) offers.push_back({plus(1, cost), 1});
  }
  return needed == 0 ? 0 : cheapest(offers, needed);
}

}  // namespace

Cost members_cost(const ObjectPlan& plan, ObjectAt at, const std::vector<TakenName>& taken,
                  const ValueCost& value) {
  const std::int64_t required = plan.required_count[at.place];
  const std::int64_t further = std::max<std::int64_t>(0, plan.min - at.count - required);
  if (at.count + required + further > plan.max || !required_fit(plan, at.place, value)) return kNever;
  const Cost cost = plan.required_cost[at.place];
  return further == 0 ? cost : plus(cost, further_cost(plan, at, further, taken, value));
}

Cost items_cost(const ArrayPlan& plan, ArrayAt at, std::uint64_t taken, const ValueCost& value) {
  const std::int64_t needed = std::max<std::int64_t>(0, plan.min - at.count), room = plan.max - at.count;
  if (plan.each_once) return needed > room ? kNever : options_cost(plan, needed, taken, value);
  const std::int64_t counted = std::max<std::int64_t>(0, plan.min_counted - at.counted);
  const std::int64_t prefix_left = std::max<std::int64_t>(0, plan.places() - at.count);
  const std::int64_t in_prefix = counted > 0 ? prefix_left : std::min(needed, prefix_left);
  const std::int64_t uncounted = std::max<std::int64_t>(0, needed - in_prefix - counted);
  if (in_prefix + counted + uncounted > room || plan.min_counted > plan.max_counted) return kNever;
  const Cost one = plus(1, value(plan.counted)), other = plus(1, value(plan.uncounted));
  Cost total = prefix_cost(plan, at.count, at.count + in_prefix, value);
  total = plus(total, times(one, counted));
  return plus(total, any_items_cost(one, other, uncounted, plan.max_counted - at.counted - counted));
}

std::vector<ArrayItem> next_items(const ArrayPlan& plan, ArrayAt at, std::uint64_t taken,
                                  const ValueCost& value) {
  std::vector<ArrayItem> out;
  if (at.count >= plan.max) return out;
  ArrayAt next = at;
  if (plan.max != INT64_MAX || next.count < plan.count_top) ++next.count;
  const auto offer = [&](NodeId item, ArrayAt behind, std::uint64_t mask) {
    if (value(item) != kNever && items_cost(plan, behind, mask, value) != kNever)
      out.push_back({item, behind, mask});
  };
  if (plan.each_once) {
    for (std::size_t i = 0; i < plan.options.size(); ++i) {
      if ((taken >> i & 1) == 0) offer(plan.options[i], next, taken | std::uint64_t{1} << i);
    }
    return out;
  }
  if (at.count < plan.places()) {
    offer(plan.prefix[at.count], next, 0);
    return out;
  }
  const bool enough = plan.counted_again && at.counted >= plan.min_counted;
  if (plan.counted != kNoNode && !enough && at.counted < plan.max_counted) {
    offer(plan.counted, {next.count, at.counted + 1}, 0);
  }
  offer(plan.uncounted, next, 0);
  return out;
}

}  // namespace barg::text::grammar::pushdown
