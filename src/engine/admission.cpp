#include "engine/admission.h"

#include <algorithm>
#include <cmath>

namespace barg::engine {

double Admission::retry_after() const {
  const double speed = tokens_per_second_.load();
  if (speed <= 0) return 1;
  const double backlog = static_cast<double>(waiting_tokens_.load()) +
                         static_cast<double>(waiting_requests_.load()) * output_tokens_.load();
  return std::clamp(std::ceil(backlog / speed), 1.0, 600.0);
}

std::unexpected<Error> Admission::refuse(ErrorCode code, Rejection reason, const char* message) const {
  count(reason);
  return std::unexpected(Error{code, message, {}, retry_after()});
}

Result<void> Admission::judge(std::int64_t waiting_requests, std::int64_t waiting_tokens,
                              std::int64_t prompt_tokens) const {
  if (failed_.load()) {
    return refuse(ErrorCode::kUnavailable, Rejection::kFailed, kDeviceLost);
  }
  if (draining_.load()) {
    return refuse(ErrorCode::kUnavailable, Rejection::kDraining, "the server is shutting down");
  }
  if (waiting_requests >= max_requests_) {
    return refuse(ErrorCode::kRateLimited, Rejection::kQueueRequests, "too many requests are waiting");
  }
  if (waiting_requests > 0 && waiting_tokens + prompt_tokens > max_tokens_) {
    return refuse(ErrorCode::kRateLimited, Rejection::kQueueTokens, "too many prompt tokens are waiting");
  }
  return {};
}

Result<void> Admission::check(std::int64_t prompt_tokens) const {
  return judge(waiting_requests_.load(), waiting_tokens_.load(), prompt_tokens);
}

// The place is taken first and given back on refusal: two submitters at the last place cannot both get it.
Result<void> Admission::enter(std::int64_t prompt_tokens, bool follows) {
  const std::int64_t requests = waiting_requests_.fetch_add(1);
  const std::int64_t tokens = waiting_tokens_.fetch_add(prompt_tokens);
  auto verdict = judge(follows ? 0 : requests, tokens, prompt_tokens);
  if (!verdict) leave(prompt_tokens);
  return verdict;
}

void Admission::leave(std::int64_t prompt_tokens) {
  waiting_requests_.fetch_sub(1);
  waiting_tokens_.fetch_sub(prompt_tokens);
}

void Admission::set_speed(double tokens_per_second, double output_tokens) {
  tokens_per_second_.store(tokens_per_second);
  output_tokens_.store(output_tokens);
}

std::array<std::uint64_t, kNumRejections> Admission::rejections() const {
  std::array<std::uint64_t, kNumRejections> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = rejections_[i].load();
  return out;
}

}  // namespace barg::engine
