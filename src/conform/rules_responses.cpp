// The Responses API, as openai-python's accumulator and Codex read it.
#include <algorithm>
#include <map>

#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

constexpr std::string_view kEnds[] = {"response.completed", "response.incomplete", "response.failed"};

std::string type_of(const Chunk& chunk) { return text_at(chunk.json, "type"); }

Verdict event_names(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  const StreamView& view = s.stream("responses.stream");
  if (view.broken) return failed("an event is neither a JSON object nor [DONE]", view.sse.events[*view.broken].raw);
  for (const Chunk& chunk : view.chunks) {
    const SseEvent& event = view.sse.events[chunk.event];
    if (event.event_lines != 1 || event.data_lines != 1 || event.event != type_of(chunk))
      return failed("an event does not have one event: line that repeats its type, and one data: line", event.raw);
  }
  return pass();
}

Verdict first_event(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  const StreamView& view = s.stream("responses.stream");
  const Chunk& first = view.chunks.front();
  if (type_of(first) != "response.created") return failed("the first event is not response.created", view.raw(first));
  if (text_at(first.json, "response.id").empty()) return failed("response.created has no response.id", view.raw(first));
  return pass();
}

Verdict sequence(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  const StreamView& view = s.stream("responses.stream");
  for (std::size_t i = 0; i < view.chunks.size(); ++i) {
    if (int_at(view.chunks[i].json, "sequence_number") != static_cast<std::int64_t>(i))
      return failed("event " + std::to_string(i) + " does not have that sequence_number", view.raw(view.chunks[i]));
  }
  return pass();
}

/// Follows items and parts through a stream; a sentence for the first step that is out of order.
class ItemOrder {
 public:
  std::string take(const Json& event) {
    const std::string type = text_at(event, "type");
    const std::int64_t item = int_at(event, "output_index");
    if (type == "response.output_item.added") return add(item);
    if (type == "response.output_item.done") return finish(item);
    if (!type.ends_with(".delta") && !type.ends_with(".done") && type != "response.content_part.added") return "";
    if (!open_.contains(item)) return type + " is of an item that is not open";
    if (!type.starts_with("response.output_text") && !type.starts_with("response.content_part")) return "";
    const std::int64_t part = int_at(event, "content_index");
    return of_part(type, open_[item], part);
  }
  std::string end() const { return open_.empty() ? "" : "an item is not done at the end"; }

 private:
  std::string add(std::int64_t item) {
    if (item != added_) return "items are not added in the order of output_index";
    ++added_;
    open_[item] = {};
    return "";
  }
  std::string finish(std::int64_t item) {
    const auto it = open_.find(item);
    if (it == open_.end()) return "an item is done that is not open";
    if (it->second.open >= 0) return "an item is done before its part";
    open_.erase(it);
    return "";
  }
  struct Parts {
    std::int64_t added = 0, open = -1;
  };
  static std::string of_part(const std::string& type, Parts& parts, std::int64_t part) {
    if (type == "response.content_part.added") {
      if (part != parts.added || parts.open >= 0) return "parts are not added one after the other";
      ++parts.added;
      parts.open = part;
    } else if (part != parts.open) {
      return type + " is of a part that is not open";
    } else if (type == "response.content_part.done") {
      parts.open = -1;
    }
    return "";
  }

  std::int64_t added_ = 0;
  std::map<std::int64_t, Parts> open_;
};

Verdict item_order(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  const StreamView& view = s.stream("responses.stream");
  ItemOrder order;
  for (const Chunk& chunk : view.chunks) {
    if (const std::string why = order.take(chunk.json); !why.empty()) return failed(why, view.raw(chunk));
  }
  const std::string why = order.end();
  return why.empty() ? pass() : failed(why, s.exchange("responses.stream").body);
}

/// Texts of message items of a response object, joined.
std::string output_text(const Json& response) {
  std::string out;
  for (const Json& item : list_at(response, "output")) {
    for (const Json& part : list_at(item, "content")) {
      if (text_at(part, "type") == "output_text") out += text_at(part, "text");
    }
  }
  return out;
}

