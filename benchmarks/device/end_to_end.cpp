// Step 6: whole models of the shapes of Llama-8B and Qwen3-0.6B, with random weights, through the runner that serves: prompts,
// steps of one and of many sequences, tokens that must be the same each time, in any company, with graphs and without.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/env.h"
#include "device/check.h"
#include "device/random_files.h"
#include "runtime/cuda_runner.h"
#include "runtime/factory.h"

namespace barg::check {
namespace {

constexpr ModelShape kSmallLlama{"small Llama", 2, 128, 4, 2, 64, 192, 600};
constexpr ModelShape kSmallQwen3{"small Qwen3", 2, 128, 4, 2, 64, 192, 600, true, true};

struct Sizes {
  std::int32_t each, prompt, steps, warm;  ///< each: tokens of a sequence that decodes
  std::vector<std::int32_t> batches;
};

using Tokens = std::vector<TokenId>;

/// Sequences on a runner, driven without a scheduler. They all have the same prompt.
class Driver {
 public:
  Driver(Check& check, const ModelShape& shape, const Sizes& sizes, bool graphs, bool invariant)
      : check_(check), sizes_(sizes), shape_(shape), files_(random_files(shape)) {
    Config config;
    config.runtime.device = "cuda";
    config.runtime.invariant = invariant;
    config.model.max_model_len = std::max(sizes.each, sizes.prompt) + 16;
    config.scheduler.max_num_batched_tokens = sizes.prompt;
    const std::int64_t token = std::int64_t{4} * shape.kv_heads * shape.head_dim * shape.layers;
    const std::int64_t most = std::int64_t{*std::max_element(sizes.batches.begin(), sizes.batches.end())} + 2;
    config.kv.memory_bytes = static_cast<std::uint64_t>(token * (most * (sizes.each + 32) + sizes.prompt + 64));
    runtime::LoadOptions options;
    options.cuda_graphs = graphs;
    options.open_device = [this](std::unique_ptr<cuda::Device>& out) {
      out = check_.open_device();
      return cuda::Status{};
    };
    const double begin = clock_.now();
    auto loaded = runtime::load_runner(config, files_, options);
    if (!loaded) {
      failure_ = loaded.error().message;
      return;
    }
    runner_ = std::move(loaded->runner);
    load_seconds_ = clock_.now() - begin;
    blocks_each_ = (sizes.each + 31) / runner_->info().block_tokens;
  }
  const std::string& failure() const { return failure_; }
  double load_seconds() const { return load_seconds_; }

  /// Seconds of a whole prompt of so many tokens in one step.
  double prompt(std::int32_t tokens) {
    const SeqId seq = add(tokens, 0);
    const double begin = clock_.now();
    launch({{seq, 0, tokens, true}});
    collect();
    const double seconds = clock_.now() - begin;
    runner_->remove_sequence(seq);
    return seconds;
  }

  struct Decoded {
    std::vector<Tokens> tokens;  ///< of each sequence
    double seconds = 0;          ///< of a step
  };
  /// `count` sequences of `context` tokens each decode; a step is launched before the one in front of it is collected.
  Decoded decode(std::int32_t count, std::int32_t context) {
    std::vector<SeqId> all;
    for (std::int32_t i = 0; i < count; ++i) all.push_back(add(context, i * blocks_each_));
    const std::int32_t chunk = runner_->info().max_rows;
    Decoded out;
    out.tokens.resize(static_cast<std::size_t>(count));
    for (const SeqId seq : all) {
      for (std::int32_t at = 0; at < context; at += chunk) {
        const std::int32_t rows = std::min(chunk, context - at);
        launch({{seq, at, rows, at + rows == context}});
        const auto result = collect();
        if (!result.items[0].tokens.empty()) keep(out, seq, all, result.items[0]);
      }
    }
    double begin = 0;
    for (std::int32_t step = 0; step < sizes_.warm + sizes_.steps; ++step) {
      if (step == sizes_.warm) begin = clock_.now();
      std::vector<Item> items;
      for (const SeqId seq : all) items.push_back({seq, context + step, 1, true});
      launch(items);
      if (step > 0) read(out, all);
    }
    read(out, all);
    out.seconds = (clock_.now() - begin) / sizes_.steps;
    for (const SeqId seq : all) runner_->remove_sequence(seq);
    return out;
  }

 private:
  struct Item {
    SeqId seq;
    std::int32_t start, count;
    bool sample;
  };
  struct Sequence {
    std::int32_t prompt;
    BlockId first_block;
  };

  SeqId add(std::int32_t tokens, BlockId first_block) {
    auto request = std::make_shared<Request>();
    request->prompt.resize(static_cast<std::size_t>(tokens));
    for (std::int32_t i = 0; i < tokens; ++i) request->prompt[static_cast<std::size_t>(i)] = (i * 7919 + 13) % shape_.vocab;
    request->sampling.seed = 1;
    request->sampling.max_tokens = 4096;
    request->sampling.temperature = 0.8F;
    const SeqId seq{next_seq_++};
    sequences_[seq] = {tokens, first_block};
    runner_->add_sequence(seq, std::move(request), 0);
    return seq;
  }

