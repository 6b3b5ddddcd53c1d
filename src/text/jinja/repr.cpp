// str() and repr() as Python prints them.
#include "base/utf8.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

void append_hex(std::string& out, char32_t c, int digits) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) out += kHex[(c >> shift) & 15];
}

void append_escaped(std::string& out, char32_t c, char quote) {
  switch (c) {
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (c == static_cast<unsigned char>(quote)) {
    out += '\\';
    out += quote;
  } else if (c == ' ' || (c > ' ' && is_printable(c))) {
    append_utf8(out, c);
  } else if (c < 0x100) {
    out += "\\x";
    append_hex(out, c, 2);
  } else if (c < 0x10000) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

std::string quoted(std::string_view s) {
  const bool doubled = s.find('\'') != s.npos && s.find('"') == s.npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t i = 0; i < s.size();) append_escaped(out, decode(s, i), quote);
  return out + quote;
}

class Printer {
 public:
  Printer(Runtime& rt, TextBuilder& out) : rt_(rt), out_(out) {}

  void repr(const Value& v) {
    rt_.step();
    // Namespaces may hold themselves, so depth is counted here and not taken from the value.
    if (depth_ > 2 * rt_.limits().call_depth)
      raise(RenderError::Type::kLimit, "a value is nested too deeply to print");
    ++depth_;
    switch (v.kind()) {
      case Kind::kString:
        string(v.str());
        break;
      case Kind::kList:
        items("[", v.list().items, "]");
        break;
      case Kind::kTuple:
        tuple(v.list());
        break;
      case Kind::kDict:
        dict(v.dict());
        break;
      case Kind::kView:
        view(v.object<View>());
        break;
      case Kind::kNamespace:
        out_.add("<Namespace ");
        dict(v.object<Namespace>().attributes);
        out_.add(">");
        break;
      default:
        scalar(v);
    }
    --depth_;
  }

 private:
  void scalar(const Value& v) {
    switch (v.kind()) {
      case Kind::kNone:
        out_.add("None");
        break;
      case Kind::kBool:
        out_.add(v.as_bool() ? "True" : "False");
        break;
      case Kind::kInt:
        out_.add(int_text(v.as_int()));
        break;
      case Kind::kFloat:
        out_.add(float_repr(v.as_float()));
        break;
      case Kind::kMissing:
      case Kind::kUndefined:
        out_.add("Undefined");
        break;
      case Kind::kRange:
        range(v.object<RangeObject>());
        break;
      default: {
        const std::string text = v.shared() ? v.shared()->describe() : std::string();
        out_.add(text.empty() ? "<" + std::string(type_name(v)) + " object>" : text);
      }
    }
  }

  void string(const Str& s) {
    if (s.markup) out_.add("Markup(");
    out_.add(quoted(s.text), !s.marks.empty());
    if (s.markup) out_.add(")");
  }

  void items(std::string_view open, const std::vector<Value>& list, std::string_view close) {
    out_.add(open);
    bool first = true;
    for (const Value& v : list) {
      if (!first) out_.add(", ");
      first = false;
      repr(v);
    }
    out_.add(close);
  }

  void tuple(const List& t) { items("(", t.items, t.items.size() == 1 ? ",)" : ")"); }

  void dict(const Dict& d) {
    out_.add("{");
    bool first = true;
    for (const auto& [k, v] : d.items) {
      if (!first) out_.add(", ");
      first = false;
      repr(k);
      out_.add(": ");
      repr(v);
    }
    out_.add("}");
  }

  void view(const View& v) {
    static constexpr std::string_view kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
    out_.add(kNames[static_cast<int>(v.what)]);
    std::vector<Value> list;
    for (const auto& [key, value] : v.dict.dict().items) {
      switch (v.what) {
        case View::What::kKeys:
          list.push_back(key);
          break;
        case View::What::kValues:
          list.push_back(value);
          break;
        case View::What::kItems:
          list.push_back(rt_.tuple({key, value}));
          break;
      }
    }
    items("[", list, "])");
  }

  void range(const RangeObject& r) {
    out_.add("range(" + int_text(r.start) + ", " + int_text(r.stop) +
             (r.step == 1 ? std::string() : ", " + int_text(r.step)) + ")");
  }

  Runtime& rt_;
  TextBuilder& out_;
  int depth_ = 0;
};

}  // namespace

void append_repr(Runtime& rt, TextBuilder& out, const Value& v) { Printer(rt, out).repr(v); }

void append_str(Runtime& rt, TextBuilder& out, const Value& v) {
  if (v.is_string()) {
    rt.step();
    out.add(v.str());
  } else if (!v.is_undefined() && !v.is(Kind::kMissing)) {
    append_repr(rt, out, v);
  }
}

Value to_string(Runtime& rt, const Value& v) {
  if (v.is_string()) return v;
  TextBuilder out(rt);
  append_str(rt, out, v);
  return out.finish();
}

Value repr(Runtime& rt, const Value& v) {
  TextBuilder out(rt);
  append_repr(rt, out, v);
  return out.finish();
}

}  // namespace barg::text::jinja
