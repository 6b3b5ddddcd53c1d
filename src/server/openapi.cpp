#include "server/openapi.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/routes.h"

namespace barg::server {
namespace {

constexpr FieldSpec kEveryHeader[] = {
    {.name = "X-Request-Id", .type = FieldType::kString, .about = "The request's id in answer and log; else one is made."},
};

constexpr double kExact = 9007199254740992.0;  // whole numbers up to here are exact

Json number(double x) {
  if (std::floor(x) == x && std::abs(x) <= kExact) return static_cast<std::int64_t>(x);
  return x;
}

std::string_view json_type(FieldType type) {
  switch (type) {
    case FieldType::kBool: return "boolean";
    case FieldType::kInteger: return "integer";
    case FieldType::kNumber: return "number";
    case FieldType::kString: return "string";
    case FieldType::kArray:
    case FieldType::kTokenIds: return "array";
    case FieldType::kObject: return "object";
    case FieldType::kAny: break;
  }
  return {};
}

void add_bounds(const FieldSpec& field, Json& out) {
  const bool numeric = field.type == FieldType::kInteger || field.type == FieldType::kNumber;
  if (numeric && field.min != kNoMin) out.set(field.min_open ? "exclusiveMinimum" : "minimum", number(field.min));
  if (field.max == kNoMax) return;
  if (numeric) out.set("maximum", number(field.max));
  if (field.type == FieldType::kString) out.set("maxLength", number(field.max));
  if (field.type == FieldType::kArray || field.type == FieldType::kTokenIds) out.set("maxItems", number(field.max));
}

Json field_schema(const FieldSpec& field) {
  Json out = Json::object();
  if (const std::string_view type = json_type(field.type); !type.empty())
    out.set("type", Json(Json::Array{std::string(type), "null"}));
  if (!field.about.empty()) out.set("description", std::string(field.about));
  add_bounds(field, out);
  if (!field.values.empty()) {
    Json::Array values;
    for (const std::string_view value : field.values) values.emplace_back(std::string(value));
    values.emplace_back(nullptr);
    out.set("enum", Json(std::move(values)));
  }
  if (field.type == FieldType::kTokenIds) out.set("items", Json::object({{"type", "integer"}, {"minimum", 0}}));
  if (field.members.empty()) return out;
  Json inner = fields_schema(field.members);
  if (field.type == FieldType::kArray) {
    out.set("items", std::move(inner));
  } else {
    for (auto& [name, value] : inner.as_object()) {
      if (name != "type") out.set(name, std::move(value));
    }
  }
  return out;
}

struct Status {
  int code;
  std::string_view about;
};
constexpr Status kAlways[] = {
    {400, "the request is malformed"}, {403, "a server on loopback answers to local names only"},
    {414, "the target is too long"},   {431, "the header is too large"},
};
constexpr Status kKeyed[] = {{401, "no API key, or a wrong one"}};
constexpr Status kWithId[] = {
    {404, "there is nothing of that name"},
    {429, "too many follow it; Retry-After says when to come back"},
    {503, "the server is too busy to look"},
};
constexpr Status kWithBody[] = {
    {404, "there is no such model"},         {408, "the body did not come in time"},
    {409, "the Idempotency-Key was used for another body"},
    {411, "the length of the body is not known"},
    {413, "the body is too large"},          {415, "the body is not JSON"},
    {417, "an expectation that is not met"}, {429, "the queue is full; Retry-After says when to come back"},
};
constexpr Status kWorking[] = {{503, "the server is draining, or its device is lost"}};
constexpr Status kOverloaded[] = {{529, "the server is draining, or its device is lost"}};  // in Anthropic's envelope

Json error_answer(std::string_view about) {
  const Json schema = Json::object({{"$ref", "#/components/schemas/Error"}});
  return Json::object({{"description", std::string(about)},
                       {"content", Json::object({{"application/json", Json::object({{"schema", schema}})}})}});
}

void add_answers(std::span<const Status> statuses, Json& out) {
  for (const Status& s : statuses) {
    const std::string code = std::to_string(s.code);
    if (out.find(code) == nullptr) out.set(code, error_answer(s.about));
  }
}

Json answers(const Route& route) {
  Json content = Json::object();
  const Json any = Json::object({{"schema", Json::object()}});
  content.set(route.answers.empty() ? "application/json" : std::string(route.answers), any);
  if (route.streams) content.set("text/event-stream", any);
  Json out = Json::object({{"200", Json::object({{"description", "the answer"}, {"content", std::move(content)}})}});
  add_answers(kAlways, out);
  if (!route.open) add_answers(kKeyed, out);
  if (route.pattern.find('{') != std::string_view::npos) add_answers(kWithId, out);
  if (route.method == "POST") add_answers(kWithBody, out);
  const bool messages = route.pattern.starts_with("/v1/messages");
  if (route.work || route.open) add_answers(messages ? std::span<const Status>(kOverloaded) : kWorking, out);
  return out;
}

Json parameter(std::string_view name, std::string_view where, Json schema, std::string_view about) {
  return Json::object({{"name", std::string(name)},
                       {"in", std::string(where)},
                       {"required", where == "path"},
                       {"description", std::string(about)},
                       {"schema", std::move(schema)}});
}

/// It is there or not: there is no null in a query or a header.
Json field_parameter(const FieldSpec& field, std::string_view where) {
  Json schema = field_schema(field);
  if (Json* type = schema.find("type")) *type = std::string(json_type(field.type));
  if (Json* values = schema.find("enum")) values->as_array().pop_back();
  std::erase_if(schema.as_object(), [](const Json::Member& m) { return m.first == "description"; });
  return parameter(field.name, where, std::move(schema), field.about);
}

Json parameters(const Route& route) {
  Json::Array out;
  for (const std::string_view name : {"id", "name"}) {
    if (route.pattern.find("{" + std::string(name) + "}") == std::string_view::npos) continue;
    out.push_back(parameter(name, "path", Json::object({{"type", "string"}, {"minLength", 1}}), "Which one."));
  }
  for (const FieldSpec& field : route.query) out.push_back(field_parameter(field, "query"));
  for (const FieldSpec& field : route.headers) out.push_back(field_parameter(field, "header"));
  for (const FieldSpec& field : kEveryHeader) out.push_back(field_parameter(field, "header"));
  return Json(std::move(out));
}

/// "POST /v1/responses/{id}/cancel" -> "post_v1_responses_id_cancel".
std::string operation_id(const Route& route) {
  std::string out;
  for (const char c : std::string(route.method) + "_" + std::string(route.pattern.substr(1))) {
    if (c == '{' || c == '}') continue;
    out += c == '/' || c == '.' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

Json operation(const Route& route) {
  Json out = Json::object({{"operationId", operation_id(route)}, {"summary", std::string(route.about)}});
  if (route.open) out.set("security", Json::array());
  if (Json all = parameters(route); all.size() > 0) out.set("parameters", std::move(all));
  if (route.method == "POST" && route.body != nullptr) {
    const Json schema = fields_schema(route.body());
    out.set("requestBody",
            Json::object({{"required", schema.find("properties")->size() > 0},
                          {"content", Json::object({{"application/json", Json::object({{"schema", schema}})}})}}));
  }
  out.set("responses", answers(route));
  return out;
}

Json error_schema() {
  const Json text = Json::object({{"type", "string"}});
  const Json maybe = Json::object({{"type", Json(Json::Array{"string", "null"})}});
  const Json error = Json::object({{"type", "object"},
                                   {"required", Json(Json::Array{"message", "type"})},
                                   {"properties", Json::object({{"message", text}, {"type", text}, {"param", maybe}, {"code", maybe}})}});
  return Json::object({{"type", "object"},
                       {"required", Json(Json::Array{"error"})},
                       {"properties", Json::object({{"error", error}})}});
}

// ---- for people

std::string bound(double x) {
  const Json value = number(x);
  return dump_json(value);
}

std::string_view unit(FieldType type) {
  if (type == FieldType::kString) return " bytes";
  return type == FieldType::kArray || type == FieldType::kTokenIds ? " items" : "";
}

std::string type_text(const FieldSpec& field) {
  std::string out(field.type == FieldType::kTokenIds ? "token ids" : field.type == FieldType::kAny ? "any" : json_type(field.type));
  if (!field.values.empty()) {
    out += ":";
    for (const std::string_view value : field.values) out += (value == field.values.front() ? " " : ", ") + std::string(value);
  }
  const bool numeric = field.type == FieldType::kInteger || field.type == FieldType::kNumber;
  if (numeric && field.min != kNoMin) out += field.min_open ? ", above " + bound(field.min) : ", from " + bound(field.min);
  if (field.max != kNoMax) out += (numeric ? " to " : ", at most ") + bound(field.max) + std::string(unit(field.type));
  return out;
}

void add_fields(std::span<const FieldSpec> fields, const std::string& prefix, std::string& out) {
  for (const FieldSpec& field : fields) {
    const std::string name = prefix + std::string(field.name);
    const std::string_view must = field.required ? "**required** " : "";
    out += "| `" + name + "` | " + type_text(field) + " | " + std::string(must) + std::string(field.about) + " |\n";
    add_fields(field.members, name + (field.type == FieldType::kArray ? "[]." : "."), out);
  }
}

void add_table(std::string_view what, std::span<const FieldSpec> fields, std::string& out) {
  if (fields.empty()) return;
  out += "\n| " + std::string(what) + " | | |\n|---|---|---|\n";
  add_fields(fields, "", out);
}

}  // namespace

Json fields_schema(std::span<const FieldSpec> fields) {
  Json properties = Json::object();
  Json::Array required;
  for (const FieldSpec& field : fields) {
    properties.set(std::string(field.name), field_schema(field));
    if (field.required) required.emplace_back(std::string(field.name));
  }
  Json out = Json::object({{"type", "object"}, {"properties", std::move(properties)}});
  if (!required.empty()) out.set("required", Json(std::move(required)));
  return out;
}

Json openapi_document(const std::string& version) {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    const std::string path(route.pattern);
    if (paths.find(path) == nullptr) paths.set(path, Json::object());
    std::string method(route.method);
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    paths.find(path)->set(std::move(method), operation(route));
  }
  const Json bearer = Json::object({{"type", "http"}, {"scheme", "bearer"}});
  const Json header = Json::object({{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}});
  const Json security(Json::Array{Json::object({{"bearer", Json::array()}}), Json::object({{"x_api_key", Json::array()}})});
  return Json::object(
      {{"openapi", "3.1.0"},
       {"info", Json::object({{"title", "Barg"}, {"version", version}})},
       {"security", security},
       {"paths", std::move(paths)},
       {"components", Json::object({{"schemas", Json::object({{"Error", error_schema()}})},
                                    {"securitySchemes", Json::object({{"bearer", bearer}, {"x_api_key", header}})}})}});
}

std::string endpoints_markdown() {
  std::string out =
      "# Endpoints\n\nWritten by `barg config endpoints` from the tables that the server runs by; `GET /openapi.json` is the same "
      "for programs.\nEvery path under `/v1` answers without it too. A field that is `null` is absent; unknown fields are accepted "
      "and named in the\nheader `x-barg-ignored`, or refused where the body has `strict_params: true`. Every request may have an `X-Request-Id`.\n\n"
      "| | path | |\n|---|---|---|\n";
  for (const Route& route : routes()) {
    out += "| " + std::string(route.method) + " | `" + std::string(route.pattern) + "` | " + std::string(route.about) +
           (route.open ? " No key is asked for." : "") + " |\n";
  }
  for (const Route& route : routes()) {
    const auto body = route.body != nullptr ? route.body() : std::span<const FieldSpec>();
    if (body.empty() && route.query.empty() && route.headers.empty()) continue;
    out += "\n## " + std::string(route.method) + " `" + std::string(route.pattern) + "`\n";
    add_table("in the query", route.query, out);
    add_table("header", route.headers, out);
    add_table("field", body, out);
  }
  return out;
}

}  // namespace barg::server
