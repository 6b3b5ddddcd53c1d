#include "text/grammar/machine_plan.h"

#include "base/utf8.h"
#include "text/grammar/machine_rest.h"

namespace barg::text::grammar::pushdown {
namespace {

constexpr std::size_t kMostNames = 500;  // of an object whose minimum makes it choose among them
constexpr std::size_t kMostCells = std::size_t{16} << 20;
constexpr std::int64_t kMostCounted = INT32_MAX;

class PlanMaker {
 public:
  PlanMaker(Plan& plan) : plan_(plan) {}

  Result<void> run() {
    plan_.slot.resize(plan_.grammar.nodes.size());
    plan_.facts.resize(plan_.grammar.nodes.size());
    for (std::size_t id = 0; id < plan_.grammar.nodes.size(); ++id) {
      const auto made = std::visit([&](const auto& node) { return add(static_cast<NodeId>(id), node); },
                                   plan_.grammar.nodes[id]);
      if (!made) return std::unexpected(of(static_cast<NodeId>(id), made.error()));
    }
    return {};
  }

 private:
  Error of(NodeId id, Error error) const {
    if (const auto origin = plan_.grammar.origins.find(id); origin != plan_.grammar.origins.end())
      error.message = origin->second + error.message;
    return error;
  }
  void take_slot(NodeId id, std::size_t slot) { plan_.slot[id] = static_cast<std::int32_t>(slot); }
  void check(NodeId id) const { CHECK(id >= 0 && static_cast<std::size_t>(id) < plan_.grammar.nodes.size()); }

  Result<void> add(NodeId id, const BytesNode& node) {
    CHECK(node.dfa != nullptr);
    std::shared_ptr<const Bytes>& known = bytes_[node.dfa.get()];
    if (!known) known = std::make_shared<const Bytes>(make_bytes(node.dfa));
    take_slot(id, plan_.bytes.size());
    plan_.bytes.push_back(known);
    return {};
  }

  Result<void> add(NodeId id, const StringNode& node) {
    auto content = content_of(node.content);
    if (!content) return std::unexpected(content.error());
    std::shared_ptr<const TextPlan>& known = texts_[{content->get(), node.min_chars, node.max_chars}];
    if (!known) {
      auto text = TextPlan::make(*content, node.min_chars, node.max_chars);
      if (!text) return std::unexpected(text.error());
      cells_ += text->cells();
      if (cells_ > kMostCells)
        return fail(ErrorCode::kUnsupported, "The lengths of all strings together are too large.");
      known = std::make_shared<const TextPlan>(std::move(*text));
    }
    take_slot(id, plan_.texts.size());
    plan_.texts.push_back(known);
    return {};
  }

  Result<void> add(NodeId, const TokenNode& node) {
    CHECK(node.id >= 0);
    return {};
  }

  Result<void> add(NodeId id, const SequenceNode& node) {
    for (const NodeId part : node.parts) check(part);
    take_slot(id, plan_.sequences.size());
    plan_.sequences.emplace_back();
    return {};
  }

  Result<void> add(NodeId, const ChoiceNode& node) {
    for (const NodeId option : node.options) check(option);
    return {};
  }

  Result<void> add(NodeId, const RefNode& node) {
    check(node.target);
    return {};
  }

  Result<void> add(NodeId id, const RepeatNode& node) {
    check(node.item);
    if (node.separator != kNoNode) check(node.separator);
    take_slot(id, plan_.repeats.size());
    plan_.repeats.push_back({.min = std::max<std::int64_t>(0, node.min), .max = node.max});
    return {};
  }

  Result<void> add(NodeId id, const ArrayNode& node) {
    take_slot(id, plan_.arrays.size());
    ArrayPlan& array = plan_.arrays.emplace_back();
    if (node.min_items > kMostCounted || node.min_contains > kMostCounted) {
      return fail(ErrorCode::kUnsupported, "An array of more than two thousand million items is too large.");
    }
    for (const NodeId item : node.prefix) check(item);
    array.prefix = node.prefix;
    array.min = std::max<std::int64_t>(0, node.min_items);
    array.max = bound(node.max_items);
    array.count_top = std::max(array.min, array.places());
    array.deepest = kMaxDepth + 1;  // until it is known: no short cuts
    if (node.items == kNoNode) array.max = std::min(array.max, array.places());
    if (node.each_once) return add_options(array, node);
    array.uncounted = node.not_contains != kNoNode ? node.not_contains : node.items;
    if (array.uncounted != kNoNode) check(array.uncounted);
    if (node.contains == kNoNode) return {};
    array.min_counted = std::max<std::int64_t>(0, node.min_contains);
    if (node.items == kNoNode) return {};  // nothing to count among
    check(node.contains);
    array.counted = node.contains;
    array.max_counted = bound(node.max_contains);
    array.counted_again = node.max_contains < 0 && node.not_contains == kNoNode;
    return {};
  }

