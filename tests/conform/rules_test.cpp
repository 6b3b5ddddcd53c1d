// Every rule is seen to hold on a server that keeps it, and to fail, for the right reason, on one that breaks it alone.
#include <gtest/gtest.h>

#include <map>

#include "conform/fake_server.h"
#include "conform/run.h"

namespace barg::conform::rules_test {
namespace {

using testing::Asked;
using testing::FakeServer;
using testing::Knobs;
using testing::Reply;

constexpr std::string_view kKey = "secret-key";
constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kMessages = "/v1/messages";

Options options_for(const FakeServer& server) {
  Options out{.target = *parse_target(server.url()), .model = "", .metrics = {}};
  out.target.api_key = kKey;
  out.timeout_s = 10;
  out.disconnect_s = 0.3;
  out.keep_alive_s = 0.3;
  return out;
}

Report run_rules(const FakeServer& server, const std::vector<std::string>& only) {
  Result<Report> report = run_conform(options_for(server), *choose_rules(only));
  EXPECT_TRUE(report.has_value()) << report.error().message;
  return report ? std::move(*report) : Report{};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t i = 0; (i = text.find(from, i)) != std::string::npos; i += to.size())
    text.replace(i, from.size(), to);
}
void swap_text(Reply& reply, std::string_view from, std::string_view to) {
  for (std::string& piece : reply.pieces) replace_all(piece, from, to);
}
void set_header(Reply& reply, std::string_view name, std::string value) {
  std::erase_if(reply.headers, [&](const Header& h) { return h.first == name; });
  if (!value.empty()) reply.headers.emplace_back(name, std::move(value));
}
/// The answer to the same request with one member of its body set otherwise.
Reply answer_with(const Asked& asked, std::string key, Json value) {
  Asked other = asked;
  other.json.set(std::move(key), std::move(value));
  return testing::answer(other);
}
bool is_error(const Reply& reply) { return reply.status >= 400; }

/// One way to break one rule.
struct Break {
  const char* rule;
  const char* why;  // is in the sentence of the verdict
  void (*edit)(const Asked&, Reply&) = nullptr;
  void (*knobs)(Knobs&) = nullptr;
};

/// Text of answers replaced: enough for most rules.
struct Swap {
  enum class In { kStream, kWhole, kError };
  const char* rule;
  const char* why;
  const char* path;
  In in;
  const char* from;
  const char* to;
  const char* asked = "";  // is in the body of the request
};

constexpr auto kStream = Swap::In::kStream;
constexpr auto kWhole = Swap::In::kWhole;
constexpr auto kError = Swap::In::kError;

const Swap kSwaps[] = {
    {"http.models", "is not \"list\"", "/v1/models", kWhole, R"("object":"list")", R"("object":"array")"},
    {"http.models", "lacks id", "/v1/models", kWhole, R"(,"owned_by":"us")", ""},
    {"http.model_by_id", "not the model of that id", "/v1/models/fake", kWhole, R"("id":"fake")", R"("id":"other")"},

    {"sse.one_data_line", "has 2 data lines", kChat, kStream, R"(,"created")", "\ndata: ,\"created\""},
    {"sse.line_feeds", "CR LF", kChat, kStream, "\n\n", "\r\n\r\n"},
    {"sse.only_data", "neither data nor a comment", kChat, kStream, "data: {", "id: 5\ndata: {"},
    {"sse.only_data", "neither data nor a comment", kText, kStream, "data: {", "event: message\ndata: {"},
    {"sse.json", "neither a JSON object", kChat, kStream, R"({"content":" two"})", R"({"content":" two)"},
    {"sse.utf8", "not UTF-8", kChat, kStream, "One", "\xe2\x98"},

    {"chat.answer", "not \"chat.completion\"", kChat, kWhole, "chat.completion", "completion"},
    {"chat.answer", "finish_reason is none", kChat, kWhole, R"("finish_reason":"length")", R"("finish_reason":"max")"},
    {"chat.chunk_object", "not a chat.completion.chunk", kChat, kStream, ".chunk", ""},
    {"chat.finish_key", "no key finish_reason", kChat, kStream, R"(,"finish_reason":null)", ""},
    {"chat.finish_once", "0 finish reasons", kChat, kStream, R"("finish_reason":"length")", R"("finish_reason":null)"},
    {"chat.finish_once", "none of the standard", kChat, kStream, R"("finish_reason":"length")",
     R"("finish_reason":"abort")"},
    {"chat.finish_chunk", "carries content", kChat, kStream, R"("delta":{})", R"("delta":{"content":"x"})"},
    {"chat.role_once", "comes again", kChat, kStream, R"("delta":{"content":)",
     R"("delta":{"role":"assistant","content":)"},
    {"chat.role_once", "has no role", kChat, kStream, R"("role":"assistant",)", ""},
    {"chat.no_numbers", "holds a number", kChat, kStream, R"("delta":{"content":)", R"("delta":{"n":[1],"content":)"},
    {"chat.content_is_text", "neither a string", kChat, kStream, R"({"content":"One"})", R"({"content":["One"]})"},
    {"chat.n_sorted", "not sorted", kChat, kWhole, R"({"index":1,)", R"({"index":2,)"},
    {"chat.stream_equals", "not the whole answer's", kChat, kStream, " two", " too"},
    {"chat.stream_equals", "another reason", kChat, kStream, R"("finish_reason":"length")",
     R"("finish_reason":"stop")"},

    {"sampling.max_tokens", "not \"length\"", kChat, kWhole, R"("finish_reason":"length")", R"("finish_reason":"stop")",
     R"("max_tokens":3)"},
    {"sampling.max_tokens_stream", "not \"length\"", kChat, kStream, R"("finish_reason":"length")",
     R"("finish_reason":"stop")"},

    {"usage.total", "whole answer does not add up", kChat, kWhole, R"("total_tokens":)", R"("total_tokens":1)"},
    {"usage.total", "stream does not add up", kChat, kStream, R"("total_tokens":)", R"("total_tokens":1)"},
    {"usage.only_when_asked", "nobody asked for", kChat, kStream, R"("finish_reason":null}]})",
     R"("finish_reason":null}],"usage":{}})"},
    {"usage.null_elsewhere", "has no \"usage\": null", kChat, kStream, R"(,"usage":null)", ""},
    {"usage.last", "chunks have usage", kChat, kStream, R"("usage":null)", R"("usage":{})"},
    {"usage.parity", "completion_tokens of the stream", kChat, kStream, R"("completion_tokens":)",
     R"("completion_tokens":1)"},
    {"usage.cached_tokens", "is missing", kChat, kWhole, R"("cached_tokens")", R"("cached")"},
    {"usage.prompt_once", "n = 2 counts", kChat, kWhole, R"("prompt_tokens":)", R"("prompt_tokens":1)", R"("n":2)"},

    {"logprobs.shape", "no key refusal", kChat, kWhole, R"(,"refusal":null)", ""},
    {"logprobs.shape", "an entry lacks", kChat, kWhole, R"("bytes")", R"("byte")"},
    {"logprobs.text", "not the content", kChat, kWhole, R"("bytes":[79,110,101])", R"("bytes":[80,110,101])"},
    {"logprobs.range", "above 0", kChat, kWhole, R"("logprob":-0.25)", R"("logprob":0.25)"},
    {"logprobs.range", "add up to", kChat, kWhole, R"("logprob":-2.5)", R"("logprob":-0.3)"},
    {"logprobs.top", "do not descend", kChat, kWhole, R"("logprob":-2.5)", R"("logprob":-3.9)"},
    {"logprobs.stream_equals", "entry 0", kChat, kStream, R"("logprob":-0.25)", R"("logprob":-0.5)"},

    {"completions.answer", "not \"text_completion\"", kText, kWhole, "text_completion", "text"},
    {"completions.stream", "no text_completion", kText, kStream, "text_completion", "text"},
    {"completions.stream", "one finish_reason", kText, kStream, R"("finish_reason":"length")",
     R"("finish_reason":null)"},
    {"completions.stream_equals", "another", kText, kStream, " two", " too"},
    {"completions.score", "first token", kText, kWhole, R"("token_logprobs":[null)", R"("token_logprobs":[-1)"},
    {"completions.logprobs", "not as long", kText, kWhole, R"("token_logprobs":[-0.5,)", R"("token_logprobs":[)"},
    {"completions.text_offset", "is 4, not 3", kText, kWhole, R"("text_offset":[0,3)", R"("text_offset":[0,4)"},
    {"completions.prompts", "not of prompt 0", kText, kWhole, "A, B, C,", "1, 2, 3,", R"("n":2)"},
    {"completions.prompts", "not 0, 1, 2, 3", kText, kWhole, R"("index":2)", R"("index":3)", R"("n":2)"},
    {"completions.token_ids", "counted as 6", kText, kWhole, R"("prompt_tokens":5)", R"("prompt_tokens":6)"},
    {"completions.id_lists", "counted otherwise", kText, kWhole, R"("prompt_tokens":7)", R"("prompt_tokens":8)"},

    {"errors.shape", "no key param", kChat, kError, R"("param")", R"("parameter")"},
    {"errors.code", "neither a string nor null", kChat, kError, R"("code":"invalid_value")", R"("code":400)"},
    {"errors.wrong_type", "does not name", kChat, kError, R"("param":"top_p")", R"("param":null)"},
    {"errors.unknown_model", "not model_not_found", kChat, kError, "model_not_found", "not_found"},
    {"errors.too_long", "not context_length_exceeded", kChat, kError, "context_length_exceeded", "invalid_value"},

    {"tools.call", "not declared", kChat, kWhole, R"("name":"get_weather")", R"("name":"other")"},
    {"tools.call", "not a string that holds", kChat, kWhole, R"(ris\"}")", R"(ris")"},
    {"tools.finish_reason", "finish_reason is \"stop\"", kChat, kWhole, R"("finish_reason":"tool_calls")",
     R"("finish_reason":"stop")"},
    {"tools.finish_reason", "of the stream", kChat, kStream, R"("finish_reason":"tool_calls")",
     R"("finish_reason":"stop")"},
    {"tools.id_once", "id of a call comes 4 times", kChat, kStream, R"({"index":0,"function":)",
     R"({"index":0,"id":"call_1","function":)"},
    {"tools.id_once", "name of a call comes 4 times", kChat, kStream, R"("function":{"arguments")",
     R"("function":{"name":"get_weather","arguments")"},
    {"tools.indices", "not dense", kChat, kStream, R"({"index":0,"function":)", R"({"index":5,"function":)"},
    {"tools.indices", "no integer index", kChat, kStream, R"({"index":0,"function":)", R"({"function":)"},
    {"tools.stream_arguments", "no JSON object", kChat, kStream, R"(ris\"}")", R"(ris")"},
    {"tools.stream_equals", "is another", kChat, kStream, "ris", "lermo"},

    {"reasoning.apart", "content holds <think>", kChat, kWhole, R"("content":"It)", R"("content":"<think>It)"},
    {"reasoning.name", "without the name", kChat, kWhole, R"("reasoning_content")", R"("thoughts")"},
    {"reasoning.stream_equals", "reasoning is another", kChat, kStream, " times", " x"},
    {"reasoning.stream_equals", "content is another", kChat, kStream, " 391.", " 392."},
    {"reasoning.tokens", "does not count", kChat, kWhole, R"("reasoning_tokens":7)", R"("reasoning_tokens":0)"},
    {"reasoning.cut", "shown as content", kChat, kWhole, R"("content":"")", R"("content":"17")", R"("max_tokens":4)"},

    {"responses.event_names", "one event: line", kResponses, kStream, "event: response.output_text.delta\n", ""},
    {"responses.sequence", "event 3", kResponses, kStream, R"("sequence_number":3,)", R"("sequence_number":4,)"},
    {"responses.done_events", "output_text.done is not", kResponses, kStream, R"("text":"One)", R"("text":"Two)"},
    {"responses.incomplete", "the last event is response.completed", kResponses, kStream, "response.incomplete",
     "response.completed"},
    {"responses.last_event", "not that of the event", kResponses, kStream, R"("status":"incomplete")",
     R"("status":"completed")"},
    {"responses.keys", "has no service_tier", kResponses, kWhole, R"("service_tier":"default",)", ""},
    {"responses.items", "lacks role", kResponses, kWhole, R"("role":"assistant","status")", R"("status")"},
    {"responses.usage", "does not add up", kResponses, kWhole, R"("total_tokens":)", R"("total_tokens":1)"},
    {"responses.stream_equals", "another", kResponses, kStream, R"("delta":" two")", R"("delta":" too")"},

    {"messages.answer", "stop_sequence is missing", kMessages, kWhole, R"(,"stop_sequence":null)", ""},
    {"messages.usage", "no integer cache_read", kMessages, kWhole, R"("cache_read_input_tokens")", R"("cache_read")"},
    {"messages.usage", "in message_start", kMessages, kStream, R"("cache_read_input_tokens")", R"("cache_read")"},
    {"messages.event_names", "one event: line", kMessages, kStream, "event: ping", "event: pong"},
    {"messages.start", "not empty and unfinished", kMessages, kStream, R"("content":[],"stop_reason":null)",
     R"("content":[],"stop_reason":"end_turn")"},
    {"messages.delta", "lacks usage", kMessages, kStream, R"("usage":{"output_tokens":)", R"("usage":{"tokens":)"},
    {"messages.stream_equals", "another", kMessages, kStream, " two", " too"},
    {"messages.max_tokens", "not max_tokens", kMessages, kWhole, R"("stop_reason":"max_tokens")",
     R"("stop_reason":"end_turn")"},
    {"messages.stop_sequence", "not stop_sequence", kMessages, kWhole, R"("stop_reason":"stop_sequence")",
     R"("stop_reason":"end_turn")"},
    {"messages.error", "the body is not", kMessages, kError, R"("type":"error",)", ""},
    {"messages.count_tokens", "count_tokens says", "/v1/messages/count_tokens", kWhole, R"("input_tokens":)",
     R"("input_tokens":1)"},
};

/// Requests with this in them are refused, which these rules forbid.
struct Refusal {
  const char* rule;
  const char* path;
  const char* asked;
};
constexpr Refusal kRefusals[] = {
    {"lenient.empty_tools", kChat, R"("tools":[])"},
    {"lenient.nulls", kChat, R"("top_p":null)"},
    {"lenient.unknown_fields", kChat, "no_such_field"},
    {"lenient.stream_options", kChat, R"("stream":false)"},
    {"lenient.max_tokens", kChat, "2000000"},
    {"lenient.content_parts", kChat, R"("type":"text")"},
    {"lenient.developer", kChat, R"("role":"developer")"},
    {"lenient.system_later", kChat, R"("role":"system")"},
    {"lenient.empty_calls", kChat, R"("tool_calls":[])"},
    {"lenient.tool_history", kChat, R"("role":"tool")"},
    {"lenient.reasoning_history", kChat, R"("reasoning_content")"},
    {"responses.input_items", kResponses, "input_text"},
    {"responses.foreign_tools", kResponses, "web_search"},
    {"messages.blocks", kMessages, "cache_control"},
};

const Break kBreaks[] = {
    {"http.framing", "bytes follow",
     [](const Asked& q, Reply& r) {
       if (q.path == "/v1/models") r.extra = "HTTP/1.1 200";
     }},
    {"http.framing", "both Content-Length and chunks",
     [](const Asked&, Reply& r) {
       if (r.stream) r.headers.emplace_back("Content-Length", "5");
     }},
    {"http.framing", "chunk size is no hexadecimal",
     [](const Asked&, Reply& r) {
       if (r.stream) r.raw = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
     }},
    {"http.content_type", "not application/json",
     [](const Asked&, Reply& r) {
       if (is_error(r)) set_header(r, "Content-Type", "text/html");
     }},
    {"http.request_id", "has no x-request-id",
     [](const Asked&, Reply& r) {
       if (r.stream) set_header(r, "X-Request-Id", "");
     }},
    {"http.request_id", "the same", [](const Asked&, Reply& r) { set_header(r, "X-Request-Id", "1"); }},
    {"http.keep_alive", "closed the connection", [](const Asked& q, Reply& r) { r.close = q.path == kChat; }},
    {"http.keep_alive_stream", "closed the connection", [](const Asked&, Reply& r) { r.close = r.stream; }},
    {"http.keep_alive_error", "closed the connection", [](const Asked&, Reply& r) { r.close = is_error(r); }},
    {"http.head", "nobody asked for", [](const Asked&, Reply& r) { r.head_only = false; }},
    {"http.options", "server error",
     [](const Asked& q, Reply& r) {
       if (q.method == "OPTIONS") r.status = 500;
     }},
    {"http.options", "no method", [](const Asked&, Reply& r) { set_header(r, "Access-Control-Allow-Methods", ""); }},
    {"http.split_request", "23 bytes", nullptr, [](Knobs& k) { k.joins_packets = false; }},
    {"http.expect_continue", "neither 100", nullptr, [](Knobs& k) { k.answers_continue = false; }},
    {"http.health", "503",
     [](const Asked& q, Reply& r) {
       if (q.path == "/health") r.status = 503;
     }},
    {"http.model_by_id", "unknown id",
     [](const Asked& q, Reply& r) {
       if (q.path.ends_with("here")) r.status = 200;
     }},

    {"sse.content_type", "the content type is",
     [](const Asked&, Reply& r) {
       if (r.stream) set_header(r, "Content-Type", "text/plain");
     }},
    {"sse.no_cache", "no-cache", [](const Asked&, Reply& r) { set_header(r, "Cache-Control", ""); }},
    {"sse.one_data_line", "does not end",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.back().pop_back();
     }},
    {"sse.done", "comes 0 times",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.pop_back();
     }},
    {"sse.done", "follows [DONE]",
     [](const Asked&, Reply& r) {
       if (r.stream) std::swap(r.pieces[1], r.pieces.back());
     }},
    {"sse.incremental", "one packet",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces = {testing::joined(r.pieces)};
     }},
    {"sse.keep_alive", "silent for", [](const Asked&, Reply& r) { r.silence_s = r.stream ? 0.6 : 0; }},

    {"chat.same_ids", "id changes",
     [](const Asked&, Reply& r) {
       if (r.stream) replace_all(r.pieces[2], "chatcmpl-", "chatcmpl-x");
     }},
    {"chat.same_ids", "created changes",
     [](const Asked&, Reply& r) {
       if (r.stream) replace_all(r.pieces[2], "1700000000", "1700000001");
     }},
    {"chat.same_ids", "the same id",
     [](const Asked& q, Reply& r) {
       if (r.stream) swap_text(r, "\"" + q.id("chatcmpl-") + "\"", "\"chatcmpl-1\"");
     }},
    {"chat.finish_once", "a chunk follows",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.insert(r.pieces.end() - 1, r.pieces[1]);
     }},
    {"chat.choice_indices", "not of choice 0",
     [](const Asked&, Reply& r) {
       if (r.stream) std::swap(r.pieces[0], r.pieces[1]);
     }},
    {"chat.choice_indices", "not 0 and 1",
     [](const Asked&, Reply& r) { swap_text(r, R"("index":1)", R"("index":2)"); }},

    {"sampling.deterministic", "different texts",
     [](const Asked& q, Reply& r) {
       if (q.number % 2 == 0) swap_text(r, " two", " too");
     }},
    {"sampling.seed", "different texts",
     [](const Asked& q, Reply& r) {
       if (q.number % 2 == 0) swap_text(r, " two", " too");
     }},
    {"sampling.stop", "is in the answer",
     [](const Asked& q, Reply& r) {
       if (q.has("\"stop\"")) r = answer_with(q, "stop", nullptr);
     }},
    {"sampling.stop", "not \"stop\"",
     [](const Asked& q, Reply& r) {
       if (q.has("\"stop\"")) swap_text(r, R"("finish_reason":"stop")", R"("finish_reason":"length")");
     }},
    {"sampling.stop_stream", "leaked",
     [](const Asked& q, Reply& r) {
       if (!r.stream || !q.has("\"stop\"")) return;
       const std::string part = text_at(q.json, "stop").substr(0, 2);
       r.pieces.insert(r.pieces.end() - 2, testing::event(testing::chat_chunk(
                                               "chatcmpl-1", 0, R"({"content":)" + json_quote(part) + "}", "null")));
     }},
    {"sampling.max_tokens", "9 counted",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("max_tokens":3)")) r = answer_with(q, "max_tokens", 9);
     }},
    {"sampling.max_completion_tokens", "9 counted",
     [](const Asked& q, Reply& r) {
       if (q.has("max_completion")) r = answer_with(q, "max_completion_tokens", 9);
     }},

    {"usage.last", "not the last one",
     [](const Asked&, Reply& r) {
       if (r.stream) std::swap(r.pieces.end()[-2], r.pieces.end()[-3]);
     }},
    {"logprobs.count", "11 entries for 12",
     [](const Asked&, Reply& r) { swap_text(r, testing::entry_json("One", 3) + ",", ""); }},
    {"logprobs.alone", "is refused",
     [](const Asked& q, Reply& r) {
       if (q.flag("logprobs") && !q.has("top_logprobs")) r = testing::refusal(400, "No.", "top_logprobs", "");
     }},

    {"completions.echo", "does not begin",
     [](const Asked& q, Reply& r) {
       if (q.flag("echo")) r = answer_with(q, "echo", false);
     }},
    {"completions.logprobs_zero", "with logprobs = 0",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("logprobs":0)")) r = answer_with(q, "logprobs", nullptr);
     }},

    {"errors.malformed_json", "answered with 500",
     [](const Asked& q, Reply& r) {
       if (!q.valid && q.path == kChat) r.status = 500;
     }},
    {"errors.wrong_type", "answered with 422",
     [](const Asked& q, Reply& r) {
       if (q.has("\"high\"")) r.status = 422;
     }},
    {"errors.out_of_range", "answered with 200",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("top_p":7)")) r.status = 200;
     }},
    {"errors.in_stream_request", "answered with 200",
     [](const Asked& q, Reply& r) {
       if (q.has("\"high\"")) r.status = 200;
     }},
    {"errors.empty_messages", "answered with 500",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("messages":[])")) r.status = 500;
     }},
    {"errors.missing_messages", "answered with 422",
     [](const Asked& q, Reply& r) {
       if (!q.has("messages")) r.status = is_error(r) ? 422 : r.status;
     }},
    {"errors.unknown_model", "answered with 400",
     [](const Asked& q, Reply& r) {
       if (q.has("no-such-model")) r.status = 400;
     }},
    {"errors.unknown_route", "no JSON object",
     [](const Asked& q, Reply& r) {
       if (q.path == "/v1/no/such/route") r.pieces = {"<html>"};
     }},
    {"errors.method", "answered with 404",
     [](const Asked& q, Reply& r) {
       if (q.path == kChat && q.method == "GET") r.status = 404;
     }},
    {"errors.too_long", "answered with 500",
     [](const Asked&, Reply& r) {
       if (is_error(r)) r.status = 500;
     }},
    {"errors.top_logprobs", "answered with 200",
     [](const Asked& q, Reply& r) {
       if (q.has("top_logprobs")) r.status = 200;
     }},
    {"errors.empty_prompts", "answered with 500",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("prompt":[])")) r.status = 500;
     }},
    {"errors.never_5xx", "answered with 500",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("role":7)")) r.status = 500;
     }},
    {"errors.never_5xx", "got no answer",
     [](const Asked& q, Reply& r) {
       if (!q.valid && !q.body.empty()) r.raw = "HTTP/1.1 ", r.close = true;
     }},

    {"tools.none", "a tool is called",
     [](const Asked& q, Reply& r) {
       if (q.has(R"("none")")) r = answer_with(q, "tool_choice", nullptr);
     }},
    {"tools.unknown_choice", "answered with 200",
     [](const Asked& q, Reply& r) {
       if (q.has("no_such_tool")) r.status = 200;
     }},
    {"reasoning.first", "behind content",
     [](const Asked&, Reply& r) {
       if (r.stream && r.pieces.size() > 8) r.pieces.insert(r.pieces.end() - 2, r.pieces[3]);
     }},

    {"responses.first_event", "not response.created",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.erase(r.pieces.begin());
     }},
    {"responses.item_order", "not open",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.erase(r.pieces.begin() + 2);
     }},
    {"responses.item_order", "not done at the end",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.erase(r.pieces.end() - 2);
     }},
    {"responses.last_event", "ends no response",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.pop_back();
     }},
    {"responses.error", "422",
     [](const Asked& q, Reply& r) {
       if (q.has("\"many\"")) r.status = 422;
     }},
    {"responses.stored", "cannot be had",
     [](const Asked& q, Reply& r) {
       if (q.path.ends_with("resp_1")) r.status = 404;
     }},
    {"responses.stored", "an unknown id",
     [](const Asked& q, Reply& r) {
       if (q.path.ends_with("such_response")) r.status = 200;
     }},

    {"messages.event_names", "[DONE]",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.push_back("data: [DONE]\n\n");
     }},
    {"messages.event_order", "before the block is closed",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.erase(r.pieces.end() - 3);
     }},
    {"messages.event_order", "without message_stop",
     [](const Asked&, Reply& r) {
       if (r.stream) r.pieces.pop_back();
     }},
    {"messages.api_key", "answered with 401",
     [](const Asked& q, Reply& r) {
       if (q.head.find("Authorization") == std::string::npos) r.status = 401;
     }},

    {"disconnect.stream", "still runs", nullptr, [](Knobs& k) { k.notices_disconnect = false; }},
    {"disconnect.stream", "still cost time", nullptr,
     [](Knobs& k) { k.gauges = k.notices_disconnect = false, k.cost_s = 0.02; }},
    {"disconnect.whole", "still runs", nullptr, [](Knobs& k) { k.notices_disconnect = false; }},
    {"disconnect.memory", "not given back", nullptr, [](Knobs& k) { k.frees_memory = false; }},
    {"disconnect.serves_on", "after four",
     [](const Asked& q, Reply& r) {
       if (q.number > 3) r.status = 500;
     }},
};

