#include "text/grammar/machine_content.h"

#include <map>
#include <optional>
#include <queue>

namespace barg::text::grammar::pushdown {
namespace {

constexpr std::size_t kMostPlainStates = 2000;            // of which every character is tried
constexpr std::size_t kMostCells = std::size_t{4} << 20;  // of one TextPlan's rows
constexpr std::int64_t kMostCountSteps = 50'000'000;
constexpr std::int64_t kManyWords = std::int64_t{1} << 40;
constexpr std::int32_t kRowNever = INT32_MAX;

// --- plain_closed ----------------------------------------------------------------------------------------

/// Takes away every state from which an ASCII character leads out of `in`.
void drop_by_ascii(const Dfa& dfa, std::vector<std::uint8_t>& in) {
  std::vector<std::vector<std::uint32_t>> before(in.size());
  std::vector<std::uint32_t> bad;
  for (std::uint32_t q = 0; q < in.size(); ++q) {
    if (!in[q]) continue;
    std::uint32_t last = Dfa::kDead;
    for (int b = 0x20; b < 0x80 && in[q]; ++b) {
      if (!is_plain(static_cast<std::uint8_t>(b))) continue;
      const std::uint32_t to = dfa.next(q, static_cast<std::uint8_t>(b));
      if (to == Dfa::kDead) {
        in[q] = 0;
      } else if (to != last) {
        before[to].push_back(q);
      }
      last = to;
    }
  }
  for (std::uint32_t q = 0; q < in.size(); ++q) {
    if (!in[q]) bad.push_back(q);
  }
  while (!bad.empty()) {
    const std::uint32_t to = bad.back();
    bad.pop_back();
    for (const std::uint32_t q : before[to]) {
      if (!in[q]) continue;
      in[q] = 0;
      bad.push_back(q);
    }
  }
}

/// Takes away every state from which a longer character leads out of `in`; whether there was one.
bool drop_by_long_characters(const Dfa& dfa, std::vector<std::uint8_t>& in) {
  bool changed = false;
  const auto step = [&](std::uint32_t& q, std::uint8_t b) { return (q = dfa.next(q, b)) != Dfa::kDead; };
  for (std::uint32_t q = 0; q < in.size(); ++q) {
    if (!in[q]) continue;
    bool missing = false;
    std::vector<std::uint32_t> targets;
    walk_range(q, 0x80, 0x10FFFF, step, targets, &missing);
    for (const std::uint32_t to : targets) missing = missing || !in[to];
    if (!missing) continue;
    in[q] = 0;
    changed = true;
  }
  return changed;
}

// --- Content ---------------------------------------------------------------------------------------------

/// Whether each state stands at one place in a character, and only valid UTF-8 leads anywhere.
bool find_phases(const Dfa& dfa, const Dfa& utf8, std::vector<std::uint8_t>& phase) {
  static constexpr std::uint8_t kUnknown = 0xFF;
  const auto waits = [&](std::uint32_t u) -> std::uint8_t {
    return static_cast<std::uint8_t>(utf8.min_bytes(u));
  };
  phase.assign(dfa.num_states(), kUnknown);
  std::vector<std::uint8_t> seen(std::size_t{dfa.num_states()} * utf8.num_states(), 0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> todo;
  const auto visit = [&](std::uint32_t q, std::uint32_t u) {
    std::uint8_t& mark = seen[std::size_t{q} * utf8.num_states() + u];
    if (mark) return true;
    mark = 1;
    todo.emplace_back(q, u);
    if (phase[q] != kUnknown && phase[q] != waits(u)) return false;
    phase[q] = waits(u);
    return !dfa.accepting(q) || utf8.accepting(u);
  };
  if (!visit(dfa.start(), utf8.start())) return false;
  while (!todo.empty()) {
    const auto [q, u] = todo.back();
    todo.pop_back();
    for (int b = 0; b < 256; ++b) {
      const std::uint32_t to = dfa.next(q, static_cast<std::uint8_t>(b));
      if (to == Dfa::kDead) continue;
      const std::uint32_t next = utf8.next(u, static_cast<std::uint8_t>(b));
      if (next == Dfa::kDead || !visit(to, next)) return false;
    }
  }
  return true;
}

void add_edges(Content& content) {
  const Dfa& dfa = *content.dfa;
  std::vector<Content::Edge> row;
  for (std::uint32_t q = 0; q < dfa.num_states(); ++q) {
    content.first.push_back(static_cast<std::uint32_t>(content.edges.size()));
    row.clear();
    for (int b = 0; b < 256; ++b) {
      const std::uint32_t to = dfa.next(q, static_cast<std::uint8_t>(b));
      if (to != Dfa::kDead)
        row.push_back({to, 1, static_cast<std::uint8_t>(spelled(static_cast<std::uint8_t>(b)))});
    }
    std::sort(row.begin(), row.end(), [](const Content::Edge& a, const Content::Edge& b) {
      return a.to != b.to ? a.to < b.to : a.weight < b.weight;
    });
    for (const Content::Edge& e : row) {
      Content::Edge* last = content.edges.size() > content.first.back() ? &content.edges.back() : nullptr;
      if (last && last->to == e.to && last->weight == e.weight) {
        ++last->bytes;
      } else {
        content.edges.push_back(e);
      }
    }
  }
  content.first.push_back(static_cast<std::uint32_t>(content.edges.size()));
}

void add_distances(Content& content) {
  const Dfa& dfa = *content.dfa;
  std::vector<std::vector<std::pair<std::uint32_t, std::uint8_t>>> before(dfa.num_states());
  for (std::uint32_t q = 0; q < dfa.num_states(); ++q) {
    for (const Content::Edge& e : content.from(q)) before[e.to].emplace_back(q, e.weight);
  }
  using Entry = std::pair<Cost, std::uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  content.distance.assign(dfa.num_states(), kNever);
  const auto reach = [&](std::uint32_t q, Cost cost) {
    if (cost >= content.distance[q]) return;
    content.distance[q] = cost;
    queue.emplace(cost, q);
  };
  for (std::uint32_t q = 0; q < dfa.num_states(); ++q) {
    if (dfa.accepting(q)) reach(q, 0);
  }
  while (!queue.empty()) {
    const auto [cost, q] = queue.top();
    queue.pop();
    if (cost > content.distance[q]) continue;
    for (const auto& [from, weight] : before[q]) reach(from, cost + weight);
  }
}

}  // namespace

std::vector<std::uint8_t> plain_closed(const Dfa& dfa, bool accepting_only) {
  std::vector<std::uint8_t> in(dfa.num_states(), 1);
  for (std::uint32_t q = 0; accepting_only && q < in.size(); ++q) in[q] = dfa.accepting(q);
  do {
    drop_by_ascii(dfa, in);
    if (static_cast<std::size_t>(std::count(in.begin(), in.end(), 1)) > kMostPlainStates) {
      in.assign(in.size(), 0);
    }
  } while (drop_by_long_characters(dfa, in));
  return in;
}

Bytes make_bytes(DfaPtr dfa) {
  Bytes out;
  out.dfa = std::move(dfa);
  const Dfa& d = *out.dfa;
  out.more.assign(d.num_states(), 0);
  out.plain = plain_closed(d, false);
  for (std::uint32_t q = 0; q < d.num_states(); ++q) {
    for (int b = 0; b < 256 && !out.more[q]; ++b)
      out.more[q] = d.next(q, static_cast<std::uint8_t>(b)) != Dfa::kDead;
    if (out.plain[q]) out.plain_worst = std::max<Cost>(out.plain_worst, d.min_bytes(q));
  }
  return out;
}

Result<Content> make_content(const DfaPtr& dfa) {
  static const Dfa utf8 = dfa_valid_utf8();
  Content out;
  out.dfa = dfa;
  if (!dfa->empty() && !find_phases(*dfa, utf8, out.phase)) {
    Result<Dfa> valid = dfa_intersect(*dfa, utf8);
    if (!valid) return std::unexpected(valid.error());
    out.dfa = std::make_shared<const Dfa>(std::move(*valid));
    CHECK(out.dfa->empty() || find_phases(*out.dfa, utf8, out.phase));
  }
  if (out.dfa->num_states() > kMaxTextState) {
    return fail(ErrorCode::kUnsupported,
                "The language of a string is too large: it has more than a million states.");
  }
  add_edges(out);
  add_distances(out);
  out.plain = plain_closed(*out.dfa, false);
  out.plain_accepting = plain_closed(*out.dfa, true);
  for (std::uint32_t q = 0; q < out.dfa->num_states(); ++q) {
    if (out.plain[q]) out.plain_worst = std::max(out.plain_worst, out.distance[q]);
  }
  return out;
}

Result<std::vector<std::int64_t>> words_by_cost(const Content& content, std::int64_t enough) {
  static constexpr std::size_t kWeights = 7;  // an edge weighs at most 6
  const std::uint32_t states = content.dfa->num_states();
  std::vector<std::int64_t> counts;
  if (states == 0) return counts;
  std::array<std::vector<std::int64_t>, kWeights> ways;  // by cost modulo their number, by state
  for (auto& row : ways) row.assign(states, 0);
  ways[0][content.dfa->start()] = 1;
  std::int64_t total = 0, steps = 0;
  for (std::size_t cost = 0, idle = 0; total < enough && idle < kWeights; ++cost) {
    std::vector<std::int64_t>& row = ways[cost % kWeights];
    counts.push_back(0);
    bool any = false;
    for (std::uint32_t q = 0; q < states; ++q) {
      if (row[q] == 0) continue;
      any = true;
      if (content.dfa->accepting(q)) counts.back() = std::min(kManyWords, counts.back() + row[q]);
      for (const Content::Edge& e : content.from(q)) {
        std::int64_t& to = ways[(cost + e.weight) % kWeights][e.to];
        to = std::min(kManyWords, to + row[q] * e.bytes);
        ++steps;
      }
      row[q] = 0;
    }
    steps += states;
    total = std::min(kManyWords, total + counts.back());
    idle = any ? 0 : idle + 1;
    if (steps > kMostCountSteps) {
      return fail(ErrorCode::kUnsupported,
                  "A minimum of properties whose names are this rare is too large to plan for.");
    }
  }
  return counts;
}

// --- TextPlan --------------------------------------------------------------------------------------------

Result<TextPlan> TextPlan::make(std::shared_ptr<const Content> content, std::int64_t min, std::int64_t max) {
  TextPlan plan;
  plan.content_ = std::move(content);
  plan.min_ = std::max<std::int64_t>(min, 0);
  // Nobody writes as many characters as the counter has place for: the language narrows, but not to any use.
  plan.max_ = max < 0 ? -1 : std::min<std::int64_t>(max, kMaxTextExtra - 1);
  if (plan.empty()) return plan;
  if (plan.min_ > 0 || plan.max_ >= 0) {
    const DfaLengths lengths = dfa_char_lengths(*plan.content_->dfa);
    if (lengths.fewest >= plan.min_) plan.min_ = 0;
    if (plan.max_ >= 0 && lengths.most && *lengths.most <= plan.max_) plan.max_ = -1;
  }
  if (auto made = plan.make_rows(); !made) return std::unexpected(made.error());
  return plan;
}

TextPlan::Row TextPlan::row_before(const Row& next, bool may_end) const {
  const Content& c = *content_;
  Row row(next.size(), kRowNever);
  for (const int phase : {1, 2, 3, 0}) {
    for (std::uint32_t q = 0; q < row.size(); ++q) {
      if (c.phase[q] != phase) continue;
      if (phase == 0 && may_end && c.dfa->accepting(q)) row[q] = 0;
      for (const Content::Edge& e : c.from(q)) {
        const std::int32_t rest = c.phase[e.to] == 0 ? next[e.to] : row[e.to];
        if (rest != kRowNever) row[q] = std::min(row[q], rest + e.weight);
      }
    }
  }
  return row;
}

Result<void> TextPlan::make_rows() {
  const Content& c = *content_;
  const std::size_t states = c.dfa->num_states();
  const std::size_t most_rows = kMostCells / states;
  const auto too_large = [&] {
    return fail(ErrorCode::kUnsupported, "A string of at least " + std::to_string(min_) + " and at most " +
                                             (max_ < 0 ? "any number of" : std::to_string(max_)) +
                                             " characters, of a language of " + std::to_string(states) +
                                             " states, is too large.");
  };
  if (max_ < 0) {
    tail_.emplace_back(states);
    for (std::size_t q = 0; q < states; ++q) {
      tail_[0][q] = static_cast<std::int32_t>(std::min<Cost>(c.distance[q], kRowNever));
    }
  } else {
    tail_.push_back(row_before(Row(states, kRowNever), max_ >= min_));
  }
  for (std::int64_t room = 1; room <= max_ - min_; ++room) {
    Row row = row_before(tail_.back(), true);
    if (row == tail_.back()) break;
    tail_.push_back(std::move(row));
    if (tail_.size() > most_rows) return too_large();
  }
  if (static_cast<std::uint64_t>(min_) + tail_.size() > most_rows) return too_large();
  head_.resize(static_cast<std::size_t>(min_));
  for (std::int64_t n = min_ - 1; n >= 0; --n) {
    head_[n] = row_before(n + 1 == min_ ? tail_.back() : head_[n + 1], false);
  }
  return {};
}

Cost TextPlan::cost(std::uint32_t q, std::uint32_t count) const {
  std::int32_t cost;
  if (count < min_) {
    cost = head_[count][q];
  } else if (max_ < 0) {
    cost = tail_[0][q];
  } else if (count > max_) {
    return kNever;
  } else {
    cost = tail_[std::min<std::size_t>(static_cast<std::size_t>(max_ - count), tail_.size() - 1)][q];
  }
  return cost == kRowNever ? kNever : cost;
}

std::int64_t TextPlan::plain_run(std::uint32_t q, std::uint32_t count) const {
  if (max_ < 0) return content_->plain[q] ? INT64_MAX : 0;
  return content_->plain_accepting[q] && count <= max_ && min_ <= max_ ? max_ - count : 0;
}

Cost TextPlan::plain_worst(std::uint32_t count) const {
  const Cost needed = std::max<Cost>(0, min_ - count);
  return max_ < 0 ? needed + content_->plain_worst : needed;
}

}  // namespace barg::text::grammar::pushdown
