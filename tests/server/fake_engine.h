// FakeEngine: an Engine whose answers are scripted. One thread gives each running choice one token per round;
// a test may hold the rounds (hold/release) to look at what happens in between.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "barg/engine.h"
#include "engine/metrics.h"
#include "fake_tokenizer.h"

namespace barg::test {

class FakeEngine final : public Engine {
 public:
  /// All tokens that a choice would give; ends with kEnd for a natural stop. Default: "ok" and the end.
  using Script = std::function<std::vector<TokenId>(const Request&, std::int32_t choice)>;

  explicit FakeEngine(std::int32_t max_model_len = 1024) : metrics_(max_model_len) {
    info_.vocab_size = kFakeVocab;
    info_.max_model_len = max_model_len;
    info_.block_size = 16;
    info_.num_blocks = 64;
    info_.end_ids = {kEnd};
    info_.numerics_id = "fake";
    info_.model_digest = "00ff";
    thread_ = std::jthread([this] { run(); });
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

  void set_script(Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  /// From now on it embeds: what embed() of a prompt gives.
  void set_embedding(EmbeddingInfo info, std::function<std::vector<float>(const Request&)> embed) {
    info_.embedding = std::move(info);
    embed_ = std::move(embed);
  }
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void set_admission(Result<void> answer) {
    const std::lock_guard lock(mutex_);
    admission_ = std::move(answer);
  }
  /// What check() and submit() say of every request.
  void set_verdict(Result<void> verdict) {
    const std::lock_guard lock(mutex_);
    verdict_ = std::move(verdict);
  }
  /// Waits until `predicate(active requests)` holds.
  bool wait_active(std::function<bool(std::int64_t)> predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return predicate(active_); });
  }
  /// Waits until a running request is paused.
  bool wait_paused() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      return std::any_of(running_.begin(), running_.end(), [](const auto& r) { return r.second.paused; });
    });
  }
  std::int64_t submitted() const { return submitted_; }
  std::int64_t cancelled() const { return cancelled_; }
  std::optional<Request> last_request() {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  std::vector<std::int32_t> finished_at() {
    const std::lock_guard lock(mutex_);
    return finished_at_;
  }

  const EngineInfo& info() const override { return info_; }
  RequestId next_request_id() override { return RequestId{++next_id_}; }
  Result<void> admissible(std::int64_t) const override {
    const std::lock_guard lock(mutex_);
    return admission_;
  }
  Result<void> check(const Request&) const override {
    const std::lock_guard lock(mutex_);
    return verdict_;
  }
  Result<void> submit(Request request, Sink sink) override {
    const std::lock_guard lock(mutex_);
    if (!verdict_) return verdict_;
    if (draining_) return fail(ErrorCode::kUnavailable, "draining");
    ++submitted_;
    ++active_;
    last_ = request;
    Running r{.request = std::move(request), .sink = std::move(sink), .choices = {}};
    for (std::int32_t k = 0; k < r.request.n; ++k)
      r.choices.push_back({.tokens = script_(r.request, k), .at = 0, .done = false, .stop_at = -1});
    running_.emplace(r.request.id, std::move(r));
    changed_.notify_all();
    return {};
  }
  bool forecast(std::shared_ptr<const Request> request, std::function<void(const Forecast&)> sink) override {
    if (draining_) return false;
    const std::lock_guard lock(mutex_);
    sink({.cached_tokens = static_cast<std::int32_t>(request->prompt.size()) / 2,
          .waiting = 3,
          .running = active_,
          .queue_s = 0.25,
          .first_token_s = 0.5});
    return true;
  }
  void pause(RequestId id, bool paused) override {
    {
      const std::lock_guard lock(mutex_);
      if (running_.contains(id)) running_.at(id).paused = paused;
    }
    changed_.notify_all();
  }
  void cancel(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      if (!running_.contains(id)) return;
      running_.at(id).cancelled = true;
      ++cancelled_;
    }
    changed_.notify_all();
  }
  void finish_at(RequestId id, std::int32_t choice, std::int32_t tokens) override {
    const std::lock_guard lock(mutex_);
    finished_at_.push_back(tokens);
    if (running_.contains(id)) running_.at(id).choices[static_cast<std::size_t>(choice)].stop_at = tokens;
    changed_.notify_all();
  }
  void drain() override { draining_ = true; }
  bool failed() const override { return failed_; }
  void set_failed() { failed_ = true; }
  std::int64_t active() const override {
    const std::lock_guard lock(mutex_);
    return active_;
  }
  void set_tiers(TierMetrics tiers) {
    const std::lock_guard lock(mutex_);
    metrics_.tiers = std::move(tiers);
  }
  EngineMetrics metrics() const override {
    const std::lock_guard lock(mutex_);
    return metrics_;
  }

  static TokenLogprobs logprobs_of(TokenId id, std::int32_t top) {
    TokenLogprobs lp{.id = id, .logprob = -0.5F - 0.001F * static_cast<float>(id), .rank = 1, .top = {}};
    for (std::int32_t k = 0; k < top; ++k)
      lp.top.push_back({(id + k) % kFakeVocab, lp.logprob - static_cast<float>(k)});
    return lp;
  }

 private:
  struct Choice {
    std::vector<TokenId> tokens;
    std::size_t at;
    bool done;
    std::int32_t stop_at;
  };
  struct Running {
    Request request;
    Sink sink;
    std::vector<Choice> choices;
    bool cancelled = false, paused = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || can_work(); });
      if (stopping_) return finish_all();
      std::vector<RequestId> over;
      for (auto& [id, r] : running_) {
        if (ready(r)) step(r);
        if (std::all_of(r.choices.begin(), r.choices.end(), [](const Choice& c) { return c.done; }))
          over.push_back(id);
      }
      for (const RequestId id : over) {
        running_.erase(id);
        --active_;
      }
      changed_.notify_all();
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
  bool can_work() const {
    return std::any_of(running_.begin(), running_.end(),
                       [&](const auto& r) { return ready(r.second); });
  }
  bool ready(const Running& r) const { return r.cancelled || (!held_ && !r.paused); }
  void finish_all() {
    for (auto& [id, r] : running_) {
      r.cancelled = true;
      step(r);
    }
    running_.clear();
    active_ = 0;
  }
  void step(Running& r) {
    for (std::size_t k = 0; k < r.choices.size(); ++k) {
      Choice& c = r.choices[k];
      if (c.done) continue;
      TokenEvent e;
      e.request = r.request.id;
      e.choice = static_cast<std::int32_t>(k);
      e.first_index = static_cast<std::int32_t>(c.at);
      if (r.cancelled) {
        e.finish = FinishReason::kAbort;
      } else if (c.stop_at >= 0) {
        e.finish = FinishReason::kStop;
      } else {
        advance(r, c, e, k == 0);
      }
      c.done = e.finish != FinishReason::kNone;
      e.stats = {.prompt_tokens = static_cast<std::int32_t>(r.request.prompt.size()),
                 .cached_tokens = 3,
                 .preemptions = 0,
                 .arrived_s = 1,
                 .first_scheduled_s = 1.5,
                 .first_token_s = 2,
                 .last_token_s = 3,
                 .seed = 7};
      if (c.done) ++metrics_.finished[static_cast<std::size_t>(e.finish)];
      r.sink(std::move(e));
    }
  }
  void advance(const Running& r, Choice& c, TokenEvent& e, bool first_choice) {
    const SamplingParams& s = r.request.sampling;
    if (r.request.embeds) {
      e.embedding = embed_(r.request);
      e.finish = e.embedding.empty() ? FinishReason::kError : FinishReason::kStop;
      if (e.embedding.empty())
        e.error = Error{ErrorCode::kBadNumbers, "The model produced invalid numbers for this request.", "", 0};
      return;
    }
    if (c.at == 0 && first_choice && s.prompt_logprobs) {
      for (const TokenId id : r.request.prompt)
        e.prompt_logprobs.push_back(logprobs_of(id, *s.prompt_logprobs));
      e.prompt_logprobs[0] = TokenLogprobs{.id = r.request.prompt[0], .logprob = 0, .rank = 0, .top = {}};
    }
    if (c.at < static_cast<std::size_t>(s.max_tokens) && c.at < c.tokens.size()) {
      const TokenId id = c.tokens[c.at++];
      e.tokens.push_back({.id = id, .logprobs = std::nullopt});
      if (s.logprobs) e.tokens[0].logprobs = logprobs_of(id, *s.logprobs);
      if (id == kEnd && !s.ignore_eos) {
        e.finish = FinishReason::kStop;
        e.stop_token = id;
        return;
      }
    }
    if (c.at >= static_cast<std::size_t>(s.max_tokens) || c.at >= c.tokens.size())
      e.finish = FinishReason::kLength;
  }

  EngineInfo info_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Running> running_;
  Script script_ = [](const Request&, std::int32_t) { return std::vector<TokenId>{'o', 'k', kEnd}; };
  std::function<std::vector<float>(const Request&)> embed_;  // before the first request
  Result<void> admission_, verdict_;
  bool held_ = false, stopping_ = false;
  std::int64_t active_ = 0;
  std::optional<Request> last_;
  std::vector<std::int32_t> finished_at_;
  EngineMetrics metrics_;
  std::atomic<bool> draining_{false}, failed_{false};
  std::atomic<std::uint64_t> next_id_{0};
  std::atomic<std::int64_t> submitted_{0}, cancelled_{0};
  std::jthread thread_;
};

}  // namespace barg::test
