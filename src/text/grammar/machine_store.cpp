#include "text/grammar/machine_store.h"

#include <cstring>

#include "text/grammar/machine_rest.h"

namespace barg::text::grammar::pushdown {
namespace {

template <class T>
T* place(Arena& arena, const T& value) {
  return new (arena.allot<T>(1)) T(value);
}

std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

void* Arena::raw(std::size_t size, std::size_t align) {
  used_ = (used_ + align - 1) / align * align;
  if (chunks_.empty() || used_ + size > room_) {
    room_ = std::max(kChunk, size);
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(room_));
    bytes_ += room_;
    used_ = 0;
  }
  void* at = chunks_.back().get() + used_;
  used_ += size;
  return at;
}

const SeenNames* SeenNames::child(std::uint8_t byte) const {
  const auto children = all();
  const auto it = std::lower_bound(children.begin(), children.end(), byte,
                                   [](const Child& c, std::uint8_t b) { return c.byte < b; });
  return it != children.end() && it->byte == byte ? it->to : nullptr;
}

std::vector<TakenName> taken_names(const SeenNames* names) {
  struct At {
    const SeenNames* node;
    Cost spelled;
  };
  std::vector<TakenName> out;
  std::vector<At> todo = {{names, 0}};
  while (!todo.empty()) {
    const At at = todo.back();
    todo.pop_back();
    if (!at.node) continue;
    if (at.node->name) out.push_back({at.node->other, at.spelled});
    for (const SeenNames::Child& c : at.node->all()) todo.push_back({c.to, at.spelled + spelled(c.byte)});
  }
  return out;
}

// --- frames ----------------------------------------------------------------------------------------------

/// What the node's own parts still need; kNever: there is no way.
Cost Generation::own_cost(NodeId id, std::uint64_t a, std::uint64_t b, std::int32_t depth) const {
  const Node& node = plan_.grammar.nodes[id];
  if (std::holds_alternative<SequenceNode>(node)) return plan_.sequence_of(id).rest[a];
  if (const auto* repeat = std::get_if<RepeatNode>(&node)) {
    const auto count = static_cast<std::int64_t>(a >> 1);
    const bool separating = (a & 1) != 0;
    const Cost item = plan_.facts[repeat->item].min;
    const Cost each = plus(item, repeat->separator == kNoNode ? 0 : plan_.facts[repeat->separator].min);
    const std::int64_t missing = plan_.repeat_of(id).min - count - separating;
    return plus(separating ? item : 0, missing <= 0 ? 0 : times(each, missing));
  }
  const ValueCost value(plan_, depth);
  if (std::holds_alternative<ArrayNode>(node))
    return items_cost(plan_.array_of(id), unpack_array(a), b, value);
  const ObjectPlan& object = plan_.object_of(id);
  const ObjectAt at = unpack_object(a);
  const auto* names = reinterpret_cast<const SeenNames*>(b);
  return members_cost(object, at, needs_names(object, at) ? taken_names(names) : std::vector<TakenName>{},
                      value);
}

const Frame* Generation::frame(NodeId node, std::uint64_t a, std::uint64_t b, const Frame* parent) {
  const std::uint64_t hash = mix(mix(mix(mix(0, static_cast<std::uint32_t>(node)), a), b), address(parent));
  const auto same = [&](const Frame& f) {
    return f.node == node && f.a == a && f.b == b && f.parent == parent;
  };
  if (const Frame* known = frames_.find(hash, same)) return known;
  const std::int32_t depth = depth_of(parent) + 1;
  const Cost own = own_cost(node, a, b, depth);
  if (own == kNever) return nullptr;
  const Node& n = plan_.grammar.nodes[node];
  const bool bracketed = std::holds_alternative<ObjectNode>(n) || std::holds_alternative<ArrayNode>(n);
  const Cost rest = plus(plus(own, bracketed ? 1 : 0), rest_of(parent));
  Frame* made = place(arena_, Frame{hash, node, depth, a, b, parent, rest, own});
  frames_.insert(made);
  return made;
}

// --- names -----------------------------------------------------------------------------------------------

const SeenNames* Generation::seen_node(bool name, std::int32_t other,
                                       std::span<const SeenNames::Child> children) {
  std::uint64_t hash = mix(name, static_cast<std::uint32_t>(other));
  std::int64_t total = name;
  for (const SeenNames::Child& c : children) {
    hash = mix(mix(hash, c.byte), address(c.to));
    total += c.to->total;
  }
  const auto same = [&](const SeenNames& s) {
    return s.name == name && s.other == other &&
           std::equal(children.begin(), children.end(), s.all().begin(), s.all().end());
  };
  if (const SeenNames* known = seen_.find(hash, same)) return known;
  auto* copied = arena_.allot<SeenNames::Child>(children.size());
  std::uninitialized_copy(children.begin(), children.end(), copied);
  SeenNames* made =
      place(arena_, SeenNames{hash, total, name, other, static_cast<std::int32_t>(children.size()), copied});
  seen_.insert(made);
  return made;
}

const SeenNames* Generation::add_name(const SeenNames* names, std::string_view name, std::int32_t other) {
  std::vector<const SeenNames*> path;  // nodes from the root on, null where the set has none
  const SeenNames* at = names;
  for (const char c : name) {
    path.push_back(at);
    at = at ? at->child(static_cast<std::uint8_t>(c)) : nullptr;
  }
  const SeenNames* made = seen_node(true, other, at ? at->all() : std::span<const SeenNames::Child>{});
  std::vector<SeenNames::Child> children;
  for (std::size_t i = name.size(); i-- > 0;) {
    children.clear();
    if (path[i]) children.assign(path[i]->all().begin(), path[i]->all().end());
    const SeenNames::Child child{static_cast<std::uint8_t>(name[i]), made};
    const auto it = std::lower_bound(children.begin(), children.end(), child.byte,
                                     [](const SeenNames::Child& c, std::uint8_t b) { return c.byte < b; });
    if (it != children.end() && it->byte == child.byte) {
      *it = child;
    } else {
      children.insert(it, child);
    }
    made = seen_node(path[i] && path[i]->name, path[i] ? path[i]->other : 0, children);
  }
  return made;
}

const PartialName* Generation::new_partial(PartialName made) {
  made.hash =
      mix(mix(mix(mix(1, address(made.parent)), address(made.root)), static_cast<std::uint32_t>(made.object)),
          made.byte);
  const auto same = [&](const PartialName& p) {
    return p.parent == made.parent && p.root == made.root && p.object == made.object && p.byte == made.byte;
  };
  if (const PartialName* known = partial_table_.find(made.hash, same)) return known;
  made.id = static_cast<std::uint32_t>(partials_.size());
  PartialName* kept = place(arena_, made);
  partial_table_.insert(kept);
  partials_.push_back(kept);
  return kept;
}

const PartialName* Generation::partial(NodeId object, const SeenNames* seen) {
  return new_partial({.hash = 0,
                      .parent = nullptr,
                      .root = seen,
                      .seen = seen,
                      .declared = 0,
                      .object = object,
                      .id = 0,
                      .length = 0,
                      .spelled = 0,
                      .byte = 0});
}

const PartialName* Generation::nameless(NodeId object) {
  return new_partial({.hash = 0,
                      .parent = nullptr,
                      .root = nullptr,
                      .seen = nullptr,
                      .declared = NameTree::kNone,
                      .object = object,
                      .id = 0,
                      .length = 0,
                      .spelled = 0,
                      .byte = kNameless});
}

bool Generation::is_nameless(const PartialName* name) {
  while (name->parent) name = name->parent;
  return name->byte == kNameless;
}

const PartialName* Generation::partial(const PartialName* before, std::uint8_t byte) {
  PartialName made = *before;
  made.parent = before;
  made.seen = before->seen ? before->seen->child(byte) : nullptr;
  made.declared = plan_.object_of(before->object).names.child(before->declared, byte);
  made.length = before->length + 1;
  made.spelled = before->spelled + spelled(byte);
  made.byte = byte;
  return new_partial(made);
}

std::string Generation::text_of(const PartialName* name) {
  std::string out(static_cast<std::size_t>(name->length), '\0');
  for (; name->parent; name = name->parent) out[name->length - 1] = static_cast<char>(name->byte);
  return out;
}

// --- states ----------------------------------------------------------------------------------------------

State* Generation::new_state(std::span<const Config> configs, bool accepting, std::uint64_t hash) {
  auto* copied = arena_.allot<Config>(configs.size());
  std::uninitialized_copy(configs.begin(), configs.end(), copied);
  State* made = place(arena_, State{hash, this, copied, static_cast<std::uint32_t>(configs.size()), accepting,
                                    0, 0, 0, nullptr, 0, 0});
  states_.insert(made);
  return made;
}

void Generation::remember(const State* from, std::uint8_t byte, Taken taken) {
  auto* state = const_cast<State*>(from);  // of this generation, under the mutex
  if (!state->next && state->only == 0) {
    state->only = taken.word();
    state->only_byte = byte;
    return;
  }
  if (!state->next) {
    state->next = new (arena_.allot<std::array<State::Page*, 16>>(1)) std::array<State::Page*, 16>{};
    remember(from, state->only_byte, Taken(state->only));
  }
  State::Page*& page = (*state->next)[byte >> 4];
  if (!page) page = new (arena_.allot<State::Page>(1)) State::Page{};
  (*page)[byte & 15] = taken.word();
}

// --- from one generation to the next ---------------------------------------------------------------------

const SeenNames* Generation::copy(const SeenNames* names, Copies& copies) {
  struct Open {
    const SeenNames* old;
    std::size_t next;
  };
  const auto copied = [&](const SeenNames* old) {
    const auto it = copies.find(old);
    return it == copies.end() ? nullptr : static_cast<const SeenNames*>(it->second);
  };
  std::vector<Open> open = {{names, 0}};
  std::vector<SeenNames::Child> children;
  while (!open.empty()) {
    Open& top = open.back();
    if (top.next < top.old->all().size()) {
      const SeenNames* child = top.old->all()[top.next++].to;
      if (!copied(child)) open.push_back({child, 0});
      continue;
    }
    children.clear();
    for (const SeenNames::Child& c : top.old->all()) children.push_back({c.byte, copied(c.to)});
    copies[top.old] = seen_node(top.old->name, top.old->other, children);
    open.pop_back();
  }
  return copied(names);
}

const Frame* Generation::copy(const Frame* frame, Copies& copies) {
  std::vector<const Frame*> chain;
  const Frame* below = nullptr;
  for (; frame; frame = frame->parent) {
    if (const auto it = copies.find(frame); it != copies.end()) {
      below = static_cast<const Frame*>(it->second);
      break;
    }
    chain.push_back(frame);
  }
  while (!chain.empty()) {
    const Frame& old = *chain.back();
    std::uint64_t b = old.b;
    if (b != 0 && std::holds_alternative<ObjectNode>(plan_.grammar.nodes[old.node]))
      b = address(copy(seen_of(old), copies));
    below = this->frame(old.node, old.a, b, below);
    CHECK(below != nullptr);
    copies[&old] = below;
    chain.pop_back();
  }
  return below;
}

const State* Generation::adopt(const State& old) {
  const std::size_t before = bytes();
  std::vector<Config> configs;
  Copies copies;
  for (const Config& c : old.all()) configs.push_back(copy(c, *old.home, copies));
  const State* made = state(configs, old.accepting, [&](State& s) {
    s.min_bytes = old.min_bytes;
    s.plain_run = old.plain_run;
    s.plain_worst = old.plain_worst;
  });
  adopted_ += bytes() - before;
  return made;
}

Config Generation::copy(const Config& c, const Generation& home, Copies& copies) {
  Config out = c;
  out.frame = c.frame ? copy(c.frame, copies) : nullptr;
  if (c.part < 0) return out;
  TextLocal local = unpack_text(c.local);
  const PartialName* old = home.partial(local.extra);
  const PartialName* name = is_nameless(old) ? nameless(c.node) : partial(c.node, seen_of(*out.frame));
  for (const char byte : text_of(old)) name = partial(name, static_cast<std::uint8_t>(byte));
  local.extra = name->id;
  out.local = pack(local);
  return out;
}

}  // namespace barg::text::grammar::pushdown
