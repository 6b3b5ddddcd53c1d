// The load generator against a scripted server: are its stamps right, does it offer the load it was asked for,
// and what does it make of servers that misbehave. Times are compared with what the server itself recorded,
// never with a schedule, so a slow machine changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "base/json.h"
#include "bench/serve_bench.h"
#include "bench/serve_report.h"
#include "scripted_server.h"
#include "support/temp_dir.h"

namespace barg::bench::serve_test {
namespace {

using testing::chunk;
using testing::good_answer;
using testing::kStreamHead;
using testing::last_events;
using testing::Peer;
using testing::ScriptedRequest;
using testing::ScriptedServer;
using testing::token_event;

ServeOptions options_for(const ScriptedServer& server) {
  ServeOptions out;
  out.url = server.url();
  out.target = {.host = "127.0.0.1", .port = server.port(), .base_path = {}, .api_key = {}};
  out.body.model = "m";
  out.workload.input_length = 8;
  out.workload.output_length = 4;
  return out;
}

ServeLoad closed(int concurrency, std::int64_t requests) {
  return {.concurrency = concurrency, .requests = requests, .duration_s = {}};
}

ServeBenchResult bench(ServeOptions options, const ServeLoad& load, ServeBenchHooks hooks = {}) {
  options.loads = {load};
  Result<ServeBenchResult> result = run_serve_bench(options, hooks);
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : ServeBenchResult{};
}

bool answer_at_once(const Peer& peer, const ScriptedRequest&) {
  peer.send(good_answer(4));
  return true;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? NAN : percentile(values, 50);
}

/// What a scripted server knows of an answer.
struct Sent {
  std::vector<std::int64_t> tokens;
  std::int64_t end = 0;
};

/// Sends the answer of the stamp test, without the last chunk.
Sent send_slowly(const Peer& peer) {
  Sent times;
  peer.pause(5);
  peer.send(kStreamHead);  // headers long before the first token must not count as one
  peer.pause(20);
  for (int i = 0; i < 12; ++i) {
    times.tokens.push_back(peer.send(chunk(token_event())));
    peer.pause(4);
  }
  times.end = peer.send(chunk(last_events(8, 12)));
  peer.pause(2);
  return times;
}

/// Milliseconds between what the load generator says and what the server recorded.
struct StampErrors {
  std::vector<double> ttft, gaps, ends;  // of each request, of each gap
  double worst_percentile = 0;           // of the report's p50 and p95 of TTFT and ITL
};

double off(const Distribution& reported, std::vector<double> truth) {
  const Distribution want = distribution(truth);
  return std::max(std::abs(reported.p50 - want.p50), std::abs(reported.p95 - want.p95));
}

StampErrors errors_of(const ServeBenchResult& result, const Workload& workload, const std::map<std::string, Sent>& sent) {
  StampErrors out;
  std::vector<double> ttft, gaps;
  const std::int64_t zero = result.samples[0].started;
  for (const RequestSample& s : result.samples[0].requests) {
    const Sent& truth = sent.at(workload.prompt(s.conversation, s.turn).text);
    const RequestTimes times = times_of(s);
    EXPECT_EQ(s.stamps.size(), truth.tokens.size());
    if (s.stamps.size() != truth.tokens.size()) continue;
    ttft.push_back(static_cast<double>(truth.tokens[0] - zero - s.intended) * 1e-6);
    out.ttft.push_back(std::abs(times.ttft_ms - ttft.back()));
    out.ends.push_back(std::abs(times.e2e_ms - static_cast<double>(truth.end - zero - s.intended) * 1e-6));
    for (std::size_t i = 1; i < truth.tokens.size(); ++i) {
      EXPECT_GE(s.stamps[i] + zero, truth.tokens[i]);  // nothing is seen before it is sent
      gaps.push_back(static_cast<double>(truth.tokens[i] - truth.tokens[i - 1]) * 1e-6);
      out.gaps.push_back(std::abs(times.gaps_ms[i - 1] - gaps.back()));
    }
  }
  out.worst_percentile = std::max(off(result.reports[0].ttft_ms, ttft), off(result.reports[0].itl_ms, gaps));
  return out;
}

TEST(ServeBench, StampsAndPercentilesAreWithinTwoMillisecondsOfTheServers) {
  std::mutex mutex;
  std::map<std::string, Sent> sent;  // by prompt: they are unique
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    const Sent times = send_slowly(peer);
    {
      const std::lock_guard lock(mutex);
      sent[parse_json(request.body)->find("prompt")->as_string()] = times;
    }
    peer.send("0\r\n\r\n");
    return true;
  });
  const ServeOptions options = options_for(server);
  const std::unique_ptr<Workload> workload = std::move(*make_workload(options.workload));
  // Single stamps are late on a machine that does something else: enough of them move a median or a p95. A load
  // generator that is wrong is so in every run.
  constexpr int kRuns = 8;
  StampErrors errors;
  for (int run = 0; run < kRuns; ++run) {
    const ServeBenchResult result = bench(options, closed(4, 24));
    ASSERT_EQ(result.reports[0].ok, 24);
    const std::lock_guard lock(mutex);
    errors = errors_of(result, *workload, sent);
    if (std::max({median(errors.ttft), median(errors.gaps), median(errors.ends), errors.worst_percentile}) < 2) break;
  }
  EXPECT_LT(median(errors.ttft), 2);
  EXPECT_LT(median(errors.gaps), 2);
  EXPECT_LT(median(errors.ends), 2);
  EXPECT_LT(errors.worst_percentile, 2);
  RecordProperty("ttft_error_us", static_cast<int>(median(errors.ttft) * 1000));
  RecordProperty("itl_error_us", static_cast<int>(median(errors.gaps) * 1000));
}

