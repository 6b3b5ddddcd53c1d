#include "server/replay.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "server/prepare.h"
#include "server/protocol.h"
#include "server/response_stream.h"
#include "server/server.h"
#include "server/server_state.h"

namespace barg::server {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr std::size_t kShownBytes = 40;  // of two answers, where they part

using Place = std::pair<std::size_t, std::int32_t>;  // prompt, choice

struct Output {
  std::uint64_t seed = 0;
  std::vector<TokenId> ids;
};
struct Step {
  Place place;
  std::size_t tokens = 0, prompt_logprobs = 0;
  FinishReason finish = FinishReason::kNone;
  TokenId stop = kNoToken;
  RequestStats stats;
};
struct Capsule {
  HttpRequest request;
  ResponseMeta meta;
  std::string model_digest, numerics_id, build, answer;
  std::map<Place, Output> outputs;
  std::vector<Step> steps;
};

/// What one (prompt, choice) gave this time.
struct Given {
  std::vector<OutputToken> tokens;
  std::vector<TokenLogprobs> prompt_logprobs;
  bool over = false;
  std::optional<Error> error;
};

/// Reads members of the capsule; the first that is missing or of another type is the error.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  std::string text(std::string_view name) {
    const Json* v = object_.find(name);
    if (v != nullptr && v->is_string()) return v->as_string();
    return miss(name), std::string();
  }
  std::int64_t number(std::string_view name, std::int64_t min, std::int64_t max) {
    const Json* v = object_.find(name);
    if (v != nullptr && v->type() == Json::Type::kInt && v->as_int() >= min && v->as_int() <= max) return v->as_int();
    return miss(name), min;
  }
  std::uint64_t seed(std::string_view name) {
    const Json* v = object_.find(name);
    if (v != nullptr && (v->type() == Json::Type::kUint || (v->type() == Json::Type::kInt && v->as_int() >= 0))) return v->as_uint();
    return miss(name), 0;
  }
  const Json& array(std::string_view name) {
    static const Json kNone = Json::array();
    const Json* v = object_.find(name);
    if (v != nullptr && v->is_array()) return *v;
    return miss(name), kNone;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  void miss(std::string_view name) {
    if (!error_)
      error_ = Error{ErrorCode::kInvalidValue, "this is no capsule of barg: " + std::string(name) + " is missing or wrong",
                     std::string(name), 0};
  }
  const Json& object_;
  std::optional<Error> error_;
};

Place place_of(Reader& r) {
  const auto prompt = static_cast<std::size_t>(r.number("prompt", 0, static_cast<std::int64_t>(kMaxPrompts) - 1));
  return {prompt, static_cast<std::int32_t>(r.number("choice", 0, kMaxChoices - 1))};
}

