#include "bench/model_driver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/env.h"

namespace barg::bench {

ModelDriver::ModelDriver(runtime::Runner& runner, std::int32_t context) : runner_(runner), context_(context) {
  const runtime::RunnerInfo& info = runner_.info();
  std::uint64_t state = 1;
  for (std::int32_t i = 0; i < context; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    tokens_.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(info.vocab_size)));
  }
  for (const model::LayerGroup& g : info.groups) {
    const auto blocks = [&](std::int32_t n) { return (n + info.block_tokens - 1) / info.block_tokens; };
    const std::int32_t all = blocks(context);
    blocks_.push_back(g.window > 0 ? std::min(all, blocks(g.window + info.max_rows) + 2) : all);
  }
}

Result<void> ModelDriver::check_room(std::int32_t sequences) const {
  const runtime::RunnerInfo& info = runner_.info();
  for (std::size_t g = 0; g < blocks_.size(); ++g) {
    if (std::int64_t{blocks_[g]} * sequences <= info.num_blocks[g]) continue;
    return fail(ErrorCode::kOutOfMemory,
                std::to_string(sequences) + " sequences of " + std::to_string(context_) + " tokens need " +
                    std::to_string(std::int64_t{blocks_[g]} * sequences) + " KV blocks, the pool has " +
                    std::to_string(info.num_blocks[g]) + "; a smaller --batch or --depth fits",
                "--batch");
  }
  return {};
}

void ModelDriver::begin(std::int32_t prompt, std::int32_t batch) {
  auto request = std::make_shared<Request>();
  request->prompt.assign(tokens_.begin(), tokens_.begin() + prompt);
  request->sampling.temperature = 0;
  request->sampling.max_tokens = context_;
  request->sampling.seed = 1;
  for (std::int32_t i = 0; i < batch; ++i) {
    live_.push_back(SeqId{next_sequence_++});
    runner_.add_sequence(live_.back(), request, 0);
  }
}

void ModelDriver::end() {
  for (const SeqId seq : live_) runner_.remove_sequence(seq);
  live_.clear();
}

void ModelDriver::add_item(sched::StepPlan& plan, const Rows& r) const {
  const std::int32_t block_tokens = runner_.info().block_tokens;
  sched::PlanItem item;
  item.seq = live_[static_cast<std::size_t>(r.sequence)];
  item.start = r.start;
  item.count = r.count;
  item.token_offset = static_cast<std::int32_t>(plan.tokens.size());
  item.table_offset = static_cast<std::int32_t>(plan.tables.size());
  item.want = r.sample ? sched::Want::kLogits : sched::Want::kNothing;
  item.logits_begin = r.sample ? r.count - 1 : 0;
  item.sample = r.sample;
  item.output_index = r.output_index;
  for (std::int32_t p = r.start; p < r.start + r.count; ++p)
    plan.tokens.push_back(r.pending ? sched::kPendingToken : tokens_[static_cast<std::size_t>(p)]);
  const std::int32_t blocks = (r.start + r.count + block_tokens - 1) / block_tokens;
  for (const std::int32_t own : blocks_) {
    plan.tables.push_back({static_cast<std::int32_t>(plan.block_ids.size()), blocks});
    for (std::int32_t b = 0; b < blocks; ++b) plan.block_ids.push_back(r.sequence * own + b % own);
  }
  plan.items.push_back(item);
}

void ModelDriver::launch(const std::vector<Rows>& rows) {
  sched::StepPlan plan;
  plan.id = StepId{next_step_++};
  plan.num_groups = static_cast<std::int32_t>(blocks_.size());
  for (const Rows& r : rows) add_item(plan, r);
  plan.copies = std::exchange(copies_, {});
  runner_.launch(std::move(plan));
}

Result<void> ModelDriver::collect() {
  auto result = runner_.collect(true);
  if (!result) return fail(ErrorCode::kInternal, "the runner has lost a step");
  if (result->fatal) return std::unexpected(*result->fatal);
  for (const auto& item : result->items) {
    if (item.status != sched::ItemStatus::kOk)
      return fail(ErrorCode::kInternal, "the model's logits are not numbers for random tokens");
  }
  return {};
}

Result<void> ModelDriver::prefill(std::int32_t depth, std::int32_t tokens) {
  begin(depth + tokens, 1);
  const std::int32_t end_at = depth + tokens;
  Result<void> outcome;
  for (std::int32_t at = depth; at < end_at && outcome;) {
    const std::int32_t count = std::min(max_rows(), end_at - at);
    launch({{.sequence = 0,
             .start = at,
             .count = count,
             .sample = at + count == end_at,
             .output_index = 0,
             .pending = false}});
    outcome = collect();
    at += count;
  }
  end();
  return outcome;
}

Result<void> ModelDriver::decode(std::int32_t depth, std::int32_t tokens, std::int32_t batch) {
  begin(depth + 1, batch);
  Result<void> outcome;
  std::vector<Rows> rows;
  for (std::int32_t i = 0; i < tokens && outcome; ++i) {
    rows.clear();
    for (std::int32_t s = 0; s < batch; ++s)
      rows.push_back({.sequence = s,
                      .start = depth + i,
                      .count = 1,
                      .sample = true,
                      .output_index = i,
                      .pending = i > 0});
    launch(rows);
    if (i > 0) outcome = collect();  // of the step before: one is always on its way
  }
  if (const auto last = collect(); outcome) outcome = last;
  end();
  return outcome;
}

Result<void> ModelDriver::fill(std::int32_t depth, std::int32_t batch) {
  if (static_cast<std::size_t>(batch) > filled_.size()) filled_.resize(static_cast<std::size_t>(batch), 0);
  if (filled_[0] != depth) {
    if (depth > 0) {
      if (auto ok = prefill(0, depth); !ok) return ok;
    }
    std::fill(filled_.begin(), filled_.end(), 0);
    filled_[0] = depth;
  }
  const std::int32_t block_tokens = runner_.info().block_tokens;
  for (std::int32_t s = 1; s < batch; ++s) {
    if (filled_[static_cast<std::size_t>(s)] == depth) continue;
    filled_[static_cast<std::size_t>(s)] = depth;
    for (std::size_t g = 0; g < blocks_.size(); ++g) {
      const std::int32_t used = std::min(blocks_[g], (depth + block_tokens - 1) / block_tokens);
      for (std::int32_t b = 0; b < used; ++b)
        copies_.push_back({static_cast<std::int32_t>(g), b, s * blocks_[g] + b, block_tokens});
    }
  }
  return {};
}

}  // namespace barg::bench
