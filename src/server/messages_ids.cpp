#include "server/messages_ids.h"

#include "base/base64url.h"
#include "base/utf8.h"

namespace barg::server {
namespace {

constexpr std::string_view kToolPrefix = "toolu_", kThoughtPrefix = "barg1.";
constexpr std::size_t kLongMark = 24, kShortMark = 12;  // characters that make an id unique
constexpr std::size_t kMaxNativeBytes = 96;
constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

std::string_view view(const Digest& d) { return {reinterpret_cast<const char*>(d.data()), d.size()}; }

/// Letters and digits only.
std::string mark(std::string_view message_id, std::size_t call, std::size_t length) {
  std::string seed(message_id);
  seed += '/' + std::to_string(call);
  const Digest digest = sha256(seed.data(), seed.size());
  std::string out;
  for (std::size_t i = 0; i < length; ++i) out += kPlain[digest[i] % kPlain.size()];
  return out;
}

}  // namespace

std::string tool_use_id(std::string_view message_id, std::size_t call, std::string_view native) {
  const bool carried = !native.empty() && native.size() <= kMaxNativeBytes;
  std::string id(kToolPrefix);
  id += mark(message_id, call, carried ? kShortMark : kLongMark);
  if (carried) id += '_' + to_base64url(native);
  return id;
}

std::optional<std::string> native_tool_id(std::string_view id) {
  constexpr std::size_t kHead = kToolPrefix.size() + kShortMark;
  if (!id.starts_with(kToolPrefix) || id.size() <= kHead + 1 || id[kHead] != '_') return std::nullopt;
  if (id.substr(kToolPrefix.size(), kShortMark).find_first_of("_-") != std::string_view::npos) return std::nullopt;
  auto native = from_base64url(id.substr(kHead + 1));
  if (!native || native->empty() || native->size() > kMaxNativeBytes || !is_valid_utf8(*native)) return std::nullopt;
  return native;
}

std::string thought_key(std::string_view secret) {
  return std::string(view(hmac_sha256(secret, "barg thought signature 1")));
}

std::string thought_signature(std::string_view key, const Digest& text) {
  return std::string(kThoughtPrefix) + to_base64url(view(hmac_sha256(key, view(text))));
}

Signed check_thought(std::string_view key, std::string_view signature, std::string_view text) {
  if (!signature.starts_with(kThoughtPrefix)) return Signed::kForeign;
  const std::string expected = thought_signature(key, sha256(text.data(), text.size()));
  if (expected.size() != signature.size()) return Signed::kChanged;
  unsigned difference = 0;  // in constant time: nobody learns a signature byte by byte
  for (std::size_t i = 0; i < expected.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(expected[i] ^ signature[i]));
  return difference == 0 ? Signed::kIntact : Signed::kChanged;
}

}  // namespace barg::server
