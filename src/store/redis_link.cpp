#include "store/redis_link.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "store/redis_commands.h"
#include "store/redis_hub.h"

namespace barg::store {
namespace {

constexpr std::size_t kReadBytes = 16 * 1024;   // beside what goes straight to its place
constexpr std::size_t kTurnBytes = 8ULL << 20;  // then timers get a turn
constexpr std::uint64_t kMaxWindow = 4ULL << 20;
constexpr int kWriteBuffers = 64;

std::uint64_t window_of(const RedisOptions& o) {
  const auto share = o.max_inflight_bytes / static_cast<std::uint64_t>(o.connections);
  return std::clamp<std::uint64_t>(share, 1, kMaxWindow);
}

}  // namespace

RedisLink::RedisLink(RedisHub& hub, std::size_t index, std::shared_ptr<boost::asio::io_context> io)
    : hub_(hub),
      index_(index),
      io_(std::move(io)),
      stream_(*io_),
      timer_(*io_),
      window_(window_of(hub.options())),
      rx_(std::make_unique<char[]>(kReadBytes)) {}

void RedisLink::wake() {
  boost::asio::post(*io_, [self = shared_from_this()] {
    if (self->state_ != State::kReady) return;
    self->pump();
    self->write_all();
  });
}

void RedisLink::connect_soon() {
  boost::asio::post(*io_, [self = shared_from_this()] {
    if (self->state_ == State::kIdle && !self->closed_) self->connect();
  });
}

void RedisLink::shut(Status status, double retry_s) {
  boost::asio::post(*io_, [self = shared_from_this(), status, retry_s] {
    if (self->closed_) return;
    self->reset(status);
    if (retry_s < 0) return;
    self->retry_at_ = self->hub_.now() + retry_s;
    self->arm(self->retry_at_);
  });
}

void RedisLink::close() {
  boost::asio::post(*io_, [self = shared_from_this()] {
    self->closed_ = true;
    self->reset(Status::kUnavailable);
    self->timer_.cancel();
  });
}

// ---- deadlines ----

void RedisLink::arm(double when) {
  if (timer_at_ != 0 && timer_at_ <= when) return;
  timer_at_ = when;
  const double in = std::clamp(when - hub_.now(), 0.001, 3600.0);
  timer_.expires_after(std::chrono::microseconds(static_cast<std::int64_t>(in * 1e6)));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& ec) {
    if (ec) return;  // armed anew, or shut
    self->timer_at_ = 0;
    self->on_time();
  });
}

void RedisLink::on_time() {
  const double now = hub_.now();
  switch (state_) {
    case State::kIdle:
      if (retry_at_ < 0) return;
      if (now >= retry_at_) return connect();
      return arm(retry_at_);
    case State::kConnecting:
    case State::kTls:
    case State::kHello:
      if (now < connect_by_) return arm(connect_by_);
      return fail(state_ == State::kConnecting ? "cannot connect in time"
                  : state_ == State::kTls      ? "the TLS handshake took too long"
                                               : "the server does not answer",
                  Status::kTimeout);
    case State::kReady:
      return check_deadlines(now);
  }
}

void RedisLink::check_deadlines(double now) {
  double next = 0;
  const auto sooner = [&next](double t) { next = next == 0 ? t : std::min(next, t); };
  for (const RedisOpPtr& op : active_) {
    if (now >= op->stall_at) return fail("the server did not answer in time", Status::kTimeout);
    sooner(op->stall_at);
    if (op->ended() || op->deadline() == 0) continue;
    if (now < op->deadline()) {
      sooner(op->deadline());
      continue;
    }
    if (!commands_.empty() && commands_.front().op == op) sink_ = nullptr;
    op->end(Status::kTimeout);
  }
  if (next != 0) arm(next);
}

// ---- operations ----

void RedisLink::command(RedisOp* op, std::uint32_t index, std::string head,
                        std::span<const std::byte> payload, std::string tail) {
  if (op != nullptr) ++op->commands_left;
  ask({op != nullptr ? op->shared_from_this() : nullptr, index}, std::move(head), payload, std::move(tail));
}

