#include "text/marked_string.h"

namespace barg::text {

std::vector<MarkedText> MarkedString::pieces() const {
  std::vector<MarkedText> out;
  const std::string_view all = text;
  std::size_t at = 0;
  for (const auto& [begin, end] : untrusted) {
    if (begin > at) out.push_back({all.substr(at, begin - at), true});
    out.push_back({all.substr(begin, end - begin), false});
    at = end;
  }
  if (at < all.size()) out.push_back({all.substr(at), true});
  return out;
}

std::string_view MarkedString::trusted_tail() const {
  const std::size_t from = untrusted.empty() ? 0 : untrusted.back().second;
  return std::string_view(text).substr(from);
}

}  // namespace barg::text
