// `barg bench kv` from the outside: its three modes, its files, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "bench/scripted_server.h"
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "support/data.h"
#include "support/temp_dir.h"

namespace barg::cli::bench_kv_test {
namespace {

using bench::testing::good_answer;
using bench::testing::Peer;
using bench::testing::ScriptedRequest;
using bench::testing::ScriptedServer;

struct Done {
  int code = 0;
  std::string out, err;
};

Done bench_kv(std::vector<std::string> args, const Environment& environment = {}) {
  args.insert(args.begin(), {"bench", "kv"});
  std::istringstream in;
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  const int code = run(args, environment, io);
  return {code, out.str(), err.str()};
}

void expect_refused(const Done& done, int code, const std::string& part) {
  EXPECT_EQ(done.code, code) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(done.err.starts_with("error: ")) << done.err;
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
}

/// Four conversations of three turns behind one common block.
std::string trace_in(const test::TempDir& dir) {
  std::string text;
  int next = 1, at = 0;
  std::vector<std::string> talks(4, "0");
  for (int turn = 1; turn <= 3; ++turn) {
    for (std::string& talk : talks) {
      talk += "," + std::to_string(next++);
      text += "{\"timestamp\":" + std::to_string(at += 20) +
              ",\"input_length\":" + std::to_string(512 * turn + 256) +
              ",\"output_length\":64,\"hash_ids\":[" + talk + "]}\n";
    }
  }
  return dir.write("trace.jsonl", text);
}

Json read_json(const std::string& path) {
  const auto text = read_file(path, 1 << 24);
  EXPECT_TRUE(text) << path;
  const auto json = parse_json(text ? *text : "");
  EXPECT_TRUE(json) << path;
  return json ? *json : Json();
}

TEST(BenchKv, WrongFlagsAreOneSentence) {
  const test::TempDir dir;
  const std::string trace = trace_in(dir);
  expect_refused(bench_kv({"--trace", trace}), kExitUsage, "--policy, --url URL of a server or --model FILE");
  expect_refused(bench_kv({"--policy"}), kExitUsage, "--trace");
  expect_refused(bench_kv({"--policy", "--url", "http://127.0.0.1", "--trace", trace}), kExitUsage, "--url");
  const auto policy = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--policy", "--trace", trace});
    return bench_kv(more);
  };
  for (const auto& [flag, value] : {std::pair{"--device-blocks", "0"},
                                    {"--device-blocks", "x"},
                                    {"--device-blocks", "99999999999"},
                                    {"--dram-blocks", "-1"},
                                    {"--disk-blocks", "1.5"},
                                    {"--remote-blocks", "many"},
                                    {"--eviction", "clock"},
                                    {"--write", "never"},
                                    {"--sweep", "8,x"},
                                    {"--sweep", "1"},
                                    {"--requests", "0"},
                                    {"--speed", "2"},
                                    {"--scale-lengths", "2"},
                                    {"--concurrency", "1"},
                                    {"--csv", "x"},
                                    {"--timeout", "3"},
                                    {"--kv-tier", "dram:size=1MiB"}}) {
    expect_refused(policy({flag, value}), kExitUsage, flag);
  }
  expect_refused(policy({"--device-blocks", "3"}), kExitUsage, "the longest request has 4 blocks");
  expect_refused(policy({"--sweep", "20,3"}), kExitUsage, "--sweep");
  const auto server = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--url", "http://127.0.0.1:1", "--trace", trace});
    return bench_kv(more);
  };
  for (const auto& [flag, value] : {std::pair{"--scale-lengths", "1/0"},
                                    {"--scale-lengths", "1/"},
                                    {"--scale-lengths", "/16"},
                                    {"--scale-lengths", "nan"},
                                    {"--scale-lengths", "-1"},
                                    {"--scale-lengths", "1e9"},
                                    {"--speed", "0"},
                                    {"--vocab", "1"},
                                    {"--duration", "soon"},
                                    {"--device-blocks", "9"},
                                    {"--max-num-seqs", "4"}}) {
    expect_refused(server({flag, value}), kExitUsage, flag);
  }
  expect_refused(server({"--speed", "2", "--concurrency", "2"}), kExitUsage, "--concurrency");
  expect_refused(bench_kv({"--url", "https://a", "--trace", trace}), kExitUsage, "HTTPS");
}

TEST(BenchKv, FilesThatCannotBeReadOrWritten) {
  const test::TempDir dir;
  const std::string trace = trace_in(dir);
  expect_refused(bench_kv({"--policy", "--trace", dir.path() + "/none"}), kExitFailure, "cannot open");
  const std::string bad =
      dir.write("bad.jsonl", "{\"timestamp\":0,\"input_length\":5,\"output_length\":1}\n{]\n");
  expect_refused(bench_kv({"--policy", "--trace", bad}), kExitFailure, "bad.jsonl:2: ");
  const std::string bare =
      dir.write("bare.jsonl", "{\"timestamp\":0,\"input_length\":5,\"output_length\":1}\n");
  expect_refused(bench_kv({"--policy", "--trace", bare}), kExitFailure, "no hash_ids");
  expect_refused(bench_kv({"--policy", "--trace", trace, "--json", dir.path() + "/no/where"}),
                 kExitCannotCreate, "cannot write");
  expect_refused(bench_kv({"--url", "http://127.0.0.1:1", "--model", "m", "--trace", trace}),
                 kExitUnavailable, "");
  expect_refused(bench_kv({"--model", trace, "--trace", trace}), kExitFailure, "trace.jsonl");
}

