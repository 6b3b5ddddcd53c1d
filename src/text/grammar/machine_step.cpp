#include "text/grammar/machine_step.h"

#include <numeric>
#include <queue>

namespace barg::text::grammar::pushdown {
namespace {

constexpr std::size_t kMaxTasks = std::size_t{1} << 15;
constexpr std::size_t kMostOfATask = 1024;  // tasks that one leads to, in thrift
constexpr std::uint8_t kLineBreak = 2;
constexpr std::uint8_t kMostBlanks = 60;
constexpr std::uint64_t kConfigKey = 0, kStartKey = 1, kResumeKey = 2, kCountKey = 3;

std::uint64_t key_kind(std::uint64_t type, NodeId node, std::int32_t part = 0) {
  return static_cast<std::uint64_t>(node) << 34 | static_cast<std::uint64_t>(part - kWhole) << 2 | type;
}

}  // namespace

// --- StepSet ---------------------------------------------------------------------------------------------

void StepSet::clear() {
  ++epoch_;
  size_ = 0;
}

void StepSet::grow() {
  std::vector<Slot> old(std::max<std::size_t>(64, 2 * slots_.size()));
  old.swap(slots_);
  const std::uint64_t epoch = epoch_;
  size_ = 0;
  for (const Slot& s : old) {
    if (s.epoch == epoch) at(s.key, s.value);
  }
}

std::int64_t& StepSet::at(const Key& key, std::int64_t fresh) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  const std::uint64_t hash =
      mix(mix(mix(0, reinterpret_cast<std::uintptr_t>(key.frame)), key.local), key.kind);
  for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    Slot& slot = slots_[i];
    if (slot.epoch != epoch_) {
      slot = {key, fresh, epoch_};
      ++size_;
      return slot.value;
    }
    if (slot.key == key) return slot.value;
  }
}

// --- one step --------------------------------------------------------------------------------------------

void Stepper::begin(Generation& home) {
  home_ = &home;
  configs_.clear();
  costs_.clear();
  seen_.clear();
  budget_ = kMaxTasks;
  accepting_ = overflow_ = false;
  min_ = kNever;
}

/// The state behind `moves` moves; move(i) adds what the i-th leads to.
template <class Move>
const State* Stepper::made(Generation& home, std::size_t moves, Move move) {
  work_ = static_cast<std::int64_t>(moves);
  begin(home);
  for (std::size_t i = 0; i < moves; ++i) {
    move(i);
    work();
  }
  if (!overflow_) return finish();
  begin(home);
  thrift_ = true;
  for (std::size_t i = 0; i < moves; ++i) move(i);
  work_by_cost();
  keep_cheapest();
  thrift_ = false;
  return finish();
}

const State* Stepper::finish() {
  if (configs_.empty() && !accepting_) return nullptr;
  return home_->state(configs_, accepting_, [&](State& s) { describe(s); });
}

void Stepper::describe(State& state) const {
  state.min_bytes = state.accepting ? 0 : min_;
  for (const Config& c : state.all()) {
    const auto [run, worst] = plain_run(c);
    if (run > state.plain_run || (run == state.plain_run && run > 0 && worst < state.plain_worst)) {
      state.plain_run = run;
      state.plain_worst = worst;
    }
  }
}

const State* Stepper::start(Generation& home) {
  const State* state = made(home, 1, [&](std::size_t) { push_start(plan_.grammar.root, nullptr); });
  CHECK(state != nullptr);
  return state;
}

const State* Stepper::step(Generation& home, const State* from, std::uint8_t byte, std::int64_t& work) {
  Taken taken = home.known(from, byte);
  if (taken.word() == 0) {
    const State* to = made(home, from->size, [&](std::size_t i) { step_config(from->configs[i], byte); });
    taken = Taken(to ? to : home.dead(), work_);
    home.remember(from, byte, taken);
  }
  work += taken.work();
  return taken.to() == home.dead() ? nullptr : taken.to();
}

