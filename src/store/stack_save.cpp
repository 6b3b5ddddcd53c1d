// TierStack: what is saved, where it goes, and the slots it lies in.
#include <algorithm>

#include "base/check.h"
#include "store/stack_impl.h"

namespace barg::store {
namespace {

constexpr std::uint64_t kMostHeadroom = 256ULL << 20;
constexpr std::uint64_t kGoodHeadroom = 64ULL << 20;  // a prompt's worth of evictions, on their way to a disk
constexpr double kWriteShare = 0.2;                   // of a new value in the decayed mean
constexpr double kDiskFilled = 0.9;                   // of a directory: the rest is what cleaning works with
constexpr int kEvictions = 4;                         // to free a slot at once
constexpr std::size_t kBatchBytes = 8ULL << 20;
constexpr double kCompany = 0.1;  // seconds that a write waits for others: every batch wakes a tier's threads

}  // namespace

PolicyOptions StackImpl::policy_options() {
  PolicyOptions out;
  for (const std::uint64_t bytes : domain_.part_bytes) out.part_bytes.push_back(DramArena::stride(bytes));
  const std::uint64_t largest = *std::max_element(out.part_bytes.begin(), out.part_bytes.end());
  const std::uint64_t arena = options_.dram_bytes != 0 ? options_.dram_bytes : options_.staging_bytes;
  if (options_.dram_bytes != 0) {
    const bool below = !levels_[kDisk].members.empty() || !levels_[kRemote].members.empty();
    const std::uint64_t usual = std::max(arena / 8, below ? std::min(arena / 4, kGoodHeadroom) : 0);
    headroom_ = std::min(std::clamp(usual, 2 * largest, std::max(kMostHeadroom, 8 * largest)), arena / 2);
    dram_bytes_ = arena - headroom_;
  } else {
    headroom_ = arena;
  }
  out.ghost_factor = options_.ghost_factor;
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    out.levels[l].present = l == kDram ? dram_bytes_ != 0 : !levels_[l].members.empty();
    out.levels[l].ttl_s = options_.ttl_s[l];
  }
  out.levels[kDram].capacity_bytes = dram_bytes_;
  LevelOptions& disk = out.levels[kDisk];
  double room = 0;
  for (const Tier* tier : levels_[kDisk].members) room += static_cast<double>(tier->stats().capacity_bytes);
  disk.capacity_bytes = static_cast<std::uint64_t>(room * kDiskFilled);
  disk.write_bytes_per_day = options_.disk_bytes_per_day;
  disk.admit_all = options_.disk_admit_all;
  return out;
}

// ---- slots

/// With `evict`, the least recently used parts of DRAM make room, unwritten.
StackImpl::Slot StackImpl::allocate(const Key& key, bool evict) {
  for (int i = 0;; ++i) {
    const Slot slot = arena_->allocate(key.part);
    if (slot != kNoSlot || !evict || i == kEvictions || dram_bytes_ == 0) return slot;
    Actions actions;
    if (!policy_->evict_now(DramArena::stride(part_bytes(key)), clock_.now(), actions)) return kNoSlot;
    if (levels_[kDisk].members.size() + levels_[kRemote].members.size() > 0)
      count_drop(DropReason::kNoStaging);
    execute(actions);
  }
}

void StackImpl::release(Slot slot) {
  if (!arena_->unref(slot)) return;
  const std::uint32_t node = std::exchange(node_of_[slot], StackPolicy::kNone);
  if (node != StackPolicy::kNone) policy_->set_user(node, StackPolicy::kNone);
  if (starved_) wake();
}

/// From now on the slot is where the key's bytes are. REQUIRES that the policy knows the key.
void StackImpl::own(Slot slot, const Key& key, const BlockInfo& info) {
  const std::uint32_t node = policy_->find(key);
  CHECK(node != StackPolicy::kNone);
  policy_->set_user(node, slot);
  node_of_[slot] = node;
  info_of_[slot] = info;
}

/// Its bytes are not what was saved. REQUIRES a reference of the caller's.
void StackImpl::disown(Slot slot, const Key& key) {
  ++verify_failed_;
  if (slot_of(key) != slot) return;
  const bool member = policy_->in(key, TierKind::kDram);
  if (member) policy_->lost(key, TierKind::kDram);
  policy_->set_user(std::exchange(node_of_[slot], StackPolicy::kNone), StackPolicy::kNone);
  if (member) release(slot);
}

