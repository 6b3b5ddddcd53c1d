#include "conform/rule_groups.h"

namespace barg::conform {
namespace {

const RuleGroup* const kOrder[] = {
    &kHttpRules,  &kSseRules,     &kChatRules, &kSamplingRules,  &kUsageRules,     &kLogprobRules,  &kCompletionRules,
    &kErrorRules, &kLenientRules, &kToolRules, &kReasoningRules, &kResponsesRules, &kMessagesRules, &kDisconnectRules,
};

}  // namespace

std::span<const RuleGroup* const> rule_groups() { return kOrder; }

}  // namespace barg::conform
