// Responses: the row that generation walks.
#include "server/api_error.h"
#include "server/protocols.h"
#include "server/responses_answer.h"
#include "server/responses_request.h"
#include "server/responses_writer.h"

namespace barg::server {
namespace {

HttpResponse error(const Error& error) {
  if (error.code == ErrorCode::kNotFound && error.param == "previous_response_id")
    return error_response({400, "invalid_request_error", "previous_response_not_found"}, error.message,
                          error.param);
  return error_response(error);
}

}  // namespace

const Protocol kResponsesProtocol = {
    .api = Api::kResponses,
    .path = "/v1/responses",
    .id_prefix = "resp_",
    .fields = responses_fields,
    .parse = parse_responses_request,
    .writer = make_responses_writer,
    .error = error,
    .keep_alive = kResponsesKeepAlive,
    .prompt_field = "input",
    .attach = attach_response,
};

}  // namespace barg::server
