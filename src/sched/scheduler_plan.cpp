// Scheduler::plan: what the next step computes. The rest of Scheduler is in scheduler.cpp.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "sched/scheduler.h"

namespace barg::sched {
namespace {

constexpr std::size_t kScan = 32;                // waiting sequences looked at per plan
constexpr std::int32_t kUnfinishedPrefills = 4;  // sequences that may be in the middle of their prompt
constexpr double kPrefillShare = 1.25;  // prefill may stretch a step of decodes alone that misses the target

/// The youngest of some used objects, or a new one.
template <class T>
T take_spare(std::vector<T>& spare) {
  if (spare.empty()) return {};
  T out = std::move(spare.back());
  spare.pop_back();
  return out;
}

}  // namespace

std::optional<StepPlan> Scheduler::plan(double now) {
  if (outstanding_plans() > config_.options.pipeline_depth) return std::nullopt;
  start_draft();
  if (tiers_ != nullptr) begin_tiers(now);
  service_order(order_);
  for (Sequence* s : order_) serve(*s, 1);
  allow_prefill();
  prefill_order(order_);
  for (Sequence* s : order_) {
    const bool share = s != order_.back() || waiting_.size() > 0;
    serve(*s, chunk(s->scheduled, s->outstanding(), share));
  }
  if (!draft_.preempted) admit_waiting(now);
  top_up();
  if (tiers_ != nullptr) end_tiers();
  if (draft_.items.empty()) return std::nullopt;
  return launch();
}

void Scheduler::start_draft() {
  Draft fresh;
  fresh.id = static_cast<StepId>(last_step_ + 1);
  fresh.budget = config_.max_rows;
  fresh.items = std::move(draft_.items);
  fresh.copies = std::move(draft_.copies);
  fresh.items.clear();
  fresh.copies.clear();
  draft_ = std::move(fresh);
  producing_.clear();
  deferred_ = 0;
}

// ---- who is served

/// Decodes, longest unserved first. If the budget cannot serve them all, prefills take part with one row
/// each, so that every running sequence is served within running / budget plans.
void Scheduler::service_order(std::vector<Sequence*>& out) const {
  out.clear();
  for (Sequence* s : running_) {
    if (s->decoding()) out.push_back(s);
  }
  if (static_cast<std::int32_t>(out.size()) >= std::min(draft_.budget, config_.options.max_num_seqs)) {
    for (Sequence* s : running_) {
      if (s->outstanding() > 1) out.push_back(s);
    }
  }
  std::sort(out.begin(), out.end(), [](const Sequence* a, const Sequence* b) {
    return std::tie(a->served, a->first_scheduled) < std::tie(b->served, b->first_scheduled);
  });
}

void Scheduler::prefill_order(std::vector<Sequence*>& out) const {
  out.clear();
  for (Sequence* s : running_) {
    if (s->drafted == 0 && s->outstanding() > 1) out.push_back(s);
  }
  std::sort(out.begin(), out.end(), [](const Sequence* a, const Sequence* b) {
    return std::tie(a->request->priority, a->first_scheduled) <
           std::tie(b->request->priority, b->first_scheduled);
  });
}

void Scheduler::serve(Sequence& s, std::int32_t rows) {
  if (s.state != SeqState::kRunning || std::min(rows, draft_.budget) <= 0) return;
  if (static_cast<std::int32_t>(draft_.items.size()) >= config_.options.max_num_seqs) return;
  rows = make_room(s, std::min(rows, draft_.budget));
  if (rows == 0 || !kv_.reserve(s.kv, s.scheduled + rows)) return;
  add_rows(s, rows);
}

/// Rows that have blocks or can get them; takes them from worse sequences if not even one can.
std::int32_t Scheduler::make_room(Sequence& s, std::int32_t rows) {
  while (true) {
    if (const std::int32_t room = kv_.room(s.kv, rows); room > 0) return room;
    Sequence* victim = choose_victim(s);
    if (victim == nullptr) return 0;
    preempt(*victim);
  }
}

/// nullptr: waiting is better, or there is none. The oldest running sequence is never a victim; a sequence
/// that is itself the worst waits with its blocks until somebody needs them. One that waits for a load goes
/// before the others that are worse than `s`, and before all if `s` is the oldest.
Sequence* Scheduler::choose_victim(const Sequence& s) const {
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    if (!kv_.stuck(s.kv, g)) continue;
    if (kv_.fenced(g) > 0) return nullptr;  // blocks are coming back already
    const bool forgets = config_.kv.groups[static_cast<std::size_t>(g)].kind != kv::GroupKind::kFull;
    if (forgets && s.in_flight > 0) return nullptr;  // its own blocks leave the window soon
  }
  const auto older = [](const Sequence* a, const Sequence* b) {
    return a->first_scheduled < b->first_scheduled;
  };
  const Sequence* oldest = *std::min_element(running_.begin(), running_.end(), older);
  Sequence* worst = nullptr;
  for (Sequence* r : running_) {
    if (r == oldest) continue;
    if (worst == nullptr || std::tie(r->request->priority, r->first_scheduled) >
                                std::tie(worst->request->priority, worst->first_scheduled)) {
      worst = r;
    }
  }
  if (tiers_ != nullptr) {
    if (Sequence* loader = loading_victim(s, *oldest)) return loader;
  }
  return worst == &s ? nullptr : worst;
}

