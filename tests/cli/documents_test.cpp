// The generated texts, and that the files made from them are fresh. To renew them after a change of the
// schema:
//   barg config default > configs/default.yaml; barg config docs > docs/options.md
//   barg config endpoints > docs/endpoints.md
#include "cli/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "cli/args.h"
#include "cli/cli.h"
#include "server/openapi.h"
#include "support/temp_dir.h"

namespace barg::cli::documents_test {
namespace {

const std::filesystem::path kRoot = BARG_SOURCE_DIR;

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Documents, DefaultYamlIsFresh) {
  EXPECT_EQ(content(kRoot / "configs/default.yaml"), default_yaml())
      << "run: barg config default > configs/default.yaml";
}

TEST(Documents, OptionsPageIsFresh) {
  EXPECT_EQ(content(kRoot / "docs/options.md"), options_markdown())
      << "run: barg config docs > docs/options.md";
}

TEST(Documents, EndpointsPageIsFresh) {
  EXPECT_EQ(content(kRoot / "docs/endpoints.md"), server::endpoints_markdown())
      << "run: barg config endpoints > docs/endpoints.md";
}

TEST(Documents, DefaultYamlIsAValidConfigurationOfDefaults) {
  const auto settings =
      load_settings({.file = kRoot / "configs/default.yaml", .environment = {}, .flags = {}});
  ASSERT_TRUE(settings) << settings.error().sentences[0];
  const auto defaults = load_settings({});
  ASSERT_TRUE(defaults);
  // Equal values, and every key was there.
  const auto without_origins = [](std::string text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t end = std::min(text.find('\n', i), text.size());
      out += text.substr(i, std::min(text.find(" # ", i), end) - i) + "\n";
      i = end + 1;
    }
    return out;
  };
  EXPECT_EQ(without_origins(print_settings(*settings)), without_origins(print_settings(*defaults)));
  for (std::size_t i = 0; i < schema().size(); ++i)
    EXPECT_NE(settings->origins[i], "default") << schema()[i].key;
}

TEST(Documents, EveryConfigurationInTheTreeIsValid) {
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "configs")) {
    const auto settings =
        load_settings({.file = entry.path(), .environment = {{"HOME", "/root"}}, .flags = {}});
    EXPECT_TRUE(settings) << entry.path() << ": " << settings.error().sentences[0];
  }
}

TEST(Documents, PrintedSettingsReadBackEqual) {
  const auto first = load_settings(
      {.file = kRoot / "configs/smollm2.yaml", .environment = {{"HOME", "/root"}}, .flags = {}});
  ASSERT_TRUE(first);
  const std::string path = test::scratch().write("printed.yaml", print_settings(*first));
  const auto second = load_settings({.file = path, .environment = {}, .flags = {}});
  ASSERT_TRUE(second) << second.error().sentences[0];
  EXPECT_EQ(second->config.model.path, first->config.model.path);
  EXPECT_EQ(second->config.model.served_model_name, first->config.model.served_model_name);
  EXPECT_EQ(second->config.kv.memory_bytes, first->config.kv.memory_bytes);
}

TEST(Documents, HelpNamesEveryOptionOfTheCommand) {
  for (const Command* command : commands()) {
    const std::string help = command_help(*command);
    EXPECT_NE(help.find(command->summary), std::string::npos);
    for (const CommandFlag& flag : command->flags)
      EXPECT_NE(help.find(flag.name), std::string::npos) << flag.name;
    EXPECT_NE(general_help(commands()).find(command->name), std::string::npos);
  }
  const std::string serve = command_help(kServeCommand);
  for (const Option& option : schema()) {
    EXPECT_NE(serve.find("  " + std::string(option.flag)), std::string::npos) << option.flag;
    EXPECT_NE(serve.find(env_name(option)), std::string::npos) << option.flag;
  }
}