/// The verdict on one rule of a server with this broken.
Verdict verdict_on(const char* rule, Knobs knobs) {
  knobs.api_key = kKey;
  const FakeServer server(std::move(knobs));
  const Report report = run_rules(server, {rule});
  if (report.findings.size() != 1) return not_applicable("the run found no such rule");
  return report.findings[0].verdict;
}

void expect_fails(const char* rule, const char* why, Knobs knobs) {
  const Verdict verdict = verdict_on(rule, std::move(knobs));
  EXPECT_EQ(verdict_name(verdict.kind), "FAIL") << rule << ": " << verdict.why;
  EXPECT_NE(verdict.why.find(why), std::string::npos) << rule << ": " << verdict.why << " > " << verdict.evidence;
  EXPECT_LT(verdict.evidence.size(), 400U) << rule;
}

TEST(ConformRules, SwappedTextBreaksTheRule) {
  for (const Swap& s : kSwaps) {
    Knobs knobs;
    knobs.edit = [&s](const Asked& q, Reply& r) {
      const bool here = s.in == kStream ? r.stream : s.in == kError ? is_error(r) : !r.stream && !is_error(r);
      if (here && q.path == s.path && q.has(s.asked)) swap_text(r, s.from, s.to);
    };
    expect_fails(s.rule, s.why, std::move(knobs));
  }
}

