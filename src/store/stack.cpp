// TierStack: construction, lookups, its thread, and what it reports.
#include "store/stack.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "store/stack_impl.h"

namespace barg::store {
namespace {

constexpr double kIdleWait = 0.25;  // seconds; on a clock that tests move, time passes unnoticed
constexpr double kLoadWait = 0.05;  // the same while loads have deadlines
constexpr double kTick = 1;         // how often parts expire
constexpr std::size_t kBooks = 64;  // keys a turn, so that the lock is free between
constexpr std::size_t kMostAsked = 1 << 20;
constexpr std::size_t kPrefetch = 8;

}  // namespace

const char* drop_reason_name(DropReason r) {
  switch (r) {
    case DropReason::kNoAdmission:
      return "no_admission";
    case DropReason::kNoStaging:
      return "no_staging";
    case DropReason::kBudget:
      return "budget";
    case DropReason::kNoSpace:
      return "no_space";
    case DropReason::kDown:
      return "down";
    case DropReason::kSlow:
      return "slow";
    case DropReason::kShutdown:
      return "shutdown";
    case DropReason::kError:
      return "error";
  }
  return "?";
}

StackImpl::StackImpl(Domain domain, std::vector<std::unique_ptr<Tier>> tiers, StackOptions options,
                     const Clock& clock)
    : domain_(std::move(domain)), options_(std::move(options)), clock_(clock), tiers_(std::move(tiers)) {
  CHECK(!tiers_.empty() || options_.dram_bytes != 0);
  const std::uint64_t arena = options_.dram_bytes != 0 ? options_.dram_bytes : options_.staging_bytes;
  CHECK(TierStack::fits(domain_, arena));
  for (const auto& tier : tiers_) {
    CHECK(tier->kind() != TierKind::kDram);
    levels_[static_cast<std::size_t>(tier->kind())].members.push_back(tier.get());
  }
  policy_.emplace(policy_options(), clock_.now());
  arena_ = DramArena::make(domain_.part_bytes, arena);
  CHECK(arena_.has_value());
  node_of_.assign(arena_->slots(), StackPolicy::kNone);
  info_of_.resize(arena_->slots());
  thread_ = std::jthread([this] { run(); });
}

StackImpl::~StackImpl() {
  std::vector<std::shared_ptr<Batch>> idle;
  {
    Lock lock(mutex_);
    stopping_ = true;
    while (!loads_.empty()) {
      const LoadPtr load = loads_.begin()->second;
      close_all(load, Status::kCancelled, &idle);
    }
    wake();
  }
  for (const auto& batch : idle) batch->tier->cancel(batch->ticket);
  thread_.join();
  tiers_.clear();  // they end what is in flight; the reports find everything still here
}

bool StackImpl::has(TierKind kind) const {
  return kind == TierKind::kDram ? dram_bytes_ != 0
                                 : !levels_[static_cast<std::size_t>(kind)].members.empty();
}

/// A key lies in one member of a level, always the same.
Tier& StackImpl::member(std::size_t level, const Key& key) const {
  const auto& members = levels_[level].members;
  if (members.size() == 1) return *members[0];
  std::uint64_t h;  // bytes of the digest that no hash table here uses
  std::memcpy(&h, key.block.data() + 16, sizeof h);
  return *members[h % members.size()];
}

// ---- lookups

/// Presence of keys[at[j]] in a level below DRAM. Without the lock: members do not change.
void StackImpl::find_below(std::span<const Key> keys, std::span<const std::size_t> at, std::size_t level,
                           std::vector<Presence>& out) {
  out.assign(at.size(), Presence::kAbsent);
  std::vector<Key> asked;
  std::vector<std::size_t> where;
  std::vector<Presence> got;
  for (Tier* const tier : levels_[level].members) {
    asked.clear();
    where.clear();
    for (std::size_t j = 0; j < at.size(); ++j) {
      if (&member(level, keys[at[j]]) != tier) continue;
      asked.push_back(keys[at[j]]);
      where.push_back(j);
    }
    if (asked.empty()) continue;
    got.assign(asked.size(), Presence::kAbsent);
    tier->find(asked, got);
    for (std::size_t j = 0; j < asked.size(); ++j) out[where[j]] = got[j];
  }
}

void StackImpl::find(std::span<const Key> keys, std::span<std::uint8_t> out, bool* unknown) {
  CHECK(keys.size() == out.size());
  constexpr auto kNowhere = static_cast<std::uint8_t>(kNumTierKinds);
  std::vector<std::size_t> missing;
  std::vector<Presence> presence;
  {
    Lock lock(mutex_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i + kPrefetch < keys.size()) policy_->prefetch(keys[i + kPrefetch]);
      out[i] = slot_of(keys[i]) == kNoSlot ? kNowhere : static_cast<std::uint8_t>(TierKind::kDram);
      if (out[i] == kNowhere) missing.push_back(i);
    }
  }
  *unknown = false;
  std::vector<Asked> asked(keys.size());
  const unsigned local = bit(kDram) | bit(kDisk);
  for (std::size_t i = 0; i < keys.size(); ++i)
    asked[i] = {keys[i], out[i], static_cast<std::uint8_t>(local)};
  for (std::size_t l = kDisk; l < kNumTierKinds && !missing.empty(); ++l) {
    if (levels_[l].members.empty()) continue;
    find_below(keys, missing, l, presence);
    std::vector<std::size_t> still;
    for (std::size_t j = 0; j < missing.size(); ++j) {
      const std::size_t i = missing[j];
      if (presence[j] == Presence::kPresent) out[i] = asked[i].found = static_cast<std::uint8_t>(l);
      if (presence[j] == Presence::kUnknown && l == kRemote) *unknown = true;  // probe() will count it
      if (presence[j] != Presence::kUnknown && l == kRemote) asked[i].levels |= bit(kRemote);
      if (presence[j] != Presence::kPresent) still.push_back(i);
    }
    missing.swap(still);
  }
  note_asked(std::move(asked));
}

