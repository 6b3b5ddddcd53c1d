// The sampler's launches (sampler.h says what they do). Threads: as the Queue.
#pragma once

#include "cuda/queue.h"
#include "cuda/sampler.h"

namespace barg::cuda {

/// One block a row.
void launch_sample(Queue& queue, std::int32_t rows, const SampleArgs& args);
/// One block a sequence.
void launch_counts(Queue& queue, std::int32_t sequences, const SampleCountsArgs& args);

}  // namespace barg::cuda
