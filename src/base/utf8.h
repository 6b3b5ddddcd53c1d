// UTF-8 in small pieces: validation, lossy repair, code points. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace barg {

/// Strict: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view s);
/// Decodes the code point at s[i] and advances i; U+FFFD (and one maximal subpart consumed) when invalid.
/// REQUIRES i < s.size().
char32_t next_code_point(std::string_view s, std::size_t& i);
void append_utf8(std::string& out, char32_t cp);
/// Each maximal invalid subpart becomes U+FFFD (as Python's errors="replace" and WHATWG).
std::string repair_utf8(std::string_view s);
/// Length of the longest prefix that does not end inside a (so far valid) multi-byte sequence.
std::size_t complete_utf8_prefix(std::string_view s);

}  // namespace barg
