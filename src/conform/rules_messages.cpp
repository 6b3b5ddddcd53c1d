// The Messages API, as Anthropic's clients and Claude Code read it.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

std::string type_of(const Chunk& chunk) { return text_at(chunk.json, "type"); }

/// Texts of the text blocks, joined.
std::string text_of(const Json& message) {
  std::string out;
  for (const Json& block : list_at(message, "content")) {
    if (text_at(block, "type") == "text") out += text_at(block, "text");
  }
  return out;
}

Verdict answer(Session& s) {
  if (auto verdict = blocked(s, {"messages"})) return *verdict;
  const Json& a = s.json("messages");
  const std::string& body = s.exchange("messages").body;
  if (text_at(a, "type") != "message" || text_at(a, "role") != "assistant" || text_at(a, "id").empty() ||
      text_at(a, "model").empty())
    return failed("the answer lacks id, type \"message\", role \"assistant\" or model", body);
  if (list_at(a, "content").empty()) return failed("content holds no block", body);
  if (text_at(a, "stop_reason").empty() || at(a, "stop_sequence") == nullptr)
    return failed("stop_reason or stop_sequence is missing", body);
  return pass();
}

/// Nothing wrong, or a sentence.
std::string usage_problem(const Json* usage) {
  if (usage == nullptr) return "there is no usage";
  for (const char* key : {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}) {
    if (int_at(*usage, key) < 0) return std::string("usage has no integer ") + key;
  }
  return "";
}

Verdict usage(Session& s) {
  if (auto verdict = blocked(s, {"messages"})) return *verdict;
  if (const std::string why = usage_problem(at(s.json("messages"), "usage")); !why.empty())
    return failed(why, s.exchange("messages").body);
  if (blocked_stream(s, {"messages.stream"})) return pass();
  const Chunk& first = s.stream("messages.stream").chunks.front();
  const std::string why = usage_problem(at(first.json, "message.usage"));
  return why.empty() ? pass() : failed("in message_start " + why, s.stream("messages.stream").raw(first));
}

Verdict event_names(Session& s) {
  if (auto verdict = blocked_stream(s, {"messages.stream"})) return *verdict;
  const StreamView& view = s.stream("messages.stream");
  if (view.broken) return failed("an event is no JSON object", view.sse.events[*view.broken].raw);
  if (view.done > 0) return failed("the stream has a [DONE]", s.exchange("messages.stream").body);
  for (const Chunk& chunk : view.chunks) {
    const SseEvent& event = view.sse.events[chunk.event];
    if (event.event_lines != 1 || event.data_lines != 1 || event.event != type_of(chunk))
      return failed("an event does not have one event: line that repeats its type, and one data: line", event.raw);
  }
  return pass();
}

/// Follows a stream; a sentence for the first event that is out of order.
class MessageOrder {
 public:
  std::string take(const Json& event) {
    const std::string type = text_at(event, "type");
    if (type == "ping") return "";
    if (over_) return type + " follows message_stop";
    if (type == "message_start") return started_++ == 0 ? "" : "message_start comes again";
    if (started_ == 0) return "the first event is " + type + ", not message_start";
    if (type == "content_block_start") return start(int_at(event, "index"));
    if (type == "content_block_delta")
      return int_at(event, "index") == open_ ? "" : "a delta is of a block that is not open";
    if (type == "content_block_stop") return stop(int_at(event, "index"));
    if (type == "message_delta") {
      ++deltas_;
      return open_ < 0 ? "" : "message_delta comes before the block is closed";
    }
    if (type != "message_stop") return "there is no event " + type;
    over_ = true;
    return deltas_ == 1 ? "" : "message_stop comes after " + std::to_string(deltas_) + " message_delta";
  }
  std::string end() const { return over_ ? "" : "the stream ends without message_stop"; }

 private:
  std::string start(std::int64_t index) {
    if (open_ >= 0) return "a block starts before the one before it is closed";
    if (index != next_) return "blocks are not numbered 0, 1, 2";
    open_ = next_++;
    return "";
  }
  std::string stop(std::int64_t index) {
    if (index != open_ || open_ < 0) return "a block is closed that is not open";
    open_ = -1;
    return "";
  }

