// Scheduler: blocks that are saved to the tiers below the device's pool and come back from them. The states
// of one sequence's restore are drawn in restore.h.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace barg::sched {
namespace {

std::size_t idx(Place p) { return static_cast<std::size_t>(p); }
std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::uint64_t raw(LookupId id) { return static_cast<std::uint64_t>(id); }
std::uint64_t raw(LoadId id) { return static_cast<std::uint64_t>(id); }

StoredBlock stored(const kv::BlockFacts& f) { return {f.digest, f.parent, f.depth, f.fingerprint}; }

SaveCommand save(SaveCommand::Why why, const kv::Departed& d) {
  return {why, d.group, d.block, stored(d), d.uses};
}

}  // namespace

// ---- what the engine carries

void Scheduler::take_tier_commands(std::vector<TierCommand>& out) {
  if (tiers_ == nullptr) return;
  for (auto* list : {&tiers_->cancels, &tiers_->saves, &tiers_->reads, &tiers_->background}) {
    std::move(list->begin(), list->end(), std::back_inserter(out));
    list->clear();
  }
}

void Scheduler::on_tier_event(const TierEvent& event, double now) {
  if (tiers_ == nullptr) return;
  if (const auto* answer = std::get_if<LookupAnswer>(&event)) return take_answer(*answer);
  take_part(std::get<PartLoaded>(event), now);
}

std::optional<double> Scheduler::next_deadline() const {
  std::optional<double> first;
  if (tiers_ == nullptr) return first;
  for (const Sequence* s : tiers_->active) {
    const Restore& r = *s->restore;
    if (r.loads() && kv_.load_pending(s->kv) == 0) continue;
    const double t = r.loads() ? r.deadline_s : r.asked_s + 2 * config_.tiers.lookup_timeout_s;
    if (!first || t < *first) first = t;
  }
  return first;
}

/// Everything that time and the tiers have brought since the last plan.
void Scheduler::begin_tiers(double now) {
  order_ = tiers_->active;
  for (Sequence* s : order_) {
    Restore& r = *s->restore;
    if (r.loads()) {
      follow_load(*s, now);
    } else if (now >= r.asked_s + 2 * config_.tiers.lookup_timeout_s) {
      ++tier_counters_.lookup_timeouts;
      tiers_->lookups.erase(raw(r.lookup));
      std::erase(tiers_->active, s);
      r.state = RestoreState::kAnswered;  // with nothing
    }
  }
}

/// What the plan evicted, what a second request has read, and what will be evicted next.
void Scheduler::end_tiers() {
  using Why = SaveCommand::Why;
  auto& found = tiers_->departed;
  const auto emit = [&](Why why, std::vector<TierCommand>& list) {
    tier_counters_.saves[static_cast<std::size_t>(why)] += found.size();
    for (const kv::Departed& d : found) list.emplace_back(save(why, d));
    found.clear();
  };
  kv_.take_departed(found);
  emit(Why::kEvicted, tiers_->saves);
  kv_.take_second_uses(found);
  emit(Why::kSecondUse, tiers_->background);
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    // Of what is evicted next: while blank blocks are left for that, a copy would most likely be for nothing.
    const auto next =
        static_cast<std::int64_t>(static_cast<double>(kv_.total(g)) * config_.tiers.early_share);
    const std::int64_t deep = next - kv_.blank(g);
    if (deep > 0) kv_.take_coldest(g, config_.tiers.saves_per_plan, found, deep);
  }
  emit(Why::kEarly, tiers_->background);
}

// ---- the lookup

