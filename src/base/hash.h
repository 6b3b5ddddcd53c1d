// SHA-256 and HMAC with it (RFC 2104) through OpenSSL, and hex. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace barg {

using Digest = std::array<std::uint8_t, 32>;

/// Incremental SHA-256; finish() may be called once. Allocates nothing: a KV block's key is made within a step.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  Sha256& update(const void* data, std::size_t size);
  Sha256& update(std::string_view s) { return update(s.data(), s.size()); }
  Digest finish();

 private:
  alignas(16) unsigned char state_[128];  // OpenSSL's context
};

Digest sha256(const void* data, std::size_t size);
Digest hmac_sha256(std::string_view key, std::string_view message);
std::string hex(const void* data, std::size_t size);
inline std::string hex(const Digest& d) { return hex(d.data(), d.size()); }

}  // namespace barg
