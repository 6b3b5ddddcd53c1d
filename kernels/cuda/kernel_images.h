// The machine code of the kernels, in the program: a fatbin for each .cu file, made as images.cmake says. Any thread.
#pragma once

#include <cstddef>
#include <span>

#include "cuda/device.h"

namespace barg::cuda {

struct KernelImage {
  const char* name;  ///< of its .cu file
  const void* data;
  std::size_t bytes;
};

/// None: this program was built without (BARG_CUDA=OFF).
std::span<const KernelImage> kernel_images();
/// The compute capabilities that they are for, as "80, 90, 90-ptx" (code for newer ones too); "none".
const char* kernel_archs();

/// Gives all of them to the device. kInvalid, with what they are for, where the device or its driver cannot run them.
Status load_kernels(Device& device);

}  // namespace barg::cuda
