// Sealed reasoning: the `encrypted_content` of a reasoning item. A client that keeps no state here hands it
// back in its next request, and the model sees its own reasoning again.
//
// "barg1." and base64url of: 16 random bytes, the text enciphered with HMAC-SHA256 in counter mode, 32 bytes
// of HMAC-SHA256 over both. What authenticates also covers `scope` (whose it is), so that nobody reads
// another's. Opaque, not a vault: whoever has the secret reads it.
//
// Pure but for the random bytes; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace barg::server {

inline constexpr std::size_t kMaxSealedText = 256 << 10;

/// Empty where `text` is longer than kMaxSealedText: a seal that nobody would take back.
std::string seal_reasoning(std::string_view secret, std::string_view scope, std::string_view text);

/// The text; nullopt for anything that seal_reasoning() did not make with this secret and scope.
std::optional<std::string> open_reasoning(std::string_view secret, std::string_view scope,
                                          std::string_view sealed);

/// 32 bytes nobody can predict.
std::string random_secret();

}  // namespace barg::server
