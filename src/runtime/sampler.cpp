#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace barg::runtime {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
/// Largest possible noise: -log(-log(1 - 2^-33)) < 22.88.
constexpr double kMaxNoise = 22.9;

// libm's log and exp differ between machines in the last bit (it dispatches on the CPU). These use only
// IEEE operations in one order, so a draw is the same everywhere. Relative error below 1e-15.

/// Natural logarithm of a positive normal number: x = 2^e * m, m in [sqrt(1/2), sqrt(2)); with
/// f = (m-1)/(m+1), log m = 2 (f + f^3/3 + f^5/5 + ...), |f| < 0.172.
double exact_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.70710678118654752) {
    m *= 2;
    e -= 1;
  }
  const double f = (m - 1) / (m + 1);
  const double s = f * f;
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * s;
  return 2 * f * (1 + series) + e * 0.69314718055994530942;
}

/// exp(x) for x <= 0: x = n ln2 + r, |r| <= ln2/2, Taylor to r^13. Below -700 and for NaN (infinity minus
/// infinity, which an absurd penalty makes) it is 0.
double exact_exp(double x) {
  static constexpr double kInverseFactorials[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  if (!(x >= -700)) return 0;
  constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to an integer
  const double n = (x * 1.4426950408889634074 + kRound) - kRound;
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;  // ln2 in two parts
  double series = 0;
  for (const double c : kInverseFactorials) series = series * r + c;
  return series * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

constexpr std::int32_t kLanes = 8;                     // counters computed side by side
constexpr std::int32_t kNoiseBlock = kLanes * 4;       // ids they cover

/// Words of the ids [first, first + kNoiseBlock); first is a multiple of kNoiseBlock. Philox4x32 with 10 rounds
/// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), lanes laid out so that compilers
/// vectorise them.
struct NoiseWords {
  std::uint32_t word[4][kLanes];

  NoiseWords(std::uint64_t seed, std::int32_t choice, std::int64_t position, TokenId first) {
    auto& c = word;
    for (std::int32_t l = 0; l < kLanes; ++l) {
      c[0][l] = static_cast<std::uint32_t>(first / 4 + l);
      c[1][l] = static_cast<std::uint32_t>(position);
      c[2][l] = static_cast<std::uint32_t>(choice);
      c[3][l] = 0;
    }
    auto k0 = static_cast<std::uint32_t>(seed);
    auto k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (std::int32_t l = 0; l < kLanes; ++l) {
        const std::uint64_t p0 = 0xD2511F53ULL * c[0][l];
        const std::uint64_t p1 = 0xCD9E8D57ULL * c[2][l];
        c[0][l] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][l] ^ k0;
        c[1][l] = static_cast<std::uint32_t>(p1);
        c[2][l] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][l] ^ k1;
        c[3][l] = static_cast<std::uint32_t>(p0);
      }
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
  }

  std::uint32_t of(TokenId id) const { return word[id % 4][id / 4 % kLanes]; }
};

/// Gumbel noise -log(-log(1 - v)) with v = (word + 1/2) / 2^32: small v is the winning tail, and 1 - v is exact.
double word_noise(std::uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1.0p-32;
  return -exact_log(-exact_log(1.0 - v));
}

/// A cheap upper bound of word_noise: -log(-log(1-v)) <= -log(v) <= ln2 * (leading zeros of word + 1).
double word_noise_bound(std::uint32_t word) {
  return 0.69314718055994530942 * (std::countl_zero(word) + 1);
}

