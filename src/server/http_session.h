// Session: one TCP connection and the request it is answering. Internal to http_server.cpp (includes Asio).
//
//   kOpen: reads heads and bodies, answers one request at a time
//   kLinger: the last answer is out, the sending side is shut; what still comes in is thrown away, bounded
//   kClosed: nothing happens any more; the object lives until its last callback has run
//
// Threads: everything on the thread of `io_->context`, but Exchange::post. A Session keeps itself alive
// through the callbacks it waits for; IoThread::sessions borrows it between start() and close().
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/env.h"
#include "server/http_server.h"
#include "server/request_parser.h"

namespace barg::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class Session;

/// An io thread and what its connections share.
///
/// Functions posted by other threads gather in an inbox and run in one go, and what they write leaves in one
/// send per connection when all have run: a step that made tokens for 32 streams wakes the thread once.
struct IoThread : std::enable_shared_from_this<IoThread> {
  using Function = std::move_only_function<void()>;

  asio::io_context context{1};
  std::unordered_set<Session*> sessions;
  Rng ids{random_seed()};
  bool gathering = false;                      ///< functions of the inbox are running
  std::vector<std::shared_ptr<Session>> dirty;  ///< of these, who has something to send

  /// Any thread. After stop() a function is dropped at once.
  void post(Function function);
  /// Drops the inbox and runs what the context still holds. REQUIRES that the thread has ended.
  void stop();
  bool stopped() const { return stopped_; }

 private:
  void run_inbox();

  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::vector<Function> inbox_;    // guarded by mutex_
  bool scheduled_ = false;         // guarded by mutex_: run_inbox() will come
  std::vector<Function> running_;  // its memory serves every batch
};

/// What all connections of a server share.
struct HttpShared {
  ServerOptions options;
  HttpHandler& handler;
  std::atomic<bool> draining{false}, stopping{false};
  std::atomic<std::int64_t> open{0}, active{0};
  std::atomic<std::uint64_t> accepted{0}, refused{0}, stalls{0}, disconnects{0};
  std::mutex mutex;              ///< for idle only
  std::condition_variable idle;  ///< active became 0
};

/// One request being answered; shared by the session and the handler's Exchange.
struct Answer {
  AccessRecord record;
  std::function<void(Interrupt)> on_interrupt;
  std::function<void(bool)> on_backlog;
  std::chrono::steady_clock::time_point started;
  bool head_only = false;  ///< HEAD
  bool head_sent = false;
  bool chunked = false;
  std::string_view keep_alive;  ///< sent into a silent stream; empty: nothing is
  bool ended = false;   ///< the handler is through
  bool behind = false;  ///< as on_backlog was told
  std::size_t largest_write = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<HttpShared> shared, std::shared_ptr<IoThread> io, tcp::socket socket);
  ~Session();

  void start();
  /// Too many connections: say so and leave.
  void start_refused();
  void drain();
  void interrupt_for_shutdown();
  void close(const char* cause);
  /// Sends what IoThread::gathering held back.
  void flush_gathered();

  // From Exchange.
  void respond(const std::shared_ptr<Answer>& answer, HttpResponse response);
  void begin_stream(const std::shared_ptr<Answer>& answer, HttpResponse head, std::string_view keep_alive);
  void write(const std::shared_ptr<Answer>& answer, std::string_view bytes);
  void end(const std::shared_ptr<Answer>& answer);
  void dropped(const std::shared_ptr<Answer>& answer);
  bool current(const std::shared_ptr<Answer>& answer) const {
    return phase_ != Phase::kClosed && answer == answer_ && !answer->ended;
  }
  const std::shared_ptr<IoThread>& io() const { return io_; }

 private:
  enum class Phase : std::uint8_t { kOpen, kLinger, kClosed };

  void read();
  void on_read(error_code ec, std::size_t bytes);
  void on_peer_closed(bool reset);
  void watch_full_input();
  void process();
  bool step();
  bool step_discard();
  bool on_head();
  void dispatch();
  void refuse(HttpResponse response, std::string route);
  void refuse_framing(int status, const std::string& message);

  void begin_answer();
  void finish_answer();
  void log_answer(const char* cancel_cause);
  void interrupt(Interrupt cause);
  std::string response_head(const HttpResponse& response, bool stream);

  void send(std::string_view bytes);
  void flush();
  void start_write();
  void on_written_all();
  void tell_backlog();
  std::size_t backlog() const { return queue_.size() + out_.size() - out_pos_; }
  void on_written(error_code ec, std::size_t bytes);
  void on_write_stall(std::uint64_t write);
  void ping();

  void set_deadline(double seconds);
  void on_deadline();
  void linger(bool request_complete);

  std::shared_ptr<HttpShared> shared_;
  std::shared_ptr<IoThread> io_;
  tcp::socket socket_;
  std::string peer_;
  Phase phase_ = Phase::kOpen;

  std::array<char, 16 * 1024> chunk_;
  std::string in_;
  bool reading_ = false, peer_closed_ = false, processing_ = false;
  std::unique_ptr<RequestParser> parser_;
  bool head_checked_ = false;
  std::chrono::steady_clock::time_point request_started_, body_started_;
  std::uint64_t request_bytes_ = 0;
  std::uint64_t lingered_ = 0;
  int requests_ = 0;

  std::shared_ptr<Answer> answer_;
  bool discarding_ = false;  ///< a refused request's body is still being read
  bool close_after_ = false;

  std::string out_, queue_;  ///< being written; waiting
  std::size_t out_pos_ = 0;
  bool writing_ = false, dirty_ = false;
  std::uint64_t write_serial_ = 0;
  std::chrono::steady_clock::time_point last_write_;

  asio::steady_timer deadline_, write_timer_, ping_timer_, watch_timer_;
};

}  // namespace barg::server