  Result<void> add_options(ArrayPlan& array, const ArrayNode& node) {
    CHECK(node.prefix.empty() && node.contains == kNoNode);
    array.each_once = true;
    if (node.items == kNoNode) return {};
    NodeId choice = node.items;
    for (std::size_t hops = 0; hops < plan_.grammar.nodes.size(); ++hops) {
      check(choice);
      const auto* ref = std::get_if<RefNode>(&plan_.grammar.nodes[choice]);
      if (!ref) break;
      choice = ref->target;
    }
    const auto* options = std::get_if<ChoiceNode>(&plan_.grammar.nodes[choice]);
    CHECK(options != nullptr && options->options.size() <= 64);
    array.options = options->options;
    for (const NodeId option : array.options) check(option);
    return {};
  }

  Result<void> add(NodeId id, const ObjectNode& node) {
    take_slot(id, plan_.objects.size());
    ObjectPlan& object = plan_.objects.emplace_back();
    if (node.min_properties > kMostCounted || node.properties.size() > kMostCounted) {
      return fail(ErrorCode::kUnsupported,
                  "An object of more than two thousand million members is too large.");
    }
    object.min = std::max<std::int64_t>(0, node.min_properties);
    object.max = bound(node.max_properties);
    object.deepest = kMaxDepth + 1;
    add_properties(object, node);
    if (object.min > object.required_count[0] && node.properties.size() > kMostNames) {
      return fail(ErrorCode::kUnsupported, "A minimum of properties among more than " +
                                               std::to_string(kMostNames) + " is too large to plan for.");
    }
    return add_others(object, node);
  }

  void add_properties(ObjectPlan& object, const ObjectNode& node) {
    std::vector<std::string> names;
    for (const ObjectNode::Property& p : node.properties) {
      check(p.value);
      CHECK(is_valid_utf8(p.name));
      Cost cost = 0;
      for (const char c : p.name) cost += spelled(static_cast<std::uint8_t>(c));
      object.properties.push_back({.value = p.value, .required = p.required, .spelled = cost, .cost = 0});
      names.push_back(p.name);
    }
    object.names.build(names);
    const std::int32_t size = object.size();
    object.required_cost.assign(size + 1, 0);
    object.required_count.assign(size + 1, 0);
    object.next_required.assign(size + 1, size);
    for (std::int32_t i = size - 1; i >= 0; --i) {
      const bool required = object.properties[i].required;
      object.required_count[i] = object.required_count[i + 1] + (required ? 1 : 0);
      object.next_required[i] = required ? i : object.next_required[i + 1];
    }
  }

  Result<void> add_others(ObjectPlan& object, const ObjectNode& node) {
    for (const ObjectNode::Other& o : node.others) {
      check(o.value);
      auto names = content_of(o.names);
      if (!names) return std::unexpected(names.error());
      ObjectPlan::Other other;
      other.value = o.value;
      other.names = *names;
      if (object.min > 0) {
        auto words = words_by_cost(**names, object.min + static_cast<std::int64_t>(node.properties.size()));
        if (!words) return std::unexpected(words.error());
        other.words = std::move(*words);
        for (std::int32_t i = 0; i < object.size(); ++i) {
          const Cost cost = object.properties[i].spelled;
          const bool counted = cost < static_cast<Cost>(other.words.size());
          if (counted && (*names)->dfa->matches(node.properties[i].name)) --other.words[cost];
        }
      }
      object.others.push_back(std::move(other));
    }
    return {};
  }

  static std::int64_t bound(std::int64_t max) { return max < 0 ? INT64_MAX : std::min(max, kMostCounted); }

  Result<std::shared_ptr<const Content>> content_of(DfaPtr dfa) {
    static const DfaPtr any = std::make_shared<const Dfa>(dfa_valid_utf8());
    if (!dfa) dfa = any;
    std::shared_ptr<const Content>& known = contents_[dfa.get()];
    if (!known) {
      auto made = make_content(dfa);
      if (!made) return std::unexpected(made.error());
      known = std::make_shared<const Content>(std::move(*made));
    }
    return known;
  }

