// Named behaviours of the scheduler: sharing in flight, windows, latency, refusals, ends, order.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/sim.h"

namespace barg::test::scheduler_test {
namespace {

SimConfig roomy() {
  SimConfig c;
  c.groups = {{0, 2000}};
  c.max_model_len = 30000;
  c.budget = 512;
  c.max_num_seqs = 64;
  c.prompt_max = 4000;
  c.vocab = 1000;
  c.itl_target_ms = 1e6;
  c.stretch_max = 1e9;
  return c;
}

// ---- one computation per block

TEST(Sharing, TwoEqualPromptsInOneTickComputeEachFullBlockOnce) {
  for (std::int32_t block : {16, 32, 64}) {
    for (int depth : {0, 1, 2}) {
      SCOPED_TRACE("block " + std::to_string(block) + " depth " + std::to_string(depth));
      SimConfig c = roomy();
      c.block_tokens = block;
      c.pipeline_depth = depth;
      Sim sim(c, 1);
      const auto prompt = sim.random_tokens(2000);
      const RequestId a = sim.submit(make_request(prompt, 4)), b = sim.submit(make_request(prompt, 4));
      sim.drain();
      sim.finish_checks();
      // The second computes what no full block holds (at least its last token), then both decode 3 rows.
      const std::int64_t rest = std::max(1, 2000 % block);
      EXPECT_EQ(sim.device().computed(), 2000 + rest + 2 * 3);
      EXPECT_EQ(sim.delivered(a).stats.cached_tokens, 0);
      EXPECT_EQ(sim.delivered(b).stats.cached_tokens, 2000 - rest);
      EXPECT_GT(sim.scheduler().counters().deferrals, 0U);
    }
  }
}

TEST(Sharing, ChoicesComputeThePromptOnce) {
  SimConfig c = roomy();
  c.pipeline_depth = 1;
  Sim sim(c, 2);
  auto r = make_request(sim.random_tokens(2000), 5);
  r->n = 4;
  sim.submit(r);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.device().computed(), 2000 + 3 * 1 + 4 * 4);
}

TEST(Sharing, ChoiceZeroEqualsASingleChoice) {
  Sim sim(roomy(), 3);
  auto one = make_request(sim.random_tokens(50), 20), many = make_request(one->prompt, 20);
  many->n = 3;
  const RequestId a = sim.submit(one), b = sim.submit(many);
  sim.drain();
  EXPECT_EQ(sim.delivered(a).tokens, sim.delivered(b, 0).tokens);
  EXPECT_NE(sim.delivered(b, 0).tokens, sim.delivered(b, 1).tokens);
}

TEST(Sharing, TenantsDoNotShare) {
  Sim sim(roomy(), 4);
  auto a = make_request(sim.random_tokens(400), 2), b = make_request(a->prompt, 2);
  b->cache_salt = "tenant";
  sim.submit(a);
  sim.submit(b);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.scheduler().counters().prefix_hits, 0U);
}

// Proves that the shadow memory sees wrong reuse: with keys of 4 bits unrelated prefixes collide.
Digest weak_key(const Digest& parent, const kv::TokenView& log, std::int32_t index, std::int32_t block) {
  Digest d = kv::block_key(parent, log, index, block);
  d[0] &= 0x0F;
  std::fill(d.begin() + 1, d.end(), std::uint8_t{0});
  return d;
}
TEST(Sharing, PlantedCollisionsAreNoticed) {
  SimConfig c = roomy();
  c.key = &weak_key;
  c.check_every_step = false;
  Sim sim(c, 5);
  for (int i = 0; i < 20; ++i) sim.submit(make_request(sim.random_tokens(64), 4));
  sim.drain();
  EXPECT_NE(sim.errors_in_device().find("wrong content"), std::string::npos);
}

