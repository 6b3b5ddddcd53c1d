#include "server/responses_answer.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/responses_extras.h"
#include "server/responses_writer.h"
#include "server/server_state.h"

namespace barg::server {
namespace {

constexpr std::size_t kReplayBytes =
    64 << 10;  ///< at once: between two of these other connections have their turn
constexpr int kFirstError = 400;

HttpResponse json_response(std::string body, const Headers& headers) {
  HttpResponse response;
  response.headers = headers;
  response.body = std::move(body);
  return response;
}

std::string error_message(const HttpResponse& response) {
  const auto body = parse_json(response.body);
  const Json* error = body ? body->find("error") : nullptr;
  const Json* message = error ? error->find("message") : nullptr;
  return message && message->is_string() ? message->as_string() : "the request failed";
}

/// What both kinds have in common: the way from the record back to the generation.
class RunningAnswer : public Responder, public std::enable_shared_from_this<RunningAnswer> {
 public:
  RunningAnswer(const AttachContext& context, const ResponsesExtras& extras)
      : state_(context.state), id_(context.meta.id), record_(extras.record), client_(context.client) {}
  ~RunningAnswer() override {
    if (record_->finished()) return;
    record_->finish_empty(failed_response_object(record_->object(), "server_error", "the response was lost"));
    state_->responses->recharge(id_);
  }

  void on_interrupt(std::function<void(Interrupt)> callback) override { interrupt_ = std::move(callback); }
  void post(std::move_only_function<void()> function) override { client_->post(std::move(function)); }

 protected:
  /// Once it is shared.
  void arm() {
    record_->set_cancel([weak = weak_from_this()](std::function<void()> done) {
      const auto self = weak.lock();
      if (!self) return done();
      self->post([self, done = std::move(done)] {
        self->cancelled();
        self->interrupt(Interrupt::kDisconnected);
        done();
      });
    });
  }
  /// Somebody asked for it by the record: completes the answer for whoever listens.
  virtual void cancelled() = 0;

  void interrupt(Interrupt cause) {
    if (const auto callback = std::exchange(interrupt_, nullptr)) callback(cause);
  }
  void forget() {
    record_->set_cancel(nullptr);
    state_->responses->erase(id_, record_->origin().owner);
  }

  const std::shared_ptr<ServerState> state_;
  const std::string id_;
  const std::shared_ptr<StoredResponse> record_;
  const std::shared_ptr<Responder> client_;

 private:
  std::function<void(Interrupt)> interrupt_;  ///< of the generation, which it does not keep
};

class KeptAnswer final : public RunningAnswer {
 public:
  using RunningAnswer::RunningAnswer;

  void start() {
    arm();
    client_->on_interrupt([weak = weak_from_this()](Interrupt cause) {
      if (const auto self = weak.lock()) static_cast<KeptAnswer&>(*self).client_left(cause);
    });
  }

  void respond(HttpResponse response) override {
    if (response.status >= kFirstError && !record_->finished()) forget();
    client_->respond(std::move(response));
  }
  void begin_stream(HttpResponse head, std::string_view keep_alive) override {
    streaming_ = true;
    client_->begin_stream(std::move(head), keep_alive);
  }
  void write(std::string_view bytes) override { client_->write(bytes); }
  void end() override {
    client_->end();
  }
  bool gone() const override { return client_->gone(); }
  AccessNote& note() override { return client_->note(); }
  void set_route(std::string_view pattern) override { client_->set_route(pattern); }
  void on_backlog(std::function<void(bool)> callback) override { client_->on_backlog(std::move(callback)); }

 private:
  void client_left(Interrupt cause) {
    std::string nobody;
    if (cause != Interrupt::kShutdown) record_->finish_cancelled(nobody);
    interrupt(cause);
  }
  void cancelled() override {
    std::string events;
    if (client_->gone() || !record_->finish_cancelled(events)) return;
    interrupt(Interrupt::kDisconnected);  // first: it completes what the log says
    if (streaming_) {
      client_->write(events);
      client_->end();
    } else {
      client_->respond(json_response(record_->object(), {}));
    }
  }

  bool streaming_ = false;
};

class DetachedAnswer final : public RunningAnswer {
 public:
  DetachedAnswer(const AttachContext& context, const ResponsesExtras& extras, bool kept)
      : RunningAnswer(context, extras), headers_(context.headers) {
    if (!kept)
      refusal_ = error_response(
          {ErrorCode::kRateLimited, "the responses that are running fill the store", "store", 1});
  }

  void start() {
    arm();
    client_->on_interrupt({});  // its leaving changes nothing
    // Behind whatever else this turn of the io thread does: only then it is known whether the engine took it.
    client_->post(
        [self = std::static_pointer_cast<DetachedAnswer>(shared_from_this())] { self->answer_client(); });
  }

  void respond(HttpResponse response) override {
    if (std::exchange(over_, true)) return;
    log_end();
    if (response.status < kFirstError || record_->finished()) return;
    if (!told_) {
      forget();
      refusal_ = std::move(response);
      return;
    }
    record_->finish_empty(failed_response_object(record_->object(), response_failure_code(response.status),
                                                 error_message(response)));
    state_->responses->recharge(id_);
  }
  void begin_stream(HttpResponse, std::string_view) override {}
  void write(std::string_view) override {}
  void end() override {
    if (!std::exchange(over_, true)) log_end();
  }
  bool gone() const override { return over_; }
  AccessNote& note() override { return note_; }
  void set_route(std::string_view) override {}
  void on_backlog(std::function<void(bool)>) override {}

