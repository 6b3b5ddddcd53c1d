#include "text/grammar/symbols.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "text/grammar/concat.h"
#include "text/grammar/subset.h"

namespace barg::text::grammar {
namespace {

// Where a set begins or ends to have code points.
struct Edge {
  char32_t at;
  std::uint32_t set;
  bool begins;
};

// Code points first..last (or their lower bits) lead to a state.
struct Piece {
  std::uint32_t first, last;
  Dfa::State to;
  auto operator<=>(const Piece&) const = default;
};
using Pieces = std::vector<Piece>;

class Utf8Encoder {
 public:
  Utf8Encoder(const Symbols& symbols, std::uint32_t states, const DfaLimits& limits)
      : symbols_(symbols), limits_(limits), rows_(states), target_(symbols.count, Dfa::kDead) {}

  /// Adds what leads away from `state`; false: beyond the limits.
  bool add(std::uint32_t state, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& by_symbol) {
    for (const auto& [symbol, to] : by_symbol) target_[symbol] = to;
    Pieces pieces;
    for (const Symbols::Interval& i : symbols_.intervals) {
      const Dfa::State to = target_[i.symbol];
      if (to == Dfa::kDead) continue;
      if (!pieces.empty() && pieces.back().to == to && pieces.back().last + 1 == i.first) {
        pieces.back().last = i.last;
      } else {
        pieces.push_back({i.first, i.last, to});
      }
    }
    for (const auto& [symbol, to] : by_symbol) target_[symbol] = Dfa::kDead;
    steps_ += symbols_.intervals.size();
    encode(state, pieces);
    return rows_.size() <= limits_.states && steps_ <= kStepsPerState * limits_.states;
  }

  std::uint64_t steps() const { return steps_; }

  Result<Dfa> finish(std::vector<std::uint8_t> accepting) const {
    std::array<bool, 257> cut{};
    for (const Pieces& row : rows_) {
      for (const Piece& p : row) cut[p.first] = cut[p.last + 1] = true;
    }
    std::array<std::uint8_t, 256> class_of{};
    std::uint32_t classes = 1;
    for (std::size_t b = 1; b < 256; ++b) {
      if (cut[b]) ++classes;
      class_of[b] = static_cast<std::uint8_t>(classes - 1);
    }
    if (rows_.size() * std::uint64_t{classes} > kMaxTableEntries) {
      return fail(ErrorCode::kUnsupported, concat("too large: an automaton of ", rows_.size(), " states"));
    }
    limits_.spend(2 * rows_.size() * classes);
    std::vector<Dfa::State> table(rows_.size() * classes, Dfa::kDead);
    for (std::size_t s = 0; s < rows_.size(); ++s) {
      for (const Piece& p : rows_[s]) {
        for (std::uint32_t c = class_of[p.first]; c <= class_of[p.last]; ++c) table[s * classes + c] = p.to;
      }
    }
    accepting.resize(rows_.size(), 0);
    return Dfa::make(class_of, classes, std::move(table), std::move(accepting), 0);
  }

 private:
  // Characters of one, two, three and four bytes.
  void encode(std::uint32_t state, const Pieces& pieces) {
    constexpr std::uint32_t kFirst[] = {0, 0x80, 0x800, 0x10000, kLastCodePoint + 1};
    constexpr std::uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    Pieces row;
    for (std::uint32_t more = 0; more < 4; ++more) {
      Pieces part;
      for (const Piece& p : pieces) {
        const std::uint32_t first = std::max(p.first, kFirst[more]);
        const std::uint32_t last = std::min(p.last, kFirst[more + 1] - 1);
        if (first <= last) part.push_back({first, last, p.to});
      }
      for (Piece& p : level(part, more)) row.push_back({p.first | kLead[more], p.last | kLead[more], p.to});
    }
    rows_[state] = std::move(row);
  }

