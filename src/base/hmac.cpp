#include "base/hmac.h"

#include <algorithm>
#include <array>

namespace barg {

Digest hmac_sha256(std::string_view key, std::string_view message) {
  constexpr std::size_t kBlock = 64;
  std::array<unsigned char, kBlock> inner{}, outer{};
  if (key.size() > kBlock) {
    const Digest short_key = sha256(key.data(), key.size());
    std::copy(short_key.begin(), short_key.end(), inner.begin());
  } else {
    std::copy(key.begin(), key.end(), inner.begin());
  }
  outer = inner;
  for (unsigned char& c : inner) c ^= 0x36;
  for (unsigned char& c : outer) c ^= 0x5c;
  const Digest first = Sha256().update(inner.data(), kBlock).update(message).finish();
  return Sha256().update(outer.data(), kBlock).update(first.data(), first.size()).finish();
}

}  // namespace barg
