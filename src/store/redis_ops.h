// The operations of the Redis tier: read a part, write a part, ask which are there, and hints. See redis_op.h
// for who calls them; they report once, whatever happens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/redis_hub.h"
#include "store/redis_op.h"
#include "store/redis_record.h"

namespace barg::store {

/// What the items of one call share.
struct RedisBatch {
  ReportFn report;
  double submitted = 0;
};

/// A part straight into its destination: the value, or head and pieces asked for together.
class RedisGet final : public RedisOp {
 public:
  RedisGet(RedisHub& hub, std::shared_ptr<const RedisBatch> batch, Ticket ticket, const GetItem& item,
           double deadline);

  void start(RedisWire& wire) override;
  ValueSink* bulk(std::uint32_t index, std::uint64_t length) override;
  bool reply(std::uint32_t index, const ServerReply& reply, RedisWire& wire) override;

 private:
  void finish(Status status) override;
  RecordFacts facts(RecordKind kind, std::uint32_t piece) const;
  std::span<std::byte> piece_memory(std::uint32_t piece) const;
  void check(std::uint32_t index);
  void worse(Status status) {
    if (status_ == Status::kOk) status_ = status;
  }

  RedisHub& hub_;
  std::shared_ptr<const RedisBatch> batch_;
  GetItem item_;
  Cut cut_;
  std::string name_;
  double asked_at_ = 0;
  Status status_ = Status::kOk;  ///< so far
  bool length_fits_ = false;     ///< of the value that is coming
  bool have_head_ = false;
  std::uint32_t answers_ = 0;
  RecordHeader header_{};
  std::vector<Sum128> sums_;  ///< of the pieces, from the head
  ValueSink sink_;
};

/// Asks whether the part is there (and renews its time), else writes it; the head after its pieces are in.
class RedisPut final : public RedisOp {
 public:
  /// `admitted`: hub.admit_write() has reserved item.from.length bytes.
  RedisPut(RedisHub& hub, std::shared_ptr<const RedisBatch> batch, Ticket ticket, const PutItem& item,
           bool admitted);

  bool writes() const override { return true; }
  void start(RedisWire& wire) override;
  bool reply(std::uint32_t index, const ServerReply& reply, RedisWire& wire) override;

 private:
  void finish(Status status) override;
  void write_value(RedisWire& wire, RecordKind kind, std::uint32_t piece);
  void renew(RedisWire& wire);

  RedisHub& hub_;
  std::shared_ptr<const RedisBatch> batch_;
  PutItem item_;
  bool admitted_;
  Cut cut_;
  std::string name_;
  Status status_ = Status::kOk;
  std::uint32_t to_come_ = 0;
  std::uint64_t written_ = 0, overhead_ = 0;
  std::vector<Sum128> sums_;
};

/// Answers of all the operations of one probe() together.
class ProbeBatch {
 public:
  ProbeBatch(std::vector<Presence> known, std::size_t parts, std::function<void(std::vector<Presence>)> done)
      : answers_(std::move(known)), parts_(parts), done_(std::move(done)) {}
  void set(std::size_t i, Presence p);
  void part_ended();

 private:
  std::mutex mutex_;
  std::vector<Presence> answers_;
  std::size_t parts_;
  std::function<void(std::vector<Presence>)> done_;
};

class RedisProbe final : public RedisOp {
 public:
  struct Question {
    Key key;
    std::size_t at = 0;  ///< in the batch
  };
  RedisProbe(RedisHub& hub, std::shared_ptr<ProbeBatch> batch, std::vector<Question> questions,
             double deadline);

  void start(RedisWire& wire) override;
  bool reply(std::uint32_t index, const ServerReply& reply, RedisWire& wire) override;

 private:
  void finish(Status status) override;

  RedisHub& hub_;
  std::shared_ptr<ProbeBatch> batch_;
  std::vector<Question> questions_;
  std::size_t to_come_ = 0;
  double asked_at_ = 0;
};

/// Commands that nobody waits for.
class RedisHint final : public RedisOp {
 public:
  explicit RedisHint(std::vector<std::string> commands);

  void start(RedisWire& wire) override;
  bool reply(std::uint32_t index, const ServerReply& reply, RedisWire& wire) override;

 private:
  void finish(Status) override {}

  std::vector<std::string> commands_;
  std::size_t to_come_ = 0;
};

/// DEL or EXPIRE of everything a part consists of.
std::vector<std::string> removal(const Digest& root, const Key& key, std::uint64_t part_bytes);
std::vector<std::string> renewal(const Digest& root, const Key& key, std::uint64_t part_bytes,
                                 std::uint64_t ttl_s);

}  // namespace barg::store
