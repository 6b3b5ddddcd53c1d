// Drives a runtime::Runner by hand, without scheduler: each sequence owns a fixed run of blocks in every
// group, so plans are written in one line. For tests of runners only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/runner.h"

namespace barg::test {

class RunnerDriver {
 public:
  explicit RunnerDriver(runtime::Runner& runner) : runner_(runner) {}

  /// A sequence whose blocks are first_block, first_block + step, ... (room for max_model_len tokens).
  SeqId add(Request request, std::int32_t choice = 0, BlockId first_block = 0, BlockId step = 1) {
    if (!request.sampling.seed) request.sampling.seed = 1;
    const SeqId seq{next_seq_++};
    auto shared = std::make_shared<const Request>(std::move(request));
    sequences_[seq] = {shared, shared->prompt, first_block, step};
    runner_.add_sequence(seq, shared, choice);
    return seq;
  }

  /// Rows [start, start + count) of `seq`. Tokens beyond the known ones are pending.
  struct Rows {
    SeqId seq{};
    std::int32_t start = 0;
    std::int32_t count = 0;
    bool sample = false;
    std::int32_t logits_begin = -1;  ///< -1: the last row when sampling, else nothing
    std::int32_t output_index = -1;  ///< -1: start + count - prompt
    bool pooled = false;             ///< a vector is wanted, from rows [logits_begin or the last, count)
  };

  void launch(const std::vector<Rows>& rows) {
    sched::StepPlan plan;
    plan.id = StepId{next_step_++};
    plan.num_groups = static_cast<std::int32_t>(runner_.info().groups.size());
    for (const auto& r : rows) add_item(plan, r);
    runner_.launch(std::move(plan));
  }

  /// Collects the oldest step and appends sampled tokens to their sequences.
  sched::StepResult collect() {
    auto result = runner_.collect(true);
    EXPECT_TRUE(result.has_value());
    EXPECT_FALSE(result->fatal.has_value());
    for (const auto& item : result->items) {
      auto& known = sequences_.at(item.seq).known;
      if (item.tokens.empty()) continue;
      known.resize(static_cast<std::size_t>(item.position));
      known.push_back(item.tokens[0].id);
    }
    return std::move(*result);
  }

  sched::StepResult run(const std::vector<Rows>& rows) {
    launch(rows);
    return collect();
  }

  /// The request's whole prompt in chunks, then `tokens` greedy or sampled tokens, one by one.
  std::vector<OutputToken> generate(SeqId seq, std::int32_t tokens, std::int32_t chunk = 1 << 20) {
    std::vector<OutputToken> out;
    const auto prompt = static_cast<std::int32_t>(sequences_.at(seq).request->prompt.size());
    const std::int32_t limit = std::min(chunk, runner_.info().max_rows);
    for (std::int32_t start = 0; start < prompt; start += limit) {
      const std::int32_t count = std::min(limit, prompt - start);
      auto result = run({{.seq = seq, .start = start, .count = count, .sample = start + count == prompt}});
      for (auto& t : result.items[0].tokens) out.push_back(std::move(t));
    }
    while (static_cast<std::int32_t>(out.size()) < tokens) {
      const auto known = static_cast<std::int32_t>(sequences_.at(seq).known.size());
      auto result = run({{.seq = seq, .start = known - 1, .count = 1, .sample = true}});
      if (result.items[0].tokens.empty()) break;
      out.push_back(std::move(result.items[0].tokens[0]));
    }
    return out;
  }

 private:
  struct Sequence {
    std::shared_ptr<const Request> request;
    std::vector<TokenId> known;
    BlockId first_block = 0;
    BlockId step = 1;
  };

  void add_item(sched::StepPlan& plan, const Rows& r) {
    const auto& s = sequences_.at(r.seq);
    sched::PlanItem item;
    item.seq = r.seq;
    item.start = r.start;
    item.count = r.count;
    item.token_offset = static_cast<std::int32_t>(plan.tokens.size());
    item.table_offset = static_cast<std::int32_t>(plan.tables.size());
    item.sample = r.sample;
    const bool logits = r.sample || r.logits_begin >= 0;
    item.want = r.pooled ? sched::Want::kPooled : logits ? sched::Want::kLogits : sched::Want::kNothing;
    item.logits_begin = r.logits_begin >= 0 ? r.logits_begin : r.count - 1;
    const auto prompt = static_cast<std::int32_t>(s.request->prompt.size());
    item.output_index = r.output_index >= 0 ? r.output_index : r.start + r.count - prompt;
    for (std::int32_t p = r.start; p < r.start + r.count; ++p) {
      const auto i = static_cast<std::size_t>(p);
      plan.tokens.push_back(i < s.known.size() ? s.known[i] : sched::kPendingToken);
    }
    const std::int32_t blocks =
        (r.start + r.count + runner_.info().block_tokens - 1) / runner_.info().block_tokens;
    for (std::int32_t g = 0; g < plan.num_groups; ++g) {
      plan.tables.push_back({static_cast<std::int32_t>(plan.block_ids.size()), blocks});
      for (BlockId b = 0; b < blocks; ++b) plan.block_ids.push_back(s.first_block + b * s.step);
    }
    plan.items.push_back(item);
  }

  runtime::Runner& runner_;
  std::map<SeqId, Sequence> sequences_;
  std::uint64_t next_seq_ = 1;
  std::uint64_t next_step_ = 1;
};

}  // namespace barg::test
