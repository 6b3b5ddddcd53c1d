#include "server/request_rules.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/constraint_rules.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxLogitBias = 1024;
constexpr std::size_t kMaxMetadata = 64;
/// Below this a temperature cannot be told from greedy in float arithmetic (logits / temperature overflows).
constexpr double kGreedyBelow = 1e-5;

/// Endpoints whose rows of these names are the shared ones.
bool openai(const ApiRequest& request) {
  return request.output.api == Api::kChat || request.output.api == Api::kCompletions;
}

void refuse_modalities(Fields& fields) {
  const Json* modalities = fields.array("modalities");
  if (!modalities) return;
  for (const Json& m : modalities->as_array()) {
    if (!m.is_string() || m.as_string() != "text")
      fields.fail(ErrorCode::kUnsupported, "modalities is not supported but for text", "modalities");
  }
}

void read_stream_options(Fields& fields, OutputSpec& out) {
  auto options = fields.nested("stream_options");
  if (!options) return;
  const bool usage = options->boolean("include_usage").value_or(false);
  const bool continuous = options->boolean("continuous_usage_stats").value_or(false);
  options->boolean("include_obfuscation");
  fields.absorb(*options);
  if (!out.stream) return;  // meaningless without a stream, and standard clients send it all the same
  out.include_usage = usage;
  out.continuous_usage = usage && continuous;
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

void read_sampling(Fields& fields, ApiRequest& request, const SamplingDefaults& defaults,
                   std::int32_t vocab) {
  SamplingParams& s = request.sampling;
  const double temperature = fields.number("temperature").value_or(defaults.temperature.value_or(1));
  s.temperature = temperature < kGreedyBelow ? 0.0F : static_cast<float>(temperature);
  s.top_p = static_cast<float>(fields.number("top_p").value_or(defaults.top_p.value_or(1)));
  s.min_p = static_cast<float>(fields.number("min_p").value_or(defaults.min_p.value_or(0)));
  const auto top_k = fields.integer("top_k");
  s.top_k =
      static_cast<std::int32_t>(std::min<std::int64_t>(top_k.value_or(defaults.top_k.value_or(0)), vocab));
  s.repetition_penalty =
      static_cast<float>(fields.number("repetition_penalty")
                             .value_or(defaults.repetition_penalty.value_or(1)));
  s.frequency_penalty = static_cast<float>(fields.number("frequency_penalty").value_or(0));
  s.presence_penalty = static_cast<float>(fields.number("presence_penalty").value_or(0));
  // Any int64, as OpenAI's; its bits are the seed. -1 says in other servers: any.
  if (const auto seed = fields.integer("seed"); seed && *seed != -1) s.seed = static_cast<std::uint64_t>(*seed);
  read_logit_bias(fields, s, vocab);
  const Json* allowed = fields.get("allowed_token_ids");
  s.allowed_token_ids = fields.token_ids("allowed_token_ids", vocab);
  if (allowed && allowed->is_array() && allowed->size() == 0) {
    fields.fail(ErrorCode::kInvalidValue, "allowed_token_ids is empty: no token could be chosen",
                "allowed_token_ids");
  }
  s.banned_token_ids = fields.token_ids("banned_token_ids", vocab);
  s.stop_token_ids = fields.token_ids("stop_token_ids", vocab);
  s.min_tokens = static_cast<std::int32_t>(
      fields.integer("min_tokens").value_or(0));
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

void read_client(Fields& fields) {
  fields.string("user");
  if (const Json* metadata = fields.object("metadata"); metadata && metadata->size() > kMaxMetadata)
    fields.fail(ErrorCode::kInvalidValue, "metadata has too many entries", "metadata");
}

void read_choices(Fields& fields, ApiRequest& request) {
  request.n = static_cast<std::int32_t>(fields.integer("n").value_or(1));
  if (const auto best_of = fields.integer("best_of"); best_of && *best_of != request.n) {
    fields.fail(ErrorCode::kUnsupported, "best_of is supported only where it equals n", "best_of");
  }
}

void read_output(Fields& fields, ApiRequest& request) {
  OutputSpec& out = request.output;
  out.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  out.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  out.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(out.api == Api::kCompletions);
  if (const auto n = fields.integer("prompt_logprobs")) {
    out.prompt_logprobs = true;
    request.sampling.prompt_logprobs = static_cast<std::int32_t>(*n);
    if (out.stream)
      fields.fail(ErrorCode::kInvalidValue, "prompt_logprobs cannot be streamed", "prompt_logprobs");
  }
}

void contradiction(Fields& fields, const std::string& one, const std::string& other) {
  fields.fail_at(ErrorCode::kInvalidValue, one + " and " + other + " contradict each other", other);
}

/// What cannot be given with a constraint, as far as the request alone says so.
void check_constraint(Fields& fields, const ApiRequest& request) {
  const ConstraintSpec& spec = request.constraint;
  if (!spec || !fields.ok()) return;
  const ToolOptions& tools = request.output.tools;
  if (tools.must_call()) {
    fields.fail_at(ErrorCode::kInvalidValue,
                   tools.mode_by + " asks for a call, and " + spec.field + " for a text: give one of them", tools.mode_by);
  }
  if (request.max_tokens == 0) {
    fields.fail_at(ErrorCode::kInvalidValue,
                   spec.field + " binds the answer, and with max_tokens 0 there is none", spec.field);
  }
}

}  // namespace

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
  } else if (priority) {
    const auto n = whole_number(*priority);
    if (!n)
      return fields.fail(ErrorCode::kInvalidValue, "priority must be interactive, standard, batch or a whole number",
                         "priority");
    request.priority = *n < 0 ? Priority::kInteractive : *n > 0 ? Priority::kBatch : Priority::kStandard;
  }
  if (auto salt = fields.string("cache_salt")) {
    const bool bad = salt->empty() || salt->find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos;
    if (bad)
      fields.fail(ErrorCode::kInvalidValue, "cache_salt must be 1 to 128 bytes without @, /, \\ and NUL",
                  "cache_salt");
    request.cache_salt = std::move(*salt);
  }
  request.cache_pin_s = fields.number("cache_pin_s").value_or(0);
}