std::optional<Error> read_outputs(const Json& outputs, Capsule& out) {
  for (const Json& item : outputs.as_array()) {
    Reader r(item);
    const Place place = place_of(r);
    Output output{.seed = r.seed("seed"), .ids = {}};
    for (const Json& id : r.array("ids").as_array()) {
      if (id.type() != Json::Type::kInt) return Error{ErrorCode::kInvalidValue, "outputs.ids holds something else", "outputs", 0};
      output.ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    if (r.error()) return r.error();
    out.outputs[place] = std::move(output);
  }
  return std::nullopt;
}

std::optional<Error> read_steps(const Json& events, Capsule& out) {
  for (const Json& item : events.as_array()) {
    Reader r(item);
    Step step;
    step.place = place_of(r);
    step.tokens = static_cast<std::size_t>(r.number("tokens", 0, kMaxTokens));
    step.prompt_logprobs = static_cast<std::size_t>(r.number("prompt_logprobs", 0, kMaxTokens));
    step.finish = static_cast<FinishReason>(r.number("finish", 0, static_cast<std::int64_t>(FinishReason::kLength)));
    step.stop = static_cast<TokenId>(r.number("stop_token", kNoToken, kMaxTokens));
    const Json* seconds = item.find("seconds");
    if (seconds != nullptr && seconds->is_number()) step.stats.last_token_s = seconds->as_double();
    const Json& cached = r.array("cached");
    const bool numbers = std::all_of(cached.as_array().begin(), cached.as_array().end(),
                                     [](const Json& n) { return n.type() == Json::Type::kInt; });
    if (numbers && cached.size() == 5) {
      step.stats.cached_tokens = static_cast<std::int32_t>(cached.as_array()[0].as_int());
      for (std::size_t i = 0; i < 4; ++i)
        step.stats.cached_by_place[i] = static_cast<std::int32_t>(cached.as_array()[i + 1].as_int());
    }
    if (r.error()) return r.error();
    out.steps.push_back(std::move(step));
  }
  return std::nullopt;
}

Result<Capsule> read_capsule(const Json& json) {
  Reader r(json);
  Capsule out;
  if (r.text("object") != "barg.capture" || r.number("version", 1, 1 << 20) != kVersion)
    return fail(ErrorCode::kInvalidValue, "this is no capsule that this version of barg can read", "version");
  out.request.method = "POST";
  out.request.path = out.request.target = r.text("path");
  out.request.body = r.text("body");
  out.meta = {.id = r.text("answer_id"), .model = {}, .fingerprint = r.text("fingerprint"),
              .created = r.number("created", 0, std::int64_t{1} << 40)};
  out.build = r.text("build");
  out.answer = r.text("answer");
  const Json* model = json.find("model");
  Reader m(model != nullptr ? *model : json);
  out.meta.model = m.text("name");
  out.model_digest = m.text("digest");
  out.numerics_id = m.text("numerics_id");
  if (const Json* headers = json.find("headers"); headers != nullptr && headers->is_object()) {
    for (const auto& [name, value] : headers->as_object()) {
      if (value.is_string()) out.request.headers.emplace_back(name, value.as_string());
    }
  }
  auto error = r.error() ? r.error() : m.error();
  if (!error) error = read_outputs(r.array("outputs"), out);
  if (!error) error = read_steps(r.array("events"), out);
  if (!error) error = r.error();
  if (error) return std::unexpected(*error);
  return out;
}

/// Collects what the engine gives; its sink runs on the engine's thread.
class Collector {
 public:
  explicit Collector(Engine& engine) : engine_(engine) {}

  Result<void> run(std::vector<Request> requests) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].id = engine_.next_request_id();
      {
        const std::lock_guard lock(mutex_);
        open_ += requests[i].n;
      }
      const std::int32_t n = requests[i].n;
      auto ok = engine_.submit(std::move(requests[i]), [this, i](TokenEvent&& e) { take(i, std::move(e)); });
      if (ok) continue;
      const std::lock_guard lock(mutex_);
      open_ -= n;
      refused_ = ok.error();
      break;
    }
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return open_ == 0; });
    if (refused_) return std::unexpected(*refused_);
    return {};
  }
  std::map<Place, Given>& given() { return given_; }

 private:
  void take(std::size_t prompt, TokenEvent&& event) {
    const std::lock_guard lock(mutex_);
    Given& g = given_[{prompt, event.choice}];
    std::move(event.tokens.begin(), event.tokens.end(), std::back_inserter(g.tokens));
    std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(), std::back_inserter(g.prompt_logprobs));
    if (event.finish == FinishReason::kNone) return;
    if (event.error) refused_ = event.error;
    if (--open_ == 0) done_.notify_all();
  }

  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::map<Place, Given> given_;     // guarded by mutex_ while the engine works
  std::int64_t open_ = 0;            // guarded by mutex_
  std::optional<Error> refused_;     // guarded by mutex_
};

/// Where a client would be.
class Nobody final : public Responder {
 public:
  void respond(HttpResponse) override {}
  void begin_stream(HttpResponse, std::string_view) override {}
  void write(std::string_view) override {}
  void end() override {}
  bool gone() const override { return false; }
  AccessNote& note() override { return note_; }
  void set_route(std::string_view) override {}
  void on_interrupt(std::function<void(Interrupt)>) override {}
  void on_backlog(std::function<void(bool)>) override {}
  void post(std::move_only_function<void()>) override {}

 private:
  AccessNote note_;
};

/// The engine's requests as they were then; they stop where the captured tokens do.
Result<void> as_captured(std::vector<Request>& requests, const Capsule& capsule) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::size_t most = 0;
    bool seen = false;
    for (const auto& [place, output] : capsule.outputs) {
      if (place.first != i) continue;
      seen = true;
      most = std::max(most, output.ids.size());
      if (place.second == 0) requests[i].sampling.seed = output.seed;
    }
    if (!seen) return fail(ErrorCode::kInvalidValue, "the capsule has no output for one of the prompts", "outputs");
    SamplingParams& s = requests[i].sampling;
    s.max_tokens = std::min(s.max_tokens, static_cast<std::int32_t>(most));
    s.min_tokens = std::min(s.min_tokens, s.max_tokens);
  }
  return {};
}

std::string first_difference(const std::string& then, const std::string& now) {
  const auto [a, b] = std::mismatch(then.begin(), then.end(), now.begin(), now.end());
  const auto at = static_cast<std::size_t>(a - then.begin());
  const auto shown = [at](const std::string& s) { return json_quote(std::string_view(s).substr(std::min(at, s.size()), kShownBytes)); };
  return "the answers differ from byte " + std::to_string(at) + " on: " + shown(then) + " then, " + shown(now) + " now";
}

