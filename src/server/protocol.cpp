#include "server/protocol.h"

#include "base/check.h"
#include "server/protocols.h"

namespace barg::server {
namespace {

const Protocol* const kProtocols[] = {
    &kChatProtocol,
    &kCompletionsProtocol,
    &kResponsesProtocol,
    &kMessagesProtocol,
};

}  // namespace

const Protocol& protocol_of(Api api) {
  for (const Protocol* protocol : kProtocols) {
    if (protocol->api == api) return *protocol;
  }
  CHECK(false);
  return kChatProtocol;
}

const Protocol* protocol_at(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  for (const Protocol* protocol : kProtocols) {
    if (path == protocol->path || path == protocol->path.substr(kVersion.size())) return protocol;
  }
  return nullptr;
}

}  // namespace barg::server
