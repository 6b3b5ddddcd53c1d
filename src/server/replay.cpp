#include "server/replay.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "server/answer_settings.h"
#include "server/capsule.h"
#include "server/prepare.h"
#include "server/protocol.h"
#include "server/response_stream.h"
#include "server/server.h"
#include "server/server_state.h"

namespace barg::server {
namespace {

constexpr std::size_t kShownBytes = 40;  // of two answers, where they part
constexpr std::size_t kStoreBytes = std::size_t{1} << 28;

using Place = Capsule::Place;

/// What one (prompt, choice) gave this time.
struct Given {
  std::vector<OutputToken> tokens;
  std::vector<TokenLogprobs> prompt_logprobs;
};

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

Error bad(std::string message, std::string member) {
  return {ErrorCode::kInvalidValue, std::move(message), std::move(member), 0};
}

/// What a capsule claims and its request does not have.
std::optional<Error> contradiction(const Capsule& capsule, std::size_t prompts, std::int32_t n, std::int32_t vocab_size) {
  const auto there = [&](const Place& place) { return place.first < prompts && place.second < n; };
  for (const auto& [place, output] : capsule.outputs) {
    if (!there(place)) return bad("the capsule has an output of a choice that its request does not ask for", "outputs");
  }
  if (capsule.outputs.size() != prompts * static_cast<std::size_t>(n))
    return bad("the capsule lacks the output of a choice that its request asks for", "outputs");
  for (const Capsule::Step& step : capsule.steps) {
    if (!there(step.place)) return bad("the capsule has an event of a choice that its request does not ask for", "events");
    if (step.finish > FinishReason::kLength) return bad("the capsule has a failure among its events, and no error", "events");
    if (step.stop >= vocab_size) return bad("the capsule has a stop token that is none of the model's", "events");
  }
  return std::nullopt;
}

/// The engine's requests as they were then; they stop where the captured tokens do, but for those with a constraint: what
/// it allows near the end depends on where that is.
void as_captured(std::vector<Request>& requests, const Capsule& capsule) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::size_t most = 0;
    for (const auto& [place, output] : capsule.outputs) {
      if (place.first != i) continue;
      most = std::max(most, output.ids.size());
      if (place.second == 0) requests[i].sampling.seed = output.seed;
    }
    SamplingParams& s = requests[i].sampling;
    if (!s.constraint) s.max_tokens = std::min(s.max_tokens, static_cast<std::int32_t>(most));
    s.min_tokens = std::min(s.min_tokens, s.max_tokens);
  }
}

