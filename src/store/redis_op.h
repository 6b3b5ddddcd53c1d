// RedisOp: one item on its way through a connection, and what it and the connection need of each other.
//
// An operation is queued (owned by the hub's queue) and then runs on one connection; only its owner calls it,
// so it has no lock. It is reported once, by end(); from then on nobody touches its memory. Replies that come
// after are dropped.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "store/tier.h"

namespace barg::store {

class RedisOp;

/// Where the bytes of a value go: two ranges, one after the other.
class ValueSink {
 public:
  ValueSink() = default;
  ValueSink(std::span<std::byte> first, std::span<std::byte> second) : first_(first), second_(second) {}

  std::size_t left() const { return first_.size() + second_.size(); }
  /// The free memory, as up to two buffers; how many there are.
  int buffers(iovec out[2]) const {
    int n = 0;
    if (!first_.empty()) out[n++] = {first_.data(), first_.size()};
    if (!second_.empty()) out[n++] = {second_.data(), second_.size()};
    return n;
  }
  /// The next n bytes have been written there. REQUIRES n <= left().
  void advance(std::size_t n) {
    const std::size_t a = std::min(n, first_.size());
    first_ = first_.subspan(a);
    second_ = second_.subspan(n - a);
  }
  void take(std::string_view bytes) {
    const std::size_t a = std::min(bytes.size(), first_.size());
    if (a > 0) std::memcpy(first_.data(), bytes.data(), a);
    if (a < bytes.size()) std::memcpy(second_.data(), bytes.data() + a, bytes.size() - a);
    advance(bytes.size());
  }

 private:
  std::span<std::byte> first_, second_;
};

struct ServerReply {
  enum class Kind : std::uint8_t { kSimple, kError, kInteger, kNull, kBulk };
  Kind kind = Kind::kNull;
  std::string_view text;  ///< kSimple, kError
  std::int64_t integer = 0;
};

/// The connection as an operation sees it.
class RedisWire {
 public:
  /// Queues one command: `head`, then `payload` (which stays where it is until the operation has ended), then
  /// `tail`. Its reply goes to op->reply(index); to nobody without an op.
  virtual void command(RedisOp* op, std::uint32_t index, std::string head,
                       std::span<const std::byte> payload = {}, std::string tail = {}) = 0;

 protected:
  ~RedisWire() = default;
};

class RedisOp : public std::enable_shared_from_this<RedisOp> {
 public:
  RedisOp(Ticket ticket, double deadline, std::uint64_t cost)
      : ticket_(ticket), deadline_(deadline), cost_(cost) {}
  RedisOp(const RedisOp&) = delete;
  RedisOp& operator=(const RedisOp&) = delete;
  virtual ~RedisOp() = default;

  Ticket ticket() const { return ticket_; }
  double deadline() const { return deadline_; }  ///< 0 = none; only operations that send no payload have one
  std::uint64_t cost() const { return cost_; }   ///< bytes on the wire, about
  bool ended() const { return ended_; }
  virtual bool writes() const { return false; }

  /// Sends its first commands.
  virtual void start(RedisWire& wire) = 0;
  /// A value of `length` bytes comes for command `index`; where to? Null: nowhere. Otherwise sink->left() ==
  /// length.
  virtual ValueSink* bulk(std::uint32_t /*index*/, std::uint64_t /*length*/) { return nullptr; }
  /// The whole reply to command `index` is there. May send more. False: no server answers like that.
  virtual bool reply(std::uint32_t index, const ServerReply& reply, RedisWire& wire) = 0;
  void end(Status status) {
    if (ended_) return;
    ended_ = true;
    finish(status);
  }

  // The connection's notes about the operation it runs.
  std::uint32_t commands_left = 0;
  double stall_at = 0;

 private:
  virtual void finish(Status status) = 0;

  Ticket ticket_;
  double deadline_;
  std::uint64_t cost_;
  bool ended_ = false;
};

using RedisOpPtr = std::shared_ptr<RedisOp>;

}  // namespace barg::store
