#include "text/grammar/numbers.h"

#include <algorithm>
#include <compare>
#include <string_view>
#include <utility>

#include "text/grammar/concat.h"
#include "text/grammar/explore.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar {
namespace {

constexpr std::size_t kMaxNumberBytes = 400;
constexpr std::int64_t kMaxDigits = 2'000;  // of a bound written without an exponent
constexpr std::string_view kAlphabet = "-.0123456789";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A decimal number as its digits before and after the point, without needless zeros: zero has none at all.
struct Decimal {
  bool negative = false;
  std::string whole = {}, fraction = {};

  bool is_zero() const { return whole.empty() && fraction.empty(); }
};

// The parts of a number as JSON writes it.
struct Written {
  bool negative = false;
  std::string digits;      // of the whole and the fraction
  std::int64_t point = 0;  // digits before the point
};

std::optional<std::int64_t> read_exponent(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || !std::ranges::all_of(text, is_digit)) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) value = std::min<std::int64_t>(value * 10 + (c - '0'), 1'000'000'000);
  return negative ? -value : value;
}

std::optional<Written> read_number(std::string_view text) {
  if (text.size() > kMaxNumberBytes) return std::nullopt;
  Written w;
  w.negative = text.starts_with('-');
  if (w.negative) text.remove_prefix(1);
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view mantissa = text.substr(0, e);
  const std::size_t dot = std::min(mantissa.find('.'), mantissa.size());
  const std::string_view whole = mantissa.substr(0, dot);
  const std::string_view fraction = mantissa.substr(std::min(dot + 1, mantissa.size()));
  w.digits = std::string(whole) + std::string(fraction);
  w.point = static_cast<std::int64_t>(dot);
  if (whole.empty() || (dot < mantissa.size() && fraction.empty()) ||
      !std::ranges::all_of(w.digits, is_digit)) {
    return std::nullopt;
  }
  if (e == text.size()) return w;
  const auto exponent = read_exponent(text.substr(e + 1));
  if (!exponent) return std::nullopt;
  w.point += *exponent;
  return w;
}

Result<Decimal> read_decimal(std::string_view text, std::string_view keyword) {
  const auto w = read_number(text);
  if (!w)
    return fail(ErrorCode::kInvalidValue,
                concat(keyword, ": not a decimal number of at most ", kMaxNumberBytes, " bytes"));
  std::string digits = w->digits;
  const std::size_t last = digits.find_last_not_of('0');
  if (last == std::string::npos) return Decimal{};
  digits.resize(last + 1);
  const std::size_t first = digits.find_first_not_of('0');
  digits.erase(0, first);
  const std::int64_t point = w->point - static_cast<std::int64_t>(first);
  if (point > kMaxDigits || point < -kMaxDigits) {
    return fail(ErrorCode::kUnsupported, concat(keyword, ": a number of over ", kMaxDigits, " digits"));
  }
  Decimal d{.negative = w->negative};
  if (point <= 0) {
    d.fraction = std::string(static_cast<std::size_t>(-point), '0') + digits;
  } else if (static_cast<std::size_t>(point) >= digits.size()) {
    d.whole = digits + std::string(static_cast<std::size_t>(point) - digits.size(), '0');
  } else {
    d.whole = digits.substr(0, static_cast<std::size_t>(point));
    d.fraction = digits.substr(static_cast<std::size_t>(point));
  }
  return d;
}

// Compares the number that is read with a bound, digit by digit. Behind the sign it is the magnitude that is
// compared: with the bound's magnitude, or (signs differ) the answer is known.
class Comparison {
 public:
  struct State {
    enum Phase : std::uint8_t { kStart, kWhole, kFraction } phase = kStart;
    bool negative = false;
    bool signs_differ = false;
    std::int8_t order = 0;    // of the digits so far to those of the bound
    std::uint32_t place = 0;  // digits read in this phase, as far as they matter
    auto operator<=>(const State&) const = default;
  };

  explicit Comparison(Decimal bound) : bound_(std::move(bound)) {}

