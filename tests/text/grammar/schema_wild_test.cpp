// Schemas as found in the wild (tests/data/schemas): enforced, or refused by the keyword that the case names; valid
// instances are accepted as they stand (declared properties in order), invalid ones in no order.
#include <gtest/gtest.h>

#include <filesystem>

#include "text/grammar/schema_support.h"

namespace barg::text::grammar::schema_wild_test {
namespace {

namespace fs = std::filesystem;

SchemaOptions options_of(const Json& entry) { return {.draft = parse_draft(entry.find("draft")->as_string()).value()}; }

/// Refused by name, and with `lenient` wider than the schema.
void expect_refused(const Json& entry, const std::string& keyword) {
  SchemaOptions options = options_of(entry);
  const schemas::Schema strict(*entry.find("schema"), options);
  ASSERT_FALSE(strict.ok());
  EXPECT_NE(strict.error.message.find("'" + keyword + "'"), std::string::npos) << strict.error.message;
  options.lenient = true;
  const schemas::Schema lenient(*entry.find("schema"), options);
  ASSERT_TRUE(lenient.ok()) << lenient.error.message;
  ASSERT_EQ(lenient.enforced.unenforced.size(), 1U);
  EXPECT_EQ(lenient.enforced.unenforced[0].keyword, keyword);
  for (const Json& value : entry.find("valid")->as_array()) EXPECT_EQ(lenient.value(value), "yes") << dump_json(value);
}

TEST(WildSchemas, ValidInstancesAreAcceptedInvalidOnesAreNot) {
  int schemas = 0, instances = 0;
  for (const fs::directory_entry& file :
       fs::directory_iterator(fs::path(BARG_SOURCE_DIR) / "tests" / "data" / "schemas")) {
    const Json entries = schemas::json_file(file.path().string());
    for (const Json& entry : entries.as_array()) {
      SCOPED_TRACE(entry.find("name")->as_string());
      ++schemas;
      if (const Json* keyword = entry.find("refused")) {
        expect_refused(entry, keyword->as_string());
        continue;
      }
      const schemas::Schema schema(*entry.find("schema"), options_of(entry));
      ASSERT_TRUE(schema.ok()) << schema.error.message;
      for (const Json& value : entry.find("valid")->as_array())
        EXPECT_EQ(schema.value(value), "yes") << dump_json(value);
      for (const Json& value : entry.find("invalid")->as_array())
        EXPECT_EQ(schema.in_any_order(value), "no") << dump_json(value);
      instances += static_cast<int>(entry.find("valid")->size() + entry.find("invalid")->size());
    }
  }
  EXPECT_GE(schemas, 300);
  EXPECT_GE(instances, 2000);
}

}  // namespace
}  // namespace barg::text::grammar::schema_wild_test
