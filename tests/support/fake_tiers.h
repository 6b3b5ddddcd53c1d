// FakeTiers: carries out the scheduler's tier commands between FakeDevice's shadow memory and shadow memories
// of three tiers, on simulated time, and notices every breach of the contract of runtime/tier_service.h:
//
//   - a block is saved only when it is complete and holds exactly the content that belongs to its digest, for
//     as long as the copy may take (an early copy is made some time later, unless the block's eviction was
//     announced);
//   - parts are loaded only into blocks that nobody else has, which hold rubbish until the whole part is
//     there; no plan names such a block, and what was cancelled is written no more;
//   - every part of a load ends once: by an event or by a cancel, never by both.
//
// Delays, lost and corrupt parts, wrong speeds, tiers that do not answer: drawn from a seed. Errors are
// collected.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "sched/tier_plan.h"
#include "support/fake_runner.h"

namespace barg::test {

struct FakeTierConfig {
  double part_bytes = 1024;
  std::array<double, sched::kNumPlaces> bytes_per_s{0, 1e8, 2e7, 5e6};
  std::array<double, sched::kNumPlaces> latency_s{0, 1e-6, 1e-4, 1e-3};
  std::size_t dram_parts = 1U << 20;  ///< beyond: the oldest move to the disk
  bool disk = true, remote = true;
  double jitter = 0;          ///< a read takes up to this many times longer
  double missing_rate = 0;    ///< parts that are gone when they are read
  double corrupt_rate = 0;    ///< parts that verification refuses
  double drop_save_rate = 0;  ///< saves that are not carried out
  double silent_rate = 0;     ///< lookups and parts that never end by themselves: what no service may do
  double speed_lie = 1;       ///< reported speeds are up to this many times too high or too low
  double hang_rate = 0;       ///< reads that take until their deadline
};

class FakeTiers {
 public:
  using Part = std::pair<Digest, std::int32_t>;  // digest, group
  using Content = std::vector<std::uint64_t>;

  FakeTiers(FakeTierConfig config, FakeDevice& device, std::int32_t groups, std::uint64_t seed)
      : config(config), device_(device), groups_(groups), rng_(seed) {}

  FakeTierConfig config;  ///< may be changed in mid-run

  /// The truth about a block, told before it can be named.
  void know(const sched::StoredBlock& block, Content content) {
    truth_.insert_or_assign(block.digest, Known{block, std::move(content)});
  }

  void submit(sched::TierCommand&& command, double now) {
    now_ = std::max(now_, now);
    std::visit([this](auto&& c) { take(std::move(c)); }, std::move(command));
  }

  /// Events up to `now`, in order.
  void poll(double now, std::vector<sched::TierEvent>& out) {
    now_ = std::max(now_, now);
    copy_some();
    while (!queue_.empty() && queue_.begin()->first <= now) {
      Due due = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      if (due.answer) {
        ++counts.answers;
        out.emplace_back(std::move(*due.answer));
      } else {
        end_part(due, out);
      }
    }
  }
  std::optional<double> next() const {
    if (queue_.empty()) return std::nullopt;
    return queue_.begin()->first;
  }

  /// No step may name what is being loaded.
  void check_plan(const sched::StepPlan& plan) {
    if (loads_.empty()) return;
    const auto is_target = [this](std::int32_t g, BlockId b) {
      if (!targets_.contains({g, b})) return false;
      error("a step names block " + std::to_string(b) + ", which is being loaded");
      return true;
    };
    names_any(plan, is_target);
  }
  /// Is it free for a load? Asked at every load, if set.
  std::function<bool(std::int32_t, BlockId)> is_reserved;

