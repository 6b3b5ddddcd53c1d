// Bodies of both generation endpoints: a body is refused with a field and a message, or gives a request whose
// every value is within the ranges the engine is promised.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/api_error.h"
#include "server/openai_json.h"
#include "server/tool_rules.h"

namespace {

using namespace barg;
using namespace barg::server;

constexpr std::int32_t kVocab = 100;

bool id_ok(TokenId id) { return id >= 0 && id < kVocab; }

void check(const Result<ApiRequest>& request) {
  if (!request) {
    CHECK(!request.error().message.empty());
    const int status = error_shape(request.error().code).status;
    CHECK(status == 400 || status == 404);
    return;
  }
  const SamplingParams& s = request->sampling;
  CHECK(s.temperature >= 0 && s.temperature <= 2);
  CHECK(s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 && s.min_p <= 1 && s.top_k >= -1);
  CHECK(s.repetition_penalty > 0 && s.frequency_penalty >= -2 && s.frequency_penalty <= 2);
  CHECK(request->n >= 1 && request->n <= kMaxChoices);
  CHECK(s.min_tokens >= 0 && (!request->max_tokens || *request->max_tokens >= s.min_tokens));
  for (const auto& [id, bias] : s.logit_bias) CHECK(id_ok(id) && bias >= -100 && bias <= 100);
  for (const auto* ids : {&s.allowed_token_ids, &s.banned_token_ids, &s.stop_token_ids}) {
    for (const TokenId id : *ids) CHECK(id_ok(id));
  }
  CHECK(request->output.stop.size() <= kMaxStops);
  for (const std::string& stop : request->output.stop) CHECK(!stop.empty() && stop.size() <= kMaxStopBytes);
  const bool chat = request->output.api == Api::kChat;
  CHECK(chat ? request->chat.messages.size() > 0 : !request->prompts.empty());
  for (const PromptInput& p : request->prompts) {
    CHECK(p.is_ids ? !p.ids.empty() : !p.text.empty());
    for (const TokenId id : p.ids) CHECK(id_ok(id));
  }
  CHECK(request->output.tools.tools.size() <= kMaxTools);
  for (const ToolSpec& tool : request->output.tools.tools) {
    CHECK(valid_tool_name(tool.name) && !tool.strict);
    CHECK(tool.parameters.is_null() || tool.parameters.is_object());
  }
  for (const char c : ignored_header(request->ignored)) CHECK(c >= 0x20 && c < 0x7F);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  check(parse_chat_request(*json, {}, kVocab));
  check(parse_completion_request(*json, {}, kVocab));
  (void)parse_model_name(*json);
  (void)parse_tokenize_request(*json);
  (void)parse_detokenize_request(*json, kVocab);
  return 0;
}