TEST(Sharing, ScoredPromptsAreComputedInFullAndEqualWarmOrCold) {
  Sim sim(roomy(), 6);
  auto plain = make_request(sim.random_tokens(320), 2);
  sim.submit(plain);
  sim.drain();
  auto scored = make_request(plain->prompt, 0);
  scored->sampling.prompt_logprobs = 0;
  scored->n = 2;
  const RequestId id = sim.submit(scored);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(id).prompt_logprobs.size(), 320U);
  EXPECT_EQ(sim.delivered(id).stats.cached_tokens, 0);
  EXPECT_EQ(sim.delivered(id, 1).stats.cached_tokens, 319);  // other choices score nothing
}

// ---- windows

TEST(Window, ASequenceOf16kTokensHoldsAtMostItsWindowAndTwoBlocks) {
  for (int depth : {0, 2}) {
    for (std::int32_t block : {16, 64}) {
      SimConfig c = roomy();
      c.block_tokens = block;
      c.groups = {{0, 17000 / block}, {1024, 4096 / block}};
      c.pipeline_depth = depth;
      c.check_every_step = false;
      c.prefix_caching = block == 64;
      Sim sim(c, 7);
      sim.submit(make_request(sim.random_tokens(16000), 400));
      std::int64_t most_decoding = 0, most = 0;
      while (sim.scheduler().unfinished() > 0) {
        sim.step();
        if (sim.scheduler().running().empty()) continue;
        const sched::Sequence& s = *sim.scheduler().running().front();
        const std::int64_t held = sim.scheduler().kv().held(s.kv, 1);
        // While a chunk is computed, its own rows are held beside the window.
        most = std::max(most, held - (s.scheduled - s.processed) / block);
        if (s.processed > 16000) most_decoding = std::max(most_decoding, held);
      }
      EXPECT_LE(most, 1024 / block + 2);
      EXPECT_LE(most_decoding, 1024 / block + 2);
      EXPECT_GE(most_decoding, 1024 / block);
      EXPECT_EQ(sim.errors_in_device(), "");
      sim.scheduler().check_integrity();
    }
  }
}

TEST(Window, HybridHitsAreWhatEveryGroupServes) {
  SimConfig c = roomy();
  c.groups = {{0, 400}, {64, 40}};
  Sim sim(c, 8);
  const auto prompt = sim.random_tokens(320);
  sim.submit(make_request(prompt, 2));
  sim.drain();
  auto longer = prompt;
  longer.resize(352, 9);
  const RequestId warm = sim.submit(make_request(longer, 2));
  sim.drain();
  EXPECT_EQ(sim.delivered(warm).stats.cached_tokens, 320);
  // Push the window parts out of their small pool; the full part alone serves nothing. What is read twice can.
  for (int i = 0; i < 4; ++i) {
    auto other = sim.random_tokens(600);
    for (int again = 0; again < 3; ++again) {
      sim.submit(make_request(other, 2));
      sim.drain();
    }
  }
  const RequestId cold = sim.submit(make_request(longer, 2));
  sim.drain();
  sim.finish_checks();
  EXPECT_LT(sim.delivered(cold).stats.cached_tokens, 320);
}

// ---- latency

double worst_gap(Sim& sim, const std::vector<RequestId>& ids, double since) {
  double worst = 0;
  for (RequestId id : ids) {
    const auto& t = sim.delivered(id).times;
    for (std::size_t i = 1; i < t.size(); ++i) {
      if (t[i - 1] >= since) worst = std::max(worst, t[i] - t[i - 1]);
    }
  }
  return worst;
}