void RedisLink::ask(Command command, std::string head, std::span<const std::byte> payload, std::string tail) {
  tx_queued_ += head.size() + payload.size() + tail.size();
  command.sent_at = tx_queued_;
  commands_.push_back(std::move(command));
  const auto append = [this](std::string s) {
    if (!tx_.empty() && tx_.back().payload.empty() && tx_.back().owned.size() + s.size() <= kReadBytes) {
      tx_.back().owned += s;
    } else {
      tx_.push_back({std::move(s), {}, 0});
    }
  };
  append(std::move(head));
  if (!payload.empty()) tx_.push_back({{}, payload, 0});
  if (!tail.empty()) append(std::move(tail));
}

void RedisLink::pump() {
  while (state_ == State::kReady && outstanding_ < window_) {
    std::vector<RedisOpPtr> ops = hub_.pull(window_ - outstanding_);
    if (ops.empty()) return;
    const double now = hub_.now();
    for (RedisOpPtr& op : ops) {
      if (op->deadline() != 0 && now >= op->deadline()) {
        op->end(Status::kTimeout);
        continue;
      }
      op->stall_at = now + hub_.options().op_timeout_s;
      arm(op->deadline() == 0 ? op->stall_at : std::min(op->stall_at, op->deadline()));
      outstanding_ += op->cost();
      active_.push_back(op);
      op->start(*this);
      if (op->commands_left == 0) retire(op);
    }
  }
}

void RedisLink::retire(const RedisOpPtr& op) {
  op->end(Status::kIoError);  // it has, unless it never asked anything
  outstanding_ -= op->cost();
  active_.erase(std::find(active_.begin(), active_.end(), op));
}

void RedisLink::reset(Status status) {
  ++generation_;
  stream_.close();  // before anything ends: from here nobody touches an operation's memory
  state_ = State::kIdle;
  waiting_read_ = waiting_write_ = false;
  parser_ = RespParser();
  sink_ = nullptr;
  commands_.clear();
  tx_.clear();
  tx_queued_ = tx_sent_ = 0;
  outstanding_ = 0;
  retry_at_ = -1;
  const std::vector<RedisOpPtr> ops = std::exchange(active_, {});
  for (const RedisOpPtr& op : ops) op->end(status);
}

void RedisLink::fail(const std::string& why, Status status, bool counts) {
  reset(status);
  const double pause = hub_.failed(index_, why, counts);
  if (pause < 0) return;
  retry_at_ = hub_.now() + pause;
  arm(retry_at_);
}

// ---- bytes ----

void RedisLink::wait(bool for_write) {
  bool& waiting = for_write ? waiting_write_ : waiting_read_;
  if (waiting) return;
  waiting = true;
  stream_.socket().async_wait(for_write ? NetStream::Socket::wait_write : NetStream::Socket::wait_read,
                              guarded([for_write](RedisLink& link, const boost::system::error_code& ec) {
                                (for_write ? link.waiting_write_ : link.waiting_read_) = false;
                                if (ec) return link.fail(ec.message(), Status::kIoError);
                                link.on_ready();
                              }));
}

void RedisLink::on_ready() {
  if (state_ == State::kTls) return step_tls();
  if (state_ != State::kHello && state_ != State::kReady) return;
  const std::uint64_t generation = generation_;
  read_all();
  if (generation != generation_) return;
  pump();
  write_all();
}

bool RedisLink::stream_result(NetStream::Io io) {
  switch (io) {
    case NetStream::Io::kDone:
      return true;
    case NetStream::Io::kWantRead:
      wait(false);
      return false;
    case NetStream::Io::kWantWrite:
      wait(true);
      return false;
    case NetStream::Io::kClosed: {
      // A server that ends idle connections is healthy; one that ends them at once is not.
      const bool idle =
          state_ == State::kReady && active_.empty() && (answered_ || hub_.now() - connected_at_ > 1);
      fail("the server closed the connection", Status::kIoError, !idle);
      return false;
    }
    case NetStream::Io::kFailed:
      break;
  }
  fail(std::string(stream_.error()), Status::kIoError);
  return false;
}