/// False: not in this plan, because the tiers have not said yet what they have, or another sequence is
/// reading the blocks that this one needs.
bool Scheduler::may_enter(Sequence& s, double now) {
  if (!reads_cache(s) || config_.tiers.planner.mode == RestoreMode::kRecompute) return true;
  const std::int32_t b = kv_.block_tokens();
  const std::int32_t hit = kv_.match(s.kv, s.log(), s.known());
  const std::int32_t next = hit / b, last = (s.known() - 1) / b;  // something is left to compute
  if (hit % b != 0 || next >= last) {
    if (s.restore != nullptr) leave_restore(s);  // others have computed it meanwhile
    return true;
  }
  if (being_loaded(s, next)) {
    ++deferred_;
    ++tier_counters_.load_waits;
    return false;
  }
  if (const Restore* r = s.restore.get()) {
    if (r->state == RestoreState::kAsked) return false;
    const bool shrunk = next < r->first;
    if (!shrunk && now <= r->asked_s + config_.tiers.answer_age_s) return true;
    if (shrunk && r->asks >= config_.tiers.asks) return true;  // enough: it computes what it cannot find
  }
  if (static_cast<std::int32_t>(tiers_->lookups.size()) >= config_.tiers.lookups_most) return false;
  ask(s, next, last, now);
  return false;
}

bool Scheduler::being_loaded(Sequence& s, std::int32_t index) {
  for (Sequence* other : tiers_->active) {
    if (other == &s || !other->restore->loads() || !kv_.loading(other->kv)) continue;
    const std::int32_t front = other->scheduled / kv_.block_tokens();
    if (index < front || index >= kv_.load_last(other->kv)) continue;
    const Digest key = kv_.key(s.kv, s.log(), index);
    if (kv_.key(other->kv, other->log(), index) == key) return true;
  }
  return false;
}

void Scheduler::ask(Sequence& s, std::int32_t first, std::int32_t last, double now) {
  const std::int32_t asks = s.restore != nullptr ? s.restore->asks : 0;
  s.restore = std::make_unique<Restore>();
  Restore& r = *s.restore;
  r.asks = asks + 1;
  r.lookup = static_cast<LookupId>(++tiers_->last_id);
  r.asked_s = now;
  r.first = first;
  LookupCommand command{.id = r.lookup, .blocks = {}, .deadline = now + config_.tiers.lookup_timeout_s};
  command.blocks.reserve(at(last - first));
  for (std::int32_t i = first; i < last; ++i) command.blocks.push_back(stored(kv_.facts(s.kv, s.log(), i)));
  tiers_->lookups.emplace(raw(r.lookup), &s);
  tiers_->active.push_back(&s);
  tiers_->reads.emplace_back(std::move(command));
  ++tier_counters_.lookups;
  tier_counters_.blocks_asked += static_cast<std::uint64_t>(last - first);
}

void Scheduler::take_answer(const LookupAnswer& answer) {
  const auto it = tiers_->lookups.find(raw(answer.id));
  if (it == tiers_->lookups.end()) {
    ++tier_counters_.late_events;
    return;
  }
  Sequence& s = *it->second;
  tiers_->lookups.erase(it);
  std::erase(tiers_->active, &s);
  Restore& r = *s.restore;
  r.state = RestoreState::kAnswered;
  r.parts = answer.places;
  r.speeds = answer.speeds;
  ++tier_counters_.answers;
  find_run(r);
}

/// The blocks that can come back: those of which every full group's part lies somewhere. The parts of windows
/// and states count only at the run's end (window_end()).
void Scheduler::find_run(Restore& r) {
  const auto groups = static_cast<std::size_t>(kv_.num_groups());
  bool open = true;
  for (std::size_t i = 0; i + groups <= r.parts.size(); i += groups) {
    Place worst = Place::kDevice;
    for (std::size_t g = 0; g < groups; ++g) {
      const bool full = config_.kv.groups[g].kind == kv::GroupKind::kFull;
      if (full || r.parts[i + g] != Place::kNowhere) worst = std::max(worst, r.parts[i + g]);
    }
    if (worst == Place::kDevice) worst = Place::kNowhere;
    ++tier_counters_.blocks_found[idx(worst)];
    open = open && worst != Place::kNowhere;
    if (open) r.places.push_back(worst);
  }
}

