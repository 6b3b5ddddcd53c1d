// Filters on text.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

using pystr::Case;

template <Case how>
Value case_filter(Runtime& rt, const Value& v, Args&) {
  return pystr::change_case(rt, to_string(rt, v).str(), how);
}

// Words begin after -, whitespace and opening brackets; not str.title().
Value title(Runtime& rt, const Value& v, Args&) {
  const Value text = to_string(rt, v);
  const Str& s = text.str();
  TextBuilder out(rt);
  const auto separator = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
  };
  for (std::size_t i = 0; i < s.text.size();) {
    const std::size_t begin = i;
    const bool gap = separator(decode(s.text, i));
    std::size_t first_end = i;
    while (i < s.text.size()) {
      std::size_t next = i;
      if (separator(decode(s.text, next)) != gap) break;
      i = next;
    }
    rt.step();
    if (gap) {
      out.add(s, begin, i);
      continue;
    }
    const Value first = pystr::substring(rt, s, begin, first_end);
    const Value rest = pystr::substring(rt, s, first_end, i);
    out.add(pystr::change_case(rt, first.str(), Case::kUpper).str());
    out.add(pystr::change_case(rt, rest.str(), Case::kLower).str());
  }
  return out.finish();
}

Value trim(Runtime& rt, const Value& v, Args& args) {
  const Value text = to_string(rt, v);
  return pystr::strip(rt, text.str(), args.optional_text(0), true, true);
}

Value plain(Runtime& rt, const Value& v) {
  const Value text = to_string(rt, v);
  return text.str().markup ? rt.string(text.text(), text.str().marks) : text;
}

Value replace(Runtime& rt, const Value& v, Args& args) {
  const Int count = args.has(2) && !args[2].is_none() ? args.integer(2, -1) : -1;
  const Value s = plain(rt, v), from = plain(rt, args[0]), to = plain(rt, args[1]);
  return pystr::replace(rt, s.str(), from.str(), to.str(), count);
}

Value string(Runtime& rt, const Value& v, Args&) { return to_string(rt, v); }

Value safe(Runtime& rt, const Value& v, Args&) {
  const Value text = to_string(rt, v);
  return text.str().markup ? text : rt.string(text.text(), text.str().marks, true);
}

Value escape(Runtime& rt, const Value& v, Args&) { return pystr::escape(rt, v); }
Value force_escape(Runtime& rt, const Value& v, Args&) { return pystr::escape(rt, plain(rt, v)); }

Value center(Runtime& rt, const Value& v, Args& args) {
  const Value text = to_string(rt, v);
  const Int width = args.integer(0, 80), size = static_cast<Int>(text.str().chars);
  const Int total = width > size ? width - size : 0;
  // CPython puts the odd space left when the width is odd.
  const Int left = total / 2 + (total & width & 1);
  return pystr::pad(rt, text.str(), make_literal(" ").str(), left, total - left);
}

Value indent(Runtime& rt, const Value& v, Args& args) {
  require_defined(v);
  if (!v.is_string())
    type_error("unsupported operand type(s) for +=: '" + std::string(type_name(v)) + "' and 'str'");
  const Value width = !args.has(0) ? make_literal("    ")
                      : args[0].is_string()
                          ? args[0]
                          : pystr::repeat(rt, make_literal(" ").str(), as_index(args[0], "width"));
  const bool first = args.truth(1, false), blank = args.truth(2, false);
  const bool markup = v.str().markup;
  const Value padding =
      markup && !width.str().markup ? rt.string(width.text(), width.str().marks, true) : width;
  const Value text = pystr::concat(rt, v.str(), rt.string("\n", {}, markup).str());
  const std::vector<Value> lines = pystr::splitlines(rt, text.str(), false);
  TextBuilder out(rt);
  if (first) out.add(padding.str());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) {
      out.add("\n");
      if (blank || !lines[i].text().empty()) out.add(padding.str());
    }
    out.add(lines[i].str());
  }
  return out.finish(markup);
}

Value truncate(Runtime& rt, const Value& v, Args& args) {
  const Int length_wanted = args.integer(0, 255);
  const bool kill_words = args.truth(1, false);
  const Value end = args.has(2) ? args[2] : make_literal("...");
  const Int leeway = args.has(3) && !args[3].is_none() ? args.integer(3, 5) : 5;
  const Int end_size = length(rt, end);
  if (length_wanted < end_size)
    raise(RenderError::Type::kTemplate, "truncate: the length is shorter than the end");
  if (leeway < 0) raise(RenderError::Type::kTemplate, "truncate: negative leeway");
  if (length(rt, v) <= length_wanted + leeway) return v;
  if (!v.is_string() || !end.is_string()) type_error("truncate wants a string");
  const Str& s = v.str();
  const Value cut = pystr::pick(rt, s, 0, 1, length_wanted - end_size);
  if (kill_words) return pystr::concat(rt, cut.str(), end.str());
  const std::vector<Value> parts = pystr::rsplit(rt, cut.str(), &make_literal(" ").str(), 1);
  return pystr::concat(rt, parts[0].str(), end.str());
}

