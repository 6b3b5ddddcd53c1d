// Filters on numbers.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

std::string stripped(Runtime& rt, const Str& s) { return pystr::strip(rt, s, nullptr, true, true).text(); }

// Underscores are allowed between digits.
std::optional<std::string> without_underscores(const std::string& s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      out += s[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < s.size() &&
                         std::isalnum(static_cast<unsigned char>(s[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(s[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return out;
}

std::optional<Int> parse_int(Runtime& rt, const Str& text, Int base) {
  const std::optional<std::string> s = without_underscores(stripped(rt, text));
  if (!s || (base != 0 && (base < 2 || base > 36))) return std::nullopt;
  std::size_t i = 0;
  const bool negative = !s->empty() && (*s)[0] == '-';
  if (!s->empty() && (negative || (*s)[0] == '+')) ++i;
  if (i + 1 < s->size() && (*s)[i] == '0') {
    const char prefix = static_cast<char>((*s)[i + 1] | 0x20);
    const Int implied = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (implied != 0 && (base == implied || base == 0)) {
      base = implied;
      i += 2;
    }
  }
  const bool plain_zero = base == 0 && i < s->size() && (*s)[i] == '0';
  if (base == 0) base = 10;
  if (i >= s->size()) return std::nullopt;
  Int value = 0;
  for (; i < s->size(); ++i) {
    const char c = (*s)[i];
    const char lower = static_cast<char>(c | 0x20);
    const Int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
    if (digit >= base || (plain_zero && digit != 0)) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) {
      raise(RenderError::Type::kOverflow, "an integer is too large");
    }
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(Runtime& rt, const Str& text) {
  const std::optional<std::string> s = without_underscores(stripped(rt, text));
  if (!s || s->empty()) return std::nullopt;
  std::size_t i = 0;
  const bool negative = (*s)[0] == '-';
  if (negative || (*s)[0] == '+') ++i;
  std::string lower;
  for (std::size_t k = i; k < s->size(); ++k)
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>((*s)[k])));
  const double sign = negative ? -1.0 : 1.0;
  if (lower == "inf" || lower == "infinity") return sign * HUGE_VAL;
  if (lower == "nan") return std::nan("");
  if (lower.empty() || lower.find_first_not_of("0123456789.e+-") != lower.npos) return std::nullopt;
  if (lower[0] == '+' || lower[0] == '-') return std::nullopt;
  double d = 0;
  const char* end = lower.data() + lower.size();
  const auto r = std::from_chars(lower.data(), end, d);
  if (r.ptr != end) return std::nullopt;
  if (r.ec == std::errc::result_out_of_range)
    d = std::strtod(lower.c_str(), nullptr);
  else if (r.ec != std::errc())
    return std::nullopt;
  return sign * d;
}

Int truncated(double d) {
  if (std::isinf(d)) raise(RenderError::Type::kOverflow, "cannot convert float infinity to integer");
  if (std::fabs(d) >= 0x1p126) raise(RenderError::Type::kOverflow, "an integer is too large");
  return static_cast<Int>(d);
}

Value to_int(Runtime& rt, const Value& v, Args& args) {
  const Value fallback = args.has(0) ? args[0] : Value::integer(0);
  require_defined(v);
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is(Kind::kFloat))
    return std::isnan(v.as_float()) ? fallback : Value::integer(truncated(v.as_float()));
  if (!v.is_string()) return fallback;
  if (const auto i = parse_int(rt, v.str(), args.integer(1, 10))) return Value::integer(*i);
  const auto d = parse_float(rt, v.str());
  if (!d || !std::isfinite(*d)) return fallback;
  return Value::integer(truncated(*d));
}

Value to_float(Runtime& rt, const Value& v, Args& args) {
  const Value fallback = args.has(0) ? args[0] : Value::real(0);
  require_defined(v);
  if (v.is_number()) return Value::real(v.as_float());
  if (!v.is_string()) return fallback;
  const auto d = parse_float(rt, v.str());
  return d ? Value::real(*d) : fallback;
}

Value absolute(Runtime&, const Value& v, Args&) {
  require_defined(v);
  if (v.is(Kind::kFloat)) return Value::real(std::fabs(v.as_float()));
  if (!v.is_integral()) type_error("bad operand type for abs(): '" + std::string(type_name(v)) + "'");
  return v.as_int() < 0 ? negate(v) : Value::integer(v.as_int());
}

double scaled(double d, double factor, const std::string& method) {
  const double x = d * factor;
  return (method == "ceil" ? std::ceil(x) : std::floor(x)) / factor;
}

// round() for ints with negative digits: half to even at a power of ten.
Int round_int(Int v, Int digits) {
  if (digits >= 0) return v;
  if (digits < -37) return 0;
  Int unit = 1;
  for (Int i = 0; i < -digits; ++i) unit *= 10;
  Int rest = v % unit;
  if (rest < 0) rest += unit;
  Int down = v - rest;
  const bool odd = ((down / unit) & 1) != 0;
  if (2 * rest > unit || (2 * rest == unit && odd)) down += unit;
  return down;
}

Value round(Runtime&, const Value& v, Args& args) {
  const Int digits = args.integer(0, 0);
  const std::string method = args.has(1) ? args.text(1).text : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    type_error("method must be common, ceil or floor");
  require_defined(v);
  if (!v.is_number()) type_error("type " + std::string(type_name(v)) + " doesn't define __round__ method");
  if (digits > 300 || digits < -300) value_error("round: precision out of range");
  if (method != "common") {
    const double factor = std::pow(10.0, static_cast<double>(digits));
    return Value::real(scaled(v.as_float(), factor, method));
  }
  if (v.is_integral()) return Value::integer(round_int(v.as_int(), digits));
  const double d = v.as_float();
  if (!std::isfinite(d)) return v;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::real(std::nearbyint(d / unit) * unit);
  }
  // printf rounds the exact binary value half to even, as Python does.
  char buffer[800];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), d);
  return Value::real(std::strtod(buffer, nullptr));
}

Value file_size(Runtime& rt, const Value& v, Args& args) {
  require_defined(v);
  std::optional<double> parsed = v.is_number()   ? v.as_float()
                                 : v.is_string() ? parse_float(rt, v.str())
                                                 : std::nullopt;
  if (!parsed) value_error("filesizeformat wants a number");
  const double bytes = *parsed;
  const bool binary_units = args.truth(0, false);
  const double base = binary_units ? 1024 : 1000;
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  if (bytes == 1) return rt.string("1 Byte");
  if (bytes < base) return rt.string(int_text(truncated(bytes)) + " Bytes");
  double unit = base;
  for (int i = 0; i < 8; ++i) {
    unit *= base;
    if (bytes >= unit && i < 7) continue;
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.1f %s", base * bytes / unit,
                  binary_units ? kBinary[i] : kDecimal[i]);
    return rt.string(std::string(buffer));
  }
  return Value();
}

constexpr FilterRow kFilters[] = {
    {"abs", "", absolute},
    {"filesizeformat", "binary?", file_size},
    {"float", "default?", to_float},
    {"int", "default? base?", to_int},
    {"round", "precision? method?", round},
    {"random", "*", nullptr},
};

}  // namespace

std::span<const FilterRow> number_filters() { return kFilters; }

}  // namespace barg::text::jinja
