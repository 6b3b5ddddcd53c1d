// Numbers as text for the tables of the benchmarks. Thread rule: pure functions.
#pragma once

#include <cstdio>
#include <string>

namespace barg::bench {

/// `value` with `digits` digits behind the point.
inline std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace barg::bench
