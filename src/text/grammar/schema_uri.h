// URI references, as much of RFC 3986 as the $id and $ref of a schema need. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace barg::text::grammar::schema {

/// `reference` against `base` (section 5.2.2), dot segments removed. Both may be relative or empty.
std::string resolve_uri(std::string_view base, std::string_view reference);

/// (without the fragment, the fragment without its '#').
std::pair<std::string_view, std::string_view> split_fragment(std::string_view uri);

/// %XX decoded; a bad escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace barg::text::grammar::schema
