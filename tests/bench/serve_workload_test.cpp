// Prompts, bodies and arrivals: the same for the same seed, and shaped as asked.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "base/json.h"
#include "bench/serve_words.h"
#include "bench/serve_workload.h"
#include "support/temp_dir.h"

namespace barg::bench::serve_workload_test {
namespace {

std::unique_ptr<Workload> open(const ServeWorkload& options) {
  Result<std::unique_ptr<Workload>> workload = make_workload(options);
  EXPECT_TRUE(workload) << workload.error().message;
  return std::move(*workload);
}

std::size_t words(const std::string& text) {
  return text.empty() ? 0 : 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), ' '));
}

std::string file_with(const char* name, const std::string& text) {
  return test::scratch().write(name, text);
}

TEST(ServeWorkload, PromptsAreRepeatableUniqueAndAsLongAsAsked) {
  ServeWorkload options;
  options.input_length = 40;
  const auto a = open(options), b = open(options);
  std::set<std::string> starts;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const ServePrompt prompt = a->prompt(i, 0);
    EXPECT_EQ(prompt.text, b->prompt(i, 0).text);
    EXPECT_EQ(words(prompt.text), 40U);
    EXPECT_EQ(prompt.input_length, 40);
    EXPECT_EQ(prompt.output_length, 128);
    starts.insert(prompt.text.substr(0, 30));
  }
  EXPECT_GE(starts.size(), 499U);  // no common prefixes to speak of
  options.seed = 2;
  EXPECT_NE(open(options)->prompt(0, 0).text, a->prompt(0, 0).text);
}

TEST(ServeWorkload, LengthsSpread) {
  ServeWorkload options;
  options.input_length = 100, options.length_spread = 0.2;
  const auto workload = open(options);
  int low = 1000, high = 0;
  double sum = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const ServePrompt prompt = workload->prompt(i, 0);
    EXPECT_EQ(static_cast<int>(words(prompt.text)), prompt.input_length);
    low = std::min(low, prompt.input_length), high = std::max(high, prompt.input_length);
    sum += prompt.input_length;
  }
  EXPECT_EQ(low, 80);
  EXPECT_EQ(high, 120);
  EXPECT_NEAR(sum / 1000, 100, 2);
}

TEST(ServeWorkload, SharedPrefixes) {
  ServeWorkload options;
  options.input_length = 10, options.shared_prefix_length = 50, options.prefixes = 3;
  const auto workload = open(options);
  std::set<std::string> prefixes, whole;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const ServePrompt prompt = workload->prompt(i, 0);
    EXPECT_EQ(words(prompt.text), 60U);
    std::size_t end = 0;
    for (int w = 0; w < 50; ++w) end = prompt.text.find(' ', end + 1);
    prefixes.insert(prompt.text.substr(0, end));
    whole.insert(prompt.text);
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_EQ(whole.size(), 60U);
}

TEST(ServeWorkload, TokenIdsStayBelowTheVocabulary) {
  ServeWorkload options;
  options.token_ids = true, options.vocabulary = 600, options.input_length = 300;
  const Result<Json> ids = parse_json("[" + open(options)->prompt(3, 0).text + "]");
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->size(), 300U);
  for (const Json& id : ids->as_array()) EXPECT_TRUE(id.as_int() >= 300 && id.as_int() < 600);
}

TEST(ServeWorkload, ATraceRepeatsItsBlocks) {
  ServeWorkload options;
  options.trace_file = file_with("trace.jsonl",
                                 R"({"timestamp": 2000, "input_length": 1100, "output_length": 3, "hash_ids": [0, 7, 9]})"
                                 "\n"
                                 R"({"timestamp": 1000, "input_length": 1100, "output_length": 0, "hash_ids": [0, 7, 8]})"
                                 "\n\n");
  options.trace_speed = 4;
  const auto workload = open(options);
  ASSERT_EQ(workload->size(), 2U);
  EXPECT_DOUBLE_EQ(*workload->arrival(0), 0);  // sorted, from the first on
  EXPECT_DOUBLE_EQ(*workload->arrival(1), 0.25);
  const ServePrompt a = workload->prompt(0, 0), b = workload->prompt(1, 0);
  EXPECT_EQ(words(a.text), 1100U);
  EXPECT_EQ(a.output_length, 1);
  std::size_t common = 0;
  while (common < a.text.size() && a.text[common] == b.text[common]) ++common;
  const std::size_t shared = words(a.text.substr(0, common));
  EXPECT_TRUE(shared >= 1024 && shared <= 1028) << shared;
  options.trace_scale = 0.125;
  EXPECT_EQ(words(open(options)->prompt(0, 0).text), 138U);
}

