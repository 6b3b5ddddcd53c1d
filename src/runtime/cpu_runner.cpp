#include "runtime/cpu_runner.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "cpu/pool.h"
#include "runtime/batch.h"
#include "runtime/kv_memory_access.h"
#include "runtime/pooling.h"
#include "runtime/runner_link.h"
#include "runtime/sampler.h"
#include "runtime/scratch_pool.h"

namespace barg::runtime {
namespace {

struct SequenceState {
  std::shared_ptr<const Request> request;
  Sampler sampler;
  bool bad = false;  ///< a sample failed: a later step's pending token does not exist
};

}  // namespace

struct CpuRunner::Impl {
  explicit Impl(CpuRunnerParts p)
      : parts(std::move(p)),
        hidden_size(static_cast<std::size_t>(parts.decoder->spec().hidden)),
        logits_dim(static_cast<std::size_t>(parts.decoder->spec().generates() ? parts.decoder->spec().vocab_rows : 0)),
        logits_capacity(static_cast<std::size_t>(std::min(kLogitsRows, parts.plan.max_rows))),
        logits_blocks((logits_dim + ops::kBlockMax - 1) / ops::kBlockMax),
        workspace(parts.decoder->workspace_bytes(parts.plan.max_rows)),
        hidden(static_cast<std::size_t>(parts.plan.max_rows) * hidden_size),
        logits(logits_capacity * logits_dim),
        block_max(logits_capacity * logits_blocks),
        logsumexp(logits_capacity),
        scratch(parts.device->ops(), parts.info.vocab_size, parts.device->threads()),
        kv_access(parts.kv) {
    sampled.reserve(logits_capacity);
  }

  void run();
  void execute(AddSequence&& command);
  void execute(RemoveSequence&& command) { sequences.erase(command.seq); }
  void execute(LaunchStep&& launch);
  void compute(const sched::StepPlan& plan, sched::StepResult& result);

  void begin_items(const sched::StepPlan& plan, sched::StepResult& result);
  void compute_logits(std::span<const LogitsRow> rows);
  void pool_rows(sched::StepResult& result);
  RawRow raw_row(std::size_t index);
  bool measure(RawRow& raw);
  void score_prompt(const LogitsRow& row, std::size_t index, sched::ItemResult& out);
  void sample_rows(const sched::StepPlan& plan, std::span<const LogitsRow> rows, sched::StepResult& result);
  void sample_row(const sched::StepPlan& plan, const LogitsRow& row, std::size_t index,
                  sched::ItemResult& out);

  CpuRunnerParts parts;
  const std::size_t hidden_size, logits_dim, logits_capacity, logits_blocks;
  model::Workspace workspace;
  std::vector<float> hidden;     // [max_rows, H], the rows of builder.logits_rows()
  std::vector<float> logits;     // [logits_capacity, V]
  std::vector<float> block_max;  // [logits_capacity, logits_blocks]
  std::vector<float> logsumexp;  // [logits_capacity], where log-probabilities are wanted
  ScratchPool scratch;
  std::vector<std::size_t> sampled;  // rows of the sub-batch to sample
  BatchBuilder builder;
  std::vector<TokenId> last_tokens;    // [items]
  std::vector<SequenceState*> states;  // [items]
  std::unordered_map<SeqId, SequenceState> sequences;
  SteadyClock clock;
  KvMemoryAccess kv_access;  // any thread

