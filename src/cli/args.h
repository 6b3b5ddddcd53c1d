// The command line as data: which schema options, which of the command's own flags, which positional
// arguments.
// `--flag value` and `--flag=value` mean the same; `--` ends the flags. Pure; problems are collected.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace barg::cli {

struct ParsedArgs {
  std::vector<FlagValue> options;
  std::map<std::string, std::string> own;
  std::vector<std::string> positional;
  std::optional<std::string> config_file;  ///< --config
  bool help = false;
  std::vector<std::string> problems;  ///< one sentence each
};

/// `args` without program and command name.
ParsedArgs parse_args(const Command& command, std::span<const std::string> args);

/// True if the command takes the option (its section or its key is listed).
bool takes(const Command& command, const Option& option);

}  // namespace barg::cli
