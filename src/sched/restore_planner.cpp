#include "sched/restore_planner.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"

namespace barg::sched {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::int32_t kGrid = 64;  // ends tried before looking closer around the best

std::size_t idx(Place p) { return static_cast<std::size_t>(p); }

/// Rows of a chunk that starts at `start`, so that the step keeps its time.
std::int32_t chunk_rows(const PrefillLoad& p, std::int32_t start) {
  const std::int32_t most = std::max(1, p.chunk_rows);
  if (p.step_s <= 0 || p.decodes.rows <= 0) return most;
  std::int32_t low = 1, high = most;
  while (low < high) {
    const std::int32_t mid = low + (high - low + 1) / 2;
    if (p.cost->predict(p.decodes + StepCost::of(start, mid)) <= p.step_s) {
      low = mid;
    } else {
      high = mid - 1;
    }
  }
  return low;
}

double seconds(const PrefillLoad& p, std::int32_t rows, std::int32_t start, std::int32_t tokens) {
  if (tokens <= 0) return 0;
  const std::int32_t steps = (tokens + rows - 1) / rows;
  return steps * p.cost->predict(p.decodes) + p.cost->predict(StepCost::of(start, tokens)) -
         p.cost->predict({});
}

/// Costs over one run. Block indices are relative to it.
class Run {
 public:
  explicit Run(const RestoreInput& in) : in_(in) {
    for (const Place p : in.places) {
      if (idx(p) == 0 || idx(p) >= kNumPlaces || !in.speeds[idx(p)].up) break;
      counts_.push_back(counts_.back());
      ++counts_.back()[idx(p)];
      if (unmeasured_ < 0 && !in.speeds[idx(p)].measured) unmeasured_ = length();
      ++n_;
    }
    rows_ = chunk_rows(in.prefill, (in.first + n_ / 2) * in.block_tokens);
  }

  std::int32_t length() const { return n_; }
  /// The first block whose tier nobody has measured, -1 if there is none.
  std::int32_t unmeasured() const { return unmeasured_; }

  double compute(std::int32_t from, std::int32_t to) const {
    const std::int32_t b = in_.block_tokens;
    return seconds(in_.prefill, rows_, (in_.first + from) * b, (to - from) * b);
  }
  double load(std::int32_t from, std::int32_t to) const {
    if (from >= to) return 0;
    double worst = 0;
    for (std::size_t p = 1; p < kNumPlaces; ++p) {
      const double blocks = counts_[at(to)][p] - counts_[at(from)][p];
      const PlaceSpeed& s = in_.speeds[p];
      if (blocks <= 0 || !s.measured) continue;  // what nobody has measured is taken for fast
      if (s.bytes_per_s <= 0) return kNever;
      const double bytes = std::max(0.0, s.queued_bytes) + blocks * in_.block_bytes + in_.tail_bytes;
      worst = std::max(worst, s.latency_s + bytes / s.bytes_per_s);
    }
    return worst;
  }
  double reload(std::int32_t end) const { return load(0, end) + compute(end, n_); }
  /// The best place to meet for a load that ends at `end`.
  std::int32_t split(std::int32_t end) const {
    std::int32_t low = 1, high = end - 1;  // the first split whose computing takes as long as its reading
    while (low < high) {
      const std::int32_t mid = low + (high - low) / 2;
      if (compute(0, mid) >= load(mid, end)) {
        high = mid;
      } else {
        low = mid + 1;
      }
    }
    return low > 1 && meeting(low - 1, end) <= meeting(low, end) ? low - 1 : low;
  }
  double meeting(std::int32_t s, std::int32_t end) const { return std::max(compute(0, s), load(s, end)); }
  double both(std::int32_t end) const {
    return end < 2 ? kNever : meeting(split(end), end) + compute(end, n_);
  }