/// The longest [first, e), e <= last, behind which every window and recurrent group has what queries read.
std::int32_t Scheduler::window_end(const Restore& r, std::int32_t first, std::int32_t last) const {
  const std::int32_t b = kv_.block_tokens(), groups = kv_.num_groups();
  for (std::int32_t g = 0; g < groups; ++g) {
    const kv::GroupSpec& spec = config_.kv.groups[at(g)];
    if (spec.kind == kv::GroupKind::kFull) continue;
    if (spec.kind == kv::GroupKind::kRecurrent) {
      std::int32_t end = last - last % spec.interval;
      if (end == last && end > first && r.parts[at((end - 1 - r.first) * groups + g)] == Place::kNowhere)
        end -= spec.interval;
      if (end <= first) return first;
      if (end < last) return window_end(r, first, end);
      continue;
    }
    const std::int32_t needed = kv_.first_needed(g, last * b);
    for (std::int32_t i = last; i-- > std::max(first, needed);) {
      if (r.parts[at((i - r.first) * groups + g)] == Place::kNowhere) return window_end(r, first, i);
    }
  }
  return last;
}

// ---- the choice

PrefillLoad Scheduler::prefill_load() const {
  PrefillLoad p{.cost = &cost_, .decodes = {}, .chunk_rows = config_.max_rows, .step_s = 0};
  std::int32_t count = 0;
  for (const Sequence* s : running_) {
    if (!s->decoding()) continue;
    p.decodes += StepCost::of(s->scheduled, 1);
    ++count;
  }
  if (count == 0) return p;
  const double rows = std::min<double>(config_.max_rows, cost_.trusted_rows()) - p.decodes.rows;
  p.chunk_rows = std::max(1, static_cast<std::int32_t>(rows));
  p.step_s = allowed_seconds(p.decodes, count);
  return p;
}

/// What to do about a sequence that has `hit` tokens on the device. The same until the hit changes.
void Scheduler::choose_restore(Sequence& s, std::int32_t hit) {
  Restore& r = *s.restore;
  const std::int32_t b = kv_.block_tokens(), first = hit / b, offset = first - r.first;
  if (r.planned_hit == hit) return;
  r.planned_hit = hit;
  r.wish = {};
  r.wish.first = r.wish.last = first;
  if (hit % b != 0 || offset < 0 || offset >= static_cast<std::int32_t>(r.places.size())) return;
  RestoreInput in{.first = first,
                  .places = std::span(r.places).subspan(at(offset)),
                  .block_tokens = b,
                  .block_bytes = tiers_->block_bytes,
                  .tail_bytes = tiers_->tail_bytes,
                  .speeds = r.speeds,
                  .prefill = prefill_load(),
                  .explore = false};
  for (std::size_t p = 1; p < kNumPlaces; ++p) {
    PlaceSpeed& speed = in.speeds[p];
    const double passed = tiers_->passed[p];
    if (passed > 0) speed.bytes_per_s = speed.measured ? std::min(speed.bytes_per_s, passed) : passed;
    speed.measured |= passed > 0;
  }
  const PlannerRules& rules = config_.tiers.planner;
  r.wish = plan_restore(in, rules);
  const bool slow = r.wish.choice == RestoreChoice::kRecompute && rules.mode == RestoreMode::kAuto;
  if (slow && ++tiers_->recomputed % config_.tiers.explore_every == 0) {
    in.explore = true;
    r.wish = plan_restore(in, rules);
  }
  r.wish.last = window_end(r, first, r.wish.last);
  if (r.wish.first >= r.wish.last) r.wish.choice = RestoreChoice::kRecompute;
}

/// How many of so many blocks a load may take now.
std::int32_t Scheduler::loadable(std::int32_t blocks) const {
  const std::int32_t b = kv_.block_tokens();
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    std::int64_t held = 0;
    for (const Sequence* s : tiers_->active) {
      if (!s->restore->loads() || !kv_.loading(s->kv)) continue;
      held += kv_.blocks_needed(g, (kv_.load_last(s->kv) - kv_.load_first(s->kv)) * b, 1);
    }
    const auto free = static_cast<double>(kv_.available(g) + held);
    const auto most = static_cast<std::int64_t>(config_.tiers.load_share * free) - held;
    if (kv_.blocks_needed(g, blocks * b, 1) > most) {
      blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>(most, 0, blocks));
    }
  }
  return blocks;
}

