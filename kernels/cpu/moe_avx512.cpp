// Mixture of experts, AVX-512: moe_kernel.h over this table's matrix products.
#include "cpu/moe.h"

#include "cpu/moe_kernel.h"

namespace barg::ops::cpu {

void route_avx512(Stream& s, const RouteParams& p) { run_route(s, p); }
void experts_avx512(Stream& s, const ExpertsParams& p) { run_experts(s, p, avx512_ops()); }
void row_gate_avx512(Stream& s, const RowGateParams& p) { run_row_gate(s, p); }
void stacked_linear_avx512(Stream& s, const StackedLinearParams& p) { run_stacked(s, p, avx512_ops()); }

}  // namespace barg::ops::cpu
