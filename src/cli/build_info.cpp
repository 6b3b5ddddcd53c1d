#include "cli/build_info.h"

#include "cpu/cpu.h"
#include "cuda/kernel_images.h"

namespace barg::cli {

BuildFacts build_facts() {
  BuildFacts facts;
  facts.version = BARG_VERSION;
  facts.git = BARG_GIT;
#if defined(__clang__)
  facts.compiler = "clang++ " __clang_version__;
#else
  facts.compiler = "g++ " __VERSION__;
#endif
#ifdef NDEBUG
  facts.build = "release";
#else
  facts.build = "debug";
#endif
  facts.cuda = cuda::kernel_archs();
  facts.isa = ops::isa_name(ops::best_isa());
  return facts;
}

}  // namespace barg::cli
