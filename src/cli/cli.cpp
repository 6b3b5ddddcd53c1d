#include "cli/cli.h"

#include <ostream>

#include "cli/args.h"
#include "cli/documents.h"
#include "cli/exit_codes.h"

namespace barg::cli {
namespace {

constexpr const Command* kCommands[] = {
    &kServeCommand,  &kChatCommand,   &kCompleteCommand, &kInspectCommand, &kTokenizeCommand,
    &kRenderCommand, &kHealthCommand, &kConfigCommand,   &kBenchCommand,   &kCacheCommand,
    &kGrammarCommand, &kConformCommand, &kReplayCommand, &kVersionCommand,
};

int unknown_command(const std::string& name, std::span<const Command* const> table, std::string_view help,
                    Io& io) {
  std::vector<std::string_view> names;
  for (const Command* command : table) names.push_back(command->name);
  const std::string near = nearest(name, names);
  io.err << "error: there is no command '" << name << "'"
         << (near.empty() ? "; `" + std::string(help) + "` lists them." : "; did you mean " + near + "?")
         << "\n";
  return kExitUsage;
}

int report(const std::vector<std::string>& problems, Io& io, int code) {
  for (const std::string& sentence : problems) io.err << "error: " << sentence << "\n";
  return code;
}

int run_command(const Command& command, ParsedArgs args, const Environment& environment, Io& io,
                const runtime::OpenDevice& open_device) {
  Sources sources{.file = args.config_file, .environment = environment, .flags = std::move(args.options)};
  if (const auto it = environment.find("BARG_CONFIG");
      !sources.file && it != environment.end() && !it->second.empty()) {
    sources.file = it->second;
  }
  // A command without options must work beside a broken configuration file.
  if (command.sections.empty()) sources = Sources{};
  std::expected<Settings, Problems> settings = load_settings(sources);
  if (!settings) {
    return report(settings.error().sentences, io, settings.error().in_flags ? kExitUsage : kExitBadConfig);
  }
  Invocation invocation{.io = io,
                        .settings = std::move(*settings),
                        .flags = std::move(args.own),
                        .arguments = std::move(args.positional),
                        .open_device = open_device};
  return command.run(invocation);
}

}  // namespace

std::span<const Command* const> commands() { return kCommands; }

NamedCommand find_command(std::span<const std::string> args) {
  if (args.empty()) return {};
  NamedCommand found;
  for (const Command* command : kCommands) {
    if (command->name == args[0]) found = {command, 1};
  }
  if (found.command == nullptr || args.size() < 2) return found;
  for (const Command* command : found.command->subcommands) {
    if (command->name == args[0] + " " + args[1]) return {command, 2};
  }
  return found;
}

int run(std::span<const std::string> args, const Environment& environment, Io& io, const runtime::OpenDevice& open_device) {
  if (args.empty()) {
    io.err << general_help(kCommands);
    return kExitUsage;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    io.out << general_help(kCommands);
    return kExitOk;
  }
  const std::vector<std::string> version{"version"};
  if (args[0] == "--version") args = version;
  const auto [command, words] = find_command(args);
  if (command == nullptr) return unknown_command(args[0], kCommands, "barg --help", io);
  if (!command->subcommands.empty() && args.size() > 1 && !args[1].starts_with('-')) {
    return unknown_command(args[0] + " " + args[1], command->subcommands,
                           "barg " + args[0] + " --help", io);
  }
  ParsedArgs parsed = parse_args(*command, args.subspan(words));
  if (parsed.help) {
    io.out << command_help(*command);
    return kExitOk;
  }
  if (!parsed.problems.empty()) {
    report(parsed.problems, io, kExitUsage);
    io.err << "`barg " << command->name << " --help` lists the flags.\n";
    return kExitUsage;
  }
  if (command->run == nullptr) {
    io.err << command_help(*command);
    return kExitUsage;
  }
  return run_command(*command, std::move(parsed), environment, io, open_device);
}

}  // namespace barg::cli
