// JSON-Schema-Test-Suite, drafts 7 and 2020-12: each schema is refused by name of a keyword, or all of its valid and
// none of its invalid instances are accepted. The table of what is accepted is part of the documentation and checked
// here; BARG_TEST_WRITE_DOCS=1 writes it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "support/data.h"
#include "text/grammar/schema_support.h"

namespace barg::text::grammar::schema_suite_test {
namespace {

namespace fs = std::filesystem;

const fs::path kDocs = fs::path(BARG_SOURCE_DIR) / "docs" / "structured-output.md";
constexpr std::string_view kBegin = "<!-- coverage: begin -->\n";
constexpr std::string_view kEnd = "<!-- coverage: end -->\n";

/// Keywords that Barg says it enforces (or that need no enforcement), in all drafts.
const std::set<std::string> kPromised = {"$schema",
                                         "$id",
                                         "$comment",
                                         "title",
                                         "description",
                                         "default",
                                         "examples",
                                         "deprecated",
                                         "readOnly",
                                         "writeOnly",
                                         "$ref",
                                         "$defs",
                                         "definitions",
                                         "$anchor",
                                         "allOf",
                                         "anyOf",
                                         "oneOf",
                                         "const",
                                         "enum",
                                         "type",
                                         "properties",
                                         "required",
                                         "additionalProperties",
                                         "patternProperties",
                                         "propertyNames",
                                         "minProperties",
                                         "maxProperties",
                                         "items",
                                         "prefixItems",
                                         "additionalItems",
                                         "minItems",
                                         "maxItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "uniqueItems",
                                         "minLength",
                                         "maxLength",
                                         "pattern",
                                         "format",
                                         "minimum",
                                         "maximum",
                                         "exclusiveMinimum",
                                         "exclusiveMaximum",
                                         "multipleOf",
                                         "if",
                                         "then",
                                         "else",
                                         "not",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies"};
const std::set<std::string> kSilent = {"$schema",  "$id",        "$comment", "title",     "description", "default",
                                       "examples", "deprecated", "readOnly", "writeOnly", "$defs",       "definitions"};
const std::set<std::string> kFormats = {
    "date", "time", "date-time", "duration",      "email",        "hostname",     "ipv4",
    "ipv6", "uuid", "uri",       "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"};

/// Keywords of a schema and of all schemas in it, and its $id and $ref.
struct Vocabulary {
  std::set<std::string> keywords, ids, refs;
  bool unknown_format = false;

  void read(const Json& schema) {
    if (!schema.is_object()) return;
    for (const Json::Member& m : schema.as_object()) {
      keywords.insert(m.first);
      if (m.first == "$id" && m.second.is_string()) ids.insert(last_part(m.second.as_string()));
      if (m.first == "$ref" && m.second.is_string()) refs.insert(m.second.as_string());
      if (m.first == "format") unknown_format |= !kFormats.contains(m.second.as_string());
      const std::set<std::string> named = {"properties",  "patternProperties", "$defs",
                                           "definitions", "dependentSchemas",  "dependencies"};
      const std::set<std::string> data = {"enum", "const", "default", "examples", "dependentRequired"};
      if (data.contains(m.first)) continue;
      if (named.contains(m.first) && m.second.is_object()) {
        for (const Json::Member& inner : m.second.as_object()) read(inner.second);
      } else if (m.second.is_array()) {
        for (const Json& inner : m.second.as_array()) read(inner);
      } else {
        read(m.second);
      }
    }
  }
  static std::string last_part(std::string uri) {
    uri = uri.substr(0, uri.find('#'));
    while (uri.ends_with('/')) uri.pop_back();
    return uri.substr(uri.find_last_of("/:") + 1);
  }
  bool inside() const {
    return std::ranges::all_of(
        refs, [&](const std::string& ref) { return ref.starts_with('#') || ids.contains(last_part(ref)); });
  }
  bool promised() const { return !unknown_format && inside() && std::ranges::includes(kPromised, keywords); }
};

struct Count {
  int schemas = 0, accepted = 0;
};

class Suite : public ::testing::Test {
 protected:
  /// true: accepted and right.
  void run_group(const std::string& file, const Json& group, const SchemaOptions& options) {
    const Json& schema = *group.find("schema");
    const std::string name = file + ": " + group.find("description")->as_string();
    const schemas::Schema compiled(schema, options);
    count(schema, compiled.ok());
    ++all_.schemas;
    all_.accepted += compiled.ok() ? 1 : 0;
    if (!compiled.ok()) {
      // Only a schema that nothing satisfies has no keyword to name.
      const bool nothing = compiled.error.message.find("no value satisfies") != std::string::npos;
      EXPECT_TRUE(nothing || compiled.error.message.find("keyword '") != std::string::npos)
          << name << ": " << compiled.error.message;
      for (const Json& test : group.find("tests")->as_array()) {
        EXPECT_FALSE(nothing && test.find("valid")->as_bool()) << name << ": " << test.find("description")->as_string();
      }
      if (std::getenv("BARG_TEST_SHOW_REFUSED") != nullptr)
        std::cout << name << "\n    " << compiled.error.message << "\n";
      return;
    }
    for (const Json& test : group.find("tests")->as_array()) {
      const std::string& what = test.find("description")->as_string();
      if (what.find("only an annotation") != std::string::npos) continue;  // formats are asserted
      EXPECT_EQ(compiled.in_any_order(*test.find("data")), test.find("valid")->as_bool() ? "yes" : "no")
          << name << ": " << what << ": " << dump_json(*test.find("data"));
      ++instances_;
    }
  }

  void run_folder(const std::string& folder, const SchemaOptions& options) {
    const std::string path = barg::test::shared_data("json-schema/" + folder);
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      // Numbers that Json does not hold, and such that texts show only with exponents.
      if (!name.ends_with(".json") || name == "bignum.json" || name == "float-overflow.json") continue;
      const Json groups = schemas::json_file(entry.path().string());
      for (const Json& group : groups.as_array()) {
        run_group(folder + "/" + name, group, options);
      }
    }
  }

  void count(const Json& schema, bool accepted) {
    Vocabulary vocabulary;
    vocabulary.read(schema);
    if (!vocabulary.promised()) return;
    ++promised_.schemas;
    promised_.accepted += accepted ? 1 : 0;
    for (const std::string& keyword : vocabulary.keywords) {
      if (kSilent.contains(keyword)) continue;
      ++by_keyword_[keyword].schemas;
      by_keyword_[keyword].accepted += accepted ? 1 : 0;
    }
  }

  std::string table() const {
    std::string out = "| keyword | schemas of the suite with it | enforced |\n|---|---:|---:|\n";
    for (const auto& [keyword, count] : by_keyword_) {
      out += "| `" + keyword + "` | " + std::to_string(count.schemas) + " | " + std::to_string(count.accepted) + " |\n";
    }
    return out + "| all whose keywords are in this table | " + std::to_string(promised_.schemas) + " | " +
           std::to_string(promised_.accepted) + " |\n";
  }

  std::map<std::string, Count> by_keyword_;
  Count promised_, all_;
  int instances_ = 0;
};

/// The table between its markers in the document: checked, or written.
void compare_with_docs(const std::string& table) {
  std::ifstream in(kDocs, std::ios::binary);
  std::string docs(std::istreambuf_iterator<char>(in), {});
  const std::size_t begin = docs.find(kBegin), end = docs.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << kDocs << " has no markers";
  ASSERT_NE(end, std::string::npos) << kDocs << " has no markers";
  const std::size_t from = begin + kBegin.size();
  if (std::getenv("BARG_TEST_WRITE_DOCS") != nullptr) {
    std::ofstream(kDocs, std::ios::binary) << docs.replace(from, end - from, table);
    return;
  }
  EXPECT_EQ(docs.substr(from, end - from), table) << "BARG_TEST_WRITE_DOCS=1 renews " << kDocs;
}

TEST_F(Suite, EverySchemaIsRefusedByNameOrExact) {
  if (barg::test::shared_data("json-schema/draft7").empty()) GTEST_SKIP() << barg::test::kNoShared;
  run_folder("draft7", {.draft = Draft::k7});
  run_folder("draft2020-12", {.draft = Draft::k2020});
  const std::string shown = table();
  std::cout << shown << "all schemas: " << all_.accepted << " of " << all_.schemas << ", " << instances_
            << " instances\n";
  EXPECT_GT(instances_, 1000);
  EXPECT_GE(promised_.accepted * 100, promised_.schemas * 85);
  compare_with_docs(shown);
}

TEST_F(Suite, TheOptionalOnesToo) {
  if (barg::test::shared_data("json-schema/draft7").empty()) GTEST_SKIP() << barg::test::kNoShared;
  for (const std::string folder : {"draft7/optional", "draft7/optional/format"})
    run_folder(folder, {.draft = Draft::k7});
  for (const std::string folder : {"draft2020-12/optional", "draft2020-12/optional/format"}) {
    run_folder(folder, {.draft = Draft::k2020});
  }
  EXPECT_GT(instances_, 200);
}

}  // namespace
}  // namespace barg::text::grammar::schema_suite_test
