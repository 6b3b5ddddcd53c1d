#include "server/api_error.h"

#include <algorithm>
#include <cmath>

namespace barg::server {
namespace {

constexpr std::string_view kInvalid = "invalid_request_error";

struct Row {
  ErrorCode code;
  ErrorShape shape;
};

constexpr Row kTable[] = {
    {ErrorCode::kInvalidValue, {400, kInvalid, "invalid_value"}},
    {ErrorCode::kMissingParameter, {400, kInvalid, "missing_required_parameter"}},
    {ErrorCode::kUnsupported, {400, kInvalid, "unsupported_parameter"}},
    {ErrorCode::kContextLengthExceeded, {400, kInvalid, "context_length_exceeded"}},
    {ErrorCode::kNotFound, {404, kInvalid, "model_not_found"}},
    {ErrorCode::kUnauthorized, {401, "authentication_error", "invalid_api_key"}},
    {ErrorCode::kTooLarge, {413, kInvalid, "request_too_large"}},
    {ErrorCode::kRateLimited, {429, "rate_limit_error", "rate_limit_exceeded"}},
    {ErrorCode::kUnavailable, {503, "server_error", "service_unavailable"}},
    {ErrorCode::kShutdown, {503, "server_error", "server_shutdown"}},
    {ErrorCode::kTimeout, {503, "server_error", "queue_timeout"}},
    {ErrorCode::kCancelled, {499, kInvalid, "request_cancelled"}},
    {ErrorCode::kBadFile, {500, "server_error", "internal_error"}},
    {ErrorCode::kIo, {500, "server_error", "internal_error"}},
    {ErrorCode::kOutOfMemory, {503, "server_error", "out_of_memory"}},
    {ErrorCode::kBadNumbers, {500, "server_error", "invalid_numbers"}},
    {ErrorCode::kInternal, {500, "server_error", "internal_error"}},
};

constexpr double kDefaultRetrySeconds = 1;

}  // namespace

ErrorShape error_shape(ErrorCode code) {
  for (const Row& row : kTable) {
    if (row.code == code) return row.shape;
  }
  return {500, "server_error", "internal_error"};
}

Json error_json(const ErrorShape& shape, std::string_view message, std::string_view param) {
  Json error = Json::object({{"message", std::string(message)},
                             {"type", std::string(shape.type)},
                             {"param", param.empty() ? Json(nullptr) : Json(std::string(param))},
                             {"code", std::string(shape.code)}});
  return Json::object({{"error", std::move(error)}});
}

Json error_json(const Error& error) {
  const ErrorShape shape = error_shape(error.code);
  const bool ours = shape.status == 500 && error.code != ErrorCode::kBadNumbers;
  if (ours) return error_json(shape, "the server failed to answer this request");
  return error_json(shape, error.message, error.param);
}

void add_retry_after(HttpResponse& response, double seconds) {
  seconds = std::clamp(seconds, 0.001, 3600.0);
  response.headers.emplace_back("retry-after", std::to_string(static_cast<int>(std::ceil(seconds))));
  response.headers.emplace_back("retry-after-ms",
                                std::to_string(static_cast<int>(std::ceil(seconds * 1000))));
}

HttpResponse error_response(const ErrorShape& shape, std::string_view message, std::string_view param) {
  HttpResponse response;
  response.status = shape.status;
  response.body = dump_json(error_json(shape, message, param));
  if (shape.status == 500) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

HttpResponse error_response(const Error& error) {
  const ErrorShape shape = error_shape(error.code);
  HttpResponse response;
  response.status = shape.status;
  response.body = dump_json(error_json(error));
  if (shape.status == 500) response.headers.emplace_back("x-should-retry", "false");
  if (shape.status == 401) response.headers.emplace_back("www-authenticate", "Bearer");
  if (shape.status == 429 || shape.status == 503) {
    add_retry_after(response, error.retry_after_s > 0 ? error.retry_after_s : kDefaultRetrySeconds);
  }
  return response;
}

}  // namespace barg::server