const State* Stepper::token(Generation& home, const State* from, TokenId id, std::int64_t& work) {
  const State* to = made(home, from->size, [&](std::size_t i) {
    const Config& c = from->configs[i];
    const auto* token = std::get_if<TokenNode>(&plan_.grammar.nodes[c.node]);
    if (token && token->id == id) push_resume(c.frame);
  });
  work += work_;
  return to;
}

const State* Stepper::like(Generation& home, const State* state) {
  if (state->like) return state->like;
  std::vector<Config> configs(state->all().begin(), state->all().end());
  bool changed = false;
  for (Config& c : configs) {
    if (c.part < 0) continue;
    TextLocal at = unpack_text(c.local);
    const PartialName& name = *home.partial(at.extra);
    if (name.declared != NameTree::kNone || name.seen) continue;
    const MemberContext m{plan_, c.node, *c.frame};
    if (needs_names(m.object(), m.behind(m.object().size()))) continue;  // costs go by which names are left
    at.extra = home.nameless(c.node)->id;
    c.local = pushdown::pack(at);
    changed = true;
  }
  const auto describe_same = [&](State& s) {
    s.min_bytes = state->min_bytes;
    s.plain_run = state->plain_run;
    s.plain_worst = state->plain_worst;
  };
  const State* like = changed ? home.state(configs, state->accepting, describe_same) : state;
  home.remember_like(state, like);
  home.remember_like(like, like);
  return like;
}

std::vector<TokenId> Stepper::tokens(const State& from) const {
  std::vector<TokenId> out;
  for (const Config& c : from.all()) {
    if (const auto* token = std::get_if<TokenNode>(&plan_.grammar.nodes[c.node])) out.push_back(token->id);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// `cost`: bytes until everything is whole.
void Stepper::add(const Config& config, Cost cost) {
  if (!seen_.insert({config.frame, config.local, key_kind(kConfigKey, config.node, config.part)})) return;
  if (configs_.size() >= Machine::kMaxConfigs && !thrift_) {
    overflow_ = true;
    return;
  }
  configs_.push_back(config);
  if (thrift_) costs_.push_back(cost);
  min_ = std::min(min_, cost);
}

bool Stepper::take(const Task& task) {
  ++work_;
  const std::uint64_t kind = task.start == kNoNode ? kResumeKey : key_kind(kStartKey, task.start);
  if (!seen_.insert({task.frame, 0, kind})) return false;
  if (budget_ == 0) {
    overflow_ = true;
    return false;
  }
  --budget_;
  return true;
}

/// Bytes until everything is whole, if it goes on with this task.
Cost Stepper::cost_of(const Task& task) const {
  return plus(task.start == kNoNode ? 0 : plan_.facts[task.start].min, rest_of(task.frame));
}

/// The cheapest task next, of equal ones the last: some way of the cheapest is gone to its end before all
/// others.
void Stepper::work_by_cost() {
  struct Entry {
    Cost cost;
    std::uint64_t order;
    Task task;
    bool operator<(const Entry& o) const { return cost != o.cost ? cost > o.cost : order < o.order; }
  };
  std::priority_queue<Entry> queue;
  std::uint64_t order = 0;
  const auto take_in = [&](std::size_t most) {
    if (tasks_.size() > most) {
      std::ranges::stable_sort(tasks_, {}, [&](const Task& task) { return cost_of(task); });
      tasks_.resize(most);
    }
    for (auto task = tasks_.rbegin(); task != tasks_.rend(); ++task)
      queue.push({cost_of(*task), ++order, *task});
    tasks_.clear();
  };
  take_in(kMaxTasks);
  const std::size_t before = configs_.size();
  bool some = false;  // the cheapest way is at its end, be it beyond the bound
  while (!queue.empty() && (budget_ > 0 || !some)) {
    const Task task = queue.top().task;
    queue.pop();
    budget_ = std::max<std::size_t>(budget_, 1);
    if (!take(task)) continue;
    task.start == kNoNode ? resume(task.frame) : start_node(task.start, task.frame);
    some = accepting_ || configs_.size() > before;
    take_in(kMostOfATask);
  }
}

void Stepper::keep_cheapest() {
  if (configs_.size() <= Machine::kMaxConfigs) return;
  std::vector<std::size_t> order(configs_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return costs_[i]; });
  order.resize(Machine::kMaxConfigs);
  std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) configs_[i] = configs_[order[i]];
  configs_.resize(order.size());
}

