// TierStack: loads. A part comes from the arena, through the stack's thread, or is read from the nearest tier
// that has it, once for all who want it.
#include <algorithm>

#include "base/check.h"
#include "store/stack_impl.h"

namespace barg::store {
namespace {

constexpr int kAgain = 3;  // submissions of one read that somebody's deadline ended too early
constexpr std::size_t kBatchReads = 256;

}  // namespace

// ---- submitting

Ticket StackImpl::load(std::vector<TierStack::Want> wants, double deadline, TierStack::ReadyFn ready) {
  auto load = std::make_shared<Load>();
  load->ready = std::move(ready);
  load->deadline = deadline;
  load->wants = std::move(wants);
  load->left = load->wants.size();
  load->open.assign(load->left, true);
  std::vector<Key> keys;
  for (const auto& w : load->wants) keys.push_back(w.key);
  Lock lock(mutex_);
  load->id = static_cast<Ticket>(++tickets_);
  if (load->left == 0) return load->id;
  const std::vector<unsigned> levels = levels_of_missing(lock, keys);
  loads_.emplace(static_cast<std::uint64_t>(load->id), load);
  if (deadline != 0) deadlines_.emplace(deadline, load->id);
  for (std::size_t i = 0; i < keys.size(); ++i) expect(load, i, levels[i]);
  if (stopping_) close_all(load, Status::kCancelled, nullptr);
  submit_reads(lock);
  wake();
  return load->id;
}

/// One item of a load: from the arena, with a read in progress, or with a read of its own.
void StackImpl::expect(const LoadPtr& load, std::size_t index, unsigned levels) {
  const TierStack::Want& want = load->wants[index];
  const Slot slot = slot_of(want.key);
  if (slot != kNoSlot) {
    arena_->ref(slot);
    levels_[kDram].meter.started(part_bytes(want.key), clock_.now());
    deliveries_.push_back({load, index, slot, Status::kOk});
    return;
  }
  if (const auto it = reads_.find(want.key); it != reads_.end()) {
    Read& read = it->second;
    read.levels |= levels;
    if (read.waiters.empty() && read.batch) ++read.batch->wanted;
    read.waiters.push_back({load, index});
    return;
  }
  if (levels == 0) {
    close(*load, index);
    deliveries_.push_back({load, index, kNoSlot, Status::kMissing});
    return;
  }
  Read& read = reads_[want.key];
  read.info = want.info;
  read.levels = levels;
  read.waiters.push_back({load, index});
  unread_.push_back(want.key);
}

/// Gives the read a slot; false if there is no room now.
bool StackImpl::start_read(const Key& key, Read& read, std::size_t level) {
  const std::uint64_t stride = DramArena::stride(part_bytes(key));
  if (reading_ > 0 && reading_ + stride > headroom_ / 2) return false;
  read.slot = allocate(key, true);
  if (read.slot == kNoSlot) return false;
  read.level = level;
  read.submitted = true;
  read.serial = ++serials_;
  levels_[read.level].meter.started(part_bytes(key), clock_.now());
  reading_ += stride;
  return true;
}

/// As many as there is room for, in order, in batches of one tier and one deadline.
bool StackImpl::submit_reads(Lock& lock) {
  bool any = false;
  for (;;) {
    std::shared_ptr<Batch> batch;
    std::vector<GetItem> items;
    double deadline = 0;
    while (!unread_.empty() && items.size() < kBatchReads) {
      const Key key = unread_.front();
      const auto it = reads_.find(key);
      Read& read = it->second;
      if (read.waiters.empty()) {  // nobody wants it any more
        reads_.erase(it);
        unread_.pop_front();
        continue;
      }
      double latest = 0;
      for (const Waiter& w : read.waiters) {
        latest = w.load->deadline == 0 ? 0 : std::max(latest, w.load->deadline);
        if (latest == 0) break;
      }
      const std::size_t level = (read.levels & bit(kDisk)) != 0 ? kDisk : kRemote;
      Tier* const tier = &member(level, key);
      if (batch && (batch->tier != tier || latest != deadline)) break;
      if (!start_read(key, read, level)) {
        starved_ = true;
        break;
      }
      unread_.pop_front();
      if (!batch) batch = std::make_shared<Batch>(Batch{static_cast<Ticket>(++tickets_), tier, 0});
      deadline = latest;
      ++batch->wanted;
      read.batch = batch;
      items.push_back({key, read.info, arena_->memory(read.slot, key.part), read.serial});
    }
    if (unread_.empty()) starved_ = false;
    if (items.empty()) return any;
    any = true;
    lock.unlock();
    batch->tier->get(batch->ticket, std::move(items), deadline, [this](const Report& r) { get_done(r); });
    lock.lock();
  }
}

// ---- ends of reads

void StackImpl::get_done(const Report& report) {
  Lock lock(mutex_);
  auto it = reads_.find(report.key);
  CHECK(it != reads_.end() && it->second.submitted && it->second.serial == report.tag);
  Read& read = it->second;
  Level& level = levels_[read.level];
  level.meter.finished(part_bytes(report.key), report.status == Status::kOk, clock_.now());
  reading_ -= DramArena::stride(part_bytes(report.key));
  const Slot slot = read.slot;
  if (report.status == Status::kOk) {
    level.bytes_read += part_bytes(report.key);
    landed(lock, report, slot);
  } else {
    if (report.status == Status::kCorrupt) ++verify_failed_;
    not_read(report.key, report.status);
  }
  release(slot);
  wake();
}

/// The bytes are in the slot, verified by the tier. They belong to DRAM from now on, and to who waits for
/// them.
void StackImpl::landed(Lock& lock, const Report& report, Slot slot) {
  const Key& key = report.key;
  const Memory memory = arena_->memory(slot, key.part);
  lock.unlock();
  const Hash128 sum = report.hash ? *report.hash : part_sum(memory);
  lock.lock();
  arena_->set_sum(slot, sum);
  ++verify_ok_;
  auto node = reads_.extract(key);
  Read& read = node.mapped();
  const double now = clock_.now();
  std::vector<std::pair<Waiter, Status>> ends;
  bool used = false;
  for (const Waiter& w : read.waiters) {
    if (!close(*w.load, w.index)) continue;
    const bool in_time = w.load->deadline == 0 || now <= w.load->deadline;
    ends.emplace_back(w, in_time ? Status::kOk : Status::kTimeout);
    used = used || in_time;
  }
  if (!used) ++late_;
  Actions actions;
  policy_->read(key, read.info, static_cast<TierKind>(read.level), !used, now, actions);
  if (!actions.empty() && slot_of(key) == kNoSlot) own(slot, key, read.info);
  execute(actions);
  touches_.emplace_back(read.level, key);
  lock.unlock();
  for (const auto& [w, status] : ends) {
    const TierStack::Want& want = w.load->wants[w.index];
    w.load->ready(
        {want.tag, status, static_cast<TierKind>(read.level), status == Status::kOk ? memory : Memory{}});
  }
  lock.lock();
}

/// Another level may have it; else its waiters get the status.
void StackImpl::not_read(const Key& key, Status status) {
  Read& read = reads_.find(key)->second;
  read.submitted = false;
  read.batch.reset();
  const auto kind = static_cast<TierKind>(read.level);
  if (status == Status::kMissing || status == Status::kCorrupt) policy_->lost(key, kind);
  const bool again = status == Status::kTimeout || status == Status::kCancelled;
  if (!again) read.levels &= ~bit(read.level);
  if (status == Status::kTimeout) {  // of those whose deadline it was; others may have come since
    const double now = clock_.now();
    std::erase_if(read.waiters, [&](const Waiter& w) {
      if (w.load->deadline == 0 || w.load->deadline > now) return false;
      if (close(*w.load, w.index)) deliveries_.push_back({w.load, w.index, kNoSlot, Status::kTimeout});
      return true;
    });
  }
  if (!read.waiters.empty() && read.levels != 0 && (!again || ++read.again < kAgain)) {
    unread_.push_front(key);
    return;
  }
  end_waiters(key, status);
}

void StackImpl::end_waiters(const Key& key, Status status) {
  auto node = reads_.extract(key);
  for (const Waiter& w : node.mapped().waiters) {
    if (close(*w.load, w.index)) deliveries_.push_back({w.load, w.index, kNoSlot, status});
  }
}

// ---- ends of loads

/// True: it was open; the caller ends it.
bool StackImpl::close(Load& load, std::size_t index) {
  if (!load.open[index]) return false;
  load.open[index] = false;
  if (--load.left == 0) {
    loads_.erase(static_cast<std::uint64_t>(load.id));
    if (load.deadline != 0) {
      const auto [first, last] = deadlines_.equal_range(load.deadline);
      const auto it = std::find_if(first, last, [&](const auto& d) { return d.second == load.id; });
      if (it != last) deadlines_.erase(it);
    }
  }
  return true;
}

/// `idle`: batches that nobody waits for any more are added. Reads in progress go on.
void StackImpl::close_all(const LoadPtr& load, Status status, std::vector<std::shared_ptr<Batch>>* idle) {
  for (std::size_t i = 0; i < load->wants.size(); ++i) {
    if (!load->open[i]) continue;
    const auto it = reads_.find(load->wants[i].key);
    if (it != reads_.end()) {
      Read& read = it->second;
      const auto gone = std::erase_if(read.waiters, [&](const Waiter& w) { return w.load == load; });
      if (gone > 0 && read.waiters.empty() && read.batch && --read.batch->wanted == 0 && idle != nullptr) {
        idle->push_back(read.batch);
      }
    }
    close(*load, i);
    deliveries_.push_back({load, i, kNoSlot, status});
  }
}

void StackImpl::cancel(Ticket ticket) {
  std::vector<std::shared_ptr<Batch>> idle;
  {
    Lock lock(mutex_);
    const auto it = loads_.find(static_cast<std::uint64_t>(ticket));
    if (it == loads_.end()) return;
    const LoadPtr load = it->second;
    close_all(load, Status::kCancelled, &idle);
    wake();
  }
  for (const auto& batch : idle) batch->tier->cancel(batch->ticket);
}

void StackImpl::expire(double now) {
  while (!deadlines_.empty() && deadlines_.begin()->first < now) {
    const auto it = loads_.find(static_cast<std::uint64_t>(deadlines_.begin()->second));
    CHECK(it != loads_.end());
    const LoadPtr load = it->second;
    close_all(load, Status::kTimeout, nullptr);
  }
}

// ---- delivery from the arena

bool StackImpl::deliver(Lock& lock) {
  if (deliveries_.empty()) return false;
  const Delivery d = std::move(deliveries_.front());
  deliveries_.pop_front();
  if (d.slot == kNoSlot) {
    lock.unlock();
    d.load->ready({d.load->wants[d.index].tag, d.status, TierKind::kDram, {}});
    lock.lock();
    return true;
  }
  const bool open = d.load->open[d.index];
  const Key key = d.load->wants[d.index].key;
  const Memory memory = arena_->memory(d.slot, key.part);
  const Hash128 sum = arena_->sum(d.slot);
  bool whole = true;
  if (open) {
    lock.unlock();
    if (options_.damage) options_.damage(key, memory);
    whole = part_sum(memory) == sum;
    lock.lock();
  }
  end_delivery(lock, d, whole ? Status::kOk : Status::kCorrupt);
  return true;
}

void StackImpl::end_delivery(Lock& lock, const Delivery& d, Status status) {
  const TierStack::Want& want = d.load->wants[d.index];
  Level& level = levels_[kDram];
  if (status == Status::kCorrupt) {
    disown(d.slot, want.key);
    level.meter.finished(part_bytes(want.key), false, clock_.now());
    release(d.slot);
    if (!d.load->open[d.index]) return;
    lock.unlock();
    const std::size_t first = 0;
    const std::vector<unsigned> levels = levels_below({&want.key, 1}, {&first, 1});
    lock.lock();
    if (d.load->open[d.index]) expect(d.load, d.index, levels[0]);
    return;
  }
  const bool ours = close(*d.load, d.index);
  if (ours) {
    const double now = clock_.now();
    const bool in_time = d.load->deadline == 0 || now <= d.load->deadline;
    ++verify_ok_;
    if (in_time) {
      level.bytes_read += part_bytes(want.key);
      delivered(want, now);
    } else {
      ++late_;
    }
    const Memory memory = arena_->memory(d.slot, want.key.part);
    lock.unlock();
    d.load->ready(
        {want.tag, in_time ? Status::kOk : Status::kTimeout, TierKind::kDram, in_time ? memory : Memory{}});
    lock.lock();
  }
  level.meter.finished(part_bytes(want.key), ours, clock_.now());
  release(d.slot);
}

/// It was read from DRAM. A level below that has lost it gets it again, while there is where to take it from.
void StackImpl::delivered(const TierStack::Want& want, double now) {
  for (std::size_t l = kDisk; l < kNumTierKinds; ++l) {
    if (gone(want.key, l)) policy_->lost(want.key, static_cast<TierKind>(l));
  }
  Actions actions;
  policy_->read(want.key, want.info, TierKind::kDram, false, now, actions);
  execute(actions);
}

/// The levels below DRAM that may have what the arena has not. What it evicts while they are asked is asked
/// for as well: with the lock at the end, every key has a slot or its levels.
std::vector<unsigned> StackImpl::levels_of_missing(Lock& lock, std::span<const Key> keys) {
  std::vector<unsigned> levels(keys.size());
  std::vector<bool> looked(keys.size());
  for (;;) {
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!looked[i] && slot_of(keys[i]) == kNoSlot) missing.push_back(i);
    }
    if (missing.empty()) return levels;
    lock.unlock();
    const std::vector<unsigned> found = levels_below(keys, missing);
    lock.lock();
    for (const std::size_t i : missing) {
      levels[i] = found[i];
      looked[i] = true;
    }
  }
}

/// The levels below DRAM that may have keys[at[j]], by bit, at at[j]; nothing at the others. Without the lock.
std::vector<unsigned> StackImpl::levels_below(std::span<const Key> keys, std::span<const std::size_t> at) {
  std::vector<unsigned> levels(keys.size());
  std::vector<Presence> presence;
  for (std::size_t l = kDisk; l < kNumTierKinds && !at.empty(); ++l) {
    if (levels_[l].members.empty()) continue;
    find_below(keys, at, l, presence);
    for (std::size_t j = 0; j < at.size(); ++j) {
      if (presence[j] != Presence::kAbsent) levels[at[j]] |= bit(l);
    }
  }
  return levels;
}

}  // namespace barg::store
