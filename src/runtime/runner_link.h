// RunnerLink: the two queues between the engine's thread and a runner's device thread, as every runner has them, and the
// memory of results, which is used again. `More`: commands that a runner has beside these.
//
// Threads: add() to recycle() from the engine's thread; commands and results as in handoff.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "barg/request.h"
#include "base/check.h"
#include "runtime/handoff.h"
#include "sched/plan.h"

namespace barg::runtime {

struct AddSequence {
  SeqId seq;
  std::shared_ptr<const Request> request;
  std::int32_t choice;
};
struct RemoveSequence {
  SeqId seq;
};
struct LaunchStep {
  sched::StepPlan plan;
  sched::StepResult result;  ///< memory for it
};

template <class... More>
class RunnerLink {
 public:
  using Command = std::variant<AddSequence, RemoveSequence, LaunchStep, More...>;

  void add(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) {
    CHECK(request->sampling.seed.has_value());
    commands.push(AddSequence{seq, std::move(request), choice});
  }
  void remove(SeqId seq) { commands.push(RemoveSequence{seq}); }
  void launch(sched::StepPlan plan) {
    ++outstanding_;
    LaunchStep command{std::move(plan), {}};
    if (!spare_.empty()) {
      command.result = std::move(spare_.back());
      spare_.pop_back();
    }
    commands.push(std::move(command));
  }
  std::optional<sched::StepResult> collect(bool wait) {
    if (outstanding_ == 0) return std::nullopt;
    auto result = results.pop(wait);
    if (result) --outstanding_;
    return result;
  }
  /// collect(true), but for at most so long.
  std::optional<sched::StepResult> collect_within(std::chrono::microseconds time) {
    if (outstanding_ == 0) return std::nullopt;
    auto result = results.pop_within(time);
    if (result) --outstanding_;
    return result;
  }
  void recycle(sched::StepResult&& result) {
    constexpr std::size_t kMost = 4;  // more than ever are on their way
    if (spare_.size() < kMost) spare_.push_back(std::move(result));
  }

  // Between two steps the device thread stays awake for the engine; the engine thread sleeps through a step, whose threads
  // need the cores.
  Handoff<Command> commands{std::chrono::microseconds(50)};
  Handoff<sched::StepResult> results{std::chrono::microseconds(0)};

 private:
  std::int64_t outstanding_ = 0;
  std::vector<sched::StepResult> spare_;
};

/// Makes `result` the one of `plan`'s items, all well and empty so far.
inline void start_result(const sched::StepPlan& plan, sched::StepResult& result) {
  result.id = plan.id;
  result.items.resize(plan.items.size());
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const sched::PlanItem& item = plan.items[i];
    sched::ItemResult& out = result.items[i];
    out.seq = item.seq;
    out.epoch = item.epoch;
    out.position = item.start + item.count;
    out.tokens.clear();
    out.prompt_logprobs.clear();
    out.pooled.clear();
    out.status = sched::ItemStatus::kOk;
  }
}

}  // namespace barg::runtime
