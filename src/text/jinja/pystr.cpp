#include "text/jinja/pystr.h"

#include <algorithm>
#include <array>

#include "text/jinja/unicode.h"

namespace barg::text::jinja::pystr {

namespace {

std::size_t previous(const std::string& s, std::size_t i) {
  do --i;
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80);
  return i;
}

char32_t decode_at(const std::string& s, std::size_t i) { return decode(s, i); }

/// Tells for ascending byte offsets whether they are marked.
class MarkCursor {
 public:
  explicit MarkCursor(const Marks& marks) : it_(marks.begin()), end_(marks.end()) {}
  bool at(std::size_t byte) {
    while (it_ != end_ && it_->second <= byte) ++it_;
    return it_ != end_ && it_->first <= byte;
  }

 private:
  Marks::const_iterator it_, end_;
};

std::size_t skip_space(const std::string& s, std::size_t i) {
  while (i < s.size()) {
    std::size_t next = i;
    if (!is_space(decode(s, next))) break;
    i = next;
  }
  return i;
}

std::size_t skip_word(const std::string& s, std::size_t i) {
  while (i < s.size()) {
    std::size_t next = i;
    if (is_space(decode(s, next))) break;
    i = next;
  }
  return i;
}

std::size_t rskip_space(const std::string& s, std::size_t i) {
  while (i > 0 && is_space(decode_at(s, previous(s, i)))) i = previous(s, i);
  return i;
}

// Python's final-sigma rule: a capital sigma at the end of a word becomes U+03C2.
bool final_sigma(const std::string& s, std::size_t begin, std::size_t end) {
  const auto ignorable = [](char32_t c) {
    return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  };
  std::size_t i = begin;
  bool before = false;
  while (i > 0) {
    i = previous(s, i);
    const char32_t c = decode_at(s, i);
    if (ignorable(c)) continue;
    before = is_lower(c) || is_upper(c) || is_title(c);
    break;
  }
  if (!before) return false;
  while (end < s.size()) {
    const char32_t c = decode(s, end);
    if (ignorable(c)) continue;
    return !(is_lower(c) || is_upper(c) || is_title(c));
  }
  return true;
}

}  // namespace

std::size_t byte_offset(Runtime& rt, const Str& s, std::size_t index) {
  if (s.ascii()) return index;
  rt.step(1 + index / 16);
  std::size_t i = 0;
  while (index-- > 0) decode(s.text, i);
  return i;
}

Value substring(Runtime& rt, const Str& s, std::size_t begin, std::size_t end) {
  TextBuilder out(rt);
  out.add(s, begin, end);
  return out.finish(s.markup);
}

std::optional<Value> char_at(Runtime& rt, const Str& s, Int index) {
  const Int n = static_cast<Int>(s.chars);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  const std::size_t begin = byte_offset(rt, s, static_cast<std::size_t>(index));
  std::size_t end = begin;
  decode(s.text, end);
  return substring(rt, s, begin, end);
}

Value pick(Runtime& rt, const Str& s, Int start, Int step, Int count) {
  if (count <= 0) return substring(rt, s, 0, 0);
  if (step == 1) {
    const std::size_t begin = byte_offset(rt, s, static_cast<std::size_t>(start));
    return substring(rt, s, begin, byte_offset(rt, s, static_cast<std::size_t>(start + count)));
  }
  std::vector<std::size_t> offsets;  // only where a code point is not a byte
  if (!s.ascii()) {
    rt.charge(s.chars * sizeof(std::size_t));
    offsets.reserve(s.chars + 1);
    for (std::size_t i = 0; i < s.text.size(); decode(s.text, i)) offsets.push_back(i);
    offsets.push_back(s.text.size());
  }
  rt.step(static_cast<std::uint64_t>(count));
  TextBuilder out(rt);
  for (Int k = 0; k < count; ++k) {
    const auto i = static_cast<std::size_t>(start + k * step);
    if (s.ascii()) {
      out.add(s, i, i + 1);
    } else {
      out.add(s, offsets[i], offsets[i + 1]);
    }
  }
  return out.finish(s.markup);
}

Value escape(Runtime& rt, const Value& v) {
  const Value text = to_string(rt, v);
  const Str& s = text.str();
  if (s.markup) return text;
  TextBuilder out(rt);
  MarkCursor marks(s.marks);
  std::size_t plain = 0;
  for (std::size_t i = 0; i < s.text.size(); ++i) {
    std::string_view entity;
    switch (s.text[i]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      case '"':
        entity = "&#34;";
        break;
      default:
        continue;
    }
    out.add(s, plain, i);
    out.add(entity, marks.at(i));
    plain = i + 1;
  }
  out.add(s, plain, s.text.size());
  return out.finish(true);
}

