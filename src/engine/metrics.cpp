#include "engine/metrics.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace barg {
namespace {

constexpr double kTtft[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                            1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kInterToken[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                  .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
constexpr double kRequestTime[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                   30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr double kN[] = {1, 2, 5, 10, 20};
constexpr double kIterationTokens[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr double kPlanSeconds[] = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, .001, .01, .1};
constexpr double kStepSeconds[] = {.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10};

/// vLLM's build_1_2_5_buckets: 1, 2, 5, 10, ... not above the model's length.
std::vector<double> one_two_five(std::int32_t max_value) {
  std::vector<double> out;
  for (double scale = 1; out.size() < Histogram::kMaxBounds; scale *= 10) {
    for (const double m : {1.0, 2.0, 5.0}) {
      if (m * scale > max_value || out.size() == Histogram::kMaxBounds) return out;
      out.push_back(m * scale);
    }
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::span<const double> bounds) : size_(bounds.size()) {
  CHECK(bounds.size() <= kMaxBounds);
  CHECK(std::is_sorted(bounds.begin(), bounds.end()));
  std::copy(bounds.begin(), bounds.end(), bounds_.begin());
}

void Histogram::observe(double value, std::uint64_t times) {
  const auto end = bounds_.begin() + static_cast<std::ptrdiff_t>(size_);
  counts_[static_cast<std::size_t>(std::lower_bound(bounds_.begin(), end, value) - bounds_.begin())] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

const char* rejection_name(Rejection r) {
  switch (r) {
    case Rejection::kQueueRequests:
      return "queue_requests";
    case Rejection::kQueueTokens:
      return "queue_tokens";
    case Rejection::kDraining:
      return "draining";
    case Rejection::kFailed:
      return "engine_failed";
    case Rejection::kTooLong:
      return "too_long";
    case Rejection::kInvalid:
      return "invalid";
  }
  return "?";
}

const char* finish_reason_name(FinishReason r) {
  switch (r) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

const char* tier_name(store::TierKind kind) {
  switch (kind) {
    case store::TierKind::kDram:
      return "dram";
    case store::TierKind::kDisk:
      return "disk";
    case store::TierKind::kRemote:
      return "remote";
  }
  return "?";
}

const char* place_name(sched::Place place) {
  if (place == sched::Place::kDevice) return "device";
  if (place == sched::Place::kNowhere) return "nowhere";
  return tier_name(static_cast<store::TierKind>(static_cast<std::uint8_t>(place) - 1));
}

const char* restore_choice_name(sched::RestoreChoice choice) {
  switch (choice) {
    case sched::RestoreChoice::kRecompute:
      return "recompute";
    case sched::RestoreChoice::kReload:
      return "reload";
    case sched::RestoreChoice::kBoth:
      return "both";
  }
  return "?";
}

EngineMetrics::EngineMetrics(std::int32_t max_model_len)
    : request_params_n(kN),
      iteration_tokens_total(kIterationTokens),
      time_to_first_token(kTtft),
      inter_token_latency(kInterToken),
      time_per_output_token(kInterToken),
      e2e_request_latency(kRequestTime),
      request_queue_time(kRequestTime),
      request_inference_time(kRequestTime),
      request_prefill_time(kRequestTime),
      request_decode_time(kRequestTime),
      step_seconds(kStepSeconds),
      plan_seconds(kPlanSeconds) {
  const auto tokens = one_two_five(std::max(max_model_len, 1));
  for (Histogram* h : {&request_prompt_tokens, &request_generation_tokens, &request_max_num_generation_tokens,
                       &request_params_max_tokens, &request_prefill_kv_computed_tokens}) {
    *h = Histogram(tokens);
  }
}

}  // namespace barg