TEST(BenchKv, ThePoliciesAlone) {
  const test::TempDir dir;
  const std::string json = dir.path() + "/kv.json";
  const Done done =
      bench_kv({"--policy", "--trace", trace_in(dir), "--device-blocks", "6", "--dram-blocks", "8",
                "--disk-blocks", "50", "--sweep", "5,10,40", "--json", json, "--svg", dir.path() + "/p"});
  ASSERT_EQ(done.code, kExitOk) << done.err;
  EXPECT_EQ(done.err, "");
  EXPECT_NE(done.out.find("of the optimum of 64 blocks"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("written through"), std::string::npos) << done.out;
  const Json report = read_json(json);
  EXPECT_EQ(report.find("mode")->as_string(), "policy");
  EXPECT_EQ(report.find("requests")->as_int(), 12);
  EXPECT_EQ(report.find("blocks")->as_int(), 4 * (2 + 3 + 4));
  EXPECT_EQ(report.find("distinct_blocks")->as_int(), 13);
  EXPECT_EQ(report.find("tiers")->size(), 3U);
  EXPECT_EQ(report.find("sweep")->size(), 3U);
  EXPECT_TRUE(report.find("write_through")->is_object());
  EXPECT_NEAR(report.find("waste")->find("tail")->as_double(), 0.5 / 3, 1e-6);
  double best = 0;
  for (const Json& point : report.find("sweep")->as_array()) {
    const double optimum = point.find("optimum")->as_double();
    for (const char* name : {"tiers", "lru", "s3fifo"})
      EXPECT_LE(point.find(name)->as_double(), optimum + 1e-6);
    EXPECT_GE(optimum, best);
    best = optimum;
  }
  EXPECT_NEAR(best, report.find("unbounded_hit_rate")->as_double(), 1e-6);
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/p/kv_hits.svg"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/p/kv_capacity.svg"));
  const Done few = bench_kv({"--policy", "--trace", trace_in(dir), "--requests", "3"});
  EXPECT_EQ(few.code, kExitOk);
  EXPECT_NE(few.out.find(": 3 requests, 6 blocks"), std::string::npos) << few.out;
}

TEST(BenchKv, ARunningServer) {
  std::atomic<int> readings = 0;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    if (request.head.starts_with("GET /metrics")) {
      const std::string body = "vllm:prompt_tokens_total " + std::to_string(100 * readings++) + "\n";
      peer.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    } else {
      peer.send(good_answer(4));
    }
    return true;
  });
  const test::TempDir dir;
  const std::string json = dir.path() + "/kv.json", csv = dir.path() + "/kv.csv";
  const Done done =
      bench_kv({"--url", server.url(), "--model", "m", "--trace", trace_in(dir), "--scale-lengths", "1/64",
                "--speed", "100", "--requests", "8", "--json", json, "--csv", csv});
  ASSERT_EQ(done.code, kExitOk) << done.err;
  const Json report = read_json(json);
  EXPECT_EQ(report.find("mode")->as_string(), "server");
  EXPECT_EQ(report.find("model")->as_string(), "m");
  EXPECT_EQ(report.find("run")->find("requests")->find("ok")->as_int(), 8);
  EXPECT_GE(report.find("prompt_tokens")->as_int(), 100);
  EXPECT_TRUE(report.find("hit_rate")->is_null());
  const auto rows = read_file(csv, 1 << 20);
  ASSERT_TRUE(rows);
  EXPECT_EQ(std::count(rows->begin(), rows->end(), '\n'), 9);
}

// The figures come from the metrics that the server would show: their names are the ones that are looked for.
TEST(BenchKv, AnEngineInThisProcessWithTiers) {
  const std::string model = test::shared_data("models/smollm2");
  if (model.empty()) GTEST_SKIP() << test::kNoShared;
  const test::TempDir dir;
  const std::string json = dir.path() + "/kv.json";
  const Done done = bench_kv({"--model", model, "--trace", trace_in(dir), "--scale-lengths", "1/32",
                              "--concurrency", "1", "--threads", "1", "--kv-tier", "dram:size=16MiB",
                              "--kv-tier", "disk:path=" + dir.path() + "/disk,size=600MiB", "--json", json},
                             {{"XDG_STATE_HOME", dir.path() + "/state"}});
  ASSERT_EQ(done.code, kExitOk) << done.err;
  const Json report = read_json(json);
  EXPECT_EQ(report.find("mode")->as_string(), "engine");
  EXPECT_EQ(report.find("run")->find("requests")->find("ok")->as_int(), 12);
  EXPECT_EQ(report.find("prompt_tokens")->as_int(), 4 * (24 + 40 + 56));
  EXPECT_GT(report.find("hit_rate")->as_double(), 0.2);
  for (const std::size_t place : {1U, 2U}) {
    const Json& tier = report.find("tiers")->as_array()[place];
    for (const char* figure :
         {"cached_tokens", "hit_rate", "queries", "hits", "bytes_read", "bytes_written", "evictions",
          "rereads", "writes", "useful_writes", "used_bytes", "capacity_bytes", "duplicate_bytes"}) {
      EXPECT_FALSE(tier.find(figure)->is_null()) << place << " " << figure;
    }
  }
  for (const char* figure : {"recompute", "reload", "both", "predicted_s", "actual_s", "regret_s",
                             "tokens_restored", "deadlines", "late", "verified", "verify_failed"}) {
    EXPECT_FALSE(report.find("restores")->find(figure)->is_null()) << figure;
  }
  for (const char* cause : {"tail", "reserved", "fenced"})
    EXPECT_FALSE(report.find("waste")->find(cause)->is_null()) << cause;
}

}  // namespace
}  // namespace barg::cli::bench_kv_test
