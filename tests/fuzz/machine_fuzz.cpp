// A small grammar and a text, both made of the input: whatever the grammar is, every state that a text
// reaches can be led to an end in as many steps as it says, and a machine that forgets everything says the
// same.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "text/grammar/machine.h"

namespace {

using namespace barg::text::grammar;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  int pick(int of) { return at_ == end_ ? 0 : *at_++ % of; }
  bool more() const { return at_ != end_; }
  std::uint8_t byte() { return at_ == end_ ? 0 : *at_++; }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

std::shared_ptr<const Dfa> language(Input& in) {
  static const char* kWords[] = {"", "a", "ab", "\"", "1", "\xC3\xA9", "\n", "\xFF"};
  Dfa some = dfa_literals({kWords[in.pick(8)], kWords[in.pick(8)]});
  const int max = in.pick(4);
  return std::make_shared<const Dfa>(*dfa_repeat(some, in.pick(3), max == 3 ? -1 : 2 + max));
}

Node make_node(Input& in, int nodes) {
  const auto child = [&] { return static_cast<NodeId>(in.pick(nodes)); };
  const auto bound = [&] { return in.pick(4) - 1; };
  switch (in.pick(9)) {
    case 0:
      return BytesNode{language(in)};
    case 1:
      return StringNode{in.pick(3) == 0 ? nullptr : language(in), in.pick(3), bound()};
    case 2:
      return TokenNode{in.pick(2)};
    case 3:
      return SequenceNode{{child(), child()}};
    case 4:
      return ChoiceNode{{child(), child(), child()}};
    case 5:
      return RepeatNode{child(), in.pick(2) == 0 ? kNoNode : child(), in.pick(3), bound()};
    case 6: {
      ObjectNode object;
      object.min_properties = in.pick(3);
      object.max_properties = bound();
      object.properties = {{"a", child(), in.pick(2) == 0}, {"ab", child(), false}};
      if (in.pick(2) == 0) object.others.push_back({in.pick(2) == 0 ? nullptr : language(in), child()});
      return object;
    }
    case 7: {
      ArrayNode array;
      array.min_items = in.pick(3);
      array.max_items = bound();
      array.items = child();
      if (in.pick(2) == 0) array.prefix = {child()};
      return array;
    }
    default:
      return RefNode{child()};
  }
}

void close(Machine& machine, Machine::StatePtr state) {
  for (int step = 0; step < 40 && !Machine::accepting(*state); ++step) {
    const std::int64_t left = Machine::min_bytes(*state);
    Machine::StatePtr nearer;
    for (int b = 0; b < 256 && !nearer; ++b) {
      const auto to = machine.next(state, static_cast<std::uint8_t>(b));
      CHECK(!to || Machine::min_bytes(*to) >= left - 1);
      if (to && Machine::min_bytes(*to) == left - 1) nearer = to;
    }
    for (const barg::TokenId id : machine.tokens(state)) {
      const auto to = machine.next_token(state, id);
      CHECK(to && Machine::min_bytes(*to) >= left - 1);
      if (Machine::min_bytes(*to) == left - 1) nearer = to;
    }
    CHECK(nearer != nullptr);
    state = nearer;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  Grammar grammar;
  grammar.spacing = in.pick(2) == 0 ? Spacing::kNone : Spacing::kFlexible;
  const int nodes = 1 + in.pick(8);
  for (int i = 0; i < nodes; ++i) grammar.add(make_node(in, nodes));
  grammar.root = 0;
  const auto machine = Machine::compile(grammar);
  if (!machine) {
    CHECK(!machine.error().message.empty());
    return 0;
  }
  const auto forgetful = *Machine::compile(grammar, {.memory_bytes = 1});
  auto state = (*machine)->start(), same = forgetful->start();
  for (int i = 0; i < 200 && in.more(); ++i) {
    const std::uint8_t byte = in.byte();
    const bool token = byte == 0xFE || byte == 0xFD;
    const auto to = token ? (*machine)->next_token(state, byte & 1) : (*machine)->next(state, byte);
    const auto too = token ? forgetful->next_token(same, byte & 1) : forgetful->next(same, byte);
    CHECK((to == nullptr) == (too == nullptr));
    if (!to) continue;  // another byte, then
    state = to;
    same = too;
    CHECK(Machine::min_bytes(*state) == Machine::min_bytes(*same));
    CHECK(Machine::accepting(*state) == (Machine::min_bytes(*state) == 0));
    if (i % 16 == 0) close(**machine, state);
  }
  close(**machine, state);
  return 0;
}
