// Languages: regular languages of one schema, made and combined with every result remembered and all work counted, so
// that a schema that asks for too much is refused instead of growing. On top of them the two sets of scalars that
// schemas describe: Numbers and Strings.
//
// A null DfaPtr of names or contents means any text (of valid UTF-8). One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/node.h"
#include "text/grammar/numbers.h"
#include "text/grammar/schema_issue.h"

namespace barg::text::grammar::schema {

class Languages {
 public:
  /// `work`: as DfaLimits::work; outlives it.
  explicit Languages(std::int64_t& work) : limits_{.work = &work} {}
  bool spent() const { return limits_.spent(); }
  void spend(std::int64_t steps) { limits_.spend(static_cast<std::uint64_t>(steps)); }
  /// ECMA pattern, matching anywhere.
  Checked<DfaPtr> pattern(const std::string& text);
  /// The whole text. REQUIRES a pattern of ours that is known to be good.
  DfaPtr own(std::string_view pattern);
  Checked<DfaPtr> both(const DfaPtr& a, const DfaPtr& b);
  Checked<DfaPtr> either(const DfaPtr& a, const DfaPtr& b);
  /// In `a` and not in `b`.
  Checked<DfaPtr> minus(const DfaPtr& a, const DfaPtr& b);
  Checked<DfaPtr> concat(const DfaPtr& a, const DfaPtr& b);
  Checked<DfaPtr> any_of(std::vector<DfaPtr> parts);
  /// Texts of min..max characters (max < 0: without end).
  Checked<DfaPtr> of_length(std::int64_t min, std::int64_t max);
  DfaPtr words(const std::vector<std::string>& words);
  Checked<DfaPtr> integers(const NumberRange& range);
  Checked<DfaPtr> numbers(const NumberRange& range);

 private:
  enum class Op : std::uint8_t { kBoth, kEither, kMinus, kConcat };
  Checked<DfaPtr> combine(Op op, const DfaPtr& a, const DfaPtr& b);
  Checked<DfaPtr> counted(Result<Dfa> made);
  DfaPtr any_text();

  Checked<DfaPtr> in_range(bool integer, const NumberRange& range);

  const DfaLimits limits_;
  std::map<std::string, DfaPtr> patterns_;
  std::map<std::pair<bool, NumberRange>, DfaPtr> ranges_;
  std::map<std::string, DfaPtr, std::less<>> own_;
  std::map<std::tuple<Op, DfaPtr, DfaPtr>, DfaPtr> combined_;
  DfaPtr any_text_;
  std::int64_t states_left_ = 4'000'000;
};

/// JSON numbers by value: without exponents, closed under zeros at the end of a fraction; or all there are.
struct Numbers {
  bool all = false;
  DfaPtr some;  ///< of !all; null: none

  bool none() const { return !all && !some; }
};

/// Integers other than 0, given by their digits, as Numbers has them. Faster than a range for each.
Checked<DfaPtr> integers_spelled(Languages& languages, const std::vector<std::string>& digits);
Checked<Numbers> numbers_in(Languages& languages, const NumberRange& range, bool integer);
Checked<Numbers> intersection(Languages& languages, const Numbers& a, const Numbers& b);
Checked<Numbers> either(Languages& languages, const Numbers& a, const Numbers& b);
Checked<Numbers> difference(Languages& languages, const Numbers& a, const Numbers& b);
/// Null: none. What texts may show: integers with few zeros behind the point.
Checked<DfaPtr> shown(Languages& languages, const Numbers& numbers);
/// The values in plain digits, if at most `most`.
Checked<std::optional<std::vector<std::string>>> values(Languages& languages, const Numbers& numbers, std::size_t most);

struct Strings {
  DfaPtr content;  ///< null: any
  std::int64_t min = 0;
  std::int64_t max = kUnbounded;

  bool full() const { return !content && min == 0 && max == kUnbounded; }
  bool operator==(const Strings&) const = default;
};

/// Some string is in it. Adds to `steps` what that took.
bool any_in(const Strings& strings, std::int64_t& steps);
Checked<Strings> intersection(Languages& languages, const Strings& a, const Strings& b);
/// `a` without `b`, appended.
Checked<void> difference(Languages& languages, const Strings& a, const Strings& b, std::vector<Strings>& out);
/// All of them as one language; null: any text. An empty list is a language without words.
Checked<DfaPtr> language_of(Languages& languages, const std::vector<Strings>& list);

/// The smaller of two bounds from above, where a negative one means none.
constexpr std::int64_t lower_max(std::int64_t a, std::int64_t b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

}  // namespace barg::text::grammar::schema
