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

std::string_view MarkedString::continued_tail() const {
  if (untrusted.empty() || untrusted.back().second != text.size()) return trusted_tail();
  std::size_t first = untrusted.size() - 1;
  while (first > 0 && untrusted[first - 1].second == untrusted[first].first) --first;
  const std::size_t from = first == 0 ? 0 : untrusted[first - 1].second;
  return std::string_view(text).substr(from);
}

}  // namespace barg::text
