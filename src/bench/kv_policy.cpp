#include "bench/kv_policy.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <unordered_set>

#include "base/check.h"
#include "kv/manager.h"
#include "store/policy.h"

namespace barg::bench {
namespace {

using store::SaveWhy;
using store::TierKind;

constexpr std::size_t kBins = 60;
constexpr std::size_t kDevice = 0;
constexpr double kLoadShare = 0.5;  // of what is free, a load may take: sched::TierRules::load_share

std::size_t idx(std::int32_t i) { return static_cast<std::size_t>(i); }
std::size_t place_of(TierKind kind) { return static_cast<std::size_t>(kind) + 1; }

kv::ManagerOptions pool_options(const KvPolicyOptions& o) {
  kv::ManagerOptions out;
  out.block_tokens = 1;
  out.groups = {{kv::GroupKind::kFull, 0, o.blocks[kDevice], 1}};
  out.eviction = o.lru ? kv::Eviction::kLru : kv::Eviction::kS3Fifo;
  out.track_evictions = true;
  return out;
}

store::PolicyOptions stack_options(const KvPolicyOptions& o) {
  store::PolicyOptions out;
  out.part_bytes = {1};
  for (std::size_t l = 0; l < store::kNumTierKinds; ++l) {
    out.levels[l].present = o.blocks[l + 1] > 0;
    out.levels[l].capacity_bytes = static_cast<std::uint64_t>(o.blocks[l + 1]);
    out.levels[l].admit_all = o.write == KvWrite::kAll;
  }
  return out;
}

class Replay {
 public:
  Replay(const KvTrace& trace, const KvPolicyOptions& options)
      : trace_(trace),
        kv_(pool_options(options)),
        root_(kv::root_key("trace", "")),
        seen_(idx(trace.distinct)),
        unread_(idx(trace.distinct)) {
    out_.options = options;
    if (options.blocks[1] + options.blocks[2] + options.blocks[3] > 0)
      stack_ = std::make_unique<store::StackPolicy>(stack_options(options), 0.0);
    const double end = trace.size() == 0 ? 0 : trace.at_s.back();
    out_.bins.resize(kBins);
    for (std::size_t b = 0; b < kBins; ++b) out_.bins[b].end_s = end * static_cast<double>(b + 1) / kBins;
  }

  void request(std::size_t i);
  KvPolicyResult finish();

 private:
  using Hits = std::array<std::uint64_t, kKvPlaces>;

  void lookup(kv::KvSeq s, const kv::TokenView& log, std::int32_t from, std::int32_t to);
  void note_second_asks(const kv::TokenView& log, std::int32_t from);
  std::int32_t load(kv::KvSeq s, const kv::TokenView& log, std::int32_t hit, StepId step, Hits& hits);
  void take_saves();
  void save(const store::Key& key, const store::BlockInfo& info, SaveWhy why, int uses);
  void save_departed(SaveWhy why);
  void save_computed(kv::KvSeq s, const kv::TokenView& log, std::int32_t from, std::int32_t to);
  void count_device(std::span<const std::int32_t> nodes, std::int32_t hit);
  void after_step(std::int32_t blocks);
  void note(std::size_t asked, const Hits& hits);
  std::uint8_t nearest(const store::Key& key) const;
  void execute();

