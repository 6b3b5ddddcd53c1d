#include "engine/validate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "barg/constraint.h"

namespace barg::engine {
namespace {

std::unexpected<Error> out_of_range(const char* param, const std::string& allowed) {
  return fail(ErrorCode::kInvalidValue, std::string(param) + " must be " + allowed, param);
}

/// False for NaN too.
bool within(double value, double low, double high) { return value >= low && value <= high; }

bool all_in_vocab(const std::vector<TokenId>& ids, std::int32_t vocab) {
  return std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return id >= 0 && id < vocab; });
}

Result<void> check_numbers(const SamplingParams& s) {
  if (!within(s.temperature, 0, 2)) return out_of_range("temperature", "between 0 and 2");
  if (!(s.top_p > 0 && s.top_p <= 1)) return out_of_range("top_p", "above 0 and at most 1");
  if (!within(s.min_p, 0, 1)) return out_of_range("min_p", "between 0 and 1");
  if (s.top_k < -1) return out_of_range("top_k", "-1, 0 or positive");
  if (!(s.repetition_penalty > 0 && s.repetition_penalty <= 1e6F)) {
    return out_of_range("repetition_penalty", "above 0");
  }
  if (!within(s.frequency_penalty, -2, 2)) return out_of_range("frequency_penalty", "between -2 and 2");
  if (!within(s.presence_penalty, -2, 2)) return out_of_range("presence_penalty", "between -2 and 2");
  if (s.max_tokens < 0) return out_of_range("max_tokens", "at least 0");
  if (s.min_tokens < 0 || s.min_tokens > s.max_tokens) {
    return out_of_range("min_tokens", "between 0 and max_tokens");
  }
  if (s.logprobs && !within(*s.logprobs, 0, 20)) return out_of_range("logprobs", "between 0 and 20");
  if (s.prompt_logprobs && !within(*s.prompt_logprobs, 0, 20)) {
    return out_of_range("prompt_logprobs", "between 0 and 20");
  }
  return {};
}

/// A model embeds or generates, and is asked for that.
Result<void> check_purpose(const Request& request, const EngineInfo& info) {
  const SamplingParams& s = request.sampling;
  if (request.embeds != (info.embedding.size > 0)) {
    return fail(ErrorCode::kUnsupported,
                request.embeds ? "this model generates and computes no embeddings"
                               : "this model computes embeddings and generates nothing",
                "model");
  }
  if (request.embeds && request.n != 1) return out_of_range("n", "1 for embeddings");
  if (request.embeds && (s.max_tokens != 0 || s.prompt_logprobs))
    return out_of_range("max_tokens", "0 for embeddings, without prompt_logprobs");
  if (!request.embeds && s.max_tokens == 0 && !s.prompt_logprobs)
    return out_of_range("max_tokens", "at least 1 unless prompt_logprobs is set");
  return {};
}

Result<void> check_reasoning(const ReasoningLimit& limit, std::int32_t vocab) {
  constexpr std::size_t kMaxMarker = 64;
  if (limit.budget < 0) return out_of_range("thinking_token_budget", "at least 0");
  const bool sizes = !limit.close.empty() && limit.close.size() <= kMaxMarker && limit.begin.size() <= kMaxMarker;
  if (sizes && all_in_vocab(limit.close, vocab) && all_in_vocab(limit.begin, vocab)) return {};
  return out_of_range("thinking_token_budget", "given with markers of 1 to 64 token ids below " + std::to_string(vocab));
}

Result<void> check_ids(const SamplingParams& s, std::int32_t vocab) {
  const std::string range = "token ids below " + std::to_string(vocab);
  if (!all_in_vocab(s.allowed_token_ids, vocab)) return out_of_range("allowed_token_ids", range);
  if (!all_in_vocab(s.banned_token_ids, vocab)) return out_of_range("banned_token_ids", range);
  if (!all_in_vocab(s.stop_token_ids, vocab)) return out_of_range("stop_token_ids", range);
  if (s.reasoning) {
    if (auto ok = check_reasoning(*s.reasoning, vocab); !ok) return ok;
  }
  for (const auto& [id, value] : s.logit_bias) {
    if (id < 0 || id >= vocab) return out_of_range("logit_bias", "keyed by " + range);
    if (!within(value, -100, 100)) return out_of_range("logit_bias", "values between -100 and 100");
  }
  return {};
}

/// A constrained output is whole: nothing may prolong it or cut it.
Result<void> check_constraint(const Request& request, const EngineInfo& info) {
  const SamplingParams& s = request.sampling;
  if (s.constraint == nullptr) return {};
  const auto never = [](const char* param) {
    return fail(ErrorCode::kInvalidValue,
                std::string(param) + " cannot be given with a structured output, which ends where it is complete", param);
  };
  if (s.min_tokens > 0) return never("min_tokens");
  if (s.ignore_eos) return never("ignore_eos");
  std::int64_t needed = s.constraint->min_tokens();
  if (s.reasoning && s.reasoning->open) needed += static_cast<std::int64_t>(s.reasoning->close.size());
  const std::string shortest = "the shortest answer of the requested form takes " + std::to_string(needed) + " tokens";
  const std::int64_t room = info.max_model_len - static_cast<std::int64_t>(request.prompt.size());
  if (room < needed) {
    return fail(ErrorCode::kContextLengthExceeded,
                shortest + ", and behind the prompt the context length leaves " + std::to_string(room), "prompt");
  }
  if (s.max_tokens >= needed) return {};
  return fail(ErrorCode::kInvalidValue, "max_tokens must be at least " + std::to_string(needed) + ": " + shortest,
              "max_tokens");
}

}  // namespace

Result<void> validate_request(const Request& request, const EngineInfo& info) {
  if (request.prompt.empty()) return out_of_range("prompt", "at least one token");
  if (!all_in_vocab(request.prompt, info.vocab_size)) {
    return out_of_range("prompt", "token ids below " + std::to_string(info.vocab_size));
  }
  if (!request.spans.empty()) {
    return fail(ErrorCode::kUnsupported, "this model takes text only", "messages");
  }
  if (request.n < 1 || request.n > 128) return out_of_range("n", "between 1 and 128");
  if (auto ok = check_purpose(request, info); !ok) return ok;
  if (auto ok = check_numbers(request.sampling); !ok) return ok;
  if (auto ok = check_ids(request.sampling, info.vocab_size); !ok) return ok;
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt + (request.sampling.max_tokens > 0 ? 1 : 0) > info.max_model_len) {
    return fail(ErrorCode::kContextLengthExceeded,
                "the prompt has " + std::to_string(prompt) + " tokens, the context length is " +
                    std::to_string(info.max_model_len) + " tokens including the output",
                "prompt");
  }
  return check_constraint(request, info);
}

}  // namespace barg::engine
