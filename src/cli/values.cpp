#include "cli/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/json.h"

namespace barg::cli {
namespace {

struct Unit {
  std::string_view suffix;
  double factor;
};
constexpr std::array<Unit, 6> kSizes{
    {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1}, {"", 1}}};
constexpr std::array<Unit, 5> kTimes{{{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"", 1}}};

std::string quoted(std::string_view text) {
  std::string out = "'";
  out += text.substr(0, 64);
  out += text.size() > 64 ? "...'" : "'";
  return out;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// A number, spaces allowed, one of `units`. The number decides where the unit starts.
std::optional<double> quantity(std::string_view text, std::span<const Unit> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<double> value = number(text.substr(0, digits));
  std::string_view suffix = text.substr(digits);
  suffix.remove_prefix(std::min(suffix.find_first_not_of(' '), suffix.size()));
  for (const Unit& unit : units) {
    if (value && suffix == unit.suffix) return *value * unit.factor;
  }
  return std::nullopt;
}

std::string show_bound(const Option& option, double bound) {
  if (option.kind == Kind::kDuration) return show_number(bound) + "s";
  if (option.kind == Kind::kBytes) return show_size(static_cast<std::uint64_t>(bound));
  if (option.kind == Kind::kInteger) return std::to_string(static_cast<std::int64_t>(bound));
  return show_number(bound);
}

// Where the schema sets no maximum, the field's type does.
Problem out_of_range(const Option& option, std::string_view text, double value) {
  if (std::isinf(option.max) && value > option.min) return "cannot be that large, got " + quoted(text);
  const std::string low = show_bound(option, option.min);
  if (std::isinf(option.max)) return "must be at least " + low + ", got " + quoted(text);
  return "must be between " + low + " and " + show_bound(option, option.max) + ", got " + quoted(text);
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (true) {
    const std::size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) return !text.empty();
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

Problem not_a_choice(const Option& option, std::string_view text) {
  std::string list(option.choices);
  for (std::size_t i = 0; (i = list.find('|', i)) != std::string::npos; i += 2) list.replace(i, 1, ", ");
  return "must be one of " + list + ", got " + quoted(text);
}

Problem store_number(const Option& option, double value, std::string_view text, Config& config) {
  if (value < option.min || value > option.max) return out_of_range(option, text, value);
  return std::visit(
      [&](auto* field) -> Problem {
        using T = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<T, double>) {
          *field = value * option.unit;
        } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          // 2^63 and 2^64 are exact in double; anything at or beyond the type's end is refused.
          if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits))
            return out_of_range(option, text, value);
          *field = static_cast<T>(value);
        }
        return std::nullopt;
      },
      option.field(config));
}

Problem assign_integer(const Option& option, std::string_view text, Config& config) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return out_of_range(option, text, value);
  if (error != std::errc{} || end != text.data() + text.size())
    return "expected a whole number, got " + quoted(text);
  if (!option.choices.empty() && !is_choice(option.choices, std::to_string(value)))
    return not_a_choice(option, text);
  return store_number(option, static_cast<double>(value), text, config);
}

Problem assign_bytes(const Option& option, std::string_view text, Config& config) {
  const std::optional<double> value = quantity(text, kSizes);
  if (!value) {
    return "expected a size as 1073741824, 512MiB or 1GiB (KiB, MiB, GiB, TiB; no k, K, M or G alone), got " +
           quoted(text);
  }
  if (*value != std::floor(*value)) return "must be a whole number of bytes, got " + quoted(text);
  return store_number(option, *value, text, config);
}

Problem assign_duration(const Option& option, std::string_view text, Config& config) {
  const std::optional<double> value = quantity(text, kTimes);
  if (!value) return "expected seconds or a time as 30s, 500ms or 5m, got " + quoted(text);
  return store_number(option, *value, text, config);
}

Problem assign_bool(const Option& option, std::string_view text, Config& config) {
  if (text != "true" && text != "false") return "expected true or false, got " + quoted(text);
  *std::get<bool*>(option.field(config)) = text == "true";
  return std::nullopt;
}

// "redis://user:secret@host" -> "redis://***@host".
std::string without_password(const std::string& text) {
  const std::size_t scheme = text.find("://");
  const std::size_t at = text.rfind('@');
  if (scheme == std::string::npos || at == std::string::npos || at < scheme + 3) return text;
  return text.substr(0, scheme + 3) + "***" + text.substr(at);
}

