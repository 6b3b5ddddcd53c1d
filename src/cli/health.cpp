// `barg health`: asks a running server whether it is ready, so that images need no curl.
#include <ostream>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/http_client.h"
#include "cli/values.h"

namespace barg::cli {
namespace {

// Where the server of this configuration can be reached from this machine.
std::string own_url(const ServerOptions& server) {
  std::string host = server.host == "0.0.0.0" ? "127.0.0.1" : server.host == "::" ? "::1" : server.host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return "http://" + host + ":" + std::to_string(server.port) + "/health";
}

constexpr CommandFlag kFlags[] = {
    {"--url", "http://HOST:PORT", "Ask this server. Without it: the server of this configuration."}};

int run_health(Invocation& invocation) {
  Io& io = invocation.io;
  const std::string text = invocation.get("--url", own_url(invocation.settings.config.server));
  const Result<Url> url = parse_url(text);
  if (!url) {
    io.err << "error: " << url.error().message << "\n";
    return kExitUsage;
  }
  const Result<ClientResponse> response =
      http_request(*url, {.method = "GET",
                          .path = url->path == "/" ? "/health" : url->path,
                          .api_key = {},
                          .body = {},
                          .timeout_s = 5});
  if (!response) {
    io.err << "error: " << response.error().message << "\n";
    return kExitFailure;
  }
  if (response->status != 200) {
    io.err << "error: " << text << " answered " << response->status << ".\n";
    return kExitFailure;
  }
  io.out << "ok\n";
  return kExitOk;
}

}  // namespace

const Command kHealthCommand{.name = "health",
                             .summary = "ask a running server whether it is ready (exit 0 or 1)",
                             .sections = "server.host server.port",
                             .flags = kFlags,
                             .run = run_health};

}  // namespace barg::cli
