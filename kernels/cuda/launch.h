// Starting a kernel: what stands for `<<<>>>`. A Stream is a CUDA stream, or one of the emulated device (emu/emu.h).
#pragma once

#include <cstddef>

#if !defined(__CUDACC__)
#include "emu/machine.h"
#endif

namespace barg::cuda {

struct Stream;

struct LaunchShape {
  int grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 32;                ///< of a block: a multiple of 32, at most 1,024
  std::size_t dynamic_shared = 0;  ///< bytes, at most 227 KiB
};

#if !defined(__CUDACC__)
/// `launch<kernel<...>>(stream, shape, params)`: in stream order; the parameters are copied.
template <auto Kernel, class Params>
void launch(Stream& stream, const LaunchShape& shape, const Params& params) {
  const auto body = [](const void* p) { Kernel(*static_cast<const Params*>(p)); };
  emu::run(stream, {__PRETTY_FUNCTION__, shape.grid_x, shape.grid_y, shape.grid_z, shape.threads, shape.dynamic_shared}, body,
           &params);
}
#endif

}  // namespace barg::cuda