void Scheduler::preempt(Sequence& s) {
  if (s.drafted > 0) {
    std::erase(draft_.items, &s);
    const StepCost c = StepCost::of(s.scheduled, s.drafted);
    draft_.cost.rows -= c.rows;
    draft_.cost.keys -= c.keys;
    draft_.budget += s.drafted;
    --(s.decoding() ? draft_.decodes : draft_.prefills);
    s.drafted = 0;
  }
  if (s.restore != nullptr) leave_restore(s);
  give_back(s);
  ++s.stats.preemptions;
  ++counters_.preemptions;
  draft_.preempted = true;
  s.state = SeqState::kWaiting;
  waiting_.insert(s);
}

/// Takes a running sequence's blocks; it leaves running_ and has everything to compute again.
void Scheduler::give_back(Sequence& s) {
  kv_.release(s.kv, s.in_flight > 0 ? s.last_step : StepId{});
  s.processed = s.scheduled = 0;
  s.expected = s.known();
  ++s.epoch;
  leave_running(s);
}

/// REQUIRES blocks for them. May be called again to extend a chunk.
void Scheduler::add_rows(Sequence& s, std::int32_t rows) {
  const std::int32_t start = s.scheduled + s.drafted;
  if (s.drafted == 0) {
    draft_.items.push_back(&s);
    ++(s.decoding() ? draft_.decodes : draft_.prefills);
  }
  s.drafted += rows;
  draft_.budget -= rows;
  draft_.cost += StepCost::of(start, rows);
  if (!config_.kv.enable_prefix_caching || waiting_.size() == 0) return;
  const std::int32_t b = kv_.block_tokens();
  const std::int32_t full_blocks = s.known() / b;
  for (std::int32_t i = start / b; i < full_blocks && i * b < start + rows; ++i) {
    producing_.push_back(kv_.key(s.kv, s.log(), i));
  }
}

// ---- how much prefill

/// Waiting sequences that would find a place and blocks now.
std::int64_t Scheduler::joining() const {
  const std::int64_t waiting = waiting_.size();
  if (waiting == 0) return 0;
  const auto places = config_.options.max_num_seqs - static_cast<std::int64_t>(running_.size());
  std::int64_t most = std::min(waiting, std::max<std::int64_t>(0, places));
  const std::vector<std::int64_t> keep = kept_blocks();
  const auto mean = static_cast<std::int32_t>(waiting_.tokens() / waiting);
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const std::int64_t room = std::max<std::int64_t>(0, kv_.available(g) - keep[static_cast<std::size_t>(g)]);
    most = std::min(most, room / std::max<std::int64_t>(1, kv_.blocks_needed(g, mean, config_.max_rows)));
  }
  return most;
}

/// Of a step with these decodes, `count` of them. Streams are even at the pace that they will have once everyone who
/// is in or about to be in decodes too: a burst of prompts is not computed in crumbs because its first streams are fast.
double Scheduler::allowed_seconds(const StepCost& decodes, std::int32_t count) const {
  const double target = config_.options.itl_target_ms / 1e3;
  if (count == 0) return target;
  const auto all = static_cast<double>(joining() + static_cast<std::int64_t>(running_.size())) / count;
  const double pace = cost_.predict({decodes.rows * all, decodes.keys * all});
  const double even = std::max(config_.stretch_max * pace, target / 3);
  return std::max(std::min(target, even), kPrefillShare * cost_.predict(decodes));
}

