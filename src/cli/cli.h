// The whole program behind main(): finds the command, reads flags, environment and file, runs the command.
// Returns the exit code (exit_codes.h); never throws, never calls exit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace barg::cli {

/// `args` without the program's name. `environment`: BARG_* variables and HOME. Tests give another device.
int run(std::span<const std::string> args, const Environment& environment, Io& io,
        const runtime::OpenDevice& open_device = runtime::open_cuda);

/// All commands, in the order of the help.
std::span<const Command* const> commands();

struct NamedCommand {
  const Command* command = nullptr;  ///< nullptr: there is no such command
  std::size_t words = 0;             ///< how many arguments named it
};
/// The command that the first word, or the first two (`bench serve`), name.
NamedCommand find_command(std::span<const std::string> args);

}  // namespace barg::cli
