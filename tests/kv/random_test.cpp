// Random lives of sequences with loads, steps in flight, evictions and a lost device, against a naive model:
// what a block contains, who has read it, what has left and what a load can serve is recomputed from what was
// done. BARG_TEST_LONG in the environment (scripts/test --full) multiplies the number of lives by 20.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "base/env.h"
#include "kv/manager.h"

namespace barg::kv::random_test {
namespace {

constexpr std::int32_t kB = 4;

struct Config {
  std::vector<GroupSpec> groups;
  Eviction eviction;
  std::uint64_t seed;
};

using Name = std::pair<std::int32_t, Digest>;            // group, key
using Place = std::pair<std::int32_t, BlockId>;          // group, block
using PartName = std::pair<std::int32_t, std::int32_t>;  // index, group
enum class PartIs { kPending, kReady, kLost };

/// A published block as the model knows it.
struct Resident {
  BlockId block = kNoBlock;
  std::int32_t uses = 0;
  bool read = false, told = false, offered = false;
  StepId written{};
};

struct Seq {
  KvSeq id{};
  std::vector<TokenId> tokens;
  std::uint64_t life = 0;  // 0: holds nothing
  bool counts = true;
  std::int32_t computed = 0, processed = 0, seen = 0;
  StepId last{};
  std::map<PartName, PartIs> parts;  // of its load
  std::map<PartName, BlockId> slots;
  std::int32_t load_first = 0, load_last = 0;
  TokenView log() const { return {tokens, {}, {}}; }
};

struct Step {
  StepId id{};
  std::set<Place> named;
  struct End {
    std::uint64_t life;
    std::int32_t tokens;
  };
  std::vector<End> ends;  // whose tokens are there by then
};

class Model {
 public:
  explicit Model(const Config& c) : config_(c), rng_(c.seed), kv_(options(c)) {}

  void run(int rounds) {
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
      switch (rng_.below(10)) {
        case 0:
        case 1:
          admit();
          break;
        case 2:
        case 3:
          launch();
          break;
        case 4:
          retire();
          break;
        case 5:
        case 6:
          parts_end();
          break;
        case 7:
          take_over();
          break;
        case 8:
          leave();
          break;
        default:
          rng_.below(40) == 0 ? lose_device() : listen();
      }
      kv_.check_integrity();
      check_contents();
    }
    while (!seqs_.empty()) end(0);
    while (!steps_.empty()) retire();
    kv_.check_integrity();
    EXPECT_EQ(kv_.usage().used, 0);
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) EXPECT_EQ(kv_.available(g), kv_.total(g));
  }

  struct Counts {
    int admitted = 0, refused = 0, undone = 0, departed = 0, told = 0, cold = 0, adopted = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  static ManagerOptions options(const Config& c) {
    ManagerOptions o;
    o.block_tokens = kB;
    o.groups = c.groups;
    o.eviction = c.eviction;
    o.track_evictions = true;
    return o;
  }
  static StepId step(std::uint64_t n) { return static_cast<StepId>(n); }
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  bool in_flight(const Seq& s) const { return s.last > retired_; }
  StepId fence(const Seq& s) const { return in_flight(s) ? s.last : StepId{}; }
  std::int32_t first_needed(std::int32_t g, std::int32_t position) const {
    const GroupSpec& spec = config_.groups[at(g)];
    if (spec.kind == GroupKind::kRecurrent) return std::max(0, position - 1) / span(g);
    return spec.kind == GroupKind::kFull ? 0 : std::max(0, position - spec.window + 1) / kB;
  }
  std::int32_t interval(std::int32_t g) const { return config_.groups[at(g)].interval; }
  std::int32_t span(std::int32_t g) const { return kB * interval(g); }
  /// The logical block whose key the group's block i has.
  std::int32_t end_of(std::int32_t g, std::int32_t i) const { return (i + 1) * interval(g) - 1; }

  /// All published blocks.
  std::map<Name, BlockId> published() const {
    std::map<Name, BlockId> out;
    for (NodeId n : kv_.tree().nodes()) {
      for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
        if (kv_.tree().block(n, g) != kNoBlock) out[{g, kv_.tree().digest(n)}] = kv_.tree().block(n, g);
      }
    }
    return out;
  }