/// The books are kept by the stack's thread: lookups are on the way of every request.
void StackImpl::note_asked(std::vector<Asked>&& asked) {
  Lock lock(mutex_);
  if (asked_.size() + asked.size() <= kMostAsked) asked_.insert(asked_.end(), asked.begin(), asked.end());
  wake();
}

void StackImpl::probe(std::vector<Key> keys, double deadline,
                      std::function<void(std::vector<std::uint8_t>)> done) {
  struct Probe {
    std::vector<Key> keys;
    std::vector<std::uint8_t> kinds;
    std::atomic<std::size_t> left{1};
    std::function<void(std::vector<std::uint8_t>)> done;
  };
  auto probe = std::make_shared<Probe>();
  probe->keys = std::move(keys);
  probe->kinds.resize(probe->keys.size());
  probe->done = std::move(done);
  bool unknown = false;
  find(probe->keys, probe->kinds, &unknown);
  const auto end = [probe] {
    if (probe->left.fetch_sub(1) == 1) probe->done(std::move(probe->kinds));
  };
  for (Tier* const tier : levels_[kRemote].members) {
    std::vector<Key> ask;
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < probe->keys.size() && unknown; ++i) {
      if (probe->kinds[i] != kNumTierKinds || &member(kRemote, probe->keys[i]) != tier) continue;
      ask.push_back(probe->keys[i]);
      at.push_back(i);
    }
    if (ask.empty()) continue;
    probe->left.fetch_add(1);
    tier->probe(std::move(ask), deadline, [this, probe, end, at](const std::vector<Presence>& got) {
      std::vector<Asked> asked;
      for (std::size_t j = 0; j < at.size() && j < got.size(); ++j) {
        const bool there = got[j] == Presence::kPresent;
        if (there) probe->kinds[at[j]] = static_cast<std::uint8_t>(TierKind::kRemote);
        if (got[j] != Presence::kUnknown) {
          asked.push_back({probe->keys[at[j]], probe->kinds[at[j]], static_cast<std::uint8_t>(bit(kRemote))});
        }
      }
      note_asked(std::move(asked));
      end();
    });
  }
  Lock lock(mutex_);
  calls_.emplace_back(end);
  wake();
}

void StackImpl::pin(std::span<const Key> keys, double until) {
  Lock lock(mutex_);
  policy_->pin(keys, until, clock_.now());
}

// ---- the thread

void StackImpl::run() {
  pthread_setname_np(pthread_self(), "barg-tiers");
  Lock lock(mutex_);
  for (;;) {
    do {
      due();
    } while (work(lock));
    if (stopping_ && deliveries_.empty() && calls_.empty()) break;
    double wait = kIdleWait;
    const auto sooner = [&wait](double seconds) { wait = std::clamp(seconds, 0.0005, wait); };
    if (!deadlines_.empty()) sooner(std::min(kLoadWait, deadlines_.begin()->first - clock_.now()));
    if (!writes_.empty()) sooner(writes_due_ - SteadyClock().now());
    if (!stopping_) work_.wait_for(lock, std::chrono::duration<double>(wait));
  }
  for (; !writes_.empty(); writes_.pop_front()) end_write(Write(writes_.front()), Status::kCancelled, 0);
}

