// Methods of str.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

using pystr::Case;

template <Case how>
Value change(Runtime& rt, const Value& v, Args&) {
  return pystr::change_case(rt, v.str(), how);
}

template <bool left, bool right>
Value strip(Runtime& rt, const Value& v, Args& args) {
  return pystr::strip(rt, v.str(), args.optional_text(0), left, right);
}

template <bool from_right>
Value split(Runtime& rt, const Value& v, Args& args) {
  const auto fn = from_right ? pystr::rsplit : pystr::split;
  return rt.list(fn(rt, v.str(), args.optional_text(0), args.integer(1, -1)));
}

Value split_lines(Runtime& rt, const Value& v, Args& args) {
  return rt.list(pystr::splitlines(rt, v.str(), args.truth(0, false)));
}

Value replace(Runtime& rt, const Value& v, Args& args) {
  return pystr::replace(rt, v.str(), args.text(0), args.text(1), args.integer(2, -1));
}

Value join(Runtime& rt, const Value& v, Args& args) {
  if (!is_iterable(args[0])) type_error("can only join an iterable");
  return pystr::join(rt, v.str(), iterate(rt, args[0]));
}

struct Span {
  std::size_t begin = 0, end = 0;
  bool empty = false;  ///< start lies behind the end: nothing matches, not even ""
};

// The [start, end) arguments of find, count, startswith, ... as byte offsets.
Span span_of(Runtime& rt, const Str& s, const Args& args, std::size_t at) {
  const Int n = static_cast<Int>(s.chars);
  const auto clip = [&](std::size_t i, Int fallback) {
    Int x = !args.has(i) || args[i].is_none() ? fallback : as_index(args[i], "slice index");
    if (x < 0) x = std::max<Int>(0, x + n);
    return x;
  };
  const Int begin = clip(at, 0), end = std::min(clip(at + 1, n), n);
  if (begin > end) return {0, 0, true};
  return {pystr::byte_offset(rt, s, static_cast<std::size_t>(begin)),
          pystr::byte_offset(rt, s, static_cast<std::size_t>(end)), false};
}

// Code point index of the first (last) match, -1 if none.
Int search(Runtime& rt, const Str& s, const Args& args, bool from_right) {
  const std::string& needle = args.text(0).text;
  const Span span = span_of(rt, s, args, 1);
  if (span.empty) return -1;
  rt.step(1 + s.text.size() / 64);
  const std::string_view hay = std::string_view(s.text).substr(span.begin, span.end - span.begin);
  const std::size_t at = from_right ? hay.rfind(needle) : hay.find(needle);
  if (at == hay.npos) return -1;
  return static_cast<Int>(count_code_points(std::string_view(s.text).substr(0, span.begin + at)));
}

template <bool from_right>
Value find(Runtime& rt, const Value& v, Args& args) {
  return Value::integer(search(rt, v.str(), args, from_right));
}

template <bool from_right>
Value index(Runtime& rt, const Value& v, Args& args) {
  const Int at = search(rt, v.str(), args, from_right);
  if (at < 0) value_error("substring not found");
  return Value::integer(at);
}

Value count(Runtime& rt, const Value& v, Args& args) {
  const std::string& needle = args.text(0).text;
  const Span span = span_of(rt, v.str(), args, 1);
  if (span.empty) return Value::integer(0);
  const std::string_view hay = std::string_view(v.text()).substr(span.begin, span.end - span.begin);
  rt.step(1 + hay.size() / 64);
  if (needle.empty()) return Value::integer(static_cast<Int>(count_code_points(hay)) + 1);
  Int n = 0;
  for (std::size_t at = hay.find(needle); at != hay.npos; at = hay.find(needle, at + needle.size())) ++n;
  return Value::integer(n);
}

template <bool prefix>
Value affix(Runtime& rt, const Value& v, Args& args) {
  const Span span = span_of(rt, v.str(), args, 1);
  const std::string_view hay = std::string_view(v.text()).substr(span.begin, span.end - span.begin);
  const auto matches = [&](const Value& needle) {
    require_defined(needle);
    if (!needle.is_string()) {
      type_error(std::string(prefix ? "startswith" : "endswith") +
                 " first arg must be str or a tuple of str, not " + std::string(type_name(needle)));
    }
    return !span.empty && (prefix ? hay.starts_with(needle.text()) : hay.ends_with(needle.text()));
  };
  if (!args[0].is(Kind::kTuple)) return Value::boolean(matches(args[0]));
  const auto& any = args[0].list().items;
  return Value::boolean(std::any_of(any.begin(), any.end(), matches));
}

