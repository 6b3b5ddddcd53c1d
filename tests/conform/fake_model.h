// What the fake server answers: a model that always says the same, in the shapes of each protocol, right in every
// respect. Tests then edit one thing. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "conform/look.h"

namespace barg::conform::testing {

inline constexpr std::int64_t kContext = 512;
inline constexpr std::string_view kCreated = "1700000000";

inline std::string in_quotes(std::string_view s) { return json_quote(repair_utf8(s)); }
inline std::string number(std::int64_t n) { return std::to_string(n); }

inline std::int64_t words(std::string_view text) {
  return static_cast<std::int64_t>(std::ranges::count(text, ' ')) + 1;
}

/// One generation: tokens, what of their bytes is shown, and why it ended.
struct Said {
  std::vector<std::string> tokens;  // generated, the withheld ones of a stop string too
  std::string text;
  std::string finish = "stop";
};

inline std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

/// The snowman is cut between two tokens.
inline const std::vector<std::string>& spoken() {
  static const std::vector<std::string> kTokens = [] {
    std::vector<std::string> out{"One", " \xe2\x98", "\x83", ",", " two", ",", " thr", "ee", ","};
    for (const char* word : {" four", " five", " six", " seven", " eight", " nine", " ten", " eleven", " twelve"}) {
      out.emplace_back(word);
      out.emplace_back(",");
    }
    out.emplace_back(" end.");
    return out;
  }();
  return kTokens;
}

inline Said say(const std::vector<std::string>& all, std::int64_t most, const std::vector<std::string>& stops = {}) {
  Said out;
  for (const std::string& token : all) {
    if (static_cast<std::int64_t>(out.tokens.size()) >= most) {
      out.finish = "length";
      break;
    }
    out.tokens.push_back(token);
    out.text += token;
    for (const std::string& stop : stops) {
      const std::size_t there = out.text.find(stop);
      if (there == std::string::npos) continue;
      out.text.resize(there);
      return out;
    }
  }
  return out;
}

/// The text in pieces, one a token, whole characters only.
inline std::vector<std::string> pieces_of(const Said& said) {
  std::vector<std::string> out;
  std::string generated;
  std::size_t shown = 0;
  for (const std::string& token : said.tokens) {
    generated += token;
    const std::size_t end = complete_utf8_prefix(std::string_view(generated).substr(0, said.text.size()));
    out.push_back(generated.substr(shown, end - shown));
    shown = end;
  }
  return out;
}

inline std::string usage_json(std::int64_t prompt, std::int64_t completion, std::int64_t reasoning = 0) {
  return R"({"prompt_tokens":)" + number(prompt) + R"(,"completion_tokens":)" + number(completion) +
         R"(,"total_tokens":)" + number(prompt + completion) +
         R"(,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":)" +
         number(reasoning) + "}}";
}

inline std::string error_json(std::string_view message, std::string_view param, std::string_view code) {
  return R"({"error":{"message":)" + in_quotes(message) + R"(,"type":"invalid_request_error","param":)" +
         (param.empty() ? "null" : in_quotes(param)) + R"(,"code":)" + (code.empty() ? "null" : in_quotes(code)) + "}}";
}

inline std::string bytes_json(std::string_view token) {
  std::string out = "[";
  for (const unsigned char c : token) out += (out.size() > 1 ? "," : "") + number(c);
  return out + "]";
}

inline std::string entry_json(std::string_view token, std::int64_t top) {
  const auto one = [](std::string_view t, const char* logprob) {
    return R"("token":)" + in_quotes(t) + R"(,"logprob":)" + logprob + R"(,"bytes":)" + bytes_json(t);
  };
  std::string alternatives;
  const std::pair<std::string, const char*> list[] = {{std::string(token), "-0.25"}, {" A", "-2.5"}, {" B", "-3.5"}};
  for (std::int64_t i = 0; i < top && i < 3; ++i)
    alternatives += (i > 0 ? ",{" : "{") + one(list[i].first, list[i].second) + "}";
  return "{" + one(token, "-0.25") + R"(,"top_logprobs":[)" + alternatives + "]}";
}

/// Of the tokens [begin, end), or "null".
inline std::string logprobs_json(const Said& said, std::size_t begin, std::size_t end, bool wanted, std::int64_t top) {
  if (!wanted) return "null";
  std::string list;
  for (std::size_t i = begin; i < end; ++i) list += (i > begin ? "," : "") + entry_json(said.tokens[i], top);
  return R"({"content":[)" + list + R"(],"refusal":null})";
}

inline std::string event(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }
inline std::string typed_event(std::string_view type, std::string_view rest) {
  return "event: " + std::string(type) + "\ndata: {\"type\":" + in_quotes(type) + (rest.empty() ? "" : ",") +
         std::string(rest) + "}\n\n";
}

inline constexpr std::string_view kArguments[] = {"{\"ci", "ty\":\"Pa", "ris\"}"};
inline std::string arguments() {
  std::string out;
  for (const std::string_view part : kArguments) out += part;
  return out;
}

// ---- Responses

struct ResponseState {
  std::string id = {}, text = {}, status = "in_progress", details = "null", usage = "null", store = "true";
  bool with_item = false;
};

inline std::string message_item(const std::string& text, std::string_view status, bool with_part) {
  const std::string part = R"({"type":"output_text","text":)" + in_quotes(text) + R"(,"annotations":[],"logprobs":[]})";
  return R"({"type":"message","id":"msg_1","role":"assistant","status":)" + in_quotes(status) + R"(,"content":[)" +
         (with_part ? part : "") + "]}";
}

