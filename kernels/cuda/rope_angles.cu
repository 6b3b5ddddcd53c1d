// These kernels are no templates: including them defines them.
#include "cuda/rope_angles.cuh"
