#include "server/handlers.h"
#include "server/responses_request.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "server/constraint_rules.h"
#include "server/request_rules.h"
#include "server/responses_extras.h"
#include "server/responses_ids.h"
#include "server/responses_items.h"
#include "server/responses_seal.h"
#include "server/responses_tools.h"
#include "server/responses_truncate.h"
#include "server/server_state.h"

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr double kMaxIdBytes = 256, kMaxIncludes = 32;
constexpr std::size_t kMaxMetadata = 64, kMaxMetadataKey = 256, kMaxMetadataValue = 4096;
/// Of the members that the answer itself adds to its object: the store is asked for all of its room at once.
constexpr std::size_t kHeadRoom = 1024;
constexpr std::size_t kMaxReferencedBytes =
    16 << 20;  ///< of stored items that one request's references have parsed
constexpr std::string_view kSealInclude = "reasoning.encrypted_content";
constexpr std::string_view kLogprobsInclude = "message.output_text.logprobs";

constexpr std::string_view kTruncations[] = {"auto", "disabled"};

constexpr FieldSpec kReasoningRows[] = {
    {.name = "effort",
     .type = kString,
     .about = "How much to reason; none turns it off.",
     .values = kEfforts},
    {.name = "summary", .type = kString, .about = "Accepted; reasoning is returned as it is.", .max = 64},
    {.name = "generate_summary", .type = kString, .about = "The older name of summary.", .max = 64},
    {.name = "context",
     .about = "Ignored: the template decides which earlier reasoning it shows.",
     .effect = kIgnored},
    {.name = "mode", .about = "Ignored.", .effect = kIgnored},
};
const FieldSpec kTextRows[] = {
    {.name = "format", .type = kObject, .about = "Of the answer.", .members = kFormatRows},
    {.name = "verbosity", .about = "Ignored.", .effect = kIgnored},
};
constexpr FieldSpec kStreamRows[] = {
    {.name = "include_obfuscation", .about = "Accepted; nothing is padded."},
};

const FieldSpec kOwn[] = {
    {.name = "input",
     .about = "A text, or items: messages, calls and their outputs, reasoning, references. Needed without "
              "previous_response_id."},
    {.name = "instructions", .type = kString, .about = "The first system message, of this turn only."},
    {.name = "previous_response_id",
     .type = kString,
     .about = "The stored answer that this one continues.",
     .max = kMaxIdBytes},
    {.name = "store",
     .type = kBool,
     .about = "Keep the answer under its id (the default), where the server stores any."},
    {.name = "background", .type = kBool, .about = "Answer at once with status queued; needs store."},
    {.name = "include",
     .type = kArray,
     .about = "reasoning.encrypted_content, message.output_text.logprobs; others are ignored.",
     .max = kMaxIncludes},
    {.name = "tools",
     .type = kArray,
     .about = "function, custom and namespace; others are skipped.",
     .max = kMaxTools},
    {.name = "tool_choice", .about = "none, auto, required, a tool, or allowed_tools."},
    {.name = "parallel_tool_calls", .type = kBool, .about = "false: at most one call."},
    {.name = "reasoning",
     .type = kObject,
     .about = "Whether and how much to reason.",
     .members = kReasoningRows},
    {.name = "text", .type = kObject, .about = "Of the answer's text.", .members = kTextRows},
    {.name = "max_output_tokens",
     .type = kInteger,
     .about = "Most tokens of the answer, reasoning included; what remains of the context if absent.",
     .min = 1},
    {.name = "max_tool_calls",
     .type = kInteger,
     .about = "Ignored: it counts calls of built-in tools.",
     .min = 1,
     .effect = kIgnored},
    {.name = "top_logprobs",
     .type = kInteger,
     .about = "So many most likely tokens beside each, where log-probabilities are included.",
     .min = 0,
     .max = kMaxLogprobs},
    {.name = "truncation",
     .type = kString,
     .about = "auto: the oldest items are left out until the rest fits.",
     .values = kTruncations},
    {.name = "metadata", .type = kObject, .about = "Strings that the answer's object repeats."},
    {.name = "stream_options", .type = kObject, .about = "Without effect.", .members = kStreamRows},
    {.name = "include_stop_str_in_output", .type = kBool, .about = "The stop string is part of the answer."},
    {.name = "skip_special_tokens", .type = kBool, .about = "Special tokens are not shown (the default)."},
    {.name = "prompt_cache_key",
     .type = kString,
     .about = "Ignored: equal prefixes are found by themselves.",
     .max = 1024,
     .effect = kIgnored},
    {.name = "safety_identifier", .type = kString, .about = "Ignored.", .max = 1024, .effect = kIgnored},
    {.name = "user", .type = kString, .about = "Ignored.", .max = 1024, .effect = kIgnored},
    {.name = "service_tier", .about = "Ignored.", .effect = kIgnored},
    {.name = "prompt_cache_retention", .about = "Ignored; see cache_pin_s.", .effect = kIgnored},
    {.name = "prompt_cache_options", .about = "Ignored; see cache_pin_s.", .effect = kIgnored},
    {.name = "context_management", .about = "Ignored.", .effect = kIgnored},
    {.name = "moderation", .about = "Ignored.", .effect = kIgnored},
    {.name = "client_metadata", .about = "Ignored.", .effect = kIgnored},
    {.name = "request_id", .about = "Ignored: send X-Request-Id.", .effect = kIgnored},
    {.name = "conversation", .about = "Not supported: use previous_response_id.", .effect = kRefused},
    {.name = "prompt", .about = "Not supported: there are no stored templates.", .effect = kRefused},
};

