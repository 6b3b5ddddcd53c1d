#include "server/generation.h"

#include <cstdio>
#include <ctime>
#include <optional>

#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "server/answer_settings.h"
#include "server/api_error.h"
#include "server/capture.h"
#include "server/handlers.h"
#include "server/prepare.h"
#include "server/protocol.h"
#include "server/response_stream.h"
#include "server/routes.h"

namespace barg::server {
namespace {

/// A body up to here is digested on the io thread: about 50 us.
constexpr std::size_t kDigestedAtOnce = 64 << 10;
constexpr int kClientGone = 499;  ///< as the access log has it

bool wants_capture(const HttpRequest& request) {
  const std::string* value = request.header("x-capture");
  return value != nullptr && *value == "1";
}

std::string mint_response_id(std::string_view prefix) {
  Rng rng(random_seed());
  char digits[64];
  std::snprintf(digits, sizeof digits, "%016llx%08llx", static_cast<unsigned long long>(rng.next()),
                static_cast<unsigned long long>(rng.next() >> 32));
  return std::string(prefix) + digits;
}

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<ServerState> state, Api api, HttpRequest request,
             std::shared_ptr<Responder> responder)
      : state_(std::move(state)),
        protocol_(protocol_of(api)),
        request_(std::move(request)),
        responder_(std::move(responder)) {
    state_->generations.add();
  }
  ~Generation() { state_->generations.remove(); }

  void start();

 private:
  void listen();
  bool prepare_on(CpuPool& pool, bool may_compile);
  void launch(Prepared prepared);
  void attach(const ResponseMeta& meta, const OutputSpec& output);
  bool submit_all(std::vector<Request> requests);
  void on_event(std::size_t prompt, TokenEvent&& event);
  void on_interrupt(Interrupt cause);
  void on_backlog(bool behind);
  void pause(std::size_t prompt, bool paused);
  void refuse(const Error& error);
  void cancel_all();
  HttpResponse decorated(HttpResponse response) const;
  void begin_capture(const ServedModel* model, std::time_t now);
  void keep_capture(int status, std::optional<Capture::Failure> failure = {});

  const std::shared_ptr<ServerState> state_;
  const Protocol& protocol_;
  HttpRequest request_;
  std::shared_ptr<Responder> responder_;  ///< changes once, in launch(), before anybody else knows of it

  // From launch() on; io thread.
  std::shared_ptr<Engine> engine_;
  std::optional<ResponseStream> stream_;
  std::vector<RequestId> ids_;
  std::vector<bool> begun_, paused_;  ///< per request: has had an event; waits for the reader
  bool streaming_ = false;
  bool headed_ = false;  ///< the head of a stream is out
  std::string events_;  ///< of the current event; its memory serves every token
  bool behind_ = false;  ///< the reader is
  bool over_ = false;    ///< answered, or nobody listens: events are ignored
  std::vector<std::string> ignored_;
  std::string unenforced_;  ///< the header's value
  std::int32_t clamped_max_tokens_ = 0;
  const std::string answer_id_ = mint_response_id(protocol_.id_prefix);
  std::unique_ptr<Capture> capture_;  ///< io thread, but for begin_capture(); until it is kept
  std::string capture_id_;            ///< of X-Capture, where captures are on
};

void Generation::start() {
  listen();
  if (wants_capture(request_) && state_->captures->on()) {
    capture_ = std::make_unique<Capture>(answer_id_, key_owner(asking_key(*state_, request_)), *state_->captures);
    capture_id_ = capture_->id();
  }
  if (prepare_on(*state_->pool, false)) return;
  begin_capture(nullptr, std::time(nullptr));
  refuse({ErrorCode::kUnavailable, "too many requests are being prepared, try again later", "", 1});
}

/// False: the pool is full. Without `may_compile` a request whose constraint must be compiled goes on to those that wait
/// for one.
bool Generation::prepare_on(CpuPool& pool, bool may_compile) {
  return pool.submit([self = shared_from_this(), may_compile] {
    const std::string api_key(asking_key(*self->state_, self->request_));
    const std::time_t now = std::time(nullptr);
    auto prepared = prepare(*self->state_, self->protocol_, self->request_, api_key, now, may_compile);
    if (prepared && prepared->must_compile) {
      if (self->prepare_on(*self->state_->compile_pool, true)) return;
      prepared = std::unexpected(
          Error{ErrorCode::kUnavailable, "too many structured outputs are being compiled, try again later", "", 1});
    }
    self->begin_capture(prepared ? prepared->model : nullptr, now);
    self->request_.body = {};
    auto responder = self->responder_;
    if (!prepared) {
      responder->post([self, error = prepared.error()] { self->refuse(error); });
    } else {
      responder->post([self, p = std::move(*prepared)]() mutable { self->launch(std::move(p)); });
    }
  });
}

