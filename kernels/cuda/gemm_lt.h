// cuBLASLt, opened when it is first wanted: matrix products over many rows of x where the numerics need not be those of
// gemm.h (`invariant: false`: which algorithm the library takes, and so the order of additions, depends on the number of
// rows). A program that never asks needs no such library, and none of its headers is needed to build.
//
// An object may be used by one thread at a time. Errors are texts for people; empty: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "barg/types.h"

namespace barg::cuda {

struct GemmLtParams {
  DType type = DType::kBF16;              ///< of both factors: kBF16 or kF16
  const std::uint16_t* weight = nullptr;  ///< [N, K] dense (gemm_unpack.cuh), 16-byte aligned
  const std::uint16_t* x = nullptr;       ///< [R, K], row stride x_stride, 16-byte aligned
  std::int64_t x_stride = 0;
  std::int32_t rows = 0, n = 0, k = 0;
  float* out = nullptr;  ///< [R, N], row stride out_stride
  std::int64_t out_stride = 0;
  bool accumulate = false;    ///< out = out + x W^T
  void* workspace = nullptr;  ///< of the device, 256-byte aligned
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;  ///< a cudaStream_t
};

class GemmLt {
 public:
  /// The names under which the library is looked for, in order.
  static std::vector<std::string> default_names() { return {"libcublasLt.so.13", "libcublasLt.so.12"}; }

  /// Opens the first library of these names that there is, for the device that is current. nullptr: `error` says why.
  static std::unique_ptr<GemmLt> open(const std::vector<std::string>& names, std::string* error);
  ~GemmLt();
  GemmLt(const GemmLt&) = delete;
  GemmLt& operator=(const GemmLt&) = delete;

  /// Puts the product into the stream. What it computes for a shape is looked up once and kept.
  std::string multiply(const GemmLtParams& p);
  std::size_t version() const;

 private:
  struct Functions;
  struct Plan;
  /// Of weight, x and out, in bytes: the library would take 256 for granted.
  using Alignment = std::array<std::uint32_t, 3>;
  using Key = std::tuple<DType, std::int32_t, std::int32_t, std::int32_t, std::int64_t, std::int64_t, std::size_t, Alignment>;

  GemmLt();
  std::string plan(const GemmLtParams& p, const Alignment& alignment, Plan& plan);
  std::string text(int status, const char* what) const;

  std::unique_ptr<Functions> lt_;
  void* handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace barg::cuda
