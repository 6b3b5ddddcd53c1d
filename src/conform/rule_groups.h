// The tables of rules, one a file rules_*.cpp; rules.cpp puts them in order. Constants.
#pragma once

#include "conform/rule.h"

namespace barg::conform {

extern const RuleGroup kHttpRules, kSseRules, kChatRules, kSamplingRules, kUsageRules, kLogprobRules, kCompletionRules,
    kErrorRules, kLenientRules, kToolRules, kReasoningRules, kResponsesRules, kMessagesRules, kDisconnectRules;

}  // namespace barg::conform
