// MemoryTier: a tier of any kind in memory for tests, with scripted faults.
//
// Either a thread of its own ends operations as they come (automatic), or they wait until the test says so
// (manual): finish() ends the oldest, on the caller's thread. It keeps the contract of store/tier.h, so a
// test that passes here says something about real tiers. Damage is found as a real tier finds it: by a
// checksum.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "store/dram_arena.h"
#include "store/tier.h"
#include "support/shared_clock.h"

namespace barg::test {

class MemoryTier final : public store::Tier {
 public:
  struct Options {
    store::TierKind kind = store::TierKind::kDisk;
    std::string name = "memory";
    bool manual = false;
    std::uint64_t capacity_bytes = 0;  ///< told in stats(); a put beyond it is kNoSpace if not 0
    bool must_probe = false;           ///< find() says kUnknown of what it has not told by probe()
  };
  /// Called before an operation ends; another status than kOk is what it ends with.
  using Fault = std::function<store::Status(bool put, const store::Key&)>;

  MemoryTier(Options options, const Clock& clock) : options_(std::move(options)), clock_(clock) {
    if (!options_.manual) thread_ = std::jthread([this] { run(); });
  }
  ~MemoryTier() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    while (finish()) {
    }
  }

  // ---- for tests

  /// Ends the oldest operation; false if none waits.
  bool finish() {
    Op op;
    {
      std::lock_guard lock(mutex_);
      if (ops_.empty()) return false;
      op = std::move(ops_.front());
      ops_.pop_front();
    }
    end(op);
    return true;
  }
  std::size_t waiting() const {
    std::lock_guard lock(mutex_);
    return ops_.size();
  }
  void set_fault(Fault fault) {
    std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  void set_up(bool up) { up_ = up; }
  /// As if everything submitted so far had been started: deadlines pass unnoticed.
  void ignore_deadlines() {
    std::lock_guard lock(mutex_);
    for (Op& op : ops_) op.deadline = 0;
  }
  /// One bit of a stored part flips.
  bool corrupt(const store::Key& key) {
    std::lock_guard lock(mutex_);
    const auto it = parts_.find(key);
    if (it == parts_.end()) return false;
    it->second.bytes[it->second.bytes.size() / 2] ^= std::byte{4};
    return true;
  }
  bool holds(const store::Key& key) const {
    std::lock_guard lock(mutex_);
    return parts_.contains(key);
  }
  /// As if another process had written it.
  void insert(const store::Key& key, const store::BlockInfo& info, std::vector<std::byte> bytes) {
    std::lock_guard lock(mutex_);
    const store::Hash128 sum = store::part_sum({store::MemoryKind::kHost, bytes.data(), bytes.size()});
    parts_[key] = {info, std::move(bytes), sum};
  }
  /// Calls of put().
  std::size_t batches() const { return batches_; }
  void forget(const store::Key& key) { erase({&key, 1}); }
  std::size_t reads(const store::Key& key) const {
    std::lock_guard lock(mutex_);
    const auto it = reads_.find(key);
    return it == reads_.end() ? 0 : it->second;
  }

  // ---- Tier

  store::TierKind kind() const override { return options_.kind; }
  const std::string& name() const override { return options_.name; }
  bool up() const override { return up_; }
  void find(std::span<const store::Key> keys, std::span<store::Presence> out) override {
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const bool there = parts_.contains(keys[i]);
      out[i] = !up_ ? store::Presence::kAbsent
               : options_.must_probe && !told_.contains(keys[i])
                   ? store::Presence::kUnknown
                   : (there ? store::Presence::kPresent : store::Presence::kAbsent);
    }
  }
  void probe(std::vector<store::Key> keys, double deadline,
             std::function<void(std::vector<store::Presence>)> done) override {
    push({.keys = std::move(keys), .deadline = deadline, .done = std::move(done)});
  }
  void get(store::Ticket ticket, std::vector<store::GetItem> items, double deadline,
           store::ReportFn report) override {
    for (const auto& i : items) {
      push({.ticket = ticket, .get = i, .is_get = true, .deadline = deadline, .report = report});
    }
  }
  void put(store::Ticket ticket, std::vector<store::PutItem> items, store::ReportFn report) override {
    ++batches_;
    for (const auto& i : items) push({.ticket = ticket, .put = i, .report = report});
  }
  void cancel(store::Ticket ticket) override {
    std::lock_guard lock(mutex_);
    for (Op& op : ops_) op.cancelled = op.cancelled || (op.ticket == ticket && ticket != store::Ticket{});
  }
  void erase(std::span<const store::Key> keys) override {
    std::lock_guard lock(mutex_);
    for (const auto& k : keys) parts_.erase(k);
  }
  void touch(std::span<const store::Key> keys) override {
    std::lock_guard lock(mutex_);
    touches_ += keys.size();
  }
  bool flush(double) override {
    if (!options_.manual) return true;
    while (finish()) {
    }
    return true;
  }
  store::TierStats stats() const override {
    std::lock_guard lock(mutex_);
    store::TierStats out = stats_;
    out.up = up_;
    out.capacity_bytes = options_.capacity_bytes;
    out.entries = parts_.size();
    for (const auto& [k, part] : parts_) out.bytes_used += part.bytes.size();
    return out;
  }

