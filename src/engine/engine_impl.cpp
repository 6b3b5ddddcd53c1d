#include "engine/engine_impl.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "engine/admission.h"
#include "engine/step_loop.h"
#include "engine/validate.h"
#include "kv/keys.h"
#include "runtime/tier_service.h"
#include "sched/scheduler.h"

namespace barg::engine {
namespace {

constexpr double kLeastFlushSeconds = 1;  // also when requests took the whole shutdown timeout

EngineInfo make_info(const runtime::RunnerInfo& runner) {
  EngineInfo info;
  info.vocab_size = runner.vocab_size;
  info.max_model_len = runner.max_model_len;
  info.block_size = runner.block_tokens;
  info.end_ids = runner.end_ids;
  info.numerics_id = runner.numerics_id;
  info.model_digest = runner.model_digest;
  info.embedding = runner.embedding;
  for (std::size_t g = 0; g < runner.groups.size(); ++g) {
    // Models without full attention show their first group.
    const bool full = runner.groups[g].kind == model::StateKind::kFullAttention;
    if (g == 0 || full) info.num_blocks = runner.num_blocks[g];
    if (full) break;
  }
  return info;
}

/// nullopt: no such mode.
std::optional<sched::RestoreMode> restore_mode(const std::string& name) {
  using sched::RestoreMode;
  for (const auto& [known, mode] : {std::pair{"auto", RestoreMode::kAuto},
                                    {"reload", RestoreMode::kReload},
                                    {"recompute", RestoreMode::kRecompute},
                                    {"both", RestoreMode::kBoth}}) {
    if (name == known) return mode;
  }
  return std::nullopt;
}

sched::SchedulerConfig scheduler_config(const Config& config, const runtime::RunnerInfo& runner, bool tiers) {
  sched::SchedulerConfig out;
  const bool caches = config.kv.enable_prefix_caching && !runner.whole_prompts;
  out.tiers.enabled = tiers && caches;
  out.tiers.planner.mode = restore_mode(config.kv.restore).value_or(sched::RestoreMode::kAuto);
  out.options = config.scheduler;
  out.max_rows = runner.max_rows;
  out.max_model_len = runner.max_model_len;
  out.end_ids = runner.end_ids;
  out.key_root = runner.key_root;
  out.kv.block_tokens = runner.block_tokens;
  out.kv.enable_prefix_caching = caches;
  out.whole_prompts = runner.whole_prompts;
  for (std::size_t g = 0; g < runner.groups.size(); ++g) {
    const auto& group = runner.groups[g];
    const auto kind = group.kind == model::StateKind::kRecurrent       ? kv::GroupKind::kRecurrent
                      : group.kind == model::StateKind::kSlidingWindow ? kv::GroupKind::kSlidingWindow
                                                                       : kv::GroupKind::kFull;
    const std::int32_t tokens = runner.group_tokens.empty() ? runner.block_tokens : runner.group_tokens[g];
    out.kv.groups.push_back({.kind = kind,
                             .window = group.window,
                             .num_blocks = runner.num_blocks[g],
                             .block_bytes = runner.block_bytes[g],
                             .interval = tokens / runner.block_tokens});
  }
  return out;
}

Result<void> check_config(const Config& config) {
  const auto& s = config.scheduler;
  const auto bad = [](const char* key, const char* rule) {
    return fail(ErrorCode::kInvalidValue, std::string(key) + " must be " + rule, key);
  };
  if (s.max_num_seqs < 1) return bad("scheduler.max_num_seqs", "at least 1");
  if (s.max_num_batched_tokens < 1) return bad("scheduler.max_num_batched_tokens", "at least 1");
  if (!(s.itl_target_ms > 0)) return bad("scheduler.itl_target_ms", "above 0");
  if (!(s.watermark >= 0 && s.watermark < 1)) return bad("scheduler.watermark", "at least 0 and below 1");
  if (s.pipeline_depth < 0 || s.pipeline_depth > 2) return bad("scheduler.pipeline_depth", "0, 1 or 2");
  if (s.max_num_queued_reqs < 1) return bad("scheduler.max_num_queued_reqs", "at least 1");
  if (s.max_num_queued_tokens < 1) return bad("scheduler.max_num_queued_tokens", "at least 1");
  if (!(s.ageing_s > 0)) return bad("scheduler.ageing_s", "above 0");
  if (!restore_mode(config.kv.restore)) return bad("kv.restore", "auto, reload, recompute or both");
  if (!(config.server.queue_timeout_s >= 0)) return bad("server.queue_timeout_s", "at least 0");
  return {};
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(const Config& config, std::unique_ptr<runtime::Runner> runner, const Clock& clock,
             const EngineExtras& extras)
      : runner_(std::move(runner)),
        clock_(clock),
        info_(make_info(runner_->info())),
        admission_(config.scheduler),
        loop_(scheduler_config(config, runner_->info(), extras.tiers != nullptr),
              StepLoop::Deps{.runner = *runner_,
                             .clock = clock,
                             .admission = admission_,
                             .journal = extras.journal,
                             .queue_timeout_s = config.server.queue_timeout_s,
                             .lost = extras.lost}),
        stack_(extras.tiers),
        shutdown_timeout_s_(config.server.shutdown_timeout_s) {
    if (stack_ != nullptr) {
      key_root_ = runner_->info().key_root;
      tiers_ = runtime::make_tier_service(*runner_->kv_access(), *stack_, clock,
                                          [this] { loop_.inbox().push_always(WakeMessage{}); });
      loop_.use_tiers(tiers_.get());
    }
    thread_ = std::jthread([this] {
      pthread_setname_np(pthread_self(), "barg-engine");
      loop_.run();
    });
  }

  ~EngineImpl() override {
    drain();
    loop_.inbox().close();
    thread_.join();
    if (stack_ == nullptr) return;
    tiers_.reset();
    stack_->flush(std::max(drained_at_.load() + shutdown_timeout_s_, clock_.now() + kLeastFlushSeconds));
  }

  const EngineInfo& info() const override { return info_; }
  RequestId next_request_id() override { return RequestId{next_id_.fetch_add(1)}; }
  Result<void> admissible(std::int64_t prompt_tokens) const override {
    return admission_.check(prompt_tokens);
  }
  Result<void> check(const Request& request) const override {
    if (auto ok = validate_request(request, info_); !ok) return ok;
    return loop_.scheduler().check_request(request);
  }
  Result<void> submit(Request request, Sink sink) override;
  void cancel(RequestId id) override { loop_.inbox().push_always(CancelMessage{id}); }
  void finish_at(RequestId id, std::int32_t choice, std::int32_t output_tokens) override {
    loop_.inbox().push_always(FinishAtMessage{id, choice, output_tokens});
  }
  void pause(RequestId id, bool paused) override { loop_.inbox().push_always(PauseMessage{id, paused}); }
  bool forecast(std::shared_ptr<const Request> request, std::function<void(const Forecast&)> sink) override {
    return loop_.inbox().push_always(ForecastMessage{std::move(request), std::move(sink)});
  }
  void drain() override {
    admission_.drain();
    double never = 0;
    drained_at_.compare_exchange_strong(never, clock_.now());
  }
  std::int64_t active() const override { return loop_.ledger().active(); }
  bool failed() const override { return admission_.failed(); }
  EngineMetrics metrics() const override {
    EngineMetrics m = loop_.ledger().published();
    m.rejections = admission_.rejections();
    m.tiers.on = tiers_ != nullptr;
    if (m.tiers.on) m.tiers.stack = tiers_->stats();
    return m;
  }

 private:
  std::vector<Digest> pinned_blocks(const Request& request) const;
  const std::unique_ptr<runtime::Runner> runner_;
  const Clock& clock_;
  const EngineInfo info_;
  std::atomic<std::uint64_t> next_id_{1};
  Admission admission_;
  StepLoop loop_;
  const std::shared_ptr<store::TierStack> stack_;       // nullptr: no tiers
  std::unique_ptr<runtime::TierService> tiers_;         // of stack_
  std::string key_root_;
  const double shutdown_timeout_s_;
  std::atomic<double> drained_at_{0};
  std::jthread thread_;  // last: the loop stops before what it uses goes
};

Result<void> EngineImpl::submit(Request request, Sink sink) {
  if (auto ok = check(request); !ok) {
    const bool too_long = ok.error().code == ErrorCode::kContextLengthExceeded;
    admission_.count(too_long ? Rejection::kTooLong : Rejection::kInvalid);
    return ok;
  }
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (auto ok = admission_.enter(tokens, request.follows); !ok) return ok;
  if (!request.sampling.seed) request.sampling.seed = random_seed();
  const std::int32_t choices = request.n;
  std::vector<Digest> pins = pinned_blocks(request);
  loop_.ledger().expect(choices);
  const bool queued =
      loop_.inbox().push_always(SubmitMessage{.request = std::make_shared<const Request>(std::move(request)),
                                              .sink = std::move(sink),
                                              .arrived_s = clock_.now(),
                                              .pins = std::move(pins)});
  if (queued) return {};
  loop_.ledger().arrived(choices);
  loop_.ledger().forget();
  admission_.leave(tokens);
  return fail(ErrorCode::kUnavailable, "the engine is stopping");
}

/// Keys of the prompt's full blocks, where its request wants them kept. On the caller's thread: hashing a long prompt
/// takes milliseconds.
std::vector<Digest> EngineImpl::pinned_blocks(const Request& request) const {
  std::vector<Digest> out;
  if (stack_ == nullptr || request.cache_pin_s <= 0) return out;
  const kv::TokenView log{request.prompt, {}, request.spans};
  const std::int32_t blocks = log.size() / info_.block_size;
  out.reserve(static_cast<std::size_t>(blocks));
  Digest parent = kv::root_key(key_root_, request.cache_salt);
  for (std::int32_t b = 0; b < blocks; ++b) {
    parent = kv::block_key(parent, log, b, info_.block_size);
    out.push_back(parent);
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(const Config& config, std::unique_ptr<runtime::Runner> runner,
                                            const Clock& clock, const EngineExtras& extras) {
  if (auto ok = check_config(config); !ok) return std::unexpected(ok.error());
  if (extras.tiers != nullptr && runner->kv_access() == nullptr)
    return fail(ErrorCode::kUnsupported, "this device gives no access to its KV blocks, so it can have no tiers",
                "kv.tiers");
  return std::make_unique<EngineImpl>(config, std::move(runner), clock, extras);
}

}  // namespace barg::engine
