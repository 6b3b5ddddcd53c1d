#include "server/cache_salt.h"

#include <cstdint>

#include "base/hash.h"

namespace barg::server {
namespace {

void add_field(std::string& message, std::string_view value) {
  const std::uint64_t size = value.size();
  for (int shift = 0; shift < 64; shift += 8) message += static_cast<char>(size >> shift & 0xff);
  message += value;
}

}  // namespace

std::string derived_salt(std::string_view secret, std::string_view api_key, std::string_view cache_salt) {
  const bool shared = cache_salt.starts_with("shared:");
  std::string message;
  add_field(message, "barg cache salt 1");
  add_field(message, shared ? "shared" : "key");
  if (!shared) {
    const Digest id = sha256(api_key.data(), api_key.size());
    add_field(message, {reinterpret_cast<const char*>(id.data()), id.size()});
  }
  add_field(message, cache_salt);
  const Digest salt = hmac_sha256(secret, message);
  return {salt.begin(), salt.end()};
}

}  // namespace barg::server
