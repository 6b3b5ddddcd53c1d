#include "bench/serve_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace barg::bench {

ServeConnection::ServeConnection(const ServeAddress& address) {
  fd_ = socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) {
    connect_error_ = errno;
    state_ = State::kClosed;
    return;
  }
  const int one = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(address.bytes.data()),
              static_cast<socklen_t>(address.bytes.size())) != 0 &&
      errno != EINPROGRESS) {
    connect_error_ = errno;
    state_ = State::kClosed;
  }
}

ServeConnection::~ServeConnection() {
  if (fd_ >= 0) close(fd_);
}

void ServeConnection::give(std::unique_ptr<ServeJob> job, bool keep_text, std::int64_t now) {
  CHECK(job_ == nullptr);
  answer_.begin(static_cast<std::size_t>(job->sample.output_asked) + 8, keep_text);
  job_ = std::move(job);
  sent_ = 0;
  ++uses_;
  last_activity_ = now;
  if (state_ == State::kIdle) state_ = State::kSending;
}

std::unique_ptr<ServeJob> ServeConnection::take() {
  if (state_ != State::kClosed) state_ = State::kIdle;
  return std::move(job_);
}

void ServeConnection::abandon(std::int64_t now) {
  if (answer_.facts().saw_done) {
    answer_.end(now);
  } else {
    answer_.facts().error = "timeout";
    answer_.facts().detail = "nothing arrived for the time of --timeout.";
    answer_.facts().got_bytes = true;  // it is not sent again
  }
  state_ = State::kClosed;
}

bool ServeConnection::flush() {
  if (state_ != State::kSending) return state_ != State::kClosed;
  while (sent_ < job_->bytes.size()) {
    const ssize_t n = send(fd_, job_->bytes.data() + sent_, job_->bytes.size() - sent_, MSG_NOSIGNAL);
    if (n >= 0) {
      sent_ += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      break;  // gone, but an answer (413, say) may lie unread: the next read tells
    }
  }
  state_ = State::kReceiving;
  return true;
}

bool ServeConnection::write_pending(std::uint32_t events) {
  if (state_ == State::kConnecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    socklen_t size = sizeof connect_error_;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &connect_error_, &size) != 0) connect_error_ = errno;
    state_ = connect_error_ != 0 ? State::kClosed : job_ != nullptr ? State::kSending : State::kIdle;
  }
  return flush();
}

long ServeConnection::receive(std::vector<char>& buffer) const {
  while (true) {
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
    if (n >= 0) return n;
    if (errno == EAGAIN) return -1;
    if (errno != EINTR) return 0;
  }
}

ServeConnection::Event ServeConnection::received(long got, const std::vector<char>& buffer, std::int64_t now) {
  if (got < 0) return Event::kNothing;
  last_activity_ = now;
  if (job_ == nullptr) {  // idle: the peer closed, or speaks unasked
    state_ = State::kClosed;
    return Event::kClosed;
  }
  const ServeAnswer::State state =
      got == 0 ? answer_.end(now)
               : answer_.feed(std::string_view(buffer.data(), static_cast<std::size_t>(got)), now);
  if (got == 0 || state == ServeAnswer::State::kBroken || (state == ServeAnswer::State::kDone && !answer_.keep_alive()))
    state_ = State::kClosed;
  if (state == ServeAnswer::State::kDone) return Event::kComplete;
  return state_ == State::kClosed ? Event::kClosed : Event::kNothing;
}

}  // namespace barg::bench