  /// The end in [1, n] with the least `cost`: a grid and the borders between tiers, then closely around the
  /// best. Costs are concave between borders but for the change of the slowest tier, so the closer look
  /// seldom matters.
  template <class Cost>
  std::int32_t best_end(const Cost& cost) const {
    std::int32_t best = n_;
    double least = cost(n_);
    const auto look = [&](std::int32_t e) {
      if (const double c = cost(e); c < least) best = e, least = c;
    };
    const std::int32_t stride = std::max(1, n_ / kGrid);
    for (std::int32_t e = stride; e < n_; e += stride) look(e);
    std::int32_t borders = 0;
    for (std::int32_t e = 1; e < n_ && borders < kGrid; ++e) {
      if (in_.places[at(e)] != in_.places[at(e - 1)]) look(e), ++borders;
    }
    if (stride == 1) return best;
    const std::int32_t centre = best;
    for (std::int32_t e = std::max(1, centre - stride); e <= std::min(n_, centre + stride); ++e) look(e);
    return best;
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  const RestoreInput& in_;
  std::int32_t n_ = 0, unmeasured_ = -1, rows_ = 1;
  std::vector<std::array<std::int32_t, kNumPlaces>> counts_{1};  // of blocks by place in [0, i)
};

RestoreChoice choose(const RestorePlan& plan, RestoreMode mode) {
  const bool both = plan.both_s < kNever;
  switch (mode) {
    case RestoreMode::kRecompute:
      return RestoreChoice::kRecompute;
    case RestoreMode::kReload:
      return RestoreChoice::kReload;
    case RestoreMode::kBoth:
      return both ? RestoreChoice::kBoth : RestoreChoice::kReload;
    case RestoreMode::kAuto:
      break;
  }
  return plan.reload_s <= plan.recompute_s ? RestoreChoice::kReload : RestoreChoice::kRecompute;
}

void set_deadline(RestorePlan& plan, const PlannerRules& rules) {
  const double most = std::min(rules.deadline_most * plan.forecast_s, plan.recompute_s);
  plan.deadline_s = std::max({rules.deadline_floor_s, rules.deadline_least * plan.forecast_s, most});
  if (plan.trial) plan.deadline_s = std::max(plan.deadline_s, plan.recompute_s);
}

}  // namespace

double prefill_seconds(const PrefillLoad& prefill, std::int32_t start, std::int32_t tokens) {
  return seconds(prefill, chunk_rows(prefill, start + tokens / 2), start, tokens);
}

std::int32_t meet(const PrefillLoad& prefill, std::int32_t start, std::int32_t gap, std::int32_t block_tokens,
                  double blocks_per_s) {
  CHECK(gap >= 1);
  if (!(blocks_per_s > 0)) return gap;
  std::int32_t low = 1, high = gap;
  while (low < high) {
    const std::int32_t mid = low + (high - low) / 2;
    if (prefill_seconds(prefill, start, mid * block_tokens) >= (gap - mid) / blocks_per_s) {
      high = mid;
    } else {
      low = mid + 1;
    }
  }
  return low;
}

RestorePlan plan_restore(const RestoreInput& in, const PlannerRules& rules) {
  CHECK(in.prefill.cost != nullptr && in.block_tokens > 0);
  RestorePlan plan;
  plan.first = plan.last = in.first;
  plan.reload_s = plan.both_s = kNever;
  const Run run(in);
  const std::int32_t n = run.length();
  plan.recompute_s = plan.forecast_s = run.compute(0, n);
  if (n == 0 || rules.mode == RestoreMode::kRecompute) return plan;

  const bool forced = rules.mode != RestoreMode::kAuto;
  const std::int32_t reload_end = forced ? n : run.best_end([&](std::int32_t e) { return run.reload(e); });
  plan.reload_s = run.reload(reload_end);
  std::int32_t both_end = n;
  if (n >= 2 && rules.mode != RestoreMode::kReload) {
    if (!forced) both_end = run.best_end([&](std::int32_t e) { return run.both(e); });
    plan.both_s = run.both(both_end);
  }
  plan.choice = choose(plan, rules.mode);
  const double better = std::min(plan.reload_s, plan.recompute_s);
  if (!forced && plan.both_s < rules.both_gain * better) plan.choice = RestoreChoice::kBoth;

  const std::int32_t unmeasured = run.unmeasured();
  if (plan.choice == RestoreChoice::kReload) {
    plan.last = in.first + reload_end;
    plan.forecast_s = plan.reload_s;
    if (!forced && unmeasured >= 0 && unmeasured + rules.trial_blocks < reload_end) {
      plan.last = in.first + unmeasured + rules.trial_blocks;
    }
    plan.trial = unmeasured >= 0 && in.first + unmeasured < plan.last;
  } else if (plan.choice == RestoreChoice::kBoth) {
    plan.first = in.first + std::max(1, run.split(both_end) / 2);  // reading may be faster than forecast
    plan.last = in.first + both_end;
    plan.forecast_s = plan.both_s;
    plan.descending = true;
  } else if (in.explore && n >= 2) {  // in the shadow of the computing, from the far end
    plan.choice = RestoreChoice::kBoth;
    plan.first = in.first + std::max(1, n - rules.trial_blocks);
    plan.last = in.first + n;
    plan.descending = plan.trial = true;
  }
  set_deadline(plan, rules);
  return plan;
}

}  // namespace barg::sched
