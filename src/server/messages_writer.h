// The Messages protocol's answer: content blocks, one after the other.
//
//   message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
//
// Runs of reasoning are thinking blocks (signed at their end), runs of text are text blocks, each call is a tool_use
// block. White space alone between other blocks makes no block: the protocol has none. A streamed answer, added up
// as the official clients do, equals body().
//
// Three members are ours: `undeclared` of a tool_use block whose name no tool has; and of the message and of message_delta
// `tool_parse_error`, why what looked like a call is text or half a call, and `incomplete_tool_uses`, ids of such halves.
#pragma once

#include <memory>
#include <string>

#include "server/answer_writer.h"

namespace barg::server {

struct MessagesExtras final : ProtocolExtras {
  std::string thought_key;  ///< signs thinking blocks (messages_ids.h)
};

/// REQUIRES context.n == 1 and one prompt.
std::unique_ptr<AnswerWriter> make_messages_writer(AnswerContext context);

/// The keep-alive of a silent stream.
inline constexpr std::string_view kMessagesPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

}  // namespace barg::server
