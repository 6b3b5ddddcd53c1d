// The generated texts, and that the files made from them are fresh. To renew them after a change of the
// schema:
//   barg config default > configs/default.yaml; barg config docs > docs/options.md
#include "cli/documents.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/cli.h"

namespace barg::cli {
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
  const std::string path = testing::TempDir() + "/printed.yaml";
  std::ofstream(path) << print_settings(*first);
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

}  // namespace
}  // namespace barg::cli
