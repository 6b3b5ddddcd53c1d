#include "conform/probes.h"

#include <algorithm>
#include <cctype>

#include "conform/look.h"

namespace barg::conform {
namespace {

constexpr std::string_view kChatPath = "/v1/chat/completions";
constexpr std::string_view kCompletionsPath = "/v1/completions";
constexpr std::string_view kResponsesPath = "/v1/responses";
constexpr std::string_view kMessagesPath = "/v1/messages";

constexpr std::string_view kQuestion = "Count from one to twenty in words, separated by commas.";
constexpr std::string_view kPrompt = "One, two, three, four,";
constexpr std::string_view kShort = R"(,"max_tokens":24)";
constexpr std::string_view kStream = R"(,"max_tokens":24,"stream":true)";
constexpr std::string_view kStreamUsage = R"(,"max_tokens":24,"stream":true,"stream_options":{"include_usage":true})";

constexpr std::string_view kParameters =
    R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})";
constexpr std::string_view kToolQuestion =
    "What is the weather in Paris right now? You must call the function get_weather with the city Paris.";
constexpr std::string_view kReasoningQuestion = "Think step by step: what is 17 times 23? Then give the number.";

std::string text(std::string_view s) { return json_quote(s); }

/// A name of the server's as one segment of a path.
std::string segment(std::string_view name) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : name.substr(0, 256)) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-._~:").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

WireRequest get(std::string path) { return {.method = "GET", .path = std::move(path), .body = {}, .headers = {}}; }
WireRequest post(std::string_view path, std::string body) {
  return {.method = "POST", .path = std::string(path), .body = std::move(body), .headers = {}};
}

std::string chat_body(Session& s, std::string_view messages, std::string_view rest) {
  return R"({"model":)" + text(s.model()) + R"(,"messages":)" + std::string(messages) + R"(,"temperature":0,"seed":7)" +
         std::string(rest) + "}";
}
std::string one_message(std::string_view question) { return R"([{"role":"user","content":)" + text(question) + "}]"; }
WireRequest chat(Session& s, std::string_view rest, std::string_view question = kQuestion) {
  return post(kChatPath, chat_body(s, one_message(question), rest));
}
WireRequest chat_of(Session& s, std::string_view messages) { return post(kChatPath, chat_body(s, messages, kShort)); }
/// At temperature 1, where only the seed makes answers equal.
WireRequest sampled(Session& s, std::string_view rest) {
  return post(kChatPath, R"({"model":)" + text(s.model()) + R"(,"messages":)" + one_message(kQuestion) +
                             R"(,"temperature":1,"seed":11,"max_tokens":16)" + std::string(rest) + "}");
}

WireRequest completions(Session& s, std::string_view prompt, std::string_view rest) {
  return post(kCompletionsPath, R"({"model":)" + text(s.model()) + R"(,"prompt":)" + std::string(prompt) +
                                    R"(,"temperature":0,"seed":7)" + std::string(rest) + "}");
}

std::string stop_of(Session& s) {
  const auto stop = s.stop_string();
  return R"(,"stop":)" + text(stop ? stop->stop : "five, six");
}

WireRequest tools(Session& s, std::string_view rest) {
  return chat(s,
              std::string(R"(,"max_tokens":96,"tools":[{"type":"function","function":{"name":"get_weather",)") +
                  R"("description":"Current weather of a city","parameters":)" + std::string(kParameters) + "}}]" +
                  std::string(rest),
              kToolQuestion);
}

WireRequest responses(Session& s, std::string_view input, std::string_view rest) {
  return post(kResponsesPath, R"({"model":)" + text(s.model()) + R"(,"input":)" + std::string(input) +
                                  R"(,"temperature":0)" + std::string(rest) + "}");
}

WireRequest messages_to(std::string_view path, Session& s, std::string_view list, std::string_view rest) {
  WireRequest out =
      post(path, R"({"model":)" + text(s.model()) + R"(,"messages":)" + std::string(list) + std::string(rest) + "}");
  out.headers = {{"anthropic-version", "2023-06-01"}};
  out.bearer = false;  // Anthropic's clients know only their own header
  if (!s.options().target.api_key.empty()) out.headers.emplace_back("x-api-key", s.options().target.api_key);
  return out;
}
WireRequest messages(Session& s, std::string_view rest, std::string_view question = kQuestion) {
  return messages_to(kMessagesPath, s, one_message(question), R"(,"temperature":0)" + std::string(rest));
}

std::string repeated(std::string_view word, std::size_t times) {
  std::string out;
  out.reserve(word.size() * times);
  while (times-- > 0) out += word;
  return out;
}

