// Errors as OpenAI's clients expect them: {"error":{"message","type","param","code"}}, all four keys always.
// One table maps ErrorCode to status, type and code; nothing else in the server knows these numbers.
#pragma once

#include <string>
#include <string_view>

#include "barg/result.h"
#include "base/json.h"
#include "server/http.h"

namespace barg::server {

struct ErrorShape {
  int status = 500;
  std::string_view type;
  std::string_view code;
};

/// The row of the table.
ErrorShape error_shape(ErrorCode code);

/// {"error":{...}}; the message of a 5xx that is our own fault is replaced by a neutral one.
Json error_json(const Error& error);
/// The same with an explicit shape.
Json error_json(const ErrorShape& shape, std::string_view message, std::string_view param = {});

/// Status, body, Retry-After and retry-after-ms where the error says when to come back.
HttpResponse error_response(const Error& error);
HttpResponse error_response(const ErrorShape& shape, std::string_view message, std::string_view param = {});

/// Adds Retry-After (whole seconds, at least 1) and retry-after-ms.
void add_retry_after(HttpResponse& response, double seconds);

}  // namespace barg::server