void Stepper::work() {
  std::reverse(tasks_.begin(), tasks_.end());
  while (!tasks_.empty()) {
    const Task task = tasks_.back();
    tasks_.pop_back();
    if (!take(task)) continue;
    const auto base = static_cast<std::ptrdiff_t>(tasks_.size());
    task.start == kNoNode ? resume(task.frame) : start_node(task.start, task.frame);
    std::reverse(tasks_.begin() + base, tasks_.end());
  }
}

// --- parts that begin ------------------------------------------------------------------------------------

void Stepper::start_node(NodeId node, const Frame* frame) {
  const Facts& facts = plan_.facts[node];
  if (facts.min == kNever || depth_of(frame) + facts.depth > kMaxDepth) return;
  const Cost cost = plus(facts.min, rest_of(frame));
  const Node& n = plan_.grammar.nodes[node];
  if (std::holds_alternative<BytesNode>(n)) {
    add_bytes(node, plan_.bytes_of(node).dfa->start(), frame);
  } else if (std::holds_alternative<StringNode>(n)) {
    const TextLocal local{{Escape::kOpen, 0}, plan_.text_of(node).content().dfa->start(), 0};
    add({frame, pushdown::pack(local), node, kWhole}, cost);
  } else if (std::holds_alternative<TokenNode>(n)) {
    add({frame, 0, node, kWhole}, cost);
  } else if (const auto* choice = std::get_if<ChoiceNode>(&n)) {
    for (const NodeId option : choice->options) push_start(option, frame);
  } else if (const auto* ref = std::get_if<RefNode>(&n)) {
    push_start(ref->target, frame);
  } else if (std::holds_alternative<SequenceNode>(n)) {
    start_part(node, 0, frame);
  } else if (std::holds_alternative<RepeatNode>(n)) {
    start_repeat(node, frame);
  } else {
    add({frame, 0, node, kBegin}, cost);
  }
}

void Stepper::add_bytes(NodeId node, std::uint32_t state, const Frame* frame) {
  const Bytes& bytes = plan_.bytes_of(node);
  if (bytes.more[state]) add({frame, state, node, kWhole}, plus(bytes.dfa->min_bytes(state), rest_of(frame)));
  if (bytes.dfa->accepting(state)) push_resume(frame);
}

/// The last part has the frame of what is around: so right recursion stays flat.
void Stepper::start_part(NodeId node, std::size_t part, const Frame* parent) {
  const auto& parts = plan_.node<SequenceNode>(node).parts;
  if (parts.empty()) return push_resume(parent);
  push_start(parts[part], part + 1 == parts.size() ? parent : home_->frame(node, part + 1, 0, parent));
}

void Stepper::start_repeat(NodeId node, const Frame* parent) {
  const RepeatPlan& repeat = plan_.repeat_of(node);
  if (repeat.max != 0) start_item(node, 0, parent);
  if (repeat.min == 0) push_resume(parent);
}

/// Of two counts where nothing is missing the lower one allows all that the higher does.
bool Stepper::worse_count(NodeId node, std::int64_t count, bool separator, const Frame* parent) {
  if (!plan_.repeat_of(node).counts_down) return false;
  std::int64_t& lowest = seen_.at({parent, separator, key_kind(kCountKey, node)}, INT64_MAX);
  if (lowest <= count) return true;
  lowest = count;
  return false;
}

