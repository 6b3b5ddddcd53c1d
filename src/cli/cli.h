// The whole program behind main(): finds the command, reads flags, environment and file, runs the command.
// Returns the exit code (exit_codes.h); never throws, never calls exit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace barg::cli {

/// `args` without the program's name. `environment`: BARG_* variables and HOME.
int run(std::span<const std::string> args, const Environment& environment, Io& io);

/// All commands, in the order of the help.
std::span<const Command* const> commands();

}  // namespace barg::cli
