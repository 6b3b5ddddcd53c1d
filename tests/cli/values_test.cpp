#include "cli/values.h"

#include <gtest/gtest.h>

namespace barg::cli::values_test {
namespace {

const Option& option(const char* key) { return *find_key(key); }

struct Case {
  const char* key;
  const char* text;
  const char* shown;  ///< how the accepted value is written
};

TEST(Values, AcceptedFormsAreStoredExactly) {
  const Case cases[] = {
      {"kv.memory_bytes", "0", "0"},
      {"kv.memory_bytes", "1000", "1000"},
      {"kv.memory_bytes", "1000B", "1000"},
      {"kv.memory_bytes", "512MiB", "512MiB"},
      {"kv.memory_bytes", "512 MiB", "512MiB"},
      {"kv.memory_bytes", "1.5GiB", "1536MiB"},
      {"kv.memory_bytes", "2TiB", "2TiB"},
      {"server.shutdown_timeout", "90", "90s"},
      {"server.shutdown_timeout", "90s", "90s"},
      {"server.shutdown_timeout", "500ms", "500ms"},
      {"server.shutdown_timeout", "0", "0s"},
      {"server.shutdown_timeout", "2m", "120s"},
      {"scheduler.itl_target", "50ms", "50ms"},
      {"scheduler.itl_target", "0.05", "50ms"},
      {"scheduler.watermark", "0.05", "0.05"},
      {"server.port", "0", "0"},
      {"server.port", "65535", "65535"},
      {"kv.block_size", "64", "64"},
      {"kv.dtype", "bf16", "bf16"},
      {"kv.enable_prefix_caching", "false", "false"},
      {"server.host", "::1", "\"::1\""},
      {"scheduler.max_num_batched_tokens", "1", "1"},
  };
  for (const Case& c : cases) {
    Config config;
    EXPECT_EQ(assign(option(c.key), c.text, config), std::nullopt) << c.key << " " << c.text;
    EXPECT_EQ(show(option(c.key), config), c.shown) << c.key << " " << c.text;
  }
}

TEST(Values, DurationsKeepTheUnitOfTheirField) {
  Config config;
  ASSERT_EQ(assign(option("scheduler.itl_target"), "30ms", config), std::nullopt);
  EXPECT_DOUBLE_EQ(config.scheduler.itl_target_ms, 30);
  ASSERT_EQ(assign(option("server.header_timeout"), "30ms", config), std::nullopt);
  EXPECT_DOUBLE_EQ(config.server.header_timeout_s, 0.03);
}

TEST(Values, RefusedFormsLeaveTheFieldAlone) {
  const std::pair<const char*, const char*> cases[] = {
      // No bare magnitude letter: is 1k a thousand or 1024?
      {"kv.memory_bytes", "1k"},
      {"kv.memory_bytes", "1K"},
      {"kv.memory_bytes", "1M"},
      {"kv.memory_bytes", "4G"},
      {"kv.memory_bytes", "4GB"},
      {"kv.memory_bytes", "-1"},
      {"kv.memory_bytes", "1e9"},
      {"kv.memory_bytes", "MiB"},
      {"kv.memory_bytes", ""},
      {"kv.memory_bytes", "0.5B"},
      {"kv.memory_bytes", "99999999999TiB"},
      {"kv.memory_bytes", "1 0MiB"},
      {"kv.memory_bytes", "0x10"},
      {"kv.memory_bytes", "nan"},
      {"kv.memory_bytes", "inf"},
      {"server.port", "65536"},
      {"server.port", "-1"},
      {"server.port", "80.0"},
      {"server.port", " 80"},
      {"server.port", "http"},
      {"server.port", ""},
      {"server.port", "99999999999999999999"},
      {"server.port", "+80"},
      {"server.shutdown_timeout", "30sec"},
      {"server.shutdown_timeout", "-1s"},
      {"server.shutdown_timeout", "1s 2s"},
      {"server.header_timeout", "0"},  // would refuse everybody
      {"scheduler.watermark", "0.6"},
      {"scheduler.watermark", "nan"},
      {"scheduler.watermark", "2%"},
      {"scheduler.max_num_batched_tokens", "0"},
      {"scheduler.max_num_seqs", "0"},
      {"scheduler.pipeline_depth", "3"},
      {"kv.block_size", "8"},
      {"kv.block_size", "17"},
      {"kv.block_size", "0"},
      {"kv.dtype", "fp16"},
      {"kv.dtype", ""},
      {"kv.dtype", "auto|f32"},
      {"kv.dtype", "F32"},
      {"kv.enable_prefix_caching", "yes"},
      {"kv.enable_prefix_caching", "1"},
      {"kv.enable_prefix_caching", "True"},
      {"model.max_model_len", "-5"},
      {"model.max_model_len", "2147483648"},
  };
  for (const auto& [key, text] : cases) {
    Config config;
    const std::string before = show(option(key), config);
    EXPECT_NE(assign(option(key), text, config), std::nullopt) << key << " " << text;
    EXPECT_EQ(show(option(key), config), before) << key << " " << text;
  }
}

TEST(Values, MessagesSayWhatWouldBeRight) {
  Config config;
  EXPECT_EQ(assign(option("kv.block_size"), "17", config), "must be one of 16, 32, 64, got '17'");
  EXPECT_EQ(assign(option("server.port"), "70000", config), "must be between 0 and 65535, got '70000'");
  EXPECT_EQ(assign(option("server.port"), "x", config), "expected a whole number, got 'x'");
  EXPECT_EQ(assign(option("server.max_body_bytes"), "1", config), "must be between 1 KiB and 4 GiB, got '1'");
  const Problem long_text = assign(option("kv.dtype"), std::string(100'000, 'x'), config);
  EXPECT_LT(long_text->size(), 200U);
}

TEST(Values, ListsRefuseEmptyAndRepeatedElements) {
  Config config;
  EXPECT_EQ(assign_list(option("model.served_model_name"), {"a", "b"}, config), std::nullopt);
  EXPECT_EQ(config.model.served_model_name, (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(assign_list(option("model.served_model_name"), {"a", ""}, config), std::nullopt);
  EXPECT_NE(assign_list(option("model.served_model_name"), {"a", "a"}, config), std::nullopt);
  EXPECT_EQ(config.model.served_model_name.size(), 2U);
  EXPECT_EQ(split_list("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(split_list("a,,b"), (std::vector<std::string>{"a", "", "b"}));
}

TEST(Values, SecretsNeverShow) {
  Config config;
  const Option& key = option("server.api_key");
  EXPECT_EQ(assign_list(key, {"sk-one", "sk-two"}, config), std::nullopt);
  EXPECT_EQ(show_public(key, config), "<2 hidden>");
  EXPECT_EQ(assign_list(key, {"sk-one", "sk-one"}, config).value().find("sk-one"), std::string::npos);
}

TEST(Values, SizesForPeople) {
  EXPECT_EQ(show_size(0), "0 bytes");
  EXPECT_EQ(show_size(1023), "1023 bytes");
  EXPECT_EQ(show_size(23040), "22.5 KiB");
  EXPECT_EQ(show_size(98362432), "93.8 MiB");
}

}  // namespace
}  // namespace barg::cli::values_test
