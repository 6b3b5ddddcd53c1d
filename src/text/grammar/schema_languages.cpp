#include "text/grammar/schema_languages.h"

#include <set>

#include "base/check.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar::schema {
namespace {

constexpr std::string_view kIntegers = R"(-?(0|[1-9][0-9]*)(\.0+)?)";
constexpr std::string_view kDigits = R"(-?(0|[1-9][0-9]*))";
constexpr std::string_view kZeros = R"((\.0+)?)";
constexpr std::string_view kPlain = R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?)";
constexpr std::string_view kFewZeros = R"(-?(0|[1-9][0-9]*)(\.0{1,3})?)";
/// One text of each value.
constexpr std::string_view kCanonical = R"(0|-?([1-9][0-9]*|(0|[1-9][0-9]*)\.[0-9]*[1-9]))";

DfaPtr null_if_empty(DfaPtr dfa) { return dfa && dfa->empty() ? nullptr : std::move(dfa); }

bool bounded(const NumberRange& range) { return range.minimum || range.maximum || range.multiple_of; }

}  // namespace

// ------------------------------------------------------------------------------------------------ languages

Checked<DfaPtr> Languages::counted(Result<Dfa> made) {
  if (!made) return unsupported(made.error().message);
  states_left_ -= made->num_states() + 64;
  if (states_left_ < 0) return unsupported("the schema as a whole needs too large automata");
  return std::make_shared<const Dfa>(std::move(*made));
}

Checked<DfaPtr> Languages::pattern(const std::string& text) {
  if (const auto it = patterns_.find(text); it != patterns_.end()) return it->second;
  auto made = regex_dfa(text, {.search = true, .limits = limits_});
  if (!made && made.error().code == ErrorCode::kInvalidValue) {
    return std::unexpected(Issue{Issue::Kind::kInvalid, kNoPlace, {}, made.error().message});
  }
  auto dfa = counted(std::move(made));
  if (dfa) patterns_.emplace(text, *dfa);
  return dfa;
}

DfaPtr Languages::own(std::string_view pattern) {
  if (const auto it = own_.find(pattern); it != own_.end()) return it->second;
  auto made = regex_dfa(pattern, {.search = false});
  CHECK(made.has_value());
  return own_.emplace(std::string(pattern), std::make_shared<const Dfa>(std::move(*made))).first->second;
}

DfaPtr Languages::any_text() {
  if (!any_text_) any_text_ = std::make_shared<const Dfa>(dfa_valid_utf8());
  return any_text_;
}

Checked<DfaPtr> Languages::combine(Op op, const DfaPtr& a, const DfaPtr& b) {
  const auto key = std::tuple(op, a, b);
  if (const auto it = combined_.find(key); it != combined_.end()) return it->second;
  auto dfa = counted(op == Op::kBoth     ? dfa_intersect(*a, *b, limits_)
                     : op == Op::kEither ? dfa_unite(*a, *b, limits_)
                     : op == Op::kMinus  ? dfa_subtract(*a, *b, limits_)
                                         : dfa_concat(*a, *b, limits_));
  if (dfa) combined_.emplace(key, *dfa);
  return dfa;
}

Checked<DfaPtr> Languages::both(const DfaPtr& a, const DfaPtr& b) {
  if (!a || a == b) return b;
  return b ? combine(Op::kBoth, a, b) : a;
}

Checked<DfaPtr> Languages::either(const DfaPtr& a, const DfaPtr& b) {
  if (!a || !b) return DfaPtr();
  return a == b ? a : combine(Op::kEither, a, b);
}

Checked<DfaPtr> Languages::minus(const DfaPtr& a, const DfaPtr& b) {
  if (!b || a == b) return words({});
  return combine(Op::kMinus, a ? a : any_text(), b);
}

Checked<DfaPtr> Languages::concat(const DfaPtr& a, const DfaPtr& b) { return combine(Op::kConcat, a, b); }

Checked<DfaPtr> Languages::any_of(std::vector<DfaPtr> parts) {
  if (parts.empty()) return words({});
  // By halves, so that many small ones do not each pay for all before them.
  while (parts.size() > 1) {
    std::vector<DfaPtr> next;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      auto pair = i + 1 < parts.size() ? either(parts[i], parts[i + 1]) : Checked<DfaPtr>(parts[i]);
      if (!pair) return pair;
      next.push_back(*pair);
    }
    parts = std::move(next);
  }
  return parts[0];
}

