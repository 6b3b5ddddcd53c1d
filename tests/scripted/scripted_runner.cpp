#include "scripted/scripted_runner.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/env.h"

namespace barg::test {
namespace {

constexpr float kNoise = -6;                // noise lies between this and 0
constexpr float kSure = 40, kNext = 20;     // logits of the script's token, and of what comes if it is masked
constexpr float kLead = 1, kLeadRange = 3;  // the same for temperature 0: above the noise by so much
constexpr double kSecondsPerRow = 1e-6;

/// Uniform in [0, 1), the same for equal arguments.
float uniform(std::int32_t position, std::int32_t id) {
  Rng rng((static_cast<std::uint64_t>(static_cast<std::uint32_t>(position)) << 32) |
          static_cast<std::uint32_t>(id));
  return static_cast<float>(rng.uniform());
}

}  // namespace

runtime::RunnerInfo scripted_info(const Tokenizer& tokenizer, std::int32_t max_model_len,
                                  std::int32_t max_rows, std::int32_t block_tokens) {
  runtime::RunnerInfo info;
  model::LayerGroup group;
  group.num_kv_heads = 1;
  group.head_dim = 16;
  group.layers = {0};
  info.groups = {group};
  info.num_blocks = {4 * (max_model_len / block_tokens + 1)};
  info.block_bytes = {1024};
  info.block_tokens = block_tokens;
  info.max_model_len = max_model_len;
  info.max_rows = max_rows;
  info.vocab_size = tokenizer.size();
  info.end_ids = tokenizer.end_ids();
  info.numerics_id = "scripted";
  info.model_digest = "00";
  info.key_root = std::string(32, 's');
  return info;
}

struct ScriptedRunner::Sequence {
  Sequence(std::shared_ptr<const Request> r, const Script& s, std::int32_t choice,
           const runtime::RunnerInfo& info)
      : request(std::move(r)),
        script(s),
        text(s.choices[static_cast<std::size_t>(choice) % s.choices.size()]),
        endless(request->sampling.ignore_eos || s.end == kNoToken),
        sampler(request, choice, info.vocab_size, info.end_ids) {}

  /// Moves the cursor behind the first `count` outputs.
  void follow(std::size_t count) {
    const auto& outputs = sampler.outputs();
    if (followed > count) followed = cursor = 0;
    for (; followed < count; ++followed) {
      const TokenId said = outputs[followed];
      if (cursor < text.size() && text[cursor] != said) {
        const auto rest = text.begin() + static_cast<std::ptrdiff_t>(cursor);
        const auto found = std::find(rest, text.end(), said);
        if (found != text.end()) cursor = static_cast<std::size_t>(found - text.begin());
      }
      ++cursor;
    }
  }
  /// The token at the cursor where the text is repeated without an end; kNoToken if there is no text.
  TokenId spoken() const { return text.empty() ? kNoToken : text[cursor % text.size()]; }
  bool at_end() const { return !endless && cursor >= text.size(); }

  const std::shared_ptr<const Request> request;
  const Script& script;
  const std::vector<TokenId>& text;
  const bool endless;
  runtime::Sampler sampler;
  std::size_t cursor = 0, followed = 0;
};

ScriptedRunner::ScriptedRunner(runtime::RunnerInfo info, std::shared_ptr<const Scripts> scripts)
    : info_(std::move(info)),
      scripts_(std::move(scripts)),
      scratch_(device_.ops(), info_.vocab_size),
      logits_(static_cast<std::size_t>(info_.vocab_size)),
      block_max_((logits_.size() + ops::kBlockMax - 1) / ops::kBlockMax) {}

ScriptedRunner::~ScriptedRunner() = default;

void ScriptedRunner::add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) {
  const Script& script = scripts_->of_prompt(request->prompt);
  auto sequence = std::make_unique<Sequence>(std::move(request), script, choice, info_);
  CHECK(sequences_.try_emplace(seq, std::move(sequence)).second);
}

void ScriptedRunner::remove_sequence(SeqId seq) { CHECK(sequences_.erase(seq) == 1); }

