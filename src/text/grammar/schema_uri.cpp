#include "text/grammar/schema_uri.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace barg::text::grammar::schema {
namespace {

struct Uri {
  std::string_view scheme, authority, path, query;  // scheme with ':', authority with '//', query with '?'
};

std::string_view take(std::string_view& rest, std::size_t n) {
  const std::string_view head = rest.substr(0, n);
  rest.remove_prefix(head.size());
  return head;
}

std::size_t scheme_length(std::string_view s) {
  if (s.empty() || std::isalpha(static_cast<unsigned char>(s[0])) == 0) return 0;
  for (std::size_t i = 1; i < s.size(); ++i) {
    if (s[i] == ':') return i + 1;
    if (std::isalnum(static_cast<unsigned char>(s[i])) == 0 && s[i] != '+' && s[i] != '-' && s[i] != '.') return 0;
  }
  return 0;
}

Uri split(std::string_view s) {
  Uri uri;
  uri.scheme = take(s, scheme_length(s));
  if (s.starts_with("//")) uri.authority = take(s, std::min(s.find_first_of("/?", 2), s.size()));
  uri.path = take(s, std::min(s.find('?'), s.size()));
  uri.query = s;
  return uri;
}

/// Section 5.2.4.
std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path.starts_with("../")) {
      path.remove_prefix(3);
    } else if (path.starts_with("./") || path.starts_with("/./")) {
      path.remove_prefix(2);
    } else if (path == "/.") {
      path = "/";
    } else if (path.starts_with("/../") || path == "/..") {
      path = path.size() == 3 ? std::string_view("/") : path.substr(3);
      const std::size_t slash = out.rfind('/');
      out.resize(slash == std::string::npos ? 0 : slash);
    } else if (path == "." || path == "..") {
      path = {};
    } else {
      out += take(path, std::min(path.find('/', 1), path.size()));
    }
  }
  return out;
}

std::string merged_path(const Uri& base, std::string_view path) {
  if (!base.authority.empty() && base.path.empty()) return "/" + std::string(path);
  const std::size_t slash = base.path.rfind('/');
  return std::string(slash == std::string_view::npos ? std::string_view() : base.path.substr(0, slash + 1)) +
         std::string(path);
}

}  // namespace

std::pair<std::string_view, std::string_view> split_fragment(std::string_view uri) {
  const std::size_t hash = uri.find('#');
  if (hash == std::string_view::npos) return {uri, {}};
  return {uri.substr(0, hash), uri.substr(hash + 1)};
}

std::string resolve_uri(std::string_view base_text, std::string_view reference_text) {
  const auto [reference_body, fragment] = split_fragment(reference_text);
  const std::string_view base_body = split_fragment(base_text).first;
  const std::string tail = reference_text.size() > reference_body.size() ? "#" + std::string(fragment) : std::string();
  if (reference_body.empty()) return std::string(base_body) + tail;
  const Uri base = split(base_body);
  Uri to = split(reference_body);
  std::string path;
  if (!to.scheme.empty()) {
    path = to.path.starts_with('/') ? without_dots(to.path) : std::string(to.path);
  } else {
    to.scheme = base.scheme;
    if (!to.authority.empty() || to.path.starts_with('/')) {
      path = without_dots(to.path);
    } else if (to.path.empty()) {
      path = base.path;
    } else {
      path = without_dots(merged_path(base, to.path));
    }
    if (to.authority.empty()) to.authority = base.authority;
  }
  return std::string(to.scheme) + std::string(to.authority) + path + std::string(to.query) + tail;
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace barg::text::grammar::schema