/// `model`: null where the request is refused before it has one; then the one that its body names, if any.
void Generation::begin_capture(const ServedModel* model, std::time_t now) {
  if (!capture_) return;
  if (model == nullptr) {
    const auto body = parse_json(request_.body);
    const auto named = body ? find_model(*state_, *body) : Result<const ServedModel*>(nullptr);
    if (named) model = *named;
  }
  Capture::Facts facts;
  facts.build = state_->build.version + " " + state_->build.git;
  facts.created = static_cast<std::int64_t>(now);
  std::tm local{};
  if (localtime_r(&now, &local) != nullptr) facts.utc_offset = local.tm_gmtoff;
  if (model != nullptr) {
    const EngineInfo& info = model->engine->info();
    facts.model = Json::object({{"name", model->names.front()},
                                {"digest", info.model_digest},
                                {"numerics_id", info.numerics_id}});
    facts.settings = answer_settings(*model, {.strip_volatile_lines = state_->options.strip_volatile_lines,
                                              .stores_responses = state_->responses->enabled()});
    facts.fingerprint = model->fingerprint;
  }
  capture_->begin(std::move(facts), request_);
}

/// Before the answer's last byte is sent: GET /v1/captures/{id} goes through the same pool, behind it.
void Generation::keep_capture(int status, std::optional<Capture::Failure> failure) {
  if (!capture_) return;
  const std::shared_ptr<Capture> capture = std::move(capture_);
  capture->end(status, std::move(failure));
  if (!state_->text_pool->submit([state = state_, capture] { capture->keep(); })) capture->keep();
}

HttpResponse Generation::decorated(HttpResponse response) const {
  if (!capture_id_.empty()) response.headers.emplace_back("x-barg-capture", capture_id_);
  if (!ignored_.empty()) response.headers.emplace_back("x-barg-ignored", ignored_header(ignored_));
  if (!unenforced_.empty()) response.headers.emplace_back("x-barg-unenforced", unenforced_);
  if (clamped_max_tokens_ > 0)
    response.headers.emplace_back("x-barg-max-tokens", std::to_string(clamped_max_tokens_));
  return response;
}

void Generation::launch(Prepared prepared) {
  if (over_ || responder_->gone()) return;
  const ServedModel& model = *prepared.model;
  engine_ = model.engine;
  ignored_ = std::move(prepared.ignored);
  unenforced_ = unenforced_header(prepared.unenforced);
  clamped_max_tokens_ = prepared.clamped_max_tokens;
  streaming_ = prepared.output.stream;
  const ResponseMeta meta{.id = answer_id_,
                          .model = model.names.front(),
                          .fingerprint = model.fingerprint,
                          .created = static_cast<std::int64_t>(prepared.created)};
  if (capture_id_.empty() && wants_capture(request_)) ignored_.emplace_back("X-Capture");
  attach(meta, prepared.output);
  stream_.emplace(meta, std::move(prepared.output), prepared.n, std::move(prepared.prompts), *model.tokenizer,
                  model.dialect);
  if (!submit_all(std::move(prepared.requests))) return;
  const std::string first = stream_->begin();
  if (!streaming_) return;

  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
  responder_->on_backlog([self = weak_from_this()](bool behind) {
    if (const auto s = self.lock()) s->on_backlog(behind);
  });
  headed_ = true;
  responder_->begin_stream(decorated(std::move(head)), protocol_.keep_alive);
  if (capture_) capture_->write(first);
  responder_->write(first);
}

/// The protocol may put someone between us and the client, who is then all that we know of it.
void Generation::attach(const ResponseMeta& meta, const OutputSpec& output) {
  if (!protocol_.attach) return;
  const Headers headers = decorated({}).headers;
  auto other = protocol_.attach(
      {.state = state_, .meta = meta, .output = output, .headers = headers, .client = responder_});
  if (!other) return;
  responder_ = std::move(other);
  listen();
}

/// Without holding us: what answers in the client's place belongs to us. The work in flight holds us.
void Generation::listen() {
  responder_->on_interrupt([self = weak_from_this()](Interrupt cause) {
    if (const auto s = self.lock()) s->on_interrupt(cause);
  });
}

bool Generation::submit_all(std::vector<Request> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = engine_->next_request_id();
    ids_.push_back(requests[i].id);
    begun_.push_back(false);
    paused_.push_back(false);
    // Events of this thread's own making wait until launch() returns: post() never runs anything at once.
    auto ok = engine_->submit(std::move(requests[i]), [self = shared_from_this(), i](TokenEvent&& event) {
      self->responder_->post([self, i, e = std::move(event)]() mutable { self->on_event(i, std::move(e)); });
    });
    if (ok) continue;
    ids_.pop_back();
    refuse(ok.error());
    return false;
  }
  return true;
}