bool present(const Json* v) { return v && !v->is_null(); }

Json given_or(const Json& body, const char* name, Json fallback) {
  const Json* v = body.find(name);
  return present(v) ? *v : std::move(fallback);
}

/// Reads one body. What several fields decide together is settled in the order of run().
class Parser {
 public:
  Parser(const Json& body, const ParseContext& context)
      : body_(body),
        context_(context),
        fields_(body, responses_fields()),
        extras_(std::make_shared<ResponsesExtras>()),
        store_(context.state.responses.get()) {}

  Result<ApiRequest> run();

 private:
  void read_store();
  void read_input();
  void read_items(ItemReader& reader);
  void read_history(ItemReader& reader);
  void read_reasoning_member();
  void read_text();
  void read_include();
  void read_metadata();
  void read_limits();
  std::optional<Json> stored_item(const std::string& id);
  void echo();
  void keep(std::string input);

  const Json& body_;
  const ParseContext& context_;
  Fields fields_;
  ApiRequest request_;
  std::shared_ptr<ResponsesExtras> extras_;
  ResponseStore* const store_;
  bool keep_ = false;                         ///< the answer is to be stored
  std::shared_ptr<StoredResponse> previous_;  ///< null: none
  std::size_t referenced_bytes_ = 0;
  bool truncate_ = false;
  std::size_t left_out_ = 0;  ///< messages, by truncation
};

void Parser::read_store() {
  extras_->owner = key_owner(context_.api_key);
  const bool wanted = fields_.boolean("store").value_or(true);
  const bool possible = store_ && store_->enabled();
  keep_ = wanted && possible;
  extras_->background = fields_.boolean("background").value_or(false);
  if (extras_->background && !keep_) {
    fields_.fail(ErrorCode::kInvalidValue,
                 possible ? "background needs store to be true"
                          : "background needs stored responses, and this server stores none",
                 "background");
  }
  const auto previous = fields_.string("previous_response_id");
  if (!previous || !fields_.ok()) return;
  previous_ = store_ ? store_->find(*previous, extras_->owner) : nullptr;
  if (!previous_) {
    fields_.fail(ErrorCode::kNotFound,
                 "Previous response with id " + json_quote(previous->substr(0, 64)) + " not found." +
                     (possible ? "" : " This server stores no responses."),
                 "previous_response_id");
  } else if (!previous_->finished()) {
    fields_.fail(ErrorCode::kInvalidValue, "the previous response is still running", "previous_response_id");
  }
}

void Parser::read_history(ItemReader& reader) {
  if (!previous_) return;
  const std::vector<ItemList> lists = previous_->conversation();
  if (lists.size() > kMaxConversationLists)
    return fields_.fail(ErrorCode::kInvalidValue, "the conversation has too many turns",
                        "previous_response_id");
  for (const ItemList& list : lists) {
    const auto items = parse_json(*list, {.max_members = 0});
    if (!items || !items->is_array()) continue;
    for (const Json& item : items->as_array()) reader.add(item, "previous_response_id", false);
  }
}

void Parser::read_items(ItemReader& reader) {
  const Json* input = fields_.get("input");
  if (!input) {
    if (previous_) return;
    return fields_.fail(ErrorCode::kMissingParameter, "input is missing", "input");
  }
  if (input->is_string()) {
    const Json item = Json::object({{"type", "message"}, {"role", "user"}, {"content", *input}});
    return reader.add(item, "input", keep_);
  }
  if (!input->is_array())
    return fields_.fail(ErrorCode::kInvalidValue,
                        "input must be a string or an array of items, not " + std::string(type_name(*input)),
                        "input");
  for (std::size_t i = 0; i < input->size() && fields_.ok(); ++i)
    reader.add(input->as_array()[i], "input[" + std::to_string(i) + "]", keep_);
}