bool RedisLink::read_once(std::size_t& moved) {
  iovec buffers[3];
  int count = 0;
  std::size_t direct = 0;
  if (sink_ != nullptr && parser_.bulk_left() > 0) {
    count = sink_->buffers(buffers);
    direct = sink_->left();
  }
  buffers[count++] = {rx_.get(), kReadBytes};
  if (!stream_result(stream_.read(buffers, count, moved))) return false;
  const std::size_t placed = std::min(moved, direct);
  if (placed > 0) {
    sink_->advance(placed);
    parser_.skip(placed);
  }
  return parse({rx_.get(), moved - placed});
}

void RedisLink::read_all() {
  std::size_t total = 0, moved = 0;
  while (total < kTurnBytes) {
    if (!read_once(moved)) return;
    total += moved;
  }
  // TLS may hold bytes that the socket does not tell of, so this does not wait for it.
  boost::asio::post(*io_, guarded([](RedisLink& link) { link.on_ready(); }));
}

bool RedisLink::parse(std::string_view in) {
  using Token = RespParser::Token;
  using Kind = ServerReply::Kind;
  while (true) {
    const Token t = parser_.next(in);
    if (t == Token::kMore) return true;
    if (t == Token::kBad) {
      fail("the server speaks no RESP: " + std::string(parser_.text()), Status::kIoError);
      return false;
    }
    if (commands_.empty()) {
      fail("the server answered without a question", Status::kIoError);
      return false;
    }
    const Command& front = commands_.front();
    switch (t) {
      case Token::kBulk:
        sink_ = front.op != nullptr && !front.op->ended() ? front.op->bulk(front.index, parser_.length())
                                                          : nullptr;
        continue;
      case Token::kData:
        if (sink_ != nullptr) sink_->take(parser_.data());
        continue;
      default:
        break;
    }
    bool ok = false;
    switch (t) {
      case Token::kBulkEnd:
        ok = complete({Kind::kBulk, {}, 0});
        break;
      case Token::kNull:
        ok = complete({Kind::kNull, {}, 0});
        break;
      case Token::kInteger:
        ok = complete({Kind::kInteger, {}, parser_.integer()});
        break;
      case Token::kSimple:
        ok = complete({Kind::kSimple, parser_.text(), 0});
        break;
      case Token::kError:
        ok = complete({Kind::kError, parser_.text(), 0});
        break;
      default:
        fail("the server answered with an array that nobody asked for", Status::kIoError);
        break;
    }
    if (!ok) return false;
  }
}

bool RedisLink::complete(const ServerReply& reply) {
  const std::uint64_t generation = generation_;
  const Command command = std::move(commands_.front());
  commands_.pop_front();
  sink_ = nullptr;
  // Of a write that goes out still: its payload would be anybody's once it has ended.
  if (command.sent_at > tx_sent_) {
    fail("the server answered before it was asked", Status::kIoError);
    return false;
  }
  if (command.hello != Hello::kNo) return hello_reply(command.hello, reply) && generation == generation_;
  if (command.op == nullptr) return true;
  --command.op->commands_left;
  answered_ = true;
  if (!command.op->ended() && !command.op->reply(command.index, reply, *this)) {
    fail("the server answered out of step", Status::kIoError);
    return false;
  }
  if (command.op->commands_left == 0) retire(command.op);
  return true;
}

void RedisLink::write_all() {
  while (!tx_.empty() && (state_ == State::kReady || state_ == State::kHello)) {
    iovec buffers[kWriteBuffers];
    int count = 0;
    for (auto s = tx_.begin(); s != tx_.end() && count < kWriteBuffers; ++s) {
      const auto* data = static_cast<const char*>(s->data());
      buffers[count++] = {const_cast<char*>(data) + s->sent, s->size() - s->sent};
    }
    std::size_t moved = 0;
    if (!stream_result(stream_.write(buffers, count, moved))) return;
    tx_sent_ += moved;
    while (moved > 0) {
      Segment& s = tx_.front();
      const std::size_t n = std::min(moved, s.size() - s.sent);
      s.sent += n;
      moved -= n;
      if (s.sent == s.size()) tx_.pop_front();
    }
  }
}

}  // namespace barg::store
