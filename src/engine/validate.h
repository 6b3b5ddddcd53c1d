// validate_request: the ranges of include/barg/request.h, checked for every submitter, so that nothing behind
// the inbox sees a request it cannot serve. Pure; any thread.
#pragma once

#include "barg/engine.h"
#include "barg/request.h"
#include "barg/result.h"

namespace barg::engine {

/// kInvalidValue or kUnsupported with `param` = the field's API name ("temperature", "logit_bias"), or
/// kContextLengthExceeded. A prompt fits when one token of output fits behind it (none for max_tokens 0).
Result<void> validate_request(const Request& request, const EngineInfo& info);

}  // namespace barg::engine