Value concat(Runtime& rt, const Str& a, const Str& b) {
  TextBuilder out(rt);
  if (a.markup == b.markup) {
    out.add(a);
    out.add(b);
    return out.finish(a.markup);
  }
  // Exactly one side is Markup: the other is escaped.
  const auto add = [&](const Str& s) {
    if (s.markup) {
      out.add(s);
      return;
    }
    auto copy = std::make_shared<Str>(s);
    out.add(escape(rt, Value(Kind::kString, std::move(copy))).str());
  };
  add(a);
  add(b);
  return out.finish(true);
}

Value repeat(Runtime& rt, const Str& s, Int count) {
  if (count <= 0 || s.text.empty()) return substring(rt, s, 0, 0);
  if (count > static_cast<Int>(rt.limits().string_bytes / s.text.size())) {
    rt.charge_string(rt.limits().string_bytes + 1);
  }
  if (s.marks.empty()) {
    const std::size_t total = s.text.size() * static_cast<std::size_t>(count);
    rt.charge_string(total);
    rt.step(1 + total / 64);
    std::string text;
    text.reserve(total);
    for (Int i = 0; i < count; ++i) text += s.text;
    return rt.string(std::move(text), {}, s.markup);
  }
  rt.step(static_cast<std::uint64_t>(count));
  TextBuilder out(rt);
  for (Int i = 0; i < count; ++i) out.add(s);
  return out.finish(s.markup);
}

Value join(Runtime& rt, const Str& separator, const std::vector<Value>& items) {
  TextBuilder out(rt);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      type_error("sequence item " + std::to_string(i) + ": expected str instance, " +
                 std::string(type_name(items[i])) + " found");
    }
    rt.step();
    if (i != 0) out.add(separator);
    out.add(separator.markup ? escape(rt, items[i]).str() : items[i].str());
  }
  return out.finish(separator.markup);
}

Value strip(Runtime& rt, const Str& s, const Str* chars, bool left, bool right) {
  const auto strippable = [&](char32_t c) {
    if (chars == nullptr) return is_space(c);
    for (std::size_t i = 0; i < chars->text.size();) {
      if (decode(chars->text, i) == c) return true;
    }
    return false;
  };
  rt.step(1 + (chars == nullptr ? 0 : chars->chars / 4));
  std::size_t begin = 0, end = s.text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    if (!strippable(decode(s.text, next))) break;
    if (chars != nullptr) rt.step(1 + chars->chars / 16);
    begin = next;
  }
  while (right && end > begin) {
    const std::size_t last = previous(s.text, end);
    if (!strippable(decode_at(s.text, last))) break;
    if (chars != nullptr) rt.step(1 + chars->chars / 16);
    end = last;
  }
  return substring(rt, s, begin, end);
}

std::vector<Value> split(Runtime& rt, const Str& s, const Str* separator, Int limit) {
  const std::string& t = s.text;
  std::vector<Value> out;
  const auto push = [&](std::size_t begin, std::size_t end) {
    rt.step();
    out.push_back(substring(rt, s, begin, end));
  };
  if (separator == nullptr) {
    std::size_t i = skip_space(t, 0);
    while (i < t.size()) {
      if (limit >= 0 && static_cast<Int>(out.size()) >= limit) {
        push(i, t.size());
        break;
      }
      const std::size_t end = skip_word(t, i);
      push(i, end);
      i = skip_space(t, end);
    }
    return out;
  }
  if (separator->text.empty()) value_error("empty separator");
  std::size_t begin = 0;
  while (limit < 0 || static_cast<Int>(out.size()) < limit) {
    const std::size_t at = t.find(separator->text, begin);
    if (at == t.npos) break;
    push(begin, at);
    begin = at + separator->text.size();
  }
  push(begin, t.size());
  return out;
}

