#include "cli/args.h"

#include <gtest/gtest.h>

namespace barg::cli::args_test {
namespace {

constexpr CommandFlag kFlags[] = {{"--now", "TIME", "."}, {"--fast", "", "."}};
const Command kCommand{
    .name = "x", .summary = ".", .max_arguments = 1, .sections = "kv server.port", .flags = kFlags};

ParsedArgs parse(const std::vector<std::string>& args, const Command& command = kCommand) {
  return parse_args(command, args);
}

TEST(Args, BothFormsOfAValueMeanTheSame) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"--port", "5"}, {"--port=5"}}) {
    const ParsedArgs parsed = parse(args);
    ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0];
    ASSERT_EQ(parsed.options.size(), 1U);
    EXPECT_EQ(parsed.options[0].option, find_flag("--port"));
    EXPECT_EQ(parsed.options[0].value, "5");
  }
  EXPECT_EQ(parse({"--now=a=b"}).own.at("--now"), "a=b");
  EXPECT_EQ(parse({"--port="}).options[0].value, "");
  EXPECT_EQ(parse({"--port", "-1"}).options[0].value, "-1");
}

TEST(Args, SwitchesPositionalsAndTheEndOfFlags) {
  const ParsedArgs parsed = parse({"--fast", "--no-enable-prefix-caching", "--", "--fast"});
  ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0];
  EXPECT_TRUE(parsed.own.contains("--fast"));
  EXPECT_EQ(parsed.options[0].flag, "--no-enable-prefix-caching");
  EXPECT_EQ(parsed.positional, std::vector<std::string>{"--fast"});
  EXPECT_EQ(parse({"--config", "a.yaml"}).config_file, "a.yaml");
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_EQ(parse({"-"}).positional, std::vector<std::string>{"-"}) << "a lone dash is an argument";
}

TEST(Args, MistakesAreCollected) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--prot", "1"}, "unknown flag --prot; did you mean --port?"},
      {{"--zzzzzzzzzzzz"}, "unknown flag --zzzzzzzzzzzz."},
      {{"--host", "x"}, "barg x has no use for --host."},
      {{"--port"}, "--port needs a value."},
      {{"--port", "--fast"}, "--port needs a value."},
      {{"--fast=1"}, "--fast takes no value."},
      {{"--no-enable-prefix-caching=1"}, "--no-enable-prefix-caching takes no value."},
      {{"--enable-prefix-caching="}, "--enable-prefix-caching has an empty value."},
      {{"a", "b"}, "unexpected argument 'b'."},
      {{"-p"}, "unknown flag -p."},
  };
  for (const auto& [args, expected] : cases) {
    const ParsedArgs parsed = parse(args);
    ASSERT_EQ(parsed.problems.size(), 1U) << expected;
    EXPECT_EQ(parsed.problems[0], expected);
  }
  EXPECT_EQ(parse({"--aaaaaaaaaaaaaa", "--bbbbbbbbbbbbbb"}).problems.size(), 2U);
}

TEST(Args, AnArgumentMayBeTheModel) {
  const Command command{
      .name = "x", .summary = ".", .max_arguments = 1, .model_argument = true, .sections = "model"};
  const ParsedArgs parsed = parse({"m.gguf"}, command);
  ASSERT_EQ(parsed.options.size(), 1U);
  EXPECT_EQ(parsed.options[0].option, find_key("model.path"));
  EXPECT_EQ(parsed.options[0].value, "m.gguf");
}

}  // namespace
}  // namespace barg::cli::args_test