void Scheduler::allow_prefill() { draft_.allowed_s = allowed_seconds(draft_.cost, draft_.decodes); }

/// Rows of the next chunk of a sequence. A chunk that cannot finish takes half if others could use the rest.
std::int32_t Scheduler::chunk(std::int32_t start, std::int32_t outstanding, bool share) const {
  if (config_.whole_prompts) return outstanding <= draft_.budget ? outstanding : 0;
  std::int32_t rows = std::min(outstanding, draft_.budget);
  if (draft_.decodes > 0) rows = rows_within_target(start, rows);
  if (rows >= outstanding) return rows;
  if (share) rows = (rows + 1) / 2;
  const std::int32_t aligned = (start + rows) - (start + rows) % kv_.block_tokens();
  return aligned > start ? aligned - start : rows;
}

/// At least one row for the first prefill of a step, whatever the target says: every prompt ends some day.
std::int32_t Scheduler::rows_within_target(std::int32_t start, std::int32_t most) const {
  const auto trusted = static_cast<std::int32_t>(std::min(1e9, cost_.trusted_rows() - draft_.cost.rows));
  std::int32_t low = 0, high = std::min(most, std::max(0, trusted));
  while (low < high) {
    const std::int32_t mid = low + (high - low + 1) / 2;
    if (cost_.predict(draft_.cost + StepCost::of(start, mid)) <= draft_.allowed_s) {
      low = mid;
    } else {
      high = mid - 1;
    }
  }
  return low == 0 && draft_.prefills == 0 ? std::min(most, 1) : low;
}

/// Gives what admission left to the chunks that made room for it.
void Scheduler::top_up() {
  for (Sequence* s : draft_.items) {
    const std::int32_t left = s->outstanding() - s->drafted;
    if (left <= 0 || draft_.budget == 0) continue;
    const std::int32_t start = s->scheduled + s->drafted;
    std::int32_t rows = draft_.decodes > 0 ? rows_within_target(start, std::min(left, draft_.budget))
                                           : std::min(left, draft_.budget);
    rows = kv_.room(s->kv, rows);
    const std::int32_t aligned = (start + rows) - (start + rows) % kv_.block_tokens();
    if (rows < left) rows = std::max(0, aligned - start);
    if (rows > 0 && kv_.reserve(s->kv, start + rows)) add_rows(*s, rows);
  }
}

// ---- admission

void Scheduler::admit_waiting(double now) {
  if (waiting_.size() == 0 || full()) return;
  std::vector<Sequence*> blocked;
  const std::vector<Sequence*> candidates = waiting_.front(now, kScan);
  for (Sequence* s : candidates) {
    if (full() || (draft_.budget == 0 && tiers_ == nullptr)) break;
    const auto overtaken = [this](const Sequence* w) { return w->bypassed >= config_.bypass_max; };
    if (std::any_of(blocked.begin(), blocked.end(), overtaken)) break;
    if (in_production(*s)) {
      ++deferred_;
      ++counters_.deferrals;
      continue;
    }
    if (tiers_ != nullptr && !may_enter(*s, now)) continue;
    const Admitted result = admit(*s, now, s != candidates.back());
    if (result == Admitted::kNoTime) break;
    if (result == Admitted::kTooLong) continue;  // shorter ones may use what the long ones leave
    if (result == Admitted::kNoBlocks) {
      blocked.push_back(s);
      continue;
    }
    for (Sequence* w : blocked) ++w->bypassed;
    counters_.bypasses += blocked.empty() ? 0 : 1;
  }
}

/// No further sequence may enter. One that waits for a load takes no place from those that are served.
bool Scheduler::full() const {
  const auto most = static_cast<std::int64_t>(config_.options.max_num_seqs);
  const auto running = static_cast<std::int64_t>(running_.size());
  return tiers_ == nullptr ? running >= most : running - reloading() >= most || running >= 2 * most;
}

