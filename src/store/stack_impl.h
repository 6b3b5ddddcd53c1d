// Inside of TierStack. One lock guards all bookkeeping (policy, arena, reads, loads, queues); it is held for
// microseconds, never while bytes are copied, a tier is called (but to ask whether it is up) or a callback
// runs. One thread hands out parts of DRAM, submits writes, and does what is due; reads are submitted by
// load() and by that thread, and end on the tiers' threads.
//
// A slot of the arena belongs to a key while policy_.user(node) names it: as a member of DRAM, or because a
// write still reads it. Its references: the membership, each write, each delivery, whoever fills it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/dram_arena.h"
#include "store/policy.h"
#include "store/speed.h"
#include "store/stack.h"

namespace barg::store {

class StackImpl {
 public:
  using Slot = DramArena::Slot;
  using Lock = std::unique_lock<std::mutex>;

  StackImpl(Domain domain, std::vector<std::unique_ptr<Tier>> tiers, StackOptions options,
            const Clock& clock);
  ~StackImpl();

  const Domain& domain() const { return domain_; }
  bool has(TierKind kind) const;
  bool wants(const SaveItem& item);
  bool save(const SaveItem& item, const std::function<bool(Memory)>& fill);
  void find(std::span<const Key> keys, std::span<std::uint8_t> out, bool* unknown);
  void probe(std::vector<Key> keys, double deadline, std::function<void(std::vector<std::uint8_t>)> done);
  Ticket load(std::vector<TierStack::Want> wants, double deadline, TierStack::ReadyFn ready);
  void cancel(Ticket ticket);
  void pin(std::span<const Key> keys, double until);
  std::array<TierSpeed, kNumTierKinds> speeds() const;
  StackStats stats() const;
  bool flush(double deadline);
  void tick();

 private:
  static constexpr Slot kNoSlot = DramArena::kNone;
  static constexpr std::size_t kDram = static_cast<std::size_t>(TierKind::kDram);
  static constexpr std::size_t kDisk = static_cast<std::size_t>(TierKind::kDisk);
  static constexpr std::size_t kRemote = static_cast<std::size_t>(TierKind::kRemote);
  static constexpr unsigned bit(std::size_t level) { return 1U << level; }

  struct Level {
    std::vector<Tier*> members;
    SpeedMeter meter;
    double write_s = 0;                // decayed mean
    std::uint64_t writing = 0;         // bytes that wait to be written or are being written
    std::uint64_t writing_staged = 0;  // of these: not in DRAM any more when they were queued
    std::uint64_t bytes_read = 0, bytes_written = 0;
  };
  struct Load {
    Ticket id{};
    TierStack::ReadyFn ready;
    double deadline = 0;
    std::vector<TierStack::Want> wants;
    std::vector<bool> open;  // `ready` has not been called and will be
    std::size_t left = 0;
  };
  using LoadPtr = std::shared_ptr<Load>;
  struct Waiter {
    LoadPtr load;
    std::size_t index = 0;
  };
  struct Batch {
    Ticket ticket{};
    Tier* tier = nullptr;
    std::size_t wanted = 0;  // reads that somebody waits for
  };
  /// A key that is read from a tier, once for all who want it.
  struct Read {
    BlockInfo info;
    unsigned levels = 0;  // that may have it, by bit
    std::vector<Waiter> waiters;
    Status last = Status::kMissing;
    int again = 0;
    // Once submitted:
    bool submitted = false;
    std::size_t level = 0;
    std::uint64_t serial = 0;
    Slot slot = kNoSlot;
    std::shared_ptr<Batch> batch;
  };
  struct Write {
    std::size_t level = 0;
    Key key;
    BlockInfo info;
    Slot slot = kNoSlot;
    bool staged = false;
  };
  /// A part that lies in the arena (slot) or an end without bytes, for the stack's thread to hand out.
  struct Delivery {
    LoadPtr load;
    std::size_t index = 0;
    Slot slot = kNoSlot;
    Status status = Status::kOk;
  };
  struct Asked {
    Key key;
    std::uint8_t found = 0;
    std::uint8_t levels = 0;
  };

