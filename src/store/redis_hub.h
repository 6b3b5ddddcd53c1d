// RedisHub: what the connections of one tier share: the queue of operations, whether the server is up, what
// is known of its keys, and the counters.
//
// Breaker: kStarting until a connection is ready or has failed; kUp; kDown after failures in a row, when
// every queued and running operation ends with kUnavailable at once and only connection 0 goes on trying,
// with growing pauses.
//
// Threads: any; one mutex, held briefly and never during a report. Operations end on io threads.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/net_stream.h"
#include "store/redis_op.h"
#include "store/redis_presence.h"
#include "store/redis_tier.h"
#include "store/redis_url.h"

namespace barg::store {

class RedisLink;

class RedisHub {
 public:
  RedisHub(RedisOptions options, RedisUrl url, Domain domain, TlsContext tls);

  const RedisOptions& options() const { return options_; }
  const RedisUrl& url() const { return url_; }
  const Domain& domain() const { return domain_; }
  const TlsContext& tls() const { return tls_; }
  double now() const { return options_.clock->now(); }
  std::uint64_t ttl_s() const { return static_cast<std::uint64_t>(options_.ttl_s); }

  /// Once, before anything else. links[0] is the one that asks whether a lost server is back.
  void attach(std::vector<std::shared_ptr<RedisLink>> links, std::shared_ptr<boost::asio::io_context> io);

  // For the tier.
  void submit(std::vector<RedisOpPtr> ops);
  void cancel(Ticket ticket);
  Presence presence(const Key& key) const;
  /// Reserves room for queued writes; false if there is none, or the server takes no writes at present.
  bool admit_write(std::uint64_t bytes, Status* why);
  bool flush(double deadline);
  bool up() const { return state_ == State::kUp; }
  TierStats stats() const;
  bool forget_own(const Key& key);  ///< was it put by us?
  bool refresh_due(const Key& key);
  void close();

  // For connections.
  /// Operations to run now: some of the queue, so that others get theirs.
  std::vector<RedisOpPtr> pull(std::uint64_t room);
  void ready(std::size_t link);
  /// A connection was lost. Seconds until it may try again; negative: it is told when.
  double failed(std::size_t link, const std::string& why, bool counts);

  // For operations.
  /// What an error reply means, and what follows from it.
  Status refused(std::string_view error, bool write);
  void saw(const Key& key, bool present, double asked_at);
  void corrupt(const std::string& what);
  void began_gets(std::uint64_t count);
  void ended_get(Status status, std::uint64_t bytes);
  void ended_put(Status status, std::uint64_t reserved, std::uint64_t written, std::uint64_t overhead);
  void own(const Key& key);
  void remember_error(std::string sentence);

 private:
  enum class State : std::uint8_t { kStarting, kUp, kDown, kClosed };

  void go_down_locked(const std::string& why, std::vector<RedisOpPtr>& orphans);
  void end_on_io(std::vector<RedisOpPtr> ops, Status status);
  void arm_sweep(double deadline);
  void sweep();
  void succeeded_locked();

  const RedisOptions options_;
  const RedisUrl url_;
  const Domain domain_;
  const TlsContext tls_;
  std::vector<std::shared_ptr<RedisLink>> links_;
  std::shared_ptr<boost::asio::io_context> io_;
  std::unique_ptr<boost::asio::steady_timer> sweep_timer_;  ///< io_'s thread
  double sweep_at_ = 0;                                     ///< io_'s thread; 0: not armed

  mutable std::mutex mutex_;
  std::condition_variable writes_done_;
  std::atomic<State> state_{State::kStarting};  ///< changed with the mutex
  std::int32_t failures_ = 0;  ///< connections lost since the last success
  std::int32_t refusals_ = 0;  ///< error replies since the last success
  double pause_ = 0;
  std::deque<RedisOpPtr> reads_, writes_;
  std::uint32_t turn_ = 0;
  std::uint64_t puts_open_ = 0, put_bytes_open_ = 0, gets_open_ = 0;
  double write_pause_until_ = 0;
  Status write_pause_status_ = Status::kNoSpace;
  KeyMemory present_{1 << 17}, absent_{1 << 16}, own_{1 << 17}, refreshed_{1 << 16};
  TierStats stats_;
};

}  // namespace barg::store