/// The order of selection: larger value first, lower id on ties.
template <class C>
bool better(const C& a, const C& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

std::vector<TokenId> sorted_unique(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

double gumbel_noise(std::uint64_t seed, std::int32_t choice, std::int64_t position, TokenId id) {
  return word_noise(NoiseWords(seed, choice, position, id / kNoiseBlock * kNoiseBlock).of(id));
}

Sampler::Sampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
                 std::vector<TokenId> end_ids)
    : request_(std::move(request)),
      choice_(choice),
      vocab_size_(vocab_size),
      end_ids_(std::move(end_ids)),
      has_penalties_(request_->sampling.repetition_penalty != 1.0F ||
                     request_->sampling.frequency_penalty != 0.0F ||
                     request_->sampling.presence_penalty != 0.0F),
      allowed_(sorted_unique(request_->sampling.allowed_token_ids)) {
  CHECK(request_->sampling.seed.has_value());
  if (!has_penalties_) return;
  counts_.assign(static_cast<std::size_t>(vocab_size_), 0);
  if (request_->sampling.repetition_penalty != 1.0F) {
    prompt_ids_ = sorted_unique(request_->prompt);
    in_prompt_.assign(static_cast<std::size_t>(vocab_size_), 0);
    // Padding rows may stand in a token-array prompt; they are never candidates.
    std::erase_if(prompt_ids_, [&](TokenId id) { return id < 0 || id >= vocab_size_; });
    for (const TokenId id : prompt_ids_) in_prompt_[static_cast<std::size_t>(id)] = 1;
  }
}

void Sampler::remember(TokenId id) {
  outputs_.push_back(id);
  if (has_penalties_ && counts_[static_cast<std::size_t>(id)]++ == 0) output_ids_.push_back(id);
}

void Sampler::forget_last() {
  const TokenId id = outputs_.back();
  outputs_.pop_back();
  // First-seen order: the id whose last occurrence goes is the last of the list that has none left.
  if (has_penalties_ && --counts_[static_cast<std::size_t>(id)] == 0) std::erase(output_ids_, id);
}

void Sampler::rewind(std::int32_t output_index) {
  CHECK(output_index >= 0 && static_cast<std::size_t>(output_index) <= outputs_.size());
  while (outputs_.size() > static_cast<std::size_t>(output_index)) forget_last();
}

bool Sampler::plain_greedy(std::int32_t output_index) const {
  const SamplingParams& p = request_->sampling;
  return p.temperature == 0.0F && !has_penalties_ && p.logit_bias.empty() && allowed_.empty() &&
         p.banned_token_ids.empty() && output_index >= p.min_tokens;
}

void Sampler::adjust(std::span<float> logits, std::int32_t output_index) const {
  const SamplingParams& p = request_->sampling;
  const auto mask = [&](const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      if (id >= 0 && id < vocab_size_) logits[static_cast<std::size_t>(id)] = kMasked;
    }
  };
  mask(p.banned_token_ids);
  if (output_index < p.min_tokens) {
    mask(end_ids_);
    mask(p.stop_token_ids);
  }
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  if (!has_penalties_) return;
  const auto repeat = [&](TokenId id) {
    float& x = logits[static_cast<std::size_t>(id)];
    x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
  };
  if (p.repetition_penalty != 1.0F) {
    for (const TokenId id : prompt_ids_) repeat(id);
    for (const TokenId id : output_ids_) {
      if (in_prompt_[static_cast<std::size_t>(id)] == 0) repeat(id);
    }
  }
  for (const TokenId id : output_ids_) {
    float& x = logits[static_cast<std::size_t>(id)];
    x -= p.frequency_penalty * static_cast<float>(counts_[static_cast<std::size_t>(id)]);
    x -= p.presence_penalty;
  }
}

TokenId Sampler::greedy(std::span<const float> logits) const {
  TokenId best = kNoToken;
  float value = kMasked;
  const auto offer = [&](TokenId id) {
    if (logits[static_cast<std::size_t>(id)] > value) {
      value = logits[static_cast<std::size_t>(id)];
      best = id;
    }
  };
  if (allowed_.empty()) {
    for (TokenId id = 0; id < vocab_size_; ++id) offer(id);
  } else {
    for (const TokenId id : allowed_) offer(id);
  }
  return best;
}

void Sampler::gather(std::span<const float> logits) {
  const double temperature = request_->sampling.temperature;
  candidates_.clear();
  const auto offer = [&](TokenId id) {
    const float x = logits[static_cast<std::size_t>(id)];
    if (x != kMasked) candidates_.push_back({id, static_cast<double>(x) / temperature, 0});
  };
  if (allowed_.empty()) {
    for (TokenId id = 0; id < vocab_size_; ++id) offer(id);
  } else {
    for (const TokenId id : allowed_) offer(id);
  }
}

void Sampler::keep_min_p() {
  const float min_p = request_->sampling.min_p;
  if (min_p <= 0 || candidates_.empty()) return;
  // p_i >= min_p * p_max, that is x_i - max >= log(min_p).
  double max = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates_) max = std::max(max, c.value);
  const double floor = max + exact_log(static_cast<double>(min_p));
  std::erase_if(candidates_, [&](const Candidate& c) { return c.value < floor && c.value != max; });
}

void Sampler::keep_top_k() {
  const std::int32_t k = request_->sampling.top_k;
  if (k <= 0 || candidates_.size() <= static_cast<std::size_t>(k)) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + (k - 1), candidates_.end(), better<Candidate>);
  candidates_.resize(static_cast<std::size_t>(k));
}

