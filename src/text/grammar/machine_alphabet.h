// The bytes and tokens without which some text of a Plan could not be finished on a shortest way. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "text/grammar/machine_plan.h"

namespace barg::text::grammar::pushdown {

/// Ascending. Bytes that are never needed (white space, the long forms of what may be spelled shorter) are
/// left out.
std::vector<std::uint8_t> needed_bytes(const Plan& plan);
std::vector<TokenId> needed_tokens(const Plan& plan);

}  // namespace barg::text::grammar::pushdown
