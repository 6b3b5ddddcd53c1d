// Attention, AVX2: the kernel of attention_kernel.h on 16 registers of 8 lanes, two for each Wide.
#include "cpu/avx2.h"
// Needs the vector types of the header above.
#include "cpu/attention_kernel.h"

namespace barg::ops::cpu {

void attention_avx2(Stream& stream, const AttentionParams& p) { run_attention(stream, p); }

}  // namespace barg::ops::cpu
