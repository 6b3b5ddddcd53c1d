// HMAC-SHA-256 (RFC 2104). Any thread.
#pragma once

#include <string_view>

#include "base/hash.h"

namespace barg {

Digest hmac_sha256(std::string_view key, std::string_view message);

}  // namespace barg
