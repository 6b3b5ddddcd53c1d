#include "server/openapi.h"

#include <set>

#include "server/routes.h"
#include "test_server.h"

namespace barg::test {
namespace {

using server::FieldSpec;
using server::FieldType;

TEST(OpenApi, EveryRouteIsDescribedWithItsFieldsAndAnswers) {
  const Json document = server::openapi_document("1.2.3");
  EXPECT_EQ(document.find("info")->find("version")->as_string(), "1.2.3");
  std::set<std::string> ids;
  for (const server::Route& route : server::routes()) {
    EXPECT_FALSE(route.about.empty()) << route.pattern;
    const Json* path = document.find("paths")->find(std::string(route.pattern));
    ASSERT_NE(path, nullptr) << route.pattern;
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    const Json* operation = path->find(method);
    ASSERT_NE(operation, nullptr) << route.pattern;
    EXPECT_TRUE(ids.insert(operation->find("operationId")->as_string()).second) << route.pattern;
    EXPECT_NE(operation->find("responses")->find("200"), nullptr);
    EXPECT_EQ(operation->find("responses")->find("401") != nullptr, !route.open) << route.pattern;
    EXPECT_EQ(operation->find("requestBody") != nullptr, route.method == "POST") << route.pattern;
  }
  const Json& chat = *document.find("paths")->find("/v1/chat/completions")->find("post");
  const Json& schema = *chat.find("requestBody")->find("content")->find("application/json")->find("schema");
  const Json& temperature = *schema.find("properties")->find("temperature");
  EXPECT_EQ(dump_json(*temperature.find("maximum")), "2");
  EXPECT_NE(schema.find("properties")->find("messages"), nullptr);
}

TEST(OpenApi, AFieldBecomesItsSchema) {
  static constexpr std::string_view kValues[] = {"a", "b"};
  static constexpr FieldSpec kInner[] = {{.name = "deep", .type = FieldType::kBool}};
  static constexpr FieldSpec kRows[] = {
      {.name = "n", .type = FieldType::kInteger, .about = "How many.", .min = 1, .max = 5, .required = true},
      {.name = "p", .type = FieldType::kNumber, .min = 0, .max = 1, .min_open = true},
      {.name = "s", .type = FieldType::kString, .max = 9, .values = kValues},
      {.name = "o", .type = FieldType::kObject, .members = kInner},
      {.name = "l", .type = FieldType::kArray, .max = 3, .members = kInner},
      {.name = "any"},
  };
  EXPECT_EQ(
      dump_json(server::fields_schema(kRows)),
      R"({"type":"object","properties":{"n":{"type":["integer","null"],"description":"How many.","minimum":1,"maximum":5},)"
      R"("p":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},)"
      R"("s":{"type":["string","null"],"maxLength":9,"enum":["a","b",null]},)"
      R"("o":{"type":["object","null"],"properties":{"deep":{"type":["boolean","null"]}}},)"
      R"("l":{"type":["array","null"],"maxItems":3,"items":{"type":"object","properties":{"deep":{"type":["boolean","null"]}}}},)"
      R"("any":{}},"required":["n"]})");
}

TEST(OpenApi, FieldsAreExplained) {
  for (const server::Route& route : server::routes()) {
    if (route.body == nullptr) continue;
    for (const FieldSpec& field : route.body()) EXPECT_FALSE(field.about.empty()) << route.pattern << " " << field.name;
  }
}

class OpenApiTest : public ServerTest {};

TEST_F(OpenApiTest, IsServed) {
  start();
  const RawResponse r = ask("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.json().find("openapi")->as_string(), "3.1.0");
}

}  // namespace
}  // namespace barg::test
