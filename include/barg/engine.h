// Engine: submit token requests, receive token events. One engine serves one model; a process may hold several.
//
// Threads: every method may be called from any thread. The sink is called on the engine's own thread and must
// return quickly and never throw or call back into the engine (post to your own strand).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "barg/config.h"
#include "barg/request.h"
#include "barg/result.h"

namespace barg {

/// What a front end needs to know of the model behind an engine. Constant after creation.
struct EngineInfo {
  std::int32_t vocab_size = 0;     ///< ids that may be sampled (padding rows excluded)
  std::int32_t max_model_len = 0;  ///< tokens of prompt plus output that fit
  std::int32_t block_size = 0;
  std::int64_t num_blocks = 0;     ///< of the full-attention group
  std::vector<TokenId> end_ids;
  std::string numerics_id;         ///< names recipe, constants, kernel epoch, device class
  std::string model_digest;        ///< hex; of all weight bytes
  EmbeddingInfo embedding;         ///< size 0: the model generates; else it embeds, and only that
};

struct EngineMetrics;  // src/engine/metrics.h

/// What a request with a given prompt would meet now.
struct Forecast {
  std::int32_t cached_tokens = 0;  ///< of the prompt: the device's pool has them
  std::int64_t waiting = 0;        ///< sequences that wait for their first blocks
  std::int64_t running = 0;
  double queue_s = 0;              ///< until its first step, from the backlog and the measured speed
  double first_token_s = 0;        ///< until its first token; 0: nothing has been measured yet
};

class Engine {
 public:
  using Sink = std::function<void(TokenEvent&&)>;

  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;
  virtual RequestId next_request_id() = 0;

  /// Would a request of about `prompt_tokens` be accepted now? Costs nothing; called before tokenising.
  /// Fails with kRateLimited or kUnavailable and retry_after_s computed from backlog and measured speed.
  virtual Result<void> admissible(std::int64_t prompt_tokens) const = 0;

  /// What submit() would refuse whatever the queue is: values out of range, more than the whole pool could hold.
  virtual Result<void> check(const Request& request) const = 0;

  /// Moves the request into the bounded inbox. A refused request produces no event. After success the sink
  /// receives exactly one final event per choice, whatever happens.
  virtual Result<void> submit(Request request, Sink sink) = 0;

  /// Idempotent; legal at any moment, also for finished or unknown ids. Takes effect before the next step.
  virtual void cancel(RequestId id) = 0;
  /// A stop string ended choice `choice` after `output_tokens` tokens: finish it with kStop.
  virtual void finish_at(RequestId id, std::int32_t choice, std::int32_t output_tokens) = 0;

  /// The reader of this request is behind: compute nothing more of it until pause(id, false). It gives its
  /// blocks back and goes on later as if nothing had happened. Takes effect before the next step.
  virtual void pause(RequestId id, bool paused) = 0;

  /// Refuse new requests from now on (kUnavailable); running ones go on.
  virtual void drain() = 0;
  /// Requests that have not had their last event.
  virtual std::int64_t active() const = 0;
  /// The device is lost: nothing will be served any more, only a new process can.
  virtual bool failed() const { return false; }

  /// Answers once, on the engine's own thread; computes and changes nothing. False: the engine has stopped, and no
  /// answer comes.
  virtual bool forecast(std::shared_ptr<const Request> request, std::function<void(const Forecast&)> sink) = 0;

  /// Consistent copy of all counters.
  virtual EngineMetrics metrics() const = 0;
};

}  // namespace barg
