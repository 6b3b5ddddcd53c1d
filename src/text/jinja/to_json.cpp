// tojson: json.dumps with ensure_ascii=False as transformers sets it.
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

class Dumper {
 public:
  Dumper(Runtime& rt, const Args& args) : rt_(rt), out_(rt) {
    ascii_ = args.truth(0, false);
    if (args.has(1) && !args[1].is_none()) {
      pretty_ = true;
      item_ = ",";
      if (args[1].is_string()) {
        indent_ = args[1].text();
      } else {
        const Int n = as_index(args[1], "indent");
        if (n > 1000) raise(RenderError::Type::kLimit, "tojson: indent is too large");
        indent_ = std::string(n > 0 ? static_cast<std::size_t>(n) : 0, ' ');
      }
    }
    if (args.has(2) && !args[2].is_none()) {
      const std::vector<Value> pair = iterate(rt, args[2]);
      if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
        value_error("tojson: separators must be two strings");
      item_ = pair[0].text();
      colon_ = pair[1].text();
    }
    sort_ = args.truth(3, false);
  }

  Value run(const Value& v) {
    dump(v, 1);
    return out_.finish();
  }

 private:
  void newline(int level) {
    if (!pretty_) return;
    out_.add("\n");
    for (int i = 0; i < level; ++i) out_.add(indent_);
  }

  void dump(const Value& v, int level) {
    rt_.step();
    switch (v.kind()) {
      case Kind::kNone:
        out_.add("null");
        return;
      case Kind::kBool:
        out_.add(v.as_bool() ? "true" : "false");
        return;
      case Kind::kInt:
        out_.add(int_text(v.as_int()));
        return;
      case Kind::kFloat:
        out_.add(number(v.as_float()));
        return;
      case Kind::kString:
        out_.add(quoted(v.text()), !v.str().marks.empty());
        return;
      case Kind::kList:
      case Kind::kTuple:
        list(v.list().items, level);
        return;
      case Kind::kDict:
        dict(v.dict(), level);
        return;
      default:
        type_error("Object of type " + std::string(type_name(v)) + " is not JSON serializable");
    }
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void list(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_.add("[]");
      return;
    }
    out_.add("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_.add(item_);
      newline(level);
      dump(items[i], level + 1);
    }
    newline(level - 1);
    out_.add("]");
  }

  void key(const Value& k) {
    switch (k.kind()) {
      case Kind::kString:
        out_.add(quoted(k.text()), !k.str().marks.empty());
        return;
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        out_.add("\"");
        dump(k, 0);
        out_.add("\"");
        return;
      default:
        type_error("keys must be str, int, float, bool or None, not " + std::string(type_name(k)));
    }
  }

  void dict(const Dict& d, int level) {
    if (d.items.empty()) {
      out_.add("{}");
      return;
    }
    std::vector<const std::pair<Value, Value>*> items;
    rt_.charge(d.items.size() * sizeof(void*));
    for (const auto& item : d.items) items.push_back(&item);
    if (sort_) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return less(rt_, a->first, b->first); });
    }
    out_.add("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_.add(item_);
      newline(level);
      key(items[i]->first);
      out_.add(colon_);
      dump(items[i]->second, level + 1);
    }
    newline(level - 1);
    out_.add("}");
  }

  static void hex4(std::string& out, unsigned v) {
    static constexpr char kHex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(v >> shift) & 15];
  }

  std::string quoted(const std::string& s) const {
    std::string out = "\"";
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t begin = i;
      const char32_t c = decode(s, i);
      switch (c) {
        case '"':
          out += "\\\"";
          continue;
        case '\\':
          out += "\\\\";
          continue;
        case '\n':
          out += "\\n";
          continue;
        case '\r':
          out += "\\r";
          continue;
        case '\t':
          out += "\\t";
          continue;
        case '\f':
          out += "\\f";
          continue;
        case '\b':
          out += "\\b";
          continue;
        default:
          break;
      }
      if (c < 0x20 || (ascii_ && c > 0x7E && c < 0x10000)) {
        hex4(out, c);
      } else if (ascii_ && c >= 0x10000) {
        hex4(out, 0xD800 + ((c - 0x10000) >> 10));
        hex4(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out.append(s, begin, i - begin);
      }
    }
    return out + '"';
  }

  Runtime& rt_;
  TextBuilder out_;
  bool ascii_ = false, pretty_ = false, sort_ = false;
  std::string indent_, item_ = ", ", colon_ = ": ";
};

}  // namespace

Value to_json(Runtime& rt, const Value& value, const Args& args) { return Dumper(rt, args).run(value); }

}  // namespace barg::text::jinja
