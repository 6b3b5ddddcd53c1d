// `barg version`: what this binary is.
#include <ostream>

#include "base/json.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/exit_codes.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {{"--json", "", "One JSON object instead of a line."}};

int run_version(Invocation& invocation) {
  const BuildFacts facts = build_facts();
  if (invocation.has("--json")) {
    invocation.io.out << dump_json(Json::object({{"version", facts.version},
                                                 {"git", facts.git},
                                                 {"compiler", facts.compiler},
                                                 {"build", facts.build},
                                                 {"kernel_epoch", facts.kernel_epoch},
                                                 {"isa", facts.isa},
                                                 {"cuda", facts.cuda}}))
                      << "\n";
  } else {
    invocation.io.out << "barg " << facts.version << " (" << facts.git << ", " << facts.compiler << ", "
                      << facts.build << ", kernels " << facts.isa << ", CUDA " << facts.cuda << ")\n";
  }
  return kExitOk;
}

}  // namespace

const Command kVersionCommand{.name = "version",
                              .summary = "print version, source revision, compiler and instruction set",
                              .flags = kFlags,
                              .run = run_version};

}  // namespace barg::cli
