#include "cli/documents.h"

#include <algorithm>

#include "cli/args.h"
#include "cli/values.h"

namespace barg::cli {
namespace {

constexpr std::size_t kWidth = 100;

// Words of `text`, each line at most kWidth wide and starting with `prefix`.
std::string wrapped(const std::string& prefix, std::string_view text) {
  std::string out;
  std::string line = prefix;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (line.size() > prefix.size() && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = prefix;
    }
    if (line.size() > prefix.size()) line += ' ';
    line += word;
  }
  return out + line + "\n";
}

std::string values_of(const Option& option) {
  switch (option.kind) {
    case Kind::kText:
      return "text";
    case Kind::kPath:
      return "path";
    case Kind::kList:
    case Kind::kSpecs:
      return "list";
    case Kind::kBool:
      return "true, false";
    case Kind::kBytes:
      return "size";
    case Kind::kDuration:
      return "time";
    case Kind::kNumber:
      return "number";
    case Kind::kChoice:
    case Kind::kInteger:
      break;
  }
  if (option.choices.empty()) return "integer";
  std::string out(option.choices);
  for (std::size_t i = 0; (i = out.find('|', i)) != std::string::npos; i += 2) out.replace(i, 1, ", ");
  return out;
}

std::string value_name(const Option& option) {
  switch (option.kind) {
    case Kind::kPath:
      return " PATH";
    case Kind::kList:
      return " A,B";
    case Kind::kSpecs:
      return " SPEC";
    case Kind::kBool:
      return "";
    case Kind::kBytes:
      return " SIZE";
    case Kind::kDuration:
      return " TIME";
    case Kind::kText:
      return " TEXT";
    case Kind::kInteger:
    case Kind::kNumber:
    case Kind::kChoice:
      break;
  }
  return option.choices.empty() ? " N" : " " + std::string(option.choices);
}

std::string flag_cell(const Option& option) {
  std::string out(option.flag);
  if (option.kind == Kind::kBool) out += ", --no-" + std::string(option.flag.substr(2));
  return out;
}

std::string name_of(const Option& option) { return std::string(option.key.substr(option.key.find('.') + 1)); }

std::string option_help(const Option& option) {
  const std::string head = "  " + flag_cell(option) + value_name(option);
  const std::string value = show(option, Config{});
  const bool nothing = value == "\"\"" || value == "[]";
  const std::string facts = (nothing ? "" : " [" + value + "]") + " (" + env_name(option) + ")";
  return head + "\n" + wrapped("      ", std::string(option.help) + facts);
}

}  // namespace

std::string general_help(std::span<const Command* const> commands) {
  std::string out =
      "Barg serves language models: `barg serve --model FILE`, then speak the OpenAI API to "
      "it.\n\nCommands:\n";
  for (const Command* command : commands) {
    std::string line = "  barg " + std::string(command->name);
    line.resize(std::max<std::size_t>(line.size() + 1, 18), ' ');
    out += line + std::string(command->summary) + "\n";
  }
  return out +
         "\n`barg COMMAND --help` lists a command's flags. Every option is also a key of a configuration "
         "file\n"
         "(--config FILE) and a variable: --max-model-len is BARG_MAX_MODEL_LEN.\n"
         "Flag wins over variable, variable over file, file over default.\n";
}

std::string command_help(const Command& command) {
  std::string out = "barg " + std::string(command.name) + ": " + std::string(command.summary) +
                    "\n\nUsage: barg " + std::string(command.name);
  if (!command.arguments.empty()) out += " " + std::string(command.arguments);
  out += " [FLAGS]\n";
  if (!command.flags.empty()) out += "\nFlags:\n";
  for (const CommandFlag& flag : command.flags) {
    out += "  " + std::string(flag.name) +
           (flag.value_name.empty() ? "" : " " + std::string(flag.value_name)) + "\n";
    out += wrapped("      ", flag.help);
  }
  if (!command.sections.empty())
    out += "  --config FILE\n      A YAML file with any of the options below. (BARG_CONFIG)\n";
  std::string_view section;
  for (const Option& option : schema()) {
    if (!takes(command, option)) continue;
    if (section_of(option) != section) {
      section = section_of(option);
      out += "\n" + std::string(section) + ": " + std::string(section_title(section)) + "\n";
    }
    out += option_help(option);
  }
  if (!command.details.empty()) out += "\n" + std::string(command.details) + "\n";
  return out;
}

std::string default_yaml() {
  std::string out =
      "# Every option with its default. `barg config default` writes this file; a test compares it.\n"
      "#\n"
      "# Copy the lines you want to change. A flag wins over a variable, a variable over the file, the file "
      "over\n"
      "# the default. Sizes: bytes, or a number with KiB, MiB, GiB, TiB. Times: seconds, or with ms, s, m, "
      "h.\n"
      "# An unknown key is an error.\n";
  std::string_view section;
  for (const Option& option : schema()) {
    if (section_of(option) != section) {
      section = section_of(option);
      out += "\n# " + std::string(section_title(section)) + "\n" + std::string(section) + ":\n";
    }
    std::string facts = " (" + std::string(option.flag) + ", " + env_name(option);
    if (!option.choices.empty()) facts += "; " + values_of(option);
    out += wrapped("  # ", std::string(option.help) + facts + ")");
    out += "  " + name_of(option) + ": " + show(option, Config{}) + "\n";
  }
  return out;
}

std::string options_markdown() {
  std::string out =
      "# Options\n\n"
      "`barg config docs` writes this page; a test compares it. A flag wins over a variable, a variable over "
      "the\n"
      "configuration file, the file over the default; `barg config print` shows each value and where it came "
      "from.\n\n"
      "A *size* is a number of bytes, or a number with KiB, MiB, GiB, TiB. A *time* is in seconds, or a "
      "number with\n"
      "ms, s, m, h. A *list* is `[a, b]` in YAML, and in flags and variables separated by commas, "
      "tiers by\n"
      "semicolons (or the flag given more than once). An empty variable counts as absent.\n";
  std::string_view section;
  for (const Option& option : schema()) {
    if (section_of(option) != section) {
      section = section_of(option);
      out += "\n## " + std::string(section) + ": " + std::string(section_title(section)) +
             "\n\n| key | flag | variable | values | default | meaning |\n|---|---|---|---|---|---|\n";
    }
    out += "| `" + std::string(option.key) + "` | `" + flag_cell(option) + "` | `" + env_name(option) +
           "` | " + values_of(option) + " | `" + show(option, Config{}) + "` | " + std::string(option.help) +
           " |\n";
  }
  return out;
}

std::string print_settings(const Settings& settings) {
  std::string out;
  std::string_view section;
  for (std::size_t i = 0; i < schema().size(); ++i) {
    const Option& option = schema()[i];
    if (section_of(option) != section) {
      section = section_of(option);
      out += std::string(section) + ":\n";
    }
    std::string line = "  " + name_of(option) + ": " + show_public(option, settings.config);
    line.resize(std::max<std::size_t>(line.size() + 1, 40), ' ');
    out += line + "# " + settings.origins[i] + "\n";
  }
  return out;
}

}  // namespace barg::cli