TEST(ServeBench, AClosedLoopKeepsItsConcurrencyAndItsConnections) {
  std::atomic<int> now = 0, most = 0;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    const int here = ++now;
    for (int seen = most; here > seen && !most.compare_exchange_weak(seen, here);) {
    }
    // The first five wait for each other, however slow the machine is.
    for (int ms = 0; ms < 10'000 && request.number < 5 && most < 5; ++ms) peer.pause(1);
    peer.pause(5);
    --now;
    peer.send(good_answer(4));
    return true;
  });
  const ServeBenchResult result = bench(options_for(server), closed(5, 40));
  EXPECT_EQ(result.reports[0].ok, 40);
  EXPECT_EQ(server.requests(), 40);
  EXPECT_EQ(most, 5);
  EXPECT_EQ(result.reports[0].connections, 5);
  EXPECT_EQ(result.reports[0].output_tokens, 160);
  EXPECT_EQ(result.reports[0].input_tokens, 40 * 7);  // as the server counts
  EXPECT_EQ(result.reports[0].input_tokens_asked, 40 * 8);
  EXPECT_EQ(result.reports[0].cached_tokens, 40 * 3);
  EXPECT_TRUE(result.all_answered());
}

TEST(ServeBench, AnOpenLoopDoesNotWaitAndCountsFromThePlan) {
  // The server does nothing until the last request is there: an open loop sends them all the same.
  constexpr int kRequests = 12;
  std::atomic<int> here = 0;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest&) {
    ++here;
    while (here < kRequests && !peer.stopping()) peer.pause(1);
    peer.send(good_answer(4));
    return true;
  });
  ServeLoad load{.kind = ServeLoad::Kind::kOpen, .rate = 100, .requests = kRequests, .duration_s = {}};
  ServeOptions options = options_for(server);
  const ServeBenchResult result = bench(options, load);
  ASSERT_EQ(result.reports[0].ok, kRequests);
  const std::vector<double> plan = arrivals(100, 1, kRequests, {}, options.workload.seed);
  const auto& requests = result.samples[0].requests;
  for (const RequestSample& s : requests) {
    EXPECT_NEAR(static_cast<double>(s.intended) * 1e-9, plan[s.conversation], 1e-6);
    EXPECT_GE(s.sent, s.intended);
    // The first one waited for the last one to be planned.
    EXPECT_GE(times_of(s).ttft_ms, (plan.back() - plan[s.conversation]) * 1e3);
  }
}

TEST(ServeBench, ATraceIsReplayedAtItsTimes) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/replay.jsonl";
  std::ofstream(path) << R"({"timestamp": 0, "input_length": 8, "output_length": 4, "hash_ids": [1]})" "\n"
                      << R"({"timestamp": 200, "input_length": 9, "output_length": 4, "hash_ids": [2]})" "\n";
  const ScriptedServer server(answer_at_once);
  ServeOptions options = options_for(server);
  options.workload.trace_file = path;
  options.workload.trace_speed = 4;
  const ServeBenchResult result =
      bench(options, {.kind = ServeLoad::Kind::kTrace, .requests = {}, .duration_s = {}});
  ASSERT_EQ(result.reports[0].ok, 2);
  EXPECT_EQ(result.samples[0].requests[1].intended, 50'000'000);
  EXPECT_GE(result.samples[0].requests[1].sent, 50'000'000);
}