void Generation::on_event(std::size_t prompt, TokenEvent&& event) {
  if (over_) return;
  begun_[prompt] = true;
  if (capture_) capture_->event(prompt, event);
  events_.clear();
  ResponseStream::Step step = stream_->push(prompt, std::move(event), events_);
  for (const auto& f : step.finish_at) engine_->finish_at(ids_[f.prompt], f.choice, f.tokens);
  if (!events_.empty()) {
    if (capture_) capture_->write(events_);
    responder_->write(events_);
    if (over_) return;  // the write found the reader too slow
  }
  if (behind_) pause(prompt, true);
  if (step.error) return refuse(*step.error);
  if (!step.complete) return;
  over_ = true;
  stream_->fill(responder_->note());
  HttpResponse response;
  if (!streaming_) response.body = stream_->body();
  if (capture_) capture_->write(response.body);
  keep_capture(response.status);
  if (streaming_) return responder_->end();
  responder_->respond(decorated(std::move(response)));
}

void Generation::on_backlog(bool behind) {
  behind_ = behind;
  if (over_) return;
  for (std::size_t i = 0; i < ids_.size(); ++i) pause(i, behind);
}

/// A request that no step has named yet keeps its place in the queue, and its time limit there.
void Generation::pause(std::size_t prompt, bool paused) {
  if (!begun_[prompt] || paused_[prompt] == paused) return;
  paused_[prompt] = paused;
  engine_->pause(ids_[prompt], paused);
}

/// Ends the answer with an error, before or after the headers.
void Generation::refuse(const Error& error) {
  if (over_) return;
  over_ = true;
  cancel_all();
  if (error_shape(error.code).status == 500) {
    log::error("request_failed", {{"request_id", request_.id}, {"error", error.message}});
  }
  AccessNote& note = responder_->note();
  if (stream_) stream_->fill(note);
  note.finish_reason = "error";
  note.error_code = error_shape(error.code).code;
  const ErrorShape shape = error_shape(error.code);
  Capture::Failure failure{.stage = stream_ && !ids_.empty() ? Capture::kFailed : Capture::kRefused,
                           .code = std::string(shape.code),
                           .message = shape.status == 500 ? "" : error.message,  // what the answer says, and no more
                           .param = error.param};
  if (headed_) {
    const std::string last = responder_->gone() ? std::string() : stream_->error_events(error);
    if (capture_) capture_->write(last);
    keep_capture(HttpResponse().status, std::move(failure));
    if (!responder_->gone()) {
      responder_->write(last);
      responder_->end();
    }
  }
  HttpResponse response = protocol_.error(error);
  if (capture_) capture_->write(response.body);
  keep_capture(response.status, std::move(failure));
  responder_->respond(decorated(std::move(response)));  // ignored once headers are out
}

void Generation::cancel_all() {
  for (const RequestId id : ids_) engine_->cancel(id);
}

void Generation::on_interrupt(Interrupt cause) {
  if (over_) return;
  over_ = true;
  cancel_all();
  AccessNote& note = responder_->note();
  if (stream_) stream_->fill(note);
  note.finish_reason = "abort";
  if (cause != Interrupt::kShutdown) {
    // Of an answer whose head is not out nobody knows the id; and the pool may still have the request.
    if (!headed_) return;
    return keep_capture(kClientGone, Capture::Failure{.stage = Capture::kFailed,
                                                      .code = cause == Interrupt::kSlowClient ? "slow_client" : "disconnected",
                                                      .message = "nobody read the rest of it",
                                                      .param = ""});
  }
  const Error error{ErrorCode::kShutdown, "the server is shutting down", "", 0};
  if (stream_ && streaming_) {
    responder_->write(stream_->error_events(error));
    responder_->end();
    return;
  }
  HttpResponse response = protocol_.error(error);
  response.close = true;
  responder_->respond(std::move(response));
}

void admit(const std::shared_ptr<ServerState>& state, Api api, HttpRequest request,
           std::shared_ptr<Responder> responder, const std::optional<Digest>& body) {
  responder = state->retries->admit(request, asking_key(*state, request), std::move(responder), body);
  if (!responder) return;  // another generation answers it, or it is refused
  std::make_shared<Generation>(state, api, std::move(request), std::move(responder))->start();
}

}  // namespace

void start_generation(const std::shared_ptr<ServerState>& state, Api api, HttpRequest request,
                      std::shared_ptr<Responder> responder) {
  if (request.body.size() <= kDigestedAtOnce || !Idempotency::keyed(request))
    return admit(state, api, std::move(request), std::move(responder), {});
  const bool queued = state->text_pool->submit([state, api, request = std::move(request), responder]() mutable {
    const Digest body = sha256(request.body.data(), request.body.size());
    responder->post([state, api, request = std::move(request), responder, body]() mutable {
      if (!responder->gone()) admit(state, api, std::move(request), std::move(responder), body);
    });
  });
  if (!queued)
    responder->respond(protocol_of(api).error({ErrorCode::kUnavailable, "too many requests are being prepared", "", 1}));
}

}  // namespace barg::server
