#include "runtime/tier_service.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace barg::runtime {
namespace {

using sched::Place;
using sched::SaveCommand;

constexpr std::size_t kMostCopies = 65536;  // that wait for the thread: a long prompt's blocks come at once
constexpr std::size_t kMostPins = 65536;   // blocks
constexpr int kNiceness = 5;               // of the thread: steps come first

Place place_of(store::TierKind kind) { return static_cast<Place>(static_cast<std::uint8_t>(kind) + 1); }
/// Of find() and probe(): kNumTierKinds is nowhere.
Place place_of(std::uint8_t kind) {
  return kind < store::kNumTierKinds ? place_of(static_cast<store::TierKind>(kind)) : Place::kNowhere;
}

store::Key key_of(const sched::StoredBlock& b, std::int32_t group) {
  return {.block = b.digest, .part = static_cast<std::uint32_t>(group)};
}

store::BlockInfo info_of(const sched::StoredBlock& b) {
  return {.parent = b.parent, .depth = static_cast<std::uint32_t>(b.depth), .fingerprint = b.fingerprint};
}

store::SaveWhy why_of(SaveCommand::Why why) {
  switch (why) {
    case SaveCommand::Why::kEarly:
      return store::SaveWhy::kEarly;
    case SaveCommand::Why::kSecondUse:
      return store::SaveWhy::kSecondUse;
    case SaveCommand::Why::kEvicted:
      break;
  }
  return store::SaveWhy::kEvicted;
}

/// Who may end a lookup or a part of a load: whoever moves it from kOpen to kEnding does, and nobody else. By the time
/// it is kEnded the device's block is written and the event is queued.
class Ending {
 public:
  bool begin() {
    int open = kOpen;
    return state_.compare_exchange_strong(open, kEnding);
  }
  void end() {
    state_.store(kEnded);
    state_.notify_all();
  }
  /// True: it was still open, and nobody will end it any more. Else it has ended when this returns.
  bool close() {
    int open = kOpen;
    if (state_.compare_exchange_strong(open, kEnded)) return true;
    state_.wait(kEnding);
    return false;
  }

 private:
  enum : int { kOpen, kEnding, kEnded };
  std::atomic<int> state_{kOpen};
};

struct Event {
  sched::TierEvent what;
  std::size_t part = 0;  ///< of PartLoaded: which of the load's
};

/// Outlives the service in the callbacks that tiers still hold.
struct Shared {
  explicit Shared(std::function<void()> n) : notify(std::move(n)) {}

  /// From a tier thread: the engine thread is told, once until it polls.
  void push_and_notify(Event&& event) {
    {
      std::lock_guard lock(mutex);
      events.push_back(std::move(event));
      some.store(true);
      if (std::exchange(notified, true)) return;
    }
    if (notify) notify();
  }
  void push(Event&& event) {
    std::lock_guard lock(mutex);
    events.push_back(std::move(event));
    some.store(true);
  }
  void take(std::vector<Event>& out) {
    std::lock_guard lock(mutex);
    std::swap(events, out);
    some.store(false);
    notified = false;
  }
  void forget(sched::LoadId id, std::int32_t first, std::int32_t last) {
    std::lock_guard lock(mutex);
    std::erase_if(events, [&](const Event& event) {
      const auto* part = std::get_if<sched::PartLoaded>(&event.what);
      return part != nullptr && part->id == id && part->index >= first && part->index < last;
    });
  }

  const std::function<void()> notify;
  std::atomic<bool> some{false};
  std::mutex mutex;
  std::vector<Event> events;  // guarded by mutex
  bool notified = false;      // guarded by mutex
};

struct Load {
  explicit Load(sched::LoadCommand&& command)
      : id(command.id), deadline(command.deadline), parts(std::move(command.parts)), endings(parts.size()) {}

  const sched::LoadId id;
  const double deadline;
  const std::vector<sched::LoadPart> parts;
  std::vector<Ending> endings;  // of the parts
  // Engine thread only.
  store::Ticket ticket{};
  std::vector<bool> over = std::vector<bool>(parts.size());  // its event was polled, or it was cancelled
  std::size_t left = parts.size();                           // that are not over

  void set_over(std::size_t part) {
    if (!over[part]) --left;
    over[part] = true;
  }
};

struct Lookup {
  double deadline = 0;
  Ending ending;
  sched::LookupAnswer answer;  ///< what is known without the remote level
};

class Service final : public TierService {
 public:
  Service(KvAccess& access, store::TierStack& stack, const Clock& clock, std::function<void()> notify)
      : access_(access),
        stack_(stack),
        clock_(clock),
        groups_(access.part_bytes().size()),
        shared_(std::make_shared<Shared>(std::move(notify))),
        thread_([this] { run_copies(); }) {
    CHECK(stack.domain().part_bytes == access.part_bytes());
  }