void ScriptedRunner::launch(sched::StepPlan plan) {
  sched::StepResult result{.id = plan.id, .items = {}, .seconds = 0, .fatal = {}, .spent = {}};
  double seconds = 0;
  for (const sched::PlanItem& item : plan.items)
    seconds = std::max(seconds, run(item, result.items.emplace_back()));
  result.seconds = seconds + kSecondsPerRow * plan.rows();
  result.spent = std::move(plan);
  const auto duration = std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  busy_until_ = std::max(busy_until_, std::chrono::steady_clock::now()) + duration;
  launched_.push_back({std::move(result), busy_until_});
}

std::optional<sched::StepResult> ScriptedRunner::collect(bool wait) {
  if (launched_.empty()) return std::nullopt;
  if (wait) std::this_thread::sleep_until(launched_.front().due);
  if (std::chrono::steady_clock::now() < launched_.front().due) return std::nullopt;
  sched::StepResult result = std::move(launched_.front().result);
  launched_.pop_front();
  return result;
}

double ScriptedRunner::run(const sched::PlanItem& item, sched::ItemResult& out) {
  out.seq = item.seq;
  out.epoch = item.epoch;
  out.position = item.start + item.count;
  Sequence& sequence = *sequences_.at(item.seq);
  if (item.want == sched::Want::kLogits && sequence.request->sampling.prompt_logprobs)
    score_prompt(item, sequence, out);
  if (!item.sample) return 0;
  sample(item, sequence, out);
  return item.output_index == 0 ? sequence.script.first_delay_s : sequence.script.delay_s;
}

void ScriptedRunner::score_prompt(const sched::PlanItem& item, const Sequence& sequence,
                                  sched::ItemResult& out) {
  const Request& request = *sequence.request;
  for (std::int32_t p = item.start + item.logits_begin; p < item.start + item.count; ++p) {
    const auto next = static_cast<std::size_t>(p) + 1;
    if (next >= request.prompt.size()) break;
    fill_row(p);
    raise(request.prompt[next], kLead + kLeadRange * uniform(p, -1));
    const runtime::RawRow raw = row();
    out.prompt_logprobs.push_back(runtime::row_logprobs(runtime::sampled_part(raw, info_.vocab_size),
                                                        raw.logsumexp, request.prompt[next],
                                                        *request.sampling.prompt_logprobs));
  }
}

void ScriptedRunner::sample(const sched::PlanItem& item, Sequence& sequence, sched::ItemResult& out) {
  if (sequence.script.fail_after >= 0 && item.output_index >= sequence.script.fail_after) {
    out.status = sched::ItemStatus::kBadLogits;
    return;
  }
  const auto said = static_cast<std::size_t>(item.output_index);
  CHECK(said <= sequence.sampler.outputs().size());
  sequence.follow(said);
  const std::int32_t position = out.position;
  const bool greedy = sequence.request->sampling.temperature == 0;
  fill_row(position);
  if (sequence.at_end()) raise(sequence.spoken(), greedy ? kLead / 2 : kNext);
  const TokenId best = sequence.at_end() || sequence.text.empty() ? sequence.script.end : sequence.spoken();
  raise(best, greedy ? kLead + kLeadRange * uniform(position, -1) : kSure);
  if (auto token = sequence.sampler.sample(row(), item.output_index, scratch_))
    out.tokens.push_back(std::move(*token));
  else
    out.status = sched::ItemStatus::kBadLogits;
}

void ScriptedRunner::fill_row(std::int32_t position) {
  for (std::size_t i = 0; i < logits_.size(); ++i)
    logits_[i] = kNoise * uniform(position, static_cast<std::int32_t>(i));
}

void ScriptedRunner::raise(TokenId id, float value) {
  if (id >= 0 && id < info_.vocab_size) logits_[static_cast<std::size_t>(id)] = value;
}

runtime::RawRow ScriptedRunner::row() {
  for (std::size_t b = 0; b < block_max_.size(); ++b) block_max_[b] = runtime::block_maximum(logits_, b);
  const float max = *std::max_element(block_max_.begin(), block_max_.end());
  double sum = 0;
  for (const float x : logits_) sum += std::exp(static_cast<double>(x - max));
  return {.logits = logits_, .block_max = block_max_, .logsumexp = max + static_cast<float>(std::log(sum))};
}

}  // namespace barg::test
