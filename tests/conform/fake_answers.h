// From a request to a right answer: routes and validation of the fake server. Pure.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "conform/fake_model.h"
#include "conform/look.h"
#include "conform/wire.h"

namespace barg::conform::testing {

struct Asked {
  std::string method, path, head, body;
  Json json;
  bool valid = false;  ///< the body is JSON
  int number = 0;      ///< of requests to the server

  bool has(std::string_view text) const { return body.find(text) != std::string::npos; }
  bool stream() const { return flag("stream"); }
  bool flag(std::string_view key) const {
    const Json* value = at(json, key);
    return value != nullptr && value->is_bool() && value->as_bool();
  }
  bool endless() const { return flag("ignore_eos"); }
  std::int64_t number_of(std::string_view key, std::int64_t otherwise) const { return int_at(json, key, otherwise); }
  /// The key, as a bearer token or as x-api-key.
  bool carries(const std::string& key) const {
    return head.find("Authorization: Bearer " + key) != std::string::npos ||
           head.find("x-api-key: " + key) != std::string::npos;
  }
  std::string id(std::string_view prefix) const { return std::string(prefix) + std::to_string(number); }
};

struct Reply {
  int status = 200;
  std::vector<Header> headers = {{"Content-Type", "application/json"}};
  std::vector<std::string> pieces;  ///< of the body; of a stream, one a packet
  bool stream = false;
  bool head_only = false;
  bool close = false;    ///< afterwards, without having said so
  double silence_s = 0;  ///< before the second piece, and before each comment
  std::string extra;     ///< behind the end
  std::string raw;       ///< in place of all
};

inline Reply whole(std::string json, int status = 200) {
  Reply out;
  out.status = status;
  out.pieces = {std::move(json)};
  return out;
}
inline Reply refusal(int status, std::string_view message, std::string_view param, std::string_view code) {
  return whole(error_json(message, param, code), status);
}
inline Reply streamed(std::vector<std::string> pieces) {
  Reply out;
  out.headers = {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}};
  out.pieces = std::move(pieces);
  out.stream = true;
  return out;
}

/// What is wrong with a chat request: the refusal, or nothing.
inline std::optional<Reply> refused(const Asked& q) {
  const auto bad = [](std::string_view param) { return refusal(400, "This field is wrong.", param, "invalid_value"); };
  if (!q.valid || !q.json.is_object()) return bad("");
  if (text_at(q.json, "model") != "fake") return refusal(404, "There is no such model.", "model", "model_not_found");
  const Json* top_p = at(q.json, "top_p");
  if (top_p != nullptr && !top_p->is_null() && (!top_p->is_number() || top_p->as_double() > 1)) return bad("top_p");
  if (q.number_of("top_logprobs", 0) > 0 && !q.flag("logprobs")) return bad("top_logprobs");
  if (at(q.json, "logit_bias.not a token") != nullptr) return bad("logit_bias");
  if (text_at(q.json, "response_format.type") == "json_schema") return bad("response_format.json_schema");
  for (const Json& tool : list_at(q.json, "tools")) {
    if (text_at(tool, "function.name").empty() && text_at(tool, "name").empty() && text_at(tool, "type") == "function")
      return bad("tools");
  }
  const std::string named = text_at(q.json, "tool_choice.function.name");
  if (!named.empty() && named != "get_weather") return bad("tool_choice");
  return std::nullopt;
}

inline std::optional<Reply> refused_messages(const Asked& q, std::int64_t& prompt) {
  const auto bad = [](std::string_view param) { return refusal(400, "Wrong messages.", param, "invalid_value"); };
  if (list_at(q.json, "messages").empty()) return bad("messages");
  prompt = 0;
  for (const Json& message : list_at(q.json, "messages")) {
    const Json* content = at(message, "content");
    if (text_at(message, "role").empty() || content == nullptr) return bad("messages[0]");
    if (!content->is_string() && !content->is_null() && !content->is_array()) return bad("messages[0].content");
    if (content->is_string()) prompt += words(content->as_string());
    for (const Json& part : list_at(message, "content")) prompt += words(text_at(part, "text"));
  }
  if (prompt >= kContext) return refusal(400, "The prompt is too long.", "messages", "context_length_exceeded");
  return std::nullopt;
}

inline std::vector<std::string> stops_of(const Asked& q, std::string_view key) {
  std::vector<std::string> out;
  if (const std::string one = text_at(q.json, key); !one.empty()) out.push_back(one);
  for (const Json& stop : list_at(q.json, key)) out.push_back(stop.as_string());
  return out;
}

// ---- chat

