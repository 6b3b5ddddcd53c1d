#include "server/responses_seal.h"

#include <algorithm>
#include <cstdint>

#include "base/base64url.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace barg::server {
namespace {

constexpr std::string_view kPrefix = "barg1.";
constexpr std::size_t kNonceBytes = 16, kMacBytes = 32;

std::string bytes_of(const Digest& digest) { return {digest.begin(), digest.end()}; }

std::string subkey(std::string_view secret, std::string_view use, std::string_view scope) {
  const Digest owner = sha256(scope.data(), scope.size());
  return bytes_of(hmac_sha256(secret, std::string(use) + bytes_of(owner)));
}

/// Its own inverse.
std::string cipher(std::string_view key, std::string_view nonce, std::string_view text) {
  std::string out(text);
  for (std::size_t at = 0, block = 0; at < out.size(); at += kMacBytes, ++block) {
    const Digest stream = hmac_sha256(key, std::string(nonce) + std::to_string(block));
    for (std::size_t i = 0; i < std::min(kMacBytes, out.size() - at); ++i)
      out[at + i] = static_cast<char>(static_cast<unsigned char>(out[at + i]) ^ stream[i]);
  }
  return out;
}

std::string mac(std::string_view secret, std::string_view scope, std::string_view body) {
  return bytes_of(hmac_sha256(subkey(secret, "barg reasoning mac 1", scope), body));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ b[i]));
  return difference == 0;
}

std::string random_bytes(std::size_t count) {
  std::string out;
  while (out.size() < count) {
    const std::uint64_t word = random_seed();
    out.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  out.resize(count);
  return out;
}

}  // namespace

std::string random_secret() { return random_bytes(kMacBytes); }

std::string seal_reasoning(std::string_view secret, std::string_view scope, std::string_view text) {
  if (text.size() > kMaxSealedText) return {};
  std::string body = random_bytes(kNonceBytes);
  body += cipher(subkey(secret, "barg reasoning text 1", scope), body, text);
  body += mac(secret, scope, body);
  return std::string(kPrefix) + to_base64url(body);
}

std::optional<std::string> open_reasoning(std::string_view secret, std::string_view scope,
                                          std::string_view sealed) {
  constexpr std::size_t kMostBytes = kPrefix.size() + (kMaxSealedText + kNonceBytes + kMacBytes) * 4 / 3 + 4;
  if (!sealed.starts_with(kPrefix) || sealed.size() > kMostBytes) return std::nullopt;
  const auto bytes = from_base64url(sealed.substr(kPrefix.size()));
  if (!bytes || bytes->size() < kNonceBytes + kMacBytes) return std::nullopt;
  const std::string_view body = std::string_view(*bytes).substr(0, bytes->size() - kMacBytes);
  if (!equal_in_constant_time(mac(secret, scope, body), std::string_view(*bytes).substr(body.size())))
    return std::nullopt;
  std::string text = cipher(subkey(secret, "barg reasoning text 1", scope), body.substr(0, kNonceBytes),
                            body.substr(kNonceBytes));
  if (!is_valid_utf8(text)) return std::nullopt;
  return text;
}

}  // namespace barg::server
