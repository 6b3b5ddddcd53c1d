// Heads, framing and connections: what a proxy or a client library needs before it sees any JSON.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

Verdict framing(Session& s) {
  if (auto verdict = blocked(s, {"models", "chat", "chat.stream"})) return *verdict;
  for (const char* probe : {"models", "chat", "chat.stream", "error.route"}) {
    const Exchange& e = s.exchange(probe);
    if (e.end != Exchange::End::kComplete) return failed(e.problem, e.head);
    if (e.chunked && e.length) return failed("an answer has both Content-Length and chunks", e.head);
    if (!e.extra.empty()) return failed("bytes follow the end of an answer", e.extra);
  }
  return pass();
}

Verdict json_type(Session& s) {
  if (auto verdict = blocked(s, {"models", "chat"})) return *verdict;
  for (const char* probe : {"models", "chat", "error.json"}) {
    const Exchange& e = s.exchange(probe);
    const std::string* type = e.header("content-type");
    if (type == nullptr || !type->starts_with("application/json"))
      return failed("a JSON answer is not application/json", e.head);
  }
  return pass();
}

Verdict request_id(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.stream"})) return *verdict;
  for (const char* probe : {"chat", "chat.stream", "error.json"}) {
    const std::string* id = s.exchange(probe).header("x-request-id");
    if (id == nullptr || id->empty()) return failed("an answer has no x-request-id", s.exchange(probe).head);
  }
  if (*s.exchange("chat").header("x-request-id") == *s.exchange("chat.stream").header("x-request-id"))
    return failed("two answers have the same x-request-id", s.exchange("chat").head);
  return pass();
}

/// The connection must last through all of them.
Verdict lasts(Session& s, std::string_view name, std::initializer_list<std::string_view> probes) {
  const std::vector<Exchange>& all = s.sequence(name, probes);
  for (const Exchange& e : all) {
    if (e.end != Exchange::End::kComplete) return failed("a request on a kept connection: " + e.problem, e.request);
    if (!e.extra.empty()) return failed("bytes that nobody asked for are left on the connection", e.extra);
  }
  if (all.empty()) return failed("no connection");
  if (all.size() < probes.size()) return failed("the server closed the connection after an answer", all.back().head);
  if (all.back().status != 200) return failed("the last request was answered with another status", all.back().head);
  return pass();
}

Verdict keep_alive(Session& s) {
  if (auto verdict = blocked(s, {"models", "chat"})) return *verdict;
  return lasts(s, "keep_alive", {"models", "chat", "models"});
}
Verdict keep_alive_stream(Session& s) {
  if (auto verdict = blocked(s, {"models", "chat.stream"})) return *verdict;
  return lasts(s, "keep_alive_stream", {"chat.stream", "models"});
}
Verdict keep_alive_error(Session& s) {
  if (auto verdict = blocked(s, {"models"})) return *verdict;
  return lasts(s, "keep_alive_error", {"error.route", "error.type", "models"});
}

Verdict head(Session& s) {
  if (auto verdict = blocked(s, {"models"})) return *verdict;
  const Exchange& e = s.exchange("models.head");
  if (e.status == 0) return failed("HEAD got no answer: " + e.problem);
  if (e.status >= 500) return failed("HEAD /v1/models is a server error", e.head);
  if (e.status == 404 || e.status == 405 || e.status == 501)
    return not_applicable("no HEAD: " + std::to_string(e.status));
  // Bytes of a body would lie in front of the next answer.
  return lasts(s, "head", {"models.head", "models"});
}

Verdict options(Session& s) {
  const Exchange& e = s.exchange("chat.options");
  if (!e.complete()) return failed("OPTIONS got no answer: " + e.problem);
  if (e.status >= 500 && e.status != 501) return failed("OPTIONS is a server error", e.head);
  if (e.status >= 300)
    return pass("answered with " + std::to_string(e.status) + ": browsers of other sites are refused");
  if (e.header("access-control-allow-origin") != nullptr && e.header("access-control-allow-methods") == nullptr)
    return failed("a preflight allows the origin and no method", e.head);
  return pass();
}

Verdict split(Session& s) {
  if (auto verdict = blocked(s, {"chat.length"})) return *verdict;
  WireRequest request = s.request("chat.length");
  request.piece = 23;
  const Exchange e = exchange_once(s.options().target, request, s.options().timeout_s);
  if (!e.complete() || e.status != 200)
    return failed("a request in packets of 23 bytes was answered with " + std::to_string(e.status) + " " + e.problem,
                  e.body);
  return pass();
}

