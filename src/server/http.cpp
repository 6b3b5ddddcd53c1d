#include "server/http.h"

#include <algorithm>

namespace barg::server {

const std::string* HttpRequest::header(std::string_view name) const {
  const auto it =
      std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == name; });
  return it == headers.end() ? nullptr : &it->second;
}

std::size_t HttpRequest::header_count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::count_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == name; }));
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 529:
      return "Overloaded";
    default:
      return "Unknown";
  }
}

}  // namespace barg::server
