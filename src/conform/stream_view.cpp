#include "conform/stream_view.h"

#include "conform/look.h"

namespace barg::conform {
namespace {

void take_calls(StreamedChoice& choice, const Json& delta) {
  for (const Json& part : list_at(delta, "tool_calls")) {
    const std::int64_t index = int_at(part, "index");
    const auto known = static_cast<std::int64_t>(choice.calls.size());
    if (index < 0 || index > known || index < known - 1) {
      if (choice.call_problem.empty())
        choice.call_problem =
            index < 0 ? "a part of a call has no integer index" : "the indices of calls are not dense and in order";
      continue;
    }
    if (index == known) choice.calls.emplace_back();
    StreamedCall& call = choice.calls.back();
    if (const Json* id = at(part, "id"); id != nullptr && id->is_string()) {
      call.id += id->as_string();
      ++call.ids;
    }
    if (const Json* name = at(part, "function.name"); name != nullptr && name->is_string()) {
      call.name += name->as_string();
      ++call.names;
    }
    call.arguments += text_at(part, "function.arguments");
  }
}

void take_choice(StreamedChoice& out, const Json& choice) {
  const bool had_text = !out.text.empty();
  out.text += text_at(choice, "delta.content") + text_at(choice, "text");
  const std::string reasoning = text_at(choice, "delta.reasoning_content");
  const std::string alias = text_at(choice, "delta.reasoning");
  out.reasoning_after_text |= had_text && !(reasoning + alias).empty();
  out.reasoning += reasoning;
  out.reasoning_alias += alias;
  if (const Json* role = at(choice, "delta.role"); role != nullptr && role->is_string()) ++out.roles;
  if (const Json* delta = at(choice, "delta")) take_calls(out, *delta);
  if (const std::string finish = text_at(choice, "finish_reason"); !finish.empty()) out.finishes.push_back(finish);
  const Json::Array& entries = list_at(choice, "logprobs.content");
  out.logprobs.insert(out.logprobs.end(), entries.begin(), entries.end());
}

}  // namespace

StreamView view_stream(const Exchange& exchange) {
  StreamView out;
  out.sse = read_sse(exchange);
  for (std::size_t i = 0; i < out.sse.events.size(); ++i) {
    const SseEvent& event = out.sse.events[i];
    if (event.data == "[DONE]") {
      ++out.done;
      continue;
    }
    std::optional<Json> json = read_json(event.data);
    if (!json || !json->is_object()) {
      if (!out.broken) out.broken = i;
      continue;
    }
    for (const Json& choice : list_at(*json, "choices")) take_choice(out.choices[int_at(choice, "index")], choice);
    if (const Json* usage = at(*json, "usage"); usage != nullptr && usage->is_object()) out.usage = *usage;
    out.chunks.push_back({std::move(*json), i});
  }
  return out;
}

std::optional<Json> read_json(std::string_view bytes) {
  Result<Json> json = parse_json(bytes, {.max_members = 0, .reject_duplicate_keys = false});
  return json ? std::optional(std::move(*json)) : std::nullopt;
}

}  // namespace barg::conform