  // stack.cpp
  std::size_t part_bytes(const Key& key) const { return domain_.part_bytes[key.part]; }
  Tier& member(std::size_t level, const Key& key) const;
  void find_below(std::span<const Key> keys, std::span<const std::size_t> at, std::size_t level,
                  std::vector<Presence>& out);
  void note_asked(std::vector<Asked>&& asked);
  void run();
  bool work(Lock& lock);
  bool call_back(Lock& lock);
  bool gone(const Key& key, std::size_t level) const;
  unsigned answered(const Asked& a) const;
  bool keep_books(Lock& lock);
  void due();
  void wake() { work_.notify_one(); }

  // stack_save.cpp
  PolicyOptions policy_options();
  Slot allocate(const Key& key, bool evict);
  void release(Slot slot);
  void own(Slot slot, const Key& key, const BlockInfo& info);
  void disown(Slot slot, const Key& key);
  Slot slot_of(const Key& key) const;
  void execute(Actions& actions);
  void queue_write(const Action& action);
  bool writes_ready() const;
  void refuse(const Action& action, DropReason reason);
  bool submit_writes(Lock& lock);
  void put_done(const Report& report, const Write& write);
  void end_write(const Write& write, Status status, double seconds);
  void count_drop(DropReason reason) { ++dropped_[static_cast<std::size_t>(reason)]; }

  // stack_load.cpp
  void expect(const LoadPtr& load, std::size_t index, unsigned levels);
  bool close(Load& load, std::size_t index);
  void close_all(const LoadPtr& load, Status status, std::vector<std::shared_ptr<Batch>>* idle);
  bool deliver(Lock& lock);
  void end_delivery(Lock& lock, const Delivery& d, Status status);
  void delivered(const TierStack::Want& want, double now);
  void end_waiters(const Key& key, Status status);
  bool submit_reads(Lock& lock);
  bool start_read(const Key& key, Read& read, std::size_t level);
  void get_done(const Report& report);
  void landed(Lock& lock, const Report& report, Slot slot);
  void not_read(const Key& key, Status status);
  void expire(double now);
  std::vector<unsigned> levels_of_missing(Lock& lock, std::span<const Key> keys);
  std::vector<unsigned> levels_below(std::span<const Key> keys, std::span<const std::size_t> at);

  const Domain domain_;
  const StackOptions options_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Tier>> tiers_;
  std::uint64_t headroom_ = 0;    // of the arena beyond what DRAM may hold
  std::uint64_t dram_bytes_ = 0;  // that parts in DRAM may take; 0 = no such tier

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable work_, idle_;
  bool stopping_ = false;
  std::array<Level, kNumTierKinds> levels_;
  std::optional<StackPolicy> policy_;
  std::optional<DramArena> arena_;
  std::vector<std::uint32_t> node_of_;  // by slot
  std::vector<BlockInfo> info_of_;      // by slot

  std::uint64_t tickets_ = 0, serials_ = 0;
  std::unordered_map<std::uint64_t, LoadPtr> loads_;
  std::multimap<double, Ticket> deadlines_;
  std::unordered_map<Key, Read, KeyHash> reads_;
  std::deque<Key> unread_;     // of reads_, not submitted
  std::uint64_t reading_ = 0;  // bytes in flight
  bool starved_ = false;       // a read waits for a slot
  std::deque<Delivery> deliveries_;
  std::deque<Write> writes_;     // not submitted
  std::uint64_t queued_bytes_ = 0;  // of writes_
  double writes_due_ = 0;           // real time: when writes_ go although more might come
  int flushing_ = 0;                // calls of flush(): they go at once
  std::size_t open_writes_ = 0;  // queued or in flight
  std::vector<std::pair<std::size_t, Key>> erases_, touches_;
  std::deque<Asked> asked_;
  std::deque<std::function<void()>> calls_;
  double ticked_ = -1;

  std::array<std::uint64_t, 8> dropped_{};
  std::uint64_t verify_ok_ = 0, verify_failed_ = 0, late_ = 0;

  std::jthread thread_;  // last
};

}  // namespace barg::store
