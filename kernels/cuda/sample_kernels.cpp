#include "cuda/sample_kernels.h"

#include "cuda/device_kernel.h"
#include "cuda/sampler.cuh"

namespace barg::cuda {

void launch_sample(Queue& queue, std::int32_t rows, const SampleArgs& args) {
  queue.launch(kernel<sample_kernel>(), {.grid_x = rows, .threads = kSampleThreads}, args);
}

void launch_counts(Queue& queue, std::int32_t sequences, const SampleCountsArgs& args) {
  queue.launch(kernel<sample_counts_kernel>(), {.grid_x = sequences, .threads = kSampleThreads}, args);
}

}  // namespace barg::cuda