TEST(ServeBench, AConversationSendsWhatWasSaid) {
  std::mutex mutex;
  std::vector<std::string> prompts;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    {
      const std::lock_guard lock(mutex);
      prompts.push_back(parse_json(request.body)->find("prompt")->as_string());
    }
    peer.send(kStreamHead + chunk(token_event(" \\\"so\\\" ")) + chunk(token_event("\\u00e9")) + chunk(last_events(1, 2)) +
              "0\r\n\r\n");
    return true;
  });
  ServeOptions options = options_for(server);
  options.workload.turns = 3;
  const ServeBenchResult result = bench(options, closed(1, 6));
  EXPECT_EQ(result.reports[0].ok, 6);
  ASSERT_EQ(prompts.size(), 6U);
  for (const std::size_t i : {1U, 2U, 4U, 5U})
    EXPECT_TRUE(prompts[i].starts_with(prompts[i - 1] + "\n \"so\" \u00e9\n\n")) << prompts[i];
  EXPECT_FALSE(prompts[3].starts_with(prompts[0]));
}

TEST(ServeBench, AClosedKeepAliveConnectionIsTriedOnceMore) {
  // The server closes after every second answer, without saying so, as one that gives up idle clients.
  const ScriptedServer server([](const Peer& peer, const ScriptedRequest& request) {
    if (request.on_connection == 1) return false;  // read, but closed before any byte of an answer
    peer.send(good_answer(4));
    return true;
  });
  const ServeBenchResult result = bench(options_for(server), closed(1, 10));
  EXPECT_EQ(result.reports[0].ok, 10);
  EXPECT_EQ(result.reports[0].failed, 0);
  EXPECT_EQ(result.reports[0].reconnects, 9);
  // A fresh connection that closes without a word is a failure.
  const ScriptedServer silent([](const Peer&, const ScriptedRequest&) { return false; });
  const RunReport lost = bench(options_for(silent), closed(1, 3)).reports[0];
  EXPECT_EQ(lost.errors.at("connection_lost"), 3);
  EXPECT_EQ(silent.requests(), 3);
}

TEST(ServeBench, TooManyRequestsAreCountedAndRetriedOnlyWhenAsked) {
  const auto refuse_first = [](const Peer& peer, const ScriptedRequest& request) {
    if (request.number % 2 == 0) {
      peer.send("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 34\r\n\r\n"
                "{\"error\":{\"message\":\"queue full\"}}");
    } else {
      peer.send(good_answer(4));
    }
    return true;
  };
  const ScriptedServer server(refuse_first), again(refuse_first);
  const RunReport plain = bench(options_for(server), closed(1, 4)).reports[0];
  EXPECT_EQ(plain.ok, 2);
  EXPECT_EQ(plain.errors.at("http_429"), 2);
  EXPECT_EQ(plain.error_examples.at("http_429"), "queue full");
  EXPECT_EQ(plain.rate_limited, 2);
  ServeOptions options = options_for(again);
  options.retries = 1;
  const ServeBenchResult retried = bench(options, closed(1, 2));
  EXPECT_EQ(retried.reports[0].ok, 2);
  EXPECT_EQ(retried.reports[0].retries, 2);
  for (const RequestSample& s : retried.samples[0].requests)
    EXPECT_GE(times_of(s).ttft_ms, 100);  // the wait is part of it
}

TEST(ServeBench, MisbehaviourHasAName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"bad_http", "220 mail.example ready\r\n"},
      {"bad_stream", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
      {"connection_lost", kStreamHead + chunk(token_event())},
      {"cut_short", kStreamHead + chunk(token_event()) + "0\r\n\r\n"},
      {"no_tokens", kStreamHead + chunk(last_events(1, 0)) + "0\r\n\r\n"},
      {"stream_error", kStreamHead + chunk(token_event() + "data: {\"error\":{\"message\":\"x\"}}\n\n")},
      {"http_500", "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"},
  };
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    peer.send(cases[static_cast<std::size_t>(request.number) % cases.size()].second);
    return false;
  });
  const RunReport report = bench(options_for(server), closed(1, static_cast<std::int64_t>(cases.size()))).reports[0];
  EXPECT_EQ(report.ok, 0);
  for (const auto& [name, bytes] : cases) EXPECT_TRUE(report.errors.contains(name)) << name;
}

TEST(ServeBench, AServerThatStopsSpeakingTimesOut) {
  const ScriptedServer server([](const Peer& peer, const ScriptedRequest&) {
    peer.send(kStreamHead + chunk(token_event()));
    while (!peer.stopping() && !peer.client_left()) peer.pause(5);
    return false;
  });
  ServeOptions options = options_for(server);
  options.timeout_s = 0.2;
  const RunReport report = bench(options, closed(2, 2)).reports[0];
  EXPECT_EQ(report.errors.at("timeout"), 2);
}