/// One thing of each kind; false if there was nothing.
bool StackImpl::work(Lock& lock) {
  bool any = deliver(lock);
  any = submit_reads(lock) || any;
  any = call_back(lock) || any;
  if (!stopping_) any = submit_writes(lock) || any;
  return keep_books(lock) || any;
}

bool StackImpl::call_back(Lock& lock) {
  if (calls_.empty()) return false;
  const auto call = std::move(calls_.front());
  calls_.pop_front();
  lock.unlock();
  call();
  lock.lock();
  return true;
}

/// The level had it, as the policy knows, and has lost it by itself. From memory: may be asked with the lock.
bool StackImpl::gone(const Key& key, std::size_t level) const {
  if (levels_[level].members.empty() || !policy_->in(key, static_cast<TierKind>(level))) return false;
  Tier& tier = member(level, key);
  Presence presence = Presence::kAbsent;
  tier.find({&key, 1}, {&presence, 1});
  return presence == Presence::kAbsent && tier.up();
}

/// The levels whose answer to a lookup counts. A tier that is down says of every key that it is absent; and
/// what a tier did not have then may have been written since: so it is asked again before the policy believes
/// that it is lost. With the lock, so that no write ends in between.
unsigned StackImpl::answered(const Asked& a) const {
  unsigned levels = a.levels;
  for (std::size_t l = kDisk; l < kNumTierKinds; ++l) {
    if (levels_[l].members.empty() || (levels & bit(l)) == 0 || a.found <= l) continue;
    const bool known = policy_->in(a.key, static_cast<TierKind>(l));
    if (known ? !gone(a.key, l) : !member(l, a.key).up()) levels &= ~bit(l);
  }
  return levels;
}

/// What lookups found, for the policy; and hints for the tiers.
bool StackImpl::keep_books(Lock& lock) {
  const bool any = !asked_.empty() || !erases_.empty() || !touches_.empty();
  Actions actions;
  for (std::size_t i = 0; i < kBooks && !asked_.empty(); ++i) {
    const Asked a = asked_.front();
    asked_.pop_front();
    policy_->asked({&a.key, 1}, {&a.found, 1}, answered(a), clock_.now(), actions);
    if (policy_->in(a.key, TierKind::kDisk)) touches_.emplace_back(kDisk, a.key);
  }
  execute(actions);
  if (erases_.empty() && touches_.empty()) return any;
  const auto erases = std::exchange(erases_, {});
  const auto touches = std::exchange(touches_, {});
  lock.unlock();
  for (const auto& [level, key] : erases) member(level, key).erase({&key, 1});
  for (const auto& [level, key] : touches) member(level, key).touch({&key, 1});
  lock.lock();
  return true;
}

/// Deadlines; now and then what has expired, and that pinned parts stay warm.
void StackImpl::due() {
  const double now = clock_.now();
  expire(now);
  if (ticked_ >= 0 && now < ticked_ + kTick) return;
  ticked_ = now;
  Actions actions;
  policy_->tick(now, actions);
  execute(actions);
  std::vector<Key> pinned;
  policy_->pinned_keys(TierKind::kDisk, now, pinned);
  for (const Key& key : pinned) touches_.emplace_back(kDisk, key);
}

void StackImpl::tick() {
  Lock lock(mutex_);
  ticked_ = -1;
  due();
  wake();
}

bool StackImpl::flush(double deadline) {
  const auto wait = [&](const auto& done) {
    Lock lock(mutex_);
    while (!done()) {
      if (clock_.now() > deadline) return false;
      idle_.wait_for(lock, std::chrono::milliseconds(5));
    }
    return true;
  };
  {
    Lock lock(mutex_);
    ++flushing_;
    wake();
  }
  bool all = wait([&] { return writes_.empty(); });
  for (const auto& tier : tiers_) all = tier->flush(deadline) && all;
  all = all && wait([&] { return open_writes_ == 0; });
  Lock lock(mutex_);
  --flushing_;
  return all;
}

// ---- reports

