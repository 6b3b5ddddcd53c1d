#include "server/openapi.h"

#include <map>
#include <set>

#include "server/routes.h"
#include "test_server.h"

namespace barg::test::openapi_test {
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

/// The operation of a route in the document.
const Json& operation(const Json& document, const char* path, const char* method) {
  return *document.find("paths")->find(path)->find(method);
}
const Json& body_schema(const Json& operation) {
  return *operation.find("requestBody")->find("content")->find("application/json")->find("schema");
}

/// What is called required is refused without, and nothing else is needed.
TEST_F(OpenApiTest, RequiredIsWhatIsRefusedWithout) {
  start();
  const Json document = server::openapi_document("1");
  const std::string turn = R"("messages":[{"role":"user","content":"hi"}])";
  const std::map<std::string, std::string> least = {
      {"/v1/chat/completions", "{" + turn + "}"},
      {"/v1/completions", R"({"prompt":"hi"})"},
      {"/v1/responses", "{}"},
      {"/v1/responses/input_tokens", "{}"},
      {"/v1/messages", R"({"max_tokens":5,)" + turn + "}"},
      {"/v1/messages/count_tokens", "{" + turn + "}"},
      {"/tokenize", R"({"prompt":"hi"})"},
      {"/detokenize", R"({"tokens":[104]})"},
  };
  for (const server::Route& route : server::routes()) {
    if (route.body == nullptr || route.body().empty()) continue;
    const std::string path(route.pattern);
    if (path == "/v1/embeddings") continue;  // asks another kind of model: embeddings_test.cpp
    ASSERT_TRUE(least.contains(path)) << path;
    const Json body = *parse_json(least.at(path));
    const Json& schema = body_schema(operation(document, path.c_str(), "post"));
    std::set<std::string> required, given;
    if (const Json* names = schema.find("required")) {
      for (const Json& name : names->as_array()) required.insert(name.as_string());
    }
    for (const auto& [name, value] : body.as_object()) given.insert(name);
    EXPECT_EQ(required, given) << path;
    if (!required.empty()) EXPECT_EQ(ask(post(path, dump_json(body))).status, 200) << path;
    for (const std::string& name : required) {
      Json without = body;
      std::erase_if(without.as_object(), [&](const Json::Member& m) { return m.first == name; });
      const RawResponse r = ask(post(path, dump_json(without)));
      EXPECT_EQ(r.status, 400) << path << " without " << name;
      EXPECT_NE(r.body.find(name), std::string::npos) << r.body;
    }
  }
}

TEST_F(OpenApiTest, InputMayBeMissingBehindAnEarlierResponse) {
  start();
  const Json first = ask(post("/v1/responses", R"({"input":"hi"})")).json();
  const std::string follow = R"({"previous_response_id":")" + first.find("id")->as_string() + "\"}";
  EXPECT_EQ(ask(post("/v1/responses", follow)).status, 200);
  const RawResponse neither = ask(post("/v1/responses", "{}"));
  EXPECT_EQ(neither.status, 400);
  EXPECT_EQ(neither.error("param"), "input");
}

// As in Anthropic's API: a tool of the client has a schema, one of the server's kinds has none.
TEST_F(OpenApiTest, OnlyCustomToolsNeedASchema) {
  start();
  const auto status = [&](const std::string& tool) {
    return ask(post("/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}],"tools":[)" + tool + "]}")).status;
  };
  EXPECT_EQ(status(R"({"name":"f","input_schema":{"type":"object"}})"), 200);
  EXPECT_EQ(status(R"({"type":"custom","name":"f","input_schema":{"type":"object"}})"), 200);
  EXPECT_EQ(status(R"({"type":"web_search_20250305","name":"web_search"})"), 200);
  EXPECT_EQ(status(R"({"type":"mcp_toolset","mcp_server_name":"x"})"), 200);
  EXPECT_EQ(status(R"({"name":"f"})"), 400);
  EXPECT_EQ(status(R"({"name":"f","input_schema":null})"), 400);
  EXPECT_EQ(status(R"({"input_schema":{"type":"object"}})"), 400);
  const Json document = server::openapi_document("1");
  const Json& tools = *body_schema(operation(document, "/v1/messages", "post")).find("properties")->find("tools");
  EXPECT_EQ(tools.find("items")->find("required"), nullptr) << "not of every tool";
}

TEST(OpenApi, ParametersAreTold) {
  const Json document = server::openapi_document("1");
  const auto parameters = [&](const char* path, const char* method, std::string_view where) {
    std::set<std::string> out;
    for (const Json& p : operation(document, path, method).find("parameters")->as_array()) {
      EXPECT_EQ(p.find("schema")->find("description"), nullptr) << "it is the parameter's";
      if (p.find("in")->as_string() == where) out.insert(p.find("name")->as_string());
    }
    return out;
  };
  using Names = std::set<std::string>;
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
    EXPECT_EQ(parameters(path, "post", "header"), (Names{"Idempotency-Key", "X-Capture", "X-Request-Id"})) << path;
  EXPECT_EQ(parameters("/tokenize", "post", "header"), Names{"X-Request-Id"});
  EXPECT_EQ(parameters("/v1/models", "get", "header"), (Names{"X-Request-Id", "anthropic-version"}));
  EXPECT_EQ(parameters("/v1/models", "get", "query"), (Names{"after_id", "before_id", "limit"}));
  EXPECT_EQ(parameters("/v1/models/{name}", "get", "path"), Names{"name"});
  EXPECT_EQ(parameters("/v1/responses/{id}", "get", "query"), (Names{"starting_after", "stream"}));
  EXPECT_EQ(parameters("/v1/responses/{id}/input_items", "get", "query"), (Names{"after", "limit", "order"}));
  EXPECT_EQ(parameters("/v1/explain", "post", "query"), Names{"endpoint"});
  for (const Json& p : operation(document, "/v1/responses/{id}/input_items", "get").find("parameters")->as_array()) {
    const std::string& name = p.find("name")->as_string();
    if (name == "order") EXPECT_EQ(dump_json(*p.find("schema")), R"({"type":"string","enum":["asc","desc"]})");
    if (name == "limit") EXPECT_EQ(dump_json(*p.find("schema")), R"({"type":"integer","minimum":1,"maximum":100})");
  }
}

TEST_F(OpenApiTest, IsServed) {
  start();
  const RawResponse r = ask("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.json().find("openapi")->as_string(), "3.1.0");
}

}  // namespace
}  // namespace barg::test::openapi_test