  /// Nothing is being loaded or asked any more.
  bool idle() const { return loads_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }
  /// Every part of a block that is known lies at `p`.
  void put(const Digest& digest, sched::Place p) {
    for (std::int32_t g = 0; g < groups_; ++g)
      memory_[at(p)].insert_or_assign(Part{digest, g}, truth_.at(digest).content);
  }
  void forget(const Digest& digest) {
    for (auto& m : memory_) std::erase_if(m, [&](const auto& entry) { return entry.first.first == digest; });
  }
  void forget(const Digest& digest, std::int32_t group) {
    for (auto& m : memory_) m.erase(Part{digest, group});
  }
  /// All that DRAM holds goes to `p`.
  void move_all(sched::Place p) {
    for (const auto& [part, content] : memory_[1]) memory_[at(p)].insert_or_assign(part, content);
    memory_[1].clear();
    order_.clear();
  }

  /// What was seen, to be compared with the scheduler's counters.
  struct Counts {
    std::uint64_t lookups = 0, blocks_asked = 0, answers = 0;
    std::uint64_t loads = 0, parts_asked = 0, ok = 0, failed = 0, cancelled = 0;
    std::uint64_t load_cancels = 0;
    std::array<std::uint64_t, 3> saves{};
  } counts;

 private:
  struct Known {
    sched::StoredBlock facts;
    Content content;
  };
  struct Due {
    std::optional<sched::LookupAnswer> answer;
    sched::LoadId load{};
    sched::LoadPart part;
    bool ok = false;
    sched::Place from = sched::Place::kNowhere;
    Content content;    // taken when the read began
    bool late = false;  // it was read, behind the deadline
  };
  using PartId = std::pair<std::int32_t, std::int32_t>;  // index, group
  struct Reading {
    BlockId block = kNoBlock;
    std::size_t place = 0;
    double begins_s = 0, takes_s = 0;
  };
  struct Load {
    std::map<PartId, Reading> left;
  };

  static std::size_t at(sched::Place p) { return static_cast<std::size_t>(p); }
  void error(std::string what) {
    if (errors_.size() < 20) errors_.push_back("tiers: " + std::move(what));
  }
  bool happens(double rate) { return rate > 0 && rng_.uniform() < rate; }

  // ---- saves

  void take(sched::SaveCommand&& c) {
    using Why = sched::SaveCommand::Why;
    ++counts.saves[static_cast<std::size_t>(c.why)];
    if (targets_.contains({c.group, c.block})) error("saves a block that is being loaded");
    if (c.why != Why::kEvicted) {
      check_content(c);
      background_.push_back(std::move(c));
      return;
    }
    const auto same = [&](const sched::SaveCommand& b) { return b.group == c.group && b.block == c.block; };
    std::erase_if(background_, same);
    copy(c);
  }

  void copy_some() {
    for (std::size_t n = rng_.below(background_.size() + 1); n-- > 0;) {
      copy(background_.front());
      background_.pop_front();
    }
  }

  bool check_content(const sched::SaveCommand& c) {
    const auto it = truth_.find(c.stored.digest);
    if (it == truth_.end()) return error("saves a block that nobody knows"), false;
    const sched::StoredBlock& f = it->second.facts;
    if (f.parent != c.stored.parent || f.depth != c.stored.depth || f.fingerprint != c.stored.fingerprint) {
      error("wrong facts of a saved block");
    }
    if (device_.content(c.group, c.block) == it->second.content) return true;
    error("saves wrong content of block " + std::to_string(c.block) + ", reason " +
          std::to_string(static_cast<int>(c.why)));
    return false;
  }

  void copy(const sched::SaveCommand& c) {
    if (!check_content(c) || happens(config.drop_save_rate)) return;
    const Part part{c.stored.digest, c.group};
    const Content& content = truth_.at(c.stored.digest).content;
    if (c.why == sched::SaveCommand::Why::kSecondUse) {
      const bool far = config.remote && (!config.disk || rng_.below(2) == 0);
      if (far || config.disk) memory_[far ? 3 : 2].insert_or_assign(part, content);
      if (far || config.disk) return;
    }
    keep_in_dram(part, content);
  }

