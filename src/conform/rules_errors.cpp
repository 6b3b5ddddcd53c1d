// Refusals: the status that clients act on, and the body that people read.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

/// The chat endpoint is there and works: otherwise a refusal says nothing.
std::optional<Verdict> no_chat(Session& s) { return blocked(s, {"chat"}); }

Verdict status_is(const Exchange& e, int status) {
  if (!e.complete()) return failed("no answer: " + e.problem, e.request);
  return e.status == status ? pass() : failed("answered with " + std::to_string(e.status), e.request + " -> " + e.body);
}

Verdict chat_status(Session& s, std::string_view probe, int status) {
  if (auto verdict = no_chat(s)) return *verdict;
  return status_is(s.exchange(probe), status);
}

Verdict shape(Session& s) {
  if (auto verdict = no_chat(s)) return *verdict;
  int refusals = 0;
  for (const char* probe : {"error.json", "error.type", "error.empty", "error.model", "error.route", "error.method"}) {
    const Exchange& e = s.exchange(probe);
    if (e.status < 400) continue;
    ++refusals;
    const Json* error = at(s.json(probe), "error");
    if (error == nullptr || !error->is_object())
      return failed("an error is not {\"error\": {...}}", e.request + " -> " + e.body);
    for (const char* key : {"message", "type", "param", "code"}) {
      if (at(*error, key) == nullptr)
        return failed(std::string("an error has no key ") + key, e.request + " -> " + e.body);
    }
    if (text_at(*error, "message").empty() || text_at(*error, "type").empty())
      return failed("message or type is empty", e.request + " -> " + e.body);
  }
  return refusals > 0 ? pass() : not_applicable("nothing was refused");
}

Verdict code(Session& s) {
  if (auto verdict = no_chat(s)) return *verdict;
  for (const char* probe : {"error.json", "error.type", "error.model", "error.long"}) {
    const Exchange& e = s.exchange(probe);
    const Json* value = at(s.json(probe), "error.code");
    if (e.status >= 400 && value != nullptr && !value->is_string() && !value->is_null())
      return failed("code is neither a string nor null", e.request + " -> " + e.body);
  }
  return pass();
}

Verdict malformed(Session& s) { return chat_status(s, "error.json", 400); }
Verdict empty(Session& s) { return chat_status(s, "error.empty", 400); }
Verdict missing(Session& s) { return chat_status(s, "error.missing", 400); }
Verdict range(Session& s) { return chat_status(s, "error.range", 400); }
Verdict method(Session& s) { return chat_status(s, "error.method", 405); }
Verdict top_logprobs(Session& s) { return chat_status(s, "error.top_logprobs", 400); }

Verdict wrong_type(Session& s) {
  const Verdict verdict = chat_status(s, "error.type", 400);
  if (verdict.kind != Verdict::Kind::kPass) return verdict;
  const std::string param = text_at(s.json("error.type"), "error.param");
  return param == "top_p" ? pass() : failed("param does not name the field top_p", s.exchange("error.type").body);
}

Verdict in_stream(Session& s) {
  const Verdict verdict = chat_status(s, "error.stream", 400);
  if (verdict.kind != Verdict::Kind::kPass) return verdict;
  return at(s.json("error.stream"), "error") != nullptr
             ? pass()
             : failed("the body is no JSON error", s.exchange("error.stream").body);
}

Verdict model(Session& s) {
  if (auto verdict = no_chat(s)) return *verdict;
  const Exchange& e = s.exchange("error.model");
  if (e.complete() && e.status == 200) return not_applicable("the server answers under any name");
  const Verdict verdict = status_is(e, 404);
  if (verdict.kind != Verdict::Kind::kPass) return verdict;
  return text_at(s.json("error.model"), "error.code") == "model_not_found"
             ? pass()
             : failed("code is not model_not_found", e.body);
}

Verdict route(Session& s) {
  const Exchange& e = s.exchange("error.route");
  const Verdict verdict = status_is(e, 404);
  if (verdict.kind != Verdict::Kind::kPass) return verdict;
  return s.json("error.route").is_object() ? pass() : failed("the body is no JSON object", e.body);
}

Verdict too_long(Session& s) {
  if (auto verdict = no_chat(s)) return *verdict;
  const std::int64_t length = s.context_length();
  if (length <= 0 || length > (1 << 18))
    return not_applicable("the server does not say how long its context is, or it is over 262144");
  const Exchange& e = s.exchange("error.long");
  const Verdict verdict = status_is(e, 400);
  if (verdict.kind != Verdict::Kind::kPass) return verdict;
  return text_at(s.json("error.long"), "error.code") == "context_length_exceeded"
             ? pass()
             : failed("code is not context_length_exceeded", e.body);
}

Verdict prompts(Session& s) {
  if (auto verdict = blocked(s, {"completions"})) return *verdict;
  return status_is(s.exchange("error.prompts"), 400);
}

Verdict never_5xx(Session& s) {
  if (auto verdict = no_chat(s)) return *verdict;
  for (const char* probe :
       {"hostile.array", "hostile.null", "hostile.content", "hostile.role", "hostile.items", "hostile.messages",
        "hostile.deep", "hostile.utf8", "hostile.tools", "hostile.format", "hostile.bias"}) {
    const Exchange& e = s.exchange(probe);
    if (!e.complete()) return failed("a bad request got no answer: " + e.problem, e.request);
    if (e.status >= 500)
      return failed("a bad request is answered with " + std::to_string(e.status), e.request + " -> " + e.body);
  }
  const Exchange e = exchange_once(s.options().target, s.request("models"), s.options().timeout_s);
  return e.status == 200 ? pass() : failed("after the bad requests the server does not answer: " + e.problem);
}

constexpr Rule kRules[] = {
    {"errors.shape", "An error is {\"error\": {message, type, param, code}}, all four keys.",
     "OpenAI's schema requires them.", shape},
    {"errors.code", "code is a string or null.", "openai-python types it so; vLLM and llama.cpp send a number.", code},
    {"errors.malformed_json", "A body that is no JSON is 400.", "500 makes clients repeat it twice.", malformed},
    {"errors.wrong_type", "A field of a wrong type is 400, and param names it.", "422 and 500 are what others send.",
     wrong_type},
    {"errors.out_of_range", "A value out of range is 400.", "Silent clamping hides mistakes.", range},
    {"errors.in_stream_request", "A bad request that asks for a stream is 400 with JSON, not a stream.",
     "Clients look at the status first.", in_stream},
    {"errors.empty_messages", "An empty list of messages is 400.", "llama.cpp's own test allows 500.", empty},
    {"errors.missing_messages", "A missing list of messages is 400.", "The field is required.", missing},
    {"errors.unknown_model", "A model that is not there is 404 model_not_found.", "OpenAI's status and code.", model},
    {"errors.unknown_route", "A path that is not there is 404 with JSON.", "HTML cannot be parsed.", route},
    {"errors.method", "A method that a path does not have is 405.", "RFC 9110, 15.5.6.", method},
    {"errors.too_long", "A prompt over the context is 400 context_length_exceeded.",
     "Agents match this code to compact; Ollama 4967: it was cut silently.", too_long},
    {"errors.top_logprobs", "top_logprobs without logprobs is 400.", "OpenAI's reference says so.", top_logprobs},
    {"errors.empty_prompts", "An empty list of prompts is 400.", "There is nothing to answer.", prompts},
    {"errors.never_5xx", "No bad request is a server error, or ends the server.",
     "openai-python repeats 5xx twice: triple work.", never_5xx},
};

}  // namespace

const RuleGroup kErrorRules{"errors", "Refusals", kRules};

}  // namespace barg::conform