  int started_ = 0, deltas_ = 0;
  std::int64_t open_ = -1, next_ = 0;
  bool over_ = false;
};

Verdict event_order(Session& s) {
  if (auto verdict = blocked_stream(s, {"messages.stream"})) return *verdict;
  const StreamView& view = s.stream("messages.stream");
  MessageOrder order;
  for (const Chunk& chunk : view.chunks) {
    if (const std::string why = order.take(chunk.json); !why.empty()) return failed(why, view.raw(chunk));
  }
  const std::string why = order.end();
  return why.empty() ? pass() : failed(why, s.exchange("messages.stream").body);
}

Verdict start_shape(Session& s) {
  if (auto verdict = blocked_stream(s, {"messages.stream"})) return *verdict;
  const StreamView& view = s.stream("messages.stream");
  const Chunk& first = view.chunks.front();
  const Json* message = at(first.json, "message");
  if (message == nullptr || text_at(*message, "id").empty() || text_at(*message, "type") != "message" ||
      text_at(*message, "role") != "assistant" || at(*message, "content") == nullptr ||
      text_at(*message, "model").empty())
    return failed("message_start has no whole message", view.raw(first));
  if (!list_at(*message, "content").empty() || !null_at(*message, "stop_reason") || !null_at(*message, "stop_sequence"))
    return failed("the message of message_start is not empty and unfinished", view.raw(first));
  return pass();
}

Verdict final_delta(Session& s) {
  if (auto verdict = blocked_stream(s, {"messages.stream"})) return *verdict;
  const StreamView& view = s.stream("messages.stream");
  for (const Chunk& chunk : view.chunks) {
    if (type_of(chunk) != "message_delta") continue;
    if (text_at(chunk.json, "delta.stop_reason").empty() || at(chunk.json, "delta.stop_sequence") == nullptr)
      return failed("message_delta lacks stop_reason or stop_sequence", view.raw(chunk));
    if (int_at(chunk.json, "usage.output_tokens") < 0)
      return failed("message_delta lacks usage.output_tokens", view.raw(chunk));
    return pass();
  }
  return failed("there is no message_delta", s.exchange("messages.stream").body);
}

Verdict stream_equals(Session& s) {
  if (auto verdict = blocked(s, {"messages"})) return *verdict;
  if (auto verdict = blocked_stream(s, {"messages.stream"})) return *verdict;
  if (blocked(s, {"chat", "chat.again"}) || !s.deterministic())
    return not_applicable("equal requests get different answers (sampling.deterministic)");
  std::string streamed, reason;
  for (const Chunk& chunk : s.stream("messages.stream").chunks) {
    streamed += text_at(chunk.json, "delta.text");
    if (type_of(chunk) == "message_delta") reason = text_at(chunk.json, "delta.stop_reason");
  }
  const std::string whole = text_of(s.json("messages"));
  if (streamed != whole) return failed("the streamed text is another", streamed + " | " + whole);
  return reason == text_at(s.json("messages"), "stop_reason") ? pass()
                                                              : failed("the stream stops for another reason", reason);
}

Verdict max_tokens(Session& s) {
  if (auto verdict = blocked(s, {"messages.length"})) return *verdict;
  const Json& a = s.json("messages.length");
  if (int_at(a, "usage.output_tokens") < 3) return not_applicable("the model said less than three tokens");
  return text_at(a, "stop_reason") == "max_tokens"
             ? pass()
             : failed("stop_reason is not max_tokens", s.exchange("messages.length").body);
}

Verdict stop_sequence(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.again", "messages"})) return *verdict;
  const auto stop = s.stop_string();
  if (!stop || text_of(s.json("messages")).find(stop->stop) == std::string::npos)
    return not_applicable("the model does not say the stop string");
  if (auto verdict = blocked(s, {"messages.stop"})) return *verdict;
  const Json& a = s.json("messages.stop");
  const std::string& body = s.exchange("messages.stop").body;
  if (text_of(a).find(stop->stop) != std::string::npos) return failed("the stop sequence is in the answer", body);
  if (text_at(a, "stop_reason") != "stop_sequence") return failed("stop_reason is not stop_sequence", body);
  return text_at(a, "stop_sequence") == stop->stop ? pass() : failed("stop_sequence does not name it", body);
}

