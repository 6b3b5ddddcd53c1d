// concat(parts...): texts and whole numbers one after the other, for messages. Pure.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace barg::text::grammar {

inline void append_part(std::string& out, std::string_view part) { out += part; }
inline void append_part(std::string& out, char part) { out += part; }
template <std::integral Number>
void append_part(std::string& out, Number part) {
  out += std::to_string(part);
}

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (append_part(out, parts), ...);
  return out;
}

}  // namespace barg::text::grammar
