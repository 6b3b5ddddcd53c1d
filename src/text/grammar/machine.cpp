#include "text/grammar/machine.h"

#include <mutex>
#include <unordered_map>

#include "text/grammar/machine_alphabet.h"
#include "text/grammar/machine_step.h"
#include "text/grammar/machine_store.h"

namespace barg::text::grammar {

using pushdown::Generation;
using pushdown::Plan;
using pushdown::Stepper;

struct Machine::Impl {
  Impl(std::unique_ptr<const Plan> made, const MachineLimits& limits_given)
      : plan(std::move(made)),
        limits(limits_given),
        stepper(*plan),
        current(std::make_shared<Generation>(*plan)) {}

  /// The generation to remember in: a new one where the last has grown too large. REQUIRES the mutex.
  const std::shared_ptr<Generation>& generation() {
    if (current->full(limits.memory_bytes)) current = std::make_shared<Generation>(*plan);
    return current;
  }

  const std::unique_ptr<const Plan> plan;
  const MachineLimits limits;
  std::mutex mutex;  // guards what follows, and all generations
  Stepper stepper;
  std::shared_ptr<Generation> current;
};

namespace {

// A state keeps its whole generation. The plan is the machine's, which outlives what is asked of it.
Machine::StatePtr share(const std::shared_ptr<Generation>& home, const Machine::State* state) {
  return state ? Machine::StatePtr(home, state) : nullptr;
}

const Machine::State* at_home(Generation& home, const Machine::State* state) {
  return state->home == &home ? state : home.adopt(*state);
}

}  // namespace

Machine::Machine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Machine::~Machine() = default;

Result<std::shared_ptr<Machine>> Machine::compile(Grammar grammar, const MachineLimits& limits) {
  auto plan = Plan::make(std::move(grammar), limits);
  if (!plan) return std::unexpected(plan.error());
  return std::shared_ptr<Machine>(new Machine(std::make_unique<Impl>(std::move(*plan), limits)));
}

Machine::StatePtr Machine::start() {
  const std::lock_guard lock(impl_->mutex);
  const auto& home = impl_->generation();
  return share(home, impl_->stepper.start(*home));
}

Machine::StatePtr Machine::next(const StatePtr& from, std::uint8_t byte) {
  const std::lock_guard lock(impl_->mutex);
  const auto& home = impl_->generation();
  std::int64_t work = 0;
  return share(home, impl_->stepper.step(*home, at_home(*home, from.get()), byte, work));
}

Machine::StatePtr Machine::next_token(const StatePtr& from, TokenId id) {
  const std::lock_guard lock(impl_->mutex);
  const auto& home = impl_->generation();
  std::int64_t work = 0;
  return share(home, impl_->stepper.token(*home, at_home(*home, from.get()), id, work));
}

std::vector<TokenId> Machine::tokens(const StatePtr& from) { return impl_->stepper.tokens(*from); }

bool Machine::accepting(const State& state) { return state.accepting; }
std::int64_t Machine::min_bytes(const State& state) { return state.min_bytes; }
std::int64_t Machine::plain_run(const State& state) { return state.plain_run; }
std::int64_t Machine::plain_run_worst(const State& state) { return state.plain_worst; }

std::vector<std::uint8_t> Machine::alphabet() const { return pushdown::needed_bytes(*impl_->plan); }
std::vector<TokenId> Machine::token_alphabet() const { return pushdown::needed_tokens(*impl_->plan); }

// --- Walk ------------------------------------------------------------------------------------------------

struct Machine::Walk::Impl {
  explicit Impl(Machine::Impl& m) : machine(m), lock(m.mutex), home(m.generation()) {}

  const State* local(const State* state) {
    if (state->home == home.get()) [[likely]]
      return state;
    const State*& known = adopted[state];
    if (!known) known = home->adopt(*state);
    return known;
  }

  Machine::Impl& machine;
  std::unique_lock<std::mutex> lock;
  std::shared_ptr<Generation> home;
  std::unordered_map<const State*, const State*> adopted;
  std::int64_t work = 0;
};

Machine::Walk::Walk(Machine& machine) : impl_(std::make_unique<Impl>(*machine.impl_)) {}
Machine::Walk::~Walk() = default;

const Machine::State* Machine::Walk::next(const State* from, std::uint8_t byte) {
  return impl_->machine.stepper.step(*impl_->home, impl_->local(from), byte, impl_->work);
}

const Machine::State* Machine::Walk::next_token(const State* from, TokenId id) {
  return impl_->machine.stepper.token(*impl_->home, impl_->local(from), id, impl_->work);
}

const Machine::State* Machine::Walk::like(const State* state) {
  return impl_->machine.stepper.like(*impl_->home,
                                     impl_->local(state));  // of this generation: names are not copied
}

std::vector<TokenId> Machine::Walk::tokens(const State* from) { return impl_->machine.stepper.tokens(*from); }

Machine::StatePtr Machine::Walk::keep(const State* state) { return share(impl_->home, impl_->local(state)); }

std::int64_t Machine::Walk::work() const { return impl_->work; }

void Machine::Walk::forget_but(std::span<const State*> states) {
  const std::shared_ptr<Generation> old = impl_->home;  // until they are copied
  impl_->home = impl_->machine.generation();
  if (impl_->home == old) return;
  impl_->adopted.clear();
  for (const State*& state : states) {
    if (state) state = impl_->home->adopt(*state);
  }
}

// --- whole texts -----------------------------------------------------------------------------------------

std::optional<std::size_t> first_failure(Machine& machine, std::string_view text) {
  static constexpr std::size_t kAtOnce = std::size_t{64} << 10;  // others may go between, and old states
  Machine::StatePtr at = machine.start();
  for (std::size_t begin = 0; begin < text.size(); begin += kAtOnce) {
    Machine::Walk walk(machine);
    const Machine::State* state = at.get();
    const std::size_t end = std::min(text.size(), begin + kAtOnce);
    for (std::size_t i = begin; i < end; ++i) {
      state = walk.next(state, static_cast<std::uint8_t>(text[i]));
      if (!state) return i;
    }
    at = walk.keep(state);
  }
  return Machine::accepting(*at) ? std::nullopt : std::optional(text.size());
}

}  // namespace barg::text::grammar
