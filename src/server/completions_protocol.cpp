// Completions: its fields and its row.
#include <algorithm>

#include "server/api_error.h"
#include "server/completions_writer.h"
#include "server/protocols.h"
#include "server/request_rules.h"

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr FieldSpec kRows[] = {
    {.name = "prompt", .about = "A string, strings, token ids, or arrays of token ids.", .required = true},
    {.name = "max_tokens", .type = kInteger,
     .about = "Most tokens of the answer; 0 (with echo or prompt_logprobs) scores the prompt.", .min = 0},
    {.name = "echo", .type = kBool, .about = "The text begins with the prompt."},
    {.name = "logprobs", .type = kInteger, .about = "So many most likely tokens beside each; 0: its own only.",
     .min = 0, .max = kMaxLogprobs},
    {.name = "tools", .about = "Only chat has tools.", .effect = kRefused},
    {.name = "functions", .about = "Only chat has functions.", .effect = kRefused},
};

void read_completion_logprobs(Fields& fields, ApiRequest& request) {
  const Json* value = fields.get("logprobs");
  if (!value || (value->is_bool() && !value->as_bool())) return;
  const auto n = fields.integer("logprobs");
  if (!n) return;
  request.output.logprobs = static_cast<std::int32_t>(*n);
  request.sampling.logprobs = request.output.logprobs;
  if (request.output.echo && request.sampling.prompt_logprobs.value_or(0) < *n) {
    request.sampling.prompt_logprobs = request.output.logprobs;
  }
  if (request.output.echo && !request.sampling.prompt_logprobs) request.sampling.prompt_logprobs = 0;
}

Result<ApiRequest> parse(const Json& body, const ParseContext& context) {
  return parse_completion_request(body, context.model.sampling, context.model.engine->info().vocab_size);
}

std::span<const FieldSpec> fields() {
  static const std::vector<FieldSpec> rows = with_shared(Api::kCompletions, kRows);
  return rows;
}

void read_max_tokens(Fields& f, ApiRequest& request) {
  const auto asked = f.integer("max_tokens");
  const bool scoring = request.output.echo || request.output.prompt_logprobs;
  if (asked == 0 && !scoring)
    f.fail(ErrorCode::kInvalidValue, "max_tokens may be 0 only with echo or prompt_logprobs", "max_tokens");
  request.max_tokens = asked.value_or(std::max<std::int64_t>(kDefaultCompletionTokens, request.sampling.min_tokens));
  // A prompt that is only scored: the engine runs it for its log-probabilities.
  if (request.max_tokens == 0 && !request.sampling.prompt_logprobs) request.sampling.prompt_logprobs = 0;
}

}  // namespace

Result<ApiRequest> parse_completion_request(const Json& body, const SamplingDefaults& defaults,
                                            std::int32_t vocab_size) {
  Fields f(body, fields());
  ApiRequest request;
  request.output.api = Api::kCompletions;
  request.prompts = read_inputs(f, "prompt", kMaxPrompts, vocab_size);
  request.output.echo = f.boolean("echo").value_or(false);
  read_generation(f, request, defaults, vocab_size);
  read_completion_logprobs(f, request);
  if (static_cast<std::int64_t>(request.prompts.size()) * request.n > kMaxAllChoices) {
    f.fail(ErrorCode::kInvalidValue, "prompts times n may be at most " + std::to_string(kMaxAllChoices), "n");
  }
  read_max_tokens(f, request);
  check_min_tokens(f, request);
  return finish_request(std::move(request), f);
}

const Protocol kCompletionsProtocol = {
    .api = Api::kCompletions,
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .fields = fields,
    .parse = parse,
    .writer = make_completions_writer,
    .error = error_response,
    .keep_alive = ": ping\n\n",
    .prompt_field = "prompt",
};

}  // namespace barg::server
