// What this binary is: version, source revision, compiler, and what it finds in this machine. Any thread.
#pragma once

#include <string>

#include "barg/types.h"

namespace barg::cli {

struct BuildFacts {
  std::string version;   ///< "0.1.0"
  std::string git;       ///< short revision, or "unknown"
  std::string compiler;  ///< "g++ 12.2.0"
  std::string build;     ///< "release" or "debug"
  int kernel_epoch = kKernelEpoch;
  std::string cuda;  ///< the architectures that it has CUDA kernels for: "80, 90", or "none"
  std::string isa;  ///< instruction set that the kernels use on this machine unless told otherwise
};

BuildFacts build_facts();

}  // namespace barg::cli
