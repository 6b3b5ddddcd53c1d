// The description of the server, from the tables that it runs by: routes (routes.h) and the fields of bodies
// (json_fields.h). /openapi.json is OpenAPI 3.1; docs/endpoints.md is the same for people. Pure; any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "server/json_fields.h"

namespace barg::server {

/// `version` is the server's.
Json openapi_document(const std::string& version);
/// docs/endpoints.md.
std::string endpoints_markdown();

/// JSON Schema of an object with these fields; unknown ones are allowed, null is absent.
Json fields_schema(std::span<const FieldSpec> fields);

}  // namespace barg::server
