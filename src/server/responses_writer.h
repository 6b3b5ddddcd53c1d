// The Responses protocol's answer: typed items, one after the other, and the object around them.
//
//   created (queued) in_progress { output_item.added {parts, deltas, done} output_item.done }* completed |
//   incomplete | failed
//
// Runs of reasoning are reasoning items, runs of text are messages of one output_text part, each call is an
// item of its own. White space alone between other items makes none. Every event has a sequence number,
// counted from 0; items are added in the order of their indices and finished before the next one begins. The
// object of the last event equals body().
//
// An answer that is stored is told to its StoredResponse as it is written, and can be ended from there.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/answer_writer.h"
#include "server/responses_extras.h"

namespace barg::server {

/// REQUIRES context.n == 1 and spec->extras a ResponsesExtras.
std::unique_ptr<AnswerWriter> make_responses_writer(AnswerContext context);

/// `object` (a Response object as text) as that of an answer that failed. `code`: see
/// response_failure_code(). OpenAI's list of codes is closed: the one for an error that was, or would be,
/// told with this HTTP status.
std::string_view response_failure_code(int status);
std::string failed_response_object(std::string_view object, std::string_view code, std::string_view message);

}  // namespace barg::server
