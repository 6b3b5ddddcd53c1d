#include "cli/settings.h"

#include <algorithm>
#include <set>

#include "base/mapped_file.h"
#include "cli/values.h"
#include "cli/yaml.h"
#include "store/tier_spec.h"

namespace barg::cli {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

class Loader {
 public:
  explicit Loader(const Sources& sources) : sources_(sources) {
    settings_.origins.assign(schema().size(), "default");
  }

  std::expected<Settings, Problems> run() {
    if (sources_.file) read_file_source(*sources_.file);
    for (const auto& [name, value] : sources_.environment) read_variable(name, value);
    for (const FlagValue& flag : sources_.flags) read_flag(flag);
    expand_home();
    settings_.state_directory = state_directory();
    // Only values that are each in range can contradict one another.
    if (problems_.sentences.empty()) problems_.sentences = cross_check(settings_.config, settings_.warnings);
    if (!problems_.sentences.empty()) return std::unexpected(std::move(problems_));
    return std::move(settings_);
  }

 private:
  void problem(std::string sentence) { problems_.sentences.push_back(std::move(sentence)); }

  void accept(const Option& option, const Problem& found, const std::string& origin,
              const std::string& subject) {
    if (found) {
      problem(subject + " " + *found + ".");
    } else {
      settings_.origins[static_cast<std::size_t>(&option - schema().data())] = origin;
    }
  }

  void read_file_source(const std::string& path) {
    const Result<std::string> text = read_file(path, kMaxFileBytes);
    if (!text) return problem("cannot read the configuration file: " + text.error().message);
    const Result<std::vector<YamlEntry>> entries = read_yaml(*text);
    if (!entries) return problem(path + ": " + entries.error().message);
    std::set<std::string> seen;
    for (const YamlEntry& entry : *entries) {
      const std::string where = path + ":" + std::to_string(entry.line);
      if (!seen.insert(entry.key).second) {
        problem(where + ": " + entry.key + " is there twice.");
      } else {
        read_entry(entry, where);
      }
    }
  }

  void read_entry(const YamlEntry& entry, const std::string& where) {
    using Type = YamlEntry::Type;
    const bool holds_nothing = entry.type == Type::kSection || entry.type == Type::kEmpty;
    const std::string subject = where + ": " + entry.key;
    if (!section_title(entry.key).empty()) {
      if (!holds_nothing) problem(subject + " must be a section with keys under it.");
      return;
    }
    const Option* option = find_key(entry.key);
    if (option == nullptr) return unknown_key(entry, where);
    if (is_list(*option)) {
      if (entry.type != Type::kList) return problem(subject + " must be a list, as [a, b].");
      return accept(*option, assign_list(*option, entry.items, settings_.config), where, subject);
    }
    if (entry.type == Type::kList || entry.type == Type::kSection)
      return problem(subject + " must be one plain value.");
    if (entry.type == Type::kEmpty)
      return problem(subject + " has no value; leave the key out for its default.");
    const bool is_text =
        option->kind == Kind::kText || option->kind == Kind::kPath || option->kind == Kind::kChoice;
    const bool may_be_quoted = is_text || option->kind == Kind::kBytes || option->kind == Kind::kDuration;
    if (entry.type == Type::kQuoted && !may_be_quoted) {
      return problem(subject + " must be written without quotes.");
    }
    accept(*option, assign(*option, entry.text, settings_.config), where, subject);
  }

  void unknown_key(const YamlEntry& entry, const std::string& where) {
    // The keys of an unknown section are not worth a line each.
    const std::string section = entry.key.substr(0, entry.key.find('.'));
    if (section != entry.key && section_title(section).empty() && find_key(entry.key) == nullptr) return;
    std::vector<std::string_view> known;
    for (const Option& option : schema()) {
      if (section == entry.key) known.push_back(section_of(option));
      known.push_back(option.key);
    }
    std::string near = nearest(entry.key, known);
    if (near.empty() && section == entry.key) near = key_by_name(entry.key);
    if (near.empty() && section != entry.key) near = key_by_name(entry.key.substr(section.size() + 1));
    problem(where + ": unknown key " + entry.key + (near.empty() ? "." : "; did you mean " + near + "?"));
  }

  // The key whose last part, or whose flag, is `name`: people move keys between sections and know vLLM's
  // names.
  static std::string key_by_name(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    std::vector<std::string_view> flags;
    for (const Option& option : schema()) flags.push_back(option.flag.substr(2));
    const std::string near = nearest(name, flags);
    const Option* option = near.empty() ? nullptr : find_flag("--" + near);
    return option == nullptr ? std::string() : std::string(option->key);
  }

