#include "store/redis_hub.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "store/redis_link.h"

namespace barg::store {
namespace {

constexpr std::int32_t kMaxRefusals = 16;  // error replies in a row, then down
constexpr std::uint32_t kWriteTurn = 8;  // reads go first, but every eighth operation is a write if one waits

std::string printable(std::string_view text) {
  std::string out(text.substr(0, 160));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

}  // namespace

RedisHub::RedisHub(RedisOptions options, RedisUrl url, Domain domain, TlsContext tls)
    : options_(std::move(options)), url_(std::move(url)), domain_(std::move(domain)), tls_(std::move(tls)) {}

void RedisHub::attach(std::vector<std::shared_ptr<RedisLink>> links,
                      std::shared_ptr<boost::asio::io_context> io) {
  links_ = std::move(links);
  io_ = std::move(io);
  sweep_timer_ = std::make_unique<boost::asio::steady_timer>(*io_);
  for (const auto& link : links_) link->connect_soon();
}

// ---- the queue ----

void RedisHub::end_on_io(std::vector<RedisOpPtr> ops, Status status) {
  if (ops.empty()) return;
  boost::asio::post(*io_, [ops = std::move(ops), status] {
    for (const RedisOpPtr& op : ops) op->end(status);
  });
}

void RedisHub::submit(std::vector<RedisOpPtr> ops) {
  if (ops.empty()) return;
  double first = 0;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kStarting && state_ != State::kUp)
      return end_on_io(std::move(ops), Status::kUnavailable);
    for (RedisOpPtr& op : ops) {
      const double d = op->deadline();
      if (d != 0) first = first == 0 ? d : std::min(first, d);
      (op->writes() ? writes_ : reads_).push_back(std::move(op));
    }
  }
  if (first != 0) boost::asio::post(*io_, [this, first] { arm_sweep(first); });
  for (const auto& link : links_) link->wake();
}

void RedisHub::cancel(Ticket ticket) {
  std::vector<RedisOpPtr> out;
  {
    const std::lock_guard lock(mutex_);
    for (auto* queue : {&reads_, &writes_}) {
      std::erase_if(*queue, [&](RedisOpPtr& op) {
        if (op->ticket() != ticket) return false;
        out.push_back(std::move(op));
        return true;
      });
    }
  }
  end_on_io(std::move(out), Status::kCancelled);
}

std::vector<RedisOpPtr> RedisHub::pull(std::uint64_t room) {
  std::vector<RedisOpPtr> out;
  const std::lock_guard lock(mutex_);
  if (state_ != State::kUp) return out;
  const std::size_t waiting = reads_.size() + writes_.size();
  const std::size_t share = (waiting + links_.size() - 1) / links_.size();
  std::uint64_t taken = 0;
  while (out.size() < share && taken < room) {
    const bool write = reads_.empty() || (!writes_.empty() && ++turn_ % kWriteTurn == 0);
    auto& queue = write ? writes_ : reads_;
    taken += queue.front()->cost();
    out.push_back(std::move(queue.front()));
    queue.pop_front();
  }
  return out;
}

void RedisHub::arm_sweep(double deadline) {
  if (sweep_at_ != 0 && sweep_at_ <= deadline) return;
  sweep_at_ = deadline;
  const double in = std::clamp(deadline - now(), 0.001, 3600.0);
  sweep_timer_->expires_after(std::chrono::microseconds(static_cast<std::int64_t>(in * 1e6)));
  sweep_timer_->async_wait([this](const boost::system::error_code& ec) {
    if (ec) return;
    sweep_at_ = 0;
    sweep();
  });
}

void RedisHub::sweep() {
  std::vector<RedisOpPtr> late;
  double next = 0;
  {
    const std::lock_guard lock(mutex_);
    const double t = now();
    std::erase_if(reads_, [&](RedisOpPtr& op) {
      const double d = op->deadline();
      if (d == 0) return false;
      if (t >= d) {
        late.push_back(std::move(op));
        return true;
      }
      next = next == 0 ? d : std::min(next, d);
      return false;
    });
    if (state_ == State::kClosed) next = 0;
  }
  for (const RedisOpPtr& op : late) op->end(Status::kTimeout);
  if (next != 0) arm_sweep(next);
}