/// Blocks that running sequences still need for what they know, and the watermark; nothing if nobody runs.
std::vector<std::int64_t> Scheduler::kept_blocks() const {
  std::vector<std::int64_t> keep(static_cast<std::size_t>(kv_.num_groups()), 0);
  if (running_.empty()) return keep;
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const double share = config_.options.watermark * static_cast<double>(kv_.total(g));
    keep[static_cast<std::size_t>(g)] = static_cast<std::int64_t>(std::ceil(share));
  }
  add_needs(keep);
  return keep;
}

void Scheduler::add_needs(std::vector<std::int64_t>& keep) const {
  for (const Sequence* s : running_) {
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      const std::int64_t need = kv_.blocks_needed(g, s->expected, config_.max_rows) - kv_.held(s->kv, g);
      keep[static_cast<std::size_t>(g)] += std::max<std::int64_t>(0, need);
    }
  }
}

std::int32_t Scheduler::unfinished_prefills() const {
  const auto cut = [](const Sequence* s) { return s->outstanding() > std::max(1, s->drafted); };
  return static_cast<std::int32_t>(std::count_if(running_.begin(), running_.end(), cut));
}

/// The first block it would have to compute is being computed by a sequence in this plan: the next plan can
/// read it. Where hits are cut to snapshots, some block up to the next one.
bool Scheduler::in_production(Sequence& s) {
  if (!reads_cache(s) || producing_.empty()) return false;
  const std::int32_t b = kv_.block_tokens();
  std::int32_t next = kv_.match(s.kv, s.log(), s.known()) / b, interval = 1;
  for (const kv::GroupSpec& g : config_.kv.groups) interval = std::max(interval, g.interval);
  if ((next + interval) * b > s.known()) return false;
  for (const std::int32_t end = next + interval; next < end; ++next) {
    const Digest& key = kv_.key(s.kv, s.log(), next);
    if (std::find(producing_.begin(), producing_.end(), key) != producing_.end()) return true;
  }
  return false;
}

Scheduler::Admitted Scheduler::admit(Sequence& s, double now, bool share) {
  const std::vector<std::int64_t> keep = kept_blocks();
  kv::KvManager::Transaction txn(kv_);
  std::vector<kv::TailCopy> copies;
  const auto hit = kv_.admit(s.kv, s.log(),
                             {.read_until = reads_cache(s) ? s.known() : 0,
                              .rows = config_.max_rows,
                              .keep = keep,
                              .step = draft_.id,
                              .counts = s.choice == 0},
                             copies);
  if (!hit) return Admitted::kNoBlocks;
  if (s.restore != nullptr) choose_restore(s, *hit);
  const RestoreChoice wish = s.restore != nullptr ? s.restore->wish.choice : RestoreChoice::kRecompute;
  std::int32_t rows = 0;
  bool loads = wish == RestoreChoice::kReload && reserve_run(s);
  if (!loads) {
    const std::int32_t left = s.known() - *hit;
    rows = chunk(*hit, left, share);
    if (rows == 0) return Admitted::kNoTime;
    if (rows < left && unfinished_prefills() >= kUnfinishedPrefills) return Admitted::kTooLong;
    loads = wish == RestoreChoice::kBoth && reserve_run(s);
    const std::int32_t room = kv_.room(s.kv, rows);
    if (config_.whole_prompts && room < rows) return Admitted::kNoBlocks;
    rows = room;
    if (rows == 0 || !kv_.reserve(s.kv, *hit + rows)) return Admitted::kNoBlocks;
  }
  txn.commit();
  draft_.copies.insert(draft_.copies.end(), copies.begin(), copies.end());
  const bool first_admission = s.first_scheduled == 0;
  enter(s, *hit, now);
  if (s.restore != nullptr) begin_restore(s, loads, first_admission, now);
  if (rows > 0) add_rows(s, rows);
  return Admitted::kYes;
}

void Scheduler::enter(Sequence& s, std::int32_t hit, double now) {
  waiting_.erase(s);
  running_.push_back(&s);
  s.state = SeqState::kRunning;
  s.outputs.reserve(static_cast<std::size_t>(s.limit - s.prompt()));
  kv_.expect(s.kv, s.limit);
  s.processed = s.scheduled = hit;
  s.bypassed = 0;
  ++counters_.admissions;
  const bool reads = reads_cache(s);
  if (s.first_scheduled != 0) {
    counters_.resume_hits += static_cast<std::uint64_t>(hit);
    return;
  }
  s.first_scheduled = ++admitted_;
  s.stats.first_scheduled_s = now;
  s.stats.cached_tokens = s.stats.cached_by_place[0] = hit;
  counters_.prefix_queries += reads ? static_cast<std::uint64_t>(s.known()) : 0;
  counters_.prefix_hits += static_cast<std::uint64_t>(hit);
}