std::optional<Json> Parser::stored_item(const std::string& id) {
  const auto response_id = response_of_item(id);
  const auto response = response_id && store_ ? store_->find(*response_id, extras_->owner) : nullptr;
  if (!response || !response->finished()) return std::nullopt;
  const auto search = [&](const ItemList& list, bool input) -> std::optional<Json> {
    referenced_bytes_ += list->size();
    if (referenced_bytes_ > kMaxReferencedBytes) return std::nullopt;
    auto items = parse_json(*list, {.max_members = 0});
    if (!items || !items->is_array()) return std::nullopt;
    for (std::size_t i = 0; i < items->size(); ++i) {
      Json& item = items->as_array()[i];
      const Json* own = item.find("id");
      const bool named = own && own->is_string();
      if (named ? own->as_string() == id : input && id == input_item_id(item, *response_id, i))
        return std::move(item);
    }
    return std::nullopt;
  };
  if (auto found = search(response->output(), false)) return found;
  return search(response->origin().input, true);
}

void Parser::read_input() {
  const auto instructions = fields_.string("instructions");
  const std::string scope = extras_->owner;
  ItemReader reader(
      fields_, request_.ignored,
      [&](const std::string& sealed) { return open_reasoning(extras_->secret, scope, sealed); },
      [&](const std::string& id) { return stored_item(id); });
  if (instructions && !instructions->empty()) reader.add_text("system", *instructions);
  read_history(reader);
  read_items(reader);
  if (!fields_.ok()) return;
  request_.chat.messages = Json(reader.take());
  request_.chat.add_generation_prompt = true;
  if (request_.chat.messages.size() == 0)
    fields_.fail(ErrorCode::kInvalidValue, "input has nothing that the model could read", "input");
  if (keep_) keep(reader.kept());
}

void Parser::keep(std::string input) {
  StoredResponse::Origin origin{.owner = extras_->owner,
                                .history = previous_ ? previous_->conversation() : std::vector<ItemList>(),
                                .input = std::make_shared<const std::string>(std::move(input)),
                                .background = extras_->background,
                                .streamed = request_.output.stream};
  extras_->record = std::make_shared<StoredResponse>(std::move(origin));
  extras_->store = store_;
}

void Parser::read_reasoning_member() {
  auto inner = fields_.nested("reasoning");
  if (!inner) return;
  if (auto effort = inner->string("effort")) set_effort(*inner, request_.output.reasoning, std::move(*effort), "reasoning.effort");
  for (const char* name : {"summary", "generate_summary"}) inner->string(name);
  fields_.absorb(*inner);
}

void Parser::read_text() {
  auto text = fields_.nested("text");
  if (!text) return;
  if (auto format = text->nested("format")) {
    read_format(*format, "text.format", request_.constraint);
    text->absorb(*format);
  }
  fields_.absorb(*text);
}

void Parser::read_include() {
  const Json* include = fields_.array("include");
  bool logprobs = false;
  for (std::size_t i = 0; include && i < include->size(); ++i) {
    const Json& item = include->as_array()[i];
    const std::string path = "include[" + std::to_string(i) + "]";
    if (!item.is_string()) return fields_.fail(ErrorCode::kInvalidValue, path + " must be a string", path);
    if (item.as_string() == kSealInclude)
      extras_->seal = true;
    else if (item.as_string() == kLogprobsInclude)
      logprobs = true;
    else
      request_.ignored.push_back(path);
  }
  const auto top = fields_.integer("top_logprobs");
  if (logprobs) {
    request_.output.logprobs = static_cast<std::int32_t>(top.value_or(0));
    request_.sampling.logprobs = request_.output.logprobs;
  } else if (top.value_or(0) > 0) {
    request_.ignored.emplace_back("top_logprobs");
  }
}

void Parser::read_metadata() {
  const Json* metadata = fields_.object("metadata");
  if (!metadata) return;
  bool fine = metadata->size() <= kMaxMetadata;
  for (const auto& [key, value] : metadata->as_object())
    fine = fine && key.size() <= kMaxMetadataKey && value.is_string() &&
           value.as_string().size() <= kMaxMetadataValue;
  if (!fine)
    fields_.fail(ErrorCode::kInvalidValue, "metadata must be at most 64 short strings under short names",
                 "metadata");
}