TEST(Latency, AHugePromptBesideDecodesKeepsTheInterTokenTarget) {
  for (int depth : {0, 1, 2}) {
    SimConfig c = roomy();
    c.groups = {{0, 8000}};
    c.max_model_len = 120000;
    c.pipeline_depth = depth;
    c.budget = 2048;
    c.itl_target_ms = 50;  // a row costs 0.2 ms: about 240 rows
    c.check_every_step = false;
    Sim sim(c, 9);
    std::vector<RequestId> decodes;
    for (int i = 0; i < 8; ++i) decodes.push_back(sim.submit(make_request(sim.random_tokens(64), 3000)));
    for (int i = 0; i < 20; ++i) sim.step();
    const double since = sim.now();
    const RequestId huge = sim.submit(make_request(sim.random_tokens(100000), 2));
    std::int64_t steps = 0;
    while (sim.delivered(huge).tokens.empty() && ++steps < 20000) sim.step();
    EXPECT_FALSE(sim.delivered(huge).tokens.empty());
    EXPECT_LE(worst_gap(sim, decodes, since), 1.5 * 0.050) << "depth " << depth;
    EXPECT_LT(steps, 900) << "the prompt crawls";
    for (RequestId id : decodes) sim.cancel(id);
    sim.drain();
  }
}

TEST(Latency, ChunksShrinkWithin20StepsWhenCostsDouble) {
  SimConfig c = roomy();
  c.groups = {{0, 8000}};
  c.max_model_len = 120000;
  c.budget = 2048;
  c.itl_target_ms = 50;
  c.check_every_step = false;
  Sim sim(c, 10);
  for (int i = 0; i < 8; ++i) sim.submit(make_request(sim.random_tokens(64), 3000));
  for (int i = 0; i < 20; ++i) sim.step();
  sim.submit(make_request(sim.random_tokens(100000), 2));
  for (int i = 0; i < 60; ++i) sim.step();
  EXPECT_NEAR(sim.last_step_s(), 0.048, 0.004);  // chunks end at block boundaries: 3.2 ms a block
  sim.slowness = 2;
  sim.step();
  EXPECT_GT(sim.last_step_s(), 0.088);
  for (int i = 0; i < 20; ++i) sim.step();
  for (int i = 0; i < 20; ++i) {
    sim.step();
    EXPECT_LE(sim.last_step_s(), 1.1 * 0.050);
    EXPECT_GE(sim.last_step_s(), 0.8 * 0.050);
  }
}

TEST(Latency, PrefillStretchesAStepByAtMostThreeDecodes) {
  for (const int streams : {4, 16, 60}) {
    SimConfig c = roomy();
    c.groups = {{0, 8000}};
    c.max_model_len = 120000;
    c.budget = 2048;
    c.itl_target_ms = 100;
    c.stretch_max = 3;
    c.check_every_step = false;
    Sim sim(c, 13);
    for (int i = 0; i < streams; ++i) sim.submit(make_request(sim.random_tokens(64), 3000));
    for (int i = 0; i < 40; ++i) sim.step();
    const double decodes = sim.last_step_s();
    sim.submit(make_request(sim.random_tokens(50000), 2));
    for (int i = 0; i < 30; ++i) sim.step();
    const double most = std::max(3 * decodes, 0.100 / 3);
    for (int i = 0; i < 30; ++i) {
      sim.step();
      EXPECT_LE(sim.last_step_s(), 1.1 * most) << streams << " streams";
      EXPECT_GE(sim.last_step_s(), 0.7 * most) << streams << " streams: the prompt gets what it may have";
    }
  }
}

double noisy_cost(const Sim& sim, const sched::StepPlan& plan) {
  const double jitter =
      static_cast<double>(mix(static_cast<std::uint64_t>(plan.id), 3) % 1000) / 1000;  // 0..1
  const bool stall = static_cast<std::uint64_t>(plan.id) % 37 == 0;
  return Sim::default_cost(sim, plan) * (0.8 + 0.4 * jitter) * (stall ? 10 : 1);
}

