// These kernels are no templates: including them defines them.
#include "cuda/sampler.cuh"