// ---- is the server there? ----

void RedisHub::go_down_locked(const std::string& why, std::vector<RedisOpPtr>& orphans) {
  state_ = State::kDown;
  pause_ = pause_ == 0 ? options_.min_pause_s : std::min(2 * pause_, options_.max_pause_s);
  for (auto* queue : {&reads_, &writes_}) {
    std::move(queue->begin(), queue->end(), std::back_inserter(orphans));
    queue->clear();
  }
  present_.clear();
  absent_.clear();
  for (std::size_t i = 0; i < links_.size(); ++i) links_[i]->shut(Status::kUnavailable, i == 0 ? pause_ : -1);
  log::warn("tier_down", {{"tier", url_.name()}, {"why", why}});
}

double RedisHub::failed(std::size_t link, const std::string& why, bool counts) {
  std::vector<RedisOpPtr> orphans;
  double pause = -1;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kClosed) return -1;
    if (counts) {
      ++stats_.io_errors;
      stats_.last_error = url_.name() + ": " + printable(why);
    }
    if (state_ == State::kDown) {
      if (link == 0) pause = pause_ = std::min(2 * pause_, options_.max_pause_s);
    } else if (!counts) {
      pause = 0;
    } else if (++failures_ >= options_.max_failures || state_ == State::kStarting) {
      go_down_locked(stats_.last_error, orphans);
    } else {
      pause = failures_ > 1 ? options_.min_pause_s : 0;
    }
  }
  end_on_io(std::move(orphans), Status::kUnavailable);
  return pause;
}

void RedisHub::ready(std::size_t link) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kClosed || state_ == State::kUp) return;
  state_ = State::kUp;
  failures_ = refusals_ = 0;  // the pause stays until an operation has succeeded: a login alone proves little
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (i != link) links_[i]->connect_soon();
  }
  log::info("tier_up", {{"tier", url_.name()}});
}

void RedisHub::succeeded_locked() {
  failures_ = refusals_ = 0;
  pause_ = 0;
}

Status RedisHub::refused(std::string_view error, bool write) {
  const std::string_view code = error.substr(0, error.find(' '));
  const auto is = [code](std::initializer_list<std::string_view> codes) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
  };
  std::string sentence = url_.name() + ": " + printable(error);
  if (is({"MOVED", "ASK", "CROSSSLOT"})) {
    sentence += " (this is a Redis Cluster, of which Barg uses single nodes only)";
  }
  std::vector<RedisOpPtr> orphans;
  Status status = Status::kIoError;
  {
    const std::lock_guard lock(mutex_);
    stats_.last_error = sentence;
    bool down = false;
    if (is({"OOM"})) {
      status = Status::kNoSpace;
      ++stats_.no_space;
    } else if (is({"LOADING", "NOAUTH", "MASTERDOWN", "BUSY"})) {
      status = Status::kUnavailable;
      down = true;
    } else if (is({"WRONGTYPE"})) {
      status = Status::kCorrupt;
    }
    if (status == Status::kIoError) ++stats_.io_errors;
    if (write && is({"OOM", "READONLY", "MISCONF", "NOREPLICAS"})) {
      write_pause_until_ = now() + options_.write_pause_s;
      write_pause_status_ = status;
    } else if (++refusals_ >= kMaxRefusals) {
      down = true;
    }
    if (down && state_ == State::kUp) go_down_locked(sentence, orphans);
  }
  end_on_io(std::move(orphans), Status::kUnavailable);
  return status;
}

void RedisHub::close() {
  std::vector<RedisOpPtr> orphans;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kClosed;
    for (auto* queue : {&reads_, &writes_}) {
      std::move(queue->begin(), queue->end(), std::back_inserter(orphans));
      queue->clear();
    }
  }
  end_on_io(std::move(orphans), Status::kUnavailable);
  for (const auto& link : links_) link->close();
  boost::asio::post(*io_, [this] { sweep_timer_->cancel(); });
}

// ---- keys ----

Presence RedisHub::presence(const Key& key) const {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kDown || state_ == State::kClosed) return Presence::kAbsent;  // no use asking
  const double t = now();
  if (const auto seen = present_.seen(key); seen && t - *seen < options_.present_ttl_s)
    return Presence::kPresent;
  if (const auto seen = absent_.seen(key); seen && t - *seen < options_.absent_ttl_s)
    return Presence::kAbsent;
  return Presence::kUnknown;
}

