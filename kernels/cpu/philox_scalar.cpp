// gumbel_filter, the specification.
#include "cpu/philox.h"

namespace barg::ops::cpu {

std::int32_t gumbel_filter_scalar(const GumbelFilterParams& p) {
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < p.num_blocks; ++i) {
    const std::int32_t begin = p.blocks[i] * kBlockMax;
    const std::int32_t end = begin + kBlockMax < p.dim ? begin + kBlockMax : p.dim;
    count += gumbel_filter_ids(p, begin, end, p.hits + count);
  }
  return count;
}

}  // namespace barg::ops::cpu
