// One keep-alive connection of the load generator and the request that is on it. Owned by the loop in
// serve_loop.cpp and used on its thread only; never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve_answer.h"
#include "bench/serve_loop.h"

namespace barg::bench {

/// A request on its way: the sample it fills and what is needed to send it, again too.
struct ServeJob {
  RequestSample sample;
  std::vector<ServeMessage> messages;  ///< of the conversation so far
  std::string bytes;                   ///< head and body
  bool resent = false;
  std::int64_t not_before = 0;         ///< of a retry
};

class ServeConnection {
 public:
  enum class State { kConnecting, kSending, kReceiving, kIdle, kClosed };
  enum class Event {
    kNothing,
    kComplete,  ///< answer() is whole
    kClosed,    ///< the peer is gone; answer() says how far it came
  };

  explicit ServeConnection(const ServeAddress& address);
  ~ServeConnection();
  ServeConnection(const ServeConnection&) = delete;
  ServeConnection& operator=(const ServeConnection&) = delete;

  int fd() const { return fd_; }
  State state() const { return state_; }
  ServeAnswer& answer() { return answer_; }
  std::int64_t last_activity() const { return last_activity_; }
  bool used_before() const { return uses_ > 1; }

  /// REQUIRES state kConnecting (fresh) or kIdle.
  void give(std::unique_ptr<ServeJob> job, bool keep_text, std::int64_t now);
  std::unique_ptr<ServeJob> take();
  /// Nothing more is read: after [DONE] the answer is whole, before it the request timed out.
  void abandon(std::int64_t now);
  const ServeJob* job() const { return job_.get(); }

  /// What epoll reported. `clock` is read once a read.
  template <class Clock>
  Event on_event(std::uint32_t events, const Clock& clock, std::vector<char>& buffer) {
    if (!write_pending(events)) return Event::kClosed;
    const long got = receive(buffer);
    const std::int64_t now = clock();
    return received(got, buffer, now);
  }
  /// Sends what it can; false when the peer is gone.
  bool flush();
  /// True while epoll should report that the socket takes bytes.
  bool wants_write() const { return state_ == State::kConnecting || state_ == State::kSending; }
  /// The write interest that epoll knows; kept here so that it is changed only when it differs.
  bool armed_write = true;
  /// Errno of a failed connect, 0 otherwise.
  int connect_error() const { return connect_error_; }

 private:
  bool write_pending(std::uint32_t events);
  long receive(std::vector<char>& buffer) const;
  Event received(long got, const std::vector<char>& buffer, std::int64_t now);

  int fd_ = -1;
  State state_ = State::kConnecting;
  ServeAnswer answer_;
  std::unique_ptr<ServeJob> job_;
  std::size_t sent_ = 0;
  int uses_ = 0;
  int connect_error_ = 0;
  std::int64_t last_activity_ = 0;
};

}  // namespace barg::bench
