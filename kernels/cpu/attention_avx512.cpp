// Attention, AVX-512: the kernel of attention_kernel.h on 32 registers of 16 lanes.
#include "cpu/avx512.h"
// Needs the vector types of the header above.
#include "cpu/attention_kernel.h"

namespace barg::ops::cpu {

void attention_avx512(Stream& stream, const AttentionParams& p) { run_attention(stream, p); }

}  // namespace barg::ops::cpu
