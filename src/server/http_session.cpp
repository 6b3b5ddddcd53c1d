#include "server/http_session.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace barg::server {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::uint64_t kDiscardBytes = 64 * 1024;  // a refused body up to here does not cost the connection
constexpr std::uint64_t kLingerBytes = 256ULL << 20;
constexpr double kLingerSeconds = 10, kShortLingerSeconds = 2;
constexpr double kBodyBytesPerSecond = 32 * 1024;  // a slower upload runs into the body timeout
constexpr std::size_t kKeptBuffer = 16 * 1024;
constexpr auto kFullInputPoll = std::chrono::milliseconds(20);

std::chrono::nanoseconds seconds(double s) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::clamp(s, 0.0, 1e9) * 1e9));
}

double since(SteadyTime t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

bool acceptable_id(const std::string& id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::string mint_id(Rng& rng) {
  char text[40];
  std::snprintf(text, sizeof text, "req-%016llx%08llx", static_cast<unsigned long long>(rng.next()),
                static_cast<unsigned long long>(rng.next() >> 32));
  return text;
}

/// The stable `code` of what the HTTP layer refuses by itself.
std::string_view framing_code(int status) {
  switch (status) {
    case 408:
      return "request_timeout";
    case 413:
      return "request_too_large";
    case 414:
      return "uri_too_long";
    case 431:
      return "header_too_large";
    case 505:
      return "unsupported_http_version";
    default:
      return "invalid_http";
  }
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  const std::size_t n = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return {text, n};
}

/// What the handler holds. A dropped one ends its request, from whatever thread drops it.
class Exchange final : public Responder {
 public:
  Exchange(std::shared_ptr<Session> session, std::shared_ptr<Answer> answer)
      : session_(std::move(session)), answer_(std::move(answer)) {}
  ~Exchange() override {
    if (session_->io()->stopped()) return;
    asio::post(session_->io()->context, [session = session_, answer = answer_] { session->dropped(answer); });
  }

  void respond(HttpResponse response) override { session_->respond(answer_, std::move(response)); }
  void begin_stream(HttpResponse head, std::string_view keep_alive) override {
    session_->begin_stream(answer_, std::move(head), keep_alive);
  }
  void write(std::string_view bytes) override { session_->write(answer_, bytes); }
  void end() override { session_->end(answer_); }
  bool gone() const override { return !session_->current(answer_); }
  AccessNote& note() override { return answer_->record.note; }
  void set_route(std::string_view pattern) override { answer_->record.route = pattern; }
  void on_interrupt(std::function<void(Interrupt)> callback) override {
    answer_->on_interrupt = std::move(callback);
  }
  void on_backlog(std::function<void(bool)> callback) override { answer_->on_backlog = std::move(callback); }
  void post(std::move_only_function<void()> function) override {
    session_->io()->post(std::move(function));
  }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<Answer> answer_;
};

}  // namespace

// ---- the io thread's inbox
// ------------------------------------------------------------------------------------------------

void IoThread::post(Function function) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    inbox_.push_back(std::move(function));
    if (std::exchange(scheduled_, true)) return;
  }
  asio::post(context, [self = shared_from_this()] { self->run_inbox(); });
}

void IoThread::run_inbox() {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(inbox_);
    scheduled_ = false;
  }
  gathering = true;
  for (Function& function : running_) {
    function();
    function = nullptr;
  }
  gathering = false;
  running_.clear();
  for (auto& session : dirty) std::exchange(session, nullptr)->flush_gathered();
  dirty.clear();
}

void IoThread::stop() {
  std::vector<Function> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(inbox_);
  }
  dropped.clear();  // not under the lock: what they hold may post when it goes
  context.restart();
  context.poll();
}

Session::Session(std::shared_ptr<HttpShared> shared, std::shared_ptr<IoThread> io, tcp::socket socket)
    : shared_(std::move(shared)),
      io_(std::move(io)),
      socket_(std::move(socket)),
      deadline_(io_->context),
      write_timer_(io_->context),
      ping_timer_(io_->context),
      watch_timer_(io_->context) {
  ++shared_->open;
}

Session::~Session() { --shared_->open; }

void Session::start() {
  error_code ec;
  socket_.set_option(tcp::no_delay(true), ec);
  socket_.non_blocking(true, ec);
  // Tokens that a reader does not take stay here, where they are counted, not in megabytes of socket buffer.
  socket_.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>(kUnsentBytes), ec);
  const auto endpoint = socket_.remote_endpoint(ec);
  if (!ec) peer_ = endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
  io_->sessions.insert(this);
  if (shared_->stopping) return close("server_shutdown");
  set_deadline(shared_->options.header_timeout_s);
  read();
}