/// The captured tokens that came out otherwise.
std::string token_difference(const Capsule& capsule, const std::map<Place, Given>& given) {
  for (const auto& [place, output] : capsule.outputs) {
    const auto found = given.find(place);
    const std::size_t count = found == given.end() ? 0 : found->second.tokens.size();
    for (std::size_t i = 0; i < output.ids.size(); ++i) {
      if (i < count && found->second.tokens[i].id == output.ids[i]) continue;
      const std::string now = i < count ? std::to_string(found->second.tokens[i].id) : "nothing";
      return "choice " + std::to_string(place.second) + " of prompt " + std::to_string(place.first) + ": token " +
             std::to_string(i) + " was " + std::to_string(output.ids[i]) + " and is " + now;
    }
  }
  return {};
}

std::string write_answer(const Capsule& capsule, std::map<Place, Given>& given, ResponseStream& stream, bool streamed) {
  std::string out = stream.begin();
  std::map<Place, std::pair<std::size_t, std::size_t>> used;  // tokens, prompt log-probabilities
  for (const Step& step : capsule.steps) {
    Given& g = given[step.place];
    auto& [tokens, scores] = used[step.place];
    TokenEvent event;
    event.choice = step.place.second;
    event.first_index = static_cast<std::int32_t>(tokens);
    for (const std::size_t end = std::min(tokens + step.tokens, g.tokens.size()); tokens < end; ++tokens)
      event.tokens.push_back(std::move(g.tokens[tokens]));
    for (const std::size_t end = std::min(scores + step.prompt_logprobs, g.prompt_logprobs.size()); scores < end; ++scores)
      event.prompt_logprobs.push_back(std::move(g.prompt_logprobs[scores]));
    event.finish = step.finish;
    event.stop_token = step.stop;
    event.stats = step.stats;
    const ResponseStream::Step done = stream.push(step.place.first, std::move(event), out);
    if (done.complete && !streamed) return stream.body();
    if (done.complete) break;
  }
  return streamed ? out : std::string();
}

std::string notes(const Capsule& capsule, const EngineInfo& info, const std::string& build) {
  std::string out;
  const auto add = [&out](std::string_view what, const std::string& then, const std::string& now) {
    if (then == now) return;
    out += (out.empty() ? "" : "; ") + std::string(what) + " " + then + " then, " + now + " now";
  };
  add("build", capsule.build, build);
  add("weights", capsule.model_digest.substr(0, 12), info.model_digest.substr(0, 12));
  add("numerics", capsule.numerics_id, info.numerics_id);
  return out;
}

}  // namespace

Result<ReplayReport> replay(ServedModel model, const Json& json, const std::string& build) {
  auto capsule = read_capsule(json);
  if (!capsule) return std::unexpected(capsule.error());
  const Protocol* protocol = protocol_at(capsule->request.path);
  if (protocol == nullptr) return fail(ErrorCode::kInvalidValue, "nothing generates at " + json_quote(capsule->request.path), "path");
  const auto shared = std::make_shared<ServerState>();
  ServerState& state = *shared;
  state.responses = std::make_unique<ResponseStore>(ResponseStoreLimits{.bytes = std::uint64_t{1} << 28, .ttl_s = 60}, state.clock);
  model.names = {capsule->meta.model};
  if (model.max_token_bytes == 0) model.max_token_bytes = longest_token(*model.tokenizer);
  state.models.push_back(std::move(model));
  const ServedModel& served = state.models.front();
  // Whatever name the request used, this is the model.
  if (const auto body = parse_json(capsule->request.body); body && body->find("model") != nullptr &&
                                                           body->find("model")->is_string())
    state.by_name.emplace(body->find("model")->as_string(), &served);
  auto prepared = prepare(state, *protocol, capsule->request, "", static_cast<std::time_t>(capsule->meta.created));
  if (!prepared) return std::unexpected(prepared.error());
  if (auto ok = as_captured(prepared->requests, *capsule); !ok) return std::unexpected(ok.error());
  Collector collector(*served.engine);
  if (auto ok = collector.run(std::move(prepared->requests)); !ok) return std::unexpected(ok.error());

  ReplayReport report;
  for (const auto& [place, given] : collector.given()) report.tokens += static_cast<std::int64_t>(given.tokens.size());
  report.difference = token_difference(*capsule, collector.given());
  const bool streamed = prepared->output.stream;
  std::shared_ptr<Responder> attached;  // it may have to be there: an answer that is stored says so
  if (protocol->attach) {
    attached = protocol->attach({.state = shared, .meta = capsule->meta, .output = prepared->output, .headers = {},
                                 .client = std::make_shared<Nobody>()});
  }
  ResponseStream stream(capsule->meta, std::move(prepared->output), prepared->n, std::move(prepared->prompts),
                        *served.tokenizer, served.dialect);
  report.answer = write_answer(*capsule, collector.given(), stream, streamed);
  report.same = report.answer == capsule->answer;
  if (report.same) report.difference.clear();
  if (!report.same && report.difference.empty()) report.difference = first_difference(capsule->answer, report.answer);
  report.note = notes(*capsule, served.engine->info(), build);
  return report;
}

}  // namespace barg::server