  RunnerLink<> link;
  std::jthread thread;                           // last: joins before the rest goes
};

void CpuRunner::Impl::run() {
  pthread_setname_np(pthread_self(), "barg-device");
  for (;;) {
    auto command = link.commands.pop(/*wait=*/true);
    if (!command) return;
    std::visit([this](auto&& c) { execute(std::forward<decltype(c)>(c)); }, std::move(*command));
  }
}

void CpuRunner::Impl::execute(AddSequence&& command) {
  const auto prompt = static_cast<std::int32_t>(command.request->prompt.size());
  const std::int32_t most = std::clamp(parts.info.max_model_len - prompt, 0, command.request->sampling.max_tokens);
  Sampler sampler(command.request, command.choice, parts.info.vocab_size, parts.info.end_ids, most);
  sampler.reserve(most);
  const bool added =
      sequences.try_emplace(command.seq, SequenceState{std::move(command.request), std::move(sampler)})
          .second;
  CHECK(added);
}

/// Looks up every item's sequence, resolves pending tokens and starts its result.
void CpuRunner::Impl::begin_items(const sched::StepPlan& plan, sched::StepResult& result) {
  last_tokens.assign(plan.items.size(), 0);
  states.assign(plan.items.size(), nullptr);
  start_result(plan, result);
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    const auto found = sequences.find(item.seq);
    CHECK(found != sequences.end());
    states[i] = &found->second;
    const auto tokens =
        std::span(plan.tokens)
            .subspan(static_cast<std::size_t>(item.token_offset), static_cast<std::size_t>(item.count));
    if (std::find(tokens.begin(), tokens.end(), sched::kPendingToken) == tokens.end()) continue;
    const auto& outputs = states[i]->sampler.outputs();
    if (states[i]->bad || outputs.empty()) {
      result.items[i].status = sched::ItemStatus::kBadLogits;  // computed on token 0, the result is not used
    } else {
      last_tokens[i] = outputs.back();
    }
  }
}

/// Logits and their statistics of a sub-batch of at most logits_capacity rows.
void CpuRunner::Impl::compute_logits(std::span<const LogitsRow> rows) {
  const auto first = static_cast<std::size_t>(rows.data() - builder.logits_rows().data());
  parts.decoder->logits(hidden.data() + first * hidden_size, static_cast<std::int32_t>(rows.size()),
                        workspace, logits.data(), block_max.data());
}

/// The rows of an item lie together.
void CpuRunner::Impl::pool_rows(sched::StepResult& result) {
  const auto rows = builder.logits_rows();
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end].item == rows[first].item) ++end;
    auto& out = result.items[static_cast<std::size_t>(rows[first].item)];
    out.pooled.resize(hidden_size);
    const std::span<const float> states(hidden.data() + first * hidden_size, (end - first) * hidden_size);
    if (pool(parts.decoder->spec().pooling.kind, states, out.pooled)) continue;
    out.pooled.clear();
    out.status = sched::ItemStatus::kBadLogits;
  }
}

RawRow CpuRunner::Impl::raw_row(std::size_t index) {
  return {.logits = {logits.data() + index * logits_dim, logits_dim},
          .block_max = {block_max.data() + index * logits_blocks, logits_blocks}};
}

/// Fills in what only log-probabilities need. False: the row is not finite.
bool CpuRunner::Impl::measure(RawRow& raw) {
  float max = 0;
  std::int32_t argmax = 0;
  std::uint8_t finite = 0;
  parts.device->ops().row_stats(parts.device->stream(),
                                ops::RowStatsParams{.x = raw.logits.data(),
                                                    .x_stride = static_cast<std::int64_t>(logits_dim),
                                                    .rows = 1,
                                                    .dim = parts.info.vocab_size,
                                                    .max = &max,
                                                    .argmax = &argmax,
                                                    .logsumexp = &raw.logsumexp,
                                                    .finite = &finite});
  return finite != 0;
}

void CpuRunner::Impl::score_prompt(const LogitsRow& row, std::size_t index, sched::ItemResult& out) {
  auto& state = *states[static_cast<std::size_t>(row.item)];
  const auto& request = *state.request;
  const auto next = static_cast<std::size_t>(row.position) + 1;
  if (out.status != sched::ItemStatus::kOk || !request.sampling.prompt_logprobs ||
      next >= request.prompt.size())
    return;
  RawRow raw = raw_row(index);
  if (!measure(raw)) {
    out.status = sched::ItemStatus::kBadLogits;
    state.bad = true;
    return;
  }
  out.prompt_logprobs.push_back(row_logprobs(sampled_part(raw, parts.info.vocab_size), raw.logsumexp,
                                             request.prompt[next], *request.sampling.prompt_logprobs));
}