void Session::start_refused() {
  ++shared_->refused;
  io_->sessions.insert(this);
  if (shared_->stopping) return close("server_shutdown");
  HttpResponse response =
      shared_->handler.refusal(nullptr, 503, "too_many_connections", "too many connections, try again later");
  response.headers.emplace_back("retry-after", "1");
  response.close = true;
  close_after_ = true;
  send(response_head(response, false) + response.body);
  flush();
  linger(false);
}

// ---- reading
// --------------------------------------------------------------------------------------------------

void Session::read() {
  if (reading_ || phase_ == Phase::kClosed || peer_closed_) return;
  if (answer_ && !discarding_ && phase_ == Phase::kOpen && in_.size() >= kMaxBufferedInput)
    return watch_full_input();
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](error_code ec, std::size_t n) {
    self->reading_ = false;
    self->on_read(ec, n);
  });
}

/// The input buffer is full of later requests, so no read is pending: look at the socket itself instead.
void Session::watch_full_input() {
  watch_timer_.expires_after(kFullInputPoll);
  watch_timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (ec || self->phase_ != Phase::kOpen) return;
    pollfd fd{self->socket_.native_handle(), POLLRDHUP, 0};
    if (::poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      return self->on_peer_closed(true);
    }
    self->read();
  });
}

void Session::on_read(error_code ec, std::size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (ec) return on_peer_closed(ec != asio::error::eof);
  if (phase_ == Phase::kLinger) {
    lingered_ += bytes;
    if (lingered_ > kLingerBytes) return close("linger");
    return read();
  }
  in_.append(chunk_.data(), bytes);
  if (!answer_ || discarding_) request_bytes_ += bytes;
  process();
  read();
}

void Session::on_peer_closed(bool reset) {
  peer_closed_ = true;
  if (phase_ == Phase::kLinger) {
    if (!writing_ && queue_.empty()) close("linger");
    return;
  }
  if (answer_ && !answer_->ended) {
    ++shared_->disconnects;
    interrupt(Interrupt::kDisconnected);
    return close("disconnected");
  }
  if (reset) return close("disconnected");
  // A half-closed peer may still read the answers to what it has sent.
  process();
}

void Session::process() {
  if (processing_) return;
  processing_ = true;
  const auto self = shared_from_this();
  while (phase_ == Phase::kOpen && step()) {
  }
  processing_ = false;
  if (phase_ == Phase::kOpen && peer_closed_ && (!answer_ || discarding_)) close("disconnected");
}

/// True when there may be more to do with what has been read.
bool Session::step() {
  if (discarding_) return step_discard();
  if (answer_ || close_after_ || in_.empty()) return false;
  if (!parser_) {
    parser_ = std::make_unique<RequestParser>(shared_->options.max_body_bytes);
    request_started_ = std::chrono::steady_clock::now();
    request_bytes_ = in_.size();
    head_checked_ = false;
    set_deadline(shared_->options.header_timeout_s);
  }
  const auto before = parser_->state();
  const auto state = parser_->feed(in_);
  switch (state) {
    case RequestParser::State::kHead:
      return false;
    case RequestParser::State::kFailed:
      refuse_framing(parser_->status(), parser_->reason());
      return false;
    case RequestParser::State::kBody:
      if (head_checked_) return before != state;
      return on_head();
    case RequestParser::State::kDone:
      if (!head_checked_ && !on_head()) return discarding_;
      if (answer_) return true;  // refused
      dispatch();
      return true;
  }
  return false;
}

bool Session::step_discard() {
  const auto state = parser_->feed(in_);
  if (state == RequestParser::State::kBody) return false;
  discarding_ = false;
  if (state == RequestParser::State::kFailed) close_after_ = true;
  if (answer_ && answer_->ended && !writing_ && queue_.empty()) finish_answer();
  return true;
}

