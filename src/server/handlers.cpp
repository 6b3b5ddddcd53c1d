#include "server/handlers.h"

#include <algorithm>

#include "base/hash.h"
#include "server/routes.h"

namespace barg::server {

std::string_view asking_key(const ServerState& state, const HttpRequest& request) {
  return state.options.api_key.empty() ? std::string_view() : presented_key(request).value_or("");
}

std::string key_owner(std::string_view api_key) {
  return api_key.empty() ? std::string() : hex(sha256(api_key.data(), api_key.size()));
}

std::optional<std::string> query_value(std::string_view target, std::string_view name) {
  const std::size_t mark = target.find('?');
  if (mark == std::string_view::npos) return std::nullopt;
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    return equals == std::string_view::npos ? std::string() : percent_decode(pair.substr(equals + 1));
  }
  return std::nullopt;
}

HttpResponse json_response(const Json& body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = dump_json(body);
  return response;
}

}  // namespace barg::server
