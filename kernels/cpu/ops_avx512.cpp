// The AVX-512 back end (F, BW, DQ, VL and VNNI): the table and the row operations. Same bits as ops_scalar.cpp.
#include "cpu/layout.h"
#include "cpu/philox.h"

namespace barg::ops::cpu {

const OpTable& avx512_ops() {
  static const OpTable kTable = [] {
    OpTable t = avx2_ops();
    t.name = "cpu-avx512";
    t.gumbel_filter = gumbel_filter_avx512;
    return t;
  }();
  return kTable;
}

}  // namespace barg::ops::cpu