  /// What vanished since the model last looked must have been reported, if it was complete.
  void check_departures(bool lost = false) {
    std::vector<Departed> gone;
    kv_.take_departed(gone);
    const auto now = published();
    std::map<Name, std::int32_t> expected;
    for (auto it = residents_.begin(); it != residents_.end();) {
      const auto there = now.find(it->first);
      if (there != now.end()) {
        EXPECT_EQ(there->second, it->second.block);
        ++it;
        continue;
      }
      if (it->second.written <= retired_ && !lost) expected[it->first] = it->second.uses;
      it = residents_.erase(it);
    }
    EXPECT_EQ(residents_.size(), now.size());
    for (const Departed& d : gone) {
      ++counts_.departed;
      const auto it = expected.find({d.group, d.digest});
      ASSERT_NE(it, expected.end()) << "did not leave, or twice";
      EXPECT_EQ(d.uses, it->second);
      EXPECT_EQ((contents_[{d.group, d.block}]), d.digest);
      const Facts& f = facts_.at(d.digest);
      EXPECT_EQ(d.parent, f.parent);
      EXPECT_EQ(d.depth, f.depth);
      EXPECT_EQ(d.fingerprint, f.fingerprint);
      expected.erase(it);
    }
    EXPECT_TRUE(expected.empty()) << "left unnoticed";
  }

