// printable(): a name from a hostile file, made safe to quote in a message. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace barg::model {

/// Printable ASCII only ('?' for the rest), at most `max` bytes and then "...".
inline std::string printable(std::string_view s, std::size_t max = 100) {
  std::string out;
  for (const char c : s.substr(0, max)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  return s.size() > max ? out + "..." : out;
}

}  // namespace barg::model
