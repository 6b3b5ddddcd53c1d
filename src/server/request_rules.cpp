#include "server/request_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace barg::server {
namespace {

constexpr std::size_t kMaxLogitBias = 1024;
constexpr std::size_t kMaxStopIds = 1024;
constexpr std::size_t kMaxIdentityBytes = 1024;
constexpr std::size_t kMaxMetadata = 64;
constexpr double kMaxPinSeconds = 7 * 86'400;
constexpr double kMaxRepetitionPenalty = 100, kMinRepetitionPenalty = 0.01;
/// Below this a temperature cannot be told from greedy in float arithmetic (logits / temperature overflows).
constexpr double kGreedyBelow = 1e-5;

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

bool is_empty(const Json& v) {
  return (v.is_bool() && !v.as_bool()) || (v.is_string() && v.as_string().empty()) ||
         ((v.is_array() || v.is_object()) && v.size() == 0);
}

/// Fields whose mere presence with a meaningful value asks for something that is not built.
constexpr std::array<std::string_view, 20> kNotBuilt = {"tools",
                                                        "functions",
                                                        "suffix",
                                                        "structured_outputs",
                                                        "guided_json",
                                                        "guided_regex",
                                                        "guided_choice",
                                                        "guided_grammar",
                                                        "grammar",
                                                        "json_schema",
                                                        "regex",
                                                        "ebnf",
                                                        "use_beam_search",
                                                        "bad_words",
                                                        "logprob_token_ids",
                                                        "prompt_embeds",
                                                        "truncate_prompt_tokens",
                                                        "stop_regex",
                                                        "chat_template",
                                                        "thinking_token_budget"};

void refuse(Fields& fields, std::string_view name) {
  fields.fail(ErrorCode::kUnsupported, std::string(name) + " is not supported", name);
}

void refuse_format(Fields& fields) {
  const Json* format = fields.object("response_format");
  if (!format) return;
  const Json* type = format->find("type");
  if (!type || !type->is_string()) {
    return fields.fail(ErrorCode::kInvalidValue, "response_format.type must be a string",
                       "response_format.type");
  }
  if (type->as_string() != "text") {
    fields.fail(ErrorCode::kUnsupported, "the only supported response_format is text", "response_format");
  }
}

void refuse_choice(Fields& fields, std::string_view name) {
  const Json* choice = fields.get(name);
  if (!choice) return;
  if (choice->is_string() && (choice->as_string() == "none" || choice->as_string() == "auto")) return;
  refuse(fields, name);
}

void read_logit_bias(Fields& fields, SamplingParams& sampling, std::int32_t vocab) {
  const Json* bias = fields.object("logit_bias");
  if (!bias) return;
  if (bias->size() > kMaxLogitBias) {
    return fields.fail(ErrorCode::kInvalidValue, "logit_bias has more than 1024 entries", "logit_bias");
  }
  for (const auto& [key, value] : bias->as_object()) {
    std::int64_t id = -1;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::string name = "logit_bias." + key.substr(0, 32);
    if (ec != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
      return fields.fail(ErrorCode::kInvalidValue,
                         "logit_bias keys must be token ids from 0 to " + std::to_string(vocab - 1), name);
    }
    if (!value.is_number() || !(value.as_double() >= -100 && value.as_double() <= 100)) {
      return fields.fail(ErrorCode::kInvalidValue, "logit_bias values must be numbers from -100 to 100",
                         name);
    }
    sampling.logit_bias.emplace_back(static_cast<TokenId>(id), static_cast<float>(value.as_double()));
  }
}

void check_text_part(Fields& fields, const Json& part, const std::string& path, std::string_view role) {
  if (!part.is_object()) {
    return fields.fail(ErrorCode::kInvalidValue, path + " must be an object", path);
  }
  const Json* type = part.find("type");
  if (!type || !type->is_string()) {
    return fields.fail(ErrorCode::kInvalidValue, path + ".type must be a string", path + ".type");
  }
  const std::string& kind = type->as_string();
  const bool refusal = kind == "refusal" && role == "assistant";
  if (kind != "text" && !refusal) {
    return fields.fail(ErrorCode::kUnsupported,
                       "content parts of type " + json_quote(kind.substr(0, 32)) +
                           " are not supported; this model reads text",
                       path + ".type");
  }
  const std::string key = refusal ? "refusal" : "text";
  const Json* text = part.find(key);
  if (!text || !text->is_string()) {
    fields.fail(ErrorCode::kInvalidValue, path + "." + key + " must be a string", path + "." + key);
  }
}

void check_content(Fields& fields, const Json& message, const std::string& path, std::string_view role) {
  const Json* content = message.find("content");
  const std::string at = path + ".content";
  if (!content || content->is_null()) {
    if (role == "assistant") return;  // a turn that was only tool calls
    return fields.fail(ErrorCode::kMissingParameter, at + " is missing", at);
  }
  if (content->is_string()) return;
  if (!content->is_array()) {
    return fields.fail(ErrorCode::kInvalidValue,
                       at + " must be a string or an array of parts, not " + std::string(type_name(*content)),
                       at);
  }
  for (std::size_t i = 0; i < content->size() && fields.ok(); ++i) {
    check_text_part(fields, content->as_array()[i], at + "[" + std::to_string(i) + "]", role);
  }
}

void check_tool_calls(Fields& fields, const Json& message, const std::string& path) {
  const Json* calls = message.find("tool_calls");
  if (!calls || calls->is_null()) return;
  const std::string at = path + ".tool_calls";
  if (!calls->is_array()) return fields.fail(ErrorCode::kInvalidValue, at + " must be an array", at);
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string item = at + "[" + std::to_string(i) + "]";
    const Json* function = calls->as_array()[i].find("function");
    if (!function || !function->is_object()) {
      return fields.fail(ErrorCode::kInvalidValue, item + ".function must be an object", item + ".function");
    }
    const Json* name = function->find("name");
    if (!name || !name->is_string()) {
      return fields.fail(ErrorCode::kInvalidValue, item + ".function.name must be a string",
                         item + ".function.name");
    }
  }
}