/// The head is complete: refuse now or go on reading. False when refused.
bool Session::on_head() {
  head_checked_ = true;
  const HttpRequest& head = parser_->request();
  parser_->request().peer = peer_;
  const std::string* id = head.header("x-request-id");
  parser_->request().id =
      id && head.header_count("x-request-id") == 1 && acceptable_id(*id) ? *id : mint_id(io_->ids);

  std::string route = "-";
  if (auto response = shared_->handler.check(head, route)) {
    refuse(std::move(*response), route);
    return false;
  }
  if (head.content_length.value_or(0) > shared_->options.max_body_bytes) {
    refuse_framing(413,
                   "the body is larger than " + std::to_string(shared_->options.max_body_bytes) + " bytes");
    answer_->record.route = route;
    return false;
  }
  body_started_ = std::chrono::steady_clock::now();
  if (parser_->state() == RequestParser::State::kBody) {
    set_deadline(shared_->options.body_timeout_s);
    if (parser_->expects_continue() && in_.empty()) {
      send("HTTP/1.1 100 Continue\r\n\r\n");
      flush();
    }
  }
  return true;
}

void Session::dispatch() {
  deadline_.cancel();
  begin_answer();
  auto exchange = std::make_shared<Exchange>(shared_from_this(), answer_);
  shared_->handler.handle(std::move(parser_->request()), std::move(exchange));
}

void Session::refuse_framing(int status, const std::string& message) {
  const HttpRequest* head = head_checked_ ? &parser_->request() : nullptr;
  HttpResponse response = shared_->handler.refusal(head, status, framing_code(status), message);
  response.close = true;
  refuse(std::move(response), "-");
}

/// Answers before the body has been read. A small rest of the body is read and thrown away; a large or
/// unknown one costs the connection (after a drain).
void Session::refuse(HttpResponse response, std::string route) {
  deadline_.cancel();
  begin_answer();
  answer_->record.route = std::move(route);
  const bool body_left = parser_->state() == RequestParser::State::kBody;
  if (body_left) {
    const auto length = parser_->request().content_length;
    if (response.close || !length || *length > kDiscardBytes || parser_->expects_continue()) {
      response.close = true;
    } else {
      discarding_ = true;
      parser_->discard_body();
      body_started_ = std::chrono::steady_clock::now();
      set_deadline(shared_->options.body_timeout_s);
    }
  }
  respond(answer_, std::move(response));
}

// ---- answering
// ------------------------------------------------------------------------------------------------

void Session::begin_answer() {
  answer_ = std::make_shared<Answer>();
  const HttpRequest& request = parser_->request();
  answer_->started = request_started_;
  answer_->head_only = request.method == "HEAD";
  answer_->record.request_id = request.id.empty() ? mint_id(io_->ids) : request.id;
  answer_->record.peer = peer_;
  answer_->record.method = request.method.empty() ? "-" : request.method;
  answer_->record.route = "-";
  answer_->record.bytes_in = request_bytes_;
  answer_->chunked = request.minor >= 1;
  close_after_ = !parser_->keep_alive() || ++requests_ >= kMaxRequestsPerConnection;
  ++shared_->active;
}

void Session::respond(const std::shared_ptr<Answer>& answer, HttpResponse response) {
  if (!current(answer) || answer->head_sent) return;
  if (response.close || shared_->draining) close_after_ = true;
  answer->head_sent = answer->ended = true;
  answer->record.status = response.status;
  std::string bytes = response_head(response, false);
  if (!answer->head_only && response.status != 204) bytes += response.body;
  send(bytes);
  flush();
}

/// The handler let go of the request without an answer: our bug, but the client shall know.
void Session::dropped(const std::shared_ptr<Answer>& answer) {
  if (!current(answer)) return;
  if (answer->head_sent) return close("dropped");
  HttpResponse response =
      shared_->handler.refusal(nullptr, 500, "internal_error", "the request was lost inside the server");
  response.close = true;
  respond(answer, std::move(response));
}

void Session::begin_stream(const std::shared_ptr<Answer>& answer, HttpResponse head, std::string_view keep_alive) {
  if (!current(answer) || answer->head_sent) return;
  if (head.close || shared_->draining || !answer->chunked) close_after_ = true;
  answer->head_sent = true;
  answer->keep_alive = keep_alive;
  answer->record.status = head.status;
  send(response_head(head, true));
  flush();
  if (!keep_alive.empty() && shared_->options.sse_ping_s > 0) ping();
}

void Session::write(const std::shared_ptr<Answer>& answer, std::string_view bytes) {
  if (!current(answer) || !answer->head_sent || bytes.empty()) return;
  const std::size_t before = queue_.size();
  if (answer->chunked) {
    char size[24];
    char* end = std::to_chars(size, size + sizeof size - 2, bytes.size(), 16).ptr;
    *end++ = '\r';
    *end++ = '\n';
    send({size, static_cast<std::size_t>(end - size)});
    send(bytes);
    send("\r\n");
  } else {
    send(bytes);
  }
  answer->largest_write =
      std::max(answer->largest_write, queue_.size() - before);  // its size is no fault of the reader
  if (backlog() > kMaxBacklogBytes + answer->largest_write) {
    ++shared_->stalls;
    interrupt(Interrupt::kSlowClient);
    return close("slow_client");
  }
  flush();
  tell_backlog();
}

