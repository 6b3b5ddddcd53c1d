// "%s" % x and "{}".format(x): Python's two ways to format.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

constexpr Int kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 500;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > = ^, or 0 for the type's own
  char sign = '-';
  bool alternate = false;
  char group = 0;  // , or _
  Int width = 0;
  int precision = -1;
  char type = 0;
};

std::string digits_of(Int v, int base, bool upper) {
  if (base == 10) return int_text(v).substr(v < 0);
  const char* const kDigits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  __extension__ typedef unsigned __int128 Unsigned;
  Unsigned u = v < 0 ? -static_cast<Unsigned>(v) : static_cast<Unsigned>(v);
  std::string out;
  do {
    out.insert(out.begin(), kDigits[static_cast<std::size_t>(u % static_cast<unsigned>(base))]);
    u /= static_cast<unsigned>(base);
  } while (u != 0);
  return out;
}

void insert_groups(std::string& number, char separator, std::size_t every) {
  std::size_t whole = 0;
  while (whole < number.size() && std::isxdigit(static_cast<unsigned char>(number[whole])) != 0) ++whole;
  for (std::size_t i = whole; i > every; i -= every) number.insert(i - every, 1, separator);
}

std::string float_digits(double d, char type, int precision, bool alternate) {
  const double magnitude = std::fabs(d);
  if (std::isnan(d)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(d)) return type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf";
  char format[16];
  std::snprintf(format, sizeof format, "%%%s.*%c", alternate ? "#" : "", type == 'n' ? 'g' : type);
  char buffer[1024];
  const int n = std::snprintf(buffer, sizeof buffer, format, precision, magnitude);
  return std::string(buffer, static_cast<std::size_t>(std::max(0, n)));
}

void add_padded(TextBuilder& out, const Spec& spec, std::string_view prefix, std::string_view body,
                char align) {
  const auto size = static_cast<Int>(prefix.size() + count_code_points(body));
  Int left = 0, right = 0, middle = 0;
  const Int missing = spec.width > size ? spec.width - size : 0;
  switch (align) {
    case '<':
      right = missing;
      break;
    case '^':
      left = missing / 2;
      right = missing - left;
      break;
    case '=':
      middle = missing;
      break;
    default:
      left = missing;
  }
  for (; left > 0; --left) out.add(spec.fill);
  out.add(prefix);
  for (; middle > 0; --middle) out.add(spec.fill);
  out.add(body);
  for (; right > 0; --right) out.add(spec.fill);
}

void add_text(Runtime& rt, TextBuilder& out, const Spec& spec, const Str& s) {
  const Str* text = &s;
  Value cut;
  if (spec.precision >= 0 && static_cast<std::size_t>(spec.precision) < s.chars) {
    cut = pystr::pick(rt, s, 0, 1, spec.precision);
    text = &cut.str();
  }
  const Int missing =
      spec.width > static_cast<Int>(text->chars) ? spec.width - static_cast<Int>(text->chars) : 0;
  const Int left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  for (Int i = 0; i < left; ++i) out.add(spec.fill);
  out.add(*text);
  for (Int i = left; i < missing; ++i) out.add(spec.fill);
}

std::string sign_of(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

void add_integer(TextBuilder& out, const Spec& spec, Int v) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  std::string prefix = sign_of(v < 0, spec);
  std::string digits = digits_of(v, base, spec.type == 'X');
  if (spec.precision > static_cast<int>(digits.size())) {
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.group != 0) insert_groups(digits, spec.group, base == 10 ? 3 : 4);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  add_padded(out, spec, prefix, digits, spec.align == 0 ? '>' : spec.align);
}

