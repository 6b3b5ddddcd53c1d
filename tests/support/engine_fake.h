// GatedRunner: a runtime::Runner without a model for tests of the engine. Tokens are a hash of (seed, choice,
// position); results come back only while the gate is open, so a test decides what happens during a step.
// Checks the engine's side of the contract: sequences are registered before they are named, removed only when
// no step names them, and steps are collected in order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/env.h"
#include "runtime/runner.h"

namespace barg::test {

/// A clock that tests move by hand, from any thread.
class SharedClock final : public Clock {
 public:
  double now() const override { return now_.load(); }
  void advance(double seconds) { now_.store(now_.load() + seconds); }

 private:
  std::atomic<double> now_{1000};
};

inline runtime::RunnerInfo fake_info(std::int64_t num_blocks = 64, std::int32_t max_model_len = 256,
                                     std::int32_t max_rows = 64) {
  runtime::RunnerInfo info;
  model::LayerGroup group;
  group.num_kv_heads = 1;
  group.head_dim = 16;
  group.layers = {0};
  info.groups = {group};
  info.num_blocks = {num_blocks};
  info.block_bytes = {1024};
  info.block_tokens = 16;
  info.max_model_len = max_model_len;
  info.max_rows = max_rows;
  info.vocab_size = 1000;
  info.end_ids = {2};
  info.numerics_id = "fake";
  info.model_digest = "00";
  info.key_root = std::string(32, 'k');
  return info;
}

/// What tests and runner share: the runner itself belongs to the engine.
class Gate {
 public:
  /// A prompt with this token gives NaN rows.
  static constexpr TokenId kNanToken = 13;

  void close() {
    std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Lets `steps` more results through while closed.
  void let_through(int steps) {
    std::lock_guard lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
  }
  /// Until `steps` plans were launched in total.
  void wait_launched(std::uint64_t steps) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return launched_ >= steps; });
  }
  std::uint64_t launched() const {
    std::lock_guard lock(mutex_);
    return launched_;
  }
  /// The next result is the device's last.
  void fail_device() {
    std::lock_guard lock(mutex_);
    fatal_ = true;
  }
  std::size_t registered() const {
    std::lock_guard lock(mutex_);
    return registered_;
  }
  std::int32_t most_rows() const {
    std::lock_guard lock(mutex_);
    return most_rows_;
  }

 private:
  friend class GatedRunner;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, fatal_ = false;
  int allowed_ = 0;
  std::uint64_t launched_ = 0;
  std::size_t registered_ = 0;
  std::int32_t most_rows_ = 0;
};

class GatedRunner final : public runtime::Runner {
 public:
  GatedRunner(runtime::RunnerInfo info, std::shared_ptr<Gate> gate)
      : info_(std::move(info)), gate_(std::move(gate)) {}

  const runtime::RunnerInfo& info() const override { return info_; }

  void add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) override {
    EXPECT_TRUE(request->sampling.seed.has_value());
    EXPECT_TRUE(sequences_.try_emplace(seq, Sequence{std::move(request), choice, 0}).second);
    std::lock_guard lock(gate_->mutex_);
    ++gate_->registered_;
  }

  void remove_sequence(SeqId seq) override {
    const auto found = sequences_.find(seq);
    ASSERT_NE(found, sequences_.end());
    if (!lost_) {
      EXPECT_EQ(found->second.in_flight, 0) << "a launched step still names it";
    }
    sequences_.erase(found);
    std::lock_guard lock(gate_->mutex_);
    --gate_->registered_;
  }

  void launch(sched::StepPlan plan) override {
    sched::StepResult result;
    result.id = plan.id;
    result.seconds = 0.001 + 0.0001 * plan.rows();
    for (const auto& item : plan.items) {
      auto& s = sequences_.at(item.seq);
      ++s.in_flight;
      result.items.push_back(compute(item, s));
    }
    results_.push_back(std::move(result));
    std::lock_guard lock(gate_->mutex_);
    ++gate_->launched_;
    gate_->most_rows_ = std::max(gate_->most_rows_, plan.rows());
    gate_->changed_.notify_all();
  }

  std::optional<sched::StepResult> collect(bool wait) override {
    if (results_.empty()) return std::nullopt;
    std::unique_lock lock(gate_->mutex_);
    const auto ready = [&] { return gate_->open_ || gate_->allowed_ > 0; };
    if (wait) gate_->changed_.wait(lock, ready);
    if (!ready()) return std::nullopt;
    if (!gate_->open_) --gate_->allowed_;
    auto result = std::move(results_.front());
    results_.pop_front();
    for (const auto& item : result.items) --sequences_.at(item.seq).in_flight;
    if (gate_->fatal_) {
      lost_ = true;
      result.items.clear();
      result.fatal = Error{ErrorCode::kInternal, "the device is lost", {}, 0};
    }
    return result;
  }

  static TokenId token(std::uint64_t seed, std::int32_t choice, std::int32_t position) {
    Rng rng(seed * 1000003 + static_cast<std::uint64_t>(choice) * 8191 +
            static_cast<std::uint64_t>(position));
    return static_cast<TokenId>(20 + rng.below(900));
  }

 private:
  struct Sequence {
    std::shared_ptr<const Request> request;
    std::int32_t choice = 0;
    int in_flight = 0;
  };

  sched::ItemResult compute(const sched::PlanItem& item, const Sequence& s) const {
    sched::ItemResult out;
    out.seq = item.seq;
    out.epoch = item.epoch;
    out.position = item.start + item.count;
    if (item.want != sched::Want::kLogits) return out;
    const auto& prompt = s.request->prompt;
    if (std::find(prompt.begin(), prompt.end(), Gate::kNanToken) != prompt.end()) {
      out.status = sched::ItemStatus::kBadLogits;
      return out;
    }
    if (item.sample) out.tokens.push_back({token(*s.request->sampling.seed, s.choice, out.position), {}});
    return out;
  }

  const runtime::RunnerInfo info_;
  const std::shared_ptr<Gate> gate_;
  std::map<SeqId, Sequence> sequences_;
  std::deque<sched::StepResult> results_;
  bool lost_ = false;
};

}  // namespace barg::test