  ~Service() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (auto& [id, lookup] : lookups_) lookup->ending.close();
    for (auto& [id, load] : loads_) {
      for (Ending& ending : load->endings) ending.close();
      stack_.cancel(load->ticket);
    }
    thread_.join();
  }

  void submit(sched::TierCommand&& command) override {
    std::visit([this](auto&& c) { take(std::forward<decltype(c)>(c)); }, std::move(command));
  }
  void poll(std::vector<sched::TierEvent>& out) override;
  void pin(std::span<const Digest> blocks, double until) override;
  void drop_saves() override;
  store::StackStats stats() const override {
    store::StackStats stats = stack_.stats();
    stats.dropped[static_cast<std::size_t>(store::DropReason::kSlow)] += dropped_.load();
    return stats;
  }

 private:
  void take(SaveCommand&& command);
  void take(sched::LookupCommand&& command);
  void take(sched::LoadCommand&& command);
  void take(sched::CancelLoadCommand&& command) { cancel(command.id, 0, INT32_MAX); }
  void take(sched::CancelPartsCommand&& command) { cancel(command.id, command.first, command.last); }

  void cancel(sched::LoadId id, std::int32_t first, std::int32_t last);
  void expire(double now, std::vector<sched::TierEvent>& out);
  void fill_answer(sched::LookupAnswer& answer, std::span<const std::uint8_t> kinds) const;
  void loaded(const store::TierStack::Loaded& result, Load& load) const;

  // -- copies out of the device
  using Place64 = std::uint64_t;
  static Place64 place_of_block(std::int32_t group, BlockId block) {
    return (static_cast<Place64>(static_cast<std::uint32_t>(group)) << 32) | static_cast<std::uint32_t>(block);
  }
  std::optional<SaveCommand> claim(std::int32_t group, BlockId block);
  void run_copies();
  void save(const SaveCommand& command);
  double pinned_until(const Digest& block);

  KvAccess& access_;
  store::TierStack& stack_;
  const Clock& clock_;
  const std::size_t groups_;
  const std::shared_ptr<Shared> shared_;
  // Engine thread only.
  std::unordered_map<std::uint64_t, std::shared_ptr<Load>> loads_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Lookup>> lookups_;
  std::vector<Event> events_;         // scratch
  std::vector<store::Key> keys_;      // scratch
  std::vector<std::uint8_t> kinds_;   // scratch

  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<Place64, SaveCommand> waiting_;  // guarded by mutex_, as all below
  std::deque<Place64> order_;                         // of waiting_; those no longer in it are skipped
  std::optional<Place64> busy_;                       // being copied by the thread
  std::unordered_map<Digest, double, decltype([](const Digest& d) {
                       return store::KeyHash{}({.block = d, .part = 0});
                     })>
      pins_;
  bool stopping_ = false;
  std::jthread thread_;  // last
};

// ---- saves

void Service::take(SaveCommand&& command) {
  CHECK(command.group >= 0 && static_cast<std::size_t>(command.group) < groups_);
  if (command.why == SaveCommand::Why::kEvicted) {
    // What a queued copy was for still holds: a block that was read twice goes to every tier.
    const auto queued = claim(command.group, command.block);
    if (queued && queued->stored.digest == command.stored.digest && queued->why == SaveCommand::Why::kSecondUse)
      command.uses = std::max(command.uses, 1);  // (kSecondUse alone would leave DRAM out)
    return save(command);
  }
  const Place64 place = place_of_block(command.group, command.block);
  bool idle = false;  // the thread, or nearly so
  {
    std::lock_guard lock(mutex_);
    if (const auto found = waiting_.find(place); found != waiting_.end()) {
      const bool weaker = command.why == SaveCommand::Why::kEarly &&
                          found->second.stored.digest == command.stored.digest;
      if (!weaker) found->second = std::move(command);
      return;
    }
    if (waiting_.size() >= kMostCopies) {
      dropped_.fetch_add(1);
      return;
    }
    waiting_.emplace(place, std::move(command));
    idle = order_.empty();
    order_.push_back(place);
  }
  if (idle) changed_.notify_all();
}

/// Takes a queued copy of this block out of the queue, and waits for one that is being made.
std::optional<SaveCommand> Service::claim(std::int32_t group, BlockId block) {
  const Place64 place = place_of_block(group, block);
  std::unique_lock lock(mutex_);
  std::optional<SaveCommand> queued;
  if (const auto found = waiting_.find(place); found != waiting_.end()) {
    queued = std::move(found->second);
    waiting_.erase(found);
  }
  changed_.wait(lock, [&] { return busy_ != place; });
  return queued;
}