template <bool prefix>
Value remove_affix(Runtime& rt, const Value& v, Args& args) {
  const Str& s = v.str();
  const std::string& affix_text = args.text(0).text;
  const bool matches = prefix ? s.text.starts_with(affix_text) : s.text.ends_with(affix_text);
  const std::size_t cut = matches ? affix_text.size() : 0;
  return pystr::substring(rt, s, prefix ? cut : 0, s.text.size() - (prefix ? 0 : cut));
}

template <bool from_right>
Value partition(Runtime& rt, const Value& v, Args& args) {
  const Str& s = v.str();
  const Str& separator = args.text(0);
  if (separator.text.empty()) value_error("empty separator");
  const std::size_t at = from_right ? s.text.rfind(separator.text) : s.text.find(separator.text);
  const Value none = pystr::substring(rt, s, 0, 0);
  if (at == s.text.npos) return from_right ? rt.tuple({none, none, v}) : rt.tuple({v, none, none});
  const std::size_t behind = at + separator.text.size();
  return rt.tuple({pystr::substring(rt, s, 0, at), pystr::substring(rt, s, at, behind),
                   pystr::substring(rt, s, behind, s.text.size())});
}

enum class Side { kLeft, kRight, kCenter };

template <Side side>
Value justify(Runtime& rt, const Value& v, Args& args) {
  const Str& s = v.str();
  const Int width = args.integer(0, 0), size = static_cast<Int>(s.chars);
  const Value space = make_literal(" ");
  const Str& fill = args.has(1) ? args.text(1) : space.str();
  if (fill.chars != 1) type_error("The fill character must be exactly one character long");
  const Int total = width > size ? width - size : 0;
  const Int left = side == Side::kLeft ? 0 : side == Side::kRight ? total : total / 2 + (total & width & 1);
  return pystr::pad(rt, s, fill, left, total - left);
}

Value zero_fill(Runtime& rt, const Value& v, Args& args) {
  const Str& s = v.str();
  const Int width = args.integer(0, 0), size = static_cast<Int>(s.chars);
  const Value zeros = pystr::repeat(rt, make_literal("0").str(), width - size);
  const std::size_t sign = !s.text.empty() && (s.text[0] == '-' || s.text[0] == '+') ? 1 : 0;
  TextBuilder out(rt);
  out.add(s, 0, sign);
  out.add(zeros.str());
  out.add(s, sign, s.text.size());
  return out.finish(s.markup);
}

Value expand_tabs(Runtime& rt, const Value& v, Args& args) {
  const Str& s = v.str();
  const Int every = args.integer(0, 8);
  TextBuilder out(rt);
  Int column = 0;
  for (std::size_t i = 0; i < s.text.size();) {
    const std::size_t begin = i;
    const char32_t c = decode(s.text, i);
    rt.step();
    if (c == '\t') {
      if (every > 0) {
        const Int fill = every - column % every;
        column += fill;
        out.add(pystr::repeat(rt, make_literal(" ").str(), fill).str());
      }
      continue;
    }
    out.add(s, begin, i);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return out.finish(s.markup);
}

template <bool (*predicate)(char32_t)>
Value all(Runtime& rt, const Value& v, Args&) {
  const std::string& s = v.text();
  rt.step(1 + s.size() / 16);
  bool yes = !s.empty();
  for (std::size_t i = 0; yes && i < s.size();) yes = predicate(decode(s, i));
  return Value::boolean(yes);
}

bool alnum(char32_t c) { return is_alnum(c); }

Value is_ascii(Runtime&, const Value& v, Args&) { return Value::boolean(v.str().ascii()); }

Value printable(Runtime& rt, const Value& v, Args& args) {
  return v.text().empty() ? Value::boolean(true) : all<is_printable>(rt, v, args);
}

template <bool upper>
Value cased(Runtime& rt, const Value& v, Args&) {
  return Value::boolean(apply_test(rt, find_test(upper ? "upper" : "lower"), "", v, {}));
}

Value is_title_text(Runtime& rt, const Value& v, Args&) {
  const std::string& s = v.text();
  rt.step(1 + s.size() / 16);
  bool any = false, in_word = false;
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = decode(s, i);
    if (is_upper(c) || is_title(c)) {
      if (in_word) return Value::boolean(false);
      in_word = any = true;
    } else if (is_lower(c)) {
      if (!in_word) return Value::boolean(false);
      any = true;
    } else {
      in_word = false;
    }
  }
  return Value::boolean(any);
}

