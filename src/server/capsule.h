// Capsule: what a capture has left (capture.h), read back. Strict: every member is there, of its type and in its range,
// and no other is; a file of another version is refused as such. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "barg/request.h"
#include "barg/result.h"
#include "base/json.h"
#include "server/answer_writer.h"
#include "server/http.h"

namespace barg::server {

struct Capsule {
  using Place = std::pair<std::size_t, std::int32_t>;  // prompt, choice

  struct Output {
    std::uint64_t seed = 0;
    std::vector<TokenId> ids;
  };
  struct Step {
    Place place;
    std::size_t tokens = 0, prompt_logprobs = 0;
    FinishReason finish = FinishReason::kNone;
    TokenId stop = kNoToken;
    RequestStats stats;  ///< cached tokens, and the seconds that it took as last_token_s
  };
  struct Failure {
    bool refused = false;  ///< before anything was computed; else in the middle of it
    std::string code, message;
  };

  HttpRequest request;
  ResponseMeta meta;
  std::int64_t utc_offset = 0;
  std::string build, answer;
  std::string model_digest, numerics_id;
  Json settings;  ///< null where the request named no model
  std::optional<Failure> failure;
  std::map<Place, Output> outputs;
  std::vector<Step> steps;
  std::vector<std::string> truncated;  ///< members that are not whole
};

/// kInvalidValue names the first member that is wrong, `param` too.
Result<Capsule> read_capsule(const Json& json);

}  // namespace barg::server