TEST(ConformRules, ARefusalBreaksTheRule) {
  for (const Refusal& refusal : kRefusals) {
    Knobs knobs;
    knobs.edit = [&refusal](const Asked& q, Reply& r) {
      if (q.path == refusal.path && q.has(refusal.asked)) r = testing::refusal(400, "No.", "", "");
    };
    expect_fails(refusal.rule, "refused with 400", std::move(knobs));
  }
}

TEST(ConformRules, AnEditedAnswerBreaksTheRule) {
  for (const Break& b : kBreaks) {
    Knobs knobs;
    if (b.edit != nullptr) knobs.edit = b.edit;
    if (b.knobs != nullptr) b.knobs(knobs);
    expect_fails(b.rule, b.why, std::move(knobs));
  }
}

TEST(ConformRules, EveryRuleIsBrokenSomewhere) {
  std::set<std::string_view> broken;
  for (const Swap& s : kSwaps) broken.insert(s.rule);
  for (const Refusal& r : kRefusals) broken.insert(r.rule);
  for (const Break& b : kBreaks) broken.insert(b.rule);
  std::set<std::string_view> rules;
  for (const RuleGroup* group : rule_groups()) {
    for (const Rule& rule : group->rules) {
      EXPECT_TRUE(rules.insert(rule.name).second) << rule.name << " is there twice";
      EXPECT_TRUE(broken.contains(rule.name)) << rule.name << " is never seen to fail";
      EXPECT_TRUE(rule.name.starts_with(std::string(group->name) + ".")) << rule.name;
      EXPECT_TRUE(rule.demands.ends_with('.') && rule.reason.ends_with('.')) << rule.name;
    }
  }
  EXPECT_EQ(broken, rules);
  EXPECT_GE(rules.size(), 45U);
}