Verdict done_events(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  const StreamView& view = s.stream("responses.stream");
  std::string deltas, done, parts, items;
  for (const Chunk& chunk : view.chunks) {
    const std::string type = type_of(chunk);
    if (type == "response.output_text.delta") deltas += text_at(chunk.json, "delta");
    if (type == "response.output_text.done") done += text_at(chunk.json, "text");
    if (type == "response.content_part.done" && text_at(chunk.json, "part.type") == "output_text")
      parts += text_at(chunk.json, "part.text");
    if (type == "response.output_item.done") {
      for (const Json& part : list_at(chunk.json, "item.content")) {
        if (text_at(part, "type") == "output_text") items += text_at(part, "text");
      }
    }
  }
  if (done != deltas) return failed("output_text.done is not the deltas joined", done + " | " + deltas);
  if (parts != deltas) return failed("content_part.done is not the deltas joined", parts + " | " + deltas);
  if (items != deltas) return failed("output_item.done is not the deltas joined", items + " | " + deltas);
  const std::string last =
      output_text(at(view.chunks.back().json, "response") ? *at(view.chunks.back().json, "response") : Json());
  return last == deltas ? pass() : failed("the last event's response is not the deltas joined", last + " | " + deltas);
}

Verdict last_event(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  const StreamView& view = s.stream("responses.stream");
  const auto is_end = [](const Chunk& chunk) { return std::ranges::find(kEnds, type_of(chunk)) != std::end(kEnds); };
  if (!is_end(view.chunks.back())) return failed("the last event ends no response", view.raw(view.chunks.back()));
  if (std::ranges::count_if(view.chunks, is_end) != 1)
    return failed("a response ends more than once", s.exchange("responses.stream").body);
  const std::string status = text_at(view.chunks.back().json, "response.status");
  if (type_of(view.chunks.back()) != "response." + status)
    return failed("the status is not that of the event", view.raw(view.chunks.back()));
  return pass();
}

Verdict incomplete(Session& s) {
  if (auto verdict = blocked_stream(s, {"responses.short"})) return *verdict;
  const StreamView& view = s.stream("responses.short");
  const Chunk& last = view.chunks.back();
  const std::int64_t counted = int_at(last.json, "response.usage.output_tokens");
  if (counted >= 0 && counted < 3) return not_applicable("the model said less than three tokens");
  if (type_of(last) != "response.incomplete")
    return failed("max_output_tokens cut the answer, and the last event is " + type_of(last), view.raw(last));
  if (text_at(last.json, "response.incomplete_details.reason") != "max_output_tokens")
    return failed("incomplete_details.reason is not max_output_tokens", view.raw(last));
  return pass();
}

constexpr std::string_view kKeys[] = {"id",
                                      "object",
                                      "created_at",
                                      "completed_at",
                                      "status",
                                      "incomplete_details",
                                      "model",
                                      "previous_response_id",
                                      "instructions",
                                      "output",
                                      "error",
                                      "tools",
                                      "tool_choice",
                                      "truncation",
                                      "parallel_tool_calls",
                                      "text",
                                      "top_p",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "top_logprobs",
                                      "temperature",
                                      "reasoning",
                                      "usage",
                                      "max_output_tokens",
                                      "max_tool_calls",
                                      "store",
                                      "background",
                                      "service_tier",
                                      "metadata",
                                      "safety_identifier",
                                      "prompt_cache_key"};