void read_generation(Fields& fields, ApiRequest& request, const SamplingDefaults& defaults, std::int32_t vocab) {
  fields.get("model");
  fields.refuse_unsupported();
  request.output.stream = fields.boolean("stream").value_or(false);
  read_sampling(fields, request, defaults, vocab);
  read_identity(fields, request);
  request.output.min_tokens = request.sampling.min_tokens;
  if (fields.knows("stop")) read_stops(fields, request.output);
  read_constraint(fields, request.constraint);
  if (!openai(request)) return;
  refuse_modalities(fields);
  read_stream_options(fields, request.output);
  read_choices(fields, request);
  read_client(fields);
  read_output(fields, request);
}

void set_switch(Fields& fields, ReasoningOptions& reasoning, bool on, std::string path) {
  if (reasoning.enabled.value_or(on) != on) return contradiction(fields, reasoning.enabled_by, path);
  if (reasoning.enabled) return;
  reasoning.enabled = on;
  reasoning.enabled_by = std::move(path);
}

void set_effort(Fields& fields, ReasoningOptions& reasoning, std::string effort, std::string path) {
  if (!reasoning.effort.empty() && reasoning.effort != effort)
    return contradiction(fields, reasoning.effort_by, path);
  reasoning.effort = std::move(effort);
  reasoning.effort_by = std::move(path);
}

void set_budget(Fields& fields, ReasoningOptions& reasoning, std::int64_t tokens, std::string path) {
  if (reasoning.budget.value_or(tokens) != tokens) return contradiction(fields, reasoning.budget_by, path);
  reasoning.budget = static_cast<std::int32_t>(tokens);
  reasoning.budget_by = std::move(path);
}

void read_reasoning(Fields& fields, ApiRequest& request) {
  ReasoningOptions& r = request.output.reasoning;
  if (const Json* kwargs = fields.object("chat_template_kwargs")) {
    request.chat.kwargs = *kwargs;
    for (const char* name : {"enable_thinking", "thinking"}) {
      const Json* v = kwargs->find(name);
      if (v && v->is_bool()) set_switch(fields, r, v->as_bool(), std::string("chat_template_kwargs.") + name);
    }
  }
  if (const auto on = fields.boolean("enable_thinking")) set_switch(fields, r, *on, "enable_thinking");
  if (const auto budget = fields.integer("thinking_token_budget"); budget && *budget >= 0)
    set_budget(fields, r, *budget, "thinking_token_budget");
  r.show = fields.boolean("include_reasoning").value_or(r.show);
  r.separate = fields.boolean("separate_reasoning").value_or(r.separate);
}

void check_min_tokens(Fields& fields, const ApiRequest& request) {
  if (request.max_tokens && request.sampling.min_tokens > *request.max_tokens) {
    fields.fail(ErrorCode::kInvalidValue, "min_tokens is larger than max_tokens", "min_tokens");
  }
}

/// Unknown fields are listed, not refused: clients send many. strict_params refuses them.
Result<ApiRequest> finish_request(ApiRequest request, Fields& fields) {
  request.strict = fields.boolean("strict_params").value_or(false);
  check_constraint(fields, request);
  if (!fields.ok()) return std::unexpected(*fields.error());
  for (std::string& name : fields.unread()) request.ignored.push_back(std::move(name));
  if (auto ok = check_strict(request); !ok) return std::unexpected(ok.error());
  return request;
}

Result<void> check_strict(const ApiRequest& request) {
  if (!request.strict || request.ignored.empty()) return {};
  return fail(ErrorCode::kUnsupported, "with strict_params: a field that has no effect here",
              request.ignored.front());
}

}  // namespace barg::server
