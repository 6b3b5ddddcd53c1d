#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/utf8.h"

namespace barg {

// ---------------------------------------------------------------------------------------------- value

void Json::set_uint(std::uint64_t v) {
  if (v <= static_cast<std::uint64_t>(INT64_MAX)) {
    value_ = static_cast<std::int64_t>(v);
  } else {
    value_ = v;
  }
}

bool Json::as_bool() const {
  CHECK(is_bool());
  return std::get<bool>(value_);
}

std::int64_t Json::as_int() const {
  CHECK(type() == Type::kInt);
  return std::get<std::int64_t>(value_);
}

std::uint64_t Json::as_uint() const {
  if (type() == Type::kUint) return std::get<std::uint64_t>(value_);
  CHECK(type() == Type::kInt && as_int() >= 0);
  return static_cast<std::uint64_t>(as_int());
}

double Json::as_double() const {
  if (type() == Type::kInt) return static_cast<double>(as_int());
  if (type() == Type::kUint) return static_cast<double>(as_uint());
  CHECK(type() == Type::kDouble);
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  CHECK(is_string());
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  CHECK(is_array());
  return std::get<Array>(value_);
}

Json::Array& Json::as_array() {
  CHECK(is_array());
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  CHECK(is_object());
  return std::get<Object>(value_);
}

Json::Object& Json::as_object() {
  CHECK(is_object());
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& members = as_object();
  const auto it = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.first == key; });
  return it == members.end() ? nullptr : &it->second;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

Json& Json::set(std::string key, Json value) {
  if (is_null()) *this = object();
  Object& members = as_object();
  if (Json* old = find(key)) {
    *old = std::move(value);
    return *old;
  }
  return members.emplace_back(std::move(key), std::move(value)).second;
}

Json& Json::push(Json value) {
  if (is_null()) *this = array();
  return as_array().emplace_back(std::move(value));
}

bool Json::operator==(const Json& other) const { return value_ == other.value_; }

// ---------------------------------------------------------------------------------------------- parsing

