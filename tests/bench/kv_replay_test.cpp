// A trace replayed with a model: what is read of a server's metrics, and the reports of a server and of an
// engine.
#include "bench/kv_replay.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/env.h"
#include "base/json.h"
#include "bench/kv_engine_loop.h"
#include "bench/kv_replay_output.h"
#include "engine/metrics.h"
#include "scripted_server.h"
#include "support/temp_dir.h"

namespace barg::bench::kv_replay_test {
namespace {

using testing::good_answer;
using testing::Peer;
using testing::ScriptedRequest;
using testing::ScriptedServer;

/// What a server with a DRAM tier says after `n` prompts of 100 tokens.
std::string metrics_after(int n) {
  const auto count = [&](const std::string& name, int value) {
    return name + " " + std::to_string(value) + "\n";
  };
  return "# HELP barg_kv_tier_queries_total Parts.\n" +
         count("vllm:prompt_tokens_total{model_name=\"m\",engine=\"0\"}", 1000 + 100 * n) +
         count("vllm:prompt_tokens_cached_total{model_name=\"m\",engine=\"0\"}", 70 + 50 * n) +
         count("barg_prompt_tokens_cached_total{model_name=\"m\",engine=\"0\",tier=\"device\"}",
               50 + 20 * n) +
         count("barg_prompt_tokens_cached_total{model_name=\"m\",engine=\"0\",tier=\"dram\"}", 20 + 30 * n) +
         count("barg_kv_tier_queries_total{model_name=\"m\",tier=\"dram\"}", 5 * n) +
         count("barg_kv_tier_hits_total{model_name=\"m\",tier=\"dram\"}", 4 * n) +
         count("barg_kv_tier_evictions_total{model_name=\"m\",tier=\"dram\"}", 10 * n) +
         count("barg_kv_tier_rereads_total{model_name=\"m\",tier=\"dram\"}", n) +
         count("barg_kv_tier_capacity_bytes{model_name=\"m\",tier=\"dram\"}", 4096) +
         count("barg_kv_restore_plans_total{model_name=\"m\",choice=\"reload\"}", 2 * n) +
         count("barg_kv_restore_plans_total{model_name=\"m\",choice=\"both\"}", 7) +
         "barg_kv_restore_actual_seconds_total{model_name=\"m\"} " + std::to_string(2.0 * n) + "\n" +
         "barg_kv_restore_regret_seconds_total{model_name=\"m\"} " + std::to_string(0.5 * n) + "\n" +
         count("barg_kv_store_dropped_total{model_name=\"m\",reason=\"slow\"}", 3 * n) +
         count("barg_kv_store_dropped_total{model_name=\"m\",reason=\"budget\"}", 9) +
         "barg_kv_waste_ratio{cause=\"tail\"} 0.25\n";
}

/// Three requests: the second and third begin as the first.
std::string trace_file() {
  return test::scratch().write(
      "replay.jsonl",
      "{\"timestamp\":0,\"input_length\":1024,\"output_length\":64,\"hash_ids\":[7,8]}\n"
      "{\"timestamp\":100,\"input_length\":1100,\"output_length\":64,\"hash_ids\":[7,8,9]}\n"
      "{\"timestamp\":200,\"input_length\":1536,\"output_length\":32,\"hash_ids\":[7,1,2]}\n");
}

ServeOptions options_for(int concurrency) {
  ServeOptions out;
  out.url = "here";
  out.body.model = "m";
  out.workload.token_ids = true;
  out.workload.trace_file = trace_file();
  out.workload.trace_scale = 1.0 / 16;
  out.workload.trace_speed = 10;
  ServeLoad load{.kind = ServeLoad::Kind::kTrace, .requests = {}, .duration_s = {}};
  if (concurrency > 0) load = {.concurrency = concurrency, .requests = {}, .duration_s = {}};
  out.loads = {load};
  return out;
}

/// Answers every request with its length's worth of tokens, on the thread that submits it, unless told
/// otherwise.
class PromptEngine final : public Engine {
 public:
  explicit PromptEngine(bool answers = true) : answers_(answers) { info_.vocab_size = 4000; }