  const KvTrace& trace_;
  kv::KvManager kv_;
  Digest root_;
  std::unique_ptr<store::StackPolicy> stack_;  // null: there are no tiers
  KvPolicyResult out_;
  double now_ = 0;
  std::vector<char> seen_, unread_;  // by node: was in the device's pool once; put there and not read since
  std::unordered_set<store::Key, store::KeyHash>
      asked_twice_;  // KvWrite::kSecondUse: computed again, so used twice
  std::array<double, kKvPlaces> duplicates_{};
  // Scratch.
  std::vector<TokenId> tokens_;
  std::vector<kv::TailCopy> copies_;
  std::vector<kv::LoadSlot> slots_;
  std::vector<kv::Departed> departed_;
  std::vector<store::Key> keys_;
  std::vector<store::BlockInfo> infos_;
  std::vector<std::uint8_t> found_;
  store::Actions actions_;
};

std::uint8_t Replay::nearest(const store::Key& key) const {
  for (std::uint8_t l = 0; l < store::kNumTierKinds; ++l) {
    if (stack_->in(key, static_cast<TierKind>(l))) return l;
  }
  return store::kNumTierKinds;
}

/// Writes succeed at once, and may lead to more.
void Replay::execute() {
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const store::Action a = actions_[i];
    if (a.op == store::Action::Op::kWrite) stack_->written(a.key, a.level, now_, actions_);
  }
  actions_.clear();
}

void Replay::save(const store::Key& key, const store::BlockInfo& info, SaveWhy why, int uses) {
  stack_->saved(key, info, why, uses, now_, actions_);
  execute();
}

/// What the pool has to say about departed_, as the tier service would pass it on.
void Replay::save_departed(SaveWhy why) {
  for (const kv::Departed& d : departed_) {
    const store::Key key{d.digest, 0};
    const store::BlockInfo info{d.parent, static_cast<std::uint32_t>(d.depth), d.fingerprint};
    switch (out_.options.write) {
      case KvWrite::kThrough:
        break;  // it was written when it was computed
      case KvWrite::kSecondUse:
        if (why == SaveWhy::kSecondUse) save(key, info, SaveWhy::kEarly, d.uses);  // to DRAM as well
        if (why != SaveWhy::kSecondUse && d.uses == 0 && !asked_twice_.contains(key)) break;
        [[fallthrough]];
      default:
        save(key, info, why, d.uses);
    }
  }
  departed_.clear();
}

/// Evictions of the plan that has just been made.
void Replay::take_saves() {
  kv_.take_departed(departed_);
  out_.tiers[kDevice].evictions += departed_.size();
  if (!stack_) return departed_.clear();
  save_departed(SaveWhy::kEvicted);
}

void Replay::save_computed(kv::KvSeq s, const kv::TokenView& log, std::int32_t from, std::int32_t to) {
  for (std::int32_t i = from; i < to; ++i) {
    const kv::BlockFacts f = kv_.facts(s, log, i);
    const store::BlockInfo info{f.parent, static_cast<std::uint32_t>(f.depth), f.fingerprint};
    save({f.digest, 0}, info, SaveWhy::kEarly, 0);
    save({f.digest, 0}, info, SaveWhy::kSecondUse, 0);
  }
}

void Replay::lookup(kv::KvSeq s, const kv::TokenView& log, std::int32_t from, std::int32_t to) {
  keys_.clear(), infos_.clear(), found_.clear();
  for (std::int32_t i = from; i < to; ++i) {
    const kv::BlockFacts f = kv_.facts(s, log, i);
    keys_.push_back({f.digest, 0});
    infos_.push_back({f.parent, static_cast<std::uint32_t>(f.depth), f.fingerprint});
    found_.push_back(nearest(keys_.back()));
  }
  stack_->asked(keys_, found_, (1U << store::kNumTierKinds) - 1, now_, actions_);
  execute();
}

void Replay::note_second_asks(const kv::TokenView& log, std::int32_t from) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (seen_[idx(log[from + static_cast<std::int32_t>(i)])] != 0) asked_twice_.insert(keys_[i]);
  }
}

/// The run behind the device's hit that the tiers hold comes back. Returns the blocks that the sequence has
/// then.
std::int32_t Replay::load(kv::KvSeq s, const kv::TokenView& log, std::int32_t hit, StepId step, Hits& hits) {
  std::int32_t run = 0;
  while (idx(run) < found_.size() && found_[idx(run)] < store::kNumTierKinds) ++run;
  run = std::min(run, static_cast<std::int32_t>(static_cast<double>(kv_.available(0)) * kLoadShare));
  slots_.clear();
  if (run == 0 || !kv_.reserve_load(s, log, hit, hit + run, slots_)) return hit;
  take_saves();  // before anything is read, as the service does
  for (std::int32_t i = 0; i < run; ++i) {
    std::uint8_t& from = found_[idx(i)];
    from = nearest(keys_[idx(i)]);  // what was evicted just now may have pushed it out
    if (from == store::kNumTierKinds) {
      kv_.part_failed(s, hit + i, 0);
      continue;
    }
    stack_->read(keys_[idx(i)], infos_[idx(i)], static_cast<TierKind>(from), false, now_, actions_);
    execute();
    kv_.part_loaded(s, hit + i, 0);
  }
  const std::int32_t end = kv_.adopt_loaded(s, log, hit, step);
  for (std::int32_t i = 0; i < end - hit; ++i) ++hits[place_of(static_cast<TierKind>(found_[idx(i)]))];
  if (kv_.loading(s)) kv_.drop_load(s, hit, hit + run);
  return end;
}

void Replay::count_device(std::span<const std::int32_t> nodes, std::int32_t hit) {
  KvTierCount& device = out_.tiers[kDevice];
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    char& unread = unread_[idx(nodes[i])];
    char& seen = seen_[idx(nodes[i])];
    if (i < idx(hit)) {
      device.useful_writes += unread != 0 ? 1 : 0;
      unread = 0;
      continue;
    }
    device.rereads += seen != 0 ? 1 : 0;  // it was here, and has been evicted
    ++device.writes;
    seen = unread = 1;
  }
}

