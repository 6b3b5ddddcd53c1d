// The AVX2 back end (with FMA and F16C): the same bits as ops_scalar.cpp.
#include "cpu/layout.h"

namespace barg::ops::cpu {

const OpTable& avx2_ops() { return scalar_ops(); }

}  // namespace barg::ops::cpu
