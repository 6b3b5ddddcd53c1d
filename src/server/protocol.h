// Protocol: one row for each dialect of HTTP that asks for a generation (Chat Completions, Completions,
// Responses, Messages). Generation and prepare() walk the table; neither names a protocol.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "barg/result.h"
#include "server/answer_writer.h"
#include "server/http.h"
#include "server/json_fields.h"
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

/// What Protocol::attach may look at.
struct AttachContext {
  const std::shared_ptr<ServerState>& state;
  const ResponseMeta& meta;
  const OutputSpec& output;
  const Headers& headers;  ///< of the answer
  const std::shared_ptr<Responder>& client;
};

struct Protocol {
  Api api;
  std::string_view path;       ///< "/v1/chat/completions"; served without the /v1 too
  std::string_view id_prefix;  ///< "chatcmpl-"
  std::span<const FieldSpec> (*fields)();  ///< of the body; reads it and documents it
  /// Model and body are known to be there; every error names its field in the protocol's own words.
  Result<ApiRequest> (*parse)(const Json& body, const ParseContext& context);
  std::unique_ptr<AnswerWriter> (*writer)(AnswerContext context);
  /// An error before the headers have left, in the protocol's envelope.
  HttpResponse (*error)(const Error& error);
  std::string_view keep_alive;  ///< sent when a stream has been silent: a comment, or a ping event
  std::string_view prompt_field;  ///< what errors about the prompt name: "messages", "prompt", "input"
  /// Null, or who is answered in the client's place (answers that outlive their client). Called once the answer's id is
  /// known and before begin(), on the io thread; from then on the generation knows no other responder, and sets its
  /// callbacks there.
  std::shared_ptr<Responder> (*attach)(const AttachContext& context) = nullptr;
};

/// The row of the table in protocol.cpp.
const Protocol& protocol_of(Api api);
/// Who answers at a path, with or without /v1; nullptr if nobody does.
const Protocol* protocol_at(std::string_view path);
inline std::span<const FieldSpec> fields_of(Api api) { return protocol_of(api).fields(); }

}  // namespace barg::server