  void keep_in_dram(const Part& part, const Content& content) {
    if (!memory_[1].insert_or_assign(part, content).second) return;
    order_.push_back(part);
    for (; order_.size() > config.dram_parts; order_.pop_front()) {
      const auto old = memory_[1].extract(order_.front());
      if (!old.empty() && config.disk) memory_[2].insert_or_assign(old.key(), old.mapped());
    }
  }

  // ---- lookups

  void take(sched::LookupCommand&& c) {
    ++counts.lookups;
    counts.blocks_asked += c.blocks.size();
    if (happens(config.silent_rate)) return;
    Due due;
    due.answer.emplace();
    due.answer->id = c.id;
    bool local = true;
    for (const sched::StoredBlock& b : c.blocks) {
      check_facts(b);
      for (std::int32_t g = 0; g < groups_; ++g) {
        const sched::Place p = place({b.digest, g});
        local = local && p != sched::Place::kRemote && p != sched::Place::kNowhere;
        due.answer->places.push_back(p);
      }
    }
    for (std::size_t p = 1; p < sched::kNumPlaces; ++p) {
      sched::PlaceSpeed& s = due.answer->speeds[p];
      s = speeds_[p];
      s.queued_bytes = std::max(0.0, (busy_[p] - now_) * config.bytes_per_s[p]);
      const double lie = config.speed_lie > 1 ? 1 + rng_.uniform() * (config.speed_lie - 1) : 1;
      s.bytes_per_s *= rng_.below(2) == 0 ? lie : 1 / lie;
    }
    double when = now_;
    if (config.remote && !local) when += config.latency_s[3] * (1 + config.jitter * rng_.uniform());
    queue_.emplace(std::min(when, c.deadline), std::move(due));
  }

  void check_facts(const sched::StoredBlock& b) {
    const auto it = truth_.find(b.digest);
    if (it == truth_.end()) return error("asks for a block that nobody knows");
    if (it->second.facts.parent != b.parent || it->second.facts.depth != b.depth)
      error("asks with wrong facts");
  }

  sched::Place place(const Part& part) const {
    for (std::size_t p = 1; p < sched::kNumPlaces; ++p) {
      if (memory_[p].contains(part)) return static_cast<sched::Place>(p);
    }
    return sched::Place::kNowhere;
  }

  // ---- loads

  void take(sched::LoadCommand&& c) {
    ++counts.loads;
    counts.parts_asked += c.parts.size();
    Load& load = loads_[c.id];
    if (!seen_.insert(c.id).second || c.parts.empty()) error("a load twice, or an empty one");
    for (sched::LoadPart& part : c.parts) {
      check_facts(part.stored);
      if (part.stored.depth != part.index) error("a part of another index");
      const auto [reading, fresh] =
          load.left.emplace(PartId{part.index, part.group}, Reading{.block = part.block});
      if (!fresh) error("a part twice");
      if (!targets_.emplace(part.group, part.block).second) error("two loads into one block");
      if (is_reserved && !is_reserved(part.group, part.block))
        error("a load into a block that is not reserved");
      device_.fill(part.group, part.block, {});  // from now on it may hold anything
      schedule(c, std::move(part), reading->second);
    }
  }

  void schedule(const sched::LoadCommand& c, sched::LoadPart&& part, Reading& reading) {
    Due due;
    due.load = c.id;
    due.from = place({part.stored.digest, part.group});
    due.part = std::move(part);
    due.ok =
        due.from != sched::Place::kNowhere && !happens(config.missing_rate) && !happens(config.corrupt_rate);
    if (happens(config.silent_rate)) return;
    double when = now_;
    if (due.from != sched::Place::kNowhere) {
      due.content = memory_[at(due.from)].at({due.part.stored.digest, due.part.group});
      const std::size_t p = at(due.from);
      const double read = config.part_bytes / config.bytes_per_s[p] * (1 + config.jitter * rng_.uniform());
      reading = {reading.block, p, std::max(busy_[p], now_), read};
      when = reading.begins_s + read + config.latency_s[p];
      if (reading.begins_s < c.deadline) busy_[p] = reading.begins_s + read;  // else it is not read at all
      due.late = reading.begins_s < c.deadline && when > c.deadline;
      if (happens(config.hang_rate)) when = c.deadline + 1;
    }
    if (when > c.deadline) when = c.deadline, due.ok = false;          // late bytes stay with the tiers
    if (when == c.deadline && happens(config.hang_rate)) when += 0.1;  // the service stutters
    queue_.emplace(when, std::move(due));
  }

