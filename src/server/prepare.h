// prepare: the bytes of a request become engine requests, or the one reason why not. Runs on the CPU pool: parsing,
// rendering and tokenising are the only slow things the server does itself.
//
// Order: JSON -> model -> fields (the protocol's parser) -> admission by a byte estimate -> length bound by bytes ->
// constraint -> render and tokenise -> exact length. So a full server refuses before it spends time, and an impossible prompt is not
// tokenised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/result.h"
#include "server/http.h"
#include "server/openai_json.h"
#include "server/protocol.h"
#include "server/response_stream.h"
#include "server/server_state.h"
#include "text/grammar/schema.h"

namespace barg::server {

struct Prepared {
  const ServedModel* model = nullptr;  ///< owned by the ServerState
  OutputSpec output;
  std::int32_t n = 1;
  std::vector<Request> requests;  ///< one per prompt; ids are not set
  std::vector<PromptInfo> prompts;
  std::vector<std::string> ignored;
  std::vector<text::grammar::Unenforced> unenforced;  ///< of its constraint
  std::int32_t clamped_max_tokens = 0;  ///< > 0: what max_tokens became
  std::time_t created = 0;              ///< `now`
  /// It asks for a constraint that is not there, which takes longer than others may wait: once more, with may_compile.
  bool must_compile = false;
};

/// `api_key`: the one that came with the request, empty where none is asked for. `now`: unix seconds, which templates
/// may show and the answer carries. `may_compile`: this thread delays no other request.
Result<Prepared> prepare(const ServerState& state, const Protocol& protocol, const HttpRequest& http,
                         std::string_view api_key, std::time_t now, bool may_compile);

// ---- its steps, for those who show them

struct Parsed {
  const ServedModel* model = nullptr;  ///< owned by the ServerState
  ApiRequest request;                  ///< with its salt derived, and all that its template is told
  Json body;
};
Result<Parsed> parse_request(const ServerState& state, const Protocol& protocol, const HttpRequest& http,
                             std::string_view api_key, std::time_t now);
inline constexpr std::int64_t kBytesPerToken = 4;  ///< of ordinary text, for estimates of admission
/// Tokens of a text of so many bytes, at least.
std::int64_t least_tokens(const Tokenizer& tokenizer, std::size_t bytes);
/// What is refused without tokenising: a full queue, and a prompt whose bytes alone cannot fit.
Result<void> check_before(const ServedModel& model, const Protocol& protocol, const ApiRequest& request);
/// Gives `request` the constraint it asks for, if any. Without `may_compile` one that is not there is out.must_compile.
Result<void> bind_constraint(const ServerState& state, const ServedModel& model, ApiRequest& request, bool may_compile,
                             Prepared& out);
/// Prompts, and what the engine is asked for each. Where one is refused, those before it are there, and the one itself as
/// far as it could be made.
Result<void> make_prompts(const ServedModel& model, const Protocol& protocol, const ApiRequest& api, Prepared& out);

/// The prompt of a conversation as its generation is given it: rendered with its tools, tokenised, of any length.
Result<PromptInfo> render_prompt(const ServedModel& model, const Protocol& protocol, ApiRequest& request);

/// The model a body names, or kNotFound.
Result<const ServedModel*> find_model(const ServerState& state, const Json& body);

}  // namespace barg::server