void check_message(Fields& fields, const Json& message, const std::string& path) {
  if (!message.is_object()) return fields.fail(ErrorCode::kInvalidValue, path + " must be an object", path);
  const Json* role = message.find("role");
  if (!role || role->is_null()) {
    return fields.fail(ErrorCode::kMissingParameter, path + ".role is missing", path + ".role");
  }
  if (!role->is_string() || std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end()) {
    return fields.fail(ErrorCode::kInvalidValue,
                       path + ".role must be system, developer, user, assistant or tool", path + ".role");
  }
  check_content(fields, message, path, role->as_string());
  check_tool_calls(fields, message, path);
}

}  // namespace

void refuse_unsupported(Fields& fields, Api api) {
  for (const std::string_view name : kNotBuilt) {
    const Json* value = fields.get(name);
    if (value && !is_empty(*value)) refuse(fields, name);
  }
  refuse_format(fields);
  refuse_choice(fields, "tool_choice");
  refuse_choice(fields, "function_call");
  if (const Json* modalities = fields.array("modalities", 8)) {
    for (const Json& m : modalities->as_array()) {
      if (!m.is_string() || m.as_string() != "text") refuse(fields, "modalities");
    }
  }
  if (api == Api::kChat && fields.boolean("echo").value_or(false)) refuse(fields, "echo");
}

void read_sampling(Fields& fields, ApiRequest& request, const SamplingDefaults& defaults,
                   std::int32_t vocab) {
  SamplingParams& s = request.sampling;
  const double temperature = fields.number("temperature", 0, 2).value_or(defaults.temperature.value_or(1));
  s.temperature = temperature < kGreedyBelow ? 0.0F : static_cast<float>(temperature);
  s.top_p = static_cast<float>(fields.number("top_p", 0, 1, true).value_or(defaults.top_p.value_or(1)));
  s.min_p = static_cast<float>(fields.number("min_p", 0, 1).value_or(defaults.min_p.value_or(0)));
  const auto top_k = fields.integer("top_k", -1, std::numeric_limits<std::int64_t>::max());
  s.top_k =
      static_cast<std::int32_t>(std::min<std::int64_t>(top_k.value_or(defaults.top_k.value_or(0)), vocab));
  s.repetition_penalty =
      static_cast<float>(fields.number("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty)
                             .value_or(defaults.repetition_penalty.value_or(1)));
  s.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", -2, 2).value_or(0));
  s.presence_penalty = static_cast<float>(fields.number("presence_penalty", -2, 2).value_or(0));
  if (const auto seed = fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max())) {
    s.seed = static_cast<std::uint64_t>(*seed);
  }
  read_logit_bias(fields, s, vocab);
  const auto max_ids = static_cast<std::size_t>(std::max(vocab, 0));
  const Json* allowed = fields.get("allowed_token_ids");
  s.allowed_token_ids = fields.token_ids("allowed_token_ids", max_ids, vocab);
  if (allowed && allowed->is_array() && allowed->size() == 0) {
    fields.fail(ErrorCode::kInvalidValue, "allowed_token_ids is empty: no token could be chosen",
                "allowed_token_ids");
  }
  s.banned_token_ids = fields.token_ids("banned_token_ids", max_ids, vocab);
  s.stop_token_ids = fields.token_ids("stop_token_ids", kMaxStopIds, vocab);
  s.min_tokens = static_cast<std::int32_t>(
      fields.integer("min_tokens", 0, std::numeric_limits<std::int32_t>::max()).value_or(0));
  s.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void read_stops(Fields& fields, OutputSpec& out) {
  const Json* stop = fields.get("stop");
  if (!stop) return;
  if (!stop->is_string() && !stop->is_array()) {
    return fields.fail(ErrorCode::kInvalidValue, "stop must be a string or an array of strings", "stop");
  }
  if (stop->is_array() && stop->size() > kMaxStops) {
    return fields.fail(ErrorCode::kInvalidValue,
                       "stop has more than " + std::to_string(kMaxStops) + " strings", "stop");
  }
  const Json::Array items = stop->is_string() ? Json::Array{*stop} : stop->as_array();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string path = stop->is_string() ? "stop" : "stop[" + std::to_string(i) + "]";
    if (!items[i].is_string() || items[i].as_string().empty() ||
        items[i].as_string().size() > kMaxStopBytes) {
      return fields.fail(ErrorCode::kInvalidValue, path + " must be a string of 1 to 4096 bytes", path);
    }
    out.stop.push_back(items[i].as_string());
  }
}