Verdict expect_continue(Session& s) {
  if (auto verdict = blocked(s, {"chat.length"})) return *verdict;
  WireRequest request = s.request("chat.length");
  request.expect_continue = true;
  const Exchange e = exchange_once(s.options().target, request, s.options().timeout_s);
  if (!e.complete() || e.status == 0) return failed("no answer: " + e.problem, e.head);
  if (e.status == 417) return pass("refused with 417; curl then sends again without it");
  if (!e.interim) return failed("neither 100 nor an answer came within two seconds", e.head);
  if (e.status != 200) return failed("the answer is " + std::to_string(e.status), e.body);
  return pass();
}

Verdict health(Session& s) {
  if (auto verdict = blocked(s, {"health"})) return *verdict;
  const Exchange& e = s.exchange("health");
  if (e.status != 200) return failed("a server that answers says it is not well: " + std::to_string(e.status), e.body);
  return pass();
}

Verdict models(Session& s) {
  if (auto verdict = blocked(s, {"models"})) return *verdict;
  const Json& list = s.json("models");
  if (text_at(list, "object") != "list") return failed("\"object\" is not \"list\"", s.exchange("models").body);
  bool listed = false;
  for (const Json& model : list_at(list, "data")) {
    if (text_at(model, "id").empty() || text_at(model, "object") != "model" || int_at(model, "created") < 0 ||
        text_at(model, "owned_by").empty())
      return failed("an entry lacks id, object \"model\", an integer created or owned_by", shown(model));
    listed |= text_at(model, "id") == s.model();
  }
  return listed ? pass() : failed("the model that answers is not listed", s.exchange("models").body);
}

Verdict model_by_id(Session& s) {
  if (s.model().find('/') != std::string::npos) return not_applicable("the model's name has a slash");
  if (auto verdict = blocked(s, {"models.one"})) return *verdict;
  const Json& model = s.json("models.one");
  if (text_at(model, "id") != s.model() || text_at(model, "object") != "model")
    return failed("the answer is not the model of that id", s.exchange("models.one").body);
  const Exchange& unknown = s.exchange("models.unknown");
  if (unknown.status != 404)
    return failed("an unknown id is answered with " + std::to_string(unknown.status), unknown.body);
  return pass();
}

constexpr Rule kRules[] = {
    {"http.framing", "An answer ends by its length or its last chunk, not by both, and nothing follows it.",
     "A proxy that counts otherwise splits the next answer: request smuggling.", framing},
    {"http.content_type", "JSON answers and errors are application/json.",
     "openai-python parses a body as JSON only then.", json_type},
    {"http.request_id", "Every answer has an x-request-id of its own.",
     "openai-python shows it as _request_id and in its exceptions.", request_id},
    {"http.keep_alive", "A connection serves several requests.",
     "Client libraries pool connections; a new one for each request costs a round trip.", keep_alive},
    {"http.keep_alive_stream", "A connection serves another request after a stream.", "Agents stream every turn.",
     keep_alive_stream},
    {"http.keep_alive_error", "A refusal with a whole body read does not cost the connection.",
     "A pool that is closed under it reports connection errors in place of the 400.", keep_alive_error},
    {"http.head", "HEAD answers without a body.", "RFC 9110, 9.3.2: a body would be read as the next answer.", head},
    {"http.options", "OPTIONS is answered, and an allowed origin is told the methods.",
     "Browsers ask before they post JSON.", options},
    {"http.split_request", "A request that arrives in small packets is read whole.",
     "TCP has no messages; slow networks cut anywhere.", split},
    {"http.expect_continue", "Expect: 100-continue is answered, by 100 or by 417.",
     "curl waits a second before it sends a longer body anyway.", expect_continue},
    {"http.health", "GET /health is 200 while requests are answered.",
     "Load balancers and orchestrators ask nothing else.", health},
    {"http.models", "GET /v1/models lists the model as OpenAI does.", "Open WebUI and agents fill their menus from it.",
     models},
    {"http.model_by_id", "GET /v1/models/{id} is that model, and 404 for one that is not there.",
     "openai-python: models.retrieve.", model_by_id},
};

}  // namespace

const RuleGroup kHttpRules{"http", "HTTP, health and models", kRules};

}  // namespace barg::conform
