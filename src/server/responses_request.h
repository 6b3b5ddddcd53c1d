// The body of POST /v1/responses (and of /v1/responses/input_tokens) becomes an ApiRequest: items and
// instructions as chat messages, flat and namespaced and custom tools as ToolSpecs, and in a ResponsesExtras
// what the answer's object repeats. Earlier turns come from the store (previous_response_id, item_reference).
//
// Pure but for reading the store; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/protocol.h"

namespace barg::server {

std::span<const FieldSpec> responses_fields();

Result<ApiRequest> parse_responses_request(const Json& body, const ParseContext& context);

}  // namespace barg::server