Checked<DfaPtr> Languages::of_length(std::int64_t min, std::int64_t max) {
  constexpr std::int64_t kMost = 4000;  // dfa_repeat has a few states for each
  if (std::max(min, max) > kMost) return unsupported("lengths above 4000 cannot be combined with other rules here");
  return counted(dfa_repeat(*own(R"([\s\S])"), min, max, limits_));
}

DfaPtr Languages::words(const std::vector<std::string>& words) {
  return std::make_shared<const Dfa>(dfa_literals(words));
}

Checked<DfaPtr> Languages::in_range(bool integer, const NumberRange& range) {
  const auto key = std::pair(integer, range);
  if (const auto it = ranges_.find(key); it != ranges_.end()) return it->second;
  auto dfa = counted(integer ? integer_dfa(range, limits_) : number_dfa(range, limits_));
  if (dfa) ranges_.emplace(key, *dfa);
  return dfa;
}

Checked<DfaPtr> Languages::integers(const NumberRange& range) { return in_range(true, range); }
Checked<DfaPtr> Languages::numbers(const NumberRange& range) { return in_range(false, range); }

// -------------------------------------------------------------------------------------------------- numbers

namespace {

/// Integers by their digits, then any zeros of a fraction.
Checked<DfaPtr> multiples(Languages& languages, const NumberRange& range) {
  auto few = languages.integers(range);
  if (!few) return few;
  auto digits = languages.both(*few, languages.own(kDigits));
  if (!digits || (*digits)->empty()) return digits;
  return languages.concat(*digits, languages.own(kZeros));
}

Checked<DfaPtr> range_of(Languages& languages, const NumberRange& range, bool integer) {
  if (!bounded(range)) return languages.own(integer ? kIntegers : kPlain);
  const bool whole_steps = range.multiple_of && range.multiple_of->find_first_of(".eE") == std::string::npos;
  if (range.multiple_of && (integer || whole_steps)) return multiples(languages, range);
  auto numbers = languages.numbers(range);
  if (!numbers || !integer) return numbers;
  return languages.both(*numbers, languages.own(kIntegers));
}

}  // namespace

Checked<DfaPtr> integers_spelled(Languages& languages, const std::vector<std::string>& digits) {
  return languages.concat(languages.words(digits), languages.own(kZeros));
}

Checked<Numbers> numbers_in(Languages& languages, const NumberRange& range, bool integer) {
  if (!bounded(range) && !integer) return Numbers{.all = true, .some = nullptr};
  auto dfa = range_of(languages, range, integer);
  if (!dfa) return std::unexpected(dfa.error());
  return Numbers{.all = false, .some = null_if_empty(std::move(*dfa))};
}

Checked<Numbers> intersection(Languages& languages, const Numbers& a, const Numbers& b) {
  if (a.all || b.none()) return b;
  if (b.all || a.none()) return a;
  auto dfa = languages.both(a.some, b.some);
  if (!dfa) return std::unexpected(dfa.error());
  return Numbers{.all = false, .some = null_if_empty(std::move(*dfa))};
}

Checked<Numbers> either(Languages& languages, const Numbers& a, const Numbers& b) {
  if (a.all || b.none()) return a;
  if (b.all || a.none()) return b;
  auto dfa = languages.either(a.some, b.some);
  if (!dfa) return std::unexpected(dfa.error());
  return Numbers{.all = false, .some = std::move(*dfa)};
}

Checked<Numbers> difference(Languages& languages, const Numbers& a, const Numbers& b) {
  if (b.none() || a.none()) return a;
  if (b.all) return Numbers{};
  auto dfa = languages.minus(a.all ? languages.own(kPlain) : a.some, b.some);
  if (!dfa) return std::unexpected(dfa.error());
  return Numbers{.all = false, .some = null_if_empty(std::move(*dfa))};
}

Checked<DfaPtr> shown(Languages& languages, const Numbers& numbers) {
  if (numbers.all) return languages.numbers({});
  if (!numbers.some) return DfaPtr();
  auto fractions = languages.minus(numbers.some, languages.own(kIntegers));
  if (!fractions) return fractions;
  return (*fractions)->empty() ? languages.both(numbers.some, languages.own(kFewZeros)) : numbers.some;
}

Checked<std::optional<std::vector<std::string>>> values(Languages& languages, const Numbers& numbers,
                                                        std::size_t most) {
  if (numbers.all) return std::nullopt;
  if (!numbers.some) return std::vector<std::string>{};
  auto canonical = languages.both(numbers.some, languages.own(kCanonical));
  if (!canonical) return std::unexpected(canonical.error());
  return dfa_words(**canonical, most);
}

