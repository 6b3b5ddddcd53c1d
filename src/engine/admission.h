// Admission: the bounded front of the queue. Answers "would a request be taken now?" from atomics alone, so
// that a refusal costs nothing and is decided before tokenising.
//
// A request is *waiting* from enter() to leave(): from submission until a step names it or it ends. The
// bounds are on waiting requests and their prompt tokens; a lone request always enters, however long.
// retry_after = waiting tokens (prompts, and the usual output of each request) / measured speed, in [1, 600]
// s.
//
// Threads: every method from any thread. It does not own requests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "barg/config.h"
#include "barg/result.h"
#include "engine/metrics.h"

namespace barg::engine {

/// What a client hears when the device is lost; what happened to it is for the log.
inline constexpr const char* kDeviceLost = "the engine has stopped after a device error";

class Admission {
 public:
  explicit Admission(const SchedulerOptions& options)
      : max_requests_(options.max_num_queued_reqs), max_tokens_(options.max_num_queued_tokens) {}

  /// kRateLimited or kUnavailable with retry_after_s; counts the refusal.
  Result<void> check(std::int64_t prompt_tokens) const;
  /// check() and take the place in one step. The rest of a batch `follows` its first request: only a stopping
  /// engine refuses it, else a batch longer than the queue could never enter.
  Result<void> enter(std::int64_t prompt_tokens, bool follows = false);
  void leave(std::int64_t prompt_tokens);

  void drain() { draining_.store(true); }
  /// The device is lost: nothing enters any more.
  void fail() { failed_.store(true); }
  bool failed() const { return failed_.load(); }
  /// Smoothed: rows the device computes per second, tokens an answer has.
  void set_speed(double tokens_per_second, double output_tokens);
  void count(Rejection reason) const { rejections_[static_cast<std::size_t>(reason)].fetch_add(1); }

  /// Seconds until the backlog of now is worked off, as defined above.
  double retry_after() const;
  double tokens_per_second() const { return tokens_per_second_.load(); }
  std::array<std::uint64_t, kNumRejections> rejections() const;

 private:
  Result<void> judge(std::int64_t waiting_requests, std::int64_t waiting_tokens,
                     std::int64_t prompt_tokens) const;
  std::unexpected<Error> refuse(ErrorCode code, Rejection reason, const char* message) const;

  const std::int64_t max_requests_;
  const std::int64_t max_tokens_;
  std::atomic<std::int64_t> waiting_requests_{0};
  std::atomic<std::int64_t> waiting_tokens_{0};
  std::atomic<double> tokens_per_second_{0};
  std::atomic<double> output_tokens_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> failed_{false};
  mutable std::array<std::atomic<std::uint64_t>, kNumRejections> rejections_{};
};

}  // namespace barg::engine
