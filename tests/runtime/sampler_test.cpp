#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/env.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cpu/cpu.h"
#include "naive_sampler.h"
#include "runtime/scratch_pool.h"
#include "sampler_support.h"
#include "support/data.h"

namespace barg::runtime::sampler_test {

namespace {

TEST(Sampler, SurvivorsEqualTransformersInFloat64) {
  const std::string path = test::shared_data("sampler/goldens.json");
  ASSERT_FALSE(path.empty());
  const auto cases = parse_json(*read_file(path, 1 << 24), {.max_members = 0});
  ASSERT_TRUE(cases) << cases.error().message;
  ASSERT_GE(cases->size(), 50U);
  for (const Json& c : cases->as_array()) {
    SamplingParams p;
    p.temperature = static_cast<float>(c.find("temperature")->as_double());
    p.min_p = static_cast<float>(c.find("min_p")->as_double());
    p.top_p = static_cast<float>(c.find("top_p")->as_double());
    p.top_k = static_cast<std::int32_t>(c.find("top_k")->as_int());
    p.repetition_penalty = static_cast<float>(c.find("repetition_penalty")->as_double());
    std::vector<TokenId> prompt;
    for (const Json& id : c.find("prompt")->as_array()) prompt.push_back(static_cast<TokenId>(id.as_int()));
    const auto vocab = static_cast<std::int32_t>(c.find("vocab")->as_int());
    const auto seed = c.find("seed")->as_uint();
    Sampler s(request_with(p, prompt), 0, vocab, {});
    const auto kept = Bench(vocab).survivors(s, golden_logits(seed, vocab, c.find("spread")->as_double()));
    EXPECT_EQ(kept.size(), c.find("count")->as_uint()) << "case " << seed;
    EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), std::int64_t{0}), c.find("sum_of_ids")->as_int());
    if (c.find("survivors")->is_null()) continue;
    std::vector<TokenId> want;
    for (const Json& id : c.find("survivors")->as_array()) want.push_back(static_cast<TokenId>(id.as_int()));
    EXPECT_EQ(kept, want) << "case " << seed;
  }
}

TEST(Sampler, SelectionEqualsASortBasedReferenceAlsoWithTies) {
  Rng rng(11);
  for (int round = 0; round < 400; ++round) {
    const auto vocab = static_cast<std::int32_t>(1 + rng.below(400));
    std::vector<float> x;
    for (std::int32_t i = 0; i < vocab; ++i) x.push_back(static_cast<float>(rng.below(7)));  // many ties
    SamplingParams p;
    p.temperature = 0.8F;
    p.top_k = static_cast<std::int32_t>(rng.below(60));
    p.top_p = static_cast<float>(0.05 + 0.95 * rng.uniform());
    Sampler s(request_with(p), 0, vocab, {});

    std::vector<TokenId> order(static_cast<std::size_t>(vocab));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return x[a] > x[b]; });
    if (p.top_k > 0 && p.top_k < vocab) order.resize(static_cast<std::size_t>(p.top_k));
    const auto mass = [&](TokenId id) { return std::exp(static_cast<double>(x[id]) / p.temperature - 10); };
    double total = 0;
    for (const TokenId id : order) total += mass(id);
    double sum = 0;
    std::size_t keep = 0;
    while (keep < order.size() && (keep == 0 || sum < p.top_p * total * (1 - 1e-12)))
      sum += mass(order[keep++]);
    order.resize(keep);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(Bench(vocab).survivors(s, x), order) << "round " << round;
  }
}

TEST(Sampler, TheOrderOfCandidatesDoesNotMatter) {
  Rng rng(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<Candidate> candidates;
    const auto x = golden_logits(rng.next(), 500, round % 2 == 0 ? 1.0 : 12.0);
    for (TokenId id = 0; id < 500; ++id) candidates.push_back({id, x[static_cast<std::size_t>(id)], 0});
    const NoiseKey key{rng.next(), 3, 17};
    const TokenId want = draw(candidates, key);
    for (std::size_t i = candidates.size(); i > 1; --i)
      std::swap(candidates[i - 1], candidates[rng.below(i)]);
    ASSERT_EQ(draw(candidates, key), want);
  }
}

