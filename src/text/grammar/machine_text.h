// What is between the quotes of a JSON string: escapes in front of an automaton over the decoded text.
//
// Written text is plain UTF-8, \" \\ \/ \b \f \n \r \t, \uXXXX and pairs of surrogates; raw control
// characters and lone surrogates are refused. Escape is where one stands inside an escape; the automaton
// behind it (a Dfa, the names of an object) only ever sees decoded bytes. What an unfinished escape may still
// become is a handful of ranges of code points (escape_ranges), so whether it is alive is a walk over those,
// never over a million characters.
//
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace barg::text::grammar::pushdown {

/// Bytes of a shortest way; kNever: there is none. Sums saturate.
using Cost = std::int64_t;
inline constexpr Cost kNever = INT64_MAX / 4;
inline Cost plus(Cost a, Cost b) { return std::min(a + b, kNever); }
inline Cost times(Cost a, std::int64_t n) { return n == 0 ? 0 : a > kNever / n ? kNever : a * n; }

struct Escape {
  enum Kind : std::uint8_t {
    kNone,
    kOpen,  // before the opening quote
    kBackslash,
    kU0,
    kU1,
    kU2,
    kU3,  // \u and so many digits: `value`
    kPairBackslash,
    kPairU,  // a high surrogate (bits 6-15 of `value`), waiting for \ and u
    kPair0,
    kPair1,
    kPair2,
    kPair3,  // and so many digits of the low one (bits 0-5: of those behind D, less C)
  };
  Kind kind = kNone;
  std::uint16_t value = 0;
  bool operator==(const Escape&) const = default;
};

/// Local state of a text: 20 bits of escape, 20 of the automaton's state, 24 of a counter or an id.
inline constexpr std::uint64_t kMaxTextState = (1U << 20) - 1;
inline constexpr std::uint64_t kMaxTextExtra = (1U << 24) - 1;
struct TextLocal {
  Escape escape;
  std::uint32_t state = 0;
  std::uint32_t extra = 0;
};
inline std::uint64_t pack(const TextLocal& l) {
  return std::uint64_t{l.escape.kind} | std::uint64_t{l.escape.value} << 4 | std::uint64_t{l.state} << 20 |
         std::uint64_t{l.extra} << 40;
}
inline TextLocal unpack_text(std::uint64_t local) {
  return {{static_cast<Escape::Kind>(local & 15), static_cast<std::uint16_t>(local >> 4)},
          static_cast<std::uint32_t>(local >> 20 & kMaxTextState),
          static_cast<std::uint32_t>(local >> 40)};
}

/// Bytes that the cheapest spelling of one decoded byte takes.
inline int spelled(std::uint8_t b) {
  if (b >= 0x20) return b == '"' || b == '\\' ? 2 : 1;
  return b == '\b' || b == '\f' || b == '\n' || b == '\r' || b == '\t' ? 2 : 6;
}
/// Without a backslash in front, and no end of the text.
inline bool is_plain(std::uint8_t b) { return b >= 0x20 && b != '"' && b != '\\'; }

/// What an unfinished escape can become, and the bytes that are missing.
struct CodeRange {
  char32_t lo, hi;
  int missing;
};
class CodeRanges {
 public:
  void add(char32_t lo, char32_t hi, int missing) {
    if (lo <= hi) items_[size_++] = {lo, hi, missing};
  }
  const CodeRange* begin() const { return items_.data(); }
  const CodeRange* end() const { return items_.data() + size_; }

 private:
  std::array<CodeRange, 12> items_{};
  std::size_t size_ = 0;
};
CodeRanges escape_ranges(Escape escape);

struct EscapeStep {
  enum Outcome : std::uint8_t { kDead, kPending, kDone } outcome = kDead;
  Escape escape;            ///< kPending
  char32_t code_point = 0;  ///< kDone
};
/// REQUIRES that `escape` is inside an escape.
EscapeStep escape_step(Escape escape, std::uint8_t byte);
/// Returns the length; no surrogates.
int encode_utf8(char32_t cp, std::array<std::uint8_t, 4>& out);

enum class TextMove : std::uint8_t { kDead, kMoved, kClosed };
/// One written byte. `boundary`: the automaton stands between characters. `advance(decoded byte)` moves it,
/// and returns false where it cannot.
template <class Advance>
TextMove text_step(Escape& escape, std::uint8_t byte, bool boundary, Advance&& advance) {
  if (escape.kind == Escape::kNone) {
    if (is_plain(byte)) return advance(byte) ? TextMove::kMoved : TextMove::kDead;
    if (!boundary || byte < 0x20) return TextMove::kDead;
    if (byte == '"') return TextMove::kClosed;
    escape.kind = Escape::kBackslash;
    return TextMove::kMoved;
  }
  if (escape.kind == Escape::kOpen) {
    escape.kind = Escape::kNone;
    return byte == '"' ? TextMove::kMoved : TextMove::kDead;
  }
  const EscapeStep step = escape_step(escape, byte);
  if (step.outcome == EscapeStep::kDead) return TextMove::kDead;
  escape = step.escape;
  if (step.outcome == EscapeStep::kPending) return TextMove::kMoved;
  std::array<std::uint8_t, 4> bytes;
  const int n = encode_utf8(step.code_point, bytes);
  for (int i = 0; i < n; ++i) {
    if (!advance(bytes[i])) return TextMove::kDead;
  }
  return TextMove::kMoved;
}

namespace internal {
template <class State>
struct Edge {
  State state;
  bool low, high;  // still on the lowest, highest code point of the range
  auto operator<=>(const Edge&) const = default;
};
}  // namespace internal

/// The states to which the characters lo..hi lead, each once: the range goes byte by byte, equal states
/// joined, so that the work is by states and not by characters. `step(state, byte)` returns false where there
/// is no way; then
/// `*missing` is set. REQUIRES that the range has no surrogates and lies within one length of UTF-8.
template <class State, class Step>
void walk_one_length(const State& from, char32_t lo, char32_t hi, Step&& step, std::vector<State>& out,
                     bool* missing) {
  std::array<std::uint8_t, 4> first, last;
  const int n = encode_utf8(lo, first);
  encode_utf8(hi, last);
  std::vector<internal::Edge<State>> level = {{from, true, true}}, next;
  for (int i = 0; i < n; ++i) {
    next.clear();
    for (const auto& edge : level) {
      const int begin = edge.low ? first[i] : 0x80, end = edge.high ? last[i] : 0xBF;
      for (int b = begin; b <= end; ++b) {
        State to = edge.state;
        if (step(to, static_cast<std::uint8_t>(b))) {
          next.push_back({to, edge.low && b == begin, edge.high && b == end});
        } else if (missing) {
          *missing = true;
        }
      }
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    level.swap(next);
  }
  for (const auto& edge : level) out.push_back(edge.state);
}

template <class State, class Step>
void walk_range(const State& from, char32_t lo, char32_t hi, Step&& step, std::vector<State>& out,
                bool* missing = nullptr) {
  static constexpr char32_t kLast[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  for (const char32_t last : kLast) {
    if (lo > last) continue;
    const char32_t end = std::min(hi, last);
    if (lo <= 0xD7FF && end >= 0xE000) {
      walk_one_length(from, lo, 0xD7FF, step, out, missing);
      lo = 0xE000;
    }
    walk_one_length(from, lo, end, step, out, missing);
    if (hi <= last) break;
    lo = last + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

}  // namespace barg::text::grammar::pushdown