// Longer than the model takes: a word is a token or more.
WireRequest too_long(Session& s) {
  const std::int64_t length = std::clamp<std::int64_t>(s.context_length(), 0, 1 << 18);
  return chat(s, kShort, repeated(" word", static_cast<std::size_t>(length) + 64));
}

// Long enough that a slow server is silent for a while before the first token.
WireRequest long_stream(Session& s) {
  const std::int64_t length = s.context_length() > 0 ? s.context_length() / 2 : 1500;
  return chat(s, R"(,"max_tokens":8,"stream":true)",
              repeated("The cat sat. ", static_cast<std::size_t>(std::min<std::int64_t>(length, 3000) / 4)));
}

WireRequest response_by_id(Session& s) {
  return get(std::string(kResponsesPath) + "/" + segment(text_at(s.json("responses"), "id")));
}

constexpr std::string_view kHistory =
    R"([{"role":"user","content":"What is the weather in Paris?"},)"
    R"({"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",)"
    R"("function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]},)"
    R"({"role":"tool","tool_call_id":"call_1","content":"18 degrees, sunny"},)"
    R"({"role":"user","content":"Is that warm?"}])";
constexpr std::string_view kEmptyCalls =
    R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello.","tool_calls":[]},)"
    R"({"role":"user","content":"Count to five."}])";
constexpr std::string_view kReasoningHistory =
    R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello.","reasoning_content":"A greeting.",)"
    R"("reasoning":"A greeting."},{"role":"user","content":"Count to five."}])";
constexpr std::string_view kSystemSecond =
    R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},)"
    R"({"role":"system","content":"Be brief."},{"role":"user","content":"Count to five."}])";
constexpr std::string_view kNulls =
    R"(,"max_tokens":8,"max_completion_tokens":null,"top_p":null,"n":null,"stop":null,"stream":null,)"
    R"("stream_options":null,"frequency_penalty":null,"presence_penalty":null,"logit_bias":null,"logprobs":null,)"
    R"("top_logprobs":null,"user":null,"response_format":null,"tools":null,"tool_choice":null,)"
    R"("parallel_tool_calls":null,"metadata":null)";
constexpr std::string_view kForeignTools =
    R"(,"max_output_tokens":24,"tools":[{"type":"web_search"},{"type":"local_shell"},{"type":"function",)"
    R"("name":"get_weather","description":"Current weather","parameters":{"type":"object","properties":{}},)"
    R"("strict":false}])";