  std::optional<State> step(State s, char byte) const {
    if (s.phase == State::kStart) {
      s.phase = State::kWhole;
      s.negative = byte == '-';
      s.signs_differ = !bound_.is_zero() && bound_.negative != s.negative;
      if (byte == '-') return s;
    }
    if (byte == '-' || (byte == '.' && s.phase == State::kFraction)) return std::nullopt;
    if (s.signs_differ) return s;
    return byte == '.' ? point(s) : s.phase == State::kWhole ? whole_digit(s, byte) : fraction_digit(s, byte);
  }

  /// -1, 0, 1: the number is less than the bound, equal, greater.
  int order(const State& s) const {
    const int magnitudes =
        s.signs_differ ? 1 : (s.phase == State::kFraction ? fraction_order(s) : fraction_order(point(s)));
    return s.negative ? -magnitudes : magnitudes;
  }

 private:
  State whole_digit(State s, char digit) const {
    const auto size = static_cast<std::uint32_t>(bound_.whole.size());
    if (s.place == 0 && digit == '0') return s;
    if (s.place < size && s.order == 0) s.order = sign(digit, bound_.whole[s.place]);
    s.place = std::min(s.place + 1, size + 1);
    if (s.place > size) s.order = 1;
    return s;
  }
  State point(State s) const {
    if (s.place < bound_.whole.size()) s.order = -1;
    s.phase = State::kFraction;
    s.place = s.order == 0 ? 0 : static_cast<std::uint32_t>(bound_.fraction.size());
    return s;
  }
  State fraction_digit(State s, char digit) const {
    const auto size = static_cast<std::uint32_t>(bound_.fraction.size());
    if (s.order == 0) s.order = sign(digit, s.place < size ? bound_.fraction[s.place] : '0');
    s.place = s.order == 0 ? std::min(s.place + 1, size) : size;
    return s;
  }
  int fraction_order(const State& s) const {
    // What the bound has more is not zero.
    return s.order == 0 && s.place < bound_.fraction.size() ? -1 : s.order;
  }
  static std::int8_t sign(char a, char b) { return static_cast<std::int8_t>(a < b ? -1 : a > b ? 1 : 0); }

  Decimal bound_;
};

// Multiples of divisor * 10^zeros (zeros >= 0) or divisor / 10^places; the divisor does not end with a zero.
// Before the point a state is the number as residue * 10^trailing, so that what must end with zeros needs no
// residues of its own.
class Multiples {
 public:
  struct State {
    enum Phase : std::uint8_t { kStart, kWhole, kFraction } phase = kStart;
    std::uint32_t residue = 0;
    std::uint32_t trailing = 0;  // zeros at the end, at most zeros_
    std::uint32_t place = 0;     // digits behind the point, at most places_
    auto operator<=>(const State&) const = default;
  };

  Multiples(std::uint32_t divisor, std::uint32_t zeros, std::uint32_t places)
      : divisor_(divisor), zeros_(zeros), places_(places) {}

  State start() const { return {.trailing = zeros_}; }

  std::optional<State> step(State s, char byte) const {
    if (byte == '-') {
      if (s.phase != State::kStart) return std::nullopt;
      s.phase = State::kWhole;
      return s;
    }
    if (byte == '.') {
      if (s.phase == State::kFraction) return std::nullopt;
      s.phase = State::kFraction;
      return s;
    }
    if (s.phase == State::kFraction) return fraction_digit(s, byte);
    s.phase = State::kWhole;
    if (byte == '0' && s.trailing < zeros_) {
      ++s.trailing;
      return s;
    }
    s.residue = append(s.residue, byte == '0' ? 1 : s.trailing + 1, static_cast<std::uint32_t>(byte - '0'));
    s.trailing = byte == '0' ? zeros_ : 0;
    return s;
  }

  bool accepting(const State& s) const {
    return s.trailing == zeros_ && append(s.residue, places_ - s.place, 0) == 0;
  }

 private:
  std::optional<State> fraction_digit(State s, char byte) const {
    if (s.place == places_) return byte == '0' ? std::optional(s) : std::nullopt;
    s.residue = append(s.residue, 1, static_cast<std::uint32_t>(byte - '0'));
    ++s.place;
    return s;
  }
  // residue * 10^shift + digit
  std::uint32_t append(std::uint64_t residue, std::uint32_t shift, std::uint32_t digit) const {
    for (std::uint32_t i = 0; i < shift; ++i) residue = residue * 10 % divisor_;
    return static_cast<std::uint32_t>((residue + digit) % divisor_);
  }