inline std::string chat_chunk(const std::string& id, std::int64_t index, std::string_view delta,
                              std::string_view finish, std::string_view logprobs = "null",
                              std::string_view usage = "") {
  return R"({"id":)" + in_quotes(id) + R"(,"object":"chat.completion.chunk","created":)" + std::string(kCreated) +
         R"(,"model":"fake","choices":[{"index":)" + number(index) + R"(,"delta":)" + std::string(delta) +
         R"(,"logprobs":)" + std::string(logprobs) + R"(,"finish_reason":)" + std::string(finish) + "}]" +
         std::string(usage) + "}";
}

struct ChatAnswer {
  Said said, reasoning;
  bool calls = false;
  std::int64_t prompt = 0, n = 1;
  std::int64_t tokens() const { return n * static_cast<std::int64_t>(said.tokens.size() + reasoning.tokens.size()); }
  std::int64_t reasoning_tokens() const { return static_cast<std::int64_t>(reasoning.tokens.size()); }
  std::string finish() const { return calls ? "tool_calls" : said.finish; }
};

inline ChatAnswer think(const Asked& q, std::int64_t prompt) {
  ChatAnswer out;
  out.prompt = prompt;
  out.n = q.number_of("n", 1);
  const std::int64_t most = q.number_of("max_completion_tokens", q.number_of("max_tokens", 1 << 20));
  if (!list_at(q.json, "tools").empty() && text_at(q.json, "tool_choice") != "none") {
    out.calls = true;
    out.said.tokens = {"call", "call", "call"};
  } else if (q.has("Think step by step")) {
    out.reasoning = say({"17", " times", " 20", " and", " 17", " times", " 3"}, most);
    if (out.reasoning.finish == "length")
      out.said.finish = "length";
    else
      out.said = say({"It", " is", " 391."}, most - 7);
  } else {
    out.said = say(spoken(), most, stops_of(q, "stop"));
  }
  return out;
}

inline std::string chat_whole(const Asked& q, const ChatAnswer& a) {
  std::string choices;
  for (std::int64_t i = 0; i < a.n; ++i) {
    std::string message = R"({"role":"assistant","content":)" + (a.calls ? "null" : in_quotes(a.said.text));
    if (!a.reasoning.text.empty())
      message += R"(,"reasoning_content":)" + in_quotes(a.reasoning.text) + R"(,"reasoning":)" + in_quotes(a.reasoning.text);
    if (a.calls)
      message += R"(,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":)" +
                 in_quotes(arguments()) + "}}]";
    choices += (i > 0 ? R"(,{"index":)" : R"({"index":)") + number(i) + R"(,"message":)" + message +
               R"(},"logprobs":)" +
               logprobs_json(a.said, 0, a.said.tokens.size(), q.flag("logprobs"), q.number_of("top_logprobs", 0)) +
               R"(,"finish_reason":)" + in_quotes(a.finish()) + "}";
  }
  return R"({"id":)" + in_quotes(q.id("chatcmpl-")) + R"(,"object":"chat.completion","created":)" + std::string(kCreated) +
         R"(,"model":"fake","choices":[)" + choices + R"(],"usage":)" +
         usage_json(a.prompt, a.tokens(), a.reasoning_tokens()) + "}";
}

inline std::vector<std::string> chat_events(const Asked& q, const ChatAnswer& a) {
  std::vector<std::string> out;
  const std::string id = q.id("chatcmpl-");
  const bool wanted = at(q.json, "stream_options.include_usage") != nullptr;
  const std::string none = wanted ? R"(,"usage":null)" : "";
  const auto each = [&](const std::string& delta, std::string_view finish, std::string_view logprobs = "null") {
    for (std::int64_t i = 0; i < a.n; ++i) out.push_back(event(chat_chunk(id, i, delta, finish, logprobs, none)));
  };
  each(R"({"role":"assistant","content":""})", "null");
  for (const std::string& piece : pieces_of(a.reasoning))
    each(R"({"reasoning_content":)" + in_quotes(piece) + R"(,"reasoning":)" + in_quotes(piece) + "}", "null");
  if (a.calls) {
    each(
        R"({"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"get_weather","arguments":""}}]})",
        "null");
    for (const std::string_view part : kArguments)
      each(R"({"tool_calls":[{"index":0,"function":{"arguments":)" + in_quotes(part) + "}}]}", "null");
  } else {
    const std::vector<std::string> pieces = pieces_of(a.said);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::string logprobs = logprobs_json(a.said, i, i + 1, q.flag("logprobs"), q.number_of("top_logprobs", 0));
      each(R"({"content":)" + in_quotes(pieces[i]) + "}", "null", logprobs);
    }
  }
  each("{}", in_quotes(a.finish()));
  if (wanted)
    out.push_back(event(R"({"id":)" + in_quotes(id) + R"(,"object":"chat.completion.chunk","created":)" +
                        std::string(kCreated) + R"(,"model":"fake","choices":[],"usage":)" +
                        usage_json(a.prompt, a.tokens(), a.reasoning_tokens()) + "}"));
  out.push_back("data: [DONE]\n\n");
  return out;
}

