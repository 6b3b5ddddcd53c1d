// What this machine can do at most: the ceilings that benchmarks put beside their figures.
//
// Every figure is the best of many windows on all threads of a device at once: whole passes over memory far
// larger than the caches (several streams a thread, huge pages), and short register-only loops of the very
// instruction that the device's kernels multiply with. A multiply and an add are two operations.
//
// Thread rule: as for operations on the device's stream. Takes its own memory and gives it back.
#pragma once

#include "cpu/cpu.h"

namespace barg::ops {

struct Limits {
  int threads = 0;
  double read_gbytes =
      0;                  ///< 1e9 bytes a second from memory, all threads together; 0: no memory for the test
  double f32_gflops = 0;  ///< f32 FMA of the device's vector width
  double int8_gops = 0;   ///< AVX-512: vpdpbusd. AVX2: vpmaddubsw, vpmaddwd, vpaddd. Scalar: one by one
  /// 4-bit weights times 8-bit activations. AVX-512: vpdpbusd. AVX2: four vpmaddubsw fit 16 bits and share
  /// one vpmaddwd.
  double int4_gops = 0;
  double bf16_gflops = 0;  ///< vdpbf16ps; 0 where the device's instruction set has none
};

/// Takes about `seconds` (at least a few windows each), and a little more to fill the memory it reads.
Limits measure_limits(CpuDevice& device, double seconds = 1.0);

}  // namespace barg::ops
