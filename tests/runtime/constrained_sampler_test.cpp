// The sampler under a constraint, with and without a reasoning block before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "naive_sampler.h"
#include "runtime/sampler.h"
#include "sampler_support.h"
#include "support/token_language.h"

namespace barg::runtime::constrained_sampler_test {
namespace {

using test::TokenLanguage;

constexpr TokenId kEnd = 0;

std::vector<float> masked(std::vector<float> x, const TokenSet& set, std::int32_t vocab) {
  for (TokenId id = 0; id < vocab; ++id) {
    if (!set.has(id)) x[static_cast<std::size_t>(id)] = kMasked;
  }
  return x;
}

TEST(ConstrainedSampler, EveryTokenIsThatOfTheDefinition) {
  Rng rng(404);
  int redrawn = 0, listed = 0, wide = 0, whole = 0;
  for (int round = 0; round < 700; ++round) {
    const bool large = round % 3 == 0;
    const auto vocab = static_cast<std::int32_t>(large ? 2500 + rng.below(6000) : 12 + rng.below(700));
    const auto ways = static_cast<int>(large ? rng.below(9000) : rng.below(60));
    const auto language = TokenLanguage::random(rng, vocab, 1, 2 + rng.below(12), ways, {kEnd});
    SamplingParams p = random_params(rng, vocab);
    p.min_tokens = 0;
    if (rng.below(2) == 0) {
      p.banned_token_ids.clear();
      p.allowed_token_ids.clear();
    }
    p.constraint = language;
    p.max_tokens = language->min_tokens() + static_cast<std::int32_t>(1 + rng.below(10));
    const auto request = request_with(p);
    const auto choice = static_cast<std::int32_t>(rng.below(4));
    Sampler sampler(request, choice, vocab, {kEnd});
    test::NaiveSampler naive(request, choice, vocab, {kEnd});
    Bench bench(vocab);
    const auto state = language->start(false);
    for (std::int32_t step = 0; step < p.max_tokens; ++step) {
      const auto x = random_row(rng, vocab);
      const TokenMask mask = state->mask(p.max_tokens - step);
      (mask.language.count > kListed ? wide : listed) += 1;
      test::NaiveSampler trial = naive;
      TokenId want = trial.sample(masked(x, mask.language, vocab), step);
      const bool fits = want == kNoToken || mask.fits.has(want);
      if (!fits) {
        trial = naive;
        want = trial.sample(masked(x, mask.fits, vocab), step);
        ++redrawn;
      }
      naive = trial;
      const auto got = bench.sample(sampler, x, step);
      ASSERT_EQ(got ? got->id : kNoToken, want) << "round " << round << ", output " << step;
      if (!got) break;
      ASSERT_EQ(got->for_length, !fits);
      state->push(got->id);
      if (got->id == kEnd || step + 1 == p.max_tokens) {
        ASSERT_TRUE(language->whole(sampler.outputs())) << "round " << round;
        ++whole;
        break;
      }
    }
  }
  EXPECT_GT(redrawn, 100);
  EXPECT_GT(listed, 500);
  EXPECT_GT(wide, 100);
  EXPECT_GT(whole, 300);
}

/// Row number `index` of a request, the same whenever it is computed.
std::vector<float> row_of(std::uint64_t seed, std::int32_t vocab, std::int32_t index) {
  return golden_logits(seed * 1000 + static_cast<std::uint64_t>(index), vocab, 4.0);
}

/// All outputs, to an end token or to max_tokens. With `rng`, steps are computed again from random places.
std::vector<OutputToken> generate(const std::shared_ptr<Request>& request, std::int32_t vocab, std::uint64_t seed,
                                  std::int32_t choice = 0, Rng* rng = nullptr, std::int32_t most = 1 << 20) {
  Sampler sampler(request, choice, vocab, {kEnd}, most);
  Bench bench(vocab);
  std::vector<OutputToken> out;
  for (std::int32_t step = 0; step < std::min(request->sampling.max_tokens, most);) {
    auto token = bench.sample(sampler, row_of(seed, vocab, step), step);
    EXPECT_TRUE(token) << "nothing to choose at output " << step;
    if (!token) return out;
    out.resize(static_cast<std::size_t>(step));
    out.push_back(std::move(*token));
    ++step;
    if (rng != nullptr && rng->below(4) == 0) {  // a preemption or a dropped result; its steps may differ: another row
      step = static_cast<std::int32_t>(rng->below(static_cast<std::uint64_t>(step)));
      if (rng->below(2) == 0) bench.sample(sampler, row_of(seed + 7, vocab, step), step);
      continue;
    }
    if (out.back().id == kEnd) break;
  }
  return out;
}

std::vector<TokenId> ids_of(const std::vector<OutputToken>& tokens) {
  std::vector<TokenId> out;
  for (const auto& t : tokens) out.push_back(t.id);
  return out;
}

TEST(ConstrainedSampler, StepsComputedAgainGiveTheSameTokens) {
  Rng rng(17);
  for (int round = 0; round < 100; ++round) {
    const std::int32_t vocab = 90;
    const auto language = TokenLanguage::random(rng, vocab, 10, 2 + rng.below(8), 20, {kEnd});
    SamplingParams p;
    p.constraint = language;
    p.max_tokens = language->min_tokens() + 4 + static_cast<std::int32_t>(rng.below(12));
    if (round % 2 == 0) p.frequency_penalty = 1.5F;
    if (round % 3 == 0) {
      p.reasoning = ReasoningLimit{.budget = static_cast<std::int32_t>(rng.below(6)), .open = round % 2 == 0,
                                   .begin = {1}, .close = {2, 3}};
    }
    const auto request = request_with(p);
    const auto seed = rng.next() >> 20;
    const auto want = ids_of(generate(request, vocab, seed));
    ASSERT_EQ(ids_of(generate(request, vocab, seed, 0, &rng)), want) << "round " << round;
  }
}

TEST(ConstrainedSampler, ChoicesDifferAndAreWhole) {
  Rng rng(3);
  const auto language = TokenLanguage::random(rng, 200, 1, 12, 60, {kEnd});
  SamplingParams p;
  p.constraint = language;
  p.max_tokens = 30;
  const auto request = request_with(p);
  const auto first = ids_of(generate(request, 200, 5, 0)), second = ids_of(generate(request, 200, 5, 1));
  EXPECT_NE(first, second);
  EXPECT_TRUE(language->whole(first));
  EXPECT_TRUE(language->whole(second));
}

/// A language whose start is state 0: `10 11 12` or `10 13*`, ended anywhere behind the 10 that has seen 11 12 or a 13.
std::shared_ptr<TokenLanguage> small_language() {
  std::vector<TokenLanguage::State> s(4);
  s[0].next = {{10, 1}};
  s[1].next = {{11, 2}, {13, 3}};
  s[2].next = {{12, 3}};
  s[3].next = {{13, 3}};
  s[3].accepting = true;
  return std::make_shared<TokenLanguage>(20, s, std::vector<TokenId>{kEnd}, std::map<TokenId, int>{{5, 1}, {6, 2}});
}

TEST(ConstrainedSampler, AnEndTokenOnlyWhereTheOutputIsCompleteAndNothingBehindIt) {
  SamplingParams p;
  p.temperature = 0;
  p.constraint = small_language();
  p.max_tokens = 9;
  Sampler s(request_with(p), 0, 20, {kEnd});
  std::vector<float> x(20, 0.0F);
  x[kEnd] = 9;
  x[11] = 5;
  for (const TokenId want : {10, 11, 12, 0, 0, 0}) {  // steps behind the end may be on their way already
    EXPECT_EQ(sample(s, x, static_cast<std::int32_t>(s.outputs().size()))->id, want);
  }
}

TEST(ConstrainedSampler, WhatDoesNotFitIsDrawnAgainAndMarked) {
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 1;
  p.constraint = small_language();
  std::vector<float> x(20, 0.0F);
  x[11] = 5;
  p.max_tokens = 3;
  Sampler fits(request_with(p), 0, 20, {kEnd});
  for (const TokenId want : {10, 11, 12}) {
    const auto got = sample(fits, x, static_cast<std::int32_t>(fits.outputs().size()));
    EXPECT_EQ(got->id, want);
    EXPECT_FALSE(got->for_length);
  }
  p.max_tokens = 2;
  Sampler not_so(request_with(p), 0, 20, {kEnd});
  EXPECT_FALSE(sample(not_so, x, 0)->for_length);
  const auto got = sample(not_so, x, 1);
  EXPECT_EQ(got->id, 13);
  EXPECT_TRUE(got->for_length);
  EXPECT_EQ(got->logprobs->rank, 14) << "log-probabilities are of the raw row";
  EXPECT_EQ(got->logprobs->top[0].id, 11);
  // The model's length bounds the output as max_tokens do.
  p.max_tokens = 50;
  Sampler bounded(request_with(p), 0, 20, {kEnd}, 2);
  sample(bounded, x, 0);
  EXPECT_TRUE(sample(bounded, x, 1)->for_length);
}

/// [begin block close] [newlines] text, whole; false with the reason.
::testing::AssertionResult is_answer(const TokenLanguage& language, const SamplingParams& p, bool opened_in_output,
                                     std::span<const TokenId> ids) {
  std::vector<TokenId> rest(ids.begin(), ids.end());
  const ReasoningLimit& limit = *p.reasoning;
  const auto starts = [&](const std::vector<TokenId>& marker, std::size_t at) {
    return at + marker.size() <= rest.size() &&
           std::equal(marker.begin(), marker.end(), rest.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto cut = [&](std::size_t count) { rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count)); };
  bool reasoned = limit.open;
  if (opened_in_output && !limit.begin.empty() && starts(limit.begin, 0)) {
    cut(limit.begin.size());
    reasoned = true;
  }
  if (reasoned) {
    std::size_t at = 0;
    while (at < rest.size() && !starts(limit.close, at)) ++at;
    if (at == rest.size()) return ::testing::AssertionFailure() << "the block is open";
    if (std::find(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(at), kEnd) !=
        rest.begin() + static_cast<std::ptrdiff_t>(at)) {
      return ::testing::AssertionFailure() << "an end token in the block";
    }
    cut(at + limit.close.size());
    if (!rest.empty() && rest[0] == 6) {
      cut(1);
    } else {
      for (int i = 0; i < 2 && !rest.empty() && rest[0] == 5; ++i) cut(1);
    }
  }
  if (!language.whole(rest)) return ::testing::AssertionFailure() << "not a whole text";
  return ::testing::AssertionSuccess();
}

TEST(ConstrainedSampler, ReasoningEndsInTimeForAWholeAnswer) {
  Rng rng(23);
  int opened = 0, hurried = 0, with_newlines = 0;
  const std::int32_t vocab = 20;
  for (int round = 0; round < 1500; ++round) {
    const auto language = small_language();
    SamplingParams p;
    p.constraint = language;
    p.temperature = 1.5F;
    ReasoningLimit limit{.budget = rng.below(3) == 0 ? 1 << 30 : static_cast<std::int32_t>(rng.below(8)),
                         .open = rng.below(3) == 0, .begin = {}, .close = {}};
    static const std::vector<TokenId> kBegins[] = {{}, {1}, {1, 2}, {1, 1}};
    static const std::vector<TokenId> kCloses[] = {{3}, {3, 4}, {3, 3, 4}};
    limit.begin = kBegins[rng.below(4)];
    limit.close = kCloses[rng.below(3)];
    const auto needed = language->min_tokens() + (limit.open ? std::ssize(limit.close) : 0);
    p.max_tokens = static_cast<std::int32_t>(needed) + static_cast<std::int32_t>(rng.below(14));
    p.reasoning = limit;
    const auto out = generate(request_with(p), vocab, rng.next() >> 20, 0, round % 2 == 0 ? &rng : nullptr);
    const auto ids = ids_of(out);
    ASSERT_TRUE(is_answer(*language, p, !limit.open, ids)) << "round " << round;
    if (!limit.open && !limit.begin.empty() && ids[0] == 1) {
      ++opened;
      ASSERT_GT(limit.budget, 0) << "a block without a budget is not worth its markers";
    }
    for (std::size_t i = 0; i < out.size(); ++i) hurried += out[i].for_length && out[i].id == 3;
    with_newlines += std::count(ids.begin(), ids.end(), 6) > 0;
  }
  EXPECT_GT(opened, 20);
  EXPECT_GT(hurried, 50);
  EXPECT_GT(with_newlines, 20);
}

TEST(ConstrainedSampler, ABlockRunsToTheLastTokenThatLeavesRoom) {
  SamplingParams p;
  p.temperature = 0;
  p.constraint = small_language();  // two tokens at least
  p.reasoning = ReasoningLimit{.budget = 1 << 30, .open = true, .begin = {1}, .close = {3, 4}};
  p.max_tokens = 8;
  std::vector<float> x(20, 0.0F);
  x[15] = 9;
  x[13] = 5;
  x[10] = 3;
  Sampler s(request_with(p), 0, 20, {kEnd});
  const std::vector<TokenId> want = {15, 15, 15, 15, 3, 4, 10, 13};
  for (std::int32_t i = 0; i < 8; ++i) {
    const auto got = sample(s, x, i);
    EXPECT_EQ(got->id, want[static_cast<std::size_t>(i)]);
    EXPECT_EQ(got->for_length, i == 4 || i == 5) << i;
  }
}

TEST(ConstrainedSampler, OnlyTheFirstTokenOpensABlock) {
  SamplingParams p;
  p.temperature = 0;
  p.constraint = small_language();
  p.reasoning = ReasoningLimit{.budget = 4, .open = false, .begin = {1, 2}, .close = {3}};
  std::vector<float> x(20, 0.0F);
  x[1] = 9;
  x[13] = 5;
  p.max_tokens = 30;
  Sampler opens(request_with(p), 0, 20, {kEnd});
  for (const TokenId want : {1, 2, 1, 1, 1, 1, 3, 5, 5, 10, 13, 13}) {
    if (opens.outputs().size() == 7) x[5] = 9;
    EXPECT_EQ(sample(opens, x, static_cast<std::int32_t>(opens.outputs().size()))->id, want);
  }
  x[5] = 0;
  p.max_tokens = 4;  // two markers and an answer take five
  Sampler short_of(request_with(p), 0, 20, {kEnd});
  EXPECT_EQ(sample(short_of, x, 0)->id, 10);
  p.max_tokens = 30;
  p.reasoning->begin = {10};  // is the answer's own
  Sampler own(request_with(p), 0, 20, {kEnd});
  for (const TokenId want : {10, 13, 13}) {
    EXPECT_EQ(sample(own, x, static_cast<std::int32_t>(own.outputs().size()))->id, want);
  }
}

}  // namespace
}  // namespace barg::runtime::constrained_sampler_test
