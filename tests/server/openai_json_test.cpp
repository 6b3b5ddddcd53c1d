// Validation of chat and completion bodies: one row a rule.
#include "server/openai_json.h"

#include <gtest/gtest.h>

#include "server/api_error.h"

namespace barg::server::openai_json_test {
namespace {

constexpr std::int32_t kVocab = 1000;

struct Row {
  std::string more;  // appended to a valid body
  ErrorCode code;
  std::string param;
};

template <class Parse>
std::optional<Error> error_of(Parse parse, const std::string& body) {
  auto json = parse_json(body);
  if (!json) return json.error();
  auto request = parse(*json, SamplingDefaults{}, kVocab);
  if (request) return std::nullopt;
  return request.error();
}

const std::string kMessages = R"("messages":[{"role":"user","content":"hi"}])";

std::string chat_body(const std::string& more) {
  return "{" + kMessages + (more.empty() ? "" : ",") + more + "}";
}
std::string completion_body(const std::string& more) {
  return R"({"prompt":"hi")" + (more.empty() ? std::string() : "," + more) + "}";
}

ApiRequest chat(const std::string& more, const SamplingDefaults& defaults = {}) {
  auto r = parse_chat_request(*parse_json(chat_body(more)), defaults, kVocab);
  EXPECT_TRUE(r) << more << ": " << (r ? "" : r.error().message);
  return r ? std::move(*r) : ApiRequest{};
}
ApiRequest completion(const std::string& more) {
  auto r = parse_completion_request(*parse_json(completion_body(more)), {}, kVocab);
  EXPECT_TRUE(r) << more << ": " << (r ? "" : r.error().message);
  return r ? std::move(*r) : ApiRequest{};
}

constexpr auto kInvalid = ErrorCode::kInvalidValue;
constexpr auto kMissing = ErrorCode::kMissingParameter;
constexpr auto kUnsup = ErrorCode::kUnsupported;

std::string repeat(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i > 0 ? "," : "") + s;
  return out;
}

TEST(OpenAiJson, BadSharedFields) {
  const std::vector<Row> rows = {
      {R"("temperature":-1)", kInvalid, "temperature"},
      {R"("temperature":2.01)", kInvalid, "temperature"},
      {R"("temperature":1e-40)", kInvalid, "temperature"},
      {R"("temperature":"1")", kInvalid, "temperature"},
      {R"("temperature":true)", kInvalid, "temperature"},
      {R"("temperature":1e9)", kInvalid, "temperature"},
      {R"("top_p":0)", kInvalid, "top_p"},
      {R"("top_p":1.1)", kInvalid, "top_p"},
      {R"("top_p":2)", kInvalid, "top_p"},
      {R"("top_k":-2)", kInvalid, "top_k"},
      {R"("top_k":1.5)", kInvalid, "top_k"},
      {R"("top_k":"5")", kInvalid, "top_k"},
      {R"("min_p":-0.1)", kInvalid, "min_p"},
      {R"("min_p":1.1)", kInvalid, "min_p"},
      {R"("repetition_penalty":0)", kInvalid, "repetition_penalty"},
      {R"("repetition_penalty":-1)", kInvalid, "repetition_penalty"},
      {R"("frequency_penalty":2.5)", kInvalid, "frequency_penalty"},
      {R"("presence_penalty":-2.5)", kInvalid, "presence_penalty"},
      {R"("seed":-1e300)", kInvalid, "seed"},
      {R"("seed":"-1")", kInvalid, "seed"},
      {R"("seed":9223372036854775808)", kInvalid, "seed"},
      {R"("seed":1.5)", kInvalid, "seed"},
      {R"("n":0)", kInvalid, "n"},
      {R"("n":-1)", kInvalid, "n"},
      {R"("n":129)", kInvalid, "n"},
      {R"("n":1000000)", kInvalid, "n"},
      {R"("best_of":2)", kUnsup, "best_of"},
      {R"("best_of":0)", kInvalid, "best_of"},
      {R"("logit_bias":{"1000":1})", kInvalid, "logit_bias.1000"},
      {R"("logit_bias":{"-1":1})", kInvalid, "logit_bias.-1"},
      {R"("logit_bias":{"x":1})", kInvalid, "logit_bias.x"},
      {R"("logit_bias":{"1":101})", kInvalid, "logit_bias.1"},
      {R"("logit_bias":{"1":1e308})", kInvalid, "logit_bias.1"},
      {R"("logit_bias":{"1":"a"})", kInvalid, "logit_bias.1"},
      {R"("logit_bias":[1])", kInvalid, "logit_bias"},
      {R"("stop":"")", kInvalid, "stop"},
      {R"("stop":[""])", kInvalid, "stop[0]"},
      {R"("stop":["a",1])", kInvalid, "stop[1]"},
      {R"("stop":5)", kInvalid, "stop"},
      {"\"stop\":[" + repeat("\"a\"", 17) + "]", kInvalid, "stop"},
      {"\"stop\":\"" + std::string(5000, 'a') + "\"", kInvalid, "stop"},
      {R"("stop_token_ids":[1000])", kInvalid, "stop_token_ids[0]"},
      {R"("stop_token_ids":[1,-1])", kInvalid, "stop_token_ids[1]"},
      {R"("stop_token_ids":[1.5])", kInvalid, "stop_token_ids[0]"},
      {R"("allowed_token_ids":[])", kInvalid, "allowed_token_ids"},
      {R"("allowed_token_ids":[2147483648])", kInvalid, "allowed_token_ids[0]"},
      {R"("banned_token_ids":["1"])", kInvalid, "banned_token_ids[0]"},
      {R"("min_tokens":-1)", kInvalid, "min_tokens"},
      {R"("min_tokens":5,"max_tokens":4)", kInvalid, "min_tokens"},
      {R"("max_tokens":-1)", kInvalid, "max_tokens"},
      {R"("max_tokens":0)", kInvalid, "max_tokens"},
      {R"("max_tokens":"x")", kInvalid, "max_tokens"},
      {R"("stream":"yes")", kInvalid, "stream"},
      {R"("stream":1)", kInvalid, "stream"},
      {R"("stream_options":5)", kInvalid, "stream_options"},
      {R"("stream_options":{"include_usage":1})", kInvalid, "stream_options.include_usage"},
      {R"("ignore_eos":1)", kInvalid, "ignore_eos"},
      {R"("skip_special_tokens":"no")", kInvalid, "skip_special_tokens"},
      {R"("include_stop_str_in_output":0)", kInvalid, "include_stop_str_in_output"},
      {R"("return_token_ids":1)", kInvalid, "return_token_ids"},
      {R"("prompt_logprobs":21)", kInvalid, "prompt_logprobs"},
      {R"("prompt_logprobs":1,"stream":true)", kInvalid, "prompt_logprobs"},
      {R"("priority":1.5)", kInvalid, "priority"},
      {R"("priority":"now")", kInvalid, "priority"},
      {R"("cache_salt":"")", kInvalid, "cache_salt"},
      {R"("cache_salt":"a/b")", kInvalid, "cache_salt"},
      {R"("cache_pin_s":-1)", kInvalid, "cache_pin_s"},
      {R"("cache_pin_s":604801)", kInvalid, "cache_pin_s"},
      {R"("cache_pin_s":"1h")", kInvalid, "cache_pin_s"},
      {R"("cache_salt":"a\u0000b")", kInvalid, "cache_salt"},
      {"\"cache_salt\":\"" + std::string(129, 'a') + "\"", kInvalid, "cache_salt"},
      {"\"user\":\"" + std::string(2000, 'a') + "\"", kInvalid, "user"},
      {R"("user":5)", kInvalid, "user"},
      {R"("metadata":5)", kInvalid, "metadata"},
      {R"("response_format":"json")", kInvalid, "response_format"},
      {R"("use_beam_search":true)", kUnsup, "use_beam_search"},
      {R"("bad_words":["a"])", kUnsup, "bad_words"},
      {R"("prompt_embeds":"AAAA")", kUnsup, "prompt_embeds"},
      {R"("chat_template":"{{1}}")", kUnsup, "chat_template"},
      {R"("truncate_prompt_tokens":5)", kUnsup, "truncate_prompt_tokens"},
      {R"("modalities":["text","audio"])", kUnsup, "modalities"},
  };
  for (const Row& row : rows) {
    for (const bool is_chat : {true, false}) {
      const auto error = is_chat ? error_of(parse_chat_request, chat_body(row.more))
                                 : error_of(parse_completion_request, completion_body(row.more));
      ASSERT_TRUE(error) << row.more;
      EXPECT_EQ(error->code, row.code) << row.more << ": " << error->message;
      EXPECT_EQ(error->param, row.param) << row.more;
      EXPECT_EQ(error_shape(error->code).status, 400);
      EXPECT_FALSE(error->message.empty());
    }
  }
}

TEST(OpenAiJson, BadChatBodies) {
  struct Whole {
    std::string body;
    ErrorCode code;
    std::string param;
  };
  const std::vector<Whole> rows = {
      {"{}", kMissing, "messages"},
      {R"({"messages":null})", kMissing, "messages"},
      {R"({"messages":[]})", kInvalid, "messages"},
      {R"({"messages":"x"})", kInvalid, "messages"},
      {R"({"messages":["x"]})", kInvalid, "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", kMissing, "messages[0].role"},
      {R"({"messages":[{"role":5,"content":"x"}]})", kInvalid, "messages[0].role"},
      {R"({"messages":[{"role":"wizard","content":"x"}]})", kInvalid, "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", kMissing, "messages[0].content"},
      {R"({"messages":[{"role":"user","content":5}]})", kInvalid, "messages[0].content"},
      {R"({"messages":[{"role":"user","content":{}}]})", kInvalid, "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[5]}]})", kInvalid, "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", kInvalid,
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]})",
       kUnsup, "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"input_audio"}]}]})", kUnsup,
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})", kInvalid,
       "messages[0].tool_calls[0].function"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}]})", kInvalid,
       "messages[0].tool_calls[0].function.arguments"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"id":7,"function":{"name":"f"}}]}]})", kInvalid,
       "messages[0].tool_calls[0].id"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"custom":{"name":"f"}}]}]})", kInvalid,
       "messages[0].tool_calls[0].custom.input"},
      {R"({"messages":[{"role":"assistant","tool_calls":{}}]})", kInvalid, "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":[)" + repeat(R"({"function":{"name":"f"}})", 513) + "]}]}",
       kInvalid, "messages[0].tool_calls"},
      {R"({"messages":[{"role":"tool","content":"x","tool_call_id":5}]})", kInvalid, "messages[0].tool_call_id"},
      {R"({"messages":[{"role":"assistant","reasoning_content":[]}]})", kInvalid, "messages[0].reasoning_content"},
      {R"({"messages":[{"role":"assistant","function_call":{"arguments":"{}"}}]})", kInvalid,
       "messages[0].function_call.name"},
      {R"({"messages":[{"role":"user","content":[{"type":"thinking","thinking":"x"}]}]})", kUnsup,
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"assistant","content":[{"type":"thinking"}]}]})", kInvalid,
       "messages[0].content[0].thinking"},
      {chat_body(R"("reasoning_effort":"extreme")"), kInvalid, "reasoning_effort"},
      {chat_body(R"("reasoning":{"effort":5})"), kInvalid, "reasoning.effort"},
      {chat_body(R"("reasoning":"high")"), kInvalid, "reasoning"},
      {chat_body(R"("thinking":{"budget_tokens":-1})"), kInvalid, "thinking.budget_tokens"},
      {chat_body(R"("thinking_token_budget":-2)"), kInvalid, "thinking_token_budget"},
      {chat_body(R"("include_reasoning":1)"), kInvalid, "include_reasoning"},
      {chat_body(R"("parallel_tool_calls":"no")"), kInvalid, "parallel_tool_calls"},
      {"{\"messages\":[" + repeat(R"({"role":"user","content":"x"})", 2049) + "]}", kInvalid, "messages"},
      {chat_body(R"("logprobs":5)"), kInvalid, "logprobs"},
      {chat_body(R"("top_logprobs":3)"), kInvalid, "top_logprobs"},
      {chat_body(R"("logprobs":true,"top_logprobs":21)"), kInvalid, "top_logprobs"},
      {chat_body(R"("top_logprobs":1000000)"), kInvalid, "top_logprobs"},
      {chat_body(R"("echo":true)"), kUnsup, "echo"},
      {chat_body(R"("add_generation_prompt":true,"continue_final_message":true)"), kInvalid,
       "continue_final_message"},
      {chat_body(R"("chat_template_kwargs":[])"), kInvalid, "chat_template_kwargs"},
      {chat_body(R"("documents":["x"])"), kInvalid, "documents[0]"},
      {chat_body(R"("max_completion_tokens":0)"), kInvalid, "max_completion_tokens"},
      {"null", kInvalid, ""},
      {"[]", kInvalid, ""},
      {"\"x\"", kInvalid, ""},
      {"", kInvalid, ""},
      {R"({"model":"a","model":"b",)" + kMessages + "}", kInvalid, ""},
      {chat_body(R"("temperature":1e999)"), kInvalid, ""},
      {chat_body(R"("temperature":NaN)"), kInvalid, ""},
      {chat_body("\"x\":1") + "{}", kInvalid, ""},
  };
  for (const Whole& row : rows) {
    const auto error = error_of(parse_chat_request, row.body);
    ASSERT_TRUE(error) << row.body.substr(0, 200);
    EXPECT_EQ(error_shape(error->code).status, 400) << row.body.substr(0, 200);
    if (error->code != row.code || (!row.param.empty() && error->param != row.param)) {
      ADD_FAILURE() << row.body.substr(0, 200) << " gave " << error->param << ": " << error->message;
    }
  }
}

