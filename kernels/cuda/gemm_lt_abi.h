// What gemm_lt.cpp needs to know of cublasLt.h and library_types.h, so that neither is needed to build. gemm_lt_check.cu
// holds it against those headers where nvcc is. Constants; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace barg::cuda::lt {

using Status = int;  // cublasStatus_t; 0: success

struct Algorithm {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};
struct Found {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

inline constexpr int kR32F = 0, kR16F = 2, kR16BF = 14;  // cudaDataType
inline constexpr int kCompute32F = 68;                   // CUBLAS_COMPUTE_32F
inline constexpr int kDescTransA = 3;                    // CUBLASLT_MATMUL_DESC_TRANSA, int32_t
inline constexpr std::int32_t kTransposed = 1;           // CUBLAS_OP_T
inline constexpr int kPrefWorkspaceBytes = 1;            // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t
inline constexpr int kPrefAlignment[] = {5, 6, 7, 8};    // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A,B,C,D}_BYTES, uint32_t

}  // namespace barg::cuda::lt