void Replay::request(std::size_t i) {
  const std::span<const std::int32_t> nodes = trace_.request(i);
  const auto blocks = static_cast<std::int32_t>(nodes.size());
  now_ = trace_.at_s[i];
  const StepId step{i + 1};
  tokens_.assign(nodes.begin(), nodes.end());
  tokens_.push_back(trace_.distinct);  // something is always left to compute
  const kv::TokenView log{tokens_, {}, {}};
  const kv::KvSeq s = kv_.open(root_);
  Hits hits{};
  std::int32_t have = kv_.match(s, log, blocks);
  if (stack_ && have < blocks) {
    lookup(s, log, have, blocks);
    if (out_.options.write == KvWrite::kSecondUse) note_second_asks(log, have);
  }
  {
    kv::KvManager::Transaction txn(kv_);
    const auto hit = kv_.admit(s, log, {.read_until = blocks, .rows = 1, .keep = {}, .step = step}, copies_);
    CHECK(hit.has_value() && *hit == have);
    txn.commit();
  }
  hits[kDevice] = static_cast<std::uint64_t>(have);
  count_device(nodes, have);
  if (stack_ && have < blocks) have = load(s, log, have, step, hits);
  CHECK(kv_.reserve(s, blocks));
  take_saves();
  kv_.publish(s, log, blocks, step);
  kv_.retire(step);
  if (stack_ && out_.options.write == KvWrite::kThrough) save_computed(s, log, have, blocks);
  kv_.advance(s, blocks);
  kv_.release(s, step);
  kv_.close(s);
  if (stack_) after_step(blocks);
  note(nodes.size(), hits);
}

/// Copies in the background, once the request's blocks are complete.
void Replay::after_step(std::int32_t blocks) {
  kv_.take_second_uses(departed_);
  save_departed(SaveWhy::kSecondUse);
  kv_.take_coldest(0, blocks, departed_);
  save_departed(SaveWhy::kEarly);
  for (std::size_t l = 0; l < store::kNumTierKinds; ++l) {
    const store::LevelStats stats = stack_->stats(static_cast<TierKind>(l));
    const auto held = static_cast<double>(stats.bytes);
    if (held > 0) duplicates_[l + 1] += static_cast<double>(stats.duplicate_bytes) / held;
  }
}

void Replay::note(std::size_t asked, const Hits& hits) {
  const double end = trace_.at_s.back();
  const auto bin = static_cast<std::size_t>(end > 0 ? now_ / end * kBins : 0);
  KvPolicyResult::Bin& b = out_.bins[std::min(bin, kBins - 1)];
  b.asked += asked;
  out_.asked += asked;
  ++out_.requests;
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    b.hits[p] += hits[p];
    out_.tiers[p].hits += hits[p];
  }
}

KvPolicyResult Replay::finish() {
  for (std::size_t l = 0; stack_ && l < store::kNumTierKinds; ++l) {
    const store::LevelStats stats = stack_->stats(static_cast<TierKind>(l));
    KvTierCount& t = out_.tiers[l + 1];
    t.evictions = stats.evictions;
    t.rereads = stats.rereads;
    t.writes = stats.writes;
    t.useful_writes = stats.useful_writes;
    t.duplicates = duplicates_[l + 1] / static_cast<double>(std::max<std::uint64_t>(out_.requests, 1));
  }
  if (stack_) out_.refused = stack_->refused_admission();
  kv_.check_integrity();
  return std::move(out_);
}

}  // namespace

std::uint64_t KvPolicyResult::hits() const {
  return std::accumulate(tiers.begin(), tiers.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const KvTierCount& t) { return sum + t.hits; });
}

double KvPolicyResult::hit_rate() const {
  return asked == 0 ? 0 : static_cast<double>(hits()) / static_cast<double>(asked);
}

KvPolicyResult run_kv_policy(const KvTrace& trace, const KvPolicyOptions& options,
                             const KvPolicyHooks& hooks) {
  CHECK(options.blocks[kDevice] > static_cast<std::int64_t>(trace.longest));
  const auto begun = std::chrono::steady_clock::now();
  Replay replay(trace, options);
  const std::size_t stride = trace.size() / 100 + 1;
  bool stopped = false;
  for (std::size_t i = 0; i < trace.size() && !stopped; ++i) {
    replay.request(i);
    if (i % stride != 0) continue;
    if (hooks.progress) hooks.progress(static_cast<double>(i) / static_cast<double>(trace.size()));
    stopped = hooks.stop != nullptr && *hooks.stop;
  }
  KvPolicyResult out = replay.finish();
  out.stopped = stopped;
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return out;
}

}  // namespace barg::bench
