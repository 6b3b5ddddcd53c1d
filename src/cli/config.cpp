// `barg config`: what the options are and where their values come from. Opens no model.
#include <filesystem>
#include <ostream>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/exit_codes.h"
#include "server/openapi.h"

namespace barg::cli {
namespace {

// By the time this runs all sources were read and found valid.
int check(Invocation& invocation) {
  Io& io = invocation.io;
  const std::string& model = invocation.settings.config.model.path;
  std::error_code ignored;
  if (!model.empty() && !std::filesystem::exists(model, ignored)) {
    invocation.settings.warnings.push_back("there is no " + model + " on this machine (model.path).");
  }
  for (const std::string& warning : invocation.settings.warnings) io.err << "warning: " << warning << "\n";
  for (const std::string& line : describe_changes(invocation.settings)) io.out << line << "\n";
  io.out << "the configuration is valid\n";
  return kExitOk;
}

int run_config(Invocation& invocation) {
  const std::string verb = invocation.arguments.empty() ? "" : invocation.arguments[0];
  std::ostream& out = invocation.io.out;
  if (verb == "check") return check(invocation);
  if (verb == "print") {
    out << print_settings(invocation.settings);
  } else if (verb == "default") {
    out << default_yaml();
  } else if (verb == "docs") {
    out << options_markdown();
  } else if (verb == "endpoints") {
    out << server::endpoints_markdown();
  } else {
    invocation.io.err << "error: say what to do: barg config check, print, default, docs or endpoints.\n";
    return kExitUsage;
  }
  return kExitOk;
}

}  // namespace

const Command kConfigCommand{.name = "config",
                             .summary = "check or print the configuration",
                             .arguments = "check|print|default|docs|endpoints",
                             .max_arguments = 1,
                             .sections = "model kv scheduler runtime server log",
                             .run = run_config,
                             .details =
                                 "check     read every source and say whether the values are valid together\n"
                                 "print     all values, each with where it came from\n"
                                 "default   configs/default.yaml\n"
                                 "docs      docs/options.md\n"
                                 "endpoints docs/endpoints.md"};

}  // namespace barg::cli
