// Bodies of /v1/messages and of /v1/messages/count_tokens. Lenient in what agents send (odd roles, server tools,
// unknown fields, other servers' signatures: accepted, listed as ignored where they have no effect), strict in what
// changes the meaning of an answer: images, forced calls and output formats are kUnsupported and named.
//
// Errors name fields as the protocol does ("messages.2.content.0.type"). Pure functions, any thread.
#pragma once

#include <span>
#include <string>

#include "barg/result.h"
#include "base/json.h"
#include "server/json_fields.h"
#include "server/openai_json.h"

namespace barg::server {

struct ServerState;

struct MessagesContext {
  const SamplingDefaults& defaults;
  std::int32_t vocab_size = 0;
  bool strip_volatile = true;
  std::string thought_key;  ///< messages_ids.h
  bool counting = false;    ///< count_tokens: max_tokens may be absent
};

/// What the server says of it, for a model of its.
MessagesContext messages_context(const ServerState& state, const ServedModel& model);

Result<ApiRequest> parse_messages_request(const Json& body, const MessagesContext& context);

/// Every field that is known, for /openapi.json.
std::span<const FieldSpec> messages_fields();
/// Of count_tokens: the same, but for what only an answer needs.
std::span<const FieldSpec> messages_count_fields();

}  // namespace barg::server
