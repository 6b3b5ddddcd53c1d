#include "text/grammar/formats.h"

#include <algorithm>
#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/check.h"
#include "text/grammar/concat.h"
#include "text/grammar/explore.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar {
namespace {

// Formats are fixed, so are their sizes: hostname, the largest, has 32,000 states.
constexpr DfaLimits kLimits{.states = 60'000};

Dfa must(Result<Dfa> dfa) {
  CHECK(dfa.has_value());
  return std::move(*dfa);
}

Dfa whole(const std::string& pattern) {
  return must(regex_dfa(pattern, {.search = false, .limits = kLimits}));
}

// ---- dates and times: RFC 3339

// The year 0000, which the RFC has, is left out: most libraries refuse it.
Dfa date() {
  const std::string leap_year =
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  const std::string days =
      "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
      "02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
      leap_year + "-02-29)";
  return must(dfa_subtract(whole(days), whole("0000-.*"), kLimits));
}

// A time of day with its offset. The second 60 is there only where it is 23:59 in UTC, so the minute of the
// day is kept until the offset is known.
class Time {
 public:
  struct State {
    std::uint8_t place = 0;  // see step()
    bool leap_second = false;
    std::int16_t value = 0;  // what of the hours and minutes is still of interest
    auto operator<=>(const State&) const = default;
  };
  static constexpr std::string_view kAlphabet = "0123456789:.Zz+-";

  static bool accepting(const State& s) { return s.place == kEnd; }

  static std::optional<State> step(State s, char byte) {
    constexpr std::string_view kForm = "HH:MM:SS";
    if (s.place < kForm.size()) {
      if (kForm[s.place] == ':' ? byte != ':' : !read_digit(s, byte)) return std::nullopt;
      ++s.place;
      return s;
    }
    if (s.place < kOffset) return after_seconds(s, byte);
    return s.place < kEnd ? offset(s, byte) : std::nullopt;
  }

 private:
  enum : std::uint8_t { kSeconds = 8, kPoint = 9, kFraction = 10, kOffset = 11, kEnd = 16 };
  static constexpr int kDay = 24 * 60, kLastMinute = kDay - 1;

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  static bool read_digit(State& s, char byte) {
    if (!is_digit(byte)) return false;
    const int digit = byte - '0';
    int value = s.value;
    switch (s.place) {
      case 0:
        value = digit;
        break;
      case 1:
        value = value * 10 + digit;
        break;
      case 3:
        value = value * 6 + digit;
        break;
      case 4:
        value = value * 10 + digit;
        break;
      case 6:
        s.leap_second = digit == 6;
        if (!s.leap_second) value = 0;
        break;
      default:
        break;
    }
    s.value = static_cast<std::int16_t>(value);
    constexpr int kMost[] = {2, 9, 0, 5, 9, 0, 6, 9};
    if (s.place == 1) return value < 24;
    if (s.place == 7 && s.leap_second) return digit == 0;
    return digit <= kMost[s.place];
  }

  static std::optional<State> after_seconds(State s, char byte) {
    if (is_digit(byte)) {
      if (s.place == kSeconds) return std::nullopt;
      s.place = kFraction;
      return s;
    }
    if (byte == '.') {
      if (s.place != kSeconds) return std::nullopt;
      s.place = kPoint;
      return s;
    }
    if (s.place == kPoint || byte == ':') return std::nullopt;
    if (byte == 'Z' || byte == 'z') {
      if (s.leap_second && s.value != kLastMinute) return std::nullopt;
      return State{.place = kEnd};
    }
    s.place = kOffset;
    // The one offset with which it is 23:59 in UTC.
    if (s.leap_second)
      s.value = static_cast<std::int16_t>(byte == '+' ? (s.value + 1) % kDay : kLastMinute - s.value);
    return s;
  }

  static std::optional<State> offset(State s, char byte) {
    constexpr int kUnit[] = {600, 60, 0, 10, 1};  // minutes
    const int place = s.place - kOffset;
    const int unit = kUnit[place];
    if ((unit == 0) != (byte == ':') || (unit != 0 && !is_digit(byte))) return std::nullopt;
    ++s.place;
    if (unit == 0) return s;
    const int digit = byte - '0';
    if (s.leap_second) {
      if (digit != s.value / unit) return std::nullopt;
      s.value = static_cast<std::int16_t>(s.value % unit);
    } else {
      if ((place == 0 && digit > 2) || (place == 1 && s.value == 2 && digit > 3) ||
          (place == 3 && digit > 5)) {
        return std::nullopt;
      }
      s.value = static_cast<std::int16_t>(place == 0 && digit == 2 ? 2 : 0);
    }
    if (s.place == kEnd) return State{.place = kEnd};
    return s;
  }
};

Dfa time_of_day() {
  return must(explore(Time::State{}, Time::kAlphabet, Time::step, Time::accepting, kLimits));
}

Dfa date_time() {
  return must(dfa_concat(must(dfa_concat(date(), whole("[Tt]"), kLimits)), time_of_day(), kLimits));
}

// RFC 3339, appendix A.
Dfa duration() {
  const std::string n = "[0-9]+";
  const std::string minute = n + "M(?:" + n + "S)?";
  const std::string time = "T(?:" + n + "H(?:" + minute + ")?|" + minute + "|" + n + "S)";
  const std::string month = n + "M(?:" + n + "D)?";
  const std::string date = "(?:" + n + "Y(?:" + month + ")?|" + month + "|" + n + "D)";
  return whole("P(?:" + date + "(?:" + time + ")?|" + time + "|" + n + "W)");
}

// ---- addresses

std::string ipv4() {
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return octet + "(?:\\." + octet + "){3}";
}

// Groups of up to four digits; `::` stands for at least `elided` groups; the last two may be an IPv4 address.
std::string ipv6(int elided) {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  // n groups with colons between them, of which the last two may be an IPv4 address.
  const auto groups = [&](int n) {
    if (n == 0) return std::string();
    std::string text = n == 1 ? group : concat(group, "(?::", group, "){", n - 1, "}");
    if (n >= 2) text += concat("|(?:", group, ":){", n - 2, "}", ipv4());
    return "(?:" + text + ")";
  };
  std::string all = groups(8);
  for (int left = 0; left <= 8 - elided; ++left) {
    std::string right;
    for (int n = 0; n <= 8 - elided - left; ++n) right += (n == 0 ? "" : "|") + groups(n);
    const std::string head = left == 0 ? "" : concat(group, "(?::", group, "){", left - 1, "}");
    all += "|" + head + "::(?:" + right + ")";
  }
  return "(?:" + all + ")";
}

// RFC 1123: labels of at most 63 letters, digits and inner hyphens, at most 253 characters in all.
struct HostName {
  std::uint8_t label = 0, total = 0;
  bool hyphen = false;
  auto operator<=>(const HostName&) const = default;

  static bool accepting(const HostName& s) { return s.label > 0 && !s.hyphen; }
  static std::optional<HostName> step(HostName s, char byte) {
    if (s.total == 253) return std::nullopt;
    ++s.total;
    if (byte == '.') {
      if (!accepting(s)) return std::nullopt;
      return HostName{.total = s.total};
    }
    if (s.label == 63 || (byte == '-' && s.label == 0)) return std::nullopt;
    ++s.label;
    s.hyphen = byte == '-';
    return s;
  }
};

Dfa hostname() {
  return must(explore(HostName{}, "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                      HostName::step, HostName::accepting, kLimits));
}

// Mailbox of RFC 5321, where a number of an IPv4 address may have leading zeros and `::` stands for two
// groups.
Dfa email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+\\-/=?^_`{|}~]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\"";
  const std::string name = "[A-Za-z0-9](?:[A-Za-z0-9\\-]*[A-Za-z0-9])?";
  const std::string number = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})";
  const std::string literal =
      "\\[(?:" + number + "(?:\\." + number + "){3}|[Ii][Pp][Vv]6:" + ipv6(2) + ")\\]";
  return whole("(?:" + atom + "(?:\\." + atom + ")*|" + quoted + ")@(?:" + name + "(?:\\." + name + ")*|" +
               literal + ")");
}

Dfa uuid() { return whole("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"); }

// ---- identifiers of resources: RFC 3986, and with more characters RFC 3987

constexpr std::string_view kUcs =
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{"
    "7FFFD}"
    "\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{"
    "CFFFD}"
    "\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}";
constexpr std::string_view kPrivate = "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";
constexpr std::string_view kEncoded = "%[0-9A-Fa-f]{2}";

struct Uri {
  std::string absolute, relative;

  explicit Uri(bool international) {
    const std::string unreserved = "A-Za-z0-9\\-._~" + std::string(international ? kUcs : "");
    const std::string some = unreserved + "!$&'()*+,;=";
    // One character of a set or one that is encoded.
    const auto one = [](const std::string& set) { return concat("(?:[", set, "]|", kEncoded, ")"); };
    const std::string pchar = one(some + ":@");
    const std::string host =
        "(?:\\[(?:" + ipv6(1) + "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9\\-._~!$&'()*+,;=:]+)\\]|" + one(some) + "*)";
    const std::string authority = "(?:" + one(some + ":") + "*@)?" + host + "(?::[0-9]*)?";
    const std::string segments = "(?:/" + pchar + "*)*";
    const std::string rooted = "//" + authority + segments + "|/(?:" + pchar + "+" + segments + ")?";
    const std::string query =
        "(?:\\?" + one(some + ":@/?" + std::string(international ? kPrivate : "")) + "*)?";
    const std::string fragment = "(?:#" + one(some + ":@/?") + "*)?";
    absolute =
        "[A-Za-z][A-Za-z0-9+\\-.]*:(?:" + rooted + "|" + pchar + "+" + segments + ")?" + query + fragment;
    // A first segment with a colon would be a scheme.
    relative = "(?:" + rooted + "|" + one(some + "@") + "+" + segments + ")?" + query + fragment;
  }
};

Dfa uri_template() {  // RFC 6570
  const std::string literal = "(?:[!#$&(-;=?-\\[\\]_a-z~" + std::string(kUcs) + std::string(kPrivate) + "]|" +
                              std::string(kEncoded) + ")";
  const std::string letter = "(?:[A-Za-z0-9_]|" + std::string(kEncoded) + ")";
  const std::string variable = letter + "(?:\\.?" + letter + ")*(?::[1-9][0-9]{0,3}|\\*)?";
  return whole("(?:" + literal + "|\\{[+#./;?&=,!@|]?" + variable + "(?:," + variable + ")*\\})*");
}

// ---- pointers: RFC 6901; the relative ones without index arithmetic, which later drafts have and draft 7
// has not

std::string pointer() { return "(?:/(?:[^~/]|~[01])*)*"; }

struct Format {
  std::string_view name;
  Dfa (*make)();
};

constexpr Format kFormats[] = {
    {"date", date},
    {"date-time", date_time},
    {"duration", duration},
    {"email", email},
    {"hostname", hostname},
    {"ipv4", [] { return whole(ipv4()); }},
    {"ipv6", [] { return whole(ipv6(1)); }},
    {"iri", [] { return whole(Uri(true).absolute); }},
    {"iri-reference", [] { return whole(Uri(true).absolute + "|" + Uri(true).relative); }},
    {"json-pointer", [] { return whole(pointer()); }},
    {"relative-json-pointer", [] { return whole("(?:0|[1-9][0-9]*)(?:#|" + pointer() + ")"); }},
    {"time", time_of_day},
    {"uri", [] { return whole(Uri(false).absolute); }},
    {"uri-reference", [] { return whole(Uri(false).absolute + "|" + Uri(false).relative); }},
    {"uri-template", uri_template},
    {"uuid", uuid},
};

}  // namespace

std::vector<std::string_view> known_formats() {
  std::vector<std::string_view> names;
  for (const Format& f : kFormats) names.push_back(f.name);
  return names;
}

DfaPtr format_dfa(std::string_view name) {
  const auto* format = std::ranges::find(kFormats, name, &Format::name);
  if (format == std::end(kFormats)) return nullptr;
  static std::mutex mutex;
  static std::map<std::string_view, DfaPtr> made;
  const std::scoped_lock lock(mutex);
  DfaPtr& dfa = made[format->name];
  if (dfa == nullptr) dfa = std::make_shared<const Dfa>(format->make());
  return dfa;
}

}  // namespace barg::text::grammar
