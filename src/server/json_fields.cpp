#include "server/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace barg::server {
namespace {

std::string number_text(double v) {
  std::string s = dump_json(Json(v));
  return s.ends_with(".0") ? s.substr(0, s.size() - 2) : s;
}

std::int64_t as_bound(double v) {
  if (v == kNoMin) return std::numeric_limits<std::int64_t>::min();
  return v == kNoMax ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(v);
}

std::string value_list(std::span<const std::string_view> values) {
  std::string out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += i + 1 == values.size() ? " or " : ", ";
    out += values[i];
  }
  return out;
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

bool is_empty_value(const Json& v) {
  return v.is_null() || (v.is_bool() && !v.as_bool()) || (v.is_string() && v.as_string().empty()) ||
         ((v.is_array() || v.is_object()) && v.size() == 0);
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.type() == Json::Type::kInt) return value.as_int();
  if (value.type() != Json::Type::kDouble) return std::nullopt;
  const double v = value.as_double();
  if (v != std::floor(v) || std::abs(v) > 9007199254740992.0)
    return std::nullopt;  // 2^53: exact beyond doubt
  return static_cast<std::int64_t>(v);
}

Fields::Fields(const Json& object, std::span<const FieldSpec> specs, std::string path)
    : object_(&object), specs_(specs), path_(std::move(path)), read_(object.size()) {
  if (object.is_object()) return;
  std::string name = path_.empty() ? "the body" : path_.substr(0, path_.size() - 1);
  error_ =
      Error{ErrorCode::kInvalidValue, name + " must be a JSON object, not " + std::string(type_name(object)),
            path_.empty() ? "" : name, 0};
}

const FieldSpec& Fields::spec(std::string_view name, FieldType type) const {
  const auto it = std::find_if(specs_.begin(), specs_.end(), [&](const FieldSpec& s) { return s.name == name; });
  CHECK(it != specs_.end());
  CHECK(type == FieldType::kAny || it->type == type);
  return *it;
}

bool Fields::knows(std::string_view name) const {
  return std::any_of(specs_.begin(), specs_.end(), [&](const FieldSpec& s) { return s.name == name; });
}

void Fields::fail(ErrorCode code, std::string message, std::string_view name) {
  fail_at(code, std::move(message), path_of(name));
}

void Fields::fail_at(ErrorCode code, std::string message, std::string path) {
  if (!error_) error_ = Error{code, std::move(message), std::move(path), 0};
}

const Json* Fields::get(std::string_view name) {
  spec(name, FieldType::kAny);
  if (!object_->is_object()) return nullptr;
  const auto& members = object_->as_object();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].first != name) continue;
    read_[i] = true;
    return members[i].second.is_null() ? nullptr : &members[i].second;
  }
  return nullptr;
}

/// The member if it is there and `right`; else nullptr, with an error where it is there.
const Json* Fields::typed(std::string_view name, FieldType type, std::string_view what, const FieldSpec*& row) {
  row = &spec(name, type);
  const Json* v = get(name);
  if (!v) return nullptr;
  const bool right = (type == FieldType::kBool && v->is_bool()) || (type == FieldType::kString && v->is_string()) ||
                     (type == FieldType::kObject && v->is_object()) ||
                     ((type == FieldType::kArray || type == FieldType::kTokenIds) && v->is_array());
  if (right) return v;
  fail(ErrorCode::kInvalidValue,
       path_of(name) + " must be " + std::string(what) + ", not " + std::string(type_name(*v)), name);
  return nullptr;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const FieldSpec* row = nullptr;
  const Json* v = typed(name, FieldType::kBool, "true or false", row);
  return v ? std::optional(v->as_bool()) : std::nullopt;
}

