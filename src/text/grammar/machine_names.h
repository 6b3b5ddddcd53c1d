// Names of objects: which may still come, and what the cheapest of them costs.
//
// A name is one of the declared (a place in the NameTree, of which the frame says which are open) or one of
// the others: a word of their language that is neither declared nor seen. Whether such a word is left behind
// a beginning, and how few bytes it takes, is a best-first search over the three automata together; it leaves
// the beaten paths of names to be avoided after a step or two.
//
// Pure functions; any thread.
#pragma once

#include "text/grammar/machine_rest.h"
#include "text/grammar/machine_store.h"

namespace barg::text::grammar::pushdown {

/// Where a beginning of a name stands: in the language of the others, among the declared names, among those
/// seen.
struct NamePlace {
  std::uint32_t state = 0;
  std::int32_t declared = NameTree::kNone;
  const SeenNames* seen = nullptr;
  Cost weight = 0;  ///< spelled bytes of the way here, where they are counted
  auto operator<=>(const NamePlace&) const = default;

  bool avoided(const NameTree& names) const { return names.ends(declared) || (seen && seen->name); }
  bool free() const { return declared == NameTree::kNone && !seen; }
};
inline bool step(const Content& content, const NameTree& names, NamePlace& at, std::uint8_t byte) {
  at.state = content.dfa->next(at.state, byte);
  if (at.state == Dfa::kDead) return false;
  at.declared = names.child(at.declared, byte);
  at.seen = at.seen ? at.seen->child(byte) : nullptr;
  return true;
}
/// Cheapest spelling of the rest of a name that is not avoided; kNever: there is none.
Cost cheapest_name(const Content& content, const NameTree& names, const NamePlace& from);

/// All that the functions below look at.
struct MemberContext {
  const Plan& plan;
  NodeId node;
  const Frame& frame;            ///< of the object, before the member
  std::int64_t* work = nullptr;  ///< counts it, where it is asked for

  const ObjectPlan& object() const { return plan.object_of(node); }
  ObjectAt at() const { return unpack_object(frame.a); }
  ValueCost value() const { return ValueCost(plan, frame.depth); }
  /// The cost of what follows was found for so many members: by all properties where a minimum chooses among
  /// them. `rare`: most of these steps are of names that are alike, and remembered.
  void count(std::int64_t members, bool rare) const {
    if (work == nullptr) return;
    const bool chosen = at().count + object().required_count[at().place] < object().min;
    const SeenNames* names = seen_of(frame);
    const std::int64_t seen = names != nullptr ? names->total : 0;
    *work += members * (chosen ? 1 + (object().size() + seen) / (rare ? 64 : 4) : 1);
  }
  /// The data behind one more member, a declared one at `place` or one of the others.
  ObjectAt behind(std::int32_t place) const;
};

/// Whether the declared property may come next: its value fits, and the object can be finished behind it.
bool declared_open(const MemberContext& m, std::int32_t property);
bool others_open(const MemberContext& m, std::int32_t other);
/// Bytes until everything is whole, from inside the name on (its closing quote counted); kNever: dead.
Cost declared_cost(const MemberContext& m, std::int32_t tree_node);
Cost declared_cost(const MemberContext& m, const TextLocal& local);
Cost other_cost(const MemberContext& m, std::int32_t other, const NamePlace& at);
Cost other_cost(const MemberContext& m, std::int32_t other, const TextLocal& local, const PartialName& name);
/// As these, before the opening quote: the cheapest next member.
Cost member_cost(const MemberContext& m);
/// As Machine::plain_run_worst; kNever: no such run.
Cost other_plain_worst(const MemberContext& m, std::int32_t other, std::uint32_t state);

}  // namespace barg::text::grammar::pushdown
