#include "runtime/cpu_runner.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/queue.h"
#include "runtime/batch.h"
#include "runtime/sampler.h"

namespace barg::runtime {
namespace {

struct AddSequence {
  SeqId seq;
  std::shared_ptr<const Request> request;
  std::int32_t choice;
};
struct RemoveSequence {
  SeqId seq;
};
using Command = std::variant<AddSequence, RemoveSequence, sched::StepPlan>;

struct SequenceState {
  std::shared_ptr<const Request> request;
  Sampler sampler;
  bool bad = false;  ///< a sample failed: a later step's pending token does not exist
};

/// Results on their way to the engine thread.
class Outbox {
 public:
  void push(sched::StepResult result) {
    {
      std::lock_guard lock(mutex_);
      results_.push_back(std::move(result));
    }
    ready_.notify_one();
  }

  std::optional<sched::StepResult> pop(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) ready_.wait(lock, [&] { return !results_.empty(); });
    if (results_.empty()) return std::nullopt;
    auto result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<sched::StepResult> results_;  // guarded by mutex_
};

/// Per row of one sub-batch of logits.
struct StatsArrays {
  explicit StatsArrays(std::size_t rows) : max(rows), argmax(rows), logsumexp(rows), finite(rows) {}
  std::vector<float> max;
  std::vector<std::int32_t> argmax;
  std::vector<float> logsumexp;
  std::vector<std::uint8_t> finite;

  RowStats row(std::size_t i) const { return {max[i], argmax[i], logsumexp[i], finite[i] != 0}; }
};

}  // namespace

struct CpuRunner::Impl {
  explicit Impl(CpuRunnerParts p)
      : parts(std::move(p)),
        hidden_size(static_cast<std::size_t>(parts.decoder->spec().hidden)),
        logits_dim(static_cast<std::size_t>(parts.decoder->spec().vocab_rows)),
        logits_capacity(static_cast<std::size_t>(std::min(kLogitsRows, parts.plan.max_rows))),
        workspace(parts.decoder->workspace_bytes(parts.plan.max_rows)),
        hidden(static_cast<std::size_t>(parts.plan.max_rows) * hidden_size),
        gathered(logits_capacity * hidden_size),
        logits(logits_capacity * logits_dim),
        stats(logits_capacity) {}

  void run();
  void execute(AddSequence&& command);
  void execute(RemoveSequence&& command) { sequences.erase(command.seq); }
  void execute(sched::StepPlan&& plan);

  void begin_items(const sched::StepPlan& plan, sched::StepResult& result);
  void compute_logits(std::span<const LogitsRow> rows);
  void take_row(const sched::StepPlan& plan, const LogitsRow& row, std::size_t index,
                sched::StepResult& result);

  CpuRunnerParts parts;
  const std::size_t hidden_size, logits_dim, logits_capacity;
  model::Workspace workspace;
  std::vector<float> hidden;    // [max_rows, H]
  std::vector<float> gathered;  // [logits_capacity, H]
  std::vector<float> logits;    // [logits_capacity, V]
  StatsArrays stats;
  BatchBuilder builder;
  std::vector<TokenId> last_tokens;    // [items]
  std::vector<SequenceState*> states;  // [items]
  std::unordered_map<SeqId, SequenceState> sequences;
  SteadyClock clock;

  Queue<Command> commands{std::numeric_limits<std::size_t>::max()};
  Outbox results;
  std::int64_t outstanding = 0;  // engine thread only
  std::jthread thread;           // last: joins before the rest goes
};

void CpuRunner::Impl::run() {
  for (;;) {
    auto batch = commands.wait_drain();
    if (batch.empty()) return;
    for (auto& command : batch) {
      std::visit([this](auto&& c) { execute(std::forward<decltype(c)>(c)); }, std::move(command));
    }
  }
}

void CpuRunner::Impl::execute(AddSequence&& command) {
  Sampler sampler(command.request, command.choice, parts.info.vocab_size, parts.info.end_ids);
  const bool added =
      sequences.try_emplace(command.seq, SequenceState{std::move(command.request), std::move(sampler)})
          .second;
  CHECK(added);
}

/// Looks up every item's sequence, resolves pending tokens and starts its result.
void CpuRunner::Impl::begin_items(const sched::StepPlan& plan, sched::StepResult& result) {
  last_tokens.assign(plan.items.size(), 0);
  states.assign(plan.items.size(), nullptr);
  result.id = plan.id;
  result.items.resize(plan.items.size());
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    const auto found = sequences.find(item.seq);
    CHECK(found != sequences.end());
    states[i] = &found->second;
    auto& out = result.items[i];
    out.seq = item.seq;
    out.epoch = item.epoch;
    out.position = item.start + item.count;
    const auto tokens =
        std::span(plan.tokens)
            .subspan(static_cast<std::size_t>(item.token_offset), static_cast<std::size_t>(item.count));
    if (std::find(tokens.begin(), tokens.end(), sched::kPendingToken) == tokens.end()) continue;
    const auto& outputs = states[i]->sampler.outputs();
    if (states[i]->bad || outputs.empty()) {
      out.status = sched::ItemStatus::kBadLogits;  // computed on token 0, the result is not used
    } else {
      last_tokens[i] = outputs.back();
    }
  }
}