void Parser::read_limits() {
  request_.max_tokens = fields_.integer("max_output_tokens");
  request_.max_tokens_field = "max_output_tokens";
  fields_.integer("max_tool_calls");
  truncate_ = fields_.string("truncation") == "auto";
  for (const char* name : {"prompt_cache_key", "safety_identifier", "user"}) fields_.string(name);
  if (auto options = fields_.nested("stream_options")) {
    options->get("include_obfuscation");
    fields_.absorb(*options);
  }
  request_.output.include_stop = fields_.boolean("include_stop_str_in_output").value_or(false);
  request_.output.skip_special_tokens = fields_.boolean("skip_special_tokens").value_or(true);
}

/// The members that Open Responses wants to be there, as they are in effect.
void Parser::echo() {
  const SamplingDefaults& defaults = context_.model.sampling;
  const Json* reasoning = body_.find("reasoning");
  const auto of_reasoning = [&](const char* name) {
    const Json* v = present(reasoning) ? reasoning->find(name) : nullptr;
    return v ? *v : Json(nullptr);
  };
  Json text = given_or(body_, "text", Json::object());
  if (!present(text.find("format"))) text.set("format", Json::object({{"type", "text"}}));
  Json& o = extras_->object;
  o.set("previous_response_id", given_or(body_, "previous_response_id", nullptr));
  o.set("instructions", given_or(body_, "instructions", nullptr));
  o.set("max_output_tokens", given_or(body_, "max_output_tokens", nullptr));
  o.set("max_tool_calls", given_or(body_, "max_tool_calls", nullptr));
  o.set("metadata", given_or(body_, "metadata", Json::object()));
  o.set("parallel_tool_calls", request_.output.tools.parallel);
  o.set("reasoning",
        Json::object({{"effort", of_reasoning("effort")}, {"summary", of_reasoning("summary")}}));
  o.set("safety_identifier", given_or(body_, "safety_identifier", nullptr));
  o.set("prompt_cache_key", given_or(body_, "prompt_cache_key", nullptr));
  o.set("service_tier", "default");
  o.set("temperature", given_or(body_, "temperature", defaults.temperature.value_or(1)));
  o.set("top_p", given_or(body_, "top_p", defaults.top_p.value_or(1)));
  o.set("presence_penalty", given_or(body_, "presence_penalty", 0));
  o.set("frequency_penalty", given_or(body_, "frequency_penalty", 0));
  o.set("top_logprobs", given_or(body_, "top_logprobs", 0));
  o.set("truncation", truncate_ ? "auto" : "disabled");
  if (left_out_ > 0) o.set("truncated_messages", static_cast<std::int64_t>(left_out_));
  o.set("user", given_or(body_, "user", nullptr));
  o.set("text", std::move(text));
  o.set("tool_choice", given_or(body_, "tool_choice", "auto"));
  o.set("tools", given_or(body_, "tools", Json::array()));
}

Result<ApiRequest> Parser::run() {
  request_.output.api = Api::kResponses;
  const std::string& salt = context_.model.salt_secret;
  extras_->secret = !salt.empty() ? salt : store_ ? store_->secret() : std::string();
  read_generation(fields_, request_, context_.model.sampling, context_.model.engine->info().vocab_size);
  read_store();
  read_limits();
  read_include();
  read_metadata();
  read_text();
  read_responses_tools(fields_, request_.output.tools, extras_->spaces, request_.ignored);
  read_reasoning_member();
  read_reasoning(fields_, request_);
  check_min_tokens(fields_, request_);
  if (fields_.ok()) read_input();
  request_.output.extras = extras_;
  auto finished = finish_request(std::move(request_), fields_);
  if (!finished) return finished;
  request_ = std::move(*finished);
  if (truncate_) left_out_ = truncate_messages(request_, context_.model);
  echo();
  if (extras_->record) extras_->record->begin(dump_json(extras_->object) + std::string(kHeadRoom, ' '));
  return std::move(request_);
}

}  // namespace

std::span<const FieldSpec> responses_fields() {
  static const std::vector<FieldSpec> rows = [] {
    std::vector<FieldSpec> all = with_shared(Api::kResponses, kOwn);
    for (FieldSpec& row : all) {
      if (row.name == "tools") row.members = responses_tool_fields();
    }
    return all;
  }();
  return rows;
}

Result<ApiRequest> parse_responses_request(const Json& body, const ParseContext& context) {
  return Parser(body, context).run();
}

}  // namespace barg::server
