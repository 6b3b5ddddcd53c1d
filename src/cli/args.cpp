#include "cli/args.h"

#include <algorithm>

namespace barg::cli {
namespace {

class Parser {
 public:
  Parser(const Command& command, std::span<const std::string> args) : command_(command), args_(args) {}

  ParsedArgs run() {
    bool flags_ended = false;
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      if (!flags_ended && arg == "--") {
        flags_ended = true;
      } else if (!flags_ended && arg.size() > 1 && arg[0] == '-') {
        read_flag(arg);
      } else {
        read_positional(arg);
      }
    }
    return std::move(out_);
  }

 private:
  void problem(std::string sentence) { out_.problems.push_back(std::move(sentence)); }

  void read_positional(const std::string& arg) {
    if (static_cast<int>(out_.positional.size()) >= command_.max_arguments)
      return problem("unexpected argument '" + arg + "'.");
    out_.positional.push_back(arg);
    if (command_.model_argument) out_.options.push_back({find_key("model.path"), "the argument", arg});
  }

  void read_flag(const std::string& arg) {
    const std::size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = arg.substr(equals + 1);
    if (name == "-h" || name == "--help") {
      out_.help = true;
    } else if (name == "--config" && !command_.sections.empty()) {
      if (take_value(name, value)) out_.config_file = *value;
    } else if (const Option* option = find_flag(name); option != nullptr && takes(command_, *option)) {
      read_option(*option, name, std::move(value));
    } else if (const CommandFlag* own = find_own(name)) {
      read_own(*own, std::move(value));
    } else {
      unknown(name);
    }
  }

  void read_option(const Option& option, const std::string& name, std::optional<std::string> value) {
    const bool negated = name != option.flag;
    if (option.kind == Kind::kBool) {
      if (negated && value) return problem(name + " takes no value.");
      if (value && value->empty()) return problem(name + " has an empty value.");
      out_.options.push_back({&option, name, value.value_or("")});
    } else if (take_value(name, value)) {
      out_.options.push_back({&option, name, *value});
    }
  }

  void read_own(const CommandFlag& flag, std::optional<std::string> value) {
    const std::string name(flag.name);
    if (flag.value_name.empty()) {
      if (value) return problem(name + " takes no value.");
      out_.own[name] = "";
    } else if (take_value(name, value)) {
      out_.own[name] = *value;
    }
  }

  // The next argument unless `value` is there already. A lone or negative number is a value, "--x" is not.
  bool take_value(const std::string& name, std::optional<std::string>& value) {
    if (!value && next_ < args_.size() && !args_[next_].starts_with("--")) value = args_[next_++];
    if (!value) problem(name + " needs a value.");
    return value.has_value();
  }

  const CommandFlag* find_own(std::string_view name) const {
    const auto it = std::find_if(command_.flags.begin(), command_.flags.end(),
                                 [&](const CommandFlag& f) { return f.name == name; });
    return it == command_.flags.end() ? nullptr : &*it;
  }

  void unknown(const std::string& name) {
    if (find_flag(name) != nullptr)
      return problem("barg " + std::string(command_.name) + " has no use for " + name + ".");
    std::vector<std::string_view> known{"--help", "--config"};
    for (const CommandFlag& flag : command_.flags) known.push_back(flag.name);
    for (const Option& option : schema()) {
      if (takes(command_, option)) known.push_back(option.flag);
    }
    const std::string near = nearest(name, known);
    problem("unknown flag " + name + (near.empty() ? "." : "; did you mean " + near + "?"));
  }

  const Command& command_;
  std::span<const std::string> args_;
  std::size_t next_ = 0;
  ParsedArgs out_;
};

}  // namespace

ParsedArgs parse_args(const Command& command, std::span<const std::string> args) {
  return Parser(command, args).run();
}

bool takes(const Command& command, const Option& option) {
  std::string_view rest = command.sections;
  while (!rest.empty()) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view name = rest.substr(0, space);
    if (name == section_of(option) || name == option.key) return true;
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return false;
}

}  // namespace barg::cli
