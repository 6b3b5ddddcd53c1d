#include "conform/session.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"
#include "conform/look.h"
#include "conform/probes.h"

namespace barg::conform {
namespace {

constexpr std::size_t kEvidence = 300;

Leave leave_after(std::size_t events) {
  if (events == 0) return {};
  return [events](const Exchange& exchange) {
    std::size_t seen = 0;
    for (std::size_t i = 0; (i = exchange.body.find("\n\n", i)) != std::string::npos; i += 2) ++seen;
    return seen >= events;
  };
}

const Probe& probe_of(std::string_view name) {
  const Probe* probe = find_probe(name);
  CHECK(probe != nullptr);
  return *probe;
}

std::optional<Verdict> blocked_by(const Exchange& exchange) {
  if (!exchange.complete()) return failed("a request got no answer: " + exchange.problem, exchange.request);
  const int status = exchange.status;
  if (status < 300) return std::nullopt;
  const std::string asked = exchange.request.substr(0, exchange.request.find(" {"));
  const std::string said = std::to_string(status) + " " + error_sentence(exchange);
  if (status >= 500 && status != 501) return failed(asked + " was answered with " + said, exchange.request);
  return not_applicable(
      (status == 404 || status == 405 || status == 501 ? "no " + asked + ": " : asked + " is refused: ") +
      shown(said, 160));
}

}  // namespace

Verdict failed(std::string why, std::string_view evidence) {
  return {Verdict::Kind::kFail, std::move(why), shown(evidence, kEvidence)};
}

WireRequest Session::request(std::string_view probe) { return probe_of(probe).make(*this); }

const Exchange& Session::exchange(std::string_view name) {
  if (const auto it = exchanges_.find(name); it != exchanges_.end()) return it->second;
  const Probe& probe = probe_of(name);
  const WireRequest request = probe.make(*this);
  Exchange made = exchange_once(options_.target, request, options_.timeout_s, leave_after(probe.leave_after));
  return exchanges_.emplace(name, std::move(made)).first->second;
}

const StreamView& Session::stream(std::string_view probe) {
  if (const auto it = streams_.find(probe); it != streams_.end()) return it->second;
  return streams_.emplace(probe, view_stream(exchange(probe))).first->second;
}

const Json& Session::json(std::string_view probe) {
  if (const auto it = bodies_.find(probe); it != bodies_.end()) return it->second;
  return bodies_.emplace(probe, read_json(exchange(probe).body).value_or(Json())).first->second;
}

const std::vector<Exchange>& Session::sequence(std::string_view name, std::initializer_list<std::string_view> probes) {
  if (const auto it = sequences_.find(name); it != sequences_.end()) return it->second;
  std::vector<Exchange> out;
  Result<Connection> connection = Connection::open(options_.target, options_.timeout_s);
  for (const std::string_view probe : probes) {
    if (!connection) break;
    out.push_back(connection->exchange(request(probe), options_.timeout_s));
    if (out.back().end != Exchange::End::kComplete) break;
    // A close, or bytes that belong to nothing, may be a moment behind.
    pause_s(0.02);
    out.back().extra += connection->unasked();
    if (!out.back().extra.empty() || connection->peer_closed()) break;
  }
  return sequences_.emplace(name, std::move(out)).first->second;
}

std::int64_t Session::context_length() {
  const Json& models = json("models");
  for (const Json& model : list_at(models, "data")) {
    if (text_at(model, "id") != options_.model) continue;
    for (const char* path : {"max_model_len", "context_length"}) {
      if (const std::int64_t length = int_at(model, path); length > 0) return length;
    }
    // llama-server divides its context among slots.
    const std::int64_t slot = int_at(json("props"), "default_generation_settings.n_ctx");
    if (slot > 0) return slot;
    for (const char* path : {"meta.n_ctx", "meta.n_ctx_train"}) {
      if (const std::int64_t length = int_at(model, path); length > 0) return length;
    }
  }
  return 0;
}

std::optional<Session::StopString> Session::stop_string() {
  const std::string text = text_at(json("chat"), "choices.0.message.content");
  if (text.size() < 12) return std::nullopt;
  const std::size_t begin = complete_utf8_prefix(std::string_view(text).substr(0, text.size() / 2));
  const std::size_t length = complete_utf8_prefix(std::string_view(text).substr(begin, 9));
  StopString out{.stop = text.substr(begin, length), .before = {}};
  out.before = text.substr(0, text.find(out.stop));
  return out.stop.empty() || out.before.empty() ? std::nullopt : std::optional(out);
}

bool Session::deterministic() {
  const std::string text = text_at(json("chat"), "choices.0.message.content");
  return text == text_at(json("chat.again"), "choices.0.message.content");
}

std::optional<Verdict> blocked(Session& session, std::initializer_list<std::string_view> probes) {
  for (const std::string_view probe : probes) {
    if (auto verdict = blocked_by(session.exchange(probe))) return verdict;
  }
  return std::nullopt;
}

std::optional<Verdict> blocked_stream(Session& session, std::initializer_list<std::string_view> probes) {
  for (const std::string_view probe : probes) {
    if (auto verdict = blocked_by(session.exchange(probe))) return verdict;
    if (session.stream(probe).chunks.empty())
      return failed("the stream holds no JSON event", session.exchange(probe).body);
  }
  return std::nullopt;
}

std::string error_sentence(const Exchange& exchange) {
  const std::optional<Json> json = read_json(exchange.body);
  if (!json) return "";
  const std::string nested = text_at(*json, "error.message");
  const std::string flat = nested.empty() ? text_at(*json, "message") : nested;
  return flat.empty() ? text_at(*json, "error") : flat;
}

}  // namespace barg::conform