  const EngineInfo& info() const override { return info_; }
  RequestId next_request_id() override { return RequestId{++last_}; }
  Result<void> admissible(std::int64_t) const override { return {}; }
  Result<void> check(const Request&) const override { return {}; }
  Result<void> submit(Request request, Sink sink) override {
    prompts.push_back(request.prompt);
    if (prompts.size() == refuse_at) return fail(ErrorCode::kContextLengthExceeded, "too long.");
    if (!answers_) {
      open_.emplace_back(request.id, std::move(sink));
      return {};
    }
    for (std::int32_t i = 0; i < request.sampling.max_tokens; ++i) {
      TokenEvent e;
      e.request = request.id;
      e.first_index = i;
      e.tokens.push_back({.id = 5, .logprobs = {}});
      if (i + 1 == request.sampling.max_tokens) e.finish = FinishReason::kLength;
      e.stats.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
      e.stats.cached_tokens = 16;
      sink(std::move(e));
    }
    return {};
  }
  bool forecast(std::shared_ptr<const Request>, std::function<void(const Forecast&)>) override { return false; }
  void cancel(RequestId id) override {
    for (auto& [open, sink] : open_) {
      if (open != id || !sink) continue;
      TokenEvent e;
      e.request = id;
      e.finish = FinishReason::kAbort;
      std::exchange(sink, {})(std::move(e));
    }
  }
  void finish_at(RequestId, std::int32_t, std::int32_t) override {}
  void pause(RequestId, bool) override {}
  void drain() override {}
  std::int64_t active() const override { return 0; }
  EngineMetrics metrics() const override { return EngineMetrics(64); }

  std::vector<std::vector<TokenId>> prompts;
  std::size_t refuse_at = 0;