void read_identity(Fields& fields, ApiRequest& request) {
  if (const Json* priority = fields.get("priority"); priority && priority->is_string()) {
    const std::string& name = priority->as_string();
    if (name == "interactive")
      request.priority = Priority::kInteractive;
    else if (name == "batch")
      request.priority = Priority::kBatch;
    else if (name != "standard")
      fields.fail(ErrorCode::kInvalidValue, "priority must be interactive, standard, batch or a whole number",
                  "priority");
  } else if (const auto n = fields.integer("priority", std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::int64_t>::max())) {
    request.priority = *n < 0 ? Priority::kInteractive : *n > 0 ? Priority::kBatch : Priority::kStandard;
  }
  if (auto salt = fields.string("cache_salt", 128)) {
    const bool bad = salt->empty() || salt->find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos;
    if (bad)
      fields.fail(ErrorCode::kInvalidValue, "cache_salt must be 1 to 128 bytes without @, /, \\ and NUL",
                  "cache_salt");
    request.cache_salt = std::move(*salt);
  }
  request.cache_pin_s = fields.number("cache_pin_s", 0, kMaxPinSeconds).value_or(0);
  if (const Json* user = fields.get("user")) {
    fields.string("user", kMaxIdentityBytes);
    if (user->is_string()) request.ignored.emplace_back("user");
  }
  if (const Json* metadata = fields.object("metadata")) {
    if (metadata->size() > kMaxMetadata)
      fields.fail(ErrorCode::kInvalidValue, "metadata has too many entries", "metadata");
    request.ignored.emplace_back("metadata");
  }
}

void read_messages(Fields& fields, text::ChatPrompt& chat) {
  const Json* messages = fields.array("messages", kMaxMessages);
  if (!messages) return fields.fail(ErrorCode::kMissingParameter, "messages is missing", "messages");
  if (messages->size() == 0) return fields.fail(ErrorCode::kInvalidValue, "messages is empty", "messages");
  for (std::size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    check_message(fields, messages->as_array()[i], "messages[" + std::to_string(i) + "]");
  }
  if (!fields.ok()) return;
  chat.messages = *messages;
  const auto generate = fields.boolean("add_generation_prompt");
  chat.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (generate.value_or(false) && chat.continue_final_message) {
    fields.fail(ErrorCode::kInvalidValue,
                "continue_final_message and add_generation_prompt exclude each other",
                "continue_final_message");
  }
  chat.add_generation_prompt = generate.value_or(!chat.continue_final_message);
  if (const Json* kwargs = fields.object("chat_template_kwargs")) chat.kwargs = *kwargs;
  if (const Json* documents = fields.array("documents", kMaxMessages)) {
    for (std::size_t i = 0; i < documents->size(); ++i) {
      const std::string path = "documents[" + std::to_string(i) + "]";
      if (!documents->as_array()[i].is_object())
        fields.fail(ErrorCode::kInvalidValue, path + " must be an object", path);
    }
    chat.documents = *documents;
  }
}

}  // namespace barg::server
