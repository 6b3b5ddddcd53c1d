// CRC32C (Castagnoli), for headers of a few hundred bytes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace barg::store {

/// Chains: crc32c(b, n, crc32c(a, m)) is the sum of a followed by b.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t seed = 0);

}  // namespace barg::store
