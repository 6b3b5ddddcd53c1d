// The answer of Chat Completions.
//
// What openai-python's accumulator forces (and other clients rely on): role, ids and names appear once, indexes of
// calls are dense and ascending, no number stands inside a delta, the finish has a chunk of its own. Reasoning goes
// out under both of its names. What is not OpenAI's stands beside the choice: tool_parse_error, undeclared_tools,
// incomplete_tool_calls.
#pragma once

#include <memory>
#include <string_view>

#include "server/answer_writer.h"

namespace barg::server {

struct ChatExtras final : ProtocolExtras {
  bool functions = false;  ///< the request used `functions`: the answer has function_call
};

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context);

/// finish_reason, the same streamed and not: "length", "stop", "tool_calls" or "function_call".
std::string_view chat_finish_reason(const OutputSpec& spec, const ChoiceEnd& end);

}  // namespace barg::server