  /// Blocks [from, to) of a table were sealed or adopted: who is new, who has one more reader.
  void note(Seq& s, std::int32_t from, std::int32_t to, StepId written, std::int32_t uses) {
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      std::vector<BlockId> table;
      kv_.append_table(s.id, g, s.processed, s.computed, table);
      for (std::int32_t i = from; i < to; ++i) {
        if ((i + 1) % interval(g) != 0) continue;
        const BlockId b = table[at(i / interval(g))];
        if (b == kNoBlock) continue;
        const Name name{g, kv_.key(s.id, s.log(), i)};
        if (const auto it = residents_.find(name); it != residents_.end()) {
          EXPECT_EQ(it->second.block, b) << "two of one content";
          if (!s.counts || i < s.seen) continue;
          ++it->second.uses;
          it->second.read = true;
        } else if (const NodeId n = kv_.tree().find(name.second);
                   n != kNoNode && kv_.tree().block(n, g) == b) {
          residents_[name] = {.block = b, .uses = uses, .written = written};
        }
      }
    }
    s.seen = std::max(s.seen, to);
  }

  // ---- what happens

  Seq make() {
    Seq s;
    const auto n = 2 + rng_.below(60);
    for (std::uint64_t i = 0; i < n; ++i) s.tokens.push_back(static_cast<TokenId>(i));
    if (rng_.below(2) == 0) s.tokens[rng_.below(n)] = 1000 + static_cast<TokenId>(rng_.below(3));
    s.id = kv_.open(root_key("r", ""));
    s.counts = rng_.below(4) != 0;
    return s;
  }

  void admit() {
    std::size_t i = 0;
    while (i < seqs_.size() && seqs_[i].life != 0) ++i;
    if (i == seqs_.size()) {
      if (seqs_.size() > 6) return end(rng_.below(seqs_.size()));
      seqs_.push_back(make());
    }
    Seq& s = seqs_[i];
    const auto gap = static_cast<std::int32_t>(rng_.below(3)),
               length = static_cast<std::int32_t>(rng_.below(8));
    const Digest before = kv_.state_digest();
    // The k-th allocation fails, for every k, until the whole succeeds or is refused.
    for (int k = 0;; ++k) {
      int calls = 0;
      bool injected = false;
      kv_.set_allocation_hook([&] { return injected = injected || calls == k, calls++ != k; });
      std::vector<LoadSlot> slots;
      std::vector<TailCopy> copies;
      std::int32_t first = 0, last = 0, hit = 0;
      const bool ok = plan(s, gap, length, slots, copies, hit, first, last);
      kv_.set_allocation_hook({});
      if (ok) {
        ++counts_.admitted;
        check_departures();  // before anything is written over them
        entered(s, hit, copies);
        s.load_first = first;
        s.load_last = last;
        for (const LoadSlot& slot : slots) {
          s.parts[{slot.index, slot.group}] = PartIs::kPending;
          s.slots[{slot.index, slot.group}] = slot.block;
          expect_unnamed({slot.group, slot.block});
          contents_[{slot.group, slot.block}] = Digest{};
        }
        break;
      }
      ASSERT_EQ(kv_.state_digest(), before) << "k " << k;
      ++counts_.undone;
      if (!injected) {
        ++counts_.refused;
        break;
      }
    }
    check_departures();
  }

  bool plan(Seq& s, std::int32_t gap, std::int32_t length, std::vector<LoadSlot>& slots,
            std::vector<TailCopy>& copies, std::int32_t& hit, std::int32_t& first, std::int32_t& last) {
    KvManager::Transaction txn(kv_);
    const auto got = kv_.admit(s.id, s.log(),
                               {.read_until = s.log().size(),
                                .rows = 8,
                                .keep = {},
                                .step = step(launched_ + 1),
                                .counts = s.counts},
                               copies);
    if (!got) return false;
    hit = *got;
    first = (hit + kB - 1) / kB + gap;
    last = std::min(first + length, (s.log().size() - 1) / kB);
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) last -= last % interval(g);
    if (first < last && !kv_.reserve_load(s.id, s.log(), first, last, slots)) return false;
    if (first >= last) first = last = 0;
    txn.commit();
    return true;
  }

  void entered(Seq& s, std::int32_t hit, const std::vector<TailCopy>& copies) {
    s.life = ++lives_;
    s.computed = s.processed = hit;
    for (const TailCopy& c : copies) expect_unnamed({c.group, c.dst});
    note(s, 0, hit / kB, StepId{}, 0);
  }

  void expect_unnamed(Place p) const {
    for (const Step& running : steps_)
      EXPECT_FALSE(running.named.contains(p)) << "reused under a running step";
  }

  /// One step that computes some rows of some sequences.
  void launch() {
    if (steps_.size() >= 3) retire();
    Step st;
    st.id = step(++launched_);
    for (Seq& s : seqs_) {
      if (s.life == 0 || rng_.below(3) == 0) continue;
      const auto want =
          std::min<std::int32_t>(1 + static_cast<std::int32_t>(rng_.below(12)), s.log().size() - s.computed);
      std::int32_t rows = kv_.room(s.id, want);
      if (s.load_first < s.load_last) rows = std::min(rows, s.load_first * kB - s.computed);
      if (rows <= 0 || !kv_.reserve(s.id, s.computed + rows)) continue;
      check_departures();
      compute(s, rows, st);
    }
    steps_.push_back(std::move(st));
  }

  void compute(Seq& s, std::int32_t rows, Step& st) {
    const std::int32_t from = s.computed;
    s.computed += rows;
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      std::vector<BlockId> table;
      kv_.append_table(s.id, g, from, s.computed, table);
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(table.size()); ++k) {
        if (table[at(k)] == kNoBlock) continue;
        const Place p{g, table[at(k)]};
        st.named.insert(p);
        if (k < from / span(g)) continue;
        if (k > from / span(g) || from % span(g) == 0) expect_unnamed(p);
        if ((k + 1) * span(g) <= s.computed) contents_[p] = kv_.key(s.id, s.log(), end_of(g, k));
      }
    }
    st.ends.push_back({s.life, s.computed});
    s.last = st.id;
    kv_.publish(s.id, s.log(), s.computed, st.id);
    note(s, from / kB, s.computed / kB, st.id, 0);
    check_departures();
  }

  void retire() {
    if (steps_.empty()) return;
    const Step st = std::move(steps_.front());
    steps_.pop_front();
    retired_ = st.id;
    kv_.retire(st.id);
    for (const Step::End& end : st.ends) {
      for (Seq& s : seqs_) {
        if (s.life != end.life) continue;
        s.processed = std::max(s.processed, end.tokens);
        kv_.advance(s.id, s.processed);
      }
    }
    check_departures();
  }

  void parts_end() {
    for (Seq& s : seqs_) {
      for (auto& [name, state] : s.parts) {
        if (state != PartIs::kPending || rng_.below(3) == 0) continue;
        if (rng_.below(12) == 0) {
          kv_.part_failed(s.id, name.first, name.second);
          if (rng_.below(2) == 0) kv_.part_failed(s.id, name.first, name.second);
          state = PartIs::kLost;
        } else {
          const BlockId b = s.slots[name];
          contents_[{name.second, b}] = kv_.key(s.id, s.log(), name.first);
          kv_.part_loaded(s.id, name.first, name.second);
          state = PartIs::kReady;
        }
      }
      check_load(s);
    }
  }

  bool there(const Seq& s, std::int32_t i) const {
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      const auto it = s.parts.find({i, g});
      if (it != s.parts.end() && it->second != PartIs::kReady) return false;
    }
    return true;
  }

  void check_load(const Seq& s) {
    ASSERT_EQ(kv_.loading(s.id), s.load_first < s.load_last);
    if (!kv_.loading(s.id)) return;
    EXPECT_EQ(kv_.load_first(s.id), s.load_first);
    EXPECT_EQ(kv_.load_last(s.id), s.load_last);
    std::int32_t from = s.load_last;
    while (from > s.load_first && there(s, from - 1)) --from;
    EXPECT_EQ(kv_.loaded_from(s.id), from);
    EXPECT_EQ(kv_.load_pending(s.id), std::count_if(s.parts.begin(), s.parts.end(), [](const auto& p) {
                return p.second == PartIs::kPending;
              }));
    for (std::int32_t i = s.load_first; i < s.load_last; ++i) {
      bool lost = false;
      for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
        const auto it = s.parts.find({i, g});
        lost |= it != s.parts.end() && it->second == PartIs::kLost;
      }
      EXPECT_EQ(kv_.load_lost(s.id, i), lost);
    }
  }

  /// The longest cut behind block `from` for which `has(index, group)` holds wherever a query behind it
  /// reads.
  template <class Has>
  std::int32_t longest(const Seq& s, std::int32_t from, std::int32_t limit, Has has) const {
    for (std::int32_t to = limit; to > from; --to) {
      bool all = true;
      for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
        if (config_.groups[at(g)].kind == GroupKind::kRecurrent) {
          all = all && to % interval(g) == 0 && has(to - 1, g);
          for (std::int32_t i = from; i < to; ++i) all = all && there(s, i);  // what was dropped is computed
          continue;
        }
        for (std::int32_t i = std::max(from, first_needed(g, to * kB)); i < to; ++i) all = all && has(i, g);
      }
      if (all) return to;
    }
    return from;
  }

  void forget_parts(Seq& s, std::int32_t first, std::int32_t last) {
    first = std::max(first, s.load_first);
    last = std::min(last, s.load_last);
    if (first >= last) return;
    for (std::int32_t i = first; i < last; ++i) {
      for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
        const bool edge = first == s.load_first || last == s.load_last;
        if (edge) {
          s.parts.erase({i, g});
        } else {
          s.parts[{i, g}] = PartIs::kLost;
        }
      }
    }
    if (first == s.load_first) {
      s.load_first = last;
    } else if (last == s.load_last) {
      s.load_last = first;
    }
    if (s.load_first >= s.load_last) {
      s.load_first = s.load_last = 0;
      s.parts.clear();
    }
  }

  void take_over() {
    for (Seq& s : seqs_) {
      if (s.life == 0) continue;
      const bool loads = s.load_first < s.load_last;
      if (rng_.below(3) > 0) {
        adopt_loaded(s, loads);
      } else if (loads) {
        const auto span = static_cast<std::uint64_t>(s.load_last - s.load_first) + 1;
        const auto a = s.load_first + static_cast<std::int32_t>(rng_.below(span));
        const auto b = s.load_first + static_cast<std::int32_t>(rng_.below(span));
        kv_.drop_load(s.id, a, b);
        forget_parts(s, a, b);
      }
      check_load(s);
      check_departures();
    }
  }

  void adopt_loaded(Seq& s, bool loads) {
    const std::int32_t from = s.computed / kB;
    std::int32_t expected = s.computed;
    if (loads && s.computed == s.load_first * kB) {
      const std::int32_t to = longest(s, from, s.load_last, [&](std::int32_t i, std::int32_t g) {
        const auto it = s.parts.find({i, g});
        return it != s.parts.end() && it->second == PartIs::kReady;
      });
      if (to > from) expected = to * kB;
    }
    const std::int32_t got = kv_.adopt_loaded(s.id, s.log(), s.computed, fence(s));
    ASSERT_EQ(got, expected);
    if (got == s.computed) return;
    ++counts_.adopted;
    jumped(s, got);
    note(s, from, got / kB, StepId{}, 1);
  }

  void jumped(Seq& s, std::int32_t to) {
    s.computed = s.processed = to;
    forget_parts(s, s.load_first, std::min(to / kB, s.load_last));
  }

  void leave() {
    if (seqs_.empty()) return;
    const std::size_t i = rng_.below(seqs_.size());
    if (rng_.below(2) == 0) return end(i);
    release(seqs_[i]);  // preempted
    check_departures();
  }

  void release(Seq& s) {
    kv_.release(s.id, fence(s));
    s.life = 0;
    s.computed = s.processed = 0;
    s.load_first = s.load_last = 0;
    s.parts.clear();
  }

  void end(std::size_t i) {
    release(seqs_[i]);
    kv_.close(seqs_[i].id);
    seqs_.erase(seqs_.begin() + static_cast<std::ptrdiff_t>(i));
    check_departures();
  }

  void lose_device() {
    while (!steps_.empty()) retire();
    kv_.forget_cache();
    contents_.clear();
    for (Seq& s : seqs_) {
      s.load_first = s.load_last = 0;
      s.parts.clear();
      check_load(s);
      release(s);
    }
    check_departures(true);
    EXPECT_TRUE(residents_.empty());
  }

  /// The tiers listen.
  void listen() {
    std::vector<Departed> used, cold;
    kv_.take_second_uses(used);
    std::set<Name> expected;
    for (auto& [name, r] : residents_) {
      if (!r.read || r.told || r.written > retired_) continue;
      expected.insert(name);
      r.told = true;
    }
    for (const Departed& d : used) {
      ++counts_.told;
      EXPECT_EQ(expected.erase({d.group, d.digest}), 1U) << "not read twice, or told twice";
      EXPECT_EQ((contents_[{d.group, d.block}]), d.digest);
    }
    EXPECT_TRUE(expected.empty()) << "read twice and never told";
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      cold.clear();
      kv_.take_coldest(g, 3, cold, kv_.total(g) / 2);
      EXPECT_LE(cold.size(), 3U);
      for (const Departed& d : cold) {
        ++counts_.cold;
        EXPECT_EQ(kv_.pool(g)[d.block].state, BlockState::kCached);
        EXPECT_EQ((contents_[{g, d.block}]), d.digest);
        Resident& r = residents_.at({g, d.digest});
        EXPECT_FALSE(r.offered) << "offered twice";
        r.offered = true;
      }
    }
  }

  /// Every published block has what its key says, every sealed one of a table what its sequence says.
  void check_contents() {
    for (const auto& [name, b] : published()) ASSERT_EQ((contents_[{name.first, b}]), name.second);
    for (Seq& s : seqs_) {
      for (std::int32_t i = 0; i < s.log().size() / kB; ++i) {
        const BlockFacts f = kv_.facts(s.id, s.log(), i);
        facts_[f.digest] = {f.parent, f.depth, f.fingerprint};
      }
      if (s.life == 0) continue;
      for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
        std::vector<BlockId> table;
        kv_.append_table(s.id, g, s.computed, s.computed, table);
        for (std::int32_t i = first_needed(g, s.computed); i < s.computed / span(g); ++i) {
          ASSERT_NE(table[at(i)], kNoBlock);
          ASSERT_EQ((contents_[{g, table[at(i)]}]), kv_.key(s.id, s.log(), end_of(g, i))) << "block " << i;
        }
      }
    }
  }

  struct Facts {
    Digest parent;
    std::int32_t depth = 0;
    std::uint64_t fingerprint = 0;
  };

  Config config_;
  Rng rng_;
  KvManager kv_;
  std::vector<Seq> seqs_;
  std::deque<Step> steps_;
  std::uint64_t lives_ = 0;
  std::uint64_t launched_ = 0;
  StepId retired_{};
  std::map<Place, Digest>
      contents_;  // by the order of steps; of blocks not written in full: the last that were
  std::map<Name, Resident> residents_;
  std::map<Digest, Facts> facts_;
  Counts counts_;
};

