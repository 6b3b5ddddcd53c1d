#include "store/throttle.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace barg::store {
namespace {

constexpr double kLongestWait = 0.01;  // seconds; a clock that tests move is looked at this often

class ThrottledTier final : public Tier {
 public:
  ThrottledTier(std::unique_ptr<Tier> inner, std::shared_ptr<ThrottleControl> control, const Clock& clock)
      : inner_(std::move(inner)), control_(std::move(control)), clock_(clock), thread_([this] { run(); }) {}

  ~ThrottledTier() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    inner_.reset();  // reports what is in flight, at once
  }

  TierKind kind() const override { return inner_->kind(); }
  const std::string& name() const override { return inner_->name(); }
  bool up() const override { return inner_->up(); }
  void find(std::span<const Key> keys, std::span<Presence> out) override { inner_->find(keys, out); }
  void probe(std::vector<Key> keys, double deadline,
             std::function<void(std::vector<Presence>)> done) override {
    inner_->probe(std::move(keys), deadline, std::move(done));
  }
  void get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report) override {
    const auto shared = std::make_shared<const ReportFn>(std::move(report));
    for (GetItem& i : items)
      push(reads_, {.ticket = ticket, .get = std::move(i), .deadline = deadline, .report = shared});
  }
  void put(Ticket ticket, std::vector<PutItem> items, ReportFn report) override {
    const auto shared = std::make_shared<const ReportFn>(std::move(report));
    for (PutItem& i : items) push(writes_, {.ticket = ticket, .put = std::move(i), .report = shared});
  }
  void cancel(Ticket ticket) override {
    {
      std::lock_guard lock(mutex_);
      for (Line* line : {&reads_, &writes_}) {
        for (Op& op : line->waiting) op.cancelled = op.cancelled || op.ticket == ticket;
      }
      hurry_ = true;
    }
    changed_.notify_all();
    inner_->cancel(ticket);
  }
  void erase(std::span<const Key> keys) override { inner_->erase(keys); }
  void touch(std::span<const Key> keys) override { inner_->touch(keys); }
  bool flush(double deadline) override {
    std::unique_lock lock(mutex_);
    while (!writes_.waiting.empty()) {
      if (clock_.now() > deadline) return false;
      changed_.wait_for(lock, std::chrono::duration<double>(kLongestWait));
    }
    lock.unlock();
    return inner_->flush(deadline);
  }
  TierStats stats() const override { return inner_->stats(); }

 private:
  using SharedReport = std::shared_ptr<const ReportFn>;
  struct Op {
    Ticket ticket{};
    std::optional<GetItem> get{};
    std::optional<PutItem> put{};
    double deadline = 0;
    SharedReport report;
    double since = 0;
    bool cancelled = false;

    const Key& key() const { return get ? get->key : put->key; }
    std::uint64_t tag() const { return get ? get->tag : put->tag; }
    double bytes() const { return static_cast<double>(get ? get->to.length : put->from.length); }
  };
  /// An operation that was started.
  struct Flight {
    double end = 0;    // where its bytes end in the line
    double over = -1;  // when they had had their time; -1 = not yet
  };
  using FlightPtr = std::shared_ptr<Flight>;
  /// Bytes of one direction, one behind the other: at every moment they pass at the rate that holds then.
  struct Line {
    std::deque<Op> waiting;
    double passed = 0;              // bytes that have had their time, at `at`
    double at = 0;                  // seconds
    double end = 0;                 // where the bytes end of what was started
    std::deque<FlightPtr> flights;  // whose bytes have not passed
  };
  /// Done by the inner tier, and not to be reported yet.
  struct Late {
    FlightPtr flight;
    SharedReport report;
    Report what;
    double since = 0;
  };

  void push(Line& line, Op&& op) {
    {
      std::lock_guard lock(mutex_);
      op.since = clock_.now();
      pass(line, op.since);
      if (line.waiting.empty()) line.passed = std::min(line.passed, line.end);  // idle time is not saved up
      line.waiting.push_back(std::move(op));
    }
    changed_.notify_all();
  }

  void run();
  void pass(Line& line, double now);
  double turn(Line& line, std::unique_lock<std::mutex>& lock);
  double tell(std::unique_lock<std::mutex>& lock);
  void sweep(Line& line, std::unique_lock<std::mutex>& lock);
  void start(Op&& op, const FlightPtr& flight);
  void come(Report report, const SharedReport& to, double since, const FlightPtr& flight);

  std::unique_ptr<Tier> inner_;
  const std::shared_ptr<ThrottleControl> control_;
  const Clock& clock_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Line reads_, writes_;
  std::vector<Late> late_;
  bool stopping_ = false, hurry_ = false;
  std::jthread thread_;  // last
};

