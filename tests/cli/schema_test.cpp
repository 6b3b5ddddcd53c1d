#include "cli/schema.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>
#include <utility>

#include "cli/values.h"

namespace barg::cli::schema_test {
namespace {

// Counts the fields of an aggregate: the most initialisers it takes. Any converts to every field type.
struct Any {
  template <class T>
  constexpr operator T() const;
};
template <class T, std::size_t... I>
constexpr bool takes_initialisers(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Any{})...}; };
}
template <class T, std::size_t N = 40>
constexpr std::size_t field_count() {
  if constexpr (takes_initialisers<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return field_count<T, N - 1>();
  }
}
struct ThreeFields {
  std::string a;
  std::vector<std::string> b;
  double c;
};
static_assert(field_count<ThreeFields>() == 3);

const void* address(const FieldRef& field) {
  return std::visit([](auto* p) { return static_cast<const void*>(p); }, field);
}

template <class Section>
void expect_complete(std::string_view name, Section Config::*member) {
  Config config;
  const auto* begin = reinterpret_cast<const char*>(&(config.*member));
  std::set<const void*> fields;
  for (const Option& option : schema()) {
    if (section_of(option) != name) continue;
    const auto* field = static_cast<const char*>(address(option.field(config)));
    EXPECT_TRUE(field >= begin && field < begin + sizeof(Section))
        << option.key << " points outside its section";
    EXPECT_TRUE(fields.insert(field).second) << option.key << " shares its field with another row";
  }
  EXPECT_EQ(fields.size(), field_count<Section>())
      << "a field of section " << name << " has no row in the schema";
}

TEST(Schema, HasExactlyOneRowForEachField) {
  static_assert(field_count<Config>() == 6, "a new section must be listed here and in schema.cpp");
  expect_complete("model", &Config::model);
  expect_complete("kv", &Config::kv);
  expect_complete("scheduler", &Config::scheduler);
  expect_complete("runtime", &Config::runtime);
  expect_complete("server", &Config::server);
  expect_complete("log", &Config::log);
}

TEST(Schema, StaysWithinTheBudgetOfKnobs) { EXPECT_LE(schema().size(), 49U); }

TEST(Schema, NamesAreUniqueAndConsistent) {
  std::set<std::string> keys, flags, variables;
  for (const Option& option : schema()) {
    EXPECT_TRUE(keys.emplace(option.key).second) << option.key;
    EXPECT_TRUE(flags.emplace(option.flag).second) << option.flag;
    EXPECT_TRUE(variables.insert(env_name(option)).second) << option.flag;
    EXPECT_TRUE(option.flag.starts_with("--")) << option.flag;
    EXPECT_FALSE(option.flag.starts_with("--no-")) << option.flag;
    EXPECT_FALSE(section_title(section_of(option)).empty()) << option.key;
    EXPECT_TRUE(option.help.ends_with('.')) << option.key;
    EXPECT_EQ(find_key(option.key), &option);
    EXPECT_EQ(find_flag(option.flag), &option);
    EXPECT_EQ(find_env(env_name(option)), &option);
  }
}

TEST(Schema, AVariableIsTheFlagInCapitals) {
  EXPECT_EQ(env_name(*find_flag("--api-key")), "BARG_API_KEY");
  EXPECT_EQ(env_name(*find_flag("--kv-cache-memory-bytes")), "BARG_KV_CACHE_MEMORY_BYTES");
  EXPECT_EQ(env_name(*find_flag("--model")), "BARG_MODEL");
}

TEST(Schema, HasTheSpellingsOfVllm) {
  for (const char* flag :
       {"--model", "--host", "--port", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens",
        "--block-size", "--kv-cache-memory-bytes", "--kv-cache-dtype", "--served-model-name", "--api-key",
        "--shutdown-timeout", "--max-num-queued-reqs", "--max-num-queued-tokens", "--chat-template",
        "--generation-config", "--enable-prefix-caching", "--no-enable-prefix-caching"}) {
    EXPECT_NE(find_flag(flag), nullptr) << flag;
  }
  EXPECT_EQ(find_flag("--no-port"), nullptr) << "only switches have a --no- form";
}

// Every default must survive being written and read: the documented file is then a valid configuration.
TEST(Schema, DefaultsReadBackEqual) {
  for (const Option& option : schema()) {
    if (is_list(option) || option.kind == Kind::kText || option.kind == Kind::kPath) continue;
    Config config;
    const std::string text = show(option, config);
    EXPECT_EQ(assign(option, text, config), std::nullopt) << option.key << " = " << text;
    EXPECT_EQ(show(option, config), text) << option.key;
  }
}

TEST(Schema, NearestFindsTyposAndNothingElse) {
  EXPECT_EQ(nearest("kv.blok_size", {"kv.block_size", "kv.dtype"}), "kv.block_size");
  EXPECT_EQ(nearest("zzzzzzzzzzzz", {"kv.block_size", "kv.dtype"}), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), {"kv.block_size"}), "");
}

}  // namespace
}  // namespace barg::cli::schema_test