TEST(ServeBench, DoneWithoutTheLastChunkIsAnAnswer) {
  const ScriptedServer server([](const Peer& peer, const ScriptedRequest&) {
    peer.send(kStreamHead + chunk(token_event()) + chunk(last_events(1, 1)));
    while (!peer.stopping() && !peer.client_left()) peer.pause(5);
    return false;
  });
  const ServeBenchResult result = bench(options_for(server), closed(1, 1));
  EXPECT_EQ(result.reports[0].ok, 1);
  EXPECT_LT(result.samples[0].requests[0].done, result.samples[0].requests[0].stamps[0] + 500'000'000);
}

TEST(ServeBench, AServerThatDiesEndsTheRun) {
  ScriptedServer* self = nullptr;
  ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    if (request.number == 5) self->die();
    peer.send(good_answer(4));
    return true;
  });
  self = &server;
  const RunReport report = bench(options_for(server), closed(1, 100'000)).reports[0];
  EXPECT_EQ(report.ok, 5);
  EXPECT_TRUE(report.server_gone);
  EXPECT_LT(report.failed, 1000);
}

TEST(ServeBench, NobodyThereIsSaidBeforeTheRun) {
  std::string port;
  { port = ScriptedServer(answer_at_once).port(); }
  ServeOptions options;
  options.target = {.host = "127.0.0.1", .port = port, .base_path = {}, .api_key = {}};
  options.loads = {closed(1, 1)};
  const Result<ServeBenchResult> result = run_serve_bench(options, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
}

TEST(ServeBench, TheStopFlagEndsARunWithWhatThereIs) {
  std::atomic<bool> stop = false;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    if (request.number < 3) {
      peer.send(good_answer(4));
      return true;
    }
    stop = true;
    while (!peer.stopping() && !peer.client_left()) peer.pause(5);
    return false;
  });
  ServeBenchHooks hooks;
  hooks.loop.stop = &stop;
  const ServeBenchResult result = bench(options_for(server), closed(1, 1000), hooks);
  EXPECT_EQ(result.reports[0].ok, 3);
  EXPECT_EQ(result.reports[0].cancelled, 1);
  EXPECT_TRUE(result.reports[0].interrupted);
  EXPECT_FALSE(result.all_answered());
}

TEST(ServeBench, WarmUpsAndSweepsSendPromptsOfTheirOwn) {
  std::mutex mutex;
  std::multiset<std::string> prompts;
  std::string head;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    {
      const std::lock_guard lock(mutex);
      prompts.insert(request.body);
      head = request.head;
    }
    peer.send(good_answer(4));
    return true;
  });
  ServeOptions options = options_for(server);
  options.target.api_key = "secret";
  options.target.base_path = "/proxy";
  options.warmup = 3;
  options.loads = {closed(1, 5), closed(4, 6)};
  const Result<ServeBenchResult> result = run_serve_bench(options, {});
  ASSERT_TRUE(result);
  ASSERT_EQ(result->reports.size(), 2U);
  EXPECT_EQ(result->reports[0].ok, 5);
  EXPECT_EQ(result->reports[1].ok, 6);
  EXPECT_EQ(prompts.size(), 3U + 5 + 3 + 6);
  EXPECT_EQ(std::set<std::string>(prompts.begin(), prompts.end()).size(), prompts.size());
  EXPECT_TRUE(head.starts_with("POST /proxy/v1/completions HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Authorization: Bearer secret\r\n"), std::string::npos);
}

TEST(ServeBench, ADurationEndsAClosedLoop) {
  const ScriptedServer server([](const Peer& peer, const ScriptedRequest&) {
    peer.pause(10);
    peer.send(good_answer(4));
    return true;
  });
  const ServeBenchResult result =
      bench(options_for(server), {.concurrency = 2, .requests = {}, .duration_s = 0.15});
  EXPECT_GE(result.reports[0].ok, 2);
  EXPECT_LE(server.requests(), 32);  // 15 rounds of 10 ms at most, and the two that end last
  EXPECT_FALSE(result.reports[0].interrupted);
  // Nor does a conversation go on.
  ServeOptions options = options_for(server);
  options.workload.turns = 1000;
  const ServeBenchResult talk = bench(options, {.concurrency = 2, .requests = {}, .duration_s = 0.15});
  EXPECT_GE(talk.reports[0].ok, 2);
  EXPECT_LE(talk.reports[0].ok, 32);
}

}  // namespace
}  // namespace barg::bench::serve_test
