// Which device computes: what runtime.device says, and what this program and this machine have. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "barg/config.h"
#include "barg/result.h"
#include "cuda/device.h"

namespace barg::runtime {

/// Opens a CUDA device with the kernels loaded. Tests give another than open_cuda().
using OpenDevice = std::function<cuda::Status(std::unique_ptr<cuda::Device>&)>;

/// The machine's first, by its driver. kNoDriver: this machine has none, or this program no kernels.
cuda::Status open_cuda(std::unique_ptr<cuda::Device>& out);

struct ChosenDevice {
  std::unique_ptr<cuda::Device> device;  ///< nullptr: the CPU
  std::string note;                      ///< for a person: why "auto" is the CPU where there is a driver
};

/// With "cuda" a device that cannot be had is an error (kUnavailable), with "auto" the CPU's turn.
Result<ChosenDevice> choose_device(const Config& config, const OpenDevice& open);

}  // namespace barg::runtime