TEST(OpenAiJson, BadPrompts) {
  const std::vector<Row> rows = {
      {"null", kMissing, "prompt"},
      {"\"\"", kInvalid, "prompt"},
      {"[]", kInvalid, "prompt"},
      {"[[]]", kInvalid, "prompt[0]"},
      {R"(["a",""])", kInvalid, "prompt[1]"},
      {R"(["a",1])", kInvalid, "prompt"},
      {R"([[1],"a"])", kInvalid, "prompt"},
      {"[-1]", kInvalid, "prompt[0]"},
      {"[1000]", kInvalid, "prompt[0]"},
      {"[[1],[2147483648]]", kInvalid, "prompt[1][0]"},
      {"[1.5]", kInvalid, "prompt[0]"},
      {"5", kInvalid, "prompt"},
      {"{}", kInvalid, "prompt"},
      {"[null]", kInvalid, "prompt"},
  };
  for (const Row& row : rows) {
    const auto error = error_of(parse_completion_request, "{\"prompt\":" + row.more + "}");
    ASSERT_TRUE(error) << row.more;
    EXPECT_EQ(error->code, row.code) << row.more;
    EXPECT_EQ(error->param, row.param) << row.more;
  }
  for (const char* more : {R"("suffix":"x")"}) {
    EXPECT_EQ(error_of(parse_completion_request, completion_body(more))->param, "suffix");
  }
  EXPECT_EQ(error_of(parse_completion_request, completion_body(R"("logprobs":21)"))->param, "logprobs");
  EXPECT_EQ(error_of(parse_completion_request, completion_body(R"("logprobs":true)"))->param, "logprobs");
}

