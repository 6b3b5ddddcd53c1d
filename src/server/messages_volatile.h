// Lines that agents put into their system prompt and change on every request: a billing header in front, a count
// of the tokens that are left. Nobody reads them, and each makes every page behind it a new one, so a prefix is
// never found again. They are taken out of system text only (what a user or the model quotes stays), and the
// request says so among its ignored fields.
//
// Pure, any thread, one pass.
#pragma once

#include <string>
#include <string_view>

namespace barg::server {

/// `text` without
///   - lines in front that start with "x-anthropic-billing-header";
///   - "<total_tokens>N tokens left</total_tokens>" anywhere (N of digits, commas and underscores), together with
///     the white space before it.
/// Equal to `text` where there is nothing of the kind.
std::string without_volatile_lines(std::string_view text);

}  // namespace barg::server
