// Latent attention, AVX-512: latent_kernel.h over this instruction set's vectors.
#include "cpu/avx512.h"
#include "cpu/moe.h"
// Needs the vector types of the headers above.
#include "cpu/latent_kernel.h"

namespace barg::ops::cpu {

void latent_write_avx512(Stream& s, const LatentWriteParams& p) { run_latent_write(s, p); }
void latent_attention_avx512(Stream& s, const LatentAttentionParams& p) { run_latent_attention(s, p); }

}  // namespace barg::ops::cpu