TEST(OpenAiJson, ChoicesOfAllPromptsAreBounded) {
  const auto error = [](int prompts, int n) {
    std::string list = "\"a\"";
    for (int i = 1; i < prompts; ++i) list += ",\"a\"";
    return error_of(parse_completion_request, "{\"prompt\":[" + list + "],\"n\":" + std::to_string(n) + "}");
  };
  EXPECT_FALSE(error(32, 128));
  EXPECT_FALSE(error(1024, 4));
  EXPECT_EQ(error(33, 128)->param, "n");
  EXPECT_EQ(error(1025, 1)->param, "prompt");
}

TEST(OpenAiJson, PromptShapes) {
  const auto prompts = [](const std::string& p) {
    return parse_completion_request(*parse_json("{\"prompt\":" + p + "}"), {}, kVocab)->prompts;
  };
  EXPECT_EQ(prompts("\"a\"").size(), 1U);
  EXPECT_EQ(prompts(R"(["a","b"])")[1].text, "b");
  EXPECT_EQ(prompts("[1,2,3]")[0].ids, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(prompts("[[1],[2,3]]")[1].ids, (std::vector<TokenId>{2, 3}));
}

TEST(OpenAiJson, NullIsAbsentAndUnknownIsListed) {
  std::string nulls;
  for (const char* name : {"temperature",
                           "top_p",
                           "n",
                           "stop",
                           "seed",
                           "stream",
                           "stream_options",
                           "logit_bias",
                           "logprobs",
                           "top_logprobs",
                           "max_tokens",
                           "max_completion_tokens",
                           "tools",
                           "tool_choice",
                           "response_format",
                           "user",
                           "metadata",
                           "suffix",
                           "functions",
                           "chat_template_kwargs",
                           "priority",
                           "cache_salt",
                           "presence_penalty",
                           "best_of",
                           "what"}) {
    nulls += (nulls.empty() ? "\"" : ",\"") + std::string(name) + "\":null";
  }
  const ApiRequest r = chat(nulls);
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.n, 1);
  EXPECT_FALSE(r.max_tokens);
  EXPECT_TRUE(r.ignored.empty());

  const ApiRequest odd = chat(
      R"("num_ctx":5,"store":true,"user":"me","we\nird":1,"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"response_format":{"type":"text"})");
  const std::string header = ignored_header(odd.ignored);
  EXPECT_EQ(header, "num_ctx, store, user, we?ird");
}

