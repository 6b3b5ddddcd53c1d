// Numbers and columns as text for the tables of the benchmarks. Thread rule: pure functions.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

namespace barg::bench {

/// `value` with `digits` digits behind the point.
inline std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// "12.3 %"; "-" where it is not known.
inline std::string percent(std::optional<double> share) {
  return share ? fixed(*share * 100, 1) + " %" : "-";
}

/// At the left, or right, end of a column. What is wider stays whole.
inline std::string left(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}
inline std::string right(std::string text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace barg::bench
