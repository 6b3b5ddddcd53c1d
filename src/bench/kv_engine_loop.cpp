#include "bench/kv_engine_loop.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <unordered_map>

namespace barg::bench {
namespace {

using SteadyTime = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(100);

const char* error_key(ErrorCode code) {
  switch (code) {
    case ErrorCode::kRateLimited:
      return "rate_limited";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kContextLengthExceeded:
      return "too_long";
    default:
      return "refused";
  }
}

class EngineLoop {
 public:
  EngineLoop(Engine& engine, const ServeOptions& options, const ServeLoad& load, const Workload& workload,
             const ServeHooks& hooks)
      : engine_(engine),
        options_(options),
        load_(load),
        workload_(workload),
        hooks_(hooks),
        start_(SteadyTime::now()) {
    total_ = static_cast<std::int64_t>(workload.size().value_or(0));
    if (load.requests) total_ = workload.size() ? std::min(total_, *load.requests) : *load.requests;
  }

  RunSamples run() {
    const double cpu_before = thread_cpu_s();
    for (std::int64_t i = 0; i < total_; ++i) {
      const double at = load_.kind == ServeLoad::Kind::kTrace
                            ? workload_.arrival(static_cast<std::uint64_t>(i)).value_or(0)
                            : 0;
      if (load_.duration_s && at > *load_.duration_s) break;
      if (!wait_for_turn(at)) break;
      if (load_.duration_s && static_cast<double>(now()) * 1e-9 > *load_.duration_s) break;
      start(static_cast<std::uint64_t>(i), at);
    }
    wait_until([&] { return open_.empty(); });
    if (samples_.interrupted) cut_off();
    const std::lock_guard lock(mutex_);
    samples_.cpu_s = thread_cpu_s() - cpu_before;
    samples_.wall_s = static_cast<double>(now()) * 1e-9;
    samples_.started =
        std::chrono::duration_cast<std::chrono::nanoseconds>(start_.time_since_epoch()).count();
    return std::move(samples_);
  }

 private:
  using Open = std::unordered_map<std::uint64_t, RequestSample>;

  std::int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyTime::now() - start_).count();
  }
  bool stopped() const { return hooks_.stop != nullptr && hooks_.stop->load(std::memory_order_relaxed); }

  /// Looks again whenever a request has ended, at `at`, and at every tick. False: interrupted.
  template <class Condition>
  bool wait_until(Condition condition, SteadyTime::time_point at = SteadyTime::time_point::max()) {
    std::unique_lock lock(mutex_);
    while (!stopped()) {
      if (condition()) return true;
      changed_.wait_until(lock, std::min(at, SteadyTime::now() + kTick));
      if (!hooks_.progress || SteadyTime::now() - drawn_ < kTick) continue;
      drawn_ = SteadyTime::now();
      const ServeProgress progress = progress_now();
      lock.unlock();
      hooks_.progress(progress);
      lock.lock();
    }
    samples_.interrupted = true;
    return false;
  }