std::array<TierSpeed, kNumTierKinds> StackImpl::speeds() const {
  Lock lock(mutex_);
  std::array<TierSpeed, kNumTierKinds> out;
  const double now = clock_.now();
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    out[l] = levels_[l].meter.speed(now);
    const auto& members = levels_[l].members;
    out[l].up = l == kDram
                    ? dram_bytes_ != 0
                    : std::any_of(members.begin(), members.end(), [](const Tier* t) { return t->up(); });
  }
  return out;
}

StackStats StackImpl::stats() const {
  StackStats out;
  for (const auto& tier : tiers_) out.tiers.push_back({tier->name(), tier->kind(), tier->stats()});
  const auto speed = speeds();
  Lock lock(mutex_);
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    const LevelStats s = policy_->stats(static_cast<TierKind>(l));
    StackStats::PerKind& k = out.kinds[l];
    k.queries = s.queries;
    k.hits = s.hits;
    k.bytes_read = levels_[l].bytes_read;
    k.bytes_written = levels_[l].bytes_written;
    k.evictions = s.evictions;
    k.rereads = s.rereads;
    k.writes = s.writes;
    k.useful_writes = s.useful_writes;
    k.duplicate_bytes = s.duplicate_bytes;
    k.speed = speed[l];
    for (const auto& tier : out.tiers) {
      if (tier.kind != static_cast<TierKind>(l)) continue;
      k.used_bytes += tier.stats.bytes_used;
      k.capacity_bytes += tier.stats.capacity_bytes;
      k.entries += tier.stats.entries;
    }
    if (l == kDram && dram_bytes_ != 0) {
      k.used_bytes = s.bytes;
      k.capacity_bytes = options_.dram_bytes;
      k.entries = s.entries;
    }
  }
  out.dropped = dropped_;
  out.dropped[static_cast<std::size_t>(DropReason::kNoAdmission)] += policy_->refused_admission();
  out.dropped[static_cast<std::size_t>(DropReason::kBudget)] += policy_->refused_budget();
  out.verify_ok = verify_ok_;
  out.verify_failed = verify_failed_;
  out.late = late_;
  out.reads_in_flight = reads_.size();
  out.writes_in_flight = open_writes_;
  out.arena_bytes = arena_->used();
  out.loads = loads_.size();
  return out;
}

// ---- the public face

TierStack::TierStack(Domain domain, std::vector<std::unique_ptr<Tier>> tiers, StackOptions options,
                     const Clock& clock)
    : impl_(std::make_unique<StackImpl>(std::move(domain), std::move(tiers), std::move(options), clock)) {}
TierStack::~TierStack() = default;

bool TierStack::fits(const Domain& domain, std::uint64_t arena_bytes) {
  if (domain.part_bytes.empty()) return false;
  const auto largest = *std::max_element(domain.part_bytes.begin(), domain.part_bytes.end());
  const auto least = *std::min_element(domain.part_bytes.begin(), domain.part_bytes.end());
  return least > 0 && largest <= std::uint64_t{1} << 36 && 4 * DramArena::stride(largest) <= arena_bytes;
}

const Domain& TierStack::domain() const { return impl_->domain(); }
bool TierStack::has(TierKind kind) const { return impl_->has(kind); }
bool TierStack::wants(const SaveItem& item) { return impl_->wants(item); }
bool TierStack::save(const SaveItem& item, const std::function<bool(Memory)>& fill) {
  return impl_->save(item, fill);
}
void TierStack::find(std::span<const Key> keys, std::span<std::uint8_t> out, bool* unknown) {
  impl_->find(keys, out, unknown);
}
void TierStack::probe(std::vector<Key> keys, double deadline,
                      std::function<void(std::vector<std::uint8_t>)> done) {
  impl_->probe(std::move(keys), deadline, std::move(done));
}
Ticket TierStack::load(std::vector<Want> wants, double deadline, ReadyFn ready) {
  return impl_->load(std::move(wants), deadline, std::move(ready));
}
void TierStack::cancel(Ticket ticket) { impl_->cancel(ticket); }
void TierStack::pin(std::span<const Key> keys, double until) { impl_->pin(keys, until); }
std::array<TierSpeed, kNumTierKinds> TierStack::speeds() const { return impl_->speeds(); }
StackStats TierStack::stats() const { return impl_->stats(); }
bool TierStack::flush(double deadline) { return impl_->flush(deadline); }
void TierStack::tick() { impl_->tick(); }

}  // namespace barg::store
