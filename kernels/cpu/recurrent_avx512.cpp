// Recurrent mixers and their gates, AVX-512: the kernels of recurrent_kernel.h.
#include "cpu/avx512.h"
// Needs the vector types of the header above.
#include "cpu/recurrent_kernel.h"

namespace barg::ops::cpu {

void sigmoid_mul_avx512(Stream& stream, const SigmoidMulParams& p) { run_sigmoid_mul(stream, p); }
void conv1d_avx512(Stream& stream, const Conv1dParams& p) { run_conv1d(stream, p); }
void delta_net_avx512(Stream& stream, const DeltaNetParams& p) { run_delta_net(stream, p); }
void mamba2_avx512(Stream& stream, const Mamba2Params& p) { run_mamba2(stream, p); }
void gated_norm_avx512(Stream& stream, const GatedNormParams& p) { run_gated_norm(stream, p); }

}  // namespace barg::ops::cpu
