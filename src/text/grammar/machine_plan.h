// Plan: a Grammar made ready to run. For every node the fewest bytes of a string and the nesting that this
// takes, tables of the composites, automata of the leaves; and the refusals: what is too large,
// left-recursive or empty.
//
// The nesting of composites that can be open at once is bounded (kMaxDepth). A node is started at a depth
// only where its cheapest string fits below the bound: so what has been started can always be finished, in as
// few bytes as if there were no bound.
//
// Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "barg/result.h"
#include "text/grammar/machine.h"
#include "text/grammar/machine_content.h"
#include "text/grammar/node.h"

namespace barg::text::grammar::pushdown {

inline constexpr std::int32_t kMaxDepth = 1000;
inline constexpr std::int32_t kDeclared = -1;  ///< instead of an index into ObjectPlan::others

struct Facts {
  Cost min = kNever;       ///< bytes of a shortest string; kNever: there is none
  std::int32_t depth = 0;  ///< frames on top of one another that a shortest string needs
};

struct SequencePlan {
  std::vector<Cost> rest;  ///< shortest string of the parts from i on
};

struct RepeatPlan {
  std::int64_t min = 0;  ///< 0 where the item, and what separates, may be empty
  std::int64_t max = -1;
  bool counts_down = false;  ///< min is 0: having counted fewer items is never worse
};

/// Names as a tree of their bytes, for those that are declared.
class NameTree {
 public:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::vector<std::pair<std::uint8_t, std::int32_t>> children;  ///< ascending
    std::int32_t name = kNone;                                    ///< index of the name that ends here
    std::int32_t first = 0, last = 0;                             ///< names below: sorted()[first .. last)
    std::int32_t cost = 0;                                        ///< to spell the way here
    bool boundary = true;                                         ///< between characters
  };
  /// REQUIRES distinct names of valid UTF-8.
  void build(const std::vector<std::string>& names);
  /// kNone stays kNone.
  std::int32_t child(std::int32_t node, std::uint8_t byte) const;
  const Node& node(std::int32_t i) const { return nodes_[i]; }
  std::span<const std::int32_t> below(const Node& n) const {
    return std::span(sorted_).subspan(n.first, n.last - n.first);
  }
  bool is_below(std::int32_t name, const Node& n) const {
    return n.first <= rank_[name] && rank_[name] < n.last;
  }
  bool ends(std::int32_t node) const { return node != kNone && nodes_[node].name != kNone; }

 private:
  std::vector<Node> nodes_;
  std::vector<std::int32_t> sorted_, rank_;  // each the other's inverse
};

struct ObjectPlan {
  struct Property {
    NodeId value = kNoNode;
    bool required = false;
    Cost spelled = 0;  ///< its name between the quotes
    Cost cost = 0;     ///< as a further member: , "name" : value
  };
  struct Other {
    NodeId value = kNoNode;
    std::shared_ptr<const Content> names;
    std::vector<std::int64_t> words;  ///< words_by_cost less the declared names, as far as min needs them
    Cost cost = 0;                    ///< as a further member, its name's spelling not counted
  };
  std::vector<Property> properties;
  std::vector<Other> others;
  NameTree names;
  std::int64_t min = 0, max = 0;
  // Of the properties from i on.
  std::vector<Cost> required_cost;
  std::vector<std::int32_t> required_count;
  std::vector<std::int32_t> next_required;  ///< place of the first that is; their number if none
  std::int32_t deepest = 0;                 ///< largest Facts::depth of a value that has a string

  std::int32_t size() const { return static_cast<std::int32_t>(properties.size()); }
};

struct ArrayPlan {
  std::vector<NodeId> prefix;
  std::vector<Cost> prefix_cost;  ///< of the first i places, with a comma before each
  std::vector<NodeId> options;    ///< of each_once
  NodeId counted = kNoNode;       ///< an item that counts
  NodeId uncounted = kNoNode;
  bool counted_again = false;  ///< past min_counted an item that counts is read as an uncounted one
  bool each_once = false;
  std::int64_t min = 0, max = 0;  ///< max: INT64_MAX without one
  std::int64_t min_counted = 0, max_counted = 0;
  std::int64_t count_top = 0;  ///< counting stops here where there is no maximum
  std::int32_t deepest = 0;

  std::int64_t places() const { return static_cast<std::int64_t>(prefix.size()); }
};

struct Plan {
  Grammar grammar;
  std::vector<Facts> facts;
  std::vector<std::int32_t> slot;  ///< by node: its place in the vector of its kind below
  std::vector<std::shared_ptr<const Bytes>> bytes;
  std::vector<std::shared_ptr<const TextPlan>> texts;
  std::vector<SequencePlan> sequences;
  std::vector<RepeatPlan> repeats;
  std::vector<ObjectPlan> objects;
  std::vector<ArrayPlan> arrays;

  static Result<std::unique_ptr<const Plan>> make(Grammar grammar, const MachineLimits& limits);

  template <class T>
  const T& node(NodeId id) const {
    return *std::get_if<T>(&grammar.nodes[id]);
  }
  const Bytes& bytes_of(NodeId id) const { return *bytes[slot[id]]; }
  const TextPlan& text_of(NodeId id) const { return *texts[slot[id]]; }
  const SequencePlan& sequence_of(NodeId id) const { return sequences[slot[id]]; }
  const RepeatPlan& repeat_of(NodeId id) const { return repeats[slot[id]]; }
  const ObjectPlan& object_of(NodeId id) const { return objects[slot[id]]; }
  const ArrayPlan& array_of(NodeId id) const { return arrays[slot[id]]; }
};

/// Nodes that a node names, as (child, whether every string of the node needs one of it at its place).
struct Child {
  NodeId id;
  bool needed;
};
std::vector<Child> children_of(const Grammar& grammar, const Plan& plan, NodeId id);

/// Fills facts: Knuth's generalisation of Dijkstra's algorithm, nodes in order of their cost.
void find_facts(Plan& plan);
/// kUnsupported where a node can begin with itself, one frame deeper each time.
Result<void> refuse_left_recursion(const Plan& plan);

}  // namespace barg::text::grammar::pushdown