 private:
  EngineInfo info_;
  bool answers_;
  std::uint64_t last_ = 0;
  std::vector<std::pair<RequestId, Sink>> open_;
};

Json report_of(const KvReplay& replay) {
  const auto json = parse_json(kv_replay_json(replay));
  EXPECT_TRUE(json) << json.error().message;
  return json ? *json : Json();
}

double number(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    at = at->find(key);
    if (at == nullptr || (!at->is_number() && !at->is_object())) return NAN;
  }
  return at->is_number() ? at->as_double() : NAN;
}

TEST(KvMetrics, FiguresAreAddedUpOverModels) {
  const KvFigures f = parse_kv_metrics(
      "barg_kv_tier_hits_total{model_name=\"a\",tier=\"disk\"} 3\r\n"
      "barg_kv_tier_hits_total{model_name=\"b\",tier=\"disk\"} 4 1700000000\n"
      "barg_kv_tier_hits_total{model_name=\"tier=\\\"dram\\\"\",tier=\"remote\"} 9\n"
      "barg_kv_tier_hits_total{model_name=\"c\",tier=\"moon\"} 5\n"
      "vllm:prompt_tokens_total 2.5e3\n");
  EXPECT_EQ(f.tiers[2].hits, 7.0);
  EXPECT_EQ(f.tiers[3].hits, 9.0);
  EXPECT_FALSE(f.tiers[1].hits);
  EXPECT_EQ(f.prompt_tokens, 2500.0);
  EXPECT_FALSE(f.cached_tokens);
}

TEST(KvMetrics, BargWithoutTiersHasOnePlace) {
  const std::string text = "vllm:prompt_tokens_cached_total{engine=\"0\"} 12\n";
  EXPECT_FALSE(parse_kv_metrics(text).tiers[0].cached_tokens);  // of another server, who knows
  EXPECT_EQ(parse_kv_metrics(text + "barg_build_info{version=\"1\"} 1\n").tiers[0].cached_tokens, 12.0);
}

TEST(KvMetrics, ARunIsTheDifferenceUnlessTheServerBeganAnew) {
  const KvFigures between =
      kv_figures_between(parse_kv_metrics(metrics_after(2)), parse_kv_metrics(metrics_after(5)));
  EXPECT_EQ(between.prompt_tokens, 300.0);
  EXPECT_EQ(between.tiers[1].rereads, 3.0);
  EXPECT_EQ(between.reloads, 6.0);
  EXPECT_EQ(between.both, 0.0);
  EXPECT_EQ(between.tiers[1].capacity_bytes, 4096.0);  // a state
  EXPECT_EQ(between.waste_tail, 0.25);
  EXPECT_EQ(between.dropped, (std::map<std::string, double>{{"slow", 9}}));
  const KvFigures anew =
      kv_figures_between(parse_kv_metrics(metrics_after(5)), parse_kv_metrics(metrics_after(2)));
  EXPECT_FALSE(anew.prompt_tokens);
  EXPECT_FALSE(anew.tiers[1].hits);
}

TEST(KvMetrics, WhateverAServerSends) {
  for (const char* text :
       {"", "\n\n", "{", "a{", "a{b=\"", "a{b=\"\\", "a{}", "a{} ", "a 1e999", "a nan", "a{=} 1",
        "barg_kv_tier_hits_total{tier} 1", "barg_kv_tier_hits_total{tier=\"dram\"} x",
        "barg_kv_tier_hits_total{tier=\"dram} 1", "barg_kv_tier_hits_total 1 2 3"}) {
    const KvFigures f = parse_kv_metrics(text);
    for (const KvTierFigures& t : f.tiers) EXPECT_FALSE(t.hits) << text;
  }
  Rng rng(5);
  const std::string good = metrics_after(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (std::uint64_t n = 1 + rng.below(20); n > 0; --n) {
      text[rng.below(text.size())] = "{}\"\\=, \n0x\xff"[rng.below(11)];
    }
    text.resize(rng.below(text.size() + 1));
    (void)kv_figures_between(parse_kv_metrics(good), parse_kv_metrics(text));
  }
}

TEST(KvReplay, EqualBlocksAreEqualTokensAndTheReportSaysWhatTheTiersDid) {
  std::mutex mutex;
  std::vector<Json> prompts;
  const ScriptedServer server([&](const Peer& peer, const ScriptedRequest& request) {
    const auto json = parse_json(request.body);
    {
      const std::lock_guard lock(mutex);
      prompts.push_back(*json->find("prompt"));
    }
    peer.send(good_answer(static_cast<int>(json->find("max_tokens")->as_int())));
    return true;
  });
  ServeOptions options = options_for(0);
  options.url = server.url();
  options.target = {.host = "127.0.0.1", .port = server.port(), .base_path = {}, .api_key = {}};
  std::atomic<int> readings = 0;
  const auto replay = replay_on_server(
      options, {}, [&]() -> std::optional<std::string> { return metrics_after(readings++ == 0 ? 0 : 3); });
  ASSERT_TRUE(replay) << replay.error().message;
  EXPECT_TRUE(replay->all_answered());
  EXPECT_GE(readings, 2);
  ASSERT_EQ(prompts.size(), 3U);
  std::sort(prompts.begin(), prompts.end(), [](const Json& a, const Json& b) { return a.size() < b.size(); });
  EXPECT_EQ(prompts[0].size(), 64U);
  EXPECT_EQ(prompts[1].size(), 69U);
  EXPECT_EQ(prompts[2].size(), 96U);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(prompts[0].as_array()[i], prompts[1].as_array()[i]);
    if (i < 32) {
      EXPECT_EQ(prompts[0].as_array()[i], prompts[2].as_array()[i]);
    }
  }
  EXPECT_NE(prompts[0].as_array()[32], prompts[2].as_array()[32]);
  const Json json = report_of(*replay);
  EXPECT_EQ(json.find("mode")->as_string(), "server");
  EXPECT_EQ(number(json, {"run", "requests", "ok"}), 3);
  EXPECT_GT(number(json, {"run", "ttft_ms", "p99"}), 0);
  EXPECT_EQ(number(json, {"prompt_tokens"}), 300);
  EXPECT_EQ(number(json, {"hit_rate"}), 0.5);
  const auto& tiers = json.find("tiers")->as_array();
  ASSERT_EQ(tiers.size(), kKvPlaces);
  EXPECT_EQ(number(tiers[0], {"hit_rate"}), 0.2);
  EXPECT_EQ(number(tiers[1], {"hit_rate"}), 0.3);
  EXPECT_EQ(number(tiers[1], {"reread_ratio"}), 0.1);
  EXPECT_TRUE(tiers[2].find("hits")->is_null());
  EXPECT_EQ(number(json, {"restores", "reload"}), 6);
  EXPECT_EQ(number(json, {"restores", "regret_ratio"}), 0.25);
  EXPECT_EQ(number(json, {"restores", "dropped", "slow"}), 9);
  EXPECT_NE(kv_replay_table(*replay).find("dram"), std::string::npos);
  EXPECT_EQ(kv_replay_table(*replay).find("remote"), std::string::npos);  // it has no such tier
}

