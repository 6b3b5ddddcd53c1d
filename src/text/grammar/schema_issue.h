// Issue: why a schema, or a part of it, is not enforced, before it is known whether that refuses the schema or is only
// reported (`lenient`). Values, any thread.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace barg::text::grammar::schema {

/// A place of the document (schema_document.h).
using Place = std::int32_t;
inline constexpr Place kNoPlace = -1;

struct Issue {
  enum class Kind : std::uint8_t {
    kUnsupported,  ///< a schema, but Barg cannot enforce it exactly
    kInvalid,      ///< no schema
    kPending,      ///< asked for while it is being computed: the schema needs itself at the same value
  };
  Kind kind = Kind::kUnsupported;
  Place at = kNoPlace;  ///< the schema object; filled in by whoever knows it
  std::string keyword;  ///< empty: not known yet
  std::string reason;
};

template <class T>
using Checked = std::expected<T, Issue>;

inline std::unexpected<Issue> unsupported(std::string reason) {
  return std::unexpected(Issue{Issue::Kind::kUnsupported, kNoPlace, {}, std::move(reason)});
}
inline std::unexpected<Issue> unsupported(Place at, std::string keyword, std::string reason) {
  return std::unexpected(Issue{Issue::Kind::kUnsupported, at, std::move(keyword), std::move(reason)});
}
inline std::unexpected<Issue> invalid(Place at, std::string keyword, std::string reason) {
  return std::unexpected(Issue{Issue::Kind::kInvalid, at, std::move(keyword), std::move(reason)});
}

}  // namespace barg::text::grammar::schema