TEST(Latency, NoiseAndStallsDoNotCollapseTheChunks) {
  SimConfig c = roomy();
  c.groups = {{0, 8000}};
  c.max_model_len = 120000;
  c.budget = 2048;
  c.itl_target_ms = 50;
  c.check_every_step = false;
  Sim sim(c, 11);
  sim.set_cost(&noisy_cost);
  for (int i = 0; i < 8; ++i) sim.submit(make_request(sim.random_tokens(64), 3000));
  for (int i = 0; i < 20; ++i) sim.step();
  sim.submit(make_request(sim.random_tokens(100000), 2));
  for (int i = 0; i < 60; ++i) sim.step();
  std::vector<double> clean;
  for (int i = 0; i < 200; ++i) {
    const auto before = sim.device().computed();
    sim.step();
    clean.push_back(static_cast<double>(sim.device().computed() - before));
  }
  std::sort(clean.begin(), clean.end());
  EXPECT_GT(clean[0], 80) << "chunks of about 200 rows are right, also behind a stall";
  EXPECT_LT(clean[190], 330);
}

TEST(Latency, AShortPromptPassesLongOnesInTheMiddleOfTheirPrefill) {
  SimConfig c = roomy();
  c.groups = {{0, 9000}};
  c.max_model_len = 30000;
  c.itl_target_ms = 50;
  c.check_every_step = false;
  Sim sim(c, 24);
  for (int i = 0; i < 6; ++i) sim.submit(make_request(sim.random_tokens(20000), 2));
  for (int i = 0; i < 10; ++i) sim.step();
  const RequestId quick = sim.submit(make_request(sim.random_tokens(20), 3));
  int steps = 0;
  while (sim.delivered(quick).tokens.empty() && ++steps < 100) sim.step();
  EXPECT_LE(steps, 2);
  sim.drain();
  sim.finish_checks();
}

double unit_cost(const Sim&, const sched::StepPlan&) { return 1; }

TEST(Latency, EveryoneRunningIsServedWhenTheBudgetIsSmallerThanTheirNumber) {
  for (std::int32_t budget : {1, 2, 3, 8}) {
    SimConfig c = roomy();
    c.budget = budget;
    Sim sim(c, 12);
    sim.set_cost(&unit_cost);  // times are step numbers
    std::vector<RequestId> ids;
    for (int i = 0; i < 14; ++i) ids.push_back(sim.submit(make_request(sim.random_tokens(40), 100)));
    std::size_t most = 0;
    while (sim.scheduler().unfinished() > 0) {
      sim.step();
      most = std::max(most, sim.scheduler().running().size());
    }
    sim.finish_checks();
    const double turn = std::ceil(static_cast<double>(most) / budget);
    EXPECT_LE(worst_gap(sim, ids, 0), turn) << "budget " << budget;
    for (RequestId id : ids) {
      const auto& s = sim.delivered(id).stats;
      EXPECT_LE(s.first_token_s - s.first_scheduled_s, 40 * (turn + 1)) << "budget " << budget;
    }
  }
}

// ---- waste

TEST(Waste, OfARealisticMixIsTheAnalyticValueAndUnderFourPercent) {
  // Lengths like ShareGPT's: log-normal prompts (median ~110) and answers (median ~180), long tails, cut at
  // 2048.
  SimConfig c = roomy();
  c.groups = {{0, 6000}};
  c.check_every_step = false;
  c.max_num_seqs = 256;
  c.budget = 4096;
  c.vocab = 30000;
  Sim sim(c, 13);
  Rng rng(5);
  const auto normal = [&rng] {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += rng.uniform();
    return sum - 6;
  };
  for (int i = 0; i < 128; ++i) {
    const auto prompt = std::clamp(static_cast<int>(std::exp(4.7 + 1.3 * normal())), 4, 1024);
    const auto output = std::clamp(static_cast<int>(std::exp(5.2 + 0.9 * normal())), 4, 1024);
    sim.submit(make_request(sim.random_tokens(prompt), output));
  }
  double waste = 0, samples = 0, worst = 0;
  while (sim.scheduler().unfinished() > 0) {
    sim.step();
    if (sim.scheduler().running().empty()) continue;
    std::int64_t slots = 0, empty = 0;
    for (const sched::Sequence* s : sim.scheduler().running()) {
      const std::int64_t blocks = (s->scheduled + 15) / 16;
      slots += blocks * 16;
      empty += blocks * 16 - s->scheduled;
    }
    const kv::Usage u = sim.scheduler().kv().usage();
    EXPECT_EQ(u.groups[0].allocated_tokens, slots);  // unrelated prompts: nothing is shared
    EXPECT_EQ(u.groups[0].waste_tail, empty);
    EXPECT_EQ(u.groups[0].waste_reserved + u.groups[0].waste_fenced, 0);
    EXPECT_DOUBLE_EQ(u.waste_tail, static_cast<double>(empty) / static_cast<double>(slots));
    if (sim.scheduler().running().size() < 64) continue;
    waste += u.waste_tail;
    worst = std::max(worst, u.waste_tail);
    ++samples;
  }
  EXPECT_GT(samples, 50);
  EXPECT_LE(waste / samples, 0.04);
  RecordProperty("kv_waste_mean", std::to_string(waste / samples));
  RecordProperty("kv_waste_worst", std::to_string(worst));
}