namespace {

using Nlohmann = nlohmann::json;

/// Builds a Json from nlohmann's events and refuses what the limits refuse, before it grows.
class Builder final : public nlohmann::json_sax<Nlohmann> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json()); }
  bool boolean(bool v) override { return add(Json(v)); }
  bool number_integer(std::int64_t v) override { return add(Json(static_cast<long long>(v))); }
  bool number_unsigned(std::uint64_t v) override { return add(Json(static_cast<unsigned long long>(v))); }
  bool number_float(double v, const std::string& text) override {
    // nlohmann falls back to a double for integers beyond 64 bits: a client would get another number back.
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    if (!std::isfinite(v) || integer) return refuse("a number is out of range");
    return add(Json(v));
  }
  bool string(std::string& v) override { return add(Json(std::move(v))); }
  bool binary(Nlohmann::binary_t&) override { return refuse("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& v) override {
    Json::Object& members = stack_.back()->as_object();
    if (limits_.max_members != 0 && members.size() >= limits_.max_members) {
      return refuse("an object has more than " + std::to_string(limits_.max_members) + " keys");
    }
    if (limits_.reject_duplicate_keys && !seen_.back().insert(v).second) {
      return refuse("duplicate key " + json_quote(v.substr(0, 64)));
    }
    members.emplace_back(std::move(v), Json());
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Nlohmann::exception& e) override {
    std::string what = e.what();
    // nlohmann's sentence is "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …".
    if (const auto colon = what.find(": "); colon != std::string::npos) what = what.substr(colon + 2);
    if (what.size() > 160) what = what.substr(0, complete_utf8_prefix(std::string_view(what).substr(0, 160)));
    return refuse(repair_utf8(what) + " (at byte " + std::to_string(position) + ")");
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  bool refuse(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& top = *stack_.back();
    if (top.is_array()) return &top.push(std::move(value));
    Json& slot = top.as_object().back().second;
    slot = std::move(value);
    return &slot;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (stack_.size() >= limits_.max_depth) {
      return refuse("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    stack_.push_back(place(std::move(container)));
    seen_.emplace_back();
    return true;
  }

  bool close() {
    stack_.pop_back();
    seen_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  // Pointers into root_: stable, because a container only grows while it is the top of the stack.
  std::vector<Json*> stack_;
  std::vector<std::set<std::string>> seen_;  // not hashed: keys may be made to collide
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view bytes, const JsonLimits& limits) {
  if (bytes.starts_with("\xEF\xBB\xBF")) {
    return fail(ErrorCode::kInvalidValue, "invalid JSON: it starts with a byte order mark");
  }
  Builder builder(limits);
  bool ok = false;
  try {
    ok = Nlohmann::sax_parse(bytes.begin(), bytes.end(), &builder);
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInvalidValue, std::string("invalid JSON: ") + e.what());
  }
  if (!ok) return fail(ErrorCode::kInvalidValue, "invalid JSON: " + builder.error());
  return builder.take();
}

// ---------------------------------------------------------------------------------------------- writing

namespace {

void append_double(std::string& out, double v) {
  CHECK(std::isfinite(v));
  char buffer[32];
  const auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, v);
  CHECK(ec == std::errc());
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_escape(std::string& out, unsigned unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 15];
}

/// Stands for itself in a JSON string: most of most strings.
bool is_plain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

void append_string(std::string& out, std::string_view s, bool ensure_ascii) {
  out += '"';
  for (std::size_t i = 0; i < s.size();) {
    std::size_t plain = i;
    while (plain < s.size() && is_plain(s[plain])) ++plain;
    out.append(s.substr(i, plain - i));
    i = plain;
    if (i == s.size()) break;
    const auto c = static_cast<unsigned char>(s[i]);
    if (c >= 0x80) {
      const char32_t cp = next_code_point(s, i);
      if (!ensure_ascii) {
        append_utf8(out, cp);
      } else if (cp >= 0x10000) {
        append_escape(out, 0xD800 + ((cp - 0x10000) >> 10));
        append_escape(out, 0xDC00 + ((cp - 0x10000) & 0x3FF));
      } else {
        append_escape(out, cp);
      }
      continue;
    }
    ++i;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20) {
          append_escape(out, c);
        } else {
          out += static_cast<char>(c);
        }
    }
  }
  out += '"';
}

class Writer {
 public:
  Writer(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Json& v, int depth) {
    switch (v.type()) {
      case Json::Type::kNull: out_ += "null"; break;
      case Json::Type::kBool: out_ += v.as_bool() ? "true" : "false"; break;
      case Json::Type::kInt: out_ += std::to_string(v.as_int()); break;
      case Json::Type::kUint: out_ += std::to_string(v.as_uint()); break;
      case Json::Type::kDouble: append_double(out_, v.as_double()); break;
      case Json::Type::kString: append_string(out_, v.as_string(), style_.ensure_ascii); break;
      case Json::Type::kArray: write_array(v.as_array(), depth); break;
      case Json::Type::kObject: write_object(v.as_object(), depth); break;
    }
  }

 private:
  void separate(bool first, int depth) {
    if (!first) out_ += style_.indent < 0 && style_.spaces ? ", " : ",";
    new_line(depth);
  }

  void new_line(int depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' ');
  }

  void write_array(const Json::Array& items, int depth) {
    out_ += '[';
    bool first = true;
    for (const Json& item : items) {
      separate(first, depth + 1);
      write(item, depth + 1);
      first = false;
    }
    if (!items.empty()) new_line(depth);
    out_ += ']';
  }

  void write_object(const Json::Object& members, int depth) {
    std::vector<const Json::Member*> order;
    order.reserve(members.size());
    for (const auto& m : members) order.push_back(&m);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->first < b->first; });
    }
    out_ += '{';
    bool first = true;
    for (const auto* m : order) {
      separate(first, depth + 1);
      append_string(out_, m->first, style_.ensure_ascii);
      out_ += style_.indent >= 0 || style_.spaces ? ": " : ":";
      write(m->second, depth + 1);
      first = false;
    }
    if (!members.empty()) new_line(depth);
    out_ += '}';
  }

  std::string& out_;
  const JsonStyle& style_;
};

}  // namespace

std::string dump_json(const Json& value, const JsonStyle& style) {
  std::string out;
  Writer(out, style).write(value, 0);
  return out;
}

void append_json_quoted(std::string& out, std::string_view s) { append_string(out, s, false); }

std::string json_quote(std::string_view s) {
  std::string out;
  append_string(out, s, false);
  return out;
}

}  // namespace barg
