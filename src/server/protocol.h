// Protocol: one row for each dialect of HTTP that asks for a generation (Chat Completions, Completions,
// Responses, Messages). Generation and prepare() walk the table; neither names a protocol.
#pragma once

#include <memory>
#include <string_view>

#include "barg/result.h"
#include "server/answer_writer.h"
#include "server/http.h"
#include "server/openai_json.h"

namespace barg::server {

struct ServerState;

/// What parsing a body may look at.
struct ParseContext {
  const ServerState& state;
  const ServedModel& model;
  const HttpRequest& request;  ///< headers; the body is passed parsed
  std::string_view api_key;    ///< empty where none is asked for
};

struct Protocol {
  Api api;
  std::string_view id_prefix;  ///< "chatcmpl-"
  /// Model and body are known to be there; every error names its field in the protocol's own words.
  Result<ApiRequest> (*parse)(const Json& body, const ParseContext& context);
  std::unique_ptr<AnswerWriter> (*writer)(AnswerContext context);
  /// An error before the headers have left, in the protocol's envelope.
  HttpResponse (*error)(const Error& error);
  std::string_view keep_alive;  ///< sent when a stream has been silent: a comment, or a ping event
  std::string_view prompt_field;  ///< what errors about the prompt name: "messages", "prompt", "input"
};

/// Defined in protocol.cpp from the rows of chat_protocol.cpp, responses_protocol.cpp, messages_protocol.cpp.
const Protocol& protocol_of(Api api);

}  // namespace barg::server