// ---- refusals

TEST(Refusal, WhatCannotFitAloneIsRefusedByName) {
  SimConfig c;
  c.groups = {{0, 10}};  // 160 tokens
  c.max_model_len = 1000;
  sched::Scheduler s(c.scheduler());
  const auto code = [&s](std::int32_t prompt, std::int32_t max_tokens) {
    const auto ok =
        s.check_request(*make_request(std::vector<TokenId>(static_cast<std::size_t>(prompt), 1), max_tokens));
    return ok ? std::string("ok")
              : ok.error().param + (ok.error().code == ErrorCode::kContextLengthExceeded ? "!" : "");
  };
  EXPECT_EQ(code(0, 1), "prompt");
  EXPECT_EQ(code(1, -1), "max_tokens");
  EXPECT_EQ(code(160, 1), "ok");
  EXPECT_EQ(code(161, 1), "prompt!");
  EXPECT_EQ(code(150, 11), "ok");  // the last token's KV is never computed
  EXPECT_EQ(code(150, 12), "max_tokens");
  EXPECT_EQ(code(160, 0), "ok");
  EXPECT_EQ(code(1, 2'000'000'000), "max_tokens");
  SimConfig wide = c;
  wide.groups = {{0, 1000}};
  wide.max_model_len = 100;
  sched::Scheduler w(wide.scheduler());
  EXPECT_TRUE(w.check_request(*make_request(std::vector<TokenId>(99, 1), 2'000'000'000)).has_value());
  const auto refused = w.check_request(*make_request(std::vector<TokenId>(100, 1), 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kContextLengthExceeded);
  EXPECT_NE(refused.error().message.find("100 tokens"), std::string::npos);
  EXPECT_TRUE(w.check_request(*make_request(std::vector<TokenId>(100, 1), 0)).has_value());
}

TEST(Refusal, TheLargestRequestThatFitsFinishesInATightPool) {
  for (int depth : {0, 1, 2}) {
    SimConfig c;
    c.groups = {{0, 10}, {20, 3}};
    c.pipeline_depth = depth;
    c.max_model_len = 1000;
    Sim sim(c, 14);
    const RequestId a = sim.submit(make_request(sim.random_tokens(80), 81));
    const RequestId b = sim.submit(make_request(sim.random_tokens(160), 1));
    sim.drain();
    sim.finish_checks();
    EXPECT_EQ(sim.delivered(a).tokens.size(), 81U);
    EXPECT_EQ(sim.delivered(b).tokens.size(), 1U);
  }
}

TEST(Refusal, ThePoolsOwnPromptCanBeServedAgainFromItsCache) {
  SimConfig c;
  c.groups = {{0, 4}};
  Sim sim(c, 15);
  const auto prompt = sim.random_tokens(64);
  sim.submit(make_request(prompt, 1));
  sim.drain();
  const RequestId again = sim.submit(make_request(prompt, 1));
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(again).stats.cached_tokens, 48);  // no room for a copy of the last block
}

// ---- ends

TEST(Ends, LengthStopIdsAndTheModelsLength) {
  SimConfig c = roomy();
  c.max_model_len = 40;
  Sim sim(c, 16);
  auto by_model = make_request(sim.random_tokens(30), 1000);
  auto by_id = make_request(sim.random_tokens(10), 30);
  Truth truth(by_id, 0, c.vocab);
  by_id->sampling.stop_token_ids = {truth.token(14)};
  const RequestId a = sim.submit(by_model), b = sim.submit(by_id);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(a).tokens.size(), 10U);
  EXPECT_EQ(sim.delivered(a).finish, FinishReason::kLength);
  EXPECT_EQ(sim.delivered(b).finish, FinishReason::kStop);
  EXPECT_LE(sim.delivered(b).tokens.size(), 5U);
}

TEST(Ends, CancelIsLegalInEveryState) {
  for (int depth : {0, 1, 2}) {
    for (int steps = 0; steps < 12; ++steps) {  // waiting, mid-prompt, in flight, decoding, finishing, gone
      SimConfig c = roomy();
      c.budget = 16;
      c.pipeline_depth = depth;
      Sim sim(c, 17);
      const RequestId id = sim.submit(make_request(sim.random_tokens(60), 4));
      for (int i = 0; i < steps; ++i) i % 2 == 0 ? static_cast<void>(sim.plan()) : sim.step();
      sim.cancel(id);
      sim.cancel(id);
      sim.cancel(static_cast<RequestId>(999));
      sim.finish_at(id, 0, 1);
      sim.drain();
      sim.finish_checks();
    }
  }
}

TEST(Ends, CancelEndsAllChoices) {
  Sim sim(roomy(), 18);
  auto r = make_request(sim.random_tokens(40), 50);
  r->n = 8;
  const RequestId id = sim.submit(r);
  for (int i = 0; i < 4; ++i) sim.step();
  sim.cancel(id);
  for (int k = 0; k < 8; ++k) EXPECT_EQ(sim.delivered(id, k).finish, FinishReason::kAbort);
  sim.drain();
  sim.finish_checks();
}

sched::StepResult results_of(const sched::StepPlan& p) {
  sched::StepResult r{.id = p.id, .items = {}, .seconds = 1e-3, .fatal = {}};
  for (const auto& i : p.items) {
    sched::ItemResult x{
        .seq = i.seq, .epoch = i.epoch, .position = i.start + i.count, .tokens = {}, .prompt_logprobs = {}};
    if (i.sample) x.tokens.push_back({.id = 5, .logprobs = {}});
    r.items.push_back(std::move(x));
  }
  return r;
}

TEST(Ends, BadLogitsFailOneRequestAndNoOther) {
  sched::Scheduler s(roomy().scheduler());
  for (std::uint64_t k : {1, 2}) {
    auto r = make_request({1, 2, static_cast<TokenId>(k)}, 3);
    r->id = static_cast<RequestId>(k);
    r->n = 2;
    for (std::uint64_t c : {0, 1})
      ASSERT_TRUE(s.add({static_cast<SeqId>(10 * k + c), r, static_cast<std::int32_t>(c)}, 0));
  }
  auto p = s.plan(0);
  ASSERT_TRUE(p && p->items.size() == 4);
  auto result = results_of(*p);
  result.items[0].status = sched::ItemStatus::kBadLogits;
  result.items[0].tokens.clear();
  const auto effects = s.apply(std::move(result), 1);
  int failed = 0;
  for (const auto& e : effects.events) failed += e.finish == FinishReason::kError ? 1 : 0;
  EXPECT_EQ(failed, 2);
  EXPECT_EQ(effects.released.size(), 2U);
  EXPECT_EQ(s.unfinished(), 2);
  s.check_integrity();
}

TEST(Ends, ALostDeviceFailsEveryRequestOnce) {
  SimConfig c = roomy();
  c.pipeline_depth = 2;
  sched::Scheduler s(c.scheduler());
  for (std::uint64_t k : {1, 2, 3}) {
    auto r = make_request({1, 2, static_cast<TokenId>(k)}, 9);
    r->id = static_cast<RequestId>(k);
    ASSERT_TRUE(s.add({static_cast<SeqId>(k), r, 0}, 0));
  }
  auto first = s.plan(0);
  ASSERT_TRUE(first && s.plan(0) && s.plan(0));
  s.cancel(static_cast<RequestId>(2), 0);
  auto result = results_of(*first);
  result.fatal = Error{ErrorCode::kInternal, "device lost", "", 0};
  const auto effects = s.apply(std::move(result), 1);
  EXPECT_EQ(effects.events.size(), 2U);
  EXPECT_EQ(effects.released.size(), 3U);
  EXPECT_EQ(s.unfinished() + s.outstanding_plans(), 0);
  EXPECT_FALSE(s.plan(2).has_value());
  s.check_integrity();
}

// ---- order

TEST(Order, BetterClassesEnterFirstAndWaitingAges) {
  SimConfig c = roomy();
  c.max_num_seqs = 1;
  Sim sim(c, 19);
  auto batch = make_request(sim.random_tokens(8), 4);
  batch->priority = Priority::kBatch;
  const RequestId b = sim.submit(batch);
  auto interactive = make_request(sim.random_tokens(8), 4);
  interactive->priority = Priority::kInteractive;
  const RequestId i = sim.submit(interactive);
  sim.drain();
  EXPECT_LT(sim.delivered(i).times.front(), sim.delivered(b).times.front());
  // A stream of interactive requests cannot hold a batch request back for ever (0.5 s a class here).
  batch = std::make_shared<Request>(*batch);
  const RequestId old = sim.submit(batch);
  const double start = sim.now();
  for (int k = 0; k < 5000 && sim.delivered(old).times.empty(); ++k) {
    if (sim.scheduler().facts().waiting < 3) sim.submit(std::make_shared<Request>(*interactive));
    sim.step();
  }
  ASSERT_FALSE(sim.delivered(old).times.empty());
  EXPECT_LT(sim.delivered(old).times.front() - start, 1.2);
  sim.drain();
}

TEST(Order, AHeavyHeadIsOvertakenAtMostEightTimes) {
  SimConfig c;
  c.groups = {{0, 40}};
  c.max_model_len = 640;
  c.prompt_max = 600;
  c.max_num_seqs = 16;
  c.vocab = 30000;
  Sim sim(c, 20);
  sim.submit(make_request(sim.random_tokens(300), 200));  // holds half of the pool for long
  for (int k = 0; k < 12; ++k) sim.step();
  const RequestId heavy = sim.submit(make_request(sim.random_tokens(400), 2));
  for (int k = 0; k < 30; ++k) sim.submit(make_request(sim.random_tokens(16), 4));
  const auto admitted = [&sim](RequestId id) {
    const auto& r = sim.scheduler().running();
    return std::any_of(r.begin(), r.end(), [id](const sched::Sequence* s) { return s->request->id == id; });
  };
  while (!admitted(heavy) && !HasFailure()) sim.step();
  EXPECT_EQ(sim.scheduler().counters().bypasses, 8U);
  sim.drain();
  sim.finish_checks();
}

TEST(Order, PreemptionTakesTheLowestClassThenTheYoungest) {
  SimConfig c;
  c.groups = {{0, 12}};
  c.max_model_len = 192;
  c.vocab = 30000;
  c.watermark = 0;
  c.prompt_max = 160;
  Sim sim(c, 21);
  std::vector<RequestId> ids;
  for (Priority p : {Priority::kStandard, Priority::kBatch, Priority::kInteractive, Priority::kStandard}) {
    auto r = make_request(sim.random_tokens(40), 60);
    r->priority = p;
    ids.push_back(sim.submit(r));
  }
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(ids[2]).stats.preemptions, 0);  // best class, first in
  EXPECT_GT(sim.delivered(ids[1]).stats.preemptions, 0);
  EXPECT_GE(sim.delivered(ids[1]).stats.preemptions, sim.delivered(ids[3]).stats.preemptions);
}

TEST(Order, ThePausedGiveTheirPlacesAndBlocksToTheOthers) {
  SimConfig c = roomy();
  c.max_num_seqs = 2;
  Sim sim(c, 22);
  const RequestId a = sim.submit(make_request(sim.random_tokens(100), 50));
  const RequestId b = sim.submit(make_request(sim.random_tokens(100), 50));
  const RequestId waiting = sim.submit(make_request(sim.random_tokens(100), 50));
  for (int k = 0; k < 5; ++k) sim.step();
  const auto before = sim.delivered(a).tokens.size();
  ASSERT_GT(before, 0U);
  ASSERT_TRUE(sim.delivered(waiting).tokens.empty());
  sim.pause(a, true);
  sim.pause(b, true);
  sim.pause(b, true);
  EXPECT_EQ(sim.scheduler().facts().paused, 2);
  while (sim.scheduler().unfinished() > sim.scheduler().paused() && !HasFailure()) sim.step();
  EXPECT_EQ(sim.delivered(waiting).finish, FinishReason::kLength);
  EXPECT_EQ(sim.delivered(a).tokens.size(), before);
  EXPECT_EQ(sim.scheduler().running().size(), 0U);
  EXPECT_FALSE(sim.plan()) << "only paused ones are left";
  sim.cancel(b);
  sim.pause(a, false);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(a).tokens.size(), 50U);
  EXPECT_EQ(sim.delivered(a).stats.preemptions, 0) << "not the engine's doing";
}

TEST(Order, LittleIsRecomputedUnderPressure) {
  // Prompts of several chunks in a pool that holds about four: admission on the first chunk alone would admit
  // them all, and preempt most of them again (0.4 of all rows recomputed).
  SimConfig c;
  c.groups = {{0, 60}};
  c.max_num_seqs = 32;
  c.max_model_len = 500;
  c.vocab = 30000;
  c.prefix_caching = false;
  c.check_every_step = false;
  c.prompt_max = 400;
  Sim sim(c, 22);
  for (int i = 0; i < 60; ++i) {
    sim.submit(make_request(sim.random_tokens(100 + 37 * i % 300), 20 + 13 * i % 60));
  }
  sim.drain();
  sim.finish_checks();
  const auto& n = sim.scheduler().counters();
  const double share = static_cast<double>(n.recomputed_tokens) / static_cast<double>(n.computed_tokens);
  RecordProperty("recomputed_share", std::to_string(share));
  EXPECT_GT(n.preemptions, 0U);
  EXPECT_LT(share, 0.12);
}

TEST(Queue, FactsAndTimeouts) {
  SimConfig c = roomy();
  c.max_num_seqs = 1;
  Sim sim(c, 23);
  const RequestId a = sim.submit(make_request(sim.random_tokens(10), 50));
  auto two = make_request(sim.random_tokens(20), 5);
  two->n = 2;
  const RequestId b = sim.submit(two);
  sim.step();
  const auto f = sim.scheduler().facts();
  EXPECT_EQ(f.waiting, 2);
  EXPECT_EQ(f.waiting_tokens, 40);
  EXPECT_EQ(f.running, 1);
  EXPECT_EQ(sim.scheduler().unscheduled_since(sim.now()), std::vector<RequestId>{b});
  EXPECT_TRUE(sim.scheduler().unscheduled_since(0).empty());
  sim.cancel(a);
  sim.drain();
  sim.finish_checks();
}

}  // namespace
}  // namespace barg::test::scheduler_test