/// Takes blocks for the wish, or for as much of it as may be loaded at once. REQUIRES its tables to end where
/// the wish's run begins. False: nothing has changed.
bool Scheduler::reserve_run(Sequence& s) {
  Restore& r = *s.restore;
  const std::int32_t most = loadable(r.wish.last - r.wish.first);
  r.plan = r.wish;
  if (r.plan.descending) {
    r.plan.first = r.plan.last - most;
  } else {
    r.plan.last = window_end(r, r.plan.first, r.plan.first + most);
  }
  tiers_->slots.clear();
  return r.plan.first < r.plan.last &&
         kv_.reserve_load(s.kv, s.log(), r.plan.first, r.plan.last, tiers_->slots);
}

// ---- the load

/// It has just been admitted; `loads`: with a load reserved.
void Scheduler::begin_restore(Sequence& s, bool loads, bool first_admission, double now) {
  Restore& r = *s.restore;
  const std::int32_t begin = s.scheduled / kv_.block_tokens();
  const std::int32_t end = r.first + static_cast<std::int32_t>(r.places.size());
  if (!loads && (s.scheduled % kv_.block_tokens() != 0 || begin < r.first || begin >= end)) {
    s.restore.reset();  // there was nothing to restore
    return;
  }
  r.first_admission = first_admission;
  r.begun_s = now;
  r.run_end = end * kv_.block_tokens();
  r.state = RestoreState::kDone;
  ++tier_counters_.plans[static_cast<std::size_t>(loads ? r.wish.choice : RestoreChoice::kRecompute)];
  r.forecast = r.wish;
  if (!loads) return;
  tier_counters_.trials += r.wish.trial ? 1 : 0;
  tiers_->active.push_back(&s);
  start_load(s, now);
}

void Scheduler::start_load(Sequence& s, double now) {
  Restore& r = *s.restore;
  r.state = r.plan.choice == RestoreChoice::kReload ? RestoreState::kReloading : RestoreState::kMeeting;
  r.load = static_cast<LoadId>(++tiers_->last_id);
  r.started_s = now;
  r.deadline_s = now + r.plan.deadline_s;
  r.lost_to = 0;
  r.gave_up = false;
  r.got.fill({});
  LoadCommand command{.id = r.load, .parts = {}, .deadline = r.deadline_s};
  command.parts.reserve(tiers_->slots.size());
  kv::BlockFacts facts;
  std::int32_t index = -1;
  for (const kv::LoadSlot& slot : tiers_->slots) {
    if (slot.index != index) facts = kv_.facts(s.kv, s.log(), index = slot.index);
    command.parts.push_back({slot.index, slot.group, slot.block, stored(facts)});
  }
  if (r.plan.descending) std::reverse(command.parts.begin(), command.parts.end());
  ++tier_counters_.loads;
  tier_counters_.parts_asked += command.parts.size();
  tiers_->loads.emplace(raw(r.load), &s);
  tiers_->reads.emplace_back(std::move(command));
}

void Scheduler::take_part(const PartLoaded& part, double now) {
  const auto it = tiers_->loads.find(raw(part.id));
  if (it == tiers_->loads.end()) {
    ++tier_counters_.late_events;
    return;
  }
  Sequence& s = *it->second;
  Restore& r = *s.restore;
  if (!part.ok || idx(part.from) == 0 || idx(part.from) >= kNumPlaces) {
    ++tier_counters_.parts_failed;
    kv_.part_failed(s.kv, part.index, part.group);
    if (now >= r.deadline_s) note_deadline(s, now);
    r.lost_to = std::max(r.lost_to, part.index + 1);
  } else {
    ++tier_counters_.parts_loaded;
    kv_.part_loaded(s.kv, part.index, part.group);
    Place& place = r.places[at(part.index - r.first)];
    place = part.group == 0 ? part.from : std::max(place, part.from);
    Restore::Got& got = r.got[idx(part.from)];
    got.last_s = now - r.started_s;
    if (got.bytes == 0) got.first_s = got.last_s;
    got.bytes += static_cast<double>(part.bytes);
  }
  if (kv_.load_pending(s.kv) == 0) tiers_->loads.erase(it);  // every part has ended
}

