// Routes: the literal table of what the server answers, and the checks every request passes before it:
// method, host, key, path. Adding an endpoint is a handler and a row. A row under /v1 answers without the prefix, too.
//
// Deny by default: a key (when any is configured) is asked for on every path but those of rows marked `open`,
// decided on the target as sent, byte for byte; a path that needs decoding to match never matches an open
// row.
//
// Threads: check() and handle() on io threads, several at once; all state is in ServerState.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/json_fields.h"
#include "server/server_state.h"

namespace barg::server {

struct Route {
  std::string_view method;
  /// A path; "{id}" in it stands for one segment, "{name}" at its end for everything that follows.
  std::string_view pattern;
  bool open;                 ///< no key needed
  bool work;                 ///< refused while draining
  void (*handle)(const std::shared_ptr<ServerState>&, HttpRequest, std::shared_ptr<Responder>);

  // What openapi.h tells of it.
  std::string_view about;                             ///< one sentence
  std::span<const FieldSpec> (*body)() = nullptr;     ///< fields of the body; null: none are listed
  std::span<const FieldSpec> query = {};              ///< parameters behind '?'
  std::span<const FieldSpec> headers = {};            ///< beside X-Request-Id, which every one takes
  bool streams = false;                               ///< may answer with server-sent events
  std::string_view answers = {};                      ///< content type; empty: JSON
};

std::span<const Route> routes();

/// HttpHandler over the table. `access` receives every record (after the metrics).
std::unique_ptr<HttpHandler> make_routes(std::shared_ptr<ServerState> state,
                                         std::function<void(const AccessRecord&)> access);

/// Percent-decodes; nullopt for a broken escape or one that gives a control character.
std::optional<std::string> percent_decode(std::string_view s);
/// The API key that came with a request: a bearer token or x-api-key; nullopt if none did.
std::optional<std::string_view> presented_key(const HttpRequest& head);
/// True when `presented` is one of `keys`. Time depends on the number of keys only.
bool key_matches(std::string_view presented, const std::vector<std::string>& keys);
/// May a request with this Host (or Origin authority) reach a server bound to loopback as `bound`?
bool loopback_host_allowed(std::string_view authority, std::string_view bound);

}  // namespace barg::server
