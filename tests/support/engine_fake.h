// GatedRunner: a runtime::Runner without a model for tests of the engine. Tokens are a hash of (seed, choice,
// position); results come back only while the gate is open, so a test decides what happens during a step.
// Checks the engine's side of the contract: sequences are registered before they are named, removed only when
// no step names them, and steps are collected in order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/env.h"
#include "runtime/runner.h"
#include "support/fake_runner.h"
#include "support/shared_clock.h"

namespace barg::test {

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
      : info_(std::move(info)),
        gate_(std::move(gate)),
        device_({{.window = 0, .num_blocks = info_.num_blocks[0]}}, info_.block_tokens, info_.vocab_size) {}

  ~GatedRunner() override {
    for (const auto& error : device_.errors()) ADD_FAILURE() << error;
  }

  const runtime::RunnerInfo& info() const override { return info_; }
  /// REQUIRES info.block_bytes = the device's: 8 bytes a token.
  runtime::KvAccess* kv_access() override { return &access_; }

  void add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) override {
    EXPECT_TRUE(request->sampling.seed.has_value());
    const auto& prompt = request->prompt;
    const bool corrupt = std::find(prompt.begin(), prompt.end(), Gate::kNanToken) != prompt.end();
    EXPECT_TRUE(sequences_.try_emplace(seq, Sequence{corrupt, 0}).second);
    device_.add(seq, std::move(request), choice);
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
    device_.remove(seq);
    std::lock_guard lock(gate_->mutex_);
    --gate_->registered_;
  }

  void launch(sched::StepPlan plan) override {
    auto result = device_.execute(plan);
    result.seconds = 0.001 + 0.0001 * plan.rows();
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      auto& s = sequences_.at(plan.items[i].seq);
      ++s.in_flight;
      if (!s.corrupt || plan.items[i].want == sched::Want::kNothing) continue;
      result.items[i].tokens.clear();
      result.items[i].pooled.clear();
      result.items[i].status = sched::ItemStatus::kBadLogits;
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

 private:
  struct Sequence {
    bool corrupt = false;
    int in_flight = 0;
  };

  /// Blocks of the shadow memory as bytes. A block that is copied is touched by no step meanwhile.
  class Access final : public runtime::KvAccess {
   public:
    Access(FakeDevice& device, std::int32_t block_tokens)
        : device_(device), part_bytes_{static_cast<std::uint64_t>(block_tokens) * sizeof(std::uint64_t)} {}
    const std::vector<std::uint64_t>& part_bytes() const override { return part_bytes_; }
    bool copy_out(std::int32_t group, BlockId block, store::Memory to) override {
      std::memcpy(to.address, device_.content(group, block).data(), to.length);
      return true;
    }
    bool copy_in(std::int32_t group, BlockId block, store::Memory from) override {
      std::vector<std::uint64_t> content(from.length / sizeof(std::uint64_t));
      std::memcpy(content.data(), from.address, from.length);
      device_.fill(group, block, content);
      return true;
    }

   private:
    FakeDevice& device_;
    const std::vector<std::uint64_t> part_bytes_;
  };

  const runtime::RunnerInfo info_;
  const std::shared_ptr<Gate> gate_;
  FakeDevice device_;
  Access access_{device_, info_.block_tokens};
  std::map<SeqId, Sequence> sequences_;
  std::deque<sched::StepResult> results_;
  bool lost_ = false;
};

}  // namespace barg::test