/// The item behind `count` others.
void Stepper::start_item(NodeId node, std::int64_t count, const Frame* parent) {
  const RepeatPlan& repeat = plan_.repeat_of(node);
  if (worse_count(node, count, false, parent)) return;
  const NodeId item = plan_.node<RepeatNode>(node).item;
  ++count;
  if (repeat.max >= 0 && count == repeat.max) return push_start(item, parent);
  if (repeat.max < 0) count = std::min(count, repeat.min);
  if (const Frame* f = home_->frame(node, static_cast<std::uint64_t>(count) << 1, 0, parent))
    push_start(item, f);
}

void Stepper::start_separator(NodeId node, std::int64_t count, const Frame* parent) {
  if (worse_count(node, count, true, parent)) return;
  const Frame* f = home_->frame(node, static_cast<std::uint64_t>(count) << 1 | 1, 0, parent);
  if (f) push_start(plan_.node<RepeatNode>(node).separator, f);
}

// --- parts that are whole --------------------------------------------------------------------------------

void Stepper::resume(const Frame* frame) {
  if (!frame) {
    accepting_ = true;
    return;
  }
  const Node& n = plan_.grammar.nodes[frame->node];
  if (std::holds_alternative<SequenceNode>(n)) {
    start_part(frame->node, frame->a, frame->parent);
  } else if (std::holds_alternative<RepeatNode>(n)) {
    resume_repeat(*frame);
  } else if (std::holds_alternative<ObjectNode>(n)) {
    add_object(frame->node, {.phase = kBehindValue}, frame);
  } else {
    add_array(frame->node, {.phase = kBehindValue}, frame);
  }
}

void Stepper::resume_repeat(const Frame& frame) {
  const RepeatPlan& repeat = plan_.repeat_of(frame.node);
  const auto count = static_cast<std::int64_t>(frame.a >> 1);
  if ((frame.a & 1) != 0) return start_item(frame.node, count, frame.parent);
  if (plan_.node<RepeatNode>(frame.node).separator == kNoNode) {
    start_item(frame.node, count, frame.parent);
  } else {
    start_separator(frame.node, count, frame.parent);
  }
  if (count >= repeat.min) push_resume(frame.parent);
}

// --- one byte --------------------------------------------------------------------------------------------

void Stepper::step_config(const Config& config, std::uint8_t byte) {
  const Node& n = plan_.grammar.nodes[config.node];
  if (std::holds_alternative<BytesNode>(n)) {
    step_bytes(config, byte);
  } else if (std::holds_alternative<StringNode>(n)) {
    step_string(config, byte);
  } else if (std::holds_alternative<ObjectNode>(n)) {
    config.part >= 0       ? step_other(config, byte)
    : config.part == kName ? step_declared(config, byte)
                           : step_object(config, byte);
  } else if (std::holds_alternative<ArrayNode>(n)) {
    step_array(config, byte);
  }
}

void Stepper::step_bytes(const Config& config, std::uint8_t byte) {
  const std::uint32_t to =
      plan_.bytes_of(config.node).dfa->next(static_cast<std::uint32_t>(config.local), byte);
  if (to != Dfa::kDead) add_bytes(config.node, to, config.frame);
}

void Stepper::step_string(const Config& config, std::uint8_t byte) {
  const TextPlan& text = plan_.text_of(config.node);
  const Content& content = text.content();
  TextLocal at = unpack_text(config.local);
  const auto advance = [&](std::uint8_t decoded) {
    at.state = content.dfa->next(at.state, decoded);
    if (at.state == Dfa::kDead) return false;
    if (content.boundary(at.state)) at.extra = text.count_behind(at.extra);
    return true;
  };
  const TextMove move = text_step(at.escape, byte, content.boundary(at.state), advance);
  if (move == TextMove::kClosed && text.may_close(at.state, at.extra)) return push_resume(config.frame);
  if (move != TextMove::kMoved) return;
  const Cost cost = string_cost(config.node, at);
  if (cost != kNever)
    add({config.frame, pushdown::pack(at), config.node, kWhole}, plus(cost, rest_of(config.frame)));
}