  bool wait_for_turn(double at_s) {
    if (load_.kind == ServeLoad::Kind::kClosed)
      return wait_until([&] { return static_cast<int>(open_.size()) < load_.concurrency; });
    const auto due =
        start_ + std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(at_s));
    return wait_until([&] { return SteadyTime::now() >= due; }, due);
  }

  void start(std::uint64_t index, double at_s) {
    const ServePrompt prompt = workload_.prompt(index, 0);
    RequestSample sample;
    sample.conversation = index;
    sample.input_asked = prompt.input_length;
    sample.output_asked = prompt.output_length;
    Request request;
    request.id = engine_.next_request_id();
    request.prompt = parse_ids(prompt.text);
    request.sampling.temperature = static_cast<float>(options_.body.temperature);
    request.sampling.max_tokens = prompt.output_length;
    request.sampling.ignore_eos = options_.body.ignore_eos;
    request.sampling.seed = options_.body.seed.value_or(0);
    const auto id = static_cast<std::uint64_t>(request.id);
    sample.sent = now();
    sample.intended =
        load_.kind == ServeLoad::Kind::kTrace ? static_cast<std::int64_t>(at_s * 1e9) : sample.sent;
    {
      const std::lock_guard lock(mutex_);
      open_.emplace(id, std::move(sample));
    }
    const Result<void> taken =
        engine_.submit(std::move(request), [this, id](TokenEvent&& e) { take(id, e); });
    if (taken) return;
    const std::lock_guard lock(mutex_);
    end(open_.find(id), error_key(taken.error().code), taken.error().message);
  }

  /// On the engine's thread.
  void take(std::uint64_t id, const TokenEvent& event) {
    const std::int64_t at = now();
    const std::lock_guard lock(mutex_);
    const auto it = open_.find(id);
    if (it == open_.end()) return;  // nothing comes behind the last event
    RequestSample& s = it->second;
    if (!event.tokens.empty()) {
      s.stamps.push_back(at);
      s.counted.push_back(static_cast<std::uint32_t>(event.first_index) +
                          static_cast<std::uint32_t>(event.tokens.size()));
      ++samples_.pieces;
    }
    if (event.finish == FinishReason::kNone) return;
    s.status = 200;
    s.completion_tokens = s.counted.empty() ? 0 : s.counted.back();
    s.prompt_tokens = event.stats.prompt_tokens;
    s.cached_tokens = event.stats.cached_tokens;
    if (event.finish == FinishReason::kError)
      return end(it, "engine_error", event.error ? event.error->message : "");
    if (event.finish == FinishReason::kAbort) return end(it, "aborted", "The request was cancelled.");
    end(it, s.stamps.empty() ? "no_tokens" : "", s.stamps.empty() ? "The answer has no token." : "");
  }

  /// REQUIRES the lock.
  void end(Open::iterator it, const char* error, std::string detail) {
    RequestSample& s = it->second;
    s.done = now();
    s.error = error;
    s.detail = std::move(detail);
    ++(s.ok() ? answered_ : failed_);
    if (s.error == "rate_limited") ++samples_.rate_limited;
    samples_.requests.push_back(std::move(s));
    open_.erase(it);
    changed_.notify_one();
  }

  /// What is still going on is cancelled, and waited for: its events come to this object.
  void cut_off() {
    std::vector<std::uint64_t> ids;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, sample] : open_) ids.push_back(id);
    }
    for (const std::uint64_t id : ids) engine_.cancel(static_cast<RequestId>(id));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_.empty(); });
    samples_.cancelled = static_cast<std::int64_t>(
        std::erase_if(samples_.requests, [](const RequestSample& s) { return s.error == "aborted"; }));
  }

  /// REQUIRES the lock.
  ServeProgress progress_now() const {
    return {.elapsed_s = static_cast<double>(now()) * 1e-9,
            .answered = answered_,
            .failed = failed_,
            .in_flight = static_cast<std::int64_t>(open_.size()),
            .pieces = samples_.pieces,
            .total = total_,
            .duration_s = load_.duration_s};
  }

  Engine& engine_;
  const ServeOptions& options_;
  const ServeLoad& load_;
  const Workload& workload_;
  const ServeHooks& hooks_;
  const SteadyTime::time_point start_;
  SteadyTime::time_point drawn_{};
  std::int64_t total_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  Open open_;  // guarded by mutex_, as all below
  RunSamples samples_;
  std::int64_t answered_ = 0, failed_ = 0;
};

}  // namespace

std::vector<TokenId> parse_ids(std::string_view text) {
  std::vector<TokenId> out;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), id);
    if (error != std::errc{}) break;
    out.push_back(id);
    at = end + 1;
  }
  return out;
}

RunSamples run_engine_load(Engine& engine, const ServeOptions& options, const ServeLoad& load,
                           const Workload& workload, const ServeHooks& hooks) {
  return EngineLoop(engine, options, load, workload, hooks).run();
}

}  // namespace barg::bench
