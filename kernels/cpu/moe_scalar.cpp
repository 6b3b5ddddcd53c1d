// Mixture of experts, scalar: moe_kernel.h over this table's matrix products.
#include "cpu/moe.h"

#include "cpu/moe_kernel.h"

namespace barg::ops::cpu {

void route_scalar(Stream& s, const RouteParams& p) { run_route(s, p); }
void experts_scalar(Stream& s, const ExpertsParams& p) { run_experts(s, p, scalar_ops()); }
void row_gate_scalar(Stream& s, const RowGateParams& p) { run_row_gate(s, p); }
void stacked_linear_scalar(Stream& s, const StackedLinearParams& p) { run_stacked(s, p, scalar_ops()); }

}  // namespace barg::ops::cpu