const std::vector<Generation::Target>& Stepper::targets(const Content& content, const TextLocal& local) {
  const std::uint64_t key = pushdown::pack({local.escape, local.state, 0});
  const auto [it, fresh] = home_->targets(&content).try_emplace(key);
  if (!fresh) return it->second;
  const auto step = [&](std::uint32_t& q, std::uint8_t b) {
    return (q = content.dfa->next(q, b)) != Dfa::kDead;
  };
  for (const CodeRange& range : escape_ranges(local.escape)) {
    std::vector<std::uint32_t> states;
    walk_range(local.state, range.lo, range.hi, step, states);
    for (const std::uint32_t q : states) it->second.push_back({q, range.missing});
  }
  home_->count_extra(64 + it->second.capacity() * sizeof(Generation::Target));
  return it->second;
}

/// Bytes to the closing quote, this one counted.
Cost Stepper::string_cost(NodeId node, const TextLocal& local) {
  const TextPlan& text = plan_.text_of(node);
  if (local.escape.kind == Escape::kNone) return plus(text.cost(local.state, local.extra), 1);
  Cost best = kNever;
  const std::uint32_t behind = text.count_behind(local.extra);
  for (const Generation::Target& t : targets(text.content(), local)) {
    best = std::min(best, plus(text.cost(t.state, behind), t.missing));
  }
  return plus(best, 1);
}

// --- white space -----------------------------------------------------------------------------------------

bool Stepper::may_space(std::uint8_t space) const {
  return plan_.grammar.spacing == Spacing::kFlexible &&
         (space == 0 || (space >= kLineBreak && space < kLineBreak + kMostBlanks));
}

bool Stepper::take_space(Punctuation& at, std::uint8_t byte) const {
  if (!may_space(at.space)) return false;
  if (at.space == 0) {
    if (byte != ' ' && byte != '\n') return false;
    at.space = byte == ' ' ? 1 : kLineBreak;
    return true;
  }
  if (byte != ' ' && byte != '\t') return false;
  ++at.space;
  return true;
}

// --- objects ---------------------------------------------------------------------------------------------

NodeId Stepper::value_of(NodeId object, std::int32_t selected) const {
  const ObjectPlan& plan = plan_.object_of(object);
  return selected < plan.size() ? plan.properties[selected].value : plan.others[selected - plan.size()].value;
}

/// kNever where it waits for white space only: then what begins beside it has the costs.
Cost Stepper::object_cost(NodeId node, Punctuation at, const Frame& frame) {
  switch (at.phase) {
    case kFirst:
      return frame.own == 0 ? frame.rest : frame.rest - 1;
    case kBehindName:
      return plus(plus(1, plan_.facts[value_of(node, at.selected)].min), frame.rest);
    case kBeforeValue:
      return kNever;
    case kBehindValue:
      return frame.rest;
    case kBehindComma:
      return member_cost({plan_, node, frame, &work_});
  }
  return kNever;
}

void Stepper::add_object(NodeId node, Punctuation at, const Frame* frame) {
  if (at.phase != kBeforeValue || may_space(at.space)) {
    add({frame, pack(at), node, kPunctuation}, object_cost(node, at, *frame));
  }
  if (at.phase == kBeforeValue) push_start(value_of(node, at.selected), frame);
}