void add_float(TextBuilder& out, const Spec& spec, double d) {
  const bool percent = spec.type == '%';
  std::string digits;
  if (spec.type == 0 && spec.precision < 0) {
    digits = float_repr(std::fabs(d));
  } else {
    const char type = percent ? 'f' : spec.type == 0 ? 'g' : spec.type;
    digits =
        float_digits(percent ? d * 100 : d, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    if (spec.type == 0 && digits.find_first_of(".en") == digits.npos) digits += ".0";
  }
  if (spec.group != 0) insert_groups(digits, spec.group, 3);
  if (percent) digits += "%";
  add_padded(out, spec, sign_of(std::signbit(d) && !std::isnan(d), spec), digits,
             spec.align == 0 ? '>' : spec.align);
}

// ---- printf

class Percent {
 public:
  Percent(Runtime& rt, const Str& format, const Value& args) : rt_(rt), f_(format), args_(args), out_(rt) {}

  Value run() {
    const std::string& t = f_.text;
    std::size_t plain = 0;
    while (pos_ < t.size()) {
      if (t[pos_] != '%') {
        ++pos_;
        continue;
      }
      out_.add(f_, plain, pos_);
      ++pos_;
      conversion();
      plain = pos_;
    }
    out_.add(f_, plain, t.size());
    const bool mapping =
        args_.is(Kind::kDict) || args_.is(Kind::kList) || args_.is(Kind::kRange) || args_.is_undefined();
    const std::size_t given = args_.is(Kind::kTuple) ? args_.list().items.size() : 1;
    if (!mapping && used_ < given) type_error("not all arguments converted during string formatting");
    return out_.finish(f_.markup);
  }

 private:
  char take() {
    if (pos_ >= f_.text.size()) value_error("incomplete format");
    return f_.text[pos_++];
  }

  Value argument() {
    if (keyed_) return std::exchange(keyed_, std::nullopt).value();
    if (args_.is(Kind::kTuple)) {
      if (used_ >= args_.list().items.size()) type_error("not enough arguments for format string");
      return args_.list().items[used_++];
    }
    if (used_++ > 0) type_error("not enough arguments for format string");
    return args_;
  }

  Int number(char first) {
    if (first == '*') return as_index(argument(), "* wants int");
    Int n = first - '0';
    while (pos_ < f_.text.size() && f_.text[pos_] >= '0' && f_.text[pos_] <= '9') {
      n = n * 10 + (f_.text[pos_++] - '0');
      if (n > kMaxWidth) raise(RenderError::Type::kLimit, "a format's width is too large");
    }
    return n;
  }

  void key() {
    int open = 1;
    const std::size_t begin = pos_;
    while (open > 0) {
      const char c = take();
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    const std::string name = f_.text.substr(begin, pos_ - begin - 1);
    if (!args_.is_dict()) type_error("format requires a mapping");
    const Value* v = args_.dict().find(std::string_view(name));
    if (v == nullptr) raise(RenderError::Type::kLookup, "KeyError: '" + name + "'");
    keyed_ = *v;
  }

  void conversion() {
    Spec spec;
    bool zero = false;
    char c = take();
    if (c == '(') {
      key();
      c = take();
    }
    for (;; c = take()) {
      if (c == '-')
        spec.align = '<';
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        zero = true;
      else
        break;
    }
    if (c == '*' || (c >= '0' && c <= '9')) {
      spec.width = number(c);
      if (spec.width < 0) {
        spec.align = '<';
        spec.width = -spec.width;
      }
      if (spec.width > kMaxWidth) raise(RenderError::Type::kLimit, "a format's width is too large");
      c = take();
    }
    if (c == '.') {
      c = take();
      Int p = 0;
      if (c == '*' || (c >= '0' && c <= '9')) {
        p = number(c);
        c = take();
      }
      if (p > kMaxPrecision && c != 's')
        raise(RenderError::Type::kLimit, "a format's precision is too large");
      spec.precision = static_cast<int>(std::max<Int>(0, p));
    }
    while (c == 'h' || c == 'l' || c == 'L') c = take();
    convert(c, spec, zero);
  }

  void convert(char c, Spec& spec, bool zero) {
    if (c == '%') {
      out_.add("%");
      return;
    }
    const Value v = argument();
    const bool numeric = std::string_view("diuxXoeEfFgG").find(c) != std::string_view::npos;
    if (numeric && zero && spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    spec.type = c;
    switch (c) {
      case 's':
      case 'r': {
        Value text = c == 's' ? to_string(rt_, v) : repr(rt_, v);
        if (f_.markup) text = pystr::escape(rt_, text);
        if (spec.align == 0) spec.align = '>';
        add_text(rt_, out_, spec, text.str());
        return;
      }
      case 'c': {
        Value text = v;
        if (v.is_integral()) {
          if (v.as_int() < 0 || v.as_int() > 0x10FFFF || (v.as_int() >= 0xD800 && v.as_int() < 0xE000)) {
            raise(RenderError::Type::kOverflow, "%c arg not in range");
          }
          std::string one;
          append_utf8(one, static_cast<char32_t>(v.as_int()));
          text = rt_.string(std::move(one));
        } else if (!v.is_string() || v.str().chars != 1) {
          type_error("%c requires int or char");
        }
        if (spec.align == 0) spec.align = '>';
        add_text(rt_, out_, spec, text.str());
        return;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        integer(v, spec);
        return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        require_defined(v);
        if (!v.is_number()) type_error("must be real number, not " + std::string(type_name(v)));
        if (spec.precision < 0) spec.precision = 6;
        add_float(out_, spec, v.as_float());
        return;
      }
      default:
        value_error(std::string("unsupported format character '") + c + "'");
    }
  }

  void integer(const Value& v, Spec& spec) {
    require_defined(v);
    if (!v.is_number()) {
      type_error(std::string("%") + spec.type + " format: a real number is required, not " +
                 std::string(type_name(v)));
    }
    const bool radix = spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
    if (v.is(Kind::kFloat)) {
      if (radix) type_error(std::string("%") + spec.type + " format: an integer is required, not float");
      if (!std::isfinite(v.as_float()))
        raise(RenderError::Type::kOverflow, "cannot convert float to integer");
      if (std::fabs(v.as_float()) >= 0x1p126) raise(RenderError::Type::kOverflow, "an integer is too large");
    }
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    add_integer(out_, spec, v.is(Kind::kFloat) ? static_cast<Int>(v.as_float()) : v.as_int());
  }

  Runtime& rt_;
  const Str& f_;
  const Value& args_;
  TextBuilder out_;
  std::size_t pos_ = 0, used_ = 0;
  std::optional<Value> keyed_;
};

// ---- str.format

Spec parse_spec(std::string_view s) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  std::size_t i = 0;
  if (!s.empty()) {
    std::size_t second = 0;
    decode(s, second);
    if (second < s.size() && is_align(s[second])) {
      spec.fill = s.substr(0, second);
      spec.align = s[second];
      i = second + 1;
    } else if (is_align(s[0])) {
      spec.align = s[0];
      i = 1;
    }
  }
  const auto at = [&](char c) { return i < s.size() && s[i] == c; };
  const auto number = [&] {
    Int n = 0;
    while (i < s.size() && s[i] >= '0' && s[i] <= '9') {
      n = n * 10 + (s[i++] - '0');
      if (n > kMaxWidth) raise(RenderError::Type::kLimit, "a format's width is too large");
    }
    return n;
  };
  if (at('+') || at('-') || at(' ')) spec.sign = s[i++];
  if (at('#')) spec.alternate = s[i++] != 0;
  if (at('0')) {
    ++i;
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = number();
  if (at(',') || at('_')) spec.group = s[i++];
  if (at('.')) {
    ++i;
    if (i >= s.size() || s[i] < '0' || s[i] > '9') value_error("Format specifier missing precision");
    spec.precision = static_cast<int>(std::min<Int>(number(), kMaxWidth));
  }
  if (i < s.size()) spec.type = s[i++];
  if (i < s.size()) value_error("Invalid format specifier");
  return spec;
}

void format_value(Runtime& rt, TextBuilder& out, const Value& v, std::string_view text) {
  if (text.empty()) {
    append_str(rt, out, v);
    return;
  }
  Spec spec = parse_spec(text);
  const auto any_of = [&](std::string_view types) {
    return spec.type == 0 || types.find(spec.type) != types.npos;
  };
  const auto unknown = [&] {
    value_error(std::string("Unknown format code '") + spec.type + "' for object of type '" +
                std::string(type_name(v)) + "'");
  };
  if (v.is_string()) {
    if (!any_of("s")) unknown();
    if (spec.align == '=') value_error("'=' alignment not allowed in string format specifier");
    add_text(rt, out, spec, v.str());
  } else if (v.is_integral() && any_of("bcdoxXn")) {
    if (spec.precision >= 0) value_error("Precision not allowed in integer format specifier");
    if (spec.type == 'c') raise(RenderError::Type::kTemplate, "the format 'c' is not supported");
    add_integer(out, spec, v.as_int());
  } else if (v.is_number() && any_of("eEfFgGn%")) {
    if (spec.precision > kMaxPrecision) raise(RenderError::Type::kLimit, "a format's precision is too large");
    add_float(out, spec, v.as_float());
  } else if (v.is_number()) {
    unknown();
  } else {
    type_error("unsupported format string passed to " + std::string(type_name(v)) + ".__format__");
  }
}

class Braces {
 public:
  Braces(Runtime& rt, bool markup, const CallArgs& args) : rt_(rt), markup_(markup), args_(args) {}

  void run(const Str& format, TextBuilder& out, int depth) {
    if (depth > 2) value_error("Max string recursion exceeded");
    const std::string& t = format.text;
    std::size_t plain = 0;
    for (std::size_t i = 0; i < t.size();) {
      if (t[i] != '{' && t[i] != '}') {
        ++i;
        continue;
      }
      out.add(format, plain, i);
      if (i + 1 < t.size() && t[i + 1] == t[i]) {
        out.add(format, i, i + 1);
        i += 2;
      } else if (t[i] == '}') {
        value_error("Single '}' encountered in format string");
      } else {
        i = field(format, i + 1, out, depth);
      }
      plain = i;
    }
    out.add(format, plain, t.size());
  }

 private:
  // From behind the '{' to behind its '}'.
  std::size_t field(const Str& format, std::size_t begin, TextBuilder& out, int depth) {
    const std::string& t = format.text;
    std::size_t end = begin;
    for (int open = 1; end < t.size(); ++end) {
      open += t[end] == '{' ? 1 : t[end] == '}' ? -1 : 0;
      if (open == 0) break;
    }
    if (end >= t.size()) value_error("expected '}' before end of string");
    const std::string_view whole(t.data() + begin, end - begin);
    std::size_t name_end = 0;
    while (name_end < whole.size() && whole[name_end] != ':' && whole[name_end] != '!') {
      if (whole[name_end] == '[') {
        while (name_end < whole.size() && whole[name_end] != ']') ++name_end;
      }
      if (name_end < whole.size()) ++name_end;
    }
    std::string_view rest = whole.substr(name_end);
    char conversion = 0;
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        value_error("bad conversion in format string");
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    Value v = lookup(whole.substr(0, name_end));
    if (conversion == 's')
      v = to_string(rt_, v);
    else if (conversion == 'r')
      v = repr(rt_, v);
    else if (conversion != 0)
      value_error("unknown conversion in format string");
    TextBuilder spec(rt_);
    if (rest.starts_with(':')) run(rt_.string(rest.substr(1)).str(), spec, depth + 1);
    if (!markup_) {
      format_value(rt_, out, v, spec.text());
      return end + 1;
    }
    TextBuilder one(rt_);
    format_value(rt_, one, v, spec.text());
    const bool safe = v.is_string() && v.str().markup;
    out.add(safe ? one.finish(true).str() : pystr::escape(rt_, one.finish()).str());
    return end + 1;
  }

  Value first(std::string_view name) {
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    if (name.empty() || number) {
      const int mode = name.empty() ? 1 : 2;
      if (mode_ != 0 && mode_ != mode)
        value_error("cannot switch between manual and automatic field numbering");
      mode_ = mode;
      if (name.size() > 9) value_error("Too many decimal digits in format string");
      const std::size_t i = name.empty() ? next_++ : static_cast<std::size_t>(std::stoul(std::string(name)));
      if (i >= args_.positional.size())
        raise(RenderError::Type::kLookup, "Replacement index " + std::to_string(i) + " out of range");
      return args_.positional[i];
    }
    for (const auto& [key, v] : args_.named) {
      if (key == name) return v;
    }
    raise(RenderError::Type::kLookup, "KeyError: '" + std::string(name) + "'");
  }

  Value lookup(std::string_view name) {
    std::size_t i = std::min(name.find_first_of(".["), name.size());
    Value v = first(name.substr(0, i));
    while (i < name.size()) {
      const bool item = name[i] == '[';
      const std::size_t begin = i + 1;
      const std::size_t end =
          item ? name.find(']', begin) : std::min(name.find_first_of(".[", begin), name.size());
      if (end == name.npos || end == begin) value_error("Empty attribute in format string");
      const std::string_view key = name.substr(begin, end - begin);
      const bool number = item && key.size() < 10 && key.find_first_not_of("0123456789") == key.npos;
      if (!item)
        v = get_attribute(rt_, v, rt_.string(key));
      else
        v = get_item(rt_, v, number ? Value::integer(std::stol(std::string(key))) : rt_.string(key));
      i = item ? end + 1 : end;
      if (item && i < name.size() && name[i] != '.' && name[i] != '[') {
        value_error("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

  Runtime& rt_;
  bool markup_;
  const CallArgs& args_;
  std::size_t next_ = 0;
  int mode_ = 0;
};

}  // namespace

Value percent_format(Runtime& rt, const Str& format, const Value& args) {
  return Percent(rt, format, args).run();
}

Value brace_format(Runtime& rt, const Str& format, const CallArgs& args) {
  TextBuilder out(rt);
  Braces(rt, format.markup, args).run(format, out, 0);
  return out.finish(format.markup);
}

}  // namespace barg::text::jinja
