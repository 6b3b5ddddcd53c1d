// EngineMetrics: every number the engine can tell, as one plain struct that Engine::metrics() copies.
//
// Names follow the `vllm:` metrics they become (src/server/metrics_text.cpp renders them; nothing here knows
// the text format). Counters never decrease. What a "request" metric counts:
//   per request:  params_n, params_max_tokens, prompt_tokens, prefill_computed_tokens, max_generation_tokens,
//                 ttft, queue, e2e, inference, prefill; prompt counters when choice 0 has its first token
//   per choice:   finished[], generation_tokens (counter and histogram), inter_token, time_per_output_token,
//   decode
// The engine thread is the only writer; a copy is consistent because it is taken under the engine's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "barg/request.h"
#include "sched/restore.h"
#include "store/stack.h"

namespace barg {

/// Fixed-size histogram: bucket i counts values <= bounds[i] and above the bound before it (not cumulative);
/// the last bucket, counts[size], is +Inf.
class Histogram {
 public:
  static constexpr std::size_t kMaxBounds = 24;

  Histogram() = default;
  /// REQUIRES ascending bounds, at most kMaxBounds.
  explicit Histogram(std::span<const double> bounds);

  void observe(double value, std::uint64_t times = 1);

  std::span<const double> bounds() const { return {bounds_.data(), size_}; }
  /// bounds().size() + 1 entries.
  std::span<const std::uint64_t> counts() const { return {counts_.data(), size_ + 1}; }
  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::array<double, kMaxBounds> bounds_{};
  std::array<std::uint64_t, kMaxBounds + 1> counts_{};
  std::size_t size_ = 0;
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

/// Why a request was turned away before it got an id in the queue.
enum class Rejection : std::uint8_t { kQueueRequests, kQueueTokens, kDraining, kFailed, kTooLong, kInvalid };
inline constexpr std::size_t kNumRejections = 6;
const char* rejection_name(Rejection r);

/// "stop", "length", "abort", "error"; the label values of request_success.
const char* finish_reason_name(FinishReason r);

/// Blocks of all groups, weighted by bytes where a ratio is formed.
struct KvUsage {
  std::int64_t total_blocks = 0;
  std::int64_t active_blocks = 0;  ///< referenced by a sequence
  std::int64_t cached_blocks = 0;  ///< hold a reusable prefix, evictable
  std::int64_t fenced_blocks = 0;  ///< wait for a step in flight
  std::int64_t free_blocks = 0;
  double usage = 0;           ///< 0..1, active (and fenced) share of the pool
  double waste_tail = 0;      ///< share of allocated bytes: empty slots of last blocks
  double waste_reserved = 0;  ///< share: blocks reserved and not yet written at all
  double waste_fenced = 0;    ///< share: blocks that wait for a step to retire
};

/// What the tiers below the device's pool did. Complete only in what Engine::metrics() returns.
struct TierMetrics {
  bool on = false;               ///< there are tiers; else nothing here means anything
  store::StackStats stack;       ///< by kind of tier, saves that were dropped, verification
  sched::TierCounters restore;   ///< lookups, choices, forecasts against what came
  /// Prompt tokens that were not computed, by the place that had them (sched::Place).
  std::array<std::uint64_t, sched::kNumPlaces> cached_tokens{};
};
/// "dram", "disk", "remote"; the label values of the tier metrics. "device" is place 0.
const char* tier_name(store::TierKind kind);
const char* place_name(sched::Place place);
/// "recompute", "reload", "both".
const char* restore_choice_name(sched::RestoreChoice choice);

struct EngineMetrics {
  /// Histograms with vLLM's buckets; token-count buckets are the 1-2-5 series up to `max_model_len`.
  explicit EngineMetrics(std::int32_t max_model_len = 0);

  // -- gauges
  std::int64_t num_requests_running = 0;
  std::int64_t num_requests_waiting = 0;  ///< = waiting_capacity + waiting_deferred
  std::int64_t waiting_capacity = 0;
  std::int64_t waiting_deferred = 0;
  std::int64_t num_requests_paused = 0;  ///< sequences whose readers are behind; neither running nor waiting
  KvUsage kv;
  double tokens_per_second = 0;  ///< measured speed of the device, rows per second (smoothed)

  // -- counters
  std::uint64_t prefix_cache_queries = 0;  ///< tokens looked up, once per admission
  std::uint64_t prefix_cache_hits = 0;     ///< tokens found
  std::uint64_t num_preemptions = 0;
  std::uint64_t prompt_tokens = 0;             ///< prompt tokens whose prefill is complete (computed or hit)
  std::uint64_t prompt_tokens_cached = 0;      ///< of these, found in the cache
  std::uint64_t prompt_tokens_computed = 0;    ///< of these, computed
  std::uint64_t prompt_tokens_recomputed = 0;  ///< computed again after a preemption (not in the two above)
  std::uint64_t generation_tokens = 0;
  std::array<std::uint64_t, 5> finished{};  ///< index = FinishReason; choices
  std::uint64_t corrupted_requests = 0;     ///< choices failed by NaN logits
  std::uint64_t queue_timeouts = 0;         ///< requests
  std::array<std::uint64_t, kNumRejections> rejections{};
  std::uint64_t steps = 0;
  std::uint64_t mixed_steps = 0;  ///< prefill and decode in one step
  double device_seconds = 0;      ///< time the device worked
  TierMetrics tiers;

  // -- histograms of token counts
  Histogram request_prompt_tokens, request_generation_tokens, request_max_num_generation_tokens,
      request_params_max_tokens, request_prefill_kv_computed_tokens, request_params_n, iteration_tokens_total;
  // -- histograms of seconds
  Histogram time_to_first_token, inter_token_latency, time_per_output_token, e2e_request_latency,
      request_queue_time, request_inference_time, request_prefill_time, request_decode_time, step_seconds,
      plan_seconds;
};

}  // namespace barg
