// Bodies of /v1/messages: refused with a field and a message, or a conversation that every template can be given; and
// the text helpers of the protocol on the bytes themselves.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/api_error.h"
#include "server/messages_ids.h"
#include "server/messages_request.h"
#include "server/messages_volatile.h"
#include "server/partial_json.h"

namespace {

using namespace barg;
using namespace barg::server;

void check(const Result<ApiRequest>& request) {
  if (!request) {
    CHECK(!request.error().message.empty());
    CHECK(error_shape(request.error().code).status == 400);
    return;
  }
  CHECK(request->chat.messages.size() > 0);
  for (const Json& message : request->chat.messages.as_array()) {
    const Json* role = message.find("role");
    const Json* content = message.find("content");
    CHECK(role != nullptr && role->is_string() && content != nullptr && (content->is_string() || content->is_null()));
  }
  CHECK(request->ignored.size() <= 4096);
  CHECK(request->cache_pin_s >= 0 && request->cache_pin_s <= 7 * 86'400);
  CHECK(!request->max_tokens || *request->max_tokens >= 1);
  CHECK(request->output.stop.size() <= kMaxStops);
  for (const ToolSpec& tool : request->output.tools.tools) CHECK(!tool.name.empty() && tool.name.size() <= kMaxToolName);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CHECK(parse_json(closed_json_object(text), {.max_members = 0, .reject_duplicate_keys = false})->is_object());
  CHECK(without_volatile_lines(text).size() <= size);
  if (const auto native = native_tool_id(text)) CHECK(!native->empty());
  const auto json = parse_json(text);
  if (!json) return 0;
  const SamplingDefaults defaults;
  for (const bool counting : {false, true}) {
    check(parse_messages_request(*json, {.defaults = defaults,
                                         .vocab_size = 100,
                                         .strip_volatile = true,
                                         .thought_key = thought_key("fuzz"),
                                         .counting = counting}));
  }
  return 0;
}
