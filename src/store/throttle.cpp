#include "store/throttle.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

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
  struct Line {
    std::deque<Op> waiting;
    double free_at = 0;  // when the bytes before have had their time
  };
  struct Late {
    SharedReport report;
    Report what;
    double since = 0;
  };

  void push(Line& line, Op&& op) {
    op.since = clock_.now();
    {
      std::lock_guard lock(mutex_);
      line.waiting.push_back(std::move(op));
    }
    changed_.notify_all();
  }

  void run();
  double turn(Line& line, std::unique_lock<std::mutex>& lock);
  double tell(std::unique_lock<std::mutex>& lock);
  void sweep(Line& line, std::unique_lock<std::mutex>& lock);
  void start(Op&& op, double due);
  void come(Report report, const SharedReport& to, double since, double due);

  std::unique_ptr<Tier> inner_;
  const std::shared_ptr<ThrottleControl> control_;
  const Clock& clock_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Line reads_, writes_;
  std::multimap<double, Late> late_;  // done, and not to be reported before
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
  while (!late_.empty()) {
    const Late late = std::move(late_.extract(late_.begin()).mapped());
    lock.unlock();
    (*late.report)(late.what);
    lock.lock();
  }
}

/// Starts the first in line if it is its time. Seconds until something is to be done; 0 = look again.
double ThrottledTier::turn(Line& line, std::unique_lock<std::mutex>& lock) {
  if (line.waiting.empty()) return kLongestWait;
  const double now = clock_.now();
  const Op& first = line.waiting.front();
  const bool over = first.cancelled || (first.deadline != 0 && now > first.deadline);
  if (!over && line.free_at > now) return line.free_at - now;
  Op op = std::move(line.waiting.front());
  line.waiting.pop_front();
  const double rate = control_->bytes_per_s.load();
  const double takes = !over && rate > 0 ? op.bytes() / rate : 0;
  line.free_at = std::max(line.free_at, op.since) + takes;  // exact however late this thread is
  const double due = line.free_at + control_->latency_s.load();
  lock.unlock();
  if (over) {
    (*op.report)({op.key(), op.tag(), op.cancelled ? Status::kCancelled : Status::kTimeout, now - op.since});
  } else {
    start(std::move(op), due);
  }
  lock.lock();
  return 0;
}

/// Reports what has had its time.
double ThrottledTier::tell(std::unique_lock<std::mutex>& lock) {
  if (late_.empty()) return kLongestWait;
  const double now = clock_.now();
  if (late_.begin()->first > now) return late_.begin()->first - now;
  Late late = std::move(late_.extract(late_.begin()).mapped());
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

void ThrottledTier::start(Op&& op, double due) {
  const auto report = [this, to = op.report, since = op.since, due](const Report& r) {
    come(r, to, since, due);
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

void ThrottledTier::come(Report report, const SharedReport& to, double since, double due) {
  const double now = clock_.now();
  {
    std::lock_guard lock(mutex_);
    if (report.status == Status::kOk && now < due && !stopping_) {
      late_.emplace(due, Late{to, report, since});
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
