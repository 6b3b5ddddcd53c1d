// ScriptedRunner: a runtime::Runner whose model says what its script says. It makes logits in which the next
// token of the script is by far the likeliest, and the real Sampler chooses: so masks, biases, penalties,
// min_tokens, a budget of reasoning and log-probabilities are those of a real model, and the engine above it
// is the real one.
//
//   temperature 0   the script's token leads by a margin that varies, so log-probabilities differ from token
//   to token otherwise       it leads by so much that no draw misses it ignore_eos      the script is said
//   again and again in place of its end
//
// A model that is forced to say something else (a mask, the end of its reasoning) goes on behind the next
// place where its script says that; where it never does, behind the token that was taken from it.
//
// Threads: one caller, like every Runner; collect(true) sleeps until the script's delay is over.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cpu/cpu.h"
#include "runtime/runner.h"
#include "runtime/sampler.h"
#include "runtime/selection.h"
#include "scripted/script.h"

namespace barg::test {

/// A runner of one group of layers for `tokenizer`; blocks of `block_tokens` tokens for about four longest
/// requests.
runtime::RunnerInfo scripted_info(const Tokenizer& tokenizer, std::int32_t max_model_len,
                                  std::int32_t max_rows, std::int32_t block_tokens);

class ScriptedRunner final : public runtime::Runner {
 public:
  ScriptedRunner(runtime::RunnerInfo info, std::shared_ptr<const Scripts> scripts);
  ~ScriptedRunner() override;

  const runtime::RunnerInfo& info() const override { return info_; }
  void add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) override;
  void remove_sequence(SeqId seq) override;
  void launch(sched::StepPlan plan) override;
  std::optional<sched::StepResult> collect(bool wait) override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Sequence;
  struct Launched {
    sched::StepResult result;
    Time due;
  };

  /// Adds the item's result; returns the seconds it takes.
  double run(const sched::PlanItem& item, sched::ItemResult& out);
  void score_prompt(const sched::PlanItem& item, const Sequence& sequence, sched::ItemResult& out);
  void sample(const sched::PlanItem& item, Sequence& sequence, sched::ItemResult& out);
  /// Noise at `position`, with one id (or kNoToken) raised to `value`.
  void fill_row(std::int32_t position);
  void raise(TokenId id, float value);
  runtime::RawRow row();

  const runtime::RunnerInfo info_;
  const std::shared_ptr<const Scripts> scripts_;
  ops::CpuDevice device_{ops::CpuOptions{.threads = 1}};
  runtime::SampleScratch scratch_;
  std::vector<float> logits_, block_max_;
  std::map<SeqId, std::unique_ptr<Sequence>> sequences_;
  std::deque<Launched> launched_;
  Time busy_until_{};
};

}  // namespace barg::test