TEST(Sampler, EveryTokenIsThatOfTheDefinition) {
  Rng rng(2026);
  std::vector<ops::Isa> isas;
  for (const auto isa : {ops::Isa::kScalar, ops::Isa::kAvx2, ops::Isa::kAvx512}) {
    if (ops::isa_supported(isa)) isas.push_back(isa);
  }
  for (int round = 0; round < 1500; ++round) {
    const auto vocab = static_cast<std::int32_t>(1 + rng.below(round % 5 == 0 ? 9000 : 700));
    const auto rows = vocab + static_cast<std::int32_t>(rng.below(3) * rng.below(100));  // with padding
    const auto p = random_params(rng, vocab);
    const auto request =
        request_with(p, {1, 2, 3, static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(rows)))});
    const auto choice = static_cast<std::int32_t>(rng.below(4));
    Sampler sampler(request, choice, vocab, {0});
    test::NaiveSampler naive(request, choice, vocab, {0});
    Bench bench(vocab, isas[static_cast<std::size_t>(round) % isas.size()]);
    for (std::int32_t step = 0; step < 6; ++step) {
      auto x = random_row(rng, rows);
      for (auto i = static_cast<std::size_t>(vocab); i < x.size(); ++i) {
        x[i] = rng.below(2) == 0 ? 1000.0F : std::numeric_limits<float>::quiet_NaN();  // padding is anything
      }
      const TokenId want = naive.sample(x, step);
      const bool possible = std::any_of(x.begin(), x.begin() + vocab, [](float v) { return v > kMasked; });
      const auto got = bench.sample(sampler, x, step);
      ASSERT_EQ(got ? got->id : kNoToken, possible ? want : kNoToken)
          << "round " << round << ", vocabulary " << vocab << ", temperature " << p.temperature << ", top_k "
          << p.top_k << ", top_p " << p.top_p << ", min_p " << p.min_p;
      if (!got) break;
      ASSERT_EQ(std::count(bench.scratch.stale.begin(), bench.scratch.stale.end(), 0),
                std::ssize(bench.scratch.stale));
    }
  }
}

TEST(ScratchPool, AScratchComesBackFromAUserThatFails) {
  const ops::CpuDevice device({.threads = 1});
  ScratchPool pool(device.ops(), 100, 1);
  SampleScratch* first = nullptr;
  const auto failing = [&](SampleScratch& s) {
    first = &s;
    throw std::bad_alloc();
  };
  EXPECT_THROW(pool.with_one(failing), std::bad_alloc);
  SampleScratch* second = nullptr;
  pool.with_one([&](SampleScratch& s) { second = &s; });  // else it would never return
  EXPECT_EQ(first, second);
}

TEST(Sampler, NoiseIsPhilox) {
  // Random123's known answer for a zero counter and key: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
  const std::uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (TokenId id = 0; id < 4; ++id) {
    const double v = (words[id] + 0.5) * 0x1.0p-32;
    EXPECT_NEAR(word_noise(noise_word({}, id)), -std::log(-std::log1p(-v)), 1e-13);
  }
}

TEST(Sampler, NoiseIsGumbel) {
  // Kolmogorov-Smirnov against exp(-exp(-x)); the 1e-6 critical value is 2.7 / sqrt(n).
  std::vector<double> v;
  for (TokenId id = 0; id < 40'000; ++id)
    v.push_back(word_noise(noise_word({3, 1, static_cast<std::uint32_t>(id / 100)}, id % 100)));
  std::sort(v.begin(), v.end());
  double worst = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double cdf = std::exp(-std::exp(-v[i]));
    worst = std::max(worst, std::abs(cdf - (static_cast<double>(i) + 0.5) / static_cast<double>(v.size())));
  }
  EXPECT_LT(worst, 2.7 / std::sqrt(static_cast<double>(v.size())));
}

TEST(Sampler, FrequenciesPassChiSquare) {
  struct Case {
    SamplingParams p;
    std::int32_t vocab;
  };
  SamplingParams plain, warm, cut;
  warm.temperature = 1.6F;
  cut.top_k = 6;
  cut.top_p = 0.9F;
  cut.min_p = 0.01F;
  for (const Case& c : {Case{plain, 12}, Case{warm, 9}, Case{cut, 40}}) {
    const auto x = golden_logits(99, c.vocab, 2.0);
    SamplingParams p = c.p;
    p.seed = 12345;
    std::map<TokenId, int> seen;
    const int draws = 40'000;
    Sampler s(request_with(p), 0, c.vocab, {});
    for (int i = 0; i < draws; ++i) seen[sample(s, x, i)->id]++;

    Sampler fresh(request_with(p), 0, c.vocab, {});
    const auto kept = Bench(c.vocab).survivors(fresh, x);
    double total = 0;
    for (const TokenId id : kept) total += std::exp(x[id] / p.temperature);
    double chi2 = 0;
    int covered = 0;
    for (const TokenId id : kept) {
      const double expected = draws * std::exp(x[id] / p.temperature) / total;
      chi2 += (seen[id] - expected) * (seen[id] - expected) / expected;
      covered += seen[id];
    }
    EXPECT_EQ(covered, draws) << "a token outside the survivors was drawn";
    // Wilson-Hilferty: the 1 - 1e-6 quantile of chi-square with k degrees of freedom.
    const double k = static_cast<double>(kept.size()) - 1;
    const double limit = k * std::pow(1 - 2 / (9 * k) + 4.75 * std::sqrt(2 / (9 * k)), 3);
    EXPECT_LT(chi2, limit) << "vocab " << c.vocab;
  }
}