TEST(ConformRules, AllHoldOnAServerThatKeepsThem) {
  Knobs knobs;
  knobs.api_key = kKey;
  // One stream waits longer than the limit, with comments in between.
  knobs.edit = [](const Asked& q, Reply& r) {
    if (!r.stream || !q.has("The cat sat")) return;
    r.pieces.insert(r.pieces.begin() + 1, 3, ": wait\n\n");
    r.silence_s = 0.15;
  };
  const FakeServer server(std::move(knobs));
  const Report report = run_rules(server, {});
  for (const Finding& f : report.findings) {
    EXPECT_EQ(verdict_name(f.verdict.kind), "pass")
        << f.rule->name << ": " << f.verdict.why << " > " << f.verdict.evidence;
  }
  EXPECT_TRUE(report.holds());
  EXPECT_LT(report.seconds, 30);
}

TEST(ConformRules, WithoutGaugesLatencyTells) {
  const auto run = [](double cost) {
    Knobs knobs;
    knobs.gauges = false;
    knobs.cost_s = cost;
    return verdict_on("disconnect.stream", std::move(knobs));
  };
  EXPECT_EQ(verdict_name(run(0.02).kind), "pass") << run(0.02).why;
  EXPECT_EQ(verdict_name(run(0).kind), "n/a") << run(0).why;
}

