// The body of POST /v1/embeddings, checked once and completely. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "barg/engine.h"
#include "barg/result.h"
#include "base/json.h"
#include "server/json_fields.h"
#include "server/openai_json.h"

namespace barg::server {

struct EmbeddingsRequest {
  ApiRequest common;     ///< prompts (the inputs), add_special_tokens, priority, salt, what was ignored
  bool base64 = false;   ///< else arrays of numbers
  std::int32_t size = 0; ///< numbers of a vector
  bool normalise = true;
  std::optional<std::int32_t> truncate;  ///< an input keeps at most so many tokens; absent: a longer one is refused
};

inline constexpr std::size_t kMaxInputs = 2048;

std::span<const FieldSpec> embeddings_fields();
/// `info`: of an engine that embeds.
Result<EmbeddingsRequest> parse_embeddings_request(const Json& body, const EngineInfo& info);

}  // namespace barg::server