void Stepper::add_names(NodeId node, const Frame& frame) {
  const ObjectPlan& object = plan_.object_of(node);
  const MemberContext m{plan_, node, frame, &work_};
  const Cost declared = declared_cost(m, 0);
  if (declared != kNever) add({&frame, pushdown::pack(TextLocal{}), node, kName}, declared);
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(object.others.size()); ++k) {
    if (!others_open(m, k)) continue;
    const PartialName* empty = home_->partial(node, seen_of(frame));
    const TextLocal local{{}, object.others[k].names->dfa->start(), empty->id};
    const Cost cost = other_cost(m, k, local, *empty);
    if (cost != kNever) add({&frame, pushdown::pack(local), node, k}, cost);
  }
}

void Stepper::step_object(const Config& config, std::uint8_t byte) {
  if (config.part == kBegin) {
    const Frame* frame = byte == '{' ? home_->frame(config.node, 0, 0, config.frame) : nullptr;
    if (frame) add_object(config.node, {}, frame);
    return;
  }
  const Frame& frame = *config.frame;
  Punctuation at = unpack_punctuation(config.local);
  if (take_space(at, byte)) return add_object(config.node, at, &frame);
  const bool may_close = (at.phase == kFirst || at.phase == kBehindValue) && frame.own == 0;
  if (byte == '}' && may_close) return push_resume(frame.parent);
  if (byte == '"' && (at.phase == kFirst || at.phase == kBehindComma)) return add_names(config.node, frame);
  if (byte == ':' && at.phase == kBehindName) {
    return add_object(config.node, {.phase = kBeforeValue, .selected = at.selected}, &frame);
  }
  if (byte == ',' && at.phase == kBehindValue && member_cost({plan_, config.node, frame, &work_}) != kNever) {
    add_object(config.node, {.phase = kBehindComma}, &frame);
  }
}

void Stepper::step_declared(const Config& config, std::uint8_t byte) {
  const Frame& frame = *config.frame;
  const MemberContext m{plan_, config.node, frame, &work_};
  const NameTree& names = m.object().names;
  TextLocal at = unpack_text(config.local);
  auto place = static_cast<std::int32_t>(at.state);
  const auto advance = [&](std::uint8_t decoded) {
    return (place = names.child(place, decoded)) != NameTree::kNone;
  };
  const TextMove move = text_step(at.escape, byte, names.node(place).boundary, advance);
  if (move == TextMove::kDead) return;
  at.state = static_cast<std::uint32_t>(place);
  if (move == TextMove::kMoved) {
    const Cost cost = declared_cost(m, at);
    if (cost != kNever) add({&frame, pushdown::pack(at), config.node, kName}, cost);
    return;
  }
  const std::int32_t property = names.node(place).name;
  if (property == NameTree::kNone || !declared_open(m, property)) return;
  const Frame* behind = home_->frame(config.node, pushdown::pack(m.behind(property)), frame.b, frame.parent);
  if (behind) add_object(config.node, {.phase = kBehindName, .selected = property}, behind);
}

void Stepper::step_other(const Config& config, std::uint8_t byte) {
  const Frame& frame = *config.frame;
  const MemberContext m{plan_, config.node, frame, &work_};
  const ObjectPlan& object = m.object();
  const Content& content = *object.others[config.part].names;
  TextLocal at = unpack_text(config.local);
  const PartialName* name = home_->partial(at.extra);
  const auto advance = [&](std::uint8_t decoded) {
    at.state = content.dfa->next(at.state, decoded);
    if (at.state == Dfa::kDead) return false;
    name = home_->partial(name, decoded);
    return true;
  };
  const TextMove move = text_step(at.escape, byte, content.boundary(at.state), advance);
  if (move == TextMove::kDead) return;
  if (move == TextMove::kMoved) {
    at.extra = name->id;
    const Cost cost = other_cost(m, config.part, at, *name);
    if (cost != kNever) add({&frame, pushdown::pack(at), config.node, config.part}, cost);
    return;
  }
  const NamePlace place{at.state, name->declared, name->seen, 0};
  if (!content.dfa->accepting(at.state) || place.avoided(object.names)) return;
  const ObjectAt behind = m.behind(object.size());
  // Where no further one can follow, what the names were is forgotten.
  const bool last = behind.count >= object.max;
  const SeenNames* seen =
      last ? nullptr : home_->add_name(seen_of(frame), Generation::text_of(name), config.part);
  const Frame* next =
      home_->frame(config.node, pushdown::pack(behind), reinterpret_cast<std::uintptr_t>(seen), frame.parent);
  if (next) add_object(config.node, {.phase = kBehindName, .selected = object.size() + config.part}, next);
}

