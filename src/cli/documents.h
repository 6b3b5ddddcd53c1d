// The texts that are generated from the schema: --help, configs/default.yaml and docs/options.md. Tests
// compare the files in the tree with what these return. Pure functions.
#pragma once

#include <span>
#include <string>

#include "cli/command.h"

namespace barg::cli {

/// `barg --help`.
std::string general_help(std::span<const Command* const> commands);
/// `barg COMMAND --help`: usage, own flags, then each option with default and variable.
std::string command_help(const Command& command);
/// configs/default.yaml: every key with its default and what it is for.
std::string default_yaml();
/// docs/options.md: one table a section.
std::string options_markdown();
/// A configuration file that gives exactly these values; each line ends with where its value came from.
std::string print_settings(const Settings& settings);

}  // namespace barg::cli