void Service::run_copies() {
  pthread_setname_np(pthread_self(), "barg-kv-copy");
  ::setpriority(PRIO_PROCESS, 0, kNiceness);  // of this thread; a refusal changes nothing else
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !order_.empty(); });
    if (stopping_) return;
    const Place64 place = order_.front();
    order_.pop_front();
    const auto found = waiting_.find(place);
    if (found == waiting_.end()) continue;
    const SaveCommand command = std::move(found->second);
    waiting_.erase(found);
    busy_ = place;
    lock.unlock();
    save(command);
    lock.lock();
    busy_.reset();
    changed_.notify_all();
  }
}

void Service::save(const SaveCommand& command) {
  const double pinned = pinned_until(command.stored.digest);
  const store::SaveItem item{.key = key_of(command.stored, command.group),
                             .info = info_of(command.stored),
                             .why = why_of(command.why),
                             .uses = pinned > 0 ? std::max(command.uses, 1) : command.uses};
  if (stack_.wants(item)) {
    stack_.save(item, [&](store::Memory to) { return access_.copy_out(command.group, command.block, to); });
  }
  if (pinned > 0) stack_.pin({&item.key, 1}, pinned);
}

void Service::drop_saves() {
  std::unique_lock lock(mutex_);
  waiting_.clear();
  order_.clear();
  changed_.wait(lock, [&] { return !busy_; });
}

// ---- pins

void Service::pin(std::span<const Digest> blocks, double until) {
  std::vector<store::Key> keys;
  keys.reserve(blocks.size() * groups_);
  for (const Digest& block : blocks) {
    for (std::size_t g = 0; g < groups_; ++g) {
      keys.push_back({.block = block, .part = static_cast<std::uint32_t>(g)});
    }
  }
  stack_.pin(keys, until);
  const double now = clock_.now();
  std::lock_guard lock(mutex_);
  if (pins_.size() + blocks.size() > kMostPins) {
    std::erase_if(pins_, [&](const auto& pin) { return pin.second <= now; });
  }
  for (const Digest& block : blocks) {
    if (const auto found = pins_.find(block); found != pins_.end()) {
      found->second = std::max(found->second, until);
    } else if (pins_.size() < kMostPins) {
      pins_.emplace(block, until);
    }
  }
}

/// 0 = not.
double Service::pinned_until(const Digest& block) {
  std::lock_guard lock(mutex_);
  if (pins_.empty()) return 0;
  const auto found = pins_.find(block);
  return found != pins_.end() && found->second > clock_.now() ? found->second : 0;
}

// ---- lookups

/// `kinds`: [block][group].
void Service::fill_answer(sched::LookupAnswer& answer, std::span<const std::uint8_t> kinds) const {
  answer.places.clear();
  for (const std::uint8_t kind : kinds) answer.places.push_back(place_of(kind));
  const auto speeds = stack_.speeds();
  for (std::size_t k = 0; k < speeds.size(); ++k) {
    answer.speeds[k + 1] = {.measured = speeds[k].measured,
                            .latency_s = speeds[k].latency_s,
                            .bytes_per_s = speeds[k].bytes_per_s,
                            .queued_bytes = speeds[k].queued_bytes,
                            .up = speeds[k].up};
  }
}

void Service::take(sched::LookupCommand&& command) {
  keys_.clear();
  for (const auto& block : command.blocks) {
    for (std::size_t g = 0; g < groups_; ++g) keys_.push_back(key_of(block, static_cast<std::int32_t>(g)));
  }
  kinds_.assign(keys_.size(), static_cast<std::uint8_t>(store::kNumTierKinds));
  bool unknown = false;
  stack_.find(keys_, kinds_, &unknown);
  auto lookup = std::make_shared<Lookup>();
  lookup->deadline = command.deadline;
  lookup->answer.id = command.id;
  fill_answer(lookup->answer, kinds_);
  const bool complete = std::none_of(kinds_.begin(), kinds_.end(),
                                     [](std::uint8_t k) { return k >= store::kNumTierKinds; });
  if (!unknown || complete) return shared_->push({std::move(lookup->answer)});
  lookups_.emplace(static_cast<std::uint64_t>(command.id), lookup);
  stack_.probe(keys_, command.deadline, [this, lookup, shared = shared_](std::vector<std::uint8_t> kinds) {
    if (!lookup->ending.begin()) return;  // from here on the service waits for end()
    sched::LookupAnswer answer{.id = lookup->answer.id, .places = {}, .speeds = {}};
    fill_answer(answer, kinds);
    shared->push_and_notify({std::move(answer)});
    lookup->ending.end();
  });
}

// ---- loads

