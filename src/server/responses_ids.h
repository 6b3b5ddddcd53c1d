// Ids of items say which answer they are of, so that a reference to an item finds it without a list of all
// items: PREFIX_, the 24 digits of the answer's own id, and four digits for the item; those of input items
// begin at kFirstInputItem. Also: stored items as they are listed. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace barg::server {

inline constexpr std::string_view kResponsePrefix = "resp_";
inline constexpr std::size_t kFirstInputItem = 0x8000;

std::string item_id(std::string_view prefix, std::string_view response_id, std::size_t index);
/// The answer's id; nullopt where `item_id` is none of ours.
std::optional<std::string> response_of_item(std::string_view item_id);

/// Of the item at `index` of an answer's input that has no id of its own.
std::string input_item_id(const Json& item, std::string_view response_id, std::size_t index);
/// An input item with everything that OpenAI's lists have: id, type, status, contents as parts.
Json listed_item(Json item, std::string_view response_id, std::size_t index);

}  // namespace barg::server