inline std::string response_json(const ResponseState& r) {
  const std::string output = r.with_item ? message_item(r.text, r.status, true) : "";
  return R"({"id":)" + in_quotes(r.id) + R"(,"object":"response","created_at":)" + std::string(kCreated) +
         R"(,"completed_at":null,"status":)" + in_quotes(r.status) + R"(,"incomplete_details":)" + r.details +
         R"(,"model":"fake","previous_response_id":null,"instructions":null,"output":[)" + output +
         R"(],"error":null,"tools":[],"tool_choice":"auto","truncation":"disabled","parallel_tool_calls":true,)"
         R"("text":{"format":{"type":"text"}},"top_p":1,"presence_penalty":0,"frequency_penalty":0,"top_logprobs":0,)"
         R"("temperature":0,"reasoning":null,"usage":)" +
         r.usage + R"(,"max_output_tokens":null,"max_tool_calls":null,"store":)" + r.store +
         R"(,"background":false,"service_tier":"default","metadata":{},"safety_identifier":null,"prompt_cache_key":null})";
}

inline ResponseState finished_response(const std::string& id, const Said& said, std::int64_t prompt) {
  const auto count = static_cast<std::int64_t>(said.tokens.size());
  ResponseState r{.id = id, .text = said.text, .with_item = true};
  r.status = said.finish == "length" ? "incomplete" : "completed";
  if (said.finish == "length") r.details = R"({"reason":"max_output_tokens"})";
  r.usage = R"({"input_tokens":)" + number(prompt) + R"(,"input_tokens_details":{"cached_tokens":0},"output_tokens":)" +
            number(count) + R"(,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":)" +
            number(prompt + count) + "}";
  return r;
}

inline std::vector<std::string> response_events(const std::string& id, const Said& said, std::int64_t prompt) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view type, const std::string& rest) {
    out.push_back(
        typed_event(type, R"("sequence_number":)" + number(static_cast<std::int64_t>(out.size())) + "," + rest));
  };
  const std::string place = R"("item_id":"msg_1","output_index":0,"content_index":0)";
  const ResponseState begun{.id = id};
  const ResponseState ended = finished_response(id, said, prompt);
  const std::string part = R"({"type":"output_text","text":)";
  add("response.created", R"("response":)" + response_json(begun));
  add("response.in_progress", R"("response":)" + response_json(begun));
  add("response.output_item.added", R"("output_index":0,"item":)" + message_item("", "in_progress", false));
  add("response.content_part.added", place + R"(,"part":)" + part + R"("","annotations":[]})");
  for (const std::string& piece : pieces_of(said))
    add("response.output_text.delta", place + R"(,"delta":)" + in_quotes(piece) + R"(,"logprobs":[])");
  add("response.output_text.done", place + R"(,"text":)" + in_quotes(said.text) + R"(,"logprobs":[])");
  add("response.content_part.done", place + R"(,"part":)" + part + in_quotes(said.text) + R"(,"annotations":[]})");
  add("response.output_item.done", R"("output_index":0,"item":)" + message_item(said.text, ended.status, true));
  add("response." + ended.status, R"("response":)" + response_json(ended));
  return out;
}

// ---- Messages

inline std::string message_usage(std::int64_t prompt, std::int64_t output) {
  return R"({"input_tokens":)" + number(prompt) +
         R"(,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":)" + number(output) + "}";
}

struct Stopped {
  std::string reason = "end_turn", sequence = "null";
  std::string json() const { return R"("stop_reason":)" + in_quotes(reason) + R"(,"stop_sequence":)" + sequence; }
};

inline std::string message_json(const std::string& id, const Said& said, const Stopped& stopped, std::int64_t prompt) {
  return R"({"id":)" + in_quotes(id) +
         R"(,"type":"message","role":"assistant","model":"fake","content":[{"type":"text","text":)" +
         in_quotes(said.text) + "}]," + stopped.json() + R"(,"usage":)" +
         message_usage(prompt, static_cast<std::int64_t>(said.tokens.size())) + "}";
}

inline std::vector<std::string> message_events(const std::string& id, const Said& said, const Stopped& stopped,
                                               std::int64_t prompt) {
  std::vector<std::string> out;
  out.push_back(typed_event("message_start", R"("message":{"id":)" + in_quotes(id) +
                                                 R"(,"type":"message","role":"assistant","model":"fake","content":[],)"
                                                 R"("stop_reason":null,"stop_sequence":null,"usage":)" +
                                                 message_usage(prompt, 0) + "}"));
  out.push_back(typed_event("content_block_start", R"("index":0,"content_block":{"type":"text","text":""})"));
  out.push_back(typed_event("ping", ""));
  for (const std::string& piece : pieces_of(said))
    out.push_back(
        typed_event("content_block_delta", R"("index":0,"delta":{"type":"text_delta","text":)" + in_quotes(piece) + "}"));
  out.push_back(typed_event("content_block_stop", R"("index":0)"));
  out.push_back(typed_event("message_delta", R"("delta":{)" + stopped.json() + R"(},"usage":{"output_tokens":)" +
                                                 number(static_cast<std::int64_t>(said.tokens.size())) + "}"));
  out.push_back(typed_event("message_stop", ""));
  return out;
}

}  // namespace barg::conform::testing