StackImpl::Slot StackImpl::slot_of(const Key& key) const {
  const std::uint32_t node = policy_->find(key);
  return node == StackPolicy::kNone ? kNoSlot : policy_->user(node);
}

// ---- save

bool StackImpl::wants(const SaveItem& item) {
  Lock lock(mutex_);
  if (stopping_) return false;
  unsigned bits = policy_->would_save(item.key, item.why, item.uses, clock_.now());
  for (std::size_t l = kDisk; l < kNumTierKinds;
       ++l) {  // an earlier process, or another one, may have written it
    if ((bits & bit(l)) == 0) continue;
    Tier& tier = member(l, item.key);
    lock.unlock();
    Presence presence = Presence::kAbsent;
    tier.find({&item.key, 1}, {&presence, 1});
    lock.lock();
    if (presence != Presence::kPresent) continue;
    Actions actions;
    policy_->found(item.key, static_cast<TierKind>(l), clock_.now(), actions);
    execute(actions);
  }
  const double now = clock_.now();
  bits = policy_->would_save(item.key, item.why, item.uses, now);
  const Slot slot = slot_of(item.key);
  if (bits != 0 && slot == kNoSlot) return true;
  Actions actions;
  if (slot != kNoSlot) arena_->ref(slot);
  policy_->saved(item.key, item.info, item.why, item.uses, now, actions);
  execute(actions);
  if (slot != kNoSlot) release(slot);
  return false;
}

bool StackImpl::save(const SaveItem& item, const std::function<bool(Memory)>& fill) {
  Lock lock(mutex_);
  if (stopping_) {
    count_drop(DropReason::kShutdown);
    return false;
  }
  if (policy_->would_save(item.key, item.why, item.uses, clock_.now()) == 0) return false;
  Slot slot = slot_of(item.key);
  const bool there = slot != kNoSlot;
  if (there) {
    arena_->ref(slot);
  } else {
    slot = allocate(item.key, item.why != SaveWhy::kSecondUse);
    if (slot == kNoSlot) {
      count_drop(DropReason::kNoStaging);
      return false;
    }
    const Memory memory = arena_->memory(slot, item.key.part);
    lock.unlock();
    const bool filled = fill(memory);
    const Hash128 sum = filled ? part_sum(memory) : Hash128{};
    lock.lock();
    if (!filled) {
      count_drop(DropReason::kError);
      release(slot);
      return false;
    }
    arena_->set_sum(slot, sum);
  }
  Actions actions;
  policy_->saved(item.key, item.info, item.why, item.uses, clock_.now(), actions);
  if (!there && !actions.empty() && slot_of(item.key) == kNoSlot) own(slot, item.key, item.info);
  execute(actions);
  release(slot);
  return !there;
}

/// REQUIRES for every write that the key has a slot, with a reference of the caller's.
void StackImpl::execute(Actions& actions) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action a = actions[i];
    const auto level = static_cast<std::size_t>(a.level);
    if (a.op == Action::Op::kDrop) {
      if (a.level == TierKind::kDram) {
        release(policy_->user(a.node));
      } else {
        erases_.emplace_back(level, a.key);
        wake();
      }
      continue;
    }
    if (a.level != TierKind::kDram) {
      queue_write(a);
      continue;
    }
    levels_[kDram].bytes_written += part_bytes(a.key);
    arena_->ref(policy_->user(a.node));
    policy_->written(a.key, TierKind::kDram, clock_.now(), actions);
  }
  actions.clear();
}

// ---- writes to tiers

void StackImpl::refuse(const Action& action, DropReason reason) {
  count_drop(reason);
  policy_->failed(action.key, action.level);
}