constexpr Probe kProbes[] = {
    {"models", [](Session&) { return get("/v1/models"); }},
    {"props", [](Session&) { return get("/props"); }},
    {"health", [](Session&) { return get("/health"); }},
    {"models.one", [](Session& s) { return get("/v1/models/" + segment(s.model())); }},
    {"models.unknown", [](Session&) { return get("/v1/models/no-such-model-here"); }},
    {"models.head",
     [](Session&) { return WireRequest{.method = "HEAD", .path = "/v1/models", .body = {}, .headers = {}}; }},
    {"chat.options",
     [](Session&) {
       return WireRequest{.method = "OPTIONS",
                          .path = std::string(kChatPath),
                          .body = {},
                          .headers = {{"Origin", "http://example.org"}, {"Access-Control-Request-Method", "POST"}}};
     }},

    {"chat", [](Session& s) { return chat(s, kShort); }},
    {"chat.again", [](Session& s) { return chat(s, kShort); }},
    {"chat.stream", [](Session& s) { return chat(s, kStream); }},
    {"chat.usage", [](Session& s) { return chat(s, kStreamUsage); }},
    {"chat.seed", [](Session& s) { return sampled(s, ""); }},
    {"chat.seed.again", [](Session& s) { return sampled(s, ""); }},
    {"chat.n", [](Session& s) { return sampled(s, R"(,"n":2)"); }},
    {"chat.n.stream", [](Session& s) { return sampled(s, R"(,"n":2,"stream":true)"); }},
    {"chat.stop", [](Session& s) { return chat(s, std::string(kShort) + stop_of(s)); }},
    {"chat.stop.stream", [](Session& s) { return chat(s, std::string(kStream) + stop_of(s)); }},
    {"chat.length", [](Session& s) { return chat(s, R"(,"max_tokens":3)"); }},
    {"chat.length.stream",
     [](Session& s) { return chat(s, R"(,"max_tokens":3,"stream":true,"stream_options":{"include_usage":true})"); }},
    {"chat.max_completion", [](Session& s) { return chat(s, R"(,"max_tokens":9,"max_completion_tokens":3)"); }},
    {"chat.logprobs", [](Session& s) { return chat(s, R"(,"max_tokens":12,"logprobs":true,"top_logprobs":3)"); }},
    {"chat.logprobs.stream",
     [](Session& s) { return chat(s, R"(,"max_tokens":12,"logprobs":true,"top_logprobs":3,"stream":true)"); }},
    {"chat.logprobs.alone", [](Session& s) { return chat(s, R"(,"max_tokens":4,"logprobs":true)"); }},
    {"chat.long", long_stream},
    // Abandoned, so that they never come to their end.
    {"chat.endless", [](Session& s) { return chat(s, R"(,"max_tokens":3000,"ignore_eos":true)"); }},
    {"chat.endless.stream",
     [](Session& s) { return chat(s, R"(,"max_tokens":3000,"ignore_eos":true,"stream":true)"); }},

    {"completions", [](Session& s) { return completions(s, text(kPrompt), kShort); }},
    {"completions.stream", [](Session& s) { return completions(s, text(kPrompt), kStreamUsage); }},
    {"completions.echo", [](Session& s) { return completions(s, text(kPrompt), R"(,"max_tokens":4,"echo":true)"); }},
    {"completions.score",
     [](Session& s) { return completions(s, text(kPrompt), R"(,"max_tokens":0,"echo":true,"logprobs":1)"); }},
    {"completions.logprobs",
     [](Session& s) { return completions(s, text(kPrompt), R"(,"max_tokens":6,"logprobs":2)"); }},
    {"completions.logprobs.zero",
     [](Session& s) { return completions(s, text(kPrompt), R"(,"max_tokens":6,"logprobs":0)"); }},
    {"completions.prompts",
     [](Session& s) { return completions(s, R"(["A, B, C,","1, 2, 3,"])", R"(,"max_tokens":4,"echo":true,"n":2)"); }},
    {"completions.ids", [](Session& s) { return completions(s, "[101,102,103,104,105]", R"(,"max_tokens":4)"); }},
    {"completions.id_lists",
     [](Session& s) { return completions(s, "[[101,102,103],[104,105,106,107]]", R"(,"max_tokens":4)"); }},

    {"error.json", [](Session&) { return post(kChatPath, R"({"model": "x", "messages": [)"); }},
    {"error.type", [](Session& s) { return chat(s, R"(,"max_tokens":4,"top_p":"high")"); }},
    {"error.range", [](Session& s) { return chat(s, R"(,"max_tokens":4,"top_p":7)"); }},
    {"error.stream", [](Session& s) { return chat(s, R"(,"max_tokens":4,"top_p":"high","stream":true)"); }},
    {"error.empty", [](Session& s) { return post(kChatPath, chat_body(s, "[]", kShort)); }},
    {"error.missing", [](Session& s) { return post(kChatPath, R"({"model":)" + text(s.model()) + "}"); }},
    {"error.model",
     [](Session&) {
       return post(kChatPath, R"({"model":"no-such-model-here","max_tokens":4,"messages":)" + one_message("Hi") + "}");
     }},
    {"error.route", [](Session&) { return post("/v1/no/such/route", "{}"); }},
    {"error.method", [](Session&) { return get(std::string(kChatPath)); }},
    {"error.long", too_long},
    {"error.top_logprobs", [](Session& s) { return chat(s, R"(,"max_tokens":4,"top_logprobs":2,"logprobs":false)"); }},
    {"error.prompts", [](Session& s) { return completions(s, "[]", kShort); }},
    {"hostile.array", [](Session&) { return post(kChatPath, R"([1,2,3])"); }},
    {"hostile.null", [](Session&) { return post(kChatPath, "null"); }},
    {"hostile.content", [](Session& s) { return chat_of(s, R"([{"role":"user","content":5}])"); }},
    {"hostile.role", [](Session& s) { return chat_of(s, R"([{"role":7,"content":"x"}])"); }},
    {"hostile.items", [](Session& s) { return chat_of(s, R"(["hello",null])"); }},
    {"hostile.messages", [](Session& s) { return chat_of(s, R"("hello")"); }},
    {"hostile.deep", [](Session& s) { return chat_of(s, repeated("[", 20000) + repeated("]", 20000)); }},
    {"hostile.utf8", [](Session& s) { return chat_of(s, "[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]"); }},
    {"hostile.tools", [](Session& s) { return chat(s, R"(,"max_tokens":4,"tools":[{"type":"function"}])"); }},
    {"hostile.format",
     [](Session& s) { return chat(s, R"(,"max_tokens":4,"response_format":{"type":"json_schema"})"); }},
    {"hostile.bias", [](Session& s) { return chat(s, R"(,"max_tokens":4,"logit_bias":{"not a token":5})"); }},

    {"lenient.tools", [](Session& s) { return chat(s, R"(,"max_tokens":4,"tools":[])"); }},
    {"lenient.nulls", [](Session& s) { return chat(s, kNulls); }},
    {"lenient.unknown",
     [](Session& s) { return chat(s, R"(,"max_tokens":4,"client_metadata":{"a":[1]},"no_such_field":true)"); }},
    {"lenient.max_tokens", [](Session& s) { return chat(s, R"(,"max_tokens":2000000,"stream":true)"); }, 3},
    {"lenient.stream_options",
     [](Session& s) { return chat(s, R"(,"max_tokens":4,"stream":false,"stream_options":{"include_usage":true})"); }},
    {"lenient.parts",
     [](Session& s) {
       return chat_of(s, R"([{"role":"user","content":[{"type":"text","text":)" + text(kQuestion) + "}]}]");
     }},
    {"lenient.developer",
     [](Session& s) {
       return chat_of(s, R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}])");
     }},
    {"lenient.system", [](Session& s) { return chat_of(s, kSystemSecond); }},
    {"lenient.empty_calls", [](Session& s) { return chat_of(s, kEmptyCalls); }},

    {"tools", [](Session& s) { return tools(s, ""); }},
    {"tools.stream", [](Session& s) { return tools(s, R"(,"stream":true)"); }},
    {"tools.required", [](Session& s) { return tools(s, R"(,"tool_choice":"required")"); }},
    {"tools.required.stream", [](Session& s) { return tools(s, R"(,"tool_choice":"required","stream":true)"); }},
    {"tools.none", [](Session& s) { return tools(s, R"(,"tool_choice":"none")"); }},
    {"tools.unknown",
     [](Session& s) { return tools(s, R"(,"tool_choice":{"type":"function","function":{"name":"no_such_tool"}})"); }},
    {"tools.history", [](Session& s) { return chat_of(s, kHistory); }},

    {"reasoning", [](Session& s) { return chat(s, R"(,"max_tokens":160)", kReasoningQuestion); }},
    {"reasoning.stream", [](Session& s) { return chat(s, R"(,"max_tokens":160,"stream":true)", kReasoningQuestion); }},
    {"reasoning.cut", [](Session& s) { return chat(s, R"(,"max_tokens":4)", kReasoningQuestion); }},
    {"reasoning.history", [](Session& s) { return chat_of(s, kReasoningHistory); }},

    {"responses", [](Session& s) { return responses(s, text(kQuestion), R"(,"max_output_tokens":24,"store":true)"); }},
    {"responses.stream",
     [](Session& s) { return responses(s, text(kQuestion), R"(,"max_output_tokens":24,"stream":true)"); }},
    {"responses.short",
     [](Session& s) { return responses(s, text(kQuestion), R"(,"max_output_tokens":3,"stream":true)"); }},
    {"responses.items",
     [](Session& s) {
       return responses(s,
                        R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]},)"
                        R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello."}]},)"
                        R"({"role":"user","content":"Count to five."}])",
                        R"(,"max_output_tokens":8)");
     }},
    {"responses.tools", [](Session& s) { return responses(s, text(kQuestion), kForeignTools); }},
    {"responses.error", [](Session& s) { return responses(s, text(kQuestion), R"(,"max_output_tokens":"many")"); }},
    {"responses.get", response_by_id},
    {"responses.unknown", [](Session&) { return get(std::string(kResponsesPath) + "/resp_no_such_response"); }},

    {"messages", [](Session& s) { return messages(s, kShort); }},
    {"messages.stream", [](Session& s) { return messages(s, kStream); }},
    {"messages.length", [](Session& s) { return messages(s, R"(,"max_tokens":3)"); }},
    {"messages.stop",
     [](Session& s) {
       const auto stop = s.stop_string();
       return messages(s, std::string(kShort) + R"(,"stop_sequences":[)" + text(stop ? stop->stop : "five") + "]");
     }},
    {"messages.error", [](Session& s) { return messages_to(kMessagesPath, s, "5", kShort); }},
    {"messages.blocks",
     [](Session& s) {
       return messages_to(kMessagesPath, s,
                          R"([{"role":"user","content":[{"type":"text","text":"Count to five.",)"
                          R"("cache_control":{"type":"ephemeral"}}]}])",
                          R"(,"max_tokens":8,"system":[{"type":"text","text":"Be brief."}])");
     }},
    {"messages.count",
     [](Session& s) { return messages_to("/v1/messages/count_tokens", s, one_message(kQuestion), ""); }},
};

}  // namespace

const Probe* find_probe(std::string_view name) {
  const auto* it = std::ranges::find(kProbes, name, &Probe::name);
  return it == std::end(kProbes) ? nullptr : it;
}

}  // namespace barg::conform