void Sampler::keep_top_p() {
  const double top_p = request_->sampling.top_p;
  if (top_p >= 1.0 || candidates_.size() <= 1) return;
  double max = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates_) max = std::max(max, c.value);
  // The order of summation is that of the ids, whatever top_k left behind.
  std::sort(candidates_.begin(), candidates_.end(), [](auto& a, auto& b) { return a.id < b.id; });
  double total = 0;
  for (Candidate& c : candidates_) total += c.mass = exact_exp(c.value - max);

  // Smallest prefix of the descending order whose mass reaches p: weighted selection. [lo, hi) is where the
  // boundary lies, everything before lo is kept and weighs `kept`.
  const double goal = top_p * total;
  double kept = 0;
  auto lo = candidates_.begin();
  auto hi = candidates_.end();
  while (hi - lo > 64) {
    auto mid = lo + (hi - lo) / 2;
    std::nth_element(lo, mid, hi, better<Candidate>);
    double upper = 0;
    for (auto it = lo; it != mid; ++it) upper += it->mass;
    if (kept + upper >= goal) {
      hi = mid;
    } else {
      kept += upper;
      lo = mid;
    }
  }
  std::sort(lo, hi, better<Candidate>);
  auto end = lo;
  while (end != hi && kept < goal) kept += (end++)->mass;
  if (end == candidates_.begin()) ++end;
  candidates_.erase(end, candidates_.end());
}

TokenId Sampler::draw(std::int64_t position) const {
  const std::uint64_t seed = *request_->sampling.seed;
  // Start from the largest value: its noised score prunes nearly everything that follows.
  const auto top = std::min_element(candidates_.begin(), candidates_.end(), better<Candidate>);
  TokenId best_id = top->id;
  double best = top->value + gumbel_noise(seed, choice_, position, top->id);
  std::optional<NoiseWords> words;
  TokenId block = -1;
  for (const Candidate& c : candidates_) {
    if (c.value + kMaxNoise < best || c.id == top->id) continue;
    if (c.id / kNoiseBlock != block) {
      block = c.id / kNoiseBlock;
      words.emplace(seed, choice_, position, block * kNoiseBlock);
    }
    const std::uint32_t word = words->of(c.id);
    if (c.value + word_noise_bound(word) < best) continue;
    const double score = c.value + word_noise(word);
    if (score > best || (score == best && c.id < best_id)) {
      best = score;
      best_id = c.id;
    }
  }
  return best_id;
}

TokenId Sampler::choose(std::span<float> logits, std::int32_t output_index) {
  adjust(logits, output_index);
  if (request_->sampling.temperature == 0.0F) return greedy(logits);
  gather(logits);
  if (candidates_.empty()) return kNoToken;
  keep_min_p();
  keep_top_k();
  keep_top_p();
  return draw(static_cast<std::int64_t>(request_->prompt.size()) + output_index);
}

std::optional<OutputToken> Sampler::sample(std::span<float> logits, const RowStats& stats,
                                           std::int32_t output_index) {
  CHECK(logits.size() >= static_cast<std::size_t>(vocab_size_));
  rewind(output_index);
  if (!stats.finite) return std::nullopt;
  const SamplingParams& p = request_->sampling;
  // Logprobs are of the raw row, which adjust() overwrites; they need the chosen id, which comes after it.
  std::vector<float> raw;
  if (p.logprobs && !plain_greedy(output_index)) raw.assign(logits.begin(), logits.end());

  const bool fast = plain_greedy(output_index) && stats.argmax < vocab_size_;
  OutputToken out;
  out.id = fast ? stats.argmax : choose(logits, output_index);
  if (out.id == kNoToken) return std::nullopt;
  if (p.logprobs) {
    const std::span<const float> row = raw.empty() ? logits : std::span<const float>(raw);
    out.logprobs = row_logprobs(row.first(static_cast<std::size_t>(vocab_size_)), stats.logsumexp, out.id,
                                *p.logprobs);
  }
  remember(out.id);
  return out;
}

TokenLogprobs row_logprobs(std::span<const float> logits, float logsumexp, TokenId id, std::int32_t top) {
  struct Entry {
    TokenId id;
    float value;
  };
  const float own = logits[static_cast<std::size_t>(id)];
  TokenLogprobs out;
  out.id = id;
  out.logprob = own - logsumexp;
  std::int32_t rank = 1;
  std::vector<Entry> best;  // a heap whose front is the worst of the best
  const auto k = static_cast<std::size_t>(std::max(top, 0));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Entry e{static_cast<TokenId>(i), logits[i]};
    if (better(e, Entry{id, own})) ++rank;
    if (k == 0) continue;
    if (best.size() < k) {
      best.push_back(e);
      std::push_heap(best.begin(), best.end(), better<Entry>);
    } else if (better(e, best.front())) {
      std::pop_heap(best.begin(), best.end(), better<Entry>);
      best.back() = e;
      std::push_heap(best.begin(), best.end(), better<Entry>);
    }
  }
  std::sort_heap(best.begin(), best.end(), better<Entry>);
  out.rank = rank;
  for (const Entry& e : best) out.top.push_back({e.id, e.value - logsumexp});
  return out;
}

}  // namespace barg::runtime
