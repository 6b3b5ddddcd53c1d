// What the tests of the sampler share: random rows and parameters, and what sampling a row needs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/env.h"
#include "cpu/cpu.h"
#include "runtime/sampler.h"

namespace barg::runtime {

/// The generator of tests/tools/sampler_goldens.py.
inline std::vector<float> golden_logits(std::uint64_t seed, std::int32_t vocab, double spread) {
  Rng rng(seed);
  std::vector<float> out;
  for (std::int32_t i = 0; i < vocab; ++i) {
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += rng.uniform();
    out.push_back(static_cast<float>((sum - 2) * spread));
  }
  return out;
}

/// What lm_head leaves of a row, and what sampling it needs.
class Bench {
 public:
  explicit Bench(std::int32_t vocab, ops::Isa isa = ops::Isa::kAuto)
      : device_({.threads = 1, .isa = isa}), vocab_(vocab), scratch(device_.ops(), vocab) {}

  std::optional<OutputToken> sample(Sampler& s, std::vector<float> logits, std::int32_t index) {
    auto maxima = block_maxima(logits);
    scratch.candidates.clear();
    return s.sample({.logits = logits, .block_max = maxima, .logsumexp = logsumexp(logits)}, index, scratch);
  }
  /// Ids that could be drawn, ascending.
  std::vector<TokenId> survivors(Sampler& s, const std::vector<float>& logits) {
    sample(s, logits, 0);
    std::vector<TokenId> ids;
    for (const auto& c : scratch.candidates) ids.push_back(c.id);
    if (ids.empty()) {  // drawn from the row itself
      ids.resize(static_cast<std::size_t>(vocab_));
      std::iota(ids.begin(), ids.end(), 0);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  static std::vector<float> block_maxima(const std::vector<float>& x) {
    std::vector<float> out;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % ops::kBlockMax == 0) out.push_back(x[i]);
      if (std::isnan(x[i]) || x[i] > out.back()) out.back() = x[i];
    }
    return out;
  }
  static float logsumexp(const std::vector<float>& x) {
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v) - max);
    return static_cast<float>(max + std::log(sum));
  }

 private:
  ops::CpuDevice device_;
  std::int32_t vocab_;

 public:
  SampleScratch scratch;
};

inline std::shared_ptr<Request> request_with(SamplingParams p, std::vector<TokenId> prompt = {1, 2, 3}) {
  auto r = std::make_shared<Request>();
  r->prompt = std::move(prompt);
  if (!p.seed) p.seed = 7;
  r->sampling = std::move(p);
  return r;
}

inline std::optional<OutputToken> sample(Sampler& s, std::vector<float> logits, std::int32_t index) {
  return Bench(static_cast<std::int32_t>(logits.size())).sample(s, std::move(logits), index);
}

/// A request with a random mixture of everything that changes a choice.
inline SamplingParams random_params(Rng& rng, std::int32_t vocab) {
  const auto one_in = [&](std::uint64_t n) { return rng.below(n) == 0; };
  const auto id = [&] { return static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(vocab))); };
  SamplingParams p;
  p.seed = rng.next();
  static constexpr float kTemperatures[] = {0, 1e-6F, 1e-3F, 0.1F, 0.5F, 0.7F, 0.8F, 1, 1, 1.3F, 2, 100};
  p.temperature = kTemperatures[rng.below(std::size(kTemperatures))];
  if (one_in(3))
    p.top_k = static_cast<std::int32_t>(1 + rng.below(one_in(4) ? static_cast<std::uint64_t>(vocab) : 60));
  if (one_in(2)) p.top_p = static_cast<float>(one_in(4) ? 1e-6 + rng.uniform() : 0.8 + 0.199 * rng.uniform());
  p.top_p = std::min(p.top_p, 1.0F);
  if (one_in(8)) p.top_p = one_in(2) ? std::nextafter(1.0F, 0.0F) : 1e-7F;
  if (one_in(4)) p.min_p = static_cast<float>(one_in(3) ? rng.uniform() : 0.1 * rng.uniform());
  if (one_in(4)) p.repetition_penalty = static_cast<float>(0.5 + rng.uniform());
  if (one_in(4)) p.frequency_penalty = static_cast<float>(4 * rng.uniform() - 2);
  if (one_in(4)) p.presence_penalty = static_cast<float>(4 * rng.uniform() - 2);
  if (one_in(4)) {
    for (int i = 0; i < 5; ++i) p.logit_bias.emplace_back(id(), static_cast<float>(40 * rng.uniform() - 20));
  }
  if (one_in(5)) {
    for (int i = 0; i < 9; ++i) p.banned_token_ids.push_back(id());
  }
  if (one_in(9)) {
    for (int i = 0; i < 70; ++i) p.allowed_token_ids.push_back(id());
  }
  if (one_in(5)) p.min_tokens = 2;
  return p;
}

/// Rows of several kinds: peaked, flat, coarse (many ties), with masked logits, of one value, around both
/// zeros, at the ends of the range of numbers.
inline std::vector<float> random_row(Rng& rng, std::int32_t vocab) {
  static constexpr double kSpreads[] = {0.5, 3, 8, 20};
  auto x = golden_logits(rng.next(), vocab, kSpreads[rng.below(4)]);
  const auto kind = rng.below(8);
  for (float& v : x) {
    if (kind == 1) v = std::round(v);
    if (kind == 4) v = 3;
    if (kind == 5) v = std::copysign(0.0F, v);
    if (kind == 6) v *= 5e36F;
    if (kind == 7) v *= 1e-40F;
    if (kind == 2 && rng.below(3) == 0) v = -std::numeric_limits<float>::infinity();
  }
  if (kind == 3) x[rng.below(x.size())] += 25;
  return x;
}

}  // namespace barg::runtime
