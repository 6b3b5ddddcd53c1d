#include "server/json_fields.h"

#include <cmath>
#include <limits>

namespace barg::server {
namespace {

std::string number_text(double v) {
  std::string s = dump_json(Json(v));
  return s.ends_with(".0") ? s.substr(0, s.size() - 2) : s;
}

}  // namespace

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return "null";
    case Json::Type::kBool:
      return "a boolean";
    case Json::Type::kInt:
    case Json::Type::kUint:
    case Json::Type::kDouble:
      return "a number";
    case Json::Type::kString:
      return "a string";
    case Json::Type::kArray:
      return "an array";
    case Json::Type::kObject:
      return "an object";
  }
  return "something else";
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.type() == Json::Type::kInt) return value.as_int();
  if (value.type() != Json::Type::kDouble) return std::nullopt;
  const double v = value.as_double();
  if (v != std::floor(v) || std::abs(v) > 9007199254740992.0)
    return std::nullopt;  // 2^53: exact beyond doubt
  return static_cast<std::int64_t>(v);
}

Fields::Fields(const Json& object, std::string path)
    : object_(object), path_(std::move(path)), read_(object.size()) {
  if (object.is_object()) return;
  std::string name = path_.empty() ? "the body" : path_.substr(0, path_.size() - 1);
  error_ =
      Error{ErrorCode::kInvalidValue, name + " must be a JSON object, not " + std::string(type_name(object)),
            path_.empty() ? "" : name, 0};
}

void Fields::fail(ErrorCode code, std::string message, std::string_view name) {
  if (!error_) error_ = Error{code, std::move(message), path_of(name), 0};
}

const Json* Fields::get(std::string_view name) {
  if (!object_.is_object()) return nullptr;
  const auto& members = object_.as_object();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].first != name) continue;
    read_[i] = true;
    return members[i].second.is_null() ? nullptr : &members[i].second;
  }
  return nullptr;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* v = get(name);
  if (!v) return std::nullopt;
  if (!v->is_bool()) {
    fail(ErrorCode::kInvalidValue,
         path_of(name) + " must be true or false, not " + std::string(type_name(*v)), name);
    return std::nullopt;
  }
  return v->as_bool();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t min, std::int64_t max) {
  const Json* v = get(name);
  if (!v) return std::nullopt;
  const auto n = whole_number(*v);
  if (n && *n >= min && *n <= max) return n;
  std::string message = path_of(name) + " must be a whole number";
  if (min != std::numeric_limits<std::int64_t>::min()) message += " from " + std::to_string(min);
  if (max != std::numeric_limits<std::int64_t>::max()) message += " to " + std::to_string(max);
  if (!v->is_number()) message += ", not " + std::string(type_name(*v));
  fail(ErrorCode::kInvalidValue, std::move(message), name);
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double min, double max, bool min_open) {
  const Json* v = get(name);
  if (!v) return std::nullopt;
  if (v->is_number()) {
    const double n = v->as_double();
    const bool denormal = n != 0 && std::abs(n) < static_cast<double>(std::numeric_limits<float>::min());
    if ((min_open ? n > min : n >= min) && n <= max && !denormal) return n;
  }
  std::string message = path_of(name) + " must be a number " + (min_open ? "above " : "from ") +
                        number_text(min) + (min_open ? " and at most " : " to ") + number_text(max);
  if (!v->is_number()) message += ", not " + std::string(type_name(*v));
  fail(ErrorCode::kInvalidValue, std::move(message), name);
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name, std::size_t max_bytes) {
  const Json* v = get(name);
  if (!v) return std::nullopt;
  if (!v->is_string()) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " must be a string, not " + std::string(type_name(*v)),
         name);
    return std::nullopt;
  }
  if (v->as_string().size() > max_bytes) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " is longer than " + std::to_string(max_bytes) + " bytes",
         name);
    return std::nullopt;
  }
  return v->as_string();
}

const Json* Fields::object(std::string_view name) {
  const Json* v = get(name);
  if (v && !v->is_object()) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " must be an object, not " + std::string(type_name(*v)),
         name);
    return nullptr;
  }
  return v;
}

const Json* Fields::array(std::string_view name, std::size_t max_items) {
  const Json* v = get(name);
  if (!v) return nullptr;
  if (!v->is_array()) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " must be an array, not " + std::string(type_name(*v)),
         name);
    return nullptr;
  }
  if (v->size() > max_items) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " has more than " + std::to_string(max_items) + " items",
         name);
    return nullptr;
  }
  return v;
}

std::vector<std::int32_t> Fields::token_ids(std::string_view name, std::size_t max_items,
                                            std::int32_t vocab) {
  std::vector<std::int32_t> ids;
  const Json* v = array(name, max_items);
  if (!v) return ids;
  ids.reserve(v->size());
  for (std::size_t i = 0; i < v->size(); ++i) {
    const auto n = whole_number(v->as_array()[i]);
    if (!n || *n < 0 || *n >= vocab) {
      const std::string item = std::string(name) + "[" + std::to_string(i) + "]";
      fail(ErrorCode::kInvalidValue,
           path_of(item) + " must be a token id from 0 to " + std::to_string(vocab - 1), item);
      return {};
    }
    ids.push_back(static_cast<std::int32_t>(*n));
  }
  return ids;
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < read_.size() && object_.is_object(); ++i) {
    if (!read_[i] && !object_.as_object()[i].second.is_null())
      names.push_back(path_ + object_.as_object()[i].first);
  }
  return names;
}

}  // namespace barg::server
