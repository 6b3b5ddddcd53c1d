// The machine code of the kernels, in the program. Any thread.
#pragma once

namespace barg::cuda {

/// A fatbin for Device::load(); nullptr: this program was built without (BARG_CUDA=OFF).
const void* kernel_image();

}  // namespace barg::cuda
