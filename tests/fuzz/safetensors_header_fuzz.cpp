// safetensors bytes: header, tiling, and the first and last byte of every tensor.
#include <cstdint>
#include <span>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tensors = barg::model::parse_safetensors({reinterpret_cast<const std::byte*>(data), size});
  if (!tensors) return 0;
  std::uint64_t sum = 0;
  for (const auto& t : *tensors) {
    if (!t.bytes.empty())
      sum += std::to_integer<unsigned>(t.bytes.front()) + std::to_integer<unsigned>(t.bytes.back()) +
             t.elements();
  }
  return sum == 0x123456789abcdefULL;  // keeps the reads
}