TEST(Sampler, ChoicesAndPositionsAreIndependentAndReproducible) {
  const auto x = golden_logits(4, 500, 1.0);
  SamplingParams p;
  p.seed = 77;
  std::vector<TokenId> streams[3];
  for (int choice = 0; choice < 3; ++choice) {
    Sampler s(request_with(p), choice, 500, {});
    for (int i = 0; i < 50; ++i) streams[choice].push_back(sample(s, x, i)->id);
    Sampler again(request_with(p), choice, 500, {});
    for (int i = 0; i < 50; ++i)
      ASSERT_EQ(sample(again, x, i)->id, streams[choice][static_cast<std::size_t>(i)]);
  }
  EXPECT_NE(streams[0], streams[1]);
  EXPECT_NE(streams[1], streams[2]);
  // The key is the absolute position: continuing a prompt with its own output continues the stream.
  std::vector<TokenId> longer = {1, 2, 3, 0, 0, 0, 0, 0};
  Sampler resumed(request_with(p, longer), 0, 500, {});
  EXPECT_EQ(sample(resumed, x, 0)->id, streams[0][5]);
}

TEST(Sampler, PenaltiesEqualANaiveReference) {
  Rng rng(21);
  for (int round = 0; round < 50; ++round) {
    const std::int32_t vocab = 64;
    SamplingParams p;
    p.temperature = 0;
    p.repetition_penalty = 1.3F;
    p.frequency_penalty = 0.4F;
    p.presence_penalty = -0.7F;
    p.logit_bias = {{5, 1.5F}, {6, -100.0F}};
    const std::vector<TokenId> prompt = {3, 5, 3, 60};
    Sampler s(request_with(p, prompt), 0, vocab, {});
    std::vector<TokenId> outputs;
    for (int step = 0; step < 40; ++step) {
      const auto x = golden_logits(rng.next(), vocab, 3.0);
      std::vector<float> y = x;
      y[5] += 1.5F;
      y[6] += -100.0F;
      for (TokenId id = 0; id < vocab; ++id) {
        const auto count = std::count(outputs.begin(), outputs.end(), id);
        const bool in_prompt = std::count(prompt.begin(), prompt.end(), id) > 0;
        if (count > 0 || in_prompt) y[id] = y[id] > 0 ? y[id] / 1.3F : y[id] * 1.3F;
        if (count > 0) y[id] = y[id] - 0.4F * static_cast<float>(count) - -0.7F;
      }
      const auto want = static_cast<TokenId>(std::max_element(y.begin(), y.end()) - y.begin());
      ASSERT_EQ(sample(s, x, step)->id, want) << "step " << step;
      outputs.push_back(want);
      // A step computed again (preemption, a dropped result) must not count its tokens twice.
      if (rng.below(4) == 0) {
        const auto back = static_cast<std::int32_t>(rng.below(outputs.size() + 1));
        outputs.resize(static_cast<std::size_t>(back));
        step = back - 1;
        if (round % 8 != 0) break;
      }
    }
  }
}

TEST(Sampler, Masks) {
  std::vector<float> x = {5, 4, 3, 2, 1, 0};
  SamplingParams p;
  p.temperature = 0;
  p.min_tokens = 2;
  p.stop_token_ids = {1};
  Sampler s(request_with(p), 0, 6, {0});
  EXPECT_EQ(sample(s, x, 0)->id, 2);  // 0 ends, 1 stops: both masked before min_tokens
  EXPECT_EQ(sample(s, x, 1)->id, 2);
  EXPECT_EQ(sample(s, x, 2)->id, 0);

  p.logit_bias = {{5, 0.0F}};  // the same off the fast path
  Sampler slow(request_with(p), 0, 6, {0});
  EXPECT_EQ(sample(slow, x, 0)->id, 2);
  EXPECT_EQ(sample(slow, x, 1)->id, 2);
  EXPECT_EQ(sample(slow, x, 2)->id, 0);

  SamplingParams q;
  q.allowed_token_ids = {4, 3, 4};
  q.banned_token_ids = {3};
  Sampler t(request_with(q), 0, 6, {});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sample(t, x, i)->id, 4);

  q.banned_token_ids = {3, 4};
  Sampler none(request_with(q), 0, 6, {});
  EXPECT_FALSE(sample(none, x, 0)) << "nothing survives: the request must fail, not emit token 0";
}

