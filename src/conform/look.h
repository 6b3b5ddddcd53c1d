// Looking into JSON that may be anything: a path, a type, a default. Pure.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace barg::conform {

/// "choices.0.delta.content"; nullptr where a step is not there.
const Json* at(const Json& json, std::string_view path);
const Json* at(const Json* json, std::string_view path);
/// The string there, or "".
std::string text_at(const Json& json, std::string_view path);
/// The integer there, or `otherwise`.
std::int64_t int_at(const Json& json, std::string_view path, std::int64_t otherwise = -1);
/// The elements of the array there; empty where there is none.
const Json::Array& list_at(const Json& json, std::string_view path);
/// Present, and null.
bool null_at(const Json& json, std::string_view path);

/// At most `most` bytes for a person: line ends and what cannot be printed escaped as \n and \x1f.
std::string shown(std::string_view bytes, std::size_t most = 240);
/// A template, so that no string becomes a Json on the way here.
template <std::same_as<Json> T>
std::string shown(const T& json, std::size_t most = 240) {
  return shown(dump_json(json), most);
}

}  // namespace barg::conform