std::optional<std::int64_t> Fields::integer(std::string_view name) {
  const FieldSpec& row = spec(name, FieldType::kInteger);
  const Json* v = get(name);
  if (!v) return std::nullopt;
  const auto n = whole_number(*v);
  if (n && *n >= as_bound(row.min) && *n <= as_bound(row.max)) return n;
  std::string message = path_of(name) + " must be a whole number";
  if (row.min != kNoMin) message += " from " + std::to_string(as_bound(row.min));
  if (row.max != kNoMax) message += " to " + std::to_string(as_bound(row.max));
  if (!v->is_number()) message += ", not " + std::string(type_name(*v));
  fail(ErrorCode::kInvalidValue, std::move(message), name);
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name) {
  const FieldSpec& row = spec(name, FieldType::kNumber);
  const Json* v = get(name);
  if (!v) return std::nullopt;
  if (v->is_number()) {
    const double n = v->as_double();
    const bool denormal = n != 0 && std::abs(n) < static_cast<double>(std::numeric_limits<float>::min());
    if ((row.min_open ? n > row.min : n >= row.min) && n <= row.max && !denormal) return n;
  }
  std::string message = path_of(name) + " must be a number " + (row.min_open ? "above " : "from ") +
                        number_text(row.min) + (row.min_open ? " and at most " : " to ") + number_text(row.max);
  if (!v->is_number()) message += ", not " + std::string(type_name(*v));
  fail(ErrorCode::kInvalidValue, std::move(message), name);
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name) {
  const FieldSpec* row = nullptr;
  const Json* v = typed(name, FieldType::kString, "a string", row);
  if (!v) return std::nullopt;
  const std::string& s = v->as_string();
  if (static_cast<double>(s.size()) > row->max) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " is longer than " + number_text(row->max) + " bytes", name);
    return std::nullopt;
  }
  if (!row->values.empty() && std::find(row->values.begin(), row->values.end(), s) == row->values.end()) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " must be " + value_list(row->values), name);
    return std::nullopt;
  }
  return s;
}

const Json* Fields::object(std::string_view name) {
  const FieldSpec* row = nullptr;
  return typed(name, FieldType::kObject, "an object", row);
}

const Json* Fields::array(std::string_view name) {
  const FieldSpec* row = nullptr;
  const Json* v = typed(name, FieldType::kArray, "an array", row);
  if (!v || static_cast<double>(v->size()) <= row->max) return v;
  fail(ErrorCode::kInvalidValue, path_of(name) + " has more than " + number_text(row->max) + " items", name);
  return nullptr;
}

std::vector<std::int32_t> Fields::token_ids(std::string_view name, std::int32_t vocab) {
  std::vector<std::int32_t> ids;
  const FieldSpec* row = nullptr;
  const Json* v = typed(name, FieldType::kTokenIds, "an array", row);
  if (!v) return ids;
  if (static_cast<double>(v->size()) > row->max) {
    fail(ErrorCode::kInvalidValue, path_of(name) + " has more than " + number_text(row->max) + " items", name);
    return ids;
  }
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

std::optional<Fields> Fields::nested(std::string_view name) {
  const Json* v = object(name);
  if (!v) return std::nullopt;
  return Fields(*v, spec(name, FieldType::kObject).members, path_of(name) + ".");
}

void Fields::absorb(const Fields& inner) {
  if (inner.error_ && !error_) error_ = inner.error_;
  for (std::string& name : inner.unread()) inner_unread_.push_back(std::move(name));
}

void Fields::refuse_unsupported() {
  for (const FieldSpec& row : specs_) {
    if (row.effect != FieldEffect::kRefused) continue;
    if (const Json* v = get(row.name); v && !is_empty_value(*v))
      fail(ErrorCode::kUnsupported, path_of(row.name) + " is not supported", row.name);
  }
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < read_.size() && object_->is_object(); ++i) {
    const auto& [name, value] = object_->as_object()[i];
    if (!value.is_null() && (!read_[i] || ignored(name))) names.push_back(path_ + name);
  }
  names.insert(names.end(), inner_unread_.begin(), inner_unread_.end());
  return names;
}

bool Fields::ignored(std::string_view name) const {
  return std::any_of(specs_.begin(), specs_.end(), [&](const FieldSpec& s) {
    return s.name == name && s.effect == FieldEffect::kIgnored;
  });
}

}  // namespace barg::server