std::vector<Value> rsplit(Runtime& rt, const Str& s, const Str* separator, Int limit) {
  const std::string& t = s.text;
  std::vector<Value> out;
  const auto push = [&](std::size_t begin, std::size_t end) {
    rt.step();
    out.push_back(substring(rt, s, begin, end));
  };
  if (separator == nullptr) {
    std::size_t end = rskip_space(t, t.size());
    while (end > 0) {
      if (limit >= 0 && static_cast<Int>(out.size()) >= limit) {
        push(0, end);
        break;
      }
      std::size_t begin = end;
      while (begin > 0 && !is_space(decode_at(t, previous(t, begin)))) begin = previous(t, begin);
      push(begin, end);
      end = rskip_space(t, begin);
    }
  } else {
    if (separator->text.empty()) value_error("empty separator");
    std::size_t end = t.size();
    const std::size_t n = separator->text.size();
    while (limit < 0 || static_cast<Int>(out.size()) < limit) {
      const std::size_t at = end < n ? t.npos : t.rfind(separator->text, end - n);
      if (at == t.npos) break;
      push(at + n, end);
      end = at;
    }
    push(0, end);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Value> splitlines(Runtime& rt, const Str& s, bool keep_ends) {
  std::vector<Value> out;
  const std::string& t = s.text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < t.size();) {
    const std::size_t at = i;
    const char32_t c = decode(t, i);
    if (!is_line_break(c)) continue;
    if (c == '\r' && i < t.size() && t[i] == '\n') ++i;
    rt.step();
    out.push_back(substring(rt, s, begin, keep_ends ? i : at));
    begin = i;
  }
  if (begin < t.size()) out.push_back(substring(rt, s, begin, t.size()));
  return out;
}

Value replace(Runtime& rt, const Str& s, const Str& from, const Str& to, Int limit) {
  const Value escaped =
      s.markup && !to.markup ? escape(rt, Value(Kind::kString, std::make_shared<Str>(to))) : Value();
  const Str& with = escaped.is_none() ? to : escaped.str();
  const std::string& t = s.text;
  TextBuilder out(rt);
  Int done = 0;
  std::size_t begin = 0;
  rt.step(1 + t.size() / 64);
  if (from.text.empty()) {
    // Between all code points and at both ends.
    for (std::size_t i = 0; (limit < 0 || done < limit) && i <= t.size(); ++done) {
      rt.step();
      out.add(with);
      begin = i;
      if (i == t.size()) break;
      decode(t, i);
      out.add(s, begin, i);
      begin = i;
    }
    out.add(s, begin, t.size());
    return out.finish(s.markup);
  }
  while (limit < 0 || done < limit) {
    const std::size_t at = t.find(from.text, begin);
    if (at == t.npos) break;
    rt.step();
    out.add(s, begin, at);
    out.add(with);
    begin = at + from.text.size();
    ++done;
  }
  out.add(s, begin, t.size());
  return out.finish(s.markup);
}

Value change_case(Runtime& rt, const Str& s, Case how) {
  rt.step(1 + s.chars / 16);
  TextBuilder out(rt);
  MarkCursor marks(s.marks);
  bool in_word = false;
  std::string mapped;
  for (std::size_t i = 0; i < s.text.size();) {
    const std::size_t at = i;
    const char32_t c = decode(s.text, i);
    CaseMap map = CaseMap::kLower;
    switch (how) {
      case Case::kLower:
        break;
      case Case::kFold:
        map = CaseMap::kFold;
        break;
      case Case::kUpper:
        map = CaseMap::kUpper;
        break;
      case Case::kTitle:
        map = in_word ? CaseMap::kLower : CaseMap::kTitle;
        break;
      case Case::kCapitalize:
        map = at == 0 ? CaseMap::kTitle : CaseMap::kLower;
        break;
      case Case::kSwap:
        map = is_upper(c) ? CaseMap::kLower : is_lower(c) ? CaseMap::kUpper : CaseMap::kLower;
        break;
    }
    in_word = is_lower(c) || is_upper(c) || is_title(c);
    mapped.clear();
    if (map == CaseMap::kLower && c == 0x3A3 && final_sigma(s.text, at, i)) {
      mapped = "\xCF\x82";
    } else {
      append_mapped(mapped, c, map);
    }
    out.add(mapped, marks.at(at));
  }
  return out.finish(s.markup);
}

Value pad(Runtime& rt, const Str& s, const Str& fill, Int left, Int right) {
  TextBuilder out(rt);
  if (left > 0) out.add(repeat(rt, fill, left).str());
  out.add(s);
  if (right > 0) out.add(repeat(rt, fill, right).str());
  return out.finish(s.markup);
}

}  // namespace barg::text::jinja::pystr
