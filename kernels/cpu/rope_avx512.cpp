// Rotation and the KV write, AVX-512: rope_kernel.h over this instruction set's Wide.
#include "cpu/avx512.h"
// Needs the vector types of the header above.
#include "cpu/rope_kernel.h"

namespace barg::ops::cpu {

void rope_kv_write_avx512(Stream& stream, const RopeKvParams& p) { run_rope(stream, p); }

}  // namespace barg::ops::cpu
