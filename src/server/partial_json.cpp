#include "server/partial_json.h"

#include "base/json.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxDepth = 128;

/// Index behind the string that starts at s[i], npos if it does not end.
std::size_t string_end(std::string_view s, std::size_t i) {
  for (++i; i < s.size(); ++i) {
    if (s[i] == '\\') {
      ++i;
    } else if (s[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

std::size_t word_end(std::string_view s, std::size_t i) {
  const std::size_t end = s.find_first_of(" \t\r\n,:{}[]\"", i);
  return end == std::string_view::npos ? s.size() : end;
}

}  // namespace

std::string closed_json_object(std::string_view prefix) {
  const std::size_t first = prefix.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || prefix[first] != '{') return "{}";
  std::string closers;         // of what is open, outermost first
  bool value = false;          // a member's value comes next
  std::size_t kept = first;    // up to here everything is complete but for the closers
  for (std::size_t i = first; i < prefix.size();) {
    const char c = prefix[i];
    const bool key = !closers.empty() && closers.back() == '}' && !value;
    std::size_t end = i + 1;
    if (c == ':' || c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      if (c == ':') value = true;
      i = end;
      continue;
    }
    if (c == '{' || c == '[') {
      closers += c == '{' ? '}' : ']';
    } else if (c == '}' || c == ']') {
      if (closers.back() != c) break;
      closers.pop_back();
    } else if (c == '"') {
      end = string_end(prefix, i);
      if (end == std::string_view::npos) break;
    } else {
      end = word_end(prefix, i);
      if (end == prefix.size() && !parse_json(prefix.substr(i))) break;
    }
    i = end;
    if (c == '"' && key) continue;
    value = false;
    kept = i;
    if (closers.empty()) break;
  }
  std::string out(prefix.substr(first, kept - first));
  out.append(closers.rbegin(), closers.rend());
  // Whatever this was the beginning of: what comes out is an object.
  const JsonLimits limits{.max_depth = kMaxDepth, .max_members = 0, .reject_duplicate_keys = false};
  return parse_json(out, limits) ? out : "{}";
}

}  // namespace barg::server
