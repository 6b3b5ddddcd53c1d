#include "cuda/kernel_images.h"

#include <string>

// BARG_KERNEL_IMAGES: a file of lines BARG_IMAGE(name, "path"), where the build has images.
#if defined(BARG_KERNEL_IMAGES)
#define BARG_IMAGE(name, path)                                                      \
  asm(".pushsection .rodata.barg_kernels,\"a\",@progbits\n"                         \
      ".balign 64\n"                                                                \
      ".hidden barg_image_" #name "\n.globl barg_image_" #name "\n"                 \
      "barg_image_" #name ":\n"                                                     \
      ".incbin \"" path "\"\n"                                                      \
      ".hidden barg_image_end_" #name "\n.globl barg_image_end_" #name "\n"         \
      "barg_image_end_" #name ":\n"                                                 \
      ".byte 0\n"                                                                   \
      ".popsection\n");                                                             \
  extern "C" __attribute__((visibility("hidden"))) const char barg_image_##name[], barg_image_end_##name[];
#include BARG_KERNEL_IMAGES
#undef BARG_IMAGE
#endif

namespace barg::cuda {

std::span<const KernelImage> kernel_images() {
#if defined(BARG_KERNEL_IMAGES)
#define BARG_IMAGE(name, path) \
  {#name, barg_image_##name, static_cast<std::size_t>(barg_image_end_##name - barg_image_##name)},
  static const KernelImage kImages[] = {
#include BARG_KERNEL_IMAGES
  };
#undef BARG_IMAGE
  return kImages;
#else
  return {};
#endif
}

const char* kernel_archs() {
#if defined(BARG_KERNEL_ARCHS)
  return BARG_KERNEL_ARCHS;
#else
  return "none";
#endif
}

Status load_kernels(Device& device) {
  for (const KernelImage& image : kernel_images()) {
    Status status = device.load(image.data);
    if (status.ok()) continue;
    const DeviceInfo& info = device.info();
    status.message = std::string("kernels of ") + image.name + ": " + status.message + "; this program has them for " +
                     kernel_archs() + ", " + info.name + " is " + std::to_string(10 * info.major + info.minor);
    return status;
  }
  return {};
}

}  // namespace barg::cuda