  void launch(const std::vector<Item>& items) {
    sched::StepPlan plan;
    plan.id = StepId{next_step_++};
    plan.num_groups = 1;
    for (const Item& i : items) {
      const Sequence& s = sequences_.at(i.seq);
      sched::PlanItem item;
      item.seq = i.seq;
      item.start = i.start;
      item.count = i.count;
      item.token_offset = static_cast<std::int32_t>(plan.tokens.size());
      item.table_offset = static_cast<std::int32_t>(plan.tables.size());
      item.want = i.sample ? sched::Want::kLogits : sched::Want::kNothing;
      item.logits_begin = i.count - 1;
      item.sample = i.sample;
      item.output_index = i.start + i.count - s.prompt;
      for (std::int32_t p = i.start; p < i.start + i.count; ++p)
        plan.tokens.push_back(p < s.prompt ? (p * 7919 + 13) % shape_.vocab : sched::kPendingToken);
      const std::int32_t blocks = (i.start + i.count + runner_->info().block_tokens - 1) / runner_->info().block_tokens;
      plan.tables.push_back({static_cast<std::int32_t>(plan.block_ids.size()), blocks});
      for (BlockId b = 0; b < blocks; ++b) plan.block_ids.push_back(s.first_block + b);
      plan.items.push_back(item);
    }
    runner_->launch(std::move(plan));
  }

  sched::StepResult collect() {
    auto result = runner_->collect(true);
    if (!result || result->fatal) check_.stop(result ? result->fatal->message : "no step was under way");
    return std::move(*result);
  }
  void read(Decoded& out, const std::vector<SeqId>& all) {
    auto result = collect();
    for (const auto& item : result.items) keep(out, item.seq, all, item);
    runner_->recycle(std::move(result));
  }
  static void keep(Decoded& out, SeqId seq, const std::vector<SeqId>& all, const sched::ItemResult& item) {
    const auto at = static_cast<std::size_t>(std::find(all.begin(), all.end(), seq) - all.begin());
    out.tokens[at].push_back(item.tokens.empty() ? kNoToken : item.tokens[0].id);
  }

  Check& check_;
  const Sizes sizes_;
  const ModelShape shape_;
  const SteadyClock clock_;
  std::shared_ptr<const model::ModelFiles> files_;
  std::unique_ptr<runtime::Runner> runner_;
  std::string failure_;
  double load_seconds_ = 0;
  std::int32_t blocks_each_ = 0;
  std::map<SeqId, Sequence> sequences_;
  std::uint64_t next_seq_ = 1, next_step_ = 1;
};

std::string times(std::int32_t batch, std::int32_t context) {
  return std::to_string(batch) + " x " + (context == 1024 ? "1k" : std::to_string(context));
}

double best_prompt(Driver& driver, std::int32_t tokens, int tries) {
  double best = driver.prompt(tokens);
  for (int i = 1; i < tries; ++i) best = std::min(best, driver.prompt(tokens));
  return best;
}

/// Everything of one shape; the tokens of one sequence alone.
Tokens whole(Check& check, const ModelShape& shape, const Sizes& sizes) {
  const std::string name = shape.name;
  Driver driver(check, shape, sizes, true, true);
  if (!driver.failure().empty()) check.stop(name + ": " + driver.failure());
  check.measured(name + " loads in", driver.load_seconds(), "s");
  const int tries = check.small() ? 1 : 3;
  check.measured(name + " prefill 4k", sizes.prompt / best_prompt(driver, sizes.prompt, tries), "tokens/s");
  const std::int32_t context = check.small() ? 20 : 1024;
  const Driver::Decoded alone = driver.decode(1, context), again = driver.decode(1, context);
  check.right(name + ": the same tokens twice", alone.tokens == again.tokens && alone.tokens[0].back() != kNoToken);
  for (const std::int32_t batch : sizes.batches) {
    const Driver::Decoded many = driver.decode(batch, context);
    check.measured(name + " step " + times(batch, context), 1e3 * many.seconds, "ms");
    check.measured(name + " tokens of " + times(batch, context), batch / many.seconds, "tokens/s");
    const bool same = std::all_of(many.tokens.begin(), many.tokens.end(), [&](const Tokens& t) { return t == alone.tokens[0]; });
    check.right(name + ": the same tokens among " + std::to_string(batch), same);
  }
  return alone.tokens[0];
}

void without_graphs(Check& check, const ModelShape& shape, const Sizes& sizes, const Tokens& tokens) {
  Driver driver(check, shape, sizes, false, true);
  if (!driver.failure().empty()) check.stop(driver.failure());
  const auto eager = driver.decode(1, check.small() ? 20 : 1024);
  check.right(std::string(shape.name) + ": the same tokens without graphs", eager.tokens[0] == tokens);
}

void without_invariance(Check& check, const ModelShape& shape, Sizes sizes) {
  const std::string name = std::string(shape.name) + " prefill 4k without invariance";
  sizes.batches = {1};
  Driver driver(check, shape, sizes, true, false);
  if (!driver.failure().empty()) return check.skipped(name, driver.failure());
  check.measured(name, sizes.prompt / best_prompt(driver, sizes.prompt, check.small() ? 1 : 3), "tokens/s");
}

}  // namespace

void end_to_end(Check& check) {
  Sizes sizes{.each = 1200, .prompt = 4096, .steps = 100, .warm = 8, .batches = {1, 8, 128}};
  if (check.small()) sizes = {.each = 40, .prompt = 64, .steps = 3, .warm = 1, .batches = {1, 3}};
  const ModelShape& qwen = check.small() ? kSmallQwen3 : kQwen06B;
  const ModelShape& llama = check.small() ? kSmallLlama : kLlama8B;
  const Tokens tokens = whole(check, qwen, sizes);
  without_graphs(check, qwen, sizes, tokens);
  whole(check, llama, sizes);
  if (check.options().emulated)
    check.skipped(std::string(llama.name) + " prefill without invariance", "the emulated device has no cuBLASLt");
  else
    without_invariance(check, llama, sizes);
}

}  // namespace barg::check