void CpuRunner::Impl::sample_row(const sched::StepPlan& plan, const LogitsRow& row, std::size_t index,
                                 sched::ItemResult& out) {
  auto& state = *states[static_cast<std::size_t>(row.item)];
  RawRow raw = raw_row(index);
  raw.logsumexp = logsumexp[index];
  std::optional<OutputToken> token;
  scratch.with_one([&](SampleScratch& s) {
    token = state.sampler.sample(raw, plan.items[static_cast<std::size_t>(row.item)].output_index, s);
  });
  if (token) {
    out.tokens.push_back(std::move(*token));
  } else {
    out.status = sched::ItemStatus::kBadLogits;
    state.bad = true;
  }
}

/// An item samples at most one row, so rows touch different objects and are sampled side by side where that
/// pays.
void CpuRunner::Impl::sample_rows(const sched::StepPlan& plan, std::span<const LogitsRow> rows,
                                  sched::StepResult& result) {
  sampled.clear();
  bool slow = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto item = static_cast<std::size_t>(rows[i].item);
    if (!rows[i].sample || result.items[item].status != sched::ItemStatus::kOk) continue;
    sampled.push_back(i);
    slow |= states[item]->sampler.slow(plan.items[item].output_index);
    if (!states[item]->request->sampling.logprobs) continue;
    RawRow raw = raw_row(i);
    measure(raw);
    logsumexp[i] = raw.logsumexp;
  }
  std::atomic<bool> failed{false};  // out of memory: nothing may leave a worker as an exception
  auto one = [&](int n) {
    const std::size_t i = sampled[static_cast<std::size_t>(n)];
    try {
      sample_row(plan, rows[i], i, result.items[static_cast<std::size_t>(rows[i].item)]);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  };
  const auto count = static_cast<int>(sampled.size());
  if (slow && count > 1) {
    using One = decltype(one);
    parts.device->stream().pool.run(
        count, [](void* f, int n) { (*static_cast<One*>(f))(n); }, &one);
  } else {
    for (int n = 0; n < count; ++n) one(n);
  }
  if (failed) throw std::bad_alloc();
}

void CpuRunner::Impl::execute(LaunchStep&& launch) {
  parts.device->wake();
  const double start = clock.now();
  auto& result = launch.result;
  try {
    compute(launch.plan, result);
  } catch (const std::exception& e) {
    result.fatal = Error{ErrorCode::kInternal, std::string("the device thread failed: ") + e.what(), {}, 0};
  }
  result.seconds = clock.now() - start;
  result.spent = std::move(launch.plan);
  link.results.push(std::move(result));
}

void CpuRunner::Impl::compute(const sched::StepPlan& plan, sched::StepResult& result) {
  CHECK(plan.rows() > 0 && plan.rows() <= parts.plan.max_rows);
  begin_items(plan, result);
  copy_blocks(plan, parts.kv, parts.device->ops(), parts.device->stream());
  parts.decoder->forward(builder.build(plan, last_tokens, parts.kv), workspace, hidden.data());
  if (!parts.decoder->spec().generates()) return pool_rows(result);
  for (auto rows = builder.logits_rows(); !rows.empty();) {
    const auto part = rows.first(std::min(rows.size(), logits_capacity));
    compute_logits(part);
    for (std::size_t i = 0; i < part.size(); ++i) {  // first: sampling modifies rows
      score_prompt(part[i], i, result.items[static_cast<std::size_t>(part[i].item)]);
    }
    sample_rows(plan, part, result);
    rows = rows.subspan(part.size());
  }
}

CpuRunner::CpuRunner(CpuRunnerParts parts) : impl_(std::make_unique<Impl>(std::move(parts))) {
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
}

CpuRunner::~CpuRunner() { impl_->link.commands.close(); }

const RunnerInfo& CpuRunner::info() const { return impl_->parts.info; }
void CpuRunner::add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) {
  impl_->link.add(seq, std::move(request), choice);
}
void CpuRunner::remove_sequence(SeqId seq) { impl_->link.remove(seq); }
void CpuRunner::launch(sched::StepPlan plan) { impl_->link.launch(std::move(plan)); }
std::optional<sched::StepResult> CpuRunner::collect(bool wait) { return impl_->link.collect(wait); }
void CpuRunner::recycle(sched::StepResult&& result) { impl_->link.recycle(std::move(result)); }
KvAccess* CpuRunner::kv_access() { return &impl_->kv_access; }

}  // namespace barg::runtime
