// Where the rows of packed matrices lie in a file, and how they are brought into order: what weights.cpp packs from.
// Everything borrows from the mapped file. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/quants.h"
#include "model/tensor.h"
#include "ops.h"

namespace barg::model {

/// Whole packed matrices are built from parts that begin at multiples of this (ops.h, packed_bytes).
inline constexpr std::int32_t kPackRows = 64;

/// A matrix that lies across the rows of a tensor: number k of row r is element first + r * row_step + k * k_step.
/// Numbers that lie in blocks are spelt out, and k_step is a row of the tensor then.
struct Across {
  std::int64_t first, row_step, k_step;
};

/// Rows of a tensor that are some of a matrix', or numbers that are some of a vector's. `heads` > 0: the first
/// `interleaved` of each head go from interleaved to halves order. The rows are every step-th from `row` on.
struct Source {
  const Tensor* tensor;
  std::int32_t row, rows;
  std::int32_t heads = 0;
  std::int32_t interleaved = 0;
  std::int32_t step = 1;
  std::optional<Across> across = {};  ///< instead of rows

  /// Whether the rows lie together, and whether in the order in which they shall lie in memory.
  bool together() const { return step == 1 && !across; }
  bool straight() const { return heads == 0 && together(); }

  /// Of these rows, `unit` bytes each. REQUIRES that they lie together.
  std::span<const std::byte> bytes(std::size_t unit) const {
    return tensor->bytes.subspan(static_cast<std::size_t>(row) * unit, static_cast<std::size_t>(rows) * unit);
  }
  /// What the file needs for rows [first, first + count) of these.
  std::span<const std::byte> row_bytes(std::int32_t first, std::int32_t count) const {
    const std::size_t unit = tensor->bytes.size() / static_cast<std::size_t>(row_count(*tensor));
    return bytes(unit).subspan(static_cast<std::size_t>(first) * unit,
                               static_cast<std::size_t>(count) * unit);
  }
  std::size_t file_bytes() const {
    std::size_t n = row_bytes(0, rows).size();
    if (tensor->source != nullptr) {
      for (const Tensor& part : tensor->source->parts) n += part.bytes.size();
    }
    return n;
  }
};

/// One packed matrix or f32 vector to be made. Targets live in the Weights under construction.
struct Task {
  std::vector<Source> sources;
  std::size_t offset = 0;
  std::int32_t n = 0, k = 0;  ///< k = 0: a vector of n floats
  ops::PackedWeight* matrix = nullptr;
  const float** vector = nullptr;
  std::function<void(std::span<float>)> change;  ///< of a vector, once it is read; usually none
};

/// Where row r of the decoder's lies among a source's: inside each head, row j*d/2 + i (j = 0, 1) of the
/// first d = interleaved is stored as row 2i + j.
inline std::int32_t stored_row(const Source& s, std::int32_t r) {
  if (s.heads == 0) return r * s.step;
  const std::int32_t in_head = r % (s.rows / s.heads), half = s.interleaved / 2;
  if (in_head >= s.interleaved) return r;
  return r - in_head + 2 * (in_head % half) + in_head / half;
}

/// The rows of a task's tensors, one matrix after the other.
class RowsOf {
 public:
  /// `spelt_out`: of a source across blocks, numbers from element Across::first of the tensor on.
  RowsOf(const Task& task, std::vector<float> spelt_out) : task_(task), spelt_out_(std::move(spelt_out)) {
    const Source& first = task.sources[0];
    row_bytes_ = first.across ? static_cast<std::size_t>(task.k) * number_bytes(first) : read_row_bytes(*first.tensor);
  }

  /// As the kernels read it.
  std::size_t row_bytes() const { return row_bytes_; }

