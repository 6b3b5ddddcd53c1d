// Chat Completions: its fields, and what its answers need.
#include "server/chat_writer.h"

#include "server/api_error.h"
#include "server/protocols.h"
#include "server/request_rules.h"
#include "server/tool_rules.h"

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr FieldSpec kReasoningRows[] = {
    {.name = "effort", .type = kString, .about = "As reasoning_effort.", .values = kEfforts},
    {.name = "enabled", .type = kBool, .about = "Whether the model reasons first."},
    {.name = "exclude", .type = kBool, .about = "Reasoning is counted and not returned."},
    {.name = "max_tokens", .type = kInteger, .about = "As thinking_token_budget.", .min = 0, .max = 2147483647},
};
constexpr FieldSpec kThinkingRows[] = {
    {.name = "type", .type = kString, .about = "enabled or disabled.", .max = 64},
    {.name = "budget_tokens", .type = kInteger, .about = "As thinking_token_budget.", .min = 0, .max = 2147483647},
};

const FieldSpec kRows[] = {
    {.name = "messages", .type = kArray, .about = "The conversation: objects with role and content.",
     .max = kMaxMessages, .required = true},
    {.name = "max_completion_tokens", .type = kInteger,
     .about = "Most tokens of the answer, reasoning included; what remains of the context if absent.", .min = 1},
    {.name = "max_tokens", .type = kInteger, .about = "The older name of max_completion_tokens.", .min = 1},
    {.name = "logprobs", .type = kBool, .about = "The log-probability of every token of the answer's text."},
    {.name = "top_logprobs", .type = kInteger, .about = "So many most likely tokens beside each; needs logprobs.",
     .min = 0, .max = kMaxLogprobs},
    {.name = "tools", .type = kArray, .about = "What the model may call; [] is none.", .max = kMaxTools,
     .members = kToolMembers},
    {.name = "tool_choice", .about = "none, auto, required, a tool, or allowed_tools."},
    {.name = "parallel_tool_calls", .type = kBool, .about = "false: at most one call."},
    {.name = "functions", .type = kArray, .about = "The older form of tools.", .max = kMaxTools,
     .members = kFunctionMembers},
    {.name = "function_call", .about = "The older form of tool_choice."},
    {.name = "reasoning_effort", .type = kString,
     .about = "How much to reason; none turns it off, unless a switch says otherwise.", .values = kEfforts},
    {.name = "reasoning", .type = kObject, .about = "The same and more, as OpenRouter has it.",
     .members = kReasoningRows},
    {.name = "thinking", .type = kObject, .about = "The same, as GLM and DeepSeek have it.",
     .members = kThinkingRows},
    {.name = "add_generation_prompt", .type = kBool, .about = "The prompt ends where the model's answer begins."},
    {.name = "continue_final_message", .type = kBool, .about = "The answer goes on with the last message."},
    {.name = "documents", .type = kArray, .about = "For templates that show documents.", .max = kMaxMessages},
    {.name = "echo", .about = "Not supported.", .effect = kRefused},
};

void read_chat_logprobs(Fields& fields, ApiRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs");
  if (top.value_or(0) > 0 && !wanted) {
    fields.fail(ErrorCode::kInvalidValue, "top_logprobs needs logprobs to be true", "top_logprobs");
  }
  if (!wanted) return;
  request.output.logprobs = static_cast<std::int32_t>(top.value_or(0));
  request.sampling.logprobs = request.output.logprobs;
}

/// The fields that only chat has.
void read_chat_reasoning(Fields& fields, ReasoningOptions& out) {
  if (auto inner = fields.nested("reasoning")) {
    if (const auto on = inner->boolean("enabled")) set_switch(*inner, out, *on, "reasoning.enabled");
    if (auto effort = inner->string("effort")) set_effort(*inner, out, std::move(*effort), "reasoning.effort");
    if (const auto budget = inner->integer("max_tokens")) set_budget(*inner, out, *budget, "reasoning.max_tokens");
    if (inner->boolean("exclude").value_or(false)) out.show = false;
    fields.absorb(*inner);
  }
  if (auto inner = fields.nested("thinking")) {
    const auto type = inner->string("type");
    if (type) set_switch(*inner, out, *type != "disabled", "thinking.type");
    if (const auto budget = inner->integer("budget_tokens")) set_budget(*inner, out, *budget, "thinking.budget_tokens");
    fields.absorb(*inner);
  }
  if (auto effort = fields.string("reasoning_effort")) set_effort(fields, out, std::move(*effort), "reasoning_effort");
}

Result<ApiRequest> parse(const Json& body, const ParseContext& context) {
  return parse_chat_request(body, context.model.sampling, context.model.engine->info().vocab_size);
}

std::span<const FieldSpec> fields() {
  static const std::vector<FieldSpec> rows = with_shared(Api::kChat, kRows);
  return rows;
}

}  // namespace

Result<ApiRequest> parse_chat_request(const Json& body, const SamplingDefaults& defaults,
                                      std::int32_t vocab_size) {
  Fields f(body, fields());
  ApiRequest request;
  request.output.api = Api::kChat;
  read_messages(f, request.chat);
  read_generation(f, request, defaults, vocab_size);
  read_chat_logprobs(f, request);
  auto extras = std::make_shared<ChatExtras>();
  extras->functions = read_chat_tools(f, request.output.tools);
  request.output.extras = std::move(extras);
  read_chat_reasoning(f, request.output.reasoning);
  read_reasoning(f, request);
  const auto alias = f.integer("max_tokens");
  request.max_tokens = f.integer("max_completion_tokens");
  if (request.max_tokens || !alias) request.max_tokens_field = "max_completion_tokens";
  if (!request.max_tokens) request.max_tokens = alias;
  check_min_tokens(f, request);
  return finish_request(std::move(request), f);
}

const Protocol kChatProtocol = {
    .api = Api::kChat,
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .fields = fields,
    .parse = parse,
    .writer = make_chat_writer,
    .error = error_response,
    .keep_alive = ": ping\n\n",
    .prompt_field = "messages",
};

}  // namespace barg::server