  struct TextKey {
    const Content* content;
    std::int64_t min, max;
    auto operator<=>(const TextKey&) const = default;
  };
  Plan& plan_;
  std::map<const Dfa*, std::shared_ptr<const Bytes>> bytes_;
  std::map<const Dfa*, std::shared_ptr<const Content>> contents_;
  std::map<TextKey, std::shared_ptr<const TextPlan>> texts_;
  std::size_t cells_ = 0;
};

// --- what needs the facts --------------------------------------------------------------------------------

void finish_sequence(Plan& plan, NodeId id) {
  const auto& parts = plan.node<SequenceNode>(id).parts;
  SequencePlan& sequence = plan.sequences[plan.slot[id]];
  sequence.rest.assign(parts.size() + 1, 0);
  for (std::size_t i = parts.size(); i-- > 0;)
    sequence.rest[i] = plus(sequence.rest[i + 1], plan.facts[parts[i]].min);
}

void finish_repeat(Plan& plan, NodeId id) {
  const auto& node = plan.node<RepeatNode>(id);
  RepeatPlan& repeat = plan.repeats[plan.slot[id]];
  const bool may_be_empty = plan.facts[node.item].min == 0;
  if (may_be_empty && (node.separator == kNoNode || plan.facts[node.separator].min == 0)) repeat.min = 0;
  repeat.counts_down = repeat.min == 0;
}

void finish_array(Plan& plan, ArrayPlan& array) {
  array.prefix_cost = {0};
  array.deepest = 0;
  const auto see = [&](NodeId id) {
    if (id != kNoNode && plan.facts[id].min != kNever)
      array.deepest = std::max(array.deepest, plan.facts[id].depth);
  };
  for (const NodeId item : array.prefix) {
    array.prefix_cost.push_back(plus(array.prefix_cost.back(), plus(1, plan.facts[item].min)));
    see(item);
  }
  for (const NodeId option : array.options) see(option);
  see(array.counted);
  see(array.uncounted);
}

void finish_object(Plan& plan, ObjectPlan& object) {
  object.deepest = 0;
  for (const auto& p : object.properties) {
    if (plan.facts[p.value].min != kNever)
      object.deepest = std::max(object.deepest, plan.facts[p.value].depth);
  }
  for (const auto& o : object.others) {
    if (plan.facts[o.value].min != kNever)
      object.deepest = std::max(object.deepest, plan.facts[o.value].depth);
  }
}

void finish(Plan& plan) {
  for (std::size_t i = 0; i < plan.grammar.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (std::holds_alternative<SequenceNode>(plan.grammar.nodes[i])) finish_sequence(plan, id);
    if (std::holds_alternative<RepeatNode>(plan.grammar.nodes[i])) finish_repeat(plan, id);
  }
  for (ArrayPlan& array : plan.arrays) finish_array(plan, array);
  for (ObjectPlan& object : plan.objects) finish_object(plan, object);
}

}  // namespace

// --- NameTree --------------------------------------------------------------------------------------------

void NameTree::build(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) sorted_.push_back(static_cast<std::int32_t>(i));
  std::sort(sorted_.begin(), sorted_.end(),
            [&](std::int32_t a, std::int32_t b) { return names[a] < names[b]; });
  rank_.resize(names.size());
  for (std::size_t j = 0; j < sorted_.size(); ++j) rank_[sorted_[j]] = static_cast<std::int32_t>(j);
  nodes_.resize(1);
  nodes_[0].last = static_cast<std::int32_t>(names.size());
  for (std::size_t j = 0; j < sorted_.size(); ++j) {
    const std::string& name = names[sorted_[j]];
    std::int32_t at = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(name[i]);
      auto& children = nodes_[at].children;
      if (children.empty() || children.back().first != byte) {  // in order, so it is the last or new
        const auto made = static_cast<std::int32_t>(nodes_.size());
        children.emplace_back(byte, made);
        Node node;
        node.first = static_cast<std::int32_t>(j);
        node.cost = nodes_[at].cost + spelled(byte);
        node.boundary = i + 1 == name.size() || (static_cast<std::uint8_t>(name[i + 1]) & 0xC0) != 0x80;
        nodes_.push_back(std::move(node));
        at = made;
      } else {
        at = children.back().second;
      }
      nodes_[at].last = static_cast<std::int32_t>(j) + 1;
    }
    CHECK(nodes_[at].name == kNone);  // distinct names
    nodes_[at].name = sorted_[j];
  }
}

std::int32_t NameTree::child(std::int32_t node, std::uint8_t byte) const {
  if (node == kNone) return kNone;
  const auto& children = nodes_[node].children;
  const auto it = std::lower_bound(children.begin(), children.end(), byte,
                                   [](const auto& child, std::uint8_t b) { return child.first < b; });
  return it != children.end() && it->first == byte ? it->second : kNone;
}

// --- Plan ------------------------------------------------------------------------------------------------

Result<std::unique_ptr<const Plan>> Plan::make(Grammar grammar, const MachineLimits& limits) {
  if (grammar.nodes.size() > limits.nodes) {
    return fail(ErrorCode::kUnsupported, "The grammar is too large: " + std::to_string(grammar.nodes.size()) +
                                             " nodes, and " + std::to_string(limits.nodes) + " are allowed.");
  }
  auto plan = std::make_unique<Plan>();
  plan->grammar = std::move(grammar);
  CHECK(plan->grammar.root >= 0 && static_cast<std::size_t>(plan->grammar.root) < plan->grammar.nodes.size());
  if (auto made = PlanMaker(*plan).run(); !made) return std::unexpected(made.error());
  find_facts(*plan);
  finish(*plan);
  const Facts& root = plan->facts[plan->grammar.root];
  if (root.min == kNever)
    return fail(ErrorCode::kInvalidValue, "Nothing satisfies the grammar: it has no finite text.");
  if (root.depth > kMaxDepth) {
    return fail(ErrorCode::kUnsupported,
                "The grammar nests deeper than " + std::to_string(kMaxDepth) + " levels.");
  }
  if (auto fine = refuse_left_recursion(*plan); !fine) return std::unexpected(fine.error());
  return plan;
}

}  // namespace barg::text::grammar::pushdown
