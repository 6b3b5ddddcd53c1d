// Grammars are refused in one sentence, or every node of what they become leads to nodes that there are.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "text/grammar/gbnf.h"

namespace {

using namespace barg::text::grammar;

struct CheckNode {
  const Grammar& grammar;

  void child(NodeId id) const { CHECK(id >= 0 && static_cast<std::size_t>(id) < grammar.nodes.size()); }
  void operator()(const BytesNode& node) const { CHECK(node.dfa != nullptr && !node.dfa->empty()); }
  void operator()(const SequenceNode& node) const {
    for (const NodeId part : node.parts) child(part);
  }
  void operator()(const ChoiceNode& node) const {
    for (const NodeId option : node.options) child(option);
  }
  void operator()(const RepeatNode& node) const {
    child(node.item);
    CHECK(node.min >= 0 && (node.max == kUnbounded || node.max >= node.min));
  }
  void operator()(const RefNode& node) const { child(node.target); }
  template <class Other>
  void operator()(const Other&) const {
    CHECK(false);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto grammar = parse_gbnf({reinterpret_cast<const char*>(data), size});
  if (!grammar) {
    CHECK(!grammar.error().message.empty());
    return 0;
  }
  const CheckNode check{*grammar};
  check.child(grammar->root);
  for (const Node& node : grammar->nodes) std::visit(check, node);
  return 0;
}
