#include "cli/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/env.h"
#include "support/temp_dir.h"

namespace barg::cli::settings_test {
namespace {

class SettingsTest : public testing::Test {
 protected:
  std::string file(const std::string& text) {
    return dir_.write("settings_" + std::to_string(++files_) + ".yaml", text);
  }
  FlagValue flag(const std::string& name, const std::string& value) { return {find_flag(name), name, value}; }
  static std::string origin(const Settings& settings, const char* key) {
    return settings.origins[static_cast<std::size_t>(find_key(key) - schema().data())];
  }
  /// The single problem of a configuration file.
  std::string problem_of(const std::string& yaml) {
    const std::string path = file(yaml);
    const auto settings = load_settings({.file = path, .environment = {}, .flags = {}});
    if (settings) return "(none)";
    EXPECT_FALSE(settings.error().in_flags);
    EXPECT_EQ(settings.error().sentences.size(), 1U) << yaml;
    std::string text = settings.error().sentences[0];
    if (text.starts_with(path)) text.erase(0, path.size());
    return text;
  }

 private:
  const test::TempDir dir_;
  int files_ = 0;
};

TEST_F(SettingsTest, FlagWinsOverVariableOverFileOverDefault) {
  const std::string path = file("server:\n  port: 1\n  host: localhost\nkv:\n  block_size: 32\n");
  const auto settings = load_settings({.file = path,
                                       .environment = {{"BARG_PORT", "2"}, {"BARG_HOST", "127.0.0.2"}},
                                       .flags = {flag("--port", "3")}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->config.server.port, 3);
  EXPECT_EQ(settings->config.server.host, "127.0.0.2");
  EXPECT_EQ(settings->config.kv.block_size, 32);
  EXPECT_EQ(settings->config.scheduler.max_num_seqs, Config{}.scheduler.max_num_seqs);
  EXPECT_EQ(origin(*settings, "server.port"), "--port");
  EXPECT_EQ(origin(*settings, "server.host"), "BARG_HOST");
  EXPECT_EQ(origin(*settings, "kv.block_size"), path + ":5");
  EXPECT_EQ(origin(*settings, "scheduler.max_num_seqs"), "default");
}

TEST_F(SettingsTest, EverySourceReachesEveryOption) {
  for (const Option& option : schema()) {
    if (option.kind == Kind::kSpecs) continue;  // text with a grammar of its own: below
    const auto from_env =
        load_settings({.file = {}, .environment = {{env_name(option), "not a value"}}, .flags = {}});
    const bool free_text =
        option.kind == Kind::kText || option.kind == Kind::kPath || is_list(option);
    EXPECT_EQ(from_env.has_value(), free_text) << option.key;
    if (!from_env) {
      EXPECT_TRUE(from_env.error().sentences[0].starts_with(env_name(option)))
          << from_env.error().sentences[0];
    }
  }
}

TEST_F(SettingsTest, BargIsaChoosesTheInstructionSetUnlessAFlagDoes) {
  const auto with = [](const char* variable, std::vector<FlagValue> flags) {
    return load_settings({.file = {}, .environment = {{"BARG_ISA", variable}}, .flags = std::move(flags)});
  };
  EXPECT_EQ(with("avx2", {})->config.runtime.isa, "avx2");
  EXPECT_EQ(with("avx2", {flag("--isa", "scalar")})->config.runtime.isa, "scalar");
  const auto refused = with("sse9", {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sentences,
            std::vector<std::string>{"BARG_ISA must be one of auto, scalar, avx2, avx512, got 'sse9'."});
}

TEST_F(SettingsTest, UnknownKeysNameTheNearestAndTheLine) {
  EXPECT_EQ(problem_of("# comment\nkv:\n  blok_size: 32\n"),
            ":3: unknown key kv.blok_size; did you mean kv.block_size?");
  EXPECT_EQ(problem_of("srver:\n  port: 1\n"), ":1: unknown key srver; did you mean server?");
  // Known to vLLM under this name, and a key in the wrong section.
  EXPECT_EQ(problem_of("max_model_len: 5\n"),
            ":1: unknown key max_model_len; did you mean model.max_model_len?");
  EXPECT_EQ(problem_of("server:\n  kv_cache_dtype: f16\n"),
            ":2: unknown key server.kv_cache_dtype; did you mean kv.dtype?");
  EXPECT_EQ(problem_of("quantum:\n"), ":1: unknown key quantum.");
  EXPECT_EQ(problem_of("log:\n  zzzzzzzzzzzzzzzzz: 1\n"), ":2: unknown key log.zzzzzzzzzzzzzzzzz.");
}

TEST_F(SettingsTest, WrongTypesNameKeyAndLine) {
  EXPECT_EQ(problem_of("server:\n  port: eighty\n"),
            ":2: server.port expected a whole number, got 'eighty'.");
  EXPECT_EQ(problem_of("server:\n  port: \"8000\"\n"), ":2: server.port must be written without quotes.");
  EXPECT_EQ(problem_of("server:\n  port: [1]\n"), ":2: server.port must be one plain value.");
  EXPECT_EQ(problem_of("server:\n  port: {a: 1}\n"), ":2: server.port must be one plain value.");
  EXPECT_EQ(problem_of("server:\n  port:\n"),
            ":2: server.port has no value; leave the key out for its default.");
  EXPECT_EQ(problem_of("server:\n  api_key: secret\n"), ":2: server.api_key must be a list, as [a, b].");
  EXPECT_EQ(problem_of("server:\n  port: 1\n  port: 2\n"), ":3: server.port is there twice.");
  EXPECT_EQ(problem_of("server: 5\n"), ":1: server must be a section with keys under it.");
}

TEST_F(SettingsTest, OtherFormsOfYamlAreRefused) {
  EXPECT_NE(problem_of("- a\n- b\n"), "(none)");
  EXPECT_NE(problem_of("a: [\n"), "(none)");
  EXPECT_NE(problem_of("server:\n  port: 1\n---\nserver:\n  port: 2\n"), "(none)");
  EXPECT_NE(problem_of("? [a, b]\n: 1\n"), "(none)");
  EXPECT_NE(problem_of("model:\n  served_model_name: [[a]]\n"), "(none)");
  EXPECT_NE(problem_of(std::string(2000, '[')), "(none)");
  EXPECT_EQ(problem_of(""), "(none)");
  EXPECT_EQ(problem_of("server:\n# port: 1\n"), "(none)") << "a section may be empty";
}

TEST_F(SettingsTest, ProblemsAreReportedTogether) {
  const std::string path = file("server:\n  port: x\nkv:\n  dtype: f8\n");
  const auto settings = load_settings(
      {.file = path, .environment = {{"BARG_BLOCK_SIZE", "5"}}, .flags = {flag("--max-num-seqs", "0")}});
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().sentences.size(), 4U);
  EXPECT_TRUE(settings.error().in_flags);
}

TEST_F(SettingsTest, MissingFileIsAProblem) {
  const auto settings = load_settings({.file = "/nowhere/barg.yaml", .environment = {}, .flags = {}});
  ASSERT_FALSE(settings);
  EXPECT_NE(settings.error().sentences[0].find("/nowhere/barg.yaml"), std::string::npos);
}

TEST_F(SettingsTest, ListsComeRepeatedOrSeparatedByCommas) {
  const auto settings =
      load_settings({.file = file("model:\n  served_model_name: [x]\n"),
                     .environment = {{"BARG_API_KEY", "k1,k2"}},
                     .flags = {flag("--served-model-name", "a"), flag("--served-model-name", "b,c")}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->config.model.served_model_name, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(settings->config.server.api_key, (std::vector<std::string>{"k1", "k2"}));
}

TEST_F(SettingsTest, SwitchesHaveTwoForms) {
  const auto off =
      load_settings({.file = {}, .environment = {}, .flags = {flag("--no-enable-prefix-caching", "")}});
  const auto on = load_settings({.file = {},
                                 .environment = {{"BARG_ENABLE_PREFIX_CACHING", "false"}},
                                 .flags = {flag("--enable-prefix-caching", "")}});
  ASSERT_TRUE(off && on);
  EXPECT_FALSE(off->config.kv.enable_prefix_caching);
  EXPECT_TRUE(on->config.kv.enable_prefix_caching);
}

TEST_F(SettingsTest, UnknownVariablesAreWarnedAbout) {
  const auto settings = load_settings({.file = {},
                                       .environment = {{"BARG_PROT", "1"},
                                                       {"BARG_API_KEY", ""},
                                                       {"BARG_PORT", "tcp://10.0.0.1:80"},
                                                       {"BARG_PORT_80_TCP", "x"},
                                                       {"BARG_SERVICE_HOST", "x"},
                                                       {"BARG_TEST_X", "x"}},
                                       .flags = {}});
  ASSERT_TRUE(settings);
  ASSERT_EQ(settings->warnings.size(), 2U);
  EXPECT_NE(settings->warnings[0].find("Kubernetes"), std::string::npos);
  EXPECT_NE(settings->warnings[1].find("BARG_PROT means nothing here; did you mean BARG_PORT?"),
            std::string::npos);
  EXPECT_EQ(settings->config.server.port, Config{}.server.port);
}

TEST_F(SettingsTest, HomeIsExpandedInPaths) {
  const std::string path = file("model:\n  path: ~/m.gguf\n");
  const auto settings = load_settings({.file = path, .environment = {{"HOME", "/home/x"}}, .flags = {}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->config.model.path, "/home/x/m.gguf");
  EXPECT_FALSE(load_settings({.file = path, .environment = {}, .flags = {}}));
}

TEST_F(SettingsTest, ContradictionsAreFoundTogether) {
  Config config;
  config.server.host = "";
  config.model.max_model_len = 5000;
  config.scheduler.max_num_queued_tokens = 4000;
  std::vector<std::string> warnings;
  EXPECT_EQ(cross_check(config, warnings).size(), 2U);
  config = {};
  warnings.clear();
  EXPECT_TRUE(cross_check(config, warnings).empty());
  EXPECT_TRUE(warnings.empty());
  config.server.host = "0.0.0.0";
  config.model.numerics = "f32";
  config.kv.dtype = "f16";
  EXPECT_TRUE(cross_check(config, warnings).empty());
  EXPECT_EQ(warnings.size(), 2U);
  config.server.api_key = {"k"};
  config.kv.dtype = "f32";
  warnings.clear();
  EXPECT_TRUE(cross_check(config, warnings).empty());
  EXPECT_TRUE(warnings.empty());
}

TEST_F(SettingsTest, TiersComeRepeatedOrSeparatedBySemicolons) {
  using List = std::vector<std::string>;
  const auto tiers = [](const Sources& sources) {
    const auto settings = load_settings(sources);
    return settings ? settings->config.kv.tiers : List{settings.error().sentences[0]};
  };
  EXPECT_EQ(tiers({.file = file("kv:\n  tiers: [\"dram:size=1GiB\", \"disk:path=/a,size=2GiB\"]\n"),
                   .environment = {},
                   .flags = {}}),
            (List{"dram:size=1GiB", "disk:path=/a,size=2GiB"}));
  EXPECT_EQ(tiers({.file = {},
                   .environment = {{"BARG_KV_TIER", "dram:size=1GiB;disk:path=/a,size=2GiB"}},
                   .flags = {}}),
            (List{"dram:size=1GiB", "disk:path=/a,size=2GiB"}));
  EXPECT_EQ(tiers({.file = {},
                   .environment = {{"BARG_KV_TIER", "dram:size=1GiB"}, {"HOME", "/home/me"}},
                   .flags = {flag("--kv-tier", "disk:path=~/kv,size=2GiB"),
                             flag("--kv-tier", "disk:path=/b,size=2GiB")}}),
            (List{"disk:path=/home/me/kv,size=2GiB", "disk:path=/b,size=2GiB"}));
  EXPECT_EQ(tiers({.file = {}, .environment = {}, .flags = {flag("--kv-tier", "disk:path=~/kv,size=2GiB")}}),
            (List{"kv.tiers has a path from ~/, but HOME is not set."}));
}

TEST_F(SettingsTest, MalformedTiersAreFoundBeforeAnythingIsOpened) {
  const auto settings = load_settings(
      {.file = {}, .environment = {}, .flags = {flag("--kv-tier", "dram:size=1GiB"), flag("--kv-tier", "disk:size=1GiB")}});
  ASSERT_FALSE(settings);
  EXPECT_TRUE(settings.error().sentences[0].starts_with("kv.tiers[1] ")) << settings.error().sentences[0];
}

TEST_F(SettingsTest, PasswordsOfTiersAreHidden) {
  const char* const spec = "redis:url=rediss://me:s3cr@t@10.0.0.3:6379";
  const auto settings = load_settings({.file = {}, .environment = {}, .flags = {flag("--kv-tier", spec)}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(describe_changes(*settings),
            (std::vector<std::string>{
                "kv.tiers = [\"redis:url=rediss://***@10.0.0.3:6379\"] (--kv-tier)"}));
  const auto twice = load_settings(
      {.file = {}, .environment = {}, .flags = {flag("--kv-tier", spec), flag("--kv-tier", spec)}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().sentences[0].find("s3cr"), std::string::npos);
}

TEST_F(SettingsTest, StateGoesWhereXdgSays) {
  const auto directory = [](Environment environment) {
    return load_settings({.file = {}, .environment = std::move(environment), .flags = {}})->state_directory;
  };
  EXPECT_EQ(directory({{"XDG_STATE_HOME", "/state"}, {"HOME", "/home/me"}}), "/state");
  EXPECT_EQ(directory({{"XDG_STATE_HOME", "relative"}, {"HOME", "/home/me"}}), "/home/me/.local/state");
  EXPECT_EQ(directory({{"HOME", "/home/me"}}), "/home/me/.local/state");
  EXPECT_EQ(directory({}), "");
}

TEST_F(SettingsTest, ChangesAreDescribedWithTheirOrigin) {
  const auto settings =
      load_settings({.file = {},
                     .environment = {{"BARG_API_KEY", "sk"}},
                     .flags = {flag("--kv-cache-memory-bytes", "1GiB"), flag("--port", "8000")}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(describe_changes(*settings),
            (std::vector<std::string>{"kv.memory_bytes = 1GiB (--kv-cache-memory-bytes)",
                                      "server.api_key = <1 hidden> (BARG_API_KEY)"}));
}

// Damaged files: any outcome but a crash, a hang or an exception.
TEST_F(SettingsTest, DamagedFilesNeverCrash) {
  std::ifstream in(BARG_SOURCE_DIR "/configs/default.yaml");
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  Rng rng(1);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = whole.substr(0, 1 + rng.below(whole.size()));
    for (std::uint64_t n = rng.below(6); n > 0; --n) {
      const char odd[] = "{}[]:,-#&*!|>'\"%@`\n\t ?\x00\xff";
      text[rng.below(text.size())] = odd[rng.below(sizeof odd - 1)];
    }
    const auto settings = load_settings({.file = file(text), .environment = {}, .flags = {}});
    if (!settings) {
      ++refused;
      for (const std::string& sentence : settings.error().sentences)
        ASSERT_TRUE(sentence.ends_with('.') || sentence.ends_with('?')) << sentence;
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace barg::cli::settings_test