TEST(ManagerRandom, EqualsANaiveModel) {
  const GroupSpec wide{GroupKind::kFull, 0, 34, 1}, tight{GroupKind::kFull, 0, 18, 1};
  const GroupSpec window{GroupKind::kSlidingWindow, 9, 22, 1}, narrow{GroupKind::kSlidingWindow, 3, 14, 1};
  const GroupSpec state{GroupKind::kRecurrent, 0, 14, 1, 3}, states{GroupKind::kRecurrent, 0, 25, 1, 1};
  const std::uint64_t seeds = std::getenv("BARG_TEST_LONG") != nullptr ? 120 : 6;
  Model::Counts all;
  for (const Eviction eviction : {Eviction::kS3Fifo, Eviction::kLru}) {
    for (const auto& groups : std::vector<std::vector<GroupSpec>>{
             {wide}, {tight}, {wide, window}, {tight, wide, window, narrow}, {wide, state}, {states},
             {state, tight, window}}) {
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << "eviction " << int(eviction) << ", groups " << groups.size() << ", seed " << seed);
        Model m({groups, eviction, seed});
        m.run(700);
        if (HasFailure()) return;
        const Model::Counts& c = m.counts();
        all.admitted += c.admitted;
        all.refused += c.refused;
        all.undone += c.undone;
        all.departed += c.departed;
        all.told += c.told;
        all.cold += c.cold;
        all.adopted += c.adopted;
      }
    }
  }
  EXPECT_GT(all.admitted, 1000);
  EXPECT_GT(all.refused, 100);
  EXPECT_GT(all.undone, 5000);
  EXPECT_GT(all.departed, 2000);
  EXPECT_GT(all.told, 500);
  EXPECT_GT(all.cold, 1000);
  EXPECT_GT(all.adopted, 100);
}

}  // namespace
}  // namespace barg::kv::random_test
