// What the composites still need: for their data (`a`, `b`), the fewest bytes until they are whole. Exact:
// choices among optional members, names that may not come twice, items that must be contained.
//
// Object: a = place among the declared properties and number of members, b = the names seen (a SeenNames*, or
// 0). Array: a = number of items and of those that counted, b = the options taken (each_once).
//
// Pure functions of a Plan; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/grammar/machine_plan.h"

namespace barg::text::grammar::pushdown {

/// Facts::min of a node started at a depth; kNever where it does not fit below kMaxDepth.
class ValueCost {
 public:
  ValueCost(const Plan& plan, std::int32_t depth) : facts_(plan.facts), depth_(depth) {}
  Cost operator()(NodeId id) const {
    return id == kNoNode || depth_ + facts_[id].depth > kMaxDepth ? kNever : facts_[id].min;
  }
  /// Whether none of the nodes that are at most so deep is cut off.
  bool all(std::int32_t deepest) const { return depth_ + deepest <= kMaxDepth; }

 private:
  const std::vector<Facts>& facts_;
  std::int32_t depth_;
};

struct ObjectAt {
  std::int32_t place = 0;  ///< declared properties before this one are done with
  std::int32_t count = 0;  ///< members so far
};
inline std::uint64_t pack(ObjectAt at) {
  return std::uint64_t{static_cast<std::uint32_t>(at.place)} << 32 | static_cast<std::uint32_t>(at.count);
}
inline ObjectAt unpack_object(std::uint64_t a) {
  return {static_cast<std::int32_t>(a >> 32), static_cast<std::int32_t>(a)};
}

/// A name of the others that is taken.
struct TakenName {
  std::int32_t other;
  Cost spelled;
};

/// Cost of the members that must still follow, each with the comma before it; kNever: there is no way. Braces
/// are not counted.
Cost members_cost(const ObjectPlan& plan, ObjectAt at, const std::vector<TakenName>& taken,
                  const ValueCost& value);
/// Whether members_cost looks at the names taken.
inline bool needs_names(const ObjectPlan& plan, ObjectAt at) {
  return !plan.others.empty() && at.count + plan.required_count[at.place] < plan.min;
}

struct ArrayAt {
  std::int32_t count = 0;
  std::int32_t counted = 0;
};
inline std::uint64_t pack(ArrayAt at) {
  return std::uint64_t{static_cast<std::uint32_t>(at.count)} << 32 | static_cast<std::uint32_t>(at.counted);
}
inline ArrayAt unpack_array(std::uint64_t a) {
  return {static_cast<std::int32_t>(a >> 32), static_cast<std::int32_t>(a)};
}

/// As members_cost, of items.
Cost items_cost(const ArrayPlan& plan, ArrayAt at, std::uint64_t taken, const ValueCost& value);

/// The readings of the next item, and the data behind it; only those from which the array can be finished.
struct ArrayItem {
  NodeId item;
  ArrayAt at;
  std::uint64_t taken;
};
std::vector<ArrayItem> next_items(const ArrayPlan& plan, ArrayAt at, std::uint64_t taken,
                                  const ValueCost& value);

}  // namespace barg::text::grammar::pushdown
