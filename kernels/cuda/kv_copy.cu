// These kernels are no templates: including them defines them.
#include "cuda/kv_copy.cuh"
