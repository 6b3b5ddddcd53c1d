// base64url without padding (RFC 4648, 5): bytes as text that no header, URL or JSON has to escape. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace barg {

std::string to_base64url(std::string_view bytes);
/// nullopt for anything that to_base64url() does not make.
std::optional<std::string> from_base64url(std::string_view text);

}  // namespace barg
