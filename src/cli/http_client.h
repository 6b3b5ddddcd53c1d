// A small HTTP/1.1 client over plain sockets: for `barg health` inside images and `barg chat --url`. http://
// only, one request a connection, no redirects. Any thread; blocks the caller. What a server sends is bounded
// and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "barg/result.h"

namespace barg::cli {

struct Url {
  std::string host;
  std::string port = "80";
  std::string path = "/";
};

/// kInvalidValue for anything but http://HOST[:PORT][/PATH]; IPv6 hosts in brackets.
Result<Url> parse_url(std::string_view text);

struct ClientRequest {
  std::string method = "GET";
  std::string path = "/";
  std::string api_key;    ///< sent as a bearer token unless empty
  std::string body;       ///< JSON; empty = none
  double timeout_s = 10;  ///< for each wait, not for the whole
};

struct ClientResponse {
  int status = 0;
  std::string body;  ///< empty when a sink took it
};

/// Takes a piece of the body as it arrives; false ends the exchange early.
using BodySink = std::function<bool(std::string_view)>;

/// kUnavailable when nobody answers, kTimeout, kBadFile when the answer is not HTTP. Bodies of error statuses
/// never go to the sink. At most 64 MiB are kept.
Result<ClientResponse> http_request(const Url& url, const ClientRequest& request, const BodySink& sink = {});

}  // namespace barg::cli
