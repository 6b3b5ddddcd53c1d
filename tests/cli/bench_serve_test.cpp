// The flags of `barg bench serve`: what they become, and what is refused.
#include <gtest/gtest.h>

#include <sstream>

#include "cli/args.h"
#include "cli/bench_serve.h"

namespace barg::cli::bench_serve_test {
namespace {

Result<bench::ServeOptions> options(const std::vector<std::string>& args) {
  ParsedArgs parsed = parse_args(kBenchServeCommand, args);
  EXPECT_TRUE(parsed.problems.empty()) << parsed.problems[0];
  std::istringstream in;
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  const Invocation invocation{.io = io, .settings = {}, .flags = std::move(parsed.own), .arguments = {}};
  return serve_bench_options(invocation);
}

void expect_refused(const std::vector<std::string>& args, const std::string& part) {
  const auto result = options(args);
  ASSERT_FALSE(result) << args[0];
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(BenchServe, Defaults) {
  const auto o = options({});
  ASSERT_TRUE(o);
  EXPECT_EQ(o->target.host, "127.0.0.1");
  EXPECT_EQ(o->target.port, "8000");
  EXPECT_TRUE(o->body.ignore_eos);
  EXPECT_EQ(o->body.temperature, 0);
  ASSERT_EQ(o->loads.size(), 1U);
  EXPECT_EQ(o->loads[0].kind, bench::ServeLoad::Kind::kClosed);
  EXPECT_EQ(o->loads[0].requests, 16);
}

TEST(BenchServe, Targets) {
  for (const char* url : {"http://h:1/proxy", "http://h:1/proxy/", "http://h:1/proxy/v1", "http://h:1/proxy/v1/"}) {
    const auto o = options({"--url", url});
    ASSERT_TRUE(o) << url;
    EXPECT_EQ(o->target.base_path, "/proxy") << url;
  }
  expect_refused({"--url", "https://h"}, "HTTPS is not supported");
  expect_refused({"--url", "h:1"}, "--url");
  expect_refused({"--endpoint", "embeddings"}, "completions or chat");
}

TEST(BenchServe, LoadsAndSweeps) {
  const auto sweep = options({"--concurrency", "1,8,32", "--requests", "50"});
  ASSERT_TRUE(sweep);
  ASSERT_EQ(sweep->loads.size(), 3U);
  EXPECT_EQ(sweep->loads[2].concurrency, 32);
  EXPECT_EQ(sweep->loads[2].requests, 50);
  const auto open = options({"--rate", "0.5,2", "--burstiness", "0.5"});
  ASSERT_TRUE(open);
  EXPECT_EQ(open->loads[1].rate, 2);
  EXPECT_EQ(open->loads[1].burstiness, 0.5);
  EXPECT_EQ(open->loads[1].duration_s, 60);
  const auto trace = options({"--trace", "t.jsonl"});
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->loads[0].kind, bench::ServeLoad::Kind::kTrace);
  EXPECT_FALSE(trace->loads[0].requests);
  expect_refused({"--rate", "1", "--concurrency", "1"}, "closed loop");
  expect_refused({"--concurrency", "0"}, "--concurrency");
  expect_refused({"--concurrency", "1,x"}, "--concurrency");
  expect_refused({"--duration", "soon"}, "--duration");
}

TEST(BenchServe, WorkloadsThatDoNotGoTogether) {
  expect_refused({"--prompt-ids", "--turns", "2"}, "--prompt-ids");
  expect_refused({"--prompt-ids", "--endpoint", "chat"}, "--prompt-ids");
  expect_refused({"--trace", "a", "--prompts", "b"}, "--trace");
  expect_refused({"--trace", "a", "--turns", "2"}, "--turns");
  expect_refused({"--input-len", "-5"}, "--input-len");
}

TEST(BenchServe, ObjectivesPricesAndBodies) {
  const auto o = options({"--slo", "ttft=500ms,itl=0.05,e2e=2s", "--price-per-hour", "0.4", "--extra-json",
                          R"({"cache_prompt": false, "top_k": 1})", "--sampling-seed", "9", "--no-ignore-eos"});
  ASSERT_TRUE(o) << o.error().message;
  EXPECT_DOUBLE_EQ(*o->slo.ttft_ms, 500);
  EXPECT_DOUBLE_EQ(*o->slo.itl_ms, 50);
  EXPECT_DOUBLE_EQ(*o->slo.e2e_ms, 2000);
  EXPECT_FALSE(o->slo.tpot_ms);
  EXPECT_EQ(o->price_per_hour, 0.4);
  EXPECT_EQ(o->body.extra_members, R"("cache_prompt":false,"top_k":1)");
  EXPECT_EQ(o->body.seed, 9);
  EXPECT_FALSE(o->body.ignore_eos);
  expect_refused({"--slo", "speed=1s"}, "--slo");
  expect_refused({"--slo", "ttft"}, "--slo");
  expect_refused({"--extra-json", "[1]"}, "--extra-json");
  expect_refused({"--extra-json", R"({"stream": false})"}, "\"stream\"");
  expect_refused({"--price-per-hour", "0"}, "--price-per-hour");
}

}  // namespace
}  // namespace barg::cli::bench_serve_test
