#include "runtime/open_cuda.h"

#include <string>
#include <utility>

#include "cuda/device_driver.h"
#include "cuda/kernel_images.h"

namespace barg::runtime {

cuda::Status open_cuda(std::unique_ptr<cuda::Device>& out) {
  using Code = cuda::Status::Code;
  if (cuda::kernel_images().empty())
    return {Code::kNoDriver, "this program was built without CUDA kernels (BARG_CUDA=OFF)"};
  std::unique_ptr<cuda::Device> device;
  cuda::Status status = cuda::open_driver({}, device);
  if (status.ok()) status = cuda::load_kernels(*device);
  if (status.ok()) out = std::move(device);
  return status;
}

Result<ChosenDevice> choose_device(const Config& config, const OpenDevice& open) {
  const std::string& wanted = config.runtime.device;
  ChosenDevice chosen;
  if (wanted == "cpu") return chosen;
  if (wanted != "auto" && wanted != "cuda") {
    return fail(ErrorCode::kInvalidValue, "runtime.device is \"" + wanted + "\"; possible are auto, cpu, cuda",
                "runtime.device");
  }
  const cuda::Status status = open(chosen.device);
  if (status.ok()) return chosen;
  chosen.device.reset();
  if (wanted == "auto") {
    // Most machines have no driver, and nobody wonders.
    if (status.code != cuda::Status::Code::kNoDriver) chosen.note = "the CPU computes: " + status.message;
    return chosen;
  }
  return fail(ErrorCode::kUnavailable, "runtime.device is cuda: " + status.message, "runtime.device");
}

}  // namespace barg::runtime
