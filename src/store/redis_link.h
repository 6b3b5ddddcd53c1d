// RedisLink: one connection to the server. It resolves, connects, logs in, and then runs operations of the
// hub, pipelined: at most a window of bytes is asked for at once, so that neither side piles up answers.
//
// A command whose answer has not come whole by its time limit loses the connection; so does an answer that is
// not RESP or fits no question. An operation whose own deadline passes ends alone, and its late answer is
// dropped.
//
// Threads: one io thread runs it; the methods named below may be called from any. Lives as long as a handler
// may run.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/net_stream.h"
#include "store/redis_op.h"
#include "store/resp_parser.h"

namespace barg::store {

class RedisHub;

class RedisLink final : public RedisWire, public std::enable_shared_from_this<RedisLink> {
 public:
  RedisLink(RedisHub& hub, std::size_t index, std::shared_ptr<boost::asio::io_context> io);

  // Any thread.
  void wake();          ///< there may be work
  void connect_soon();  ///< unless it is connected
  /// Ends what it runs with `status`; connects again after `retry_s` (negative: when told).
  void shut(Status status, double retry_s);
  void close();  ///< shut for ever

  void command(RedisOp* op, std::uint32_t index, std::string head, std::span<const std::byte> payload,
               std::string tail) override;

 private:
  using Endpoint = boost::asio::generic::stream_protocol::endpoint;
  enum class State : std::uint8_t { kIdle, kConnecting, kTls, kHello, kReady };
  enum class Hello : std::uint8_t { kNo, kAuth, kSelect, kPing };
  struct Command {
    RedisOpPtr op;
    std::uint32_t index = 0;
    Hello hello = Hello::kNo;
    std::uint64_t sent_at = 0;  ///< how many bytes have been sent when all of it has
  };
  struct Segment {
    std::string owned;
    std::span<const std::byte> payload;  ///< instead of `owned` if not empty
    std::size_t sent = 0;
    std::size_t size() const { return payload.empty() ? owned.size() : payload.size(); }
    const void* data() const {
      return payload.empty() ? static_cast<const void*>(owned.data()) : payload.data();
    }
  };

  // Getting there.
  void connect();
  void resolved(const std::string& error, std::vector<Endpoint> endpoints);
  void try_endpoint(std::size_t i, const std::string& last_error);
  void step_tls();
  void hello();
  bool hello_reply(Hello what, const ServerReply& reply);

  // Moving bytes.
  void ask(Command command, std::string head, std::span<const std::byte> payload, std::string tail);
  void wait(bool for_write);
  void on_ready();
  void read_all();
  bool read_once(std::size_t& moved);
  bool parse(std::string_view in);
  bool complete(const ServerReply& reply);
  void write_all();
  bool stream_result(NetStream::Io io);  ///< false: nothing more to do now

  void pump();
  void retire(const RedisOpPtr& op);
  void fail(const std::string& why, Status status, bool counts = true);
  void reset(Status status);
  void arm(double when);
  void on_time();
  void check_deadlines(double now);

  /// A handler that does nothing once the connection it was made for is gone.
  template <class F>
  auto guarded(F f) {
    return [self = shared_from_this(), generation = generation_, f = std::move(f)](auto&&... args) {
      if (self->generation_ == generation) f(*self, args...);
    };
  }

  RedisHub& hub_;
  const std::size_t index_;
  const std::shared_ptr<boost::asio::io_context> io_;
  NetStream stream_;
  boost::asio::steady_timer timer_;
  const std::uint64_t window_;

  State state_ = State::kIdle;
  bool closed_ = false;
  std::uint64_t generation_ = 0;  ///< counts connections, so that a late handler knows it is late
  double connect_by_ = 0, retry_at_ = -1, timer_at_ = 0, connected_at_ = 0;
  bool answered_ = false;  ///< an operation, on this connection
  bool waiting_read_ = false, waiting_write_ = false;
  std::vector<Endpoint> endpoints_;

  RespParser parser_;
  ValueSink* sink_ = nullptr;     ///< of the value that is coming, belongs to commands_.front().op
  std::deque<Command> commands_;  ///< sent or about to be, in order
  std::deque<Segment> tx_;  ///< to be sent; changes only by growing at the end and shrinking as it is sent
  std::uint64_t tx_queued_ = 0, tx_sent_ = 0;  ///< bytes, on this connection
  std::vector<RedisOpPtr> active_;
  std::uint64_t outstanding_ = 0;  ///< sum of the active costs
  std::unique_ptr<char[]> rx_;
};

}  // namespace barg::store