void RedisHub::saw(const Key& key, bool present, double asked_at) {
  const std::lock_guard lock(mutex_);
  if (present) {
    absent_.erase(key);
    present_.put(key, now());
    return;
  }
  // An answer that left the server before our own write of the key says nothing.
  if (const auto seen = present_.seen(key); seen && *seen >= asked_at) return;
  present_.erase(key);
  absent_.put(key, now());
}

void RedisHub::own(const Key& key) {
  const std::lock_guard lock(mutex_);
  own_.put(key, now());
}

bool RedisHub::forget_own(const Key& key) {
  const std::lock_guard lock(mutex_);
  present_.erase(key);
  const bool ours = own_.seen(key).has_value();
  own_.erase(key);
  return ours && state_ == State::kUp;
}

bool RedisHub::refresh_due(const Key& key) {
  const std::lock_guard lock(mutex_);
  const double t = now();
  if (state_ != State::kUp || options_.ttl_s <= 0) return false;
  if (const auto last = refreshed_.seen(key); last && t - *last < options_.ttl_s / 4) return false;
  refreshed_.put(key, t);
  return true;
}

// ---- counters ----

void RedisHub::remember_error(std::string sentence) {
  const std::lock_guard lock(mutex_);
  stats_.last_error = url_.name() + ": " + sentence;
}

void RedisHub::corrupt(const std::string& what) {
  std::vector<RedisOpPtr> orphans;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.verify_failed;
    stats_.last_error = url_.name() + ": " + what;
    if (++refusals_ >= kMaxRefusals && state_ == State::kUp) go_down_locked(stats_.last_error, orphans);
  }
  end_on_io(std::move(orphans), Status::kUnavailable);
}

void RedisHub::began_gets(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  stats_.gets += count;
  gets_open_ += count;
}

void RedisHub::ended_get(Status status, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  --gets_open_;
  switch (status) {
    case Status::kOk:
      ++stats_.get_ok;
      ++stats_.verify_ok;
      stats_.bytes_read += bytes;
      return succeeded_locked();
    case Status::kMissing:
      ++stats_.get_missing;
      return succeeded_locked();
    case Status::kTimeout:
      ++stats_.get_timeout;
      return;
    default:
      ++stats_.get_failed;
      return;
  }
}

bool RedisHub::admit_write(std::uint64_t bytes, Status* why) {
  const std::lock_guard lock(mutex_);
  ++stats_.puts;
  *why = Status::kOk;
  if (state_ != State::kStarting && state_ != State::kUp) {
    *why = Status::kUnavailable;
  } else if (now() < write_pause_until_) {
    *why = write_pause_status_;
  } else if (put_bytes_open_ > 0 && put_bytes_open_ + bytes > options_.max_inflight_bytes) {
    *why = Status::kNoSpace;
  }
  if (*why != Status::kOk) {
    ++stats_.put_dropped;
    return false;
  }
  ++puts_open_;
  put_bytes_open_ += bytes;
  return true;
}

void RedisHub::ended_put(Status status, std::uint64_t reserved, std::uint64_t written,
                         std::uint64_t overhead) {
  const std::lock_guard lock(mutex_);
  put_bytes_open_ -= reserved;
  stats_.bytes_written += written;
  stats_.bytes_moved += overhead;
  if (status == Status::kOk) {
    ++stats_.put_ok;
    succeeded_locked();
  } else {
    ++stats_.put_failed;
  }
  if (--puts_open_ == 0) writes_done_.notify_all();
}

bool RedisHub::flush(double deadline) {
  std::unique_lock lock(mutex_);
  while (puts_open_ > 0) {
    const double left = deadline == 0 ? 1.0 : deadline - now();
    if (left <= 0) return false;
    writes_done_.wait_for(lock, std::chrono::duration<double>(std::min(left, 0.05)));
  }
  return true;
}

TierStats RedisHub::stats() const {
  const std::lock_guard lock(mutex_);
  TierStats s = stats_;
  s.reads_in_flight = gets_open_;
  s.writes_in_flight = puts_open_;
  s.up = up();
  return s;
}

}  // namespace barg::store