Verdict error(Session& s) {
  if (auto verdict = blocked(s, {"messages"})) return *verdict;
  const Exchange& e = s.exchange("messages.error");
  const Json& a = s.json("messages.error");
  if (e.status != 400)
    return failed("messages that are a number are answered with " + std::to_string(e.status), e.body);
  if (text_at(a, "type") != "error" || text_at(a, "error.type") != "invalid_request_error" ||
      text_at(a, "error.message").empty())
    return failed("the body is not {\"type\": \"error\", \"error\": {type invalid_request_error, message}}", e.body);
  return pass();
}

Verdict blocks(Session& s) {
  if (auto verdict = blocked(s, {"messages"})) return *verdict;
  const Exchange& e = s.exchange("messages.blocks");
  if (!e.complete()) return failed("no answer: " + e.problem, e.request);
  return e.status == 200 ? pass() : failed("refused with " + std::to_string(e.status), e.request + " -> " + e.body);
}

Verdict api_key(Session& s) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  if (s.options().target.api_key.empty()) return not_applicable("no --api-key is given");
  const Exchange& e = s.exchange("messages");
  if (e.status == 404 || e.status == 405) return not_applicable("no POST /v1/messages");
  return e.status != 401 && e.status != 403
             ? pass()
             : failed("x-api-key alone is answered with " + std::to_string(e.status), e.body);
}

Verdict count_tokens(Session& s) {
  if (auto verdict = blocked(s, {"messages", "messages.count"})) return *verdict;
  const std::int64_t counted = int_at(s.json("messages.count"), "input_tokens");
  const Json* usage = at(s.json("messages"), "usage");
  const Json none;
  const Json& u = usage ? *usage : none;
  const std::int64_t prompt = int_at(u, "input_tokens", 0) + int_at(u, "cache_read_input_tokens", 0) +
                              int_at(u, "cache_creation_input_tokens", 0);
  if (counted < 1) return failed("there is no input_tokens", s.exchange("messages.count").body);
  return counted == prompt ? pass()
                           : failed("count_tokens says " + std::to_string(counted) +
                                        ", usage of the same prompt adds up to " + std::to_string(prompt),
                                    s.exchange("messages.count").body);
}

constexpr Rule kRules[] = {
    {"messages.answer", "An answer is a message with id, role, model, content blocks, stop_reason and stop_sequence.",
     "Anthropic's schema requires them.", answer},
    {"messages.usage", "Usage has input, output, cache read and cache creation tokens, in message_start too.",
     "vLLM 45079: clients show wrong costs.", usage},
    {"messages.event_names", "Each event has one event: line, equal to its type, and there is no [DONE].",
     "Anthropic's client dispatches on it.", event_names},
    {"messages.event_order", "message_start; blocks one after the other, 0, 1, 2; message_delta; message_stop.",
     "ik_llama closes all blocks at the end; strict clients break.", event_order},
    {"messages.start", "message_start holds a whole, empty, unfinished message.", "The accumulator starts from it.",
     start_shape},
    {"messages.delta", "message_delta holds stop_reason, stop_sequence and usage.output_tokens.",
     "The accumulator ends with it.", final_delta},
    {"messages.stream_equals", "A streamed answer, joined, is the whole one, with the same stop_reason.",
     "Both paths must agree.", stream_equals},
    {"messages.max_tokens", "An answer cut by max_tokens says so.", "Claude Code continues then.", max_tokens},
    {"messages.stop_sequence", "A stop sequence ends an answer, is not in it, and is named.",
     "Anthropic's reference says so.", stop_sequence},
    {"messages.error", "A bad request is 400 in Anthropic's envelope.", "Its client reads error.type there.", error},
    {"messages.blocks", "content and system may be lists of text blocks with cache_control.",
     "Claude Code sends nothing else.", blocks},
    {"messages.api_key", "The key is taken from x-api-key.", "Anthropic's clients send no other header.", api_key},
    {"messages.count_tokens", "count_tokens counts what usage then adds up to.", "Claude Code plans by it.",
     count_tokens},
};

}  // namespace

const RuleGroup kMessagesRules{"messages", "Messages", kRules};

}  // namespace barg::conform
