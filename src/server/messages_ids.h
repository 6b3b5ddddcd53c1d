// What the Messages protocol hands out and takes back: ids of tool calls, signatures of thinking blocks.
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "barg/tokenizer.h"
#include "base/hash.h"

namespace barg::server {

/// "toolu_...": letters, digits, '_' and '-', unique by (message, call). `native`: the id that the model itself
/// wrote, if any; it travels inside, so that the history can be rendered with it (native_tool_id).
std::string tool_use_id(std::string_view message_id, std::size_t call, std::string_view native);
/// The model's own id inside `id`; nullopt where there is none, as in every id that is not ours.
std::optional<std::string> native_tool_id(std::string_view id);

/// Who signs thoughts. `secret` may be empty (embedders, tests): signatures then prove nothing.
std::string thought_key(std::string_view secret);
/// Opaque text that goes with a thinking block whose text has this digest.
std::string thought_signature(std::string_view key, const Digest& text);

enum class Signed { kForeign, kIntact, kChanged };
/// Is `signature` ours, and of this text? Others' are kForeign and as good.
Signed check_thought(std::string_view key, std::string_view signature, std::string_view text);

}  // namespace barg::server