Value word_count(Runtime& rt, const Value& v, Args&) {
  const Value text = to_string(rt, v);
  Int count = 0;
  bool inside = false;
  rt.step(1 + text.str().chars / 16);
  for (std::size_t i = 0; i < text.text().size();) {
    const char32_t c = decode(text.text(), i);
    const bool word = c == '_' || is_alnum(c);
    count += word && !inside;
    inside = word;
  }
  return Value::integer(count);
}

Value join(Runtime& rt, const Value& v, Args& args) {
  const Value separator = args.has(0) ? plain(rt, args[0]) : rt.string("");
  std::vector<Value> items = iterate(rt, v);
  if (args.has(1) && !args[1].is_none()) {
    CallArgs map;
    map.named.emplace_back("attribute", args[1]);
    items =
        iterate(rt, apply_filter(rt, find_filter("map"), "map", rt.list(std::move(items)), std::move(map)));
  }
  TextBuilder out(rt);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.add(separator.str());
    append_str(rt, out, items[i]);
  }
  return out.finish();
}

Value format(Runtime& rt, const Value& v, Args& args) {
  CallArgs& raw = args.raw();
  const Value text = to_string(rt, v);
  if (!raw.named.empty() && !raw.positional.empty()) {
    type_error("can't handle positional and keyword arguments at the same time");
  }
  if (raw.named.empty()) return percent_format(rt, text.str(), rt.tuple(std::move(raw.positional)));
  Dict dict;
  for (auto& [name, value] : raw.named) dict.set(rt.string(name), std::move(value));
  return percent_format(rt, text.str(), rt.dict(std::move(dict)));
}

void quote_url(Runtime& rt, TextBuilder& out, const Value& v, bool query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  const Value text = to_string(rt, v);
  std::string quoted;
  rt.step(1 + text.text().size() / 16);
  for (char c : text.text()) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain =
        (u < 0x80 && is_alnum(u)) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) {
      quoted += c;
    } else if (c == ' ' && query) {
      quoted += '+';
    } else {
      quoted += '%';
      quoted += kHex[u >> 4];
      quoted += kHex[u & 15];
    }
  }
  out.add(quoted, !text.str().marks.empty());
}

Value url_encode(Runtime& rt, const Value& v, Args&) {
  TextBuilder out(rt);
  if (v.is_string() || !is_iterable(v)) {
    quote_url(rt, out, v, false);
    return out.finish();
  }
  std::vector<Value> items;
  if (v.is_dict()) {
    for (const auto& [k, x] : v.dict().items) items.push_back(rt.tuple({k, x}));
  } else {
    items = iterate(rt, v);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::vector<Value> pair = iterate(rt, items[i]);
    if (pair.size() != 2) value_error("urlencode wants pairs");
    if (i != 0) out.add("&");
    quote_url(rt, out, pair[0], true);
    out.add("=");
    quote_url(rt, out, pair[1], true);
  }
  return out.finish();
}

Value xml_attributes(Runtime& rt, const Value& v, Args& args) {
  require_defined(v);
  if (!v.is_dict()) type_error("xmlattr wants a mapping");
  TextBuilder out(rt);
  for (const auto& [k, x] : v.dict().items) {
    if (x.is_none() || x.is_undefined()) continue;
    if (!k.is_string()) type_error("expected string or bytes-like object");
    if (k.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      value_error("Invalid character in attribute name");
    if (out.size() != 0 || args.truth(0, true)) out.add(" ");
    out.add(pystr::escape(rt, k).str());
    out.add("=\"");
    out.add(pystr::escape(rt, x).str());
    out.add("\"");
  }
  return out.finish();
}

Value json(Runtime& rt, const Value& v, Args& args) { return to_json(rt, v, args); }

constexpr FilterRow kFilters[] = {
    {"capitalize", "", case_filter<Case::kCapitalize>},
    {"center", "width?", center},
    {"e", "", escape},
    {"escape", "", escape},
    {"forceescape", "", force_escape},
    {"format", "*", format},
    {"indent", "width? first? blank?", indent},
    {"join", "d? attribute?", join},
    {"lower", "", case_filter<Case::kLower>},
    {"replace", "old new count?", replace},
    {"safe", "", safe},
    {"string", "", string},
    {"title", "", title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", json},
    {"trim", "chars?", trim},
    {"truncate", "length? killwords? end? leeway?", truncate},
    {"upper", "", case_filter<Case::kUpper>},
    {"urlencode", "", url_encode},
    {"wordcount", "", word_count},
    {"xmlattr", "autospace?", xml_attributes},
    {"pprint", "*", nullptr},
    {"striptags", "*", nullptr},
    {"urlize", "*", nullptr},
    {"wordwrap", "*", nullptr},
};

}  // namespace

std::span<const FilterRow> text_filters() { return kFilters; }

}  // namespace barg::text::jinja