  /// Rows [row, row + count), converted and in order.
  void copy(std::int32_t row, std::int32_t count, std::byte* out) const {
    while (count > 0) {
      const Place p = place(row);
      const Source& s = task_.sources[p.source];
      const std::int32_t at_once = s.straight() ? std::min(count, p.rows - p.row) : 1;
      if (s.across) {
        copy_across(s, p.row, out);
      } else {
        read_rows(*s.tensor, s.row + stored_row(s, p.row), at_once, out);
      }
      out += static_cast<std::size_t>(at_once) * row_bytes_;
      row += at_once;
      count -= at_once;
    }
  }

  /// Rows to pack at once from `row` on, a multiple of kPackRows; `src` is null where the file does not hold
  /// them as they are to be read, in order.
  struct Run {
    const std::byte* src;
    std::int32_t rows;
  };
  Run run(std::int32_t row, std::int32_t most) const {
    const Place p = place(row);
    if (task_.sources[p.source].straight() && stored_as_read(*task_.sources[p.source].tensor)) {
      const bool last = row + p.rows - p.row == task_.n;
      const std::int32_t whole = last ? p.rows - p.row : (p.rows - p.row) / kPackRows * kPackRows;
      if (whole > 0) return {data(p, p.row), std::min(whole, most)};
    }
    // Through the buffer, up to where the next tensor can be taken straight.
    const std::int32_t end = row + p.rows - p.row;
    const std::int32_t rows = std::max((end - row) / kPackRows, 1) * kPackRows;
    return {nullptr, std::min({rows, most, task_.n - row})};
  }

  /// Rows before `row` have been read: calls f(tensor, bytes) for the parts of the file that were still held.
  /// Of interleaved rows only whole heads are done with, of a source that is not in order only all rows;
  /// scattered ones are let go with the file.
  template <class F>
  void finished(std::int32_t row, F&& f) {
    while (released_ < row) {
      const Place p = place(released_);
      const Source& s = task_.sources[p.source];
      std::int32_t end = std::min(p.rows, p.row + row - released_);
      if (s.heads > 0) end -= end % (p.rows / s.heads);
      const RowSource* const source = s.tensor->source.get();
      if (end <= p.row || (source != nullptr && !source->in_order && end < p.rows)) return;
      if (s.together()) f(*s.tensor, s.row_bytes(p.row, end - p.row));
      if (s.together() && source != nullptr && end == p.rows) {
        for (const Tensor& part : source->parts) f(part, part.bytes);
      }
      released_ += end - p.row;
    }
  }

 private:
  struct Place {
    std::size_t source;
    std::int32_t rows;  ///< of the source
    std::int32_t row;   ///< in it
  };
  Place place(std::int32_t row) const {
    for (std::size_t i = 0;; ++i) {
      const std::int32_t rows = task_.sources[i].rows;
      if (row < rows) return {i, rows, row};
      row -= rows;
    }
  }
  void copy_across(const Source& s, std::int32_t row, std::byte* to) const {
    const std::size_t unit = number_bytes(s);
    const Across& a = *s.across;
    const std::byte* first = spelt_out_.empty()
                                 ? s.tensor->bytes.data() + static_cast<std::size_t>(a.first) * unit
                                 : std::as_bytes(std::span(spelt_out_)).data();
    const std::byte* from = first + static_cast<std::size_t>(row * a.row_step) * unit;
    for (std::int32_t k = 0; k < task_.k; ++k, to += unit, from += static_cast<std::size_t>(a.k_step) * unit)
      std::memcpy(to, from, unit);
  }
  const std::byte* data(const Place& p, std::int32_t row) const {
    const Source& s = task_.sources[p.source];
    return s.tensor->bytes.data() + (static_cast<std::size_t>(s.row) + static_cast<std::size_t>(row)) * row_bytes_;
  }

  std::size_t number_bytes(const Source& s) const {
    return spelt_out_.empty() ? s.tensor->type.block_bytes : sizeof(float);
  }

  const Task& task_;
  const std::vector<float> spelt_out_;
  std::size_t row_bytes_ = 0;
  std::int32_t released_ = 0;
};

}  // namespace barg::model
