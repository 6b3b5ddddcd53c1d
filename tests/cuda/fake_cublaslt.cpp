// A cublasLt of the host's memory, for gemm_lt_test: the functions that gemm_lt.cpp asks for, by the library's
// documentation. Matrices are by columns. It fails where that test wants it to: for products with 13 columns, and has no
// algorithm for 11.
#include <cstdint>
#include <cstring>

#include "cuda/gemm_lt_abi.h"
#include "math.h"

using namespace barg::cuda::lt;

namespace {

constexpr Status kInvalid = 7, kExecutionFailed = 13;

struct Desc {
  int compute, scale;
  std::int32_t transposed_a = 0;
};
struct Layout {
  int type;
  std::uint64_t rows, cols;
  std::int64_t stride;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};
int objects = 0;

float element(const Layout& l, const void* data, std::uint64_t row, std::uint64_t col) {
  const std::uint64_t at = col * static_cast<std::uint64_t>(l.stride) + row;
  if (l.type == kR32F) return static_cast<const float*>(data)[at];
  const std::uint16_t h = static_cast<const std::uint16_t*>(data)[at];
  return l.type == kR16F ? barg::ops::f16_to_f32(h) : barg::ops::bf16_to_f32(h);
}

}  // namespace

extern "C" {

/// Descriptors, layouts, preferences and handles that are not destroyed yet.
int fake_objects() { return objects; }

std::size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(Status s) { return s == kInvalid ? "invalid value" : "execution failed"; }
Status cublasLtCreate(void** handle) {
  ++objects;
  *handle = new int(42);
  return 0;
}
Status cublasLtDestroy(void* handle) {
  --objects;
  delete static_cast<int*>(handle);
  return 0;
}
Status cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  ++objects;
  *desc = new Desc{compute, scale};
  return 0;
}
Status cublasLtMatmulDescDestroy(void* desc) {
  --objects;
  delete static_cast<Desc*>(desc);
  return 0;
}
Status cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, std::size_t bytes) {
  if (attribute != kDescTransA || bytes != sizeof(std::int32_t)) return kInvalid;
  std::memcpy(&static_cast<Desc*>(desc)->transposed_a, value, bytes);
  return 0;
}
Status cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t cols, std::int64_t stride) {
  if (stride < static_cast<std::int64_t>(rows)) return kInvalid;
  ++objects;
  *layout = new Layout{type, rows, cols, stride};
  return 0;
}
Status cublasLtMatrixLayoutDestroy(void* layout) {
  --objects;
  delete static_cast<Layout*>(layout);
  return 0;
}
Status cublasLtMatmulPreferenceCreate(void** preference) {
  ++objects;
  *preference = new Preference;
  return 0;
}
Status cublasLtMatmulPreferenceDestroy(void* preference) {
  --objects;
  delete static_cast<Preference*>(preference);
  return 0;
}
Status cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, std::size_t bytes) {
  auto& to = *static_cast<Preference*>(preference);
  for (int i = 0; i < 4; ++i) {
    if (attribute != kPrefAlignment[i]) continue;
    if (bytes != sizeof(std::uint32_t)) return kInvalid;
    std::memcpy(&to.alignment[i], value, bytes);
    return 0;
  }
  if (attribute != kPrefWorkspaceBytes || bytes != sizeof(std::uint64_t)) return kInvalid;
  std::memcpy(&to.workspace, value, bytes);
  return 0;
}
Status cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void* d, void* preference, int asked, Found* found,
                                      int* count) {
  if (asked != 1) return kInvalid;
  *count = static_cast<Layout*>(d)->cols == 11 ? 0 : 1;
  found->state = 0;
  const auto& how = *static_cast<Preference*>(preference);
  found->workspace_bytes = how.workspace;
  found->algorithm.data[0] = 99;
  for (int i = 0; i < 4; ++i) found->algorithm.data[1 + i] = how.alignment[i];
  return 0;
}
Status cublasLtMatmul(void*, void* desc, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                      const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const Algorithm* algorithm,
                      void*, std::size_t, void*) {
  const auto& how = *static_cast<Desc*>(desc);
  const auto &la = *static_cast<Layout*>(a_layout), &lb = *static_cast<Layout*>(b_layout),
             &lc = *static_cast<Layout*>(c_layout), &ld = *static_cast<Layout*>(d_layout);
  const bool transposed = how.transposed_a == kTransposed;
  const std::uint64_t m = transposed ? la.cols : la.rows, k = transposed ? la.rows : la.cols;
  if (how.compute != kCompute32F || how.scale != kR32F || algorithm->data[0] != 99 || ld.type != kR32F) return kInvalid;
  if (ld.rows != m || ld.cols != lb.cols || lb.rows != k) return kInvalid;
  if (ld.cols == 13) return kExecutionFailed;
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {  // an algorithm for more than it gets reads and writes elsewhere
    if (reinterpret_cast<std::uintptr_t>(operands[i]) % algorithm->data[1 + i] != 0) return kExecutionFailed;
  }
  for (std::uint64_t col = 0; col < ld.cols; ++col) {
    for (std::uint64_t row = 0; row < m; ++row) {
      float sum = 0;
      for (std::uint64_t i = 0; i < k; ++i) {
        sum += (transposed ? element(la, a, i, row) : element(la, a, row, i)) * element(lb, b, i, col);
      }
      const float old = *static_cast<const float*>(beta);
      float& to = static_cast<float*>(d)[col * static_cast<std::uint64_t>(ld.stride) + row];
      to = *static_cast<const float*>(alpha) * sum + (old == 0 ? 0 : old * element(lc, c, row, col));
    }
  }
  return 0;
}
}