/// Adopts what has come, and decides what the sequence computes itself and whether it is served in this plan.
void Scheduler::follow_load(Sequence& s, double now) {
  Restore& r = *s.restore;
  const std::int32_t b = kv_.block_tokens();
  if (now >= r.deadline_s && kv_.load_pending(s.kv) > 0) {
    note_deadline(s, now);
    give_up_load(s);
  }
  adopt(s);
  if (kv_.loading(s.kv)) {
    // What will not come is computed. With windows, so is everything before it: what they read there was not
    // loaded.
    std::int32_t to = kv_.load_first(s.kv);
    const std::int32_t last = kv_.load_last(s.kv);
    if (tiers_->tail_bytes > 0) to = std::max(to, std::min(r.lost_to, last));
    while (to < last && kv_.load_lost(s.kv, to)) ++to;
    pass(s, to);
  }
  if (kv_.loading(s.kv) && r.plan.descending && kv_.load_pending(s.kv) > 0) pass(s, meeting_point(s));
  const bool nothing_comes = kv_.loading(s.kv) && kv_.load_pending(s.kv) == 0;
  if (nothing_comes && s.scheduled == kv_.load_first(s.kv) * b) pass(s, kv_.load_last(s.kv));
  if (!kv_.loading(s.kv)) {
    end_load(s, now);
  } else {
    r.state = s.scheduled < kv_.load_first(s.kv) * b ? RestoreState::kMeeting : RestoreState::kReloading;
  }
  if (s.in_flight == 0) note_progress(s, now);
}

/// Up to which block the sequence computes although a tier might still bring it.
std::int32_t Scheduler::meeting_point(const Sequence& s) const {
  const Restore& r = *s.restore;
  const std::int32_t b = kv_.block_tokens(), front = s.scheduled / b;
  const std::int32_t gap = kv_.loaded_from(s.kv) - front;
  if (gap <= 0) return front;
  double blocks = 0, seconds = 0;
  for (const Restore::Got& got : r.got) {
    blocks += got.bytes / tiers_->block_bytes;
    seconds = std::max(seconds, got.last_s);
  }
  const PlaceSpeed& speed = r.speeds[idx(r.places[at(kv_.load_last(s.kv) - 1 - r.first)])];
  double rate = speed.measured ? speed.bytes_per_s / tiers_->block_bytes : 1e9;
  if (blocks >= 2 && seconds > 0) rate = blocks / seconds;
  // While the device is busy with what was launched, reading goes on: that much of the gap is not shared out.
  double busy = 0;
  for (const Launched& step : launched_) busy += cost_.predict(step.cost);
  const double left = gap - std::floor(rate * busy);
  if (left < 1) return front;
  const std::int32_t own = meet(prefill_load(), s.scheduled, static_cast<std::int32_t>(left), b, rate);
  return front + std::min(own, config_.max_rows / b + 1);  // no further than a step can go
}

void Scheduler::adopt(Sequence& s) {
  Restore& r = *s.restore;
  const std::int32_t b = kv_.block_tokens(), front = s.scheduled;
  const std::int32_t to = kv_.adopt_loaded(s.kv, s.log(), front, s.in_flight > 0 ? s.last_step : StepId{});
  if (to == front) return;
  for (std::int32_t i = front / b; i < to / b; ++i) {
    const std::size_t place = idx(r.places[at(i - r.first)]);
    ++tier_counters_.blocks_restored[place];
    if (r.first_admission) s.stats.cached_by_place[place] += b;
  }
  if (r.first_admission) s.stats.cached_tokens += to - front;
  tier_counters_.tokens_restored += static_cast<std::uint64_t>(to - front);
  s.scheduled = s.processed = to;
}