Verdict keys(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Json& a = s.json("responses");
  std::string missing;
  for (const std::string_view key : kKeys) {
    if (at(a, key) == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(key);
  }
  if (!missing.empty()) return failed("the response has no " + missing, s.exchange("responses").body);
  if (text_at(a, "object") != "response" || int_at(a, "created_at") < 1)
    return failed("object is not response, or created_at no integer", s.exchange("responses").body);
  return pass();
}

Verdict items(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Json& a = s.json("responses");
  if (list_at(a, "output").empty()) return failed("output is empty", s.exchange("responses").body);
  for (const Json& item : list_at(a, "output")) {
    if (text_at(item, "id").empty() || text_at(item, "type").empty())
      return failed("an item has no id or type", shown(item));
    if (text_at(item, "type") != "message") continue;
    if (text_at(item, "role") != "assistant" || text_at(item, "status").empty())
      return failed("a message lacks role \"assistant\" or a status", shown(item));
    for (const Json& part : list_at(item, "content")) {
      const Json* notes = at(part, "annotations");
      if (text_at(part, "type") == "output_text" &&
          (at(part, "text") == nullptr || notes == nullptr || !notes->is_array()))
        return failed("a part lacks text or annotations", shown(part));
    }
  }
  return pass();
}

Verdict usage(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Json* usage = at(s.json("responses"), "usage");
  const std::string& body = s.exchange("responses").body;
  if (usage == nullptr) return failed("there is no usage", body);
  const std::int64_t in = int_at(*usage, "input_tokens");
  const std::int64_t out = int_at(*usage, "output_tokens");
  if (in < 1 || out < 0 || int_at(*usage, "total_tokens") != in + out) return failed("usage does not add up", body);
  if (int_at(*usage, "input_tokens_details.cached_tokens") < 0 ||
      int_at(*usage, "output_tokens_details.reasoning_tokens") < 0)
    return failed("usage lacks cached_tokens or reasoning_tokens", body);
  return pass();
}

Verdict stream_equals(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  if (auto verdict = blocked_stream(s, {"responses.stream"})) return *verdict;
  if (blocked(s, {"chat", "chat.again"}) || !s.deterministic())
    return not_applicable("equal requests get different answers (sampling.deterministic)");
  std::string deltas;
  for (const Chunk& chunk : s.stream("responses.stream").chunks) {
    if (type_of(chunk) == "response.output_text.delta") deltas += text_at(chunk.json, "delta");
  }
  const std::string whole = output_text(s.json("responses"));
  return deltas == whole ? pass() : failed("the streamed text is another", deltas + " | " + whole);
}

Verdict input_items(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Exchange& e = s.exchange("responses.items");
  if (!e.complete()) return failed("no answer: " + e.problem, e.request);
  return e.status == 200 ? pass() : failed("refused with " + std::to_string(e.status), e.request + " -> " + e.body);
}

Verdict foreign_tools(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Exchange& e = s.exchange("responses.tools");
  if (!e.complete()) return failed("no answer: " + e.problem, e.request);
  return e.status == 200 ? pass() : failed("refused with " + std::to_string(e.status), e.body);
}

Verdict error(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Exchange& e = s.exchange("responses.error");
  if (e.status != 400) return failed("a field of a wrong type is answered with " + std::to_string(e.status), e.body);
  return text_at(s.json("responses.error"), "error.message").empty() ? failed("the body has no error.message", e.body)
                                                                     : pass();
}

Verdict stored(Session& s) {
  if (auto verdict = blocked(s, {"responses"})) return *verdict;
  const Json* store = at(s.json("responses"), "store");
  if (store == nullptr || !store->is_bool() || !store->as_bool())
    return not_applicable("the server does not store responses");
  const Exchange& e = s.exchange("responses.get");
  if (e.status != 200) return failed("a stored response cannot be had: " + std::to_string(e.status), e.body);
  if (text_at(s.json("responses.get"), "id") != text_at(s.json("responses"), "id") ||
      output_text(s.json("responses.get")) != output_text(s.json("responses")))
    return failed("the stored response is another", e.body);
  const Exchange& unknown = s.exchange("responses.unknown");
  return unknown.status == 404
             ? pass()
             : failed("an unknown id is answered with " + std::to_string(unknown.status), unknown.body);
}

constexpr Rule kRules[] = {
    {"responses.event_names", "Each event has one event: line, equal to its type, and one data: line.",
     "OpenAI's streams do; Codex dispatches on them.", event_names},
    {"responses.first_event", "The first event is response.created, with the response.",
     "openai-python raises otherwise.", first_event},
    {"responses.sequence", "sequence_number counts the events from 0.", "The schema requires it; ik_llama omits it.",
     sequence},
    {"responses.item_order", "Items are added in order, parts before their deltas, and all are done at the end.",
     "openai-python addresses them by index.", item_order},
    {"responses.done_events", "The done events and the last response hold the deltas, joined.",
     "Clients use the one or the other.", done_events},
    {"responses.last_event", "One event ends a response, the last one, and its status is the event's.",
     "openai-python raises without response.completed.", last_event},
    {"responses.incomplete", "An answer cut by max_output_tokens ends with response.incomplete and that reason.",
     "ik_llama says completed.", incomplete},
    {"responses.keys", "A response has all keys of the schema, null where nothing is to say.",
     "Open Responses validates them.", keys},
    {"responses.items", "Items have id and type, messages role and status, texts annotations.",
     "Typed clients require them.", items},
    {"responses.usage", "Usage adds up, with cached_tokens and reasoning_tokens.", "SGLang 10012: input_tokens was 0.",
     usage},
    {"responses.stream_equals", "A streamed answer, joined, is the whole one.", "Both paths must agree.",
     stream_equals},
    {"responses.input_items", "Input may be items, with input_text, output_text or plain content.",
     "Codex sends the whole history so.", input_items},
    {"responses.foreign_tools", "Kinds of tools that the server does not know are skipped.",
     "llama.cpp 20156: Codex was refused.", foreign_tools},
    {"responses.error", "A bad request is 400 with error.message.", "As everywhere.", error},
    {"responses.stored", "A stored response can be had by id; an unknown id is 404.",
     "OpenAI's default is store: true.", stored},
};

}  // namespace

const RuleGroup kResponsesRules{"responses", "Responses", kRules};

}  // namespace barg::conform
