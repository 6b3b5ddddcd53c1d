// Tensor: one named array inside a mapped weight file, container-neutral. A view: the file that holds `bytes`
// belongs to ModelFiles. Immutable; any thread.
//
// Shapes are row-major with the outermost dimension first ([out, in] for a matrix y = W x), whatever the
// container's own order. Sizes are validated against the file before a Tensor exists: `bytes` is exactly the
// tensor's storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "barg/types.h"

namespace barg::model {

class RowSource;  // quants.h

/// Makes the blocks that kernels read from one block of a file (quants.h).
using BlockConverter = void (*)(const std::byte* block, std::byte* out);

/// How a container stores elements. `dtype` is set only for what kernels can read, as it is or converted;
/// other types parse, so that a file can be inspected, and are refused by name when a tensor of theirs is
/// used.
struct StoredType {
  const char* name = "?";  ///< "F16", "Q4_K"; static storage
  std::uint32_t block_elements = 1;
  std::uint32_t block_bytes = 0;
  std::optional<DType> dtype;  ///< of the rows that read_rows() gives (quants.h)
  BlockConverter convert = nullptr;
};

struct Tensor {
  std::string name;  ///< as in the file
  StoredType type;
  std::vector<std::int64_t> shape;  ///< outermost first; empty = scalar
  std::span<const std::byte> bytes;
  std::uint32_t file = 0;  ///< which of the model's files (shards)
  std::shared_ptr<const RowSource> source = nullptr;  ///< of a matrix that several tensors make up

  /// Elements lie in `bytes` as floats, one by one.
  bool plain_floats() const {
    return type.dtype && type.block_elements == 1 && type.convert == nullptr && source == nullptr;
  }

  std::uint64_t elements() const {
    std::uint64_t n = 1;
    for (const std::int64_t d : shape) n *= static_cast<std::uint64_t>(d);
    return n;  // cannot overflow: the product was checked against the file's size
  }
};

}  // namespace barg::model