void Session::end(const std::shared_ptr<Answer>& answer) {
  if (!current(answer) || !answer->head_sent) return;
  answer->ended = true;
  if (answer->chunked) send("0\r\n\r\n");
  flush();
  if (!writing_ && !dirty_ && !discarding_) finish_answer();
}

std::string Session::response_head(const HttpResponse& response, bool stream) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head += reason_phrase(response.status);
  head += "\r\nserver: barg\r\ndate: " + http_date();
  if (answer_) head += "\r\nx-request-id: " + answer_->record.request_id;
  if (response.status != 204) head += "\r\ncontent-type: " + response.content_type;
  if (stream) {
    if (answer_ && answer_->chunked) head += "\r\ntransfer-encoding: chunked";
  } else if (response.status != 204) {
    head += "\r\ncontent-length: " + std::to_string(response.body.size());
  }
  for (const auto& [name, value] : response.headers) head += "\r\n" + name + ": " + value;
  if (close_after_) {
    head += "\r\nconnection: close";
  } else if (answer_ && !answer_->chunked) {
    head += "\r\nconnection: keep-alive";  // an HTTP/1.0 client that asked for it
  }
  head += "\r\n\r\n";
  return head;
}

/// The last byte of an answer is with the kernel: log it and turn to the next request.
void Session::finish_answer() {
  log_answer("");
  answer_.reset();
  out_.clear();
  out_pos_ = 0;
  for (std::string* buffer : {&out_, &queue_, &in_}) {
    if (buffer->empty() && buffer->capacity() > kKeptBuffer) buffer->shrink_to_fit();  // it may idle for long
  }
  const bool complete = parser_ && parser_->state() == RequestParser::State::kDone;
  parser_.reset();
  if (close_after_ || shared_->draining) return linger(complete);
  if (in_.empty()) set_deadline(shared_->options.keep_alive_timeout_s);
  process();
  read();
}

void Session::log_answer(const char* cancel_cause) {
  AccessRecord& record = answer_->record;
  record.cancel_cause = cancel_cause;
  if (record.status == 0) record.status = 499;
  record.duration_s = since(answer_->started);
  answer_->ended = true;
  answer_->on_interrupt = nullptr;
  answer_->on_backlog = nullptr;
  shared_->handler.on_access(record);
  if (--shared_->active == 0) {
    const std::lock_guard lock(shared_->mutex);
    shared_->idle.notify_all();
  }
}

void Session::interrupt(Interrupt cause) {
  if (!answer_ || answer_->ended || !answer_->on_interrupt) return;
  const auto callback = std::exchange(answer_->on_interrupt, nullptr);
  callback(cause);
}

void Session::interrupt_for_shutdown() {
  const auto self = shared_from_this();
  if (!answer_ || answer_->ended) return close("server_shutdown");
  const auto answer = answer_;
  interrupt(Interrupt::kShutdown);
  if (!current(answer) || answer->on_interrupt) return;  // somebody has more to say, or stop() ends it
  if (answer->head_sent) return close("server_shutdown");
  HttpResponse response = shared_->handler.refusal(nullptr, 503, "server_shutdown", "the server is shutting down");
  response.close = true;
  respond(answer, std::move(response));
}

// ---- writing
// --------------------------------------------------------------------------------------------------

void Session::send(std::string_view bytes) {
  if (answer_) answer_->record.bytes_out += bytes.size();
  queue_ += bytes;
}

void Session::flush() {
  if (writing_ || dirty_ || phase_ == Phase::kClosed) return;
  if (!io_->gathering) return start_write();
  dirty_ = true;
  io_->dirty.push_back(shared_from_this());
}

/// Nearly always the socket takes all of it at once: no callback, no timer.
void Session::flush_gathered() {
  dirty_ = false;
  if (writing_ || phase_ == Phase::kClosed) return;
  if (out_pos_ == out_.size() && !queue_.empty()) {
    error_code ec;
    const std::size_t n = socket_.write_some(asio::buffer(queue_), ec);
    if (!ec && n == queue_.size()) {
      queue_.clear();
      last_write_ = std::chrono::steady_clock::now();
      return on_written_all();
    }
    if (!ec) queue_.erase(0, n);  // an error comes again
  }
  start_write();
}