// ---- the plan as data

StepPlan Scheduler::launch() {
  StepPlan plan = take_spare(spare_plans_);
  plan.items.clear();
  plan.tokens.clear();
  plan.tables.clear();
  plan.block_ids.clear();
  plan.copies.clear();
  plan.id = draft_.id;
  plan.num_groups = kv_.num_groups();
  plan.predicted_s = cost_.predict(draft_.cost);
  // For as long as these sequences may become: tables grow in steps that must not allocate.
  std::size_t blocks = 0;
  for (const Sequence* s : draft_.items)
    blocks += static_cast<std::size_t>(s->limit / kv_.block_tokens() + 1);
  plan.block_ids.reserve(blocks * static_cast<std::size_t>(plan.num_groups));
  for (const kv::TailCopy& c : draft_.copies) plan.copies.push_back({c.group, c.src, c.dst, c.tokens});
  Launched launched{.id = draft_.id, .cost = draft_.cost, .items = take_spare(spare_items_)};
  launched.items.clear();
  ++last_step_;
  ++counters_.steps;
  counters_.mixed_steps += draft_.decodes > 0 && draft_.prefills > 0 ? 1 : 0;
  for (Sequence* s : draft_.items) {
    const PlanItem item = plan_item(*s, plan);
    plan.items.push_back(item);
    launched.items.push_back({s, item.epoch, item.start, item.count, item.logits_begin});
  }
  // Behind all tables: a block replaced by an equal one is still written by this step.
  for (Sequence* s : draft_.items) {
    kv_.publish(s->kv, s->log(), std::min(s->scheduled, s->known()), draft_.id);
  }
  launched_.push_back(std::move(launched));
  return plan;
}

PlanItem Scheduler::plan_item(Sequence& s, StepPlan& plan) {
  PlanItem item{.seq = s.id,
                .epoch = s.epoch,
                .start = s.scheduled,
                .count = s.drafted,
                .token_offset = static_cast<std::int32_t>(plan.tokens.size()),
                .table_offset = static_cast<std::int32_t>(plan.tables.size())};
  const std::int32_t end = item.start + item.count;
  for (std::int32_t p = item.start; p < end; ++p)
    plan.tokens.push_back(p < s.known() ? s.token(p) : kPendingToken);
  append_tables(s, item.start, plan);

  item.sample = end == s.expected && s.expected < s.limit;
  const std::int32_t scored = static_cast<std::int32_t>(s.prompt_logprobs.size());
  if (s.scores_prompt() && item.start + 1 < s.prompt() && scored < s.prompt() && end >= scored) {
    // Row i scores token i+1 of the prompt; rows scored before a preemption are left out.
    item.want = Want::kLogits;
    item.logits_begin = std::max(0, scored - 1 - item.start);
  } else if (item.sample) {
    item.want = Want::kLogits;
    item.logits_begin = item.count - 1;
  } else if (s.request->embeds && end == s.prompt()) {
    item.want = Want::kPooled;
    item.logits_begin = config_.whole_prompts ? 0 : item.count - 1;
  }
  if (item.sample) {
    item.output_index = end - s.prompt();
    ++s.expected;
  }
  const std::int32_t again = std::clamp(s.high_water - item.start, 0, item.count);
  counters_.recomputed_tokens += static_cast<std::uint64_t>(again);
  counters_.computed_tokens += static_cast<std::uint64_t>(item.count);
  s.scheduled = end;
  s.high_water = std::max(s.high_water, end);
  s.drafted = 0;
  s.served = last_step_;
  ++s.in_flight;
  s.last_step = draft_.id;
  return item;
}

void Scheduler::append_tables(const Sequence& s, std::int32_t start, StepPlan& plan) const {
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const auto offset = static_cast<std::int32_t>(plan.block_ids.size());
    kv_.append_table(s.kv, g, start, start + s.drafted, plan.block_ids);
    plan.tables.push_back({offset, static_cast<std::int32_t>(plan.block_ids.size()) - offset});
  }
}

}  // namespace barg::sched
