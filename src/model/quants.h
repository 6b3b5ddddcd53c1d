// Weights that kernels do not read as they are stored: how the blocks of a ggml type become converted blocks
// (kernels/ops.h), and RowSource, the same for matrices that a Hugging Face checkpoint spreads over several
// tensors (hf_quants.h). Conversion is exact: every weight is its dequantised value to the bit (a zero may
// lose its sign).
//
// Whoever packs a matrix calls read_rows() for the rows it wants next, whatever the tensor; stored_as_read()
// says that the file's bytes themselves are those rows. Pure functions of mapped bytes; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "model/tensor.h"

namespace barg::model {

/// Rows of one matrix [rows, k], made from what a file stores when they are asked for.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// `count` rows from `row` on, in the tensor's StoredType::dtype, one after the other. REQUIRES they exist.
  virtual void read(std::int64_t row, std::int64_t count, std::byte* out) const = 0;

  /// Rows lie one after the other in Tensor::bytes, so that its pages can be given back as rows are read.
  bool in_order = true;
  /// Column j of the rows is column order[j] of the matrix; empty: as they are.
  std::vector<std::int32_t> order;
  /// The other tensors it reads (scales, zero points), to be given back in the end.
  std::vector<Tensor> parts;
};

/// Rows of a matrix or of a stack of matrices: all dimensions but the last.
std::int64_t row_count(const Tensor& tensor);
/// Bytes of a row as kernels read it. REQUIRES type.dtype and whole blocks.
std::size_t read_row_bytes(const Tensor& tensor);
/// Whether `bytes` are the rows that read_rows() gives.
bool stored_as_read(const Tensor& tensor);
/// `count` rows from `row` on, count * read_row_bytes() bytes, as the type.dtype says. REQUIRES type.dtype
/// and that the rows exist.
void read_rows(const Tensor& tensor, std::int64_t row, std::int64_t count, std::byte* out);

/// Of a ggml block type (nullptr for types without one): makes block_elements / 32 blocks of `to` from one
/// block.
struct GgmlConversion {
  DType to;
  BlockConverter convert;
};
const GgmlConversion* ggml_conversion(std::uint32_t id);

/// 2^(exponent - 128), half of what the E8M0 byte says: FP4 codes are twice their values.
float half_power_of_two(std::uint8_t exponent);

}  // namespace barg::model
