// CRC32C (Castagnoli), as in SSE4.2's instruction, iSCSI and ext4: guards the headers and tables of stored
// blocks. Chooses the instruction at run time; the table is the specification. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace barg::store {

/// Of `size` bytes; pass the previous value to go on over more bytes.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t before = 0);

/// The table's answer, for tests and for machines without the instruction.
std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t before = 0);

}  // namespace barg::store