void Session::start_write() {
  if (out_pos_ == out_.size()) {
    if (queue_.empty()) return;
    out_.clear();
    out_.swap(queue_);
    out_pos_ = 0;
  }
  writing_ = true;
  const auto serial = ++write_serial_;
  last_write_ = std::chrono::steady_clock::now();
  write_timer_.expires_after(seconds(shared_->options.write_stall_timeout_s));
  write_timer_.async_wait([self = shared_from_this(), serial](error_code ec) {
    if (!ec) self->on_write_stall(serial);
  });
  socket_.async_write_some(asio::buffer(out_.data() + out_pos_, out_.size() - out_pos_),
                           [self = shared_from_this()](error_code ec, std::size_t n) {
                             self->writing_ = false;
                             self->on_written(ec, n);
                           });
}

void Session::on_written(error_code ec, std::size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (ec) return on_peer_closed(true);
  out_pos_ += bytes;
  tell_backlog();
  start_write();
  if (writing_) return;
  write_timer_.cancel();
  on_written_all();
}

void Session::on_written_all() {
  if (phase_ == Phase::kLinger) {
    if (peer_closed_) return close("linger");
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    return;
  }
  if (answer_ && answer_->ended && !discarding_) finish_answer();
}

/// Bytes count only while the socket takes no more: what has just been written may leave at once.
void Session::tell_backlog() {
  if (!answer_ || answer_->ended || !answer_->on_backlog) return;
  const bool behind = answer_->behind ? backlog() > kCaughtUpBytes : writing_ && backlog() > kBehindBytes;
  if (behind == answer_->behind) return;
  answer_->behind = behind;
  answer_->on_backlog(behind);
}

void Session::on_write_stall(std::uint64_t write) {
  if (phase_ == Phase::kClosed || !writing_ || write != write_serial_) return;
  ++shared_->stalls;
  interrupt(Interrupt::kSlowClient);
  close("slow_client");
}

void Session::ping() {
  const auto now = std::chrono::steady_clock::now();
  const auto period = seconds(shared_->options.sse_ping_s);
  // Never at once: a write may wait for its reader for much longer than a period.
  const bool overdue = writing_ || last_write_ + period <= now;
  ping_timer_.expires_at((overdue ? now : last_write_) + period);
  ping_timer_.async_wait([self = shared_from_this(), answer = answer_](error_code ec) {
    if (ec || !self->current(answer)) return;
    if (!self->writing_ && since(self->last_write_) >= self->shared_->options.sse_ping_s * 0.99) {
      self->write(answer, answer->keep_alive);
    }
    if (self->current(answer)) self->ping();
  });
}

// ---- time and end
// ---------------------------------------------------------------------------------------------

void Session::set_deadline(double s) {
  deadline_.expires_after(seconds(s));
  deadline_.async_wait([self = shared_from_this()](error_code ec) {
    if (!ec && self->deadline_.expiry() <= std::chrono::steady_clock::now()) self->on_deadline();
  });
}

void Session::on_deadline() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kLinger) return close("linger");
  if (discarding_) return close("body_timeout");
  if (answer_) return;
  if (!parser_) return close("idle");
  if (parser_->state() == RequestParser::State::kHead) {
    return refuse_framing(408, "the header did not arrive in time");
  }
  const double allowed =
      shared_->options.body_timeout_s + static_cast<double>(request_bytes_) / kBodyBytesPerSecond;
  const double used = since(body_started_);
  if (used < allowed) return set_deadline(std::max(0.001, allowed - used));
  refuse_framing(408, "the body did not arrive in time");
}

/// Ends the sending side and throws away what the peer still sends, so that the answer is not lost to a
/// reset.
void Session::linger(bool request_complete) {
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kLinger;
  in_.clear();
  if (peer_closed_ && !writing_) return close("linger");
  if (!writing_) {
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
  }
  set_deadline(request_complete ? kShortLingerSeconds : kLingerSeconds);
  read();
}

void Session::drain() {
  if (phase_ == Phase::kOpen && !answer_ && !parser_) linger(true);
}

void Session::close(const char* cause) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  if (!answer_ && parser_ && phase_ == Phase::kOpen) begin_answer();  // half a request is still a request
  phase_ = Phase::kClosed;
  if (answer_) log_answer(cause);
  answer_.reset();
  parser_.reset();
  for (auto* timer : {&deadline_, &write_timer_, &ping_timer_, &watch_timer_}) timer->cancel();
  error_code ec;
  socket_.close(ec);
  io_->sessions.erase(this);
}

}  // namespace barg::server