  std::uint32_t divisor_, zeros_, places_;
};

std::unexpected<Error> named(std::string_view keyword, Error error) {
  error.message = concat(keyword, ": ", error.message);
  return std::unexpected(std::move(error));
}

Result<Dfa> bounded(const std::string& text, std::string_view keyword, bool lower, bool exclusive,
                    const DfaLimits& limits) {
  const auto bound = read_decimal(text, keyword);
  if (!bound) return std::unexpected(bound.error());
  const Comparison comparison(*bound);
  auto dfa = explore(
      Comparison::State{}, kAlphabet,
      [&](Comparison::State s, char byte) { return comparison.step(s, byte); },
      [&](const Comparison::State& s) {
        const int order = comparison.order(s);
        return order == 0 ? !exclusive : (order > 0) == lower;
      },
      limits);
  if (!dfa) return named(keyword, dfa.error());
  return dfa;
}

Result<Dfa> multiples(const std::string& text, const DfaLimits& limits) {
  const auto d = read_decimal(text, "multipleOf");
  if (!d) return std::unexpected(d.error());
  if (d->negative || d->is_zero())
    return fail(ErrorCode::kInvalidValue, "multipleOf: must be greater than 0");
  std::string digits = d->whole + d->fraction;
  digits.erase(0, digits.find_first_not_of('0'));
  const std::size_t zeros = digits.size() - 1 - digits.find_last_not_of('0');
  digits.resize(digits.size() - zeros);
  std::uint64_t divisor = 0;
  for (const char c : digits)
    divisor =
        std::min<std::uint64_t>(divisor * 10 + static_cast<std::uint64_t>(c - '0'), limits.states + 1ULL);
  if (divisor > limits.states) {
    return fail(ErrorCode::kUnsupported, concat("multipleOf: too large: over ", limits.states, " residues"));
  }
  const Multiples rule(static_cast<std::uint32_t>(divisor), static_cast<std::uint32_t>(zeros),
                       static_cast<std::uint32_t>(d->fraction.size()));
  auto dfa = explore(
      rule.start(), kAlphabet, [&](Multiples::State s, char byte) { return rule.step(s, byte); },
      [&](const Multiples::State& s) { return rule.accepting(s); }, limits);
  if (!dfa) return named("multipleOf", dfa.error());
  return dfa;
}

Result<Dfa> restrict(std::string_view syntax, const NumberRange& range, const DfaLimits& limits) {
  auto result = regex_dfa(syntax, {.search = false, .limits = limits});
  const auto narrow = [&](std::string_view keyword, const Result<Dfa>& by) {
    if (!result) return;
    if (!by) {
      result = std::unexpected(by.error());
      return;
    }
    auto both = dfa_intersect(*result, *by, limits);
    if (both) {
      result = std::move(both);
    } else {
      result = named(keyword, both.error());
    }
  };
  if (range.minimum) {
    const auto* keyword = range.exclusive_minimum ? "exclusiveMinimum" : "minimum";
    narrow(keyword, bounded(*range.minimum, keyword, true, range.exclusive_minimum, limits));
  }
  if (range.maximum) {
    const auto* keyword = range.exclusive_maximum ? "exclusiveMaximum" : "maximum";
    narrow(keyword, bounded(*range.maximum, keyword, false, range.exclusive_maximum, limits));
  }
  if (range.multiple_of) narrow("multipleOf", multiples(*range.multiple_of, limits));
  return result;
}

}  // namespace

Result<Dfa> integer_dfa(const NumberRange& range, const DfaLimits& limits) {
  return restrict("-?(?:0|[1-9][0-9]*)(?:\\.0{1,3})?", range, limits);
}

Result<Dfa> number_dfa(const NumberRange& range, const DfaLimits& limits) {
  const bool free = !range.minimum && !range.maximum && !range.multiple_of;
  return restrict(
      free ? "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?" : "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?",
      range, limits);
}

}  // namespace barg::text::grammar
