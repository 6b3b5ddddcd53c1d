// The loops behind limits.h, one set for each instruction set. Pure computation in registers; any thread.
#pragma once

#include <cstdint>

namespace barg::ops::cpu {

struct LimitLoop {
  void (*run)(std::int64_t rounds) = nullptr;  ///< null: the instruction does not exist here
  double operations = 0;                       ///< of one round
};

struct LimitLoops {
  LimitLoop f32, int8, int4, bf16;
};

LimitLoops limit_loops_avx2();
LimitLoops limit_loops_avx512();

}  // namespace barg::ops::cpu