/// The sequence computes the load's blocks before `to` itself.
void Scheduler::pass(Sequence& s, std::int32_t to) {
  const std::int32_t first = kv_.load_first(s.kv);
  to = std::min(to, kv_.load_last(s.kv));
  if (to <= first) return;
  const std::int64_t pending = kv_.load_pending(s.kv);
  kv_.drop_load(s.kv, first, to);
  tier_counters_.blocks_passed += static_cast<std::uint64_t>(to - first);
  const std::int64_t cancelled = pending - kv_.load_pending(s.kv);
  if (cancelled == 0) return;
  tier_counters_.parts_cancelled += static_cast<std::uint64_t>(cancelled);
  tiers_->cancels.emplace_back(CancelPartsCommand{s.restore->load, first, to});
  if (pending == cancelled) tiers_->loads.erase(raw(s.restore->load));
}

/// What does not end is measured nowhere else: the tier is as slow as this load shows.
void Scheduler::note_deadline(Sequence& s, double now) {
  Restore& r = *s.restore;
  if (r.gave_up) return;
  r.gave_up = true;
  ++tier_counters_.deadlines;
  const std::size_t slow = idx(r.places[at((r.plan.descending ? r.plan.first : r.plan.last - 1) - r.first)]);
  tiers_->passed[slow] = std::max(r.got[slow].bytes, tiers_->block_bytes) / std::max(now - r.started_s, 1e-6);
}

/// Too late: what has come stays, the rest is computed.
void Scheduler::give_up_load(Sequence& s) {
  Restore& r = *s.restore;
  cancel_load(s);
  for (std::int32_t i = kv_.load_first(s.kv); i < kv_.load_last(s.kv); ++i) {
    const std::int64_t pending = kv_.load_pending(s.kv);
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) kv_.part_failed(s.kv, i, g);
    if (kv_.load_pending(s.kv) < pending) r.lost_to = std::max(r.lost_to, i + 1);
  }
}

void Scheduler::end_load(Sequence& s, double now) {
  Restore& r = *s.restore;
  std::erase(tiers_->active, &s);
  r.state = RestoreState::kDone;
  for (std::size_t p = 1; p < kNumPlaces && !r.gave_up; ++p) {
    if (r.got[p].bytes > 0) tiers_->passed[p] = 0;
  }
  load_more(s, now);
}

/// Another leg, if the run goes on: behind a trial, now with a measured speed, or behind what could be held
/// at once.
void Scheduler::load_more(Sequence& s, double now) {
  Restore& r = *s.restore;
  const std::int32_t b = kv_.block_tokens(), next = s.scheduled / b;
  const bool whole =
      r.plan.choice == RestoreChoice::kReload && r.lost_to == 0 && s.scheduled == r.plan.last * b;
  if (!whole || next >= r.first + static_cast<std::int32_t>(r.places.size())) return;
  for (std::size_t p = 1; p < kNumPlaces; ++p) {
    const Restore::Got& got = r.got[p];
    if (r.speeds[p].measured || got.bytes == 0) continue;
    const double seconds = std::max(got.last_s, 1e-6);
    r.speeds[p] = {.measured = true, .latency_s = got.first_s, .bytes_per_s = got.bytes / seconds};
  }
  std::vector<std::int64_t> needs(at(kv_.num_groups()), 0);
  add_needs(needs);
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    if (needs[at(g)] > kv_.available(g)) return;  // others come first
  }
  choose_restore(s, s.scheduled);
  if (r.wish.choice == RestoreChoice::kRecompute || !reserve_run(s)) return;
  ++tier_counters_.more_legs;
  tiers_->active.push_back(&s);
  start_load(s, now);
}