/// Dropped, not queued, when the level cannot keep up.
void StackImpl::queue_write(const Action& action) {
  const auto l = static_cast<std::size_t>(action.level);
  Level& level = levels_[l];
  const Slot slot = policy_->user(action.node);
  if (stopping_) return refuse(action, DropReason::kShutdown);
  if (!member(l, action.key).up()) return refuse(action, DropReason::kDown);
  if (level.write_s > options_.slow_write_s && level.writing > 0) return refuse(action, DropReason::kSlow);
  const std::uint64_t bytes = DramArena::stride(part_bytes(action.key));
  const bool staged = !policy_->in(action.key, TierKind::kDram);
  const std::uint64_t most = std::max(headroom_ / 4 * 3, bytes);
  if ((staged && level.writing_staged + bytes > most) ||
      level.writing + bytes > std::max(most, dram_bytes_ / 2)) {
    return refuse(action, DropReason::kNoStaging);
  }
  arena_->ref(slot);
  level.writing += bytes;
  level.writing_staged += staged ? bytes : 0;
  ++open_writes_;
  if (writes_.empty()) writes_due_ = SteadyClock().now() + kCompany;
  writes_.push_back({l, action.key, info_of_[slot], slot, staged});
  queued_bytes_ += bytes;
  if (writes_.size() == 1 || writes_ready()) wake();
}

/// A batch is together, or has waited long enough. What waits takes room that evictions need: an eighth.
bool StackImpl::writes_ready() const {
  return flushing_ > 0 || queued_bytes_ >= std::min<std::uint64_t>(kBatchBytes, headroom_ / 8) ||
         SteadyClock().now() >= writes_due_;
}

/// Everything that is queued for one member, up to a batch, with its bytes verified: damage must not be
/// written as truth.
bool StackImpl::submit_writes(Lock& lock) {
  if (writes_.empty() || !writes_ready()) return false;
  writes_due_ = 0;  // all that is queued goes now
  const std::size_t level = writes_.front().level;
  Tier* const tier = &member(level, writes_.front().key);
  std::vector<Write> batch;
  std::uint64_t bytes = 0;
  for (auto it = writes_.begin(); it != writes_.end() && bytes < kBatchBytes;) {
    if (it->level != level || &member(level, it->key) != tier) {
      ++it;
      continue;
    }
    bytes += part_bytes(it->key);
    queued_bytes_ -= DramArena::stride(part_bytes(it->key));
    batch.push_back(*it);
    it = writes_.erase(it);
  }
  std::vector<Memory> memory;
  std::vector<Hash128> sums;
  for (const Write& w : batch) {
    memory.push_back(arena_->memory(w.slot, w.key.part));
    sums.push_back(arena_->sum(w.slot));
  }
  const auto ticket = static_cast<Ticket>(++tickets_);
  lock.unlock();
  std::vector<PutItem> items;
  std::vector<Write> bad, good;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (options_.damage) options_.damage(batch[i].key, memory[i]);
    if (part_sum(memory[i]) != sums[i]) {
      bad.push_back(batch[i]);
      continue;
    }
    items.push_back({batch[i].key, batch[i].info, memory[i], good.size(), sums[i]});
    good.push_back(batch[i]);
  }
  if (!items.empty()) {
    auto shared = std::make_shared<const std::vector<Write>>(std::move(good));
    tier->put(ticket, std::move(items), [this, shared](const Report& r) { put_done(r, (*shared)[r.tag]); });
  }
  lock.lock();
  for (const Write& w : bad) {
    disown(w.slot, w.key);
    end_write(w, Status::kCorrupt, 0);
  }
  return true;
}

void StackImpl::put_done(const Report& report, const Write& write) {
  Lock lock(mutex_);
  end_write(write, report.status, report.seconds);
}

void StackImpl::end_write(const Write& write, Status status, double seconds) {
  Level& level = levels_[write.level];
  const auto kind = static_cast<TierKind>(write.level);
  const std::uint64_t bytes = DramArena::stride(part_bytes(write.key));
  level.writing -= bytes;
  level.writing_staged -= write.staged ? bytes : 0;
  if (status == Status::kOk) {
    level.bytes_written += part_bytes(write.key);
    level.write_s += kWriteShare * (seconds - level.write_s);
    Actions actions;
    policy_->written(write.key, kind, clock_.now(), actions);
    execute(actions);
  } else {
    policy_->failed(write.key, kind);
    count_drop(status == Status::kNoSpace       ? DropReason::kNoSpace
               : status == Status::kUnavailable ? DropReason::kDown
               : status == Status::kCancelled   ? DropReason::kShutdown
                                                : DropReason::kError);
  }
  release(write.slot);
  if (--open_writes_ == 0) idle_.notify_all();
}

}  // namespace barg::store