// What a server does not have makes rules not applicable; it fails none of them.
TEST(ConformRules, MissingEndpointsDoNotFail) {
  for (const char* group : {"completions", "responses", "messages", "tools", "reasoning"}) {
    Knobs knobs;
    knobs.api_key = kKey;
    knobs.absent = {kText, kResponses, kMessages, "/v1/messages/count_tokens"};
    knobs.edit = [](const Asked& q, Reply& r) {
      if (q.has("get_weather") || q.has("Think step"))
        r = testing::refusal(400, "This server cannot do that.", "tools", "");
    };
    const FakeServer server(std::move(knobs));
    for (const Finding& f : run_rules(server, {group}).findings) {
      EXPECT_EQ(verdict_name(f.verdict.kind), "n/a") << f.rule->name << ": " << f.verdict.why;
      EXPECT_FALSE(f.verdict.why.empty()) << f.rule->name;
    }
  }
}

TEST(ConformRules, ServerErrorsFailThem) {
  for (const char* rule : {"chat.answer", "responses.keys", "tools.call", "logprobs.shape"}) {
    Knobs knobs;
    knobs.edit = [](const Asked& q, Reply& r) {
      if (q.method == "POST") r = testing::refusal(500, "Broken.", "", "");
    };
    expect_fails(rule, "500 Broken.", std::move(knobs));
  }
}

// A server that is only lucky must not pass: equal requests with different answers are told apart from a stream that
// differs.
TEST(ConformRules, NothingIsComparedWhereAnswersDiffer) {
  for (const char* rule :
       {"chat.stream_equals", "usage.parity", "completions.stream_equals", "messages.stream_equals"}) {
    Knobs knobs;
    knobs.edit = [](const Asked& q, Reply& r) { swap_text(r, " two", " two" + std::to_string(q.number)); };
    const Verdict verdict = verdict_on(rule, std::move(knobs));
    EXPECT_EQ(verdict_name(verdict.kind), "n/a") << rule << ": " << verdict.why;
  }
}

}  // namespace
}  // namespace barg::conform::rules_test