Value format(Runtime& rt, const Value& v, Args& args) { return brace_format(rt, v.str(), args.raw()); }

Value format_map(Runtime& rt, const Value& v, Args& args) {
  if (!args[0].is_dict()) type_error("format_map() wants a mapping");
  CallArgs call;
  for (const auto& [k, x] : args[0].dict().items) {
    if (k.is_string()) call.named.emplace_back(k.text(), x);
  }
  return brace_format(rt, v.str(), call);
}

constexpr Kind kStr = Kind::kString;
constexpr MethodRow kMethods[] = {
    {kStr, "capitalize", "", change<Case::kCapitalize>},
    {kStr, "casefold", "", change<Case::kFold>},
    {kStr, "center", "width fillchar?", justify<Side::kCenter>},
    {kStr, "count", "sub start? end?", count},
    {kStr, "encode", "*", nullptr},
    {kStr, "endswith", "suffix start? end?", affix<false>},
    {kStr, "expandtabs", "tabsize?", expand_tabs},
    {kStr, "find", "sub start? end?", find<false>},
    {kStr, "format", "*", format},
    {kStr, "format_map", "mapping", format_map},
    {kStr, "index", "sub start? end?", index<false>},
    {kStr, "isalnum", "", all<alnum>},
    {kStr, "isalpha", "", all<is_alpha>},
    {kStr, "isascii", "", is_ascii},
    {kStr, "isdecimal", "", all<is_decimal>},
    {kStr, "isdigit", "", all<is_digit>},
    {kStr, "isidentifier", "*", nullptr},
    {kStr, "islower", "", cased<false>},
    {kStr, "isnumeric", "", all<is_numeric>},
    {kStr, "isprintable", "", printable},
    {kStr, "isspace", "", all<is_space>},
    {kStr, "istitle", "", is_title_text},
    {kStr, "isupper", "", cased<true>},
    {kStr, "join", "iterable", join},
    {kStr, "ljust", "width fillchar?", justify<Side::kLeft>},
    {kStr, "lower", "", change<Case::kLower>},
    {kStr, "lstrip", "chars?", strip<true, false>},
    {kStr, "maketrans", "*", nullptr},
    {kStr, "partition", "sep", partition<false>},
    {kStr, "removeprefix", "prefix", remove_affix<true>},
    {kStr, "removesuffix", "suffix", remove_affix<false>},
    {kStr, "replace", "old new count?", replace},
    {kStr, "rfind", "sub start? end?", find<true>},
    {kStr, "rindex", "sub start? end?", index<true>},
    {kStr, "rjust", "width fillchar?", justify<Side::kRight>},
    {kStr, "rpartition", "sep", partition<true>},
    {kStr, "rsplit", "sep? maxsplit?", split<true>},
    {kStr, "rstrip", "chars?", strip<false, true>},
    {kStr, "split", "sep? maxsplit?", split<false>},
    {kStr, "splitlines", "keepends?", split_lines},
    {kStr, "startswith", "prefix start? end?", affix<true>},
    {kStr, "strip", "chars?", strip<true, true>},
    {kStr, "swapcase", "", change<Case::kSwap>},
    {kStr, "title", "", change<Case::kTitle>},
    {kStr, "translate", "*", nullptr},
    {kStr, "upper", "", change<Case::kUpper>},
    {kStr, "zfill", "width", zero_fill},
};

}  // namespace

std::span<const MethodRow> string_methods() { return kMethods; }

}  // namespace barg::text::jinja
