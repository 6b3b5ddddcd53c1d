#include "model/field_reader.h"

#include <cmath>
#include <limits>

#include "model/printable.h"

namespace barg::model {
namespace {

std::string number(double v) {
  std::string s = std::to_string(v);
  while (s.find('.') != s.npos && (s.back() == '0' || s.back() == '.')) {
    const bool dot = s.back() == '.';
    s.pop_back();
    if (dot) break;
  }
  return s;
}

}  // namespace

void FieldReader::refuse(ErrorCode code, std::string message, std::string_view key) {
  if (!error_) error_ = Error{code, std::move(message), full_name(key), 0};
}

template <class T>
std::optional<T> FieldReader::keep(Result<std::optional<T>> r) {
  if (r) return std::move(*r);
  if (!error_) error_ = r.error();
  return std::nullopt;
}

std::int64_t FieldReader::integer(std::string_view key, std::int64_t low, std::int64_t high,
                                  std::optional<std::int64_t> fallback) {
  std::optional<std::int64_t> v = keep(read_integer(key));
  if (!v) {
    if (!fallback) refuse(ErrorCode::kBadFile, full_name(key) + " is missing", key);
    return fallback.value_or(low);
  }
  if (*v < low || *v > high) {
    refuse(ErrorCode::kBadFile,
           full_name(key) + " is " + std::to_string(*v) + ", expected " + std::to_string(low) + " to " +
               std::to_string(high),
           key);
    return low;
  }
  return *v;
}

double FieldReader::real(std::string_view key, double low, double high, std::optional<double> fallback) {
  std::optional<double> v = keep(read_real(key));
  if (!v) {
    if (!fallback) refuse(ErrorCode::kBadFile, full_name(key) + " is missing", key);
    return fallback.value_or(low);
  }
  if (!std::isfinite(*v) || *v < low || *v > high) {
    refuse(ErrorCode::kBadFile,
           full_name(key) + " is " + number(*v) + ", expected " + number(low) + " to " + number(high), key);
    return low;
  }
  return *v;
}

bool FieldReader::boolean(std::string_view key, bool fallback) {
  return keep(read_boolean(key)).value_or(fallback);
}

std::string FieldReader::text(std::string_view key, std::string_view fallback) {
  return keep(read_text(key)).value_or(std::string(fallback));
}

const Json* JsonFieldReader::value(std::string_view key) const {
  const Json* v = object_.find(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

bool JsonFieldReader::has(std::string_view key) const { return value(key) != nullptr; }

std::string JsonFieldReader::full_name(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

Result<std::optional<std::int64_t>> JsonFieldReader::read_integer(std::string_view key) const {
  const Json* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type() == Json::Type::kInt) return std::optional(v->as_int());
  // Writers that keep every number as a double ("131072.0") still mean the integer.
  if (v->type() == Json::Type::kDouble && std::abs(v->as_double()) < 9e15 &&
      v->as_double() == std::floor(v->as_double())) {
    return std::optional(static_cast<std::int64_t>(v->as_double()));
  }
  return fail(ErrorCode::kBadFile, full_name(key) + " is not an integer", full_name(key));
}

Result<std::optional<double>> JsonFieldReader::read_real(std::string_view key) const {
  const Json* v = value(key);
  if (v == nullptr) return std::nullopt;
  // Infinity and NaN, which the range then refuses.
  if (const Json* name = v->find("__float__"); name != nullptr && name->is_string()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::string& which = name->as_string();
    return std::optional(which == "Infinity" ? kInfinity : which == "-Infinity" ? -kInfinity : std::nan(""));
  }
  if (!v->is_number()) return fail(ErrorCode::kBadFile, full_name(key) + " is not a number", full_name(key));
  return std::optional(v->as_double());
}

Result<std::optional<bool>> JsonFieldReader::read_boolean(std::string_view key) const {
  const Json* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_bool())
    return fail(ErrorCode::kBadFile, full_name(key) + " is not true or false", full_name(key));
  return std::optional(v->as_bool());
}

Result<std::optional<std::string>> JsonFieldReader::read_text(std::string_view key) const {
  const Json* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) return fail(ErrorCode::kBadFile, full_name(key) + " is not a string", full_name(key));
  return std::optional(v->as_string());
}

Result<std::optional<std::int64_t>> GgufFieldReader::read_integer(std::string_view key) const {
  const std::string name = full_name(key);
  const GgufValue* v = file_.find(name);
  if (v == nullptr || v->type != GgufType::kArray) return file_.integer(name);
  auto all = file_.integers(name);
  if (!all) return std::unexpected(all.error());
  const std::vector<std::int64_t>& n = **all;
  if (n.empty()) return fail(ErrorCode::kBadFile, "metadata key " + name + " is an empty array", name);
  for (const std::int64_t x : n) {
    if (x != n.front()) {
      return fail(ErrorCode::kUnsupported,
                  "metadata key " + name + " differs between layers, which is not supported yet", name);
    }
  }
  return std::optional(n.front());
}

Result<std::optional<double>> GgufFieldReader::read_real(std::string_view key) const {
  return file_.real(full_name(key));
}

Result<std::optional<bool>> GgufFieldReader::read_boolean(std::string_view key) const {
  return file_.boolean(full_name(key));
}

Result<std::optional<std::string>> GgufFieldReader::read_text(std::string_view key) const {
  auto s = file_.string(full_name(key));
  if (!s) return std::unexpected(s.error());
  if (!*s) return std::nullopt;
  return std::optional(std::string(**s));
}

}  // namespace barg::model
