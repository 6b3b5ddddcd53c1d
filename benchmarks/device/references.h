// What results should be, in float64, and the inputs: matrices as files store them, and sequences whose q, k and v are a
// function of (sequence, position, head, dimension), so that they can be cut in any way. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/attention_plan.h"
#include "device/check.h"

namespace barg::check {

/// About normal, of a place.
float normal_of(std::uint64_t place);
std::vector<float> normals(std::size_t count, std::uint64_t seed, float size = 1);

/// The norm of the difference over that of `want`; infinite where something is not finite.
double error(std::span<const float> got, std::span<const double> want);

std::uint16_t to_half(cuda::Half type, float x);
double from_half(cuda::Half type, std::uint16_t h);

/// [n, k] random blocks of a type.
class StoredMatrix {
 public:
  StoredMatrix(DType type, std::int32_t n, std::int32_t k, std::uint64_t seed);
  double weight(std::int32_t row, std::int32_t column) const;

  const DType type;
  const std::int32_t n, k;
  std::vector<std::byte> bytes;
};
/// On the device, packed; data nullptr: the table has no kernels for the type.
ops::PackedWeight packed(Lab& lab, const ops::OpTable& ops, const StoredMatrix& m);

struct AttentionCase {
  DType kv = DType::kF16;
  std::int32_t dim = 64, group = 4, kv_heads = 2, window = 0, block_tokens = 16;
};
/// Rows of a sequence at positions position, position + 1, ...
struct Run {
  std::int32_t sequence, position, count;
};

/// Sequences with K and V on the device. run() writes those of its rows, rotated, and attends to all before them.
class Sequences {
 public:
  Sequences(Lab& lab, const AttentionCase& c, std::int32_t sequences, std::int32_t longest);
  /// [rows, heads, dim], of the runs in turn.
  std::vector<float> run(const std::vector<Run>& runs);
  /// Issues attention alone over rows whose K and V are there; valid until the next run() or prepare().
  void prepare(const std::vector<Run>& runs);
  void attend();
  /// Of run(), in float64 over what is stored.
  std::vector<double> reference(const std::vector<Run>& runs) const;
  /// The arena: K and V of all sequences.
  std::byte* kv() const { return view_.base; }
  std::size_t kv_bytes() const { return kv_bytes_; }
  std::size_t row_floats() const { return static_cast<std::size_t>(case_.group * case_.kv_heads * case_.dim); }

 private:
  void plan();
  const std::vector<double>& stored_head(int what, std::int32_t sequence, std::int32_t position, std::int32_t head) const;

  Lab& lab_;
  const AttentionCase case_;
  const std::int32_t blocks_each_;
  ops::KvLayerView view_{};
  std::size_t kv_bytes_ = 0;
  const BlockId* tables_ = nullptr;  ///< of the device, [sequences, blocks_each_]
  std::vector<ops::Segment> segments_;
  std::int32_t rows_ = 0;
  float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *out_ = nullptr, *cos_ = nullptr, *sin_ = nullptr;
  mutable std::map<std::uint64_t, std::vector<double>> heads_;
};

}  // namespace barg::check
