#include "base/hash.h"

#define OPENSSL_SUPPRESS_DEPRECATED  // EVP, its successor, allocates for each digest
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <new>

#include "base/check.h"

namespace barg {

namespace {

SHA256_CTX* context(unsigned char* state) { return std::launder(reinterpret_cast<SHA256_CTX*>(state)); }

}  // namespace

Sha256::Sha256() {
  static_assert(sizeof(SHA256_CTX) <= sizeof state_ && alignof(SHA256_CTX) <= 16);
  CHECK(SHA256_Init(::new (state_) SHA256_CTX) == 1);
}

Sha256& Sha256::update(const void* data, std::size_t size) {
  CHECK(SHA256_Update(context(state_), data, size) == 1);
  return *this;
}

Digest Sha256::finish() {
  Digest out;
  static_assert(sizeof out == SHA256_DIGEST_LENGTH);
  CHECK(SHA256_Final(out.data(), context(state_)) == 1);
  return out;
}

Digest sha256(const void* data, std::size_t size) { return Sha256().update(data, size).finish(); }

Digest hmac_sha256(std::string_view key, std::string_view message) {
  Digest out;
  const char* const secret = key.empty() ? "" : key.data();  // a null pointer would be no key at all
  const auto* text = reinterpret_cast<const unsigned char*>(message.data());
  CHECK(HMAC(EVP_sha256(), secret, static_cast<int>(key.size()), text, message.size(), out.data(), nullptr) != nullptr);
  return out;
}

std::string hex(const void* data, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(size * 2);
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

}  // namespace barg
