// Command: one subcommand as data, and what it is given when it runs. The table of all of them is cli.cpp; a
// new one is a file and a row there.
//
// A command reports to the person on `io`, never on std::cout, and returns an ExitCode; what belongs to a
// pipeline goes to io.out, everything else to io.err. Commands run on the main thread.
#pragma once

#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings.h"
#include "runtime/open_cuda.h"

namespace barg::cli {

struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;  ///< progress may be drawn over one line
  bool in_is_terminal = false;   ///< prompts make sense
};

/// A flag of one command, beside the options of the schema.
struct CommandFlag {
  std::string_view name;        ///< "--template"
  std::string_view value_name;  ///< "FILE"; empty for a switch
  std::string_view help;
};

struct Invocation {
  Io& io;
  Settings settings;                         ///< defaults unless the command takes sections
  std::map<std::string, std::string> flags;  ///< the command's own flags that were given; "" for a switch
  std::vector<std::string> arguments;        ///< positional
  runtime::OpenDevice open_device = runtime::open_cuda;

  bool has(const std::string& flag) const { return flags.contains(flag); }
  /// The flag's value, or `otherwise`.
  std::string get(const std::string& flag, std::string otherwise = {}) const {
    const auto it = flags.find(flag);
    return it == flags.end() ? std::move(otherwise) : it->second;
  }
};

struct Command {
  std::string_view name;
  std::string_view summary;  ///< one line
  std::string_view arguments =
      {};  ///< how positional arguments show in the usage line: "[MODEL]", "check|print"
  int max_arguments = 0;
  bool model_argument = false;     ///< a positional argument is --model
  std::string_view sections = {};  ///< of the schema, or keys: "model.path kv"; empty = takes no options
  std::span<const CommandFlag> flags = {};
  int (*run)(Invocation&) = nullptr;
  std::string_view details = {};  ///< end of the help: examples
  std::span<const Command* const> subcommands = {};  ///< the second word names one of them; `run` is not used
};

// One per file.
extern const Command kServeCommand, kChatCommand, kCompleteCommand, kInspectCommand, kTokenizeCommand,
    kRenderCommand, kHealthCommand, kConfigCommand, kVersionCommand, kBenchCommand, kCacheCommand, kConformCommand,
    kReplayCommand, kGrammarCommand;
// Under `barg bench`, `barg cache` and `barg grammar`; their names are two words.
extern const Command kCacheLsCommand, kCacheVerifyCommand, kCacheGcCommand;
extern const Command kBenchModelCommand, kBenchServeCommand, kBenchKvCommand;
extern const Command kGrammarCheckCommand;

}  // namespace barg::cli
