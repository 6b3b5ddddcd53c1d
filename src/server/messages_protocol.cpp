// Messages: the row that generation walks.
#include "server/api_error.h"
#include "server/messages_error.h"
#include "server/messages_ids.h"
#include "server/messages_request.h"
#include "server/messages_writer.h"
#include "server/protocols.h"
#include "server/server_state.h"

namespace barg::server {
namespace {

Result<ApiRequest> parse(const Json& body, const ParseContext& context) {
  return parse_messages_request(body, messages_context(context.state, context.model));
}

}  // namespace

MessagesContext messages_context(const ServerState& state, const ServedModel& model) {
  return {.defaults = model.sampling,
          .vocab_size = model.engine->info().vocab_size,
          .strip_volatile = state.options.strip_volatile_lines,
          .thought_key = thought_key(model.salt_secret)};
}

const Protocol kMessagesProtocol = {
    .api = Api::kMessages,
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .fields = messages_fields,
    .parse = parse,
    .writer = make_messages_writer,
    .error = messages_error,
    .keep_alive = kMessagesPing,
    .prompt_field = "messages",
};

}  // namespace barg::server