  // The bytes at one place of a character, `more` bytes before its end, for pieces of the bits from there on.
  Pieces level(const Pieces& pieces, std::uint32_t more) {
    steps_ += pieces.size() + 1;
    if (more == 0) return pieces;
    const std::uint32_t shift = 6 * more;
    const std::uint32_t mask = (1U << shift) - 1;
    Pieces row;
    Pieces below;  // of the byte `high`
    std::uint32_t high = 0;
    const auto flush = [&] {
      if (!below.empty()) row.push_back({high, high, state_of(std::exchange(below, {}), more - 1)});
    };
    for (const Piece& p : pieces) {
      std::uint32_t first = p.first;
      while (first <= p.last) {
        if (first >> shift != high) flush();
        high = first >> shift;
        const std::uint32_t last = std::min(p.last, first | mask);
        below.push_back({first & mask, last & mask, p.to});
        first = last + 1;
        // Whole bytes in a row have one state.
        if ((below.front().first != 0 || below.front().last != mask) || first > p.last) continue;
        const std::uint32_t whole = (p.last + 1) & ~mask;
        if (whole <= first) continue;
        row.push_back({high, (whole >> shift) - 1, state_of(std::exchange(below, {}), more - 1)});
        first = whole;
      }
    }
    flush();
    return row;
  }

  std::uint32_t state_of(const Pieces& pieces, std::uint32_t more) {
    const auto at = known_.find({more, pieces});
    if (at != known_.end()) return at->second;
    Pieces row = level(pieces, more);
    for (Piece& p : row) {
      p.first |= 0x80;
      p.last |= 0x80;
    }
    const auto state = static_cast<std::uint32_t>(rows_.size());
    rows_.push_back(std::move(row));
    known_.emplace(std::pair{more, pieces}, state);
    return state;
  }

  const Symbols& symbols_;
  const DfaLimits& limits_;
  std::vector<Pieces> rows_;  // by state: bytes
  std::vector<Dfa::State> target_;
  std::map<std::pair<std::uint32_t, Pieces>, std::uint32_t> known_;
  std::uint64_t steps_ = 0;
};

}  // namespace

std::optional<Symbols> Symbols::make(const std::vector<const CodeSet*>& sets, std::uint64_t steps) {
  std::vector<Edge> edges;
  for (std::uint32_t s = 0; s < sets.size(); ++s) {
    for (const CodeSet::Range& r : sets[s]->ranges()) {
      edges.push_back({r.first, s, true});
      edges.push_back({r.last + 1, s, false});
    }
  }
  std::ranges::sort(edges, {}, &Edge::at);
  Symbols symbols;
  symbols.of_set.resize(sets.size());
  SetTable members;  // by symbol: the sets that have it
  std::set<std::uint32_t> here;
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < edges.size();) {
    const char32_t first = edges[i].at;
    for (; i < edges.size() && edges[i].at == first; ++i) {
      if (edges[i].begins) {
        here.insert(edges[i].set);
      } else {
        here.erase(edges[i].set);
      }
    }
    if (here.empty()) continue;
    taken += here.size();
    if (taken > steps) return std::nullopt;
    const std::uint32_t symbol = members.intern({here.begin(), here.end()});
    symbols.intervals.push_back({first, edges[i].at - 1, symbol});
  }
  symbols.count = members.size();
  for (std::uint32_t symbol = 0; symbol < symbols.count; ++symbol) {
    for (const std::uint32_t s : members[symbol]) symbols.of_set[s].push_back(symbol);
  }
  return symbols;
}

Result<Dfa> encode_utf8(const SymbolDfa& dfa, const Symbols& symbols, const DfaLimits& limits) {
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> by_state(dfa.states);
  for (const Transition& t : dfa.transitions) by_state[t.from].emplace_back(t.label, t.to);
  Utf8Encoder encoder(symbols, dfa.states, limits);
  for (std::uint32_t s = 0; s < dfa.states; ++s) {
    if (encoder.add(s, by_state[s])) continue;
    limits.spend(encoder.steps());
    return too_large(limits);
  }
  limits.spend(encoder.steps());
  return encoder.finish(dfa.accepting);
}

}  // namespace barg::text::grammar
