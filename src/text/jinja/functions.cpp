// Global functions.
#include <ctime>

#include "text/jinja/builtins.h"

namespace barg::text::jinja {

namespace {

constexpr Int kMaxRange = 100'000;  // the sandbox's own limit
constexpr std::size_t kMaxTimeFormat = 1024;

Value range(Runtime& rt, Args& args) {
  const CallArgs& raw = args.raw();
  const std::size_t n = raw.positional.size();
  if (!raw.named.empty()) type_error("range() takes no keyword arguments");
  if (n < 1 || n > 3) type_error("range expected 1 to 3 arguments, got " + std::to_string(n));
  Int v[3] = {0, 0, 1};
  for (std::size_t i = 0; i < n; ++i) {
    v[n == 1 ? 1 : i] = as_index(raw.positional[i], "range");
    const Int x = v[n == 1 ? 1 : i];
    if (x > INT64_MAX || x < INT64_MIN) raise(RenderError::Type::kOverflow, "an integer is too large");
  }
  if (v[2] == 0) value_error("range() arg 3 must not be zero");
  const Value r = rt.range(v[0], v[1], v[2]);
  if (length(rt, r) > kMaxRange) {
    raise(RenderError::Type::kOverflow, "Range too big. The sandbox blocks ranges larger than 100000.");
  }
  return r;
}

Dict make_dict(Runtime& rt, CallArgs& raw, const char* who) {
  Dict dict;
  if (raw.positional.size() > 1) type_error(std::string(who) + " expected at most 1 argument");
  if (!raw.positional.empty()) {
    const Value& from = raw.positional[0];
    require_defined(from);
    if (from.is_dict()) {
      dict = from.dict();
    } else {
      for (const Value& item : iterate(rt, from)) {
        std::vector<Value> pair = iterate(rt, item);
        if (pair.size() != 2) value_error("dictionary update sequence element must have length 2");
        if (!is_hashable(pair[0])) type_error("unhashable type: '" + std::string(type_name(pair[0])) + "'");
        rt.step(1 + (pair[0].is_string() ? 0 : dict.items.size() / 4));
        dict.set(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (auto& [name, v] : raw.named) dict.set(rt.string(name), std::move(v));
  return dict;
}

Value dict(Runtime& rt, Args& args) { return rt.dict(make_dict(rt, args.raw(), "dict")); }

Value make_namespace(Runtime& rt, Args& args) {
  Dict attributes = make_dict(rt, args.raw(), "namespace");
  rt.charge(sizeof(Namespace) + attributes.items.size() * 2 * sizeof(Value));
  auto ns = std::make_shared<Namespace>();
  ns->attributes = std::move(attributes);
  rt.keep(ns);
  return Value(Kind::kNamespace, std::move(ns));
}

Value cycler(Runtime& rt, Args& args) {
  if (args.raw().positional.empty()) type_error("at least one item has to be provided");
  rt.charge(sizeof(Cycler));
  auto c = std::make_shared<Cycler>();
  int deepest = 0;
  for (const Value& v : args.raw().positional) deepest = std::max(deepest, v.depth());
  c->depth = rt.checked_depth(deepest);
  c->items = std::move(args.raw().positional);
  return Value(Kind::kCycler, std::move(c));
}

Value joiner(Runtime& rt, Args& args) {
  rt.charge(sizeof(Joiner));
  auto j = std::make_shared<Joiner>();
  j->separator = args.has(0) ? args[0] : rt.string(", ");
  j->depth = rt.checked_depth(j->separator.depth());
  return Value(Kind::kJoiner, std::move(j));
}

Value raise_exception(Runtime& rt, Args& args) {
  raise(RenderError::Type::kTemplate, to_string(rt, args[0]).text());
}

Value strftime_now(Runtime& rt, Args& args) {
  std::string format = args.text(0).text;
  if (format.size() > kMaxTimeFormat)
    raise(RenderError::Type::kLimit, "strftime_now: the format is too long");
  std::tm now{};
  if (rt.options().now) {
    now = *rt.options().now;
    // Fills in the weekday and the day of the year.
    std::tm copy = now;
    if (timegm(&copy) != -1) {
      now.tm_wday = copy.tm_wday;
      now.tm_yday = copy.tm_yday;
    }
  } else {
    const std::time_t t = std::time(nullptr);
    localtime_r(&t, &now);
  }
  // A naive datetime has no zone and, here, no microseconds; glibc would print its own, and pad without
  // bound.
  std::string plain;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain += format[i];
    } else if (const char c = format[++i]; c == 'f') {
      plain += "000000";
    } else if (c != 'z' && c != 'Z') {
      if (c >= '0' && c <= '9') value_error("strftime_now: widths are not supported");
      plain += {'%', c};
    }
  }
  if (plain.empty()) return rt.string("");
  std::string out(8 * plain.size() + 1024, '\0');
  out.resize(std::strftime(out.data(), out.size(), plain.c_str(), &now));
  return rt.string(std::move(out), {});
}

constexpr FunctionRow kFunctions[] = {
    {"range", "*", range},
    {"dict", "*", dict},
    {"namespace", "*", make_namespace},
    {"cycler", "*", cycler},
    {"joiner", "sep?", joiner},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
    {"lipsum", "*", nullptr},
};

}  // namespace

std::span<const FunctionRow> functions() { return kFunctions; }

}  // namespace barg::text::jinja