  void end_part(const Due& due, std::vector<sched::TierEvent>& out) {
    const auto it = loads_.find(due.load);
    const PartId id{due.part.index, due.part.group};
    if (it == loads_.end() || it->second.left.erase(id) == 0) return;  // cancelled
    targets_.erase({due.part.group, due.part.block});
    if (it->second.left.empty()) loads_.erase(it);
    sched::PartLoaded event{.id = due.load,
                            .index = due.part.index,
                            .group = due.part.group,
                            .ok = due.ok,
                            .from = due.from,
                            .bytes = due.ok ? static_cast<std::uint64_t>(config.part_bytes) : 0};
    if (due.ok) device_.fill(due.part.group, due.part.block, due.content);
    if (due.ok || due.late) measure(at(due.from));
    ++(due.ok ? counts.ok : counts.failed);
    out.emplace_back(std::move(event));
  }

  void measure(std::size_t p) {
    constexpr double kGain = 0.2;
    sched::PlaceSpeed& s = speeds_[p];
    const double old = s.measured ? s.bytes_per_s : config.bytes_per_s[p];
    s.bytes_per_s = old + kGain * (config.bytes_per_s[p] - old);
    s.latency_s = config.latency_s[p];
    s.measured = true;
  }

  void stop(const PartId& id, const Reading& reading) {
    targets_.erase({id.second, reading.block});
    if (reading.begins_s > now_) busy_[reading.place] -= reading.takes_s;
  }

  void take(sched::CancelLoadCommand&& c) {
    ++counts.load_cancels;
    if (!seen_.contains(c.id) || !cancelled_.insert(c.id).second)
      return error("cancels no load, or one twice");
    const auto it = loads_.find(c.id);
    if (it == loads_.end()) return;  // it ended after its sequence had left it
    for (const auto& [id, reading] : it->second.left) stop(id, reading);
    counts.cancelled += it->second.left.size();
    loads_.erase(it);
  }

  void take(sched::CancelPartsCommand&& c) {
    const auto it = loads_.find(c.id);
    if (it == loads_.end()) return error("cancels parts of a load that has ended");
    auto& left = it->second.left;
    const std::size_t before = left.size();
    for (auto p = left.begin(); p != left.end();) {
      const bool hit = p->first.first >= c.first && p->first.first < c.last;
      if (hit) stop(p->first, p->second);
      p = hit ? left.erase(p) : std::next(p);
    }
    if (left.size() == before) error("cancels parts that have ended, or twice");
    counts.cancelled += before - left.size();
    if (left.empty()) loads_.erase(it);
  }

  FakeDevice& device_;
  std::int32_t groups_;
  Rng rng_;
  double now_ = 0;
  std::map<Digest, Known> truth_;
  std::array<std::map<Part, Content>, sched::kNumPlaces> memory_;
  std::deque<Part> order_;  // of DRAM
  std::array<double, sched::kNumPlaces> busy_{};
  std::array<sched::PlaceSpeed, sched::kNumPlaces> speeds_{};
  std::multimap<double, Due> queue_;
  std::map<sched::LoadId, Load> loads_;
  std::set<sched::LoadId> seen_, cancelled_;
  std::set<std::pair<std::int32_t, BlockId>> targets_;  // group, block
  std::deque<sched::SaveCommand> background_;
  std::vector<std::string> errors_;
};

}  // namespace barg::test