// -------------------------------------------------------------------------------------------------- strings

namespace {

/// A word of min..max characters; max < 0: without end. By walking sets of states one character at a time; where that
/// would take too long the answer is yes, and the machine finds out later.
bool any_of_length(const Dfa& dfa, std::int64_t min, std::int64_t max, std::int64_t& steps) {
  const std::int64_t longest = max < 0 ? min + dfa.num_states() : max;
  constexpr std::int64_t kMost = 2'000'000;
  std::int64_t work = 0, counted = 0;
  std::set<Dfa::State> now{dfa.start()};
  for (std::int64_t length = 0; length <= longest && !now.empty(); ++length) {
    std::set<Dfa::State> next;
    std::vector<Dfa::State> open(now.begin(), now.end());
    for (const Dfa::State s : open) {
      if (length >= min && dfa.accepting(s)) return true;
    }
    // Lead bytes begin a character; continuation bytes stay inside it.
    for (int byte = 0; byte < 256; ++byte) {
      if ((byte & 0xC0) == 0x80) continue;
      int rest = byte < 0xC0 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      std::set<Dfa::State> inside;
      for (const Dfa::State s : open) {
        if (const auto to = dfa.next(s, static_cast<std::uint8_t>(byte)); to != Dfa::kDead) inside.insert(to);
      }
      work += static_cast<std::int64_t>(open.size());
      for (; rest > 0 && !inside.empty(); --rest) {
        std::set<Dfa::State> deeper;
        for (const Dfa::State s : inside) {
          for (int c = 0x80; c < 0xC0; ++c) {
            if (const auto to = dfa.next(s, static_cast<std::uint8_t>(c)); to != Dfa::kDead) deeper.insert(to);
          }
        }
        work += static_cast<std::int64_t>(inside.size()) * 64;
        inside = std::move(deeper);
      }
      next.insert(inside.begin(), inside.end());
    }
    steps += work - counted;
    counted = work;
    if (work > kMost) return true;
    now = std::move(next);
  }
  return false;
}

}  // namespace

bool any_in(const Strings& strings, std::int64_t& steps) {
  if (strings.max >= 0 && strings.min > strings.max) return false;
  if (!strings.content) return true;
  if (strings.content->empty()) return false;
  if (strings.min == 0 && strings.max < 0) return true;
  steps += std::int64_t{strings.content->num_states()} * 64;
  const DfaLengths lengths = dfa_char_lengths(*strings.content);
  if (strings.max >= 0 && lengths.fewest > strings.max) return false;
  if (lengths.most && *lengths.most < strings.min) return false;
  if (lengths.fewest >= strings.min) return true;
  return any_of_length(*strings.content, strings.min, strings.max, steps);
}

Checked<Strings> intersection(Languages& languages, const Strings& a, const Strings& b) {
  auto content = languages.both(a.content, b.content);
  if (!content) return std::unexpected(content.error());
  return Strings{*content, std::max(a.min, b.min), lower_max(a.max, b.max)};
}

Checked<void> difference(Languages& languages, const Strings& a, const Strings& b, std::vector<Strings>& out) {
  const auto keep = [&](Strings part) {
    std::int64_t steps = 0;
    if (any_in(part, steps)) out.push_back(std::move(part));
    languages.spend(steps);
  };
  if (b.content) {
    auto content = languages.minus(a.content, b.content);
    if (!content) return std::unexpected(content.error());
    keep({*content, a.min, a.max});
  }
  if (b.min > 0) keep({a.content, a.min, lower_max(a.max, b.min - 1)});
  if (b.max >= 0) keep({a.content, std::max(a.min, b.max + 1), a.max});
  return {};
}

Checked<DfaPtr> language_of(Languages& languages, const std::vector<Strings>& list) {
  std::vector<DfaPtr> parts;
  for (const Strings& strings : list) {
    DfaPtr part = strings.content;
    if (strings.min > 0 || strings.max >= 0) {
      auto lengths = languages.of_length(strings.min, strings.max);
      if (!lengths) return lengths;
      auto cut = languages.both(part, *lengths);
      if (!cut) return cut;
      part = *cut;
    }
    parts.push_back(std::move(part));
  }
  return languages.any_of(std::move(parts));
}

}  // namespace barg::text::grammar::schema