TEST(OpenAiJson, IgnoredOptionsInsideAreListedToo) {
  const ApiRequest r = chat(R"("stream":true,"stream_options":{"include_usage":true,"pace":1,"x":null})");
  EXPECT_EQ(r.ignored, std::vector<std::string>{"stream_options.pace"});
}

TEST(OpenAiJson, StrictParamsRefusesWhatWouldBeIgnored) {
  EXPECT_TRUE(chat(R"("strict_params":true,"top_k":5)").ignored.empty());
  EXPECT_EQ(chat(R"("strict_params":false,"tok_p":1)").ignored, std::vector<std::string>{"tok_p"});
  const auto error = error_of(parse_completion_request, completion_body(R"("strict_params":true,"tok_p":1)"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kUnsupported);
  EXPECT_EQ(error->param, "tok_p");
}

TEST(OpenAiJson, DefaultsAndPrecedence) {
  const SamplingDefaults model{
      .temperature = 0.6, .top_p = 0.9, .min_p = {}, .repetition_penalty = 1.1, .top_k = 40};
  const ApiRequest quiet = chat("", model);
  EXPECT_FLOAT_EQ(quiet.sampling.temperature, 0.6F);
  EXPECT_FLOAT_EQ(quiet.sampling.top_p, 0.9F);
  EXPECT_EQ(quiet.sampling.top_k, 40);
  EXPECT_FLOAT_EQ(quiet.sampling.repetition_penalty, 1.1F);
  const ApiRequest loud = chat(R"("temperature":0,"top_p":1.0,"top_k":-1,"repetition_penalty":1)", model);
  EXPECT_EQ(loud.sampling.temperature, 0);
  EXPECT_EQ(loud.sampling.top_p, 1);
  EXPECT_EQ(loud.sampling.top_k, -1);
  EXPECT_EQ(chat(R"("temperature":1e-8)").sampling.temperature, 0) << "greedy by another name";
  EXPECT_EQ(*completion("").max_tokens, 16);
  EXPECT_EQ(*chat(R"("max_tokens":5,"max_completion_tokens":7)").max_tokens, 7);
  EXPECT_EQ(*chat(R"("max_tokens":1000000000000)").max_tokens, 1'000'000'000'000);
  EXPECT_EQ(*completion(R"("max_tokens":0,"echo":true)").max_tokens, 0);
  EXPECT_TRUE(completion(R"("max_tokens":0,"echo":true)").sampling.prompt_logprobs)
      << "the engine needs a reason to run";
}

TEST(OpenAiJson, ReadsWhatItAccepts) {
  const ApiRequest r = chat(
      R"("seed":42,"n":3,"stop":["a","b"],"logit_bias":{"5":-100,"6":2.5},"logprobs":true,"top_logprobs":4,
    "stop_token_ids":[7],"allowed_token_ids":[1,2],"banned_token_ids":[3],"min_tokens":2,"ignore_eos":true,"stream":true,
    "stream_options":{"include_usage":true,"continuous_usage_stats":true,"include_obfuscation":false},"priority":-3,"cache_salt":"s",
    "return_token_ids":true,"top_k":5.0)");
  EXPECT_EQ(r.sampling.seed, 42U);
  EXPECT_FALSE(chat(R"("seed":-1)").sampling.seed) << "one is drawn";
  EXPECT_FALSE(completion(R"("seed":-1.0)").sampling.seed);
  EXPECT_EQ(chat(R"("seed":0)").sampling.seed, 0U);
  EXPECT_EQ(chat(R"("seed":-2)").sampling.seed, 0xFFFF'FFFF'FFFF'FFFEU) << "the bits of an int64";
  EXPECT_EQ(chat(R"("seed":-9223372036854775808)").sampling.seed, 0x8000'0000'0000'0000U);
  EXPECT_EQ(r.n, 3);
  EXPECT_EQ(r.output.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, -100.F}, {6, 2.5F}}));
  EXPECT_EQ(r.sampling.logprobs, 4);
  EXPECT_EQ(r.sampling.top_k, 5);
  EXPECT_TRUE(r.output.include_usage && r.output.continuous_usage && r.output.return_token_ids);
  EXPECT_EQ(r.priority, Priority::kInteractive);
  EXPECT_EQ(r.cache_pin_s, 0);
  EXPECT_EQ(chat(R"("cache_pin_s":90.5)").cache_pin_s, 90.5);
  EXPECT_EQ(chat(R"("priority":"batch")").priority, Priority::kBatch);
  EXPECT_FALSE(chat(R"("stream_options":{"include_usage":true})").output.include_usage)
      << "no stream, no chunk";
  EXPECT_FALSE(chat(R"("continue_final_message":true)").chat.add_generation_prompt);
  const ApiRequest echo = completion(R"("echo":true,"logprobs":2)");
  EXPECT_EQ(echo.sampling.prompt_logprobs, 2);
  EXPECT_TRUE(echo.add_special_tokens);
  EXPECT_FALSE(r.add_special_tokens);
}

}  // namespace
}  // namespace barg::server::openai_json_test