// --- arrays ----------------------------------------------------------------------------------------------

void Stepper::add_array(NodeId node, Punctuation at, const Frame* frame) {
  const bool may_close = (at.phase == kFirst || at.phase == kBehindValue) && frame->own == 0;
  if (may_close || at.phase == kBehindValue || may_space(at.space)) {
    add({frame, pack(at), node, kPunctuation}, may_close || at.phase == kBehindValue ? frame->rest : kNever);
  }
  if (at.phase == kBehindValue) return;
  for (const ArrayItem& item :
       next_items(plan_.array_of(node), unpack_array(frame->a), frame->b, ValueCost(plan_, frame->depth))) {
    const Frame* behind = home_->frame(node, pushdown::pack(item.at), item.taken, frame->parent);
    if (behind) push_start(item.item, behind);
  }
}

void Stepper::step_array(const Config& config, std::uint8_t byte) {
  if (config.part == kBegin) {
    const Frame* frame = byte == '[' ? home_->frame(config.node, 0, 0, config.frame) : nullptr;
    if (frame) add_array(config.node, {}, frame);
    return;
  }
  const Frame& frame = *config.frame;
  Punctuation at = unpack_punctuation(config.local);
  if (take_space(at, byte)) return add_array(config.node, at, &frame);
  const bool may_close = (at.phase == kFirst || at.phase == kBehindValue) && frame.own == 0;
  if (byte == ']' && may_close) return push_resume(frame.parent);
  if (byte != ',' || at.phase != kBehindValue) return;
  const ValueCost value(plan_, frame.depth);
  if (!next_items(plan_.array_of(config.node), unpack_array(frame.a), frame.b, value).empty()) {
    add_array(config.node, {.phase = kBehindComma}, &frame);
  }
}

// --- runs of plain characters ----------------------------------------------------------------------------

std::pair<std::int64_t, Cost> Stepper::string_run(const Config& config) const {
  const TextPlan& text = plan_.text_of(config.node);
  const TextLocal at = unpack_text(config.local);
  if (at.escape.kind != Escape::kNone || !text.content().boundary(at.state)) return {0, 0};
  const std::int64_t run = text.plain_run(at.state, at.extra);
  return {run, plus(plus(text.plain_worst(at.extra), 1), rest_of(config.frame))};
}

std::pair<std::int64_t, Cost> Stepper::plain_run(const Config& config) const {
  const Node& n = plan_.grammar.nodes[config.node];
  if (std::holds_alternative<StringNode>(n)) return string_run(config);
  if (std::holds_alternative<BytesNode>(n)) {
    const Bytes& bytes = plan_.bytes_of(config.node);
    if (!bytes.plain[config.local]) return {0, 0};
    return {Machine::kUnboundedRun, plus(bytes.plain_worst, rest_of(config.frame))};
  }
  if (config.part < 0) return {0, 0};
  const TextLocal at = unpack_text(config.local);
  const ObjectPlan& object = plan_.object_of(config.node);
  if (at.escape.kind != Escape::kNone || !object.others[config.part].names->boundary(at.state)) return {0, 0};
  const Cost worst = other_plain_worst({plan_, config.node, *config.frame}, config.part, at.state);
  if (worst == kNever) return {0, 0};
  return {Machine::kUnboundedRun, worst};
}

}  // namespace barg::text::grammar::pushdown
