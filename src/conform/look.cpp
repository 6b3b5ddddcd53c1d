#include "conform/look.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"

namespace barg::conform {

const Json* at(const Json& json, std::string_view path) {
  const Json* here = &json;
  while (here != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view step = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (here->is_array()) {
      std::size_t index = 0;
      const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
      const bool there = error == std::errc{} && end == step.data() + step.size() && index < here->size();
      here = there ? &here->as_array()[index] : nullptr;
    } else {
      here = here->find(step);
    }
  }
  return here;
}

const Json* at(const Json* json, std::string_view path) { return json == nullptr ? nullptr : at(*json, path); }

std::string text_at(const Json& json, std::string_view path) {
  const Json* found = at(json, path);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

std::int64_t int_at(const Json& json, std::string_view path, std::int64_t otherwise) {
  const Json* found = at(json, path);
  return found != nullptr && found->type() == Json::Type::kInt ? found->as_int() : otherwise;
}

const Json::Array& list_at(const Json& json, std::string_view path) {
  static const Json::Array kNone;
  const Json* found = at(json, path);
  return found != nullptr && found->is_array() ? found->as_array() : kNone;
}

bool null_at(const Json& json, std::string_view path) {
  const Json* found = at(json, path);
  return found != nullptr && found->is_null();
}

std::string shown(std::string_view bytes, std::size_t most) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  std::size_t i = 0;
  while (i < bytes.size() && out.size() < most) {
    const std::size_t begin = i;
    const char32_t point = next_code_point(bytes, i);
    const std::string_view piece = bytes.substr(begin, i - begin);
    if (piece == "\n") {
      out += "\\n";
    } else if (piece == "\r") {
      out += "\\r";
    } else if (point < 0x20 || point == 0x7f || (point == 0xfffd && piece != "\xef\xbf\xbd")) {
      for (const char c : piece) {
        out += "\\x";
        out += kHex[static_cast<unsigned char>(c) >> 4];
        out += kHex[static_cast<unsigned char>(c) & 15];
      }
    } else {
      out += piece;
    }
  }
  if (i < bytes.size()) out += "...";
  return out;
}

}  // namespace barg::conform