TEST(ServeWorkload, ATimeOfATraceIsANumberOfNanoseconds) {
  ServeWorkload options;
  options.trace_file = file_with("late.jsonl",
                                 R"({"timestamp": -9e12, "input_length": 1, "output_length": 1})"
                                 "\n"
                                 R"({"timestamp": 9e12, "input_length": 1, "output_length": 1})"
                                 "\n");
  for (const double speed : {1.0, 1e-6}) {
    options.trace_speed = speed;
    EXPECT_GT(*open(options)->arrival(1), 1e8);
    EXPECT_LT(*open(options)->arrival(1) * 1e9, 0x1p62);  // and something may be added to it
  }
}

TEST(ServeWorkload, FilesSayWhereTheyAreWrong) {
  const auto message = [](ServeWorkload options) { return make_workload(options).error().message; };
  ServeWorkload trace, prompts;
  trace.trace_file = file_with("bad_trace.jsonl", "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n{\"timestamp\":0}\n");
  EXPECT_NE(message(trace).find("bad_trace.jsonl:2:"), std::string::npos);
  trace.trace_file = "/no/such/file";
  EXPECT_NE(message(trace).find("/no/such/file"), std::string::npos);
  prompts.prompts_file = file_with("bad_prompts.jsonl", "{\"prompt\": 5}\n");
  EXPECT_NE(message(prompts).find("bad_prompts.jsonl:1:"), std::string::npos);
  prompts.prompts_file = file_with("empty.jsonl", "\n");
  EXPECT_NE(message(prompts).find("no prompts"), std::string::npos);
  prompts.prompts_file = file_with("prompts.jsonl", "{\"prompt\":\"say \\\"hi\\\"\\n\",\"max_tokens\":9}\n{\"prompt\":\"x\"}\n");
  const auto workload = open(prompts);
  EXPECT_EQ(workload->prompt(0, 0).text, "say \\\"hi\\\"\\n");
  EXPECT_EQ(workload->prompt(0, 0).output_length, 9);
  EXPECT_EQ(workload->prompt(1, 0).output_length, 128);
}

TEST(ServeWorkload, BodiesAreJsonThatServersKnow) {
  ServeBody body{.model = "a\"b", .seed = 4, .extra_members = R"("cache_prompt":false,"temperature":1)",
                 .extra_keys = {"cache_prompt", "temperature"}};
  const Result<Json> text = parse_json(request_body(body, {{true, "one"}, {false, "two"}, {true, "three"}}, false, 8));
  ASSERT_TRUE(text) << text.error().message;  // a doubled "temperature" would be refused
  EXPECT_EQ(text->find("model")->as_string(), "a\"b");
  EXPECT_EQ(text->find("prompt")->as_string(), "one\ntwo\n\nthree");
  EXPECT_EQ(text->find("max_tokens")->as_int(), 8);
  EXPECT_TRUE(text->find("stream")->as_bool());
  EXPECT_TRUE(text->find("stream_options")->find("include_usage")->as_bool());
  EXPECT_TRUE(text->find("ignore_eos")->as_bool());
  EXPECT_EQ(text->find("seed")->as_int(), 4);
  EXPECT_FALSE(text->find("cache_prompt")->as_bool());
  body.api = ServeApi::kChat;
  body.ignore_eos = false;
  const Result<Json> chat = parse_json(request_body(body, {{true, "one"}, {false, "two"}, {true, "three"}}, false, 8));
  ASSERT_TRUE(chat);
  ASSERT_EQ(chat->find("messages")->size(), 3U);
  EXPECT_EQ(chat->find("messages")->as_array()[1].find("role")->as_string(), "assistant");
  EXPECT_EQ(chat->find("messages")->as_array()[2].find("content")->as_string(), "three");
  EXPECT_EQ(chat->find("ignore_eos"), nullptr);
  const Result<Json> ids = parse_json(request_body(body = {}, {{true, "1,2,3"}}, true, 8));
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->find("prompt")->size(), 3U);
}

TEST(ServeWorkload, ArrivalsHaveTheRateAndTheSpread) {
  for (const double shape : {0.25, 1.0, 4.0}) {
    const std::vector<double> at = arrivals(5, shape, 20'000, {}, 3);
    ASSERT_EQ(at.size(), 20'000U);
    EXPECT_EQ(at, arrivals(5, shape, 20'000, {}, 3));
    double squares = 0;
    for (std::size_t i = 1; i < at.size(); ++i) {
      EXPECT_GE(at[i], at[i - 1]);
      squares += (at[i] - at[i - 1]) * (at[i] - at[i - 1]);
    }
    const double mean = at.back() / 19'999, variance = squares / 19'999 - mean * mean;
    EXPECT_NEAR(mean, 0.2, 0.01) << shape;
    EXPECT_NEAR(variance / (mean * mean), 1 / shape, 0.15 / shape) << shape;  // of a gamma distribution
  }
  const std::vector<double> timed = arrivals(100, 1, {}, 2.0, 1);
  EXPECT_NEAR(static_cast<double>(timed.size()), 200, 60);
  EXPECT_LE(timed.back(), 2.0);
  EXPECT_EQ(arrivals(100, 1, 5, 2.0, 1).size(), 5U);
}

}  // namespace
}  // namespace barg::bench::serve_workload_test