/// Logits and their statistics of a sub-batch of at most logits_capacity rows.
void CpuRunner::Impl::compute_logits(std::span<const LogitsRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(gathered.data() + i * hidden_size,
                hidden.data() + static_cast<std::size_t>(rows[i].row) * hidden_size,
                hidden_size * sizeof(float));
  }
  const auto count = static_cast<std::int32_t>(rows.size());
  parts.decoder->logits(gathered.data(), count, workspace, logits.data());
  parts.device->ops().row_stats(parts.device->stream(),
                                ops::RowStatsParams{.x = logits.data(),
                                                    .x_stride = static_cast<std::int64_t>(logits_dim),
                                                    .rows = count,
                                                    .dim = parts.info.vocab_size,
                                                    .max = stats.max.data(),
                                                    .argmax = stats.argmax.data(),
                                                    .logsumexp = stats.logsumexp.data(),
                                                    .finite = stats.finite.data()});
}

/// Prompt logprobs first: sampling modifies the row.
void CpuRunner::Impl::take_row(const sched::StepPlan& plan, const LogitsRow& row, std::size_t index,
                               sched::StepResult& result) {
  auto& state = *states[static_cast<std::size_t>(row.item)];
  auto& out = result.items[static_cast<std::size_t>(row.item)];
  if (out.status != sched::ItemStatus::kOk) return;
  const RowStats row_stats = stats.row(index);
  if (!row_stats.finite) {
    out.status = sched::ItemStatus::kBadLogits;
    state.bad = true;
    return;
  }
  const std::span values(logits.data() + index * logits_dim, static_cast<std::size_t>(parts.info.vocab_size));
  const auto& request = *state.request;
  const auto next = static_cast<std::size_t>(row.position) + 1;
  if (request.sampling.prompt_logprobs && next < request.prompt.size()) {
    out.prompt_logprobs.push_back(
        row_logprobs(values, row_stats.logsumexp, request.prompt[next], *request.sampling.prompt_logprobs));
  }
  if (!row.sample) return;
  auto token =
      state.sampler.sample(values, row_stats, plan.items[static_cast<std::size_t>(row.item)].output_index);
  if (token) {
    out.tokens.push_back(std::move(*token));
  } else {
    out.status = sched::ItemStatus::kBadLogits;
    state.bad = true;
  }
}

void CpuRunner::Impl::execute(sched::StepPlan&& plan) {
  const double start = clock.now();
  sched::StepResult result;
  try {
    CHECK(plan.rows() > 0 && plan.rows() <= parts.plan.max_rows);
    begin_items(plan, result);
    copy_blocks(plan, parts.kv, parts.device->ops(), parts.device->stream());
    parts.decoder->forward(builder.build(plan, last_tokens, parts.kv), workspace, hidden.data());
    for (auto rows = builder.logits_rows(); !rows.empty();) {
      const auto part = rows.first(std::min(rows.size(), logits_capacity));
      compute_logits(part);
      for (std::size_t i = 0; i < part.size(); ++i) take_row(plan, part[i], i, result);
      rows = rows.subspan(part.size());
    }
  } catch (const std::exception& e) {
    result.fatal = Error{ErrorCode::kInternal, std::string("the device thread failed: ") + e.what(), {}, 0};
  }
  result.seconds = clock.now() - start;
  results.push(std::move(result));
}

CpuRunner::CpuRunner(CpuRunnerParts parts) : impl_(std::make_unique<Impl>(std::move(parts))) {
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
}

CpuRunner::~CpuRunner() { impl_->commands.close(); }

const RunnerInfo& CpuRunner::info() const { return impl_->parts.info; }

void CpuRunner::add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) {
  CHECK(request->sampling.seed.has_value());
  impl_->commands.push_always(AddSequence{seq, std::move(request), choice});
}

void CpuRunner::remove_sequence(SeqId seq) { impl_->commands.push_always(RemoveSequence{seq}); }

void CpuRunner::launch(sched::StepPlan plan) {
  ++impl_->outstanding;
  impl_->commands.push_always(std::move(plan));
}

std::optional<sched::StepResult> CpuRunner::collect(bool wait) {
  if (impl_->outstanding == 0) return std::nullopt;
  auto result = impl_->results.pop(wait);
  if (result) --impl_->outstanding;
  return result;
}

}  // namespace barg::runtime