void ThrottledTier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::exchange(hurry_, false) || stopping_) {
      sweep(reads_, lock);
      sweep(writes_, lock);
    }
    if (stopping_ && reads_.waiting.empty() && writes_.waiting.empty()) break;
    const double next = std::min({turn(reads_, lock), turn(writes_, lock), tell(lock)});
    if (next <= 0) continue;
    if (hurry_ || stopping_) continue;
    changed_.wait_for(lock, std::chrono::duration<double>(std::clamp(next, 0.0002, kLongestWait)));
  }
  const std::vector<Late> late = std::exchange(late_, {});
  lock.unlock();
  for (const Late& l : late) (*l.report)(l.what);
}

/// The line moves on to `now`. This thread looks every few milliseconds: a new rate counts from then on.
void ThrottledTier::pass(Line& line, double now) {
  const double rate = control_->bytes_per_s.load(), before = std::exchange(line.at, now);
  line.passed = rate > 0 ? line.passed + rate * std::max(now - before, 0.0) : std::max(line.passed, line.end);
  for (; !line.flights.empty() && line.flights.front()->end <= line.passed; line.flights.pop_front()) {
    Flight& flight = *line.flights.front();
    flight.over = rate > 0 ? now - (line.passed - flight.end) / rate : before;
  }
}

/// Starts the first in line if it is its time. Seconds until something is to be done; 0 = look again.
double ThrottledTier::turn(Line& line, std::unique_lock<std::mutex>& lock) {
  const double now = clock_.now(), rate = control_->bytes_per_s.load();
  pass(line, now);
  if (line.waiting.empty()) return kLongestWait;
  const Op& first = line.waiting.front();
  const bool over = first.cancelled || (first.deadline != 0 && now > first.deadline);
  if (!over && line.end > line.passed) return rate > 0 ? (line.end - line.passed) / rate : kLongestWait;
  Op op = std::move(line.waiting.front());
  line.waiting.pop_front();
  const auto flight = std::make_shared<Flight>();
  if (!over) {
    flight->end = line.end += op.bytes();
    line.flights.push_back(flight);
    pass(line, now);  // exact however late this thread is
  }
  lock.unlock();
  if (over) {
    (*op.report)({op.key(), op.tag(), op.cancelled ? Status::kCancelled : Status::kTimeout, now - op.since});
  } else {
    start(std::move(op), flight);
  }
  lock.lock();
  return 0;
}

/// Reports what has had its time.
double ThrottledTier::tell(std::unique_lock<std::mutex>& lock) {
  const double now = clock_.now(), latency = control_->latency_s.load();
  double next = kLongestWait;
  const auto due = std::find_if(late_.begin(), late_.end(), [&](const Late& late) {
    if (late.flight->over < 0) return false;
    const double left = late.flight->over + latency - now;
    if (left > 0) next = std::min(next, left);
    return left <= 0;
  });
  if (due == late_.end()) return next;
  Late late = std::move(*due);
  late_.erase(due);
  late.what.seconds = now - late.since;
  lock.unlock();
  (*late.report)(late.what);
  lock.lock();
  return 0;
}

/// Ends what was cancelled, or everything when the tier closes.
void ThrottledTier::sweep(Line& line, std::unique_lock<std::mutex>& lock) {
  std::vector<Op> over;
  std::deque<Op> kept;
  for (Op& op : line.waiting) {
    if (op.cancelled || stopping_) {
      over.push_back(std::move(op));
    } else {
      kept.push_back(std::move(op));
    }
  }
  line.waiting.swap(kept);
  const double now = clock_.now();
  lock.unlock();
  for (const Op& op : over) {
    (*op.report)(
        {op.key(), op.tag(), op.cancelled ? Status::kCancelled : Status::kUnavailable, now - op.since});
  }
  lock.lock();
}

void ThrottledTier::start(Op&& op, const FlightPtr& flight) {
  const auto report = [this, to = op.report, since = op.since, flight](const Report& r) {
    come(r, to, since, flight);
  };
  if (op.get) {
    std::vector<GetItem> one;
    one.push_back(std::move(*op.get));
    inner_->get(op.ticket, std::move(one), op.deadline, report);
  } else {
    std::vector<PutItem> one;
    one.push_back(std::move(*op.put));
    inner_->put(op.ticket, std::move(one), report);
  }
}

void ThrottledTier::come(Report report, const SharedReport& to, double since, const FlightPtr& flight) {
  const double now = clock_.now();
  {
    std::lock_guard lock(mutex_);
    const bool in_time = flight->over >= 0 && now >= flight->over + control_->latency_s.load();
    if (report.status == Status::kOk && !in_time && !stopping_) {
      late_.push_back({flight, to, report, since});
      changed_.notify_all();
      return;
    }
  }
  report.seconds = now - since;
  (*to)(report);
}

}  // namespace

std::unique_ptr<Tier> throttled(std::unique_ptr<Tier> inner, std::shared_ptr<ThrottleControl> control,
                                const Clock& clock) {
  return std::make_unique<ThrottledTier>(std::move(inner), std::move(control), clock);
}

}  // namespace barg::store