 private:
  void answer_client() {
    told_ = true;
    if (refusal_) {
      client_->respond(std::move(*refusal_));
      return interrupt(Interrupt::kDisconnected);
    }
    if (record_->origin().streamed) return follow_response(record_, -1, headers_, client_);
    client_->respond(json_response(record_->object(), headers_));
  }
  void cancelled() override {
    std::string nobody;
    record_->finish_cancelled(nobody);
    if (!std::exchange(over_, true)) log_end();  // the generation is told next
  }
  void log_end() const {
    log::info("response_ended", {{"response_id", id_},
                                 {"finish_reason", note_.finish_reason},
                                 {"output_tokens", note_.output_tokens}});
  }

  const Headers headers_;
  std::optional<HttpResponse> refusal_;
  AccessNote note_;
  bool told_ = false, over_ = false;
};

/// Reads a record for one client.
class Follower : public std::enable_shared_from_this<Follower> {
 public:
  Follower(std::shared_ptr<StoredResponse> record, std::int64_t after, std::shared_ptr<Responder> client)
      : record_(std::move(record)), client_(std::move(client)), after_(after) {}
  ~Follower() { leave(); }

  void start(const Headers& headers) {
    place_ = record_->follow([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->wake();
    });
    if (!place_) {
      return client_->respond(error_response(
          {ErrorCode::kRateLimited, "too many clients read the stream of this response", "", 1}));
    }
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = headers;
    head.headers.emplace_back("cache-control", "no-cache");
    head.headers.emplace_back("x-accel-buffering", "no");
    client_->on_interrupt([self = shared_from_this()](Interrupt cause) { self->left(cause); });
    client_->on_backlog([weak = weak_from_this()](bool behind) {
      if (const auto self = weak.lock()) self->set_behind(behind);
    });
    client_->begin_stream(std::move(head), kResponsesKeepAlive);
    pump();
  }

 private:
  /// Any thread.
  void wake() {
    if (over_ || scheduled_.exchange(true)) return;
    client_->post([self = shared_from_this()] {
      self->scheduled_ = false;
      self->pump();
    });
  }

  /// Is there anything to read, now or later? Nothing is behind the last event of a finished answer.
  bool found_place() {
    if (at_) return true;
    const bool finished = record_->finished();  // first: what is finished has all its events
    at_ = record_->position_after(after_);
    if (!at_ && finished) end("");
    return at_.has_value();
  }

  void pump() {
    if (over_ || behind_ || !found_place()) return;
    buffer_.clear();
    const StoredResponse::Read read = record_->read(*at_, kReplayBytes, buffer_);
    if (!buffer_.empty()) client_->write(buffer_);
    if (over_) return;  // the write found the reader too slow
    if (read.lost) {
      return end(
          "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"server_error\","
          "\"message\":\"the events of this response are no longer stored\",\"param\":null}\n\n");
    }
    if (read.over) return end("");
    if (!buffer_.empty()) wake();
  }
  void end(std::string_view last) {
    over_ = true;
    leave();
    if (!last.empty()) client_->write(last);
    client_->end();
  }
  void left(Interrupt cause) {
    const bool was_over = over_.exchange(true);
    leave();
    if (!was_over && cause == Interrupt::kShutdown) client_->end();  // the client can come back and read on where it is
  }
  /// Others may have its place at once.
  void leave() {
    if (place_) record_->unfollow(*place_);
  }
  void set_behind(bool behind) {
    behind_ = behind;
    if (!behind) wake();  // not at once: this may be in the middle of a write
  }

  const std::shared_ptr<StoredResponse> record_;
  const std::shared_ptr<Responder> client_;
  const std::int64_t after_;
  std::optional<StoredResponse::FollowerId> place_;
  std::optional<std::size_t> at_;  ///< byte of the events; none: the event behind after_ has not come
  std::string buffer_;
  bool behind_ = false;
  std::atomic<bool> over_{false}, scheduled_{false};
};

}  // namespace

std::shared_ptr<Responder> attach_response(const AttachContext& context) {
  const auto extras = std::dynamic_pointer_cast<const ResponsesExtras>(context.output.extras);
  CHECK(extras);
  if (!extras->record) return nullptr;
  const bool kept = extras->store->insert(context.meta.id, extras->record);
  if (extras->background) {
    auto answer = std::make_shared<DetachedAnswer>(context, *extras, kept);
    answer->start();
    return answer;
  }
  if (!kept) return nullptr;
  auto answer = std::make_shared<KeptAnswer>(context, *extras);
  answer->start();
  return answer;
}

void follow_response(std::shared_ptr<StoredResponse> record, std::int64_t after, const Headers& headers,
                     std::shared_ptr<Responder> client) {
  CHECK(record->origin().streamed);
  std::make_shared<Follower>(std::move(record), after, std::move(client))->start(headers);
}

}  // namespace barg::server