  void read_variable(const std::string& name, const std::string& value) {
    bool ours = name.starts_with("BARG_") && name != "BARG_CONFIG";
    // Tests have their own; Kubernetes sets the other two kinds for a service called barg.
    for (const std::string_view foreign : {"BARG_TEST_", "BARG_PORT_", "BARG_SERVICE_"})
      ours &= !name.starts_with(foreign);
    if (!ours || value.empty()) return;  // Compose passes empty text for what the user left out
    const Option* option = find_env(name);
    if (option == nullptr) {
      std::vector<std::string> names;
      for (const Option& o : schema()) names.push_back(env_name(o));
      const std::string near = nearest(name, {names.begin(), names.end()});
      settings_.warnings.push_back("the variable " + name + " means nothing here" +
                                   (near.empty() ? "." : "; did you mean " + near + "?"));
      return;
    }
    if (name == "BARG_PORT" && value.starts_with("tcp://")) {
      settings_.warnings.push_back(
          "BARG_PORT was set by Kubernetes for a service named barg and is ignored.");
      return;
    }
    accept(*option, assign_words(*option, value), name, name);
  }

  Problem assign_words(const Option& option, const std::string& value) {
    if (is_list(option)) return assign_list(option, split_list(option, value), settings_.config);
    return assign(option, value, settings_.config);
  }

  void read_flag(const FlagValue& flag) {
    const std::size_t before = problems_.sentences.size();
    const Option& option = *flag.option;
    if (is_list(option)) {
      std::vector<std::string>& items = lists_[&option];
      for (std::string& item : split_list(option, flag.value)) items.push_back(std::move(item));
      accept(option, assign_list(option, items, settings_.config), std::string(option.flag), flag.flag);
    } else if (option.kind == Kind::kBool && flag.value.empty()) {
      const bool on = flag.flag == option.flag;
      accept(option, assign(option, on ? "true" : "false", settings_.config), flag.flag, flag.flag);
    } else {
      accept(option, assign(option, flag.value, settings_.config), flag.flag, flag.flag);
    }
    problems_.in_flags |= problems_.sentences.size() > before;
  }

  std::string variable(std::string_view name) const {
    const auto found = sources_.environment.find(name);
    return found == sources_.environment.end() ? std::string() : found->second;
  }

  void expand_home() {
    constexpr std::string_view kTierPath = "path=~/";
    for (const Option& option : schema()) {
      const FieldRef field = option.field(settings_.config);
      if (option.kind == Kind::kPath) expand_home(option, *std::get<std::string*>(field), 0);
      if (option.kind != Kind::kSpecs) continue;
      for (std::string& spec : *std::get<std::vector<std::string>*>(field)) {
        const std::size_t path = spec.find(kTierPath);
        if (path != std::string::npos) expand_home(option, spec, path + kTierPath.find('~'));
      }
    }
  }

  void expand_home(const Option& option, std::string& text, std::size_t at) {
    if (text.compare(at, 2, "~/") != 0) return;
    const std::string home = variable("HOME");
    if (home.empty()) return problem(std::string(option.key) + " has a path from ~/, but HOME is not set.");
    text.replace(at, 1, home);
  }

  /// By the XDG base directory specification: a relative path there is to be ignored.
  std::string state_directory() const {
    const std::string state = variable("XDG_STATE_HOME");
    if (state.starts_with('/')) return state;
    const std::string home = variable("HOME");
    return home.empty() ? home : home + "/.local/state";
  }

  const Sources& sources_;
  Settings settings_;
  Problems problems_;
  std::map<const Option*, std::vector<std::string>> lists_;  // what repeated list flags gave so far
};

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

std::expected<Settings, Problems> load_settings(const Sources& sources) { return Loader(sources).run(); }

std::vector<std::string> cross_check(const Config& config, std::vector<std::string>& warnings) {
  std::vector<std::string> problems;
  const auto name = [](auto* key) {
    return std::string(key) + " (" + std::string(find_key(key)->flag) + ")";
  };
  if (config.server.host.empty()) problems.push_back(name("server.host") + " must not be empty.");
  if (config.model.max_model_len > config.scheduler.max_num_queued_tokens) {
    problems.push_back(name("scheduler.max_num_queued_tokens") + " is below " + name("model.max_model_len") +
                       ", so the longest request could never wait.");
  }
  if (config.model.numerics == "f32" && config.kv.dtype != "auto" && config.kv.dtype != "f32") {
    warnings.push_back(name("kv.dtype") + " " + config.kv.dtype +
                       " rounds keys and values that recipe f32 would keep exact.");
  }
  if (const auto tiers = store::parse_tiers(config.kv.tiers); !tiers) {
    problems.push_back(tiers.error().message + ".");
  }
  if (!config.kv.tiers.empty() && !config.kv.enable_prefix_caching) {
    warnings.push_back(name("kv.tiers") + " have no use without " + name("kv.enable_prefix_caching") + ".");
  }
  if (!is_loopback(config.server.host) && config.server.api_key.empty()) {
    warnings.push_back("the server listens on " + config.server.host + " without " + name("server.api_key") +
                       ": everyone who reaches the port may use it.");
  }
  return problems;
}

std::vector<std::string> describe_changes(const Settings& settings) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < schema().size(); ++i) {
    const Option& option = schema()[i];
    if (show(option, settings.config) == show(option, Config{})) continue;
    lines.push_back(std::string(option.key) + " = " + show_public(option, settings.config) + " (" +
                    settings.origins[i] + ")");
  }
  return lines;
}

}  // namespace barg::cli