TEST(Sampler, ReasoningEndsWhenItsBudgetIsSpentWhateverTheLogitsSay) {
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 1;
  p.banned_token_ids = {5};
  p.reasoning = ReasoningLimit{.budget = 3, .open = true, .begin = {4}, .close = {5, 6}};
  Sampler s(request_with(p), 0, 8, {});
  std::vector<float> logits = {0, 9, 1, 2, 3, -50, -60, 0};
  const auto token = [&](std::int32_t index) { return sample(s, logits, index)->id; };
  for (std::int32_t i = 0; i < 3; ++i) EXPECT_EQ(token(i), 1);
  EXPECT_EQ(token(3), 5);
  EXPECT_EQ(token(3), 5);  // the step was computed again
  EXPECT_EQ(token(4), 6);
  EXPECT_EQ(token(5), 1);
  EXPECT_EQ(token(1), 1);  // preempted far back: the count goes back too
  EXPECT_EQ(token(2), 1);
  const auto forced = sample(s, logits, 3);
  EXPECT_EQ(forced->id, 5);
  EXPECT_EQ(forced->logprobs->rank, 7);  // of the raw row
  EXPECT_LT(forced->logprobs->logprob, -50);
}

TEST(Sampler, PaddingRowsAreNeverChosen) {
  std::vector<float> x = {1, 2, 3, 9, 9};  // ids 3 and 4 are padding
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.logprobs = 5;
  Sampler s(request_with(greedy), 0, 3, {});
  const auto out = Bench(3).sample(s, x, 0);
  EXPECT_EQ(out->id, 2);
  EXPECT_EQ(out->logprobs->top.size(), 3U);
  Sampler t(request_with({}), 0, 3, {});
  for (int i = 0; i < 50; ++i) EXPECT_LT(Bench(3).sample(t, x, i)->id, 3);
}

TEST(Sampler, BadRowsFail) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = {1, bad, 2};
    Sampler s(request_with({}), 0, 3, {});
    EXPECT_FALSE(sample(s, x, 0));
  }
}

TEST(Sampler, AnInfinityMadeByAPenaltySurvivesAlone) {
  SamplingParams p;
  p.repetition_penalty = 1e-40F;
  p.top_p = 0.5F;
  Sampler s(request_with(p, {7}), 0, 200, {});
  EXPECT_EQ(Bench(200).survivors(s, std::vector<float>(200, 1.0F)), std::vector<TokenId>{7});
}

TEST(Sampler, TiesGoToTheLowerId) {
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{0, 0.0F}};  // leaves the fast path
  Sampler s(request_with(p), 0, 5, {});
  EXPECT_EQ(sample(s, {1, 3, 3, 3, 0}, 0)->id, 1);
  SamplingParams k;
  k.top_k = 2;
  Sampler t(request_with(k), 0, 5, {});
  EXPECT_EQ(Bench(5).survivors(t, {1, 3, 3, 3, 0}), (std::vector<TokenId>{1, 2}));
}

TEST(Sampler, LogprobsEqualASort) {
  auto x = golden_logits(8, 700, 5.0);
  auto maxima = Bench::block_maxima(x);
  const Row row{x, maxima};
  const float lse = Bench::logsumexp(x);
  std::vector<TokenId> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return x[a] > x[b]; });
  for (const int at : {0, 1, 30, 699}) {
    const auto lp = row_logprobs(row, lse, order[static_cast<std::size_t>(at)], 20);
    EXPECT_EQ(lp.rank, at + 1);
    EXPECT_EQ(lp.logprob, x[order[at]] - lse);
    ASSERT_EQ(lp.top.size(), 20U);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(lp.top[i].id, order[i]);
  }
  EXPECT_TRUE(row_logprobs(row, lse, 0, 0).top.empty());
}

TEST(Sampler, LogprobsAreOfTheRawRow) {
  std::vector<float> x = {3, 2, 1, 0};
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 2;
  p.logit_bias = {{3, 100.0F}};
  Sampler s(request_with(p), 0, 4, {});
  const auto out = sample(s, x, 0);
  EXPECT_EQ(out->id, 3);
  EXPECT_EQ(out->logprobs->rank, 4);
  EXPECT_FLOAT_EQ(out->logprobs->logprob, 0 - Bench::logsumexp(x));
  EXPECT_EQ(out->logprobs->top[0].id, 0);
}

}  // namespace
}  // namespace barg::runtime::sampler_test
