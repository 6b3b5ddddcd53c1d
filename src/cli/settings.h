// From the four sources to one Config: defaults, then the file, then the environment, then flags; the later
// one wins. Every value remembers where it came from. All problems are collected and reported together,
// before anything is opened or allocated.
//
// Reads the configuration file and nothing else; the environment is handed in. Any thread.
#pragma once

#include <expected>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/schema.h"

namespace barg::cli {

using Environment = std::map<std::string, std::string, std::less<>>;

/// A flag as it was typed: "--port" with "8001", or "--no-enable-prefix-caching" with "".
struct FlagValue {
  const Option* option = nullptr;
  std::string flag;
  std::string value;
};

struct Sources {
  std::optional<std::string> file;  ///< path of the YAML file
  Environment environment;          ///< variables that start with BARG_, HOME and XDG_STATE_HOME
  std::vector<FlagValue> flags;     ///< in the order typed
};

struct Settings {
  Config config;
  std::vector<std::string> origins;   ///< per row of schema(): "default", "FILE:LINE", "BARG_X" or "--x"
  std::vector<std::string> warnings;  ///< one sentence each; the program goes on
  std::string state_directory;        ///< where this user's programs keep state, empty if nobody says
};

struct Problems {
  std::vector<std::string> sentences;  ///< each names its flag, variable or file and line
  bool in_flags = false;               ///< some came from the command line itself (a usage error)
};

/// Unknown keys, wrong types, values out of range and contradictions between values are all in Problems.
std::expected<Settings, Problems> load_settings(const Sources& sources);

/// Contradictions between values of a Config whose single values are in range. Adds to `warnings` what is
/// legal but likely a mistake. Looks at no file; model files are checked where they are opened.
std::vector<std::string> cross_check(const Config& config, std::vector<std::string>& warnings);

/// "kv.block_size = 32 (configs/my.yaml:4)" for each value that is not the default, secrets hidden.
std::vector<std::string> describe_changes(const Settings& settings);

}  // namespace barg::cli