 private:
  struct Part {
    store::BlockInfo info;
    std::vector<std::byte> bytes;
    store::Hash128 sum;
  };
  struct Op {
    store::Ticket ticket{};
    store::GetItem get{};
    bool is_get = false;
    store::PutItem put{};
    std::vector<store::Key> keys{};
    double deadline = 0;
    store::ReportFn report{};
    std::function<void(std::vector<store::Presence>)> done{};
    bool cancelled = false;
    double since = 0;
  };

  void push(Op&& op) {
    op.since = clock_.now();
    {
      std::lock_guard lock(mutex_);
      ops_.push_back(std::move(op));
    }
    changed_.notify_all();
  }
  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closing_ || !ops_.empty(); });
        if (ops_.empty()) return;
      }
      finish();
    }
  }
  void end(const Op& op) {
    if (op.done) return op.done(probed(op));
    const store::Key key = op.is_get ? op.get.key : op.put.key;
    Fault fault;
    {
      std::lock_guard lock(mutex_);
      fault = fault_;
    }
    store::Status status = fault ? fault(!op.is_get, key) : store::Status::kOk;
    {
      std::lock_guard lock(mutex_);
      if (!up_ || closing_) status = store::Status::kUnavailable;
      if (op.deadline != 0 && clock_.now() > op.deadline) status = store::Status::kTimeout;
      if (op.cancelled) status = store::Status::kCancelled;
      if (status == store::Status::kOk) status = op.is_get ? read(op.get) : write(op.put);
    }
    op.report({key, op.is_get ? op.get.tag : op.put.tag, status, clock_.now() - op.since});
  }
  std::vector<store::Presence> probed(const Op& op) {
    std::lock_guard lock(mutex_);
    std::vector<store::Presence> out;
    for (const auto& k : op.keys) {
      const bool late = op.deadline != 0 && clock_.now() > op.deadline;
      out.push_back(!up_ || late || closing_ ? store::Presence::kUnknown
                    : parts_.contains(k)     ? store::Presence::kPresent
                                             : store::Presence::kAbsent);
      if (!late) told_.insert(k);
    }
    return out;
  }
  store::Status read(const store::GetItem& item) {
    ++reads_[item.key];
    const auto it = parts_.find(item.key);
    if (it == parts_.end()) return store::Status::kMissing;
    Part& part = it->second;
    std::copy(part.bytes.begin(), part.bytes.end(), item.to.address);
    const bool whole =
        store::part_sum({store::MemoryKind::kHost, part.bytes.data(), part.bytes.size()}) == part.sum;
    if (whole && part.bytes.size() == item.to.length && part.info.parent == item.info.parent) {
      return store::Status::kOk;
    }
    parts_.erase(it);
    return store::Status::kCorrupt;
  }
  store::Status write(const store::PutItem& item) {
    const auto size = static_cast<std::uint64_t>(item.from.length);
    if (options_.capacity_bytes != 0 && (parts_.size() + 1) * size > options_.capacity_bytes) {
      return store::Status::kNoSpace;
    }
    if (parts_.contains(item.key)) return store::Status::kOk;
    std::vector<std::byte> bytes(item.from.address, item.from.address + item.from.length);
    const store::Hash128 sum = store::part_sum({store::MemoryKind::kHost, bytes.data(), bytes.size()});
    parts_[item.key] = {item.info, std::move(bytes), sum};
    told_.insert(item.key);
    return store::Status::kOk;
  }

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Op> ops_;
  std::map<store::Key, Part> parts_;
  std::map<store::Key, std::size_t> reads_;
  std::set<store::Key> told_;
  Fault fault_;
  store::TierStats stats_;
  std::size_t touches_ = 0;
  std::atomic<bool> up_{true};
  std::atomic<std::size_t> batches_{0};
  bool closing_ = false;
  std::jthread thread_;
};

}  // namespace barg::test