inline Reply chat(const Asked& q) {
  if (auto no = refused(q)) return *no;
  std::int64_t prompt = 0;
  if (auto no = refused_messages(q, prompt)) return *no;
  const ChatAnswer a = think(q, prompt);
  return q.stream() ? streamed(chat_events(q, a)) : whole(chat_whole(q, a));
}

// ---- completions

struct Prompt {
  std::string text;
  std::vector<std::string> tokens;
};

/// All four shapes; a word or an id is a token.
inline std::vector<Prompt> prompts_of(const Json& json) {
  std::vector<Prompt> out;
  const auto of_text = [](const std::string& text) {
    Prompt p{text, {}};
    for (const char c : text) {
      if (p.tokens.empty() || c == ' ') p.tokens.emplace_back();
      p.tokens.back() += c;
    }
    return p;
  };
  if (json.is_string()) return {of_text(json.as_string())};
  if (!json.is_array()) return out;
  Prompt ids;
  for (const Json& one : json.as_array()) {
    if (one.is_string()) out.push_back(of_text(one.as_string()));
    if (one.is_array()) out.push_back({"", std::vector<std::string>(one.size(), "t")});
    if (one.is_integer()) ids.tokens.emplace_back("t");
  }
  if (!ids.tokens.empty()) out.push_back(ids);
  return out;
}

/// The legacy lists over the echoed prompt and the answer.
inline std::string legacy_logprobs(const Prompt& prompt, const Said& said, bool echo, std::int64_t top) {
  std::vector<std::string> tokens = echo ? prompt.tokens : std::vector<std::string>{};
  const std::size_t first_generated = tokens.size();
  tokens.insert(tokens.end(), said.tokens.begin(), said.tokens.end());
  std::string list, values, alternatives, offsets;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string comma = i > 0 ? "," : "";
    const bool unknown = first_generated > 0 && i == 0;
    list += comma + in_quotes(tokens[i]);
    values += comma + (unknown ? "null" : "-0.5");
    alternatives += comma + (unknown ? "null" : "{" + in_quotes(tokens[i]) + R"(:-0.5," other":-1.5})");
    offsets += comma + number(static_cast<std::int64_t>(offset));
    const std::string shown = repair_utf8(tokens[i]);
    for (std::size_t k = 0; k < shown.size(); ++offset) next_code_point(shown, k);
  }
  return R"({"tokens":[)" + list + R"(],"token_logprobs":[)" + values + R"(],"top_logprobs":)" +
         (top > 0 ? "[" + alternatives + "]" : "null") + R"(,"text_offset":[)" + offsets + "]}";
}

inline std::string text_chunk(const std::string& id, std::string_view text, std::string_view finish) {
  return R"({"id":)" + in_quotes(id) + R"(,"object":"text_completion","created":)" + std::string(kCreated) +
         R"(,"model":"fake","choices":[{"index":0,"text":)" + in_quotes(text) + R"(,"logprobs":null,"finish_reason":)" +
         std::string(finish) + R"(}],"usage":null})";
}

inline Reply completions(const Asked& q) {
  if (auto no = refused(q)) return *no;
  const Json* given = at(q.json, "prompt");
  const std::vector<Prompt> prompts = given != nullptr ? prompts_of(*given) : std::vector<Prompt>{};
  if (prompts.empty()) return refusal(400, "There is no prompt.", "prompt", "missing_required_parameter");
  const Said said = say(spoken(), q.number_of("max_tokens", 16));
  const std::int64_t n = q.number_of("n", 1), top = q.number_of("logprobs", -1);
  std::int64_t counted = 0;
  std::string choices;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    counted += static_cast<std::int64_t>(prompts[p].tokens.size());
    for (std::int64_t k = 0; k < n; ++k) {
      choices += (choices.empty() ? R"({"index":)" : R"(,{"index":)") + number(static_cast<std::int64_t>(p) * n + k) +
                 R"(,"text":)" + in_quotes((q.flag("echo") ? prompts[p].text : "") + said.text) + R"(,"logprobs":)" +
                 (top >= 0 ? legacy_logprobs(prompts[p], said, q.flag("echo"), top) : "null") + R"(,"finish_reason":)" +
                 in_quotes(said.finish) + "}";
    }
  }
  const std::string usage = usage_json(
      counted, static_cast<std::int64_t>(said.tokens.size()) * n * static_cast<std::int64_t>(prompts.size()));
  const std::string id = q.id("cmpl-");
  if (!q.stream())
    return whole(R"({"id":)" + in_quotes(id) + R"(,"object":"text_completion","created":)" + std::string(kCreated) +
                 R"(,"model":"fake","choices":[)" + choices + R"(],"usage":)" + usage + "}");
  std::vector<std::string> events;
  for (const std::string& piece : pieces_of(said)) events.push_back(event(text_chunk(id, piece, "null")));
  events.push_back(event(text_chunk(id, "", in_quotes(said.finish))));
  events.push_back(event(R"({"id":)" + in_quotes(id) + R"(,"object":"text_completion","created":)" +
                         std::string(kCreated) + R"(,"model":"fake","choices":[],"usage":)" + usage + "}"));
  events.push_back("data: [DONE]\n\n");
  return streamed(std::move(events));
}