TEST(KvReplay, AServerWithoutMetricsIsMeasuredAllTheSame) {
  const ScriptedServer server([](const Peer& peer, const ScriptedRequest&) {
    peer.send(good_answer(2));
    return true;
  });
  ServeOptions options = options_for(2);
  options.target = {.host = "127.0.0.1", .port = server.port(), .base_path = {}, .api_key = {}};
  for (const char* text : {"", "vllm_of_another_kind 1\n"}) {
    const auto replay = replay_on_server(options, {}, [&]() -> std::optional<std::string> {
      return *text == 0 ? std::nullopt : std::optional<std::string>(text);
    });
    ASSERT_TRUE(replay) << replay.error().message;
    EXPECT_EQ(replay->report.ok, 3);
    EXPECT_NE(kv_replay_table(*replay).find("not known"), std::string::npos);
    const Json json = report_of(*replay);
    EXPECT_TRUE(json.find("hit_rate")->is_null());
    EXPECT_TRUE(json.find("restores")->find("reload")->is_null());
    EXPECT_TRUE(json.find("waste")->find("tail")->is_null());
    for (const Json& tier : json.find("tiers")->as_array())
      EXPECT_TRUE(tier.find("cached_tokens")->is_null());
    std::set<std::string> names;
    for (const auto& [name, svg] : kv_replay_plots(*replay)) {
      names.insert(name);
      EXPECT_TRUE(svg.starts_with("<svg ")) << name;
    }
    EXPECT_TRUE(names.contains("ttft.svg") && names.contains("kv_hits.svg"));
  }
}

TEST(KvReplay, AnEngineInThisProcessGetsTheSamePrompts) {
  for (const int concurrency : {0, 1, 3}) {
    PromptEngine engine;
    const auto replay = replay_on_engine(engine, options_for(concurrency), {}, {});
    ASSERT_TRUE(replay) << replay.error().message;
    EXPECT_EQ(replay->mode, "engine");
    EXPECT_TRUE(replay->all_answered());
    ASSERT_EQ(engine.prompts.size(), 3U);
    EXPECT_EQ(engine.prompts[0].size(), 64U);
    EXPECT_TRUE(std::equal(engine.prompts[0].begin(), engine.prompts[0].end(), engine.prompts[1].begin()));
    EXPECT_NE(engine.prompts[1][40], engine.prompts[2][40]);
    EXPECT_EQ(replay->report.output_tokens, 4 + 4 + 2);
    EXPECT_EQ(replay->report.input_tokens, 64 + 69 + 96);
    EXPECT_EQ(replay->report.cached_tokens, 48);
    if (concurrency == 0) {  // the trace's times, at 10x: however late they left
      for (const RequestSample& r : replay->samples.requests)
        EXPECT_EQ(r.intended, static_cast<std::int64_t>(r.conversation) * 10'000'000);
    }
    for (const RequestSample& s : replay->samples.requests) {
      EXPECT_EQ(s.stamps.size(), static_cast<std::size_t>(s.output_asked));
      EXPECT_GE(s.stamps.front(), s.intended);
      EXPECT_GE(s.done, s.stamps.back());
    }
  }
}

TEST(KvReplay, WhatTheEngineRefusesIsCounted) {
  PromptEngine engine;
  engine.refuse_at = 2;
  const auto replay = replay_on_engine(engine, options_for(1), {}, {});
  ASSERT_TRUE(replay);
  EXPECT_EQ(replay->report.ok, 2);
  EXPECT_EQ(replay->report.errors.at("too_long"), 1);
  EXPECT_FALSE(replay->all_answered());
}

TEST(KvReplay, AnInterruptCancelsWhatGoesOn) {
  PromptEngine engine(false);
  std::atomic<bool> stop = false;
  const ServeHooks hooks{.progress = [&](const ServeProgress& p) { stop = p.in_flight == 2; }, .stop = &stop};
  const auto replay = replay_on_engine(engine, options_for(2), hooks, {});
  ASSERT_TRUE(replay);
  EXPECT_TRUE(replay->report.interrupted);
  EXPECT_EQ(replay->report.cancelled, 2);
  EXPECT_EQ(replay->report.failed, 0);
  EXPECT_FALSE(replay->all_answered());
}

TEST(KvReplay, IdsAreReadUpToWhatIsNone) {
  EXPECT_EQ(parse_ids("1,22,333"), (std::vector<TokenId>{1, 22, 333}));
  EXPECT_EQ(parse_ids(""), std::vector<TokenId>{});
  EXPECT_EQ(parse_ids("4,x"), std::vector<TokenId>{4});
  EXPECT_EQ(parse_ids("5,99999999999"), std::vector<TokenId>{5});
}

}  // namespace
}  // namespace barg::bench::kv_replay_test
