// The answer of Completions: text, its log-probabilities, and the prompt where it is echoed. Every event is kText.
#pragma once

#include <memory>

#include "server/answer_writer.h"

namespace barg::server {

std::unique_ptr<AnswerWriter> make_completions_writer(AnswerContext context);

}  // namespace barg::server