// ---- Responses and Messages

inline Reply responses(const Asked& q) {
  if (auto no = refused(q)) return *no;
  const Json* most = at(q.json, "max_output_tokens");
  if (most != nullptr && !most->is_integer())
    return refusal(400, "This field is wrong.", "max_output_tokens", "invalid_value");
  const Said said = say(spoken(), q.number_of("max_output_tokens", 16));
  const std::int64_t prompt = words(text_at(q.json, "input"));
  if (q.stream()) return streamed(response_events(q.id("resp_"), said, prompt));
  return whole(response_json(finished_response("resp_1", said, prompt)));
}

inline Reply message_refusal(int status, std::string_view message) {
  return whole(R"({"type":"error","error":{"type":"invalid_request_error","message":)" + in_quotes(message) + "}}",
               status);
}

inline Reply messages(const Asked& q) {
  std::int64_t prompt = 0;
  if (refused(q) || refused_messages(q, prompt)) return message_refusal(400, "This request is wrong.");
  if (q.path.ends_with("/count_tokens")) return whole(R"({"input_tokens":)" + number(prompt) + "}");
  const std::vector<std::string> stops = stops_of(q, "stop_sequences");
  const Said said = say(spoken(), q.number_of("max_tokens", 16), stops);
  Stopped stopped;
  if (said.finish == "length") stopped.reason = "max_tokens";
  if (said.text.size() < joined(said.tokens).size()) stopped = {"stop_sequence", in_quotes(stops.front())};
  if (q.stream()) return streamed(message_events(q.id("msg_"), said, stopped, prompt));
  return whole(message_json(q.id("msg_"), said, stopped, prompt));
}

// ---- all of it

inline Reply models(const Asked& q) {
  const std::string model =
      R"({"id":"fake","object":"model","created":1700000000,"owned_by":"us","max_model_len":)" + number(kContext) + "}";
  if (q.path == "/v1/models") return whole(R"({"object":"list","data":[)" + model + "]}");
  return q.path == "/v1/models/fake" ? whole(model)
                                     : refusal(404, "There is no such model.", "model", "model_not_found");
}

inline Reply stored(const Asked& q) {
  if (!q.path.ends_with("/resp_1")) return refusal(404, "There is no such response.", "id", "not_found");
  return whole(response_json(finished_response("resp_1", say(spoken(), 24), 9)));
}

inline Reply answer(const Asked& q) {
  using Handler = Reply (*)(const Asked&);
  static constexpr std::pair<std::string_view, Handler> kPosts[] = {
      {"/v1/chat/completions", chat}, {"/v1/completions", completions},        {"/v1/responses", responses},
      {"/v1/messages", messages},     {"/v1/messages/count_tokens", messages},
  };
  if (q.method == "OPTIONS") {
    Reply out;
    out.status = 204;
    out.headers = {{"Access-Control-Allow-Origin", "*"}, {"Access-Control-Allow-Methods", "POST"}};
    return out;
  }
  if (q.method != "POST" && q.path.starts_with("/v1/models")) return models(q);
  if (q.method == "GET" && q.path.starts_with("/v1/responses/")) return stored(q);
  if (q.method == "GET" && q.path == "/health") return whole("{}");
  for (const auto& [path, handler] : kPosts) {
    if (path != q.path) continue;
    return q.method == "POST" ? handler(q) : refusal(405, "Use POST.", "", "method_not_allowed");
  }
  return refusal(404, "There is no such path.", "", "unknown_url");
}

}  // namespace barg::conform::testing
