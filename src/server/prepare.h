// prepare: the bytes of a chat or completion request become engine requests, or the one reason why not. Runs
// on the CPU pool: parsing, rendering and tokenising are the only slow things the server does itself.
//
// Order: JSON -> model -> fields -> admission by a byte estimate -> length bound by bytes -> render and
// tokenise
// -> exact length. So a full server refuses before it spends time, and an impossible prompt is not tokenised.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/result.h"
#include "server/openai_json.h"
#include "server/response_stream.h"
#include "server/server_state.h"

namespace barg::server {

struct Prepared {
  const ServedModel* model = nullptr;  ///< owned by the ServerState
  OutputSpec output;
  std::int32_t n = 1;
  std::vector<Request> requests;  ///< one per prompt; ids are not set
  std::vector<PromptInfo> prompts;
  std::vector<std::string> ignored;
  std::int32_t clamped_max_tokens = 0;  ///< > 0: what max_tokens became
};

/// `api_key`: the one that came with the request, empty where none is asked for.
Result<Prepared> prepare(const ServerState& state, Api api, std::string_view body, std::string_view api_key);

/// The model a body names, or kNotFound.
Result<const ServedModel*> find_model(const ServerState& state, const Json& body);

}  // namespace barg::server