// `barg ...` lines of a Markdown file, without comments, redirections and quoted arguments' blanks.
std::vector<std::vector<std::string>> command_lines(const std::string& markdown) {
  std::vector<std::vector<std::string>> out;
  std::istringstream in(markdown);
  for (std::string line; std::getline(in, line);) {
    if (const std::size_t pipe = line.find("| barg "); pipe != std::string::npos && !line.starts_with('|')) {
      line.erase(0, pipe + 2);
    }
    if (!line.starts_with("barg ")) continue;
    line = line.substr(5, std::min(line.find_first_of("#<>"), line.size()) - 5);
    if (const std::size_t quote = line.find('\''); quote != std::string::npos) {
      std::replace(line.begin() + static_cast<std::ptrdiff_t>(quote),
                   line.begin() + static_cast<std::ptrdiff_t>(line.rfind('\'')), ' ', '_');
    }
    std::istringstream words(line);
    out.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return out;
}

TEST(Documents, CommandLinesOfThePagesAreValid) {
  auto lines = command_lines(content(kRoot / "README.md"));
  EXPECT_GE(lines.size(), 7U);
  const auto bench = command_lines(content(kRoot / "docs/bench.md"));
  EXPECT_GE(bench.size(), 7U);
  const auto tiers = command_lines(content(kRoot / "docs/tiers.md"));
  EXPECT_GE(tiers.size(), 2U);
  const auto conformance = command_lines(content(kRoot / "docs/conformance.md"));
  EXPECT_GE(conformance.size(), 4U);
  for (const auto* more : {&bench, &tiers, &conformance}) lines.insert(lines.end(), more->begin(), more->end());
  for (const auto& args : lines) {
    const auto [command, words] = find_command(args);
    ASSERT_NE(command, nullptr) << args[0];
    const ParsedArgs parsed = parse_args(*command, std::span(args).subspan(words));
    EXPECT_TRUE(parsed.problems.empty()) << args[0] << ": " << parsed.problems[0];
  }
}

TEST(Documents, LinksOfTheMarkdownFilesLead) {
  for (const char* file : {"README.md", "src/README.md", "CHANGELOG.md", "benchmarks/README.md", "docs/bench.md",
                           "docs/disk-cache.md", "docs/kv-dtypes.md", "docs/options.md", "docs/tiers.md"}) {
    const std::string text = content(kRoot / file);
    const std::regex link("\\]\\(([^)#]+)\\)");
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.starts_with("http")) continue;
      EXPECT_TRUE(std::filesystem::exists((kRoot / file).parent_path() / target)) << file << ": " << target;
    }
  }
}

// benchmarks/markers.py replaces what is between them.
TEST(Documents, PagesHaveTheMarkersOfTheirTables) {
  for (const auto& [file, name] : {std::pair{"README.md", "peers"},
                                   {"benchmarks/README.md", "peers"},
                                   {"benchmarks/README.md", "roofline"},
                                   {"docs/tiers.md", "kv tiers"}}) {
    const std::string text = content(kRoot / file);
    const std::size_t begin = text.find("<!-- " + std::string(name) + " -->\n");
    ASSERT_NE(begin, std::string::npos) << file;
    EXPECT_NE(text.find("<!-- /" + std::string(name) + " -->\n", begin), std::string::npos) << file;
  }
}

// With every metric and reason that the code has.
TEST(Documents, TheTiersPageExplainsEveryMetric) {
  const std::string page = content(kRoot / "docs/tiers.md");
  std::set<std::string> names;
  const auto collect = [&](const std::string& text, const char* pattern) {
    const std::regex name(pattern);
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) names.insert((*it)[1]);
  };
  collect(content(kRoot / "src/server/metrics_text.cpp"), "\"(barg_kv_[a-z_]+)\"");
  EXPECT_GT(names.size(), 30U);
  const std::string reasons = content(kRoot / "src/store/stack.cpp");
  collect(reasons.substr(0, reasons.find("StackImpl::")), "return \"([a-z_]+)\"");
  for (const std::string& name : names) EXPECT_NE(page.find("`" + name), std::string::npos) << name;
}

// The list for those who build by hand is the list of the scripts.
TEST(Documents, TheReadmeNamesEveryPackageOfTheBuild) {
  const std::string readme = content(kRoot / "README.md");
  const std::string deps = content(kRoot / "scripts/deps.sh");
  const std::size_t begin = deps.find("BUILD_PACKAGES=(") + 16;
  std::istringstream in(deps.substr(begin, deps.find("\n)", begin) - begin));
  int packages = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string package; words >> package; ++packages) {
      if (package == "ccache") continue;  // helps, is not needed
      EXPECT_NE(readme.find(" " + package), std::string::npos) << package;
    }
  }
  EXPECT_GT(packages, 8);
}

// What the design page says may be included is what the test of the layers allows; here: every folder is
// named.
TEST(Documents, TheDesignPageNamesEveryFolder) {
  const std::string page = content(kRoot / "src/README.md");
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "src")) {
    if (!entry.is_directory() || std::filesystem::is_empty(entry)) continue;
    EXPECT_NE(page.find("`src/" + entry.path().filename().string() + "`"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace barg::cli::documents_test
