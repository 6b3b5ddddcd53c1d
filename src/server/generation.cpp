#include "server/generation.h"

#include <cstdio>
#include <ctime>
#include <optional>

#include "base/env.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/prepare.h"
#include "server/response_stream.h"
#include "server/routes.h"

namespace barg::server {
namespace {

constexpr ErrorShape kShutdown = {503, "server_error", "server_shutdown"};
constexpr std::string_view kShutdownMessage = "the server is shutting down";

std::string mint_response_id(Api api) {
  Rng rng(random_seed());
  char text[64];
  std::snprintf(text, sizeof text, "%s-%016llx%08llx", api == Api::kChat ? "chatcmpl" : "cmpl",
                static_cast<unsigned long long>(rng.next()),
                static_cast<unsigned long long>(rng.next() >> 32));
  return text;
}

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<ServerState> state, Api api, HttpRequest request,
             std::shared_ptr<Responder> responder)
      : state_(std::move(state)), api_(api), request_(std::move(request)), responder_(std::move(responder)) {
    state_->generations.add();
  }
  ~Generation() { state_->generations.remove(); }

  void start();

 private:
  void launch(Prepared prepared);
  bool submit_all(std::vector<Request> requests);
  void on_event(std::size_t prompt, TokenEvent&& event);
  void on_interrupt(Interrupt cause);
  void on_backlog(bool behind);
  void pause(std::size_t prompt, bool paused);
  void refuse(const Error& error);
  void cancel_all();
  HttpResponse decorated(HttpResponse response) const;

  const std::shared_ptr<ServerState> state_;
  const Api api_;
  HttpRequest request_;
  const std::shared_ptr<Responder> responder_;

  // From launch() on; io thread.
  std::shared_ptr<Engine> engine_;
  std::optional<ResponseStream> stream_;
  std::vector<RequestId> ids_;
  std::vector<bool> begun_, paused_;  ///< per request: has had an event; waits for the reader
  bool streaming_ = false;
  std::string events_;  ///< of the current event; its memory serves every token
  bool behind_ = false;  ///< the reader is
  bool over_ = false;    ///< answered, or nobody listens: events are ignored
  std::vector<std::string> ignored_;
  std::int32_t clamped_max_tokens_ = 0;
};

void Generation::start() {
  responder_->on_interrupt([self = shared_from_this()](Interrupt cause) { self->on_interrupt(cause); });
  const bool queued = state_->pool->submit([self = shared_from_this()] {
    // Where no key is asked for, whatever a client sends as one says nothing.
    const bool keys = !self->state_->options.api_key.empty();
    const std::string_view key = keys ? presented_key(self->request_).value_or("") : "";
    auto prepared = prepare(*self->state_, self->api_, self->request_.body, key);
    self->request_.body = {};
    auto responder = self->responder_;
    if (!prepared) {
      responder->post([self, error = prepared.error()] { self->refuse(error); });
    } else {
      responder->post([self, p = std::move(*prepared)]() mutable { self->launch(std::move(p)); });
    }
  });
  if (!queued)
    refuse({ErrorCode::kUnavailable, "too many requests are being prepared, try again later", "", 1});
}

HttpResponse Generation::decorated(HttpResponse response) const {
  if (!ignored_.empty()) response.headers.emplace_back("x-barg-ignored-fields", ignored_header(ignored_));
  if (clamped_max_tokens_ > 0)
    response.headers.emplace_back("x-barg-max-tokens", std::to_string(clamped_max_tokens_));
  return response;
}

void Generation::launch(Prepared prepared) {
  if (over_ || responder_->gone()) return;
  const ServedModel& model = *prepared.model;
  engine_ = model.engine;
  ignored_ = std::move(prepared.ignored);
  clamped_max_tokens_ = prepared.clamped_max_tokens;
  streaming_ = prepared.output.stream;
  ResponseMeta meta{.id = mint_response_id(api_),
                    .model = model.names.front(),
                    .fingerprint = model.fingerprint,
                    .created = static_cast<std::int64_t>(std::time(nullptr))};
  stream_.emplace(std::move(meta), std::move(prepared.output), prepared.n, std::move(prepared.prompts),
                  *model.tokenizer);
  if (!submit_all(std::move(prepared.requests)) || !streaming_) return;

  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
  responder_->on_backlog([self = weak_from_this()](bool behind) {
    if (const auto s = self.lock()) s->on_backlog(behind);
  });
  responder_->begin_stream(decorated(std::move(head)), true);
  responder_->write(stream_->begin());
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
  events_.clear();
  ResponseStream::Step step = stream_->push(prompt, std::move(event), events_);
  for (const auto& f : step.finish_at) engine_->finish_at(ids_[f.prompt], f.choice, f.tokens);
  if (!events_.empty()) {
    responder_->write(events_);
    if (over_) return;  // the write found the reader too slow
  }
  if (behind_) pause(prompt, true);
  if (step.error) return refuse(*step.error);
  if (!step.complete) return;
  over_ = true;
  stream_->fill(responder_->note());
  if (streaming_) return responder_->end();
  HttpResponse response;
  response.body = stream_->body();
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
  if (stream_ && streaming_ && !ids_.empty() && !responder_->gone()) {
    responder_->write(ResponseStream::error_events(error));
    responder_->end();
  }
  responder_->respond(decorated(error_response(error)));  // ignored once headers are out
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
  if (cause != Interrupt::kShutdown) return;
  if (stream_ && streaming_) {
    responder_->write("data: " + dump_json(error_json(kShutdown, kShutdownMessage)) + "\n\ndata: [DONE]\n\n");
    responder_->end();
    return;
  }
  HttpResponse response = error_response(kShutdown, kShutdownMessage);
  response.close = true;
  responder_->respond(std::move(response));
}

}  // namespace

void start_generation(const std::shared_ptr<ServerState>& state, Api api, HttpRequest request,
                      std::shared_ptr<Responder> responder) {
  std::make_shared<Generation>(state, api, std::move(request), std::move(responder))->start();
}

}  // namespace barg::server