void Service::loaded(const store::TierStack::Loaded& result, Load& load) const {
  const auto& part = load.parts[result.tag];
  const bool ok = result.status == store::Status::kOk && access_.copy_in(part.group, part.block, result.bytes);
  shared_->push_and_notify({.what = sched::PartLoaded{.id = load.id,
                                                      .index = part.index,
                                                      .group = part.group,
                                                      .ok = ok,
                                                      .from = ok ? place_of(result.from) : Place::kNowhere,
                                                      .bytes = ok ? result.bytes.length : 0},
                            .part = result.tag});
}

void Service::take(sched::LoadCommand&& command) {
  if (command.parts.empty()) return;
  auto load = std::make_shared<Load>(std::move(command));
  std::vector<store::TierStack::Want> wants;
  wants.reserve(load->parts.size());
  for (std::size_t i = 0; i < load->parts.size(); ++i) {
    const auto& part = load->parts[i];
    CHECK(part.group >= 0 && static_cast<std::size_t>(part.group) < groups_);
    claim(part.group, part.block);  // a copy of what was in the block before
    wants.push_back({.key = key_of(part.stored, part.group), .info = info_of(part.stored), .tag = i});
  }
  loads_.emplace(static_cast<std::uint64_t>(load->id), load);
  load->ticket = stack_.load(std::move(wants), load->deadline,
                             [this, load, shared = shared_](const store::TierStack::Loaded& result) {
                               Ending& ending = load->endings[result.tag];
                               if (!ending.begin()) return;  // from here on the service waits for end()
                               loaded(result, *load);
                               ending.end();
                             });
}

void Service::cancel(sched::LoadId id, std::int32_t first, std::int32_t last) {
  const auto found = loads_.find(static_cast<std::uint64_t>(id));
  if (found == loads_.end()) return;
  Load& load = *found->second;
  for (std::size_t i = 0; i < load.parts.size(); ++i) {
    if (load.over[i] || load.parts[i].index < first || load.parts[i].index >= last) continue;
    load.endings[i].close();
    load.set_over(i);
  }
  shared_->forget(id, first, last);
  if (load.left > 0) return;
  stack_.cancel(load.ticket);
  loads_.erase(found);
}

// ---- events

/// What is late ends now. Bytes that still come stay in the tiers.
void Service::expire(double now, std::vector<sched::TierEvent>& out) {
  const auto late = [now](double deadline) { return deadline > 0 && now >= deadline; };
  for (auto it = loads_.begin(); it != loads_.end();) {
    Load& load = *it->second;
    for (std::size_t i = 0; late(load.deadline) && i < load.parts.size(); ++i) {
      const auto& part = load.parts[i];
      if (load.over[i] || !load.endings[i].close()) continue;  // or its event is queued
      load.set_over(i);
      out.push_back(sched::PartLoaded{
          .id = load.id, .index = part.index, .group = part.group, .ok = false, .from = Place::kNowhere, .bytes = 0});
    }
    it = load.left == 0 ? loads_.erase(it) : std::next(it);
  }
  for (auto it = lookups_.begin(); it != lookups_.end();) {
    Lookup& lookup = *it->second;
    if (late(lookup.deadline) && lookup.ending.close()) {
      out.push_back(std::move(lookup.answer));
      it = lookups_.erase(it);
    } else {
      ++it;
    }
  }
}

void Service::poll(std::vector<sched::TierEvent>& out) {
  if (!loads_.empty() || !lookups_.empty()) expire(clock_.now(), out);
  if (!shared_->some.load()) return;
  shared_->take(events_);
  for (Event& event : events_) {
    if (const auto* answer = std::get_if<sched::LookupAnswer>(&event.what)) {
      lookups_.erase(static_cast<std::uint64_t>(answer->id));
    } else if (const auto found = loads_.find(
                   static_cast<std::uint64_t>(std::get<sched::PartLoaded>(event.what).id));
               found != loads_.end()) {
      found->second->set_over(event.part);
      if (found->second->left == 0) loads_.erase(found);
    }
    out.push_back(std::move(event.what));
  }
  events_.clear();
}

}  // namespace

store::Domain domain_of(const RunnerInfo& info, const std::string& label) {
  constexpr std::size_t kMostLabel = 200;
  store::Domain domain;
  std::copy_n(info.key_root.begin(), domain.root.size(), domain.root.begin());
  domain.part_bytes.assign(info.block_bytes.begin(), info.block_bytes.end());
  domain.label = label.substr(0, kMostLabel);
  return domain;
}

std::unique_ptr<TierService> make_tier_service(KvAccess& access, store::TierStack& stack, const Clock& clock,
                                               std::function<void()> notify) {
  return std::make_unique<Service>(access, stack, clock, std::move(notify));
}

}  // namespace barg::runtime
