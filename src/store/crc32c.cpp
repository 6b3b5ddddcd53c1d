#include "store/crc32c.h"

#include <array>
#include <cstring>

namespace barg::store {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0x82F63B78U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(const void* data, std::size_t size,
                                                             std::uint32_t before) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t c = ~before;
  for (; size >= 8; p += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    c = __builtin_ia32_crc32di(c, word);
  }
  auto low = static_cast<std::uint32_t>(c);
  for (; size > 0; ++p, --size) low = __builtin_ia32_crc32qi(low, *p);
  return ~low;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t before) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint32_t c = ~before;
  for (; size > 0; ++p, --size) c = kTable[(c ^ *p) & 0xFF] ^ (c >> 8);
  return ~c;
}

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  if (fast) return crc32c_sse42(data, size, before);
#endif
  return crc32c_portable(data, size, before);
}

}  // namespace barg::store
