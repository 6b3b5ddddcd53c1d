#include "store/payload_hash.h"

#include <xxhash.h>

namespace barg::store {

Hash128 payload_hash(std::span<const std::byte> payload) {
  const XXH128_hash_t h = XXH3_128bits(payload.data(), payload.size());
  return {h.low64, h.high64};
}

}  // namespace barg::store