std::string show_list(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) {
    if (out.size() > 1) out += ", ";
    out += json_quote(item);
  }
  return out + "]";
}

// The largest unit that divides the value, so that the text reads back equal.
std::string show_bytes(std::uint64_t bytes) {
  for (const Unit& unit : kSizes) {
    const auto factor = static_cast<std::uint64_t>(unit.factor);
    if (factor > 1 && bytes != 0 && bytes % factor == 0)
      return std::to_string(bytes / factor) + std::string(unit.suffix);
  }
  return std::to_string(bytes);
}

std::string show_duration(double seconds) {
  if (seconds > 0 && seconds < 1) return show_number(seconds * 1000) + "ms";
  return show_number(seconds) + "s";
}

struct Shower {
  const Option& option;
  std::string operator()(const std::string* v) const {
    return option.kind == Kind::kChoice ? *v : json_quote(*v);
  }
  std::string operator()(const std::vector<std::string>* v) const { return show_list(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const double* v) const {
    return option.kind == Kind::kDuration ? show_duration(*v / option.unit) : show_number(*v);
  }
  template <class Integer>
  std::string operator()(const Integer* v) const {
    return option.kind == Kind::kBytes ? show_bytes(static_cast<std::uint64_t>(*v)) : std::to_string(*v);
  }
};

}  // namespace

Problem assign(const Option& option, std::string_view text, Config& config) {
  switch (option.kind) {
    case Kind::kText:
    case Kind::kPath:
      *std::get<std::string*>(option.field(config)) = text;
      return std::nullopt;
    case Kind::kChoice:
      if (!is_choice(option.choices, text)) return not_a_choice(option, text);
      *std::get<std::string*>(option.field(config)) = text;
      return std::nullopt;
    case Kind::kList:
    case Kind::kSpecs:
      return assign_list(option, {std::string(text)}, config);
    case Kind::kBool:
      return assign_bool(option, text, config);
    case Kind::kInteger:
      return assign_integer(option, text, config);
    case Kind::kBytes:
      return assign_bytes(option, text, config);
    case Kind::kDuration:
      return assign_duration(option, text, config);
    case Kind::kNumber:
      break;
  }
  const std::optional<double> value = number(text);
  if (!value) return "expected a number, got " + quoted(text);
  return store_number(option, *value, text, config);
}

Problem assign_list(const Option& option, std::vector<std::string> items, Config& config) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].empty()) return "has an empty element";
    // A secret must not show in a message.
    if (std::find(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(i), items[i]) !=
        items.begin() + static_cast<std::ptrdiff_t>(i)) {
      return option.secret ? std::string("has the same element twice")
                           : "has " + quoted(without_password(items[i])) + " twice";
    }
  }
  *std::get<std::vector<std::string>*>(option.field(config)) = std::move(items);
  return std::nullopt;
}

std::optional<double> read_seconds(std::string_view text) { return quantity(text, kTimes); }

std::optional<double> read_size(std::string_view text) { return quantity(text, kSizes); }

std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    items.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return items;
}

std::vector<std::string> split_list(const Option& option, std::string_view text) {
  return split_list(text, option.kind == Kind::kSpecs ? ';' : ',');
}

std::string show(const Option& option, const Config& config) {
  // The accessor takes a mutable Config because it also serves writing; nothing is written here.
  return std::visit(Shower{option}, option.field(const_cast<Config&>(config)));
}

std::string show_public(const Option& option, const Config& config) {
  const FieldRef field = option.field(const_cast<Config&>(config));
  const auto* const* items = std::get_if<std::vector<std::string>*>(&field);
  if (!option.secret) {
    if (option.kind != Kind::kSpecs) return show(option, config);
    std::vector<std::string> shown;
    for (const std::string& item : **items) shown.push_back(without_password(item));
    return show_list(shown);
  }
  const std::size_t count = items != nullptr ? (*items)->size() : 1;
  return count == 0 ? "[]" : "<" + std::to_string(count) + " hidden>";
}

std::string show_size(std::uint64_t bytes) {
  for (const Unit& unit : kSizes) {
    if (unit.factor > 1 && static_cast<double>(bytes) >= unit.factor) {
      const double tenths = std::round(static_cast<double>(bytes) / unit.factor * 10) / 10;
      return show_number(tenths) + " " + std::string(unit.suffix);
    }
  }
  return std::to_string(bytes) + " bytes";
}

std::string show_number(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc{} ? std::string(buffer.data(), end) : "?";
}

}  // namespace barg::cli