/// Signatures of thoughts and sealed reasoning are made with a secret of the process, and a seal with a random number:
/// of them the length remains. In JSON text no string of a client or model can hold `begin`: its quotes are escaped.
std::string without_seals(std::string text, bool& found) {
  for (const std::string_view begin : {R"("signature":"barg1.)", R"("encrypted_content":"barg1.)"}) {
    for (std::size_t at = 0; (at = text.find(begin, at)) != text.npos;) {
      at += begin.size();
      for (; at < text.size() && text[at] != '"'; ++at) text[at] = '*';
      found = true;
    }
  }
  return text;
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
  for (const Capsule::Step& step : capsule.steps) {
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

std::string notes(const Capsule& capsule, const ServedModel& model, const ReplayedOptions& options,
                  const std::string& build) {
  const EngineInfo& info = model.engine->info();
  std::string out;
  const auto add = [&out](std::string_view what, const std::string& then, const std::string& now) {
    if (then == now) return;
    out += (out.empty() ? "" : "; ") + std::string(what) + " " + then + " then, " + now + " now";
  };
  add("build", capsule.build, build);
  if (capsule.settings.is_null()) return out;
  add("weights", capsule.model_digest.substr(0, 12), info.model_digest.substr(0, 12));
  add("numerics", capsule.numerics_id, info.numerics_id);
  const std::string settings = settings_difference(capsule.settings, answer_settings(model, options));
  return out + (out.empty() || settings.empty() ? "" : "; ") + settings;
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

/// What was refused then: is it refused now, in the same words?
void compare_refusal(const Capsule& capsule, const Protocol& protocol, const Result<Prepared>& prepared,
                     ReplayReport& report) {
  if (!prepared) report.answer = protocol.error(prepared.error()).body;
  report.same = report.answer == capsule.answer;
  if (report.same) return;
  report.difference = prepared ? "the request was refused then (" + capsule.failure->code + ": " +
                                     capsule.failure->message + ") and is accepted now"
                               : first_difference(capsule.answer, report.answer);
}

void compare_answer(const Capsule& capsule, const std::map<Place, Given>& given, ReplayReport& report) {
  report.same = report.answer == capsule.answer;
  if (report.same) return;
  report.difference = token_difference(capsule, given);
  if (!report.difference.empty()) return;
  const std::string then = without_seals(capsule.answer, report.seals), now = without_seals(report.answer, report.seals);
  report.same = then == now;
  if (!report.same) report.difference = first_difference(then, now);
}

}  // namespace

Result<void> check_capsule(const Json& json) {
  const auto capsule = read_capsule(json);
  if (!capsule) return std::unexpected(capsule.error());
  if (!capsule->truncated.empty())
    return fail(ErrorCode::kInvalidValue,
                "this capsule is truncated: of its " + list(capsule->truncated) +
                    " a part did not fit server.capture_memory, so there is no whole answer to compare with",
                "truncated");
  if (capsule->failure && !capsule->failure->refused)
    return fail(ErrorCode::kInvalidValue,
                "the answer in this capsule failed (" + capsule->failure->code + ": " + capsule->failure->message +
                    "), so there is no whole answer to compare with",
                "error");
  if (protocol_at(capsule->request.path) == nullptr)
    return fail(ErrorCode::kInvalidValue, "nothing generates at " + json_quote(capsule->request.path.substr(0, 128)), "path");
  return {};
}

Result<ReplayReport> replay(ServedModel model, const Json& json, const std::string& build) {
  if (auto ok = check_capsule(json); !ok) return std::unexpected(ok.error());
  const auto capsule = read_capsule(json);
  const Protocol* protocol = protocol_at(capsule->request.path);
  const ReplayedOptions options = capsule->settings.is_null() ? ReplayedOptions() : replayed_options(capsule->settings);
  const auto shared = std::make_shared<ServerState>();
  ServerState& state = *shared;
  state.options.strip_volatile_lines = options.strip_volatile_lines;
  state.utc_offset = capsule->utc_offset;
  state.responses = std::make_unique<ResponseStore>(
      ResponseStoreLimits{.bytes = options.stores_responses ? kStoreBytes : 0, .ttl_s = 60}, state.clock);
  if (!capsule->settings.is_null()) model.names = {capsule->meta.model};
  state.models.push_back(std::move(model));
  const ServedModel& served = state.models.front();
  // Whatever name the request used, this is the model; unless it was refused for its name.
  if (const auto body = parse_json(capsule->request.body);
      body && !capsule->settings.is_null() && body->find("model") != nullptr && body->find("model")->is_string())
    state.by_name.emplace(body->find("model")->as_string(), &served);

  ReplayReport report;
  report.note = notes(*capsule, served, options, build);
  auto prepared = prepare(state, *protocol, capsule->request, "", static_cast<std::time_t>(capsule->meta.created),
                          true);
  if (capsule->failure) {
    compare_refusal(*capsule, *protocol, prepared, report);
    return report;
  }
  if (!prepared) return std::unexpected(prepared.error());
  if (auto error = contradiction(*capsule, prepared->requests.size(), prepared->n, served.engine->info().vocab_size))
    return std::unexpected(*error);
  as_captured(prepared->requests, *capsule);
  Collector collector(*served.engine);
  if (auto ok = collector.run(std::move(prepared->requests)); !ok) return std::unexpected(ok.error());

  for (const auto& [place, given] : collector.given()) report.tokens += static_cast<std::int64_t>(given.tokens.size());
  const bool streamed = prepared->output.stream;
  std::shared_ptr<Responder> attached;  // it may have to be there: an answer that is stored says so
  if (protocol->attach) {
    attached = protocol->attach({.state = shared, .meta = capsule->meta, .output = prepared->output, .headers = {},
                                 .client = std::make_shared<Nobody>()});
  }
  ResponseStream stream(capsule->meta, std::move(prepared->output), prepared->n, std::move(prepared->prompts),
                        *served.tokenizer, served.dialect);
  // The tokens' ids stay for the comparison; what goes with them moves into the answer.
  report.answer = write_answer(*capsule, collector.given(), stream, streamed);
  compare_answer(*capsule, collector.given(), report);
  return report;
}

}  // namespace barg::server