/// When the command is submitted, nobody writes the load's blocks any more.
void Scheduler::cancel_load(Sequence& s) {
  const LoadId id = s.restore->load;
  tier_counters_.parts_cancelled += static_cast<std::uint64_t>(kv_.load_pending(s.kv));
  tiers_->loads.erase(raw(id));
  const auto unsent = std::find_if(tiers_->reads.begin(), tiers_->reads.end(), [id](const TierCommand& c) {
    const auto* load = std::get_if<LoadCommand>(&c);
    return load != nullptr && load->id == id;
  });
  if (unsent != tiers_->reads.end()) {
    tiers_->reads.erase(unsent);
  } else {
    tiers_->cancels.emplace_back(CancelLoadCommand{id});
  }
}

/// For any reason and from any state. The blocks of a load are given back by the caller.
void Scheduler::leave_restore(Sequence& s) {
  Restore& r = *s.restore;
  if (r.state == RestoreState::kAsked) tiers_->lookups.erase(raw(r.lookup));
  if (r.loads() && kv_.load_pending(s.kv) > 0) {
    ++tier_counters_.loads_cancelled;
    cancel_load(s);
  }
  std::erase(tiers_->active, &s);
  s.restore.reset();
}

/// Predicted against actual, once the whole run is back.
void Scheduler::note_progress(Sequence& s, double now) {
  Restore& r = *s.restore;
  if (r.run_end > 0 && s.processed >= r.run_end) {
    r.run_end = 0;
    const RestorePlan& f = r.forecast;
    const double best = std::min({f.recompute_s, f.reload_s, f.both_s}), actual = now - r.begun_s;
    if (!f.trial && best > 0) {  // a trial has no forecast
      ++tier_counters_.measured;
      tier_counters_.predicted_s += f.forecast_s;
      tier_counters_.actual_s += actual;
      tier_counters_.regret_s += std::max(0.0, actual - best);
      const auto bucket = std::lower_bound(kRegretBounds.begin(), kRegretBounds.end(), actual / best);
      ++tier_counters_.regret[static_cast<std::size_t>(bucket - kRegretBounds.begin())];
    }
  }
  if (r.state == RestoreState::kDone && r.run_end == 0) s.restore.reset();
}

// ---- others

/// A sequence that waits for a load, is not the oldest, and is worse than `s` or in the way of the oldest.
Sequence* Scheduler::loading_victim(const Sequence& s, const Sequence& oldest) const {
  const auto rank = [](const Sequence& x) { return std::tie(x.request->priority, x.first_scheduled); };
  Sequence* worst = nullptr;
  for (Sequence* r : running_) {
    if (!r->reloading() || r == &oldest || r == &s) continue;
    if (&s != &oldest && rank(*r) < rank(s)) continue;
    if (worst == nullptr || rank(*r) > rank(*worst)) worst = r;
  }
  return worst;
}

std::int64_t Scheduler::reloading() const {
  return std::count_if(tiers_->active.begin(), tiers_->active.end(),
                       [](const Sequence* s) { return s->reloading(); });
}

void Scheduler::check_tiers() const {
  std::size_t active = 0, asking = 0, loading = 0;
  for (const auto& [id, owned] : sequences_) {
    const Sequence& s = *owned;
    const bool loads = s.state != SeqState::kFinished && kv_.loading(s.kv);
    if (s.restore == nullptr) {
      CHECK(!loads);
      continue;
    }
    const Restore& r = *s.restore;
    CHECK(s.state == (r.waits() ? SeqState::kWaiting : SeqState::kRunning));
    CHECK(loads == r.loads());
    active += r.loads() || r.state == RestoreState::kAsked ? 1 : 0;
    asking += r.state == RestoreState::kAsked ? 1 : 0;
    if (!loads || kv_.load_pending(s.kv) == 0) continue;
    ++loading;
    CHECK(tiers_->loads.at(raw(r.load)) == &s);
  }
  CHECK(active == tiers_->active.size());
  CHECK(asking == tiers_->lookups.size());
  CHECK(loading == tiers_->loads.size());
}

}  // namespace barg::sched
