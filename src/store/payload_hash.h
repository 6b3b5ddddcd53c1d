// The checksum of a part's bytes, XXH3-128: what the disk and the remote pool write down beside them. It is
// made once, where the bytes come from the device, and travels with them from then on: no tier needs to
// compute it again, and what is damaged on the way is nowhere written down as truth. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace barg::store {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

Hash128 payload_hash(std::span<const std::byte> payload);

}  // namespace barg::store
