// gemm_lt_abi.h against the library's own headers; no code.
#include "cuda/gemm_lt_abi.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace barg::cuda::lt {

static_assert(CUBLAS_STATUS_SUCCESS == 0 && sizeof(cublasStatus_t) == sizeof(Status));
static_assert(CUDA_R_32F == kR32F && CUDA_R_16F == kR16F && CUDA_R_16BF == kR16BF);
static_assert(CUBLAS_COMPUTE_32F == kCompute32F && CUBLAS_OP_T == kTransposed);
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == kDescTransA);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == kPrefWorkspaceBytes);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == kPrefAlignment[0]);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == kPrefAlignment[1]);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == kPrefAlignment[2]);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == kPrefAlignment[3]);
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(Algorithm));
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(Found));
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == offsetof(Found, workspace_bytes));
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == offsetof(Found, state));

}  // namespace barg::cuda::lt
#endif
