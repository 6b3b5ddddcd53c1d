#include "conformance.cuh"
#include "probe.cuh"
