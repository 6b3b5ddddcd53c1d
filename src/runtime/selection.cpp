#include "runtime/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace barg::runtime {
namespace {

constexpr std::size_t kBlock = ops::kBlockMax;
constexpr std::size_t kDrawBlocks = 32;  // per call of the filter: between two calls the bar rises
constexpr double kLog2e = 1.4426950408889634074;

// Four lanes are in every x86-64 and cost no second copy of this file.
using F4 = float __attribute__((vector_size(16)));
using I4 = std::int32_t __attribute__((vector_size(16)));

F4 load(const float* p) {
  F4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
F4 splat(float x) { return F4{x, x, x, x}; }
F4 larger(F4 a, F4 b) { return a > b ? a : b; }
float sum(F4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

// ---- top_p: the mass of a tail

/// 2^y for -87 <= y <= 0 within 5e-6 of its value: y = n + r, |r| <= 1/2, interpolation in r at Chebyshev's
/// points.
F4 rough_exp2(F4 y) {
  const F4 shifted = y + splat(12582912.0F);  // rounds to an integer, which is then in the low bits
  const F4 r = y - (shifted - splat(12582912.0F));
  F4 p = splat(9.66636837e-3F);
  p = p * r + splat(5.59219755e-2F);
  p = p * r + splat(2.40223497e-1F);
  p = p * r + splat(6.93121016e-1F);
  p = p * r + splat(1.0F);
  return std::bit_cast<F4>(std::bit_cast<I4>(p) + (std::bit_cast<I4>(shifted) << 23));
}

/// Masses exp((x - max) / temperature) of blocks, near the truth by kTailError of themselves: x - max, its
/// factor and their product are rounded, at most 87 in powers of two; rough_exp2 and the sums add little.
class RoughMasses {
 public:
  static constexpr double kTailError = 3e-5;

  RoughMasses(const Row& row, float max, double temperature, std::vector<float>& blocks)
      : row_(row), max_(max), factor_(static_cast<float>(kLog2e / temperature)), blocks_(blocks) {
    for (std::size_t b = 0; b < row.block_max.size(); ++b) {
      const bool far = (row.block_max[b] - max) * factor_ < kFar;
      blocks_[b] = far ? 0 : block<true>(b, 0);
      total_ += static_cast<double>(blocks_[b]);
      unseen_ += far ? static_cast<double>(kBlock) * 0x1p-57 : 0;
    }
  }

  double total() const { return total_; }
  /// Of all x < floor.
  double below(float floor) const {
    double sum = 0;
    for (std::size_t b = 0; b < row_.block_max.size(); ++b)
      sum += static_cast<double>(row_.block_max[b] < floor ? blocks_[b] : block<false>(b, floor));
    return sum;
  }
  /// At most so much more is below every floor.
  double unseen() const { return unseen_; }

 private:
  static constexpr float kFar = -58;  // blocks whose best is 2^-58 of the row's best are not looked at

  /// What the clamp makes of smaller values is far below the rounding that goal_of() allows for.
  template <bool kAll>
  float block(std::size_t b, float floor) const {
    const float* x = row_.logits.data() + b * kBlock;
    const std::size_t count = std::min(kBlock, row_.logits.size() - b * kBlock);
    F4 lanes = {};
    const auto add = [&](F4 v) {
      const F4 mass = rough_exp2(larger((v - splat(max_)) * splat(factor_), splat(-87)));
      if constexpr (kAll) {
        lanes += mass;
      } else {
        lanes += v < splat(floor) ? mass : splat(0);
      }
    };
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) add(load(x + i));
    for (; i < count; ++i) add(F4{x[i], kMasked, kMasked, kMasked});
    return sum(lanes);
  }

  const Row& row_;
  const float max_, factor_;
  std::vector<float>& blocks_;
  double total_ = 0, unseen_ = 0;
};

/// Where the goal of a nucleus may lie, all roundings included.
struct Goal {
  double low, high;
};

Goal goal_of(double top_p, double head, double tail, double unseen) {
  constexpr double kRounding = 1e-7;  // 2^-44, the unit of masses, times the longest vocabulary, and more
  const double low = head + tail * (1 - RoughMasses::kTailError);
  const double high = head + tail * (1 + RoughMasses::kTailError) + unseen;
  return {top_p * low * (1 - kRounding) - kRounding, top_p * high * (1 + kRounding) + kRounding};
}

/// keep_top_p() by masses that are set, with a goal known within bounds: false if that does not decide.
bool cut_at(std::vector<Candidate>& candidates, const Goal& goal) {
  double kept = 0;
  auto lo = candidates.begin();
  auto hi = candidates.end();
  while (hi - lo > 64) {
    auto mid = lo + (hi - lo) / 2;
    std::nth_element(lo, mid, hi, better<Candidate>);
    double upper = 0;
    for (auto it = lo; it != mid; ++it) upper += it->mass;
    if (kept + upper >= goal.high) {
      hi = mid;
    } else if (kept + upper < goal.low) {
      kept += upper;
      lo = mid;
    } else {
      return false;
    }
  }
  std::sort(lo, hi, better<Candidate>);
  auto end = lo;
  for (; end != hi && kept < goal.high; ++end) {
    if (kept >= goal.low) return false;
    kept += end->mass;
  }
  if (kept < goal.high) return false;
  candidates.erase(end, candidates.end());
  return true;
}

}  // namespace

SampleScratch::SampleScratch(const ops::OpTable& table, std::int32_t vocab_size) : ops(&table) {
  const auto vocab = static_cast<std::size_t>(vocab_size);
  candidates.reserve(vocab);
  maxima.resize((vocab + kBlock - 1) / kBlock);
  blocks.resize(maxima.size());
  stale.resize(maxima.size());
  hits.resize(kDrawBlocks * kBlock);
  ids.reserve(kListed);
}

bool list_ids(const TokenSet& set, SampleScratch& scratch) {
  if (set.count > kListed) return false;
  scratch.ids.clear();
  for (std::size_t w = 0; w < set.words.size(); ++w) {
    for (std::uint64_t bits = set.words[w]; bits != 0; bits &= bits - 1) {
      scratch.ids.push_back(static_cast<TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
  return true;
}

void keep_only(const Row& row, std::span<const std::uint64_t> words) {
  static_assert(kBlock == 64, "a block of logits is a word of a mask");
  CHECK(words.size() == row.block_max.size());
  for (std::size_t b = 0; b < words.size(); ++b) {
    const auto block = row.logits.subspan(b * kBlock, std::min(kBlock, row.logits.size() - b * kBlock));
    const std::uint64_t others = ~words[b] & (~std::uint64_t{0} >> (64 - block.size()));
    if (others == 0) continue;
    if (words[b] == 0) {
      std::fill(block.begin(), block.end(), kMasked);
      row.block_max[b] = kMasked;
      continue;
    }
    for (std::uint64_t bits = others; bits != 0; bits &= bits - 1) {
      block[static_cast<std::size_t>(std::countr_zero(bits))] = kMasked;
    }
    row.block_max[b] = block_maximum(row.logits, b);
  }
}

float block_maximum(std::span<const float> logits, std::size_t b) {
  const auto block = logits.subspan(b * kBlock, std::min(kBlock, logits.size() - b * kBlock));
  F4 lanes[4] = {splat(kMasked), splat(kMasked), splat(kMasked), splat(kMasked)};
  std::size_t i = 0;
  for (; i + 16 <= block.size(); i += 16) {
    for (std::size_t l = 0; l < 4; ++l) lanes[l] = larger(load(block.data() + i + 4 * l), lanes[l]);
  }
  const F4 most = larger(larger(lanes[0], lanes[1]), larger(lanes[2], lanes[3]));
  float max = std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
  for (; i < block.size(); ++i) max = std::max(max, block[i]);
  return max;
}

TokenId first_max(const Row& row) {
  float max = kMasked;
  std::size_t block = 0;
  for (std::size_t b = 0; b < row.block_max.size(); ++b) {
    if (row.block_max[b] > max) {
      max = row.block_max[b];
      block = b;
    }
  }
  if (max == kMasked) return kNoToken;
  const auto begin = row.logits.begin() + static_cast<std::ptrdiff_t>(block * kBlock);
  const auto found = std::find(begin, row.logits.end(), max);
  CHECK(found != row.logits.end());
  return static_cast<TokenId>(found - row.logits.begin());
}

void gather(const Row& row, float floor, double temperature, std::vector<Candidate>& out) {
  out.clear();
  for (std::size_t b = 0; b < row.block_max.size(); ++b) {
    if (row.block_max[b] < floor) continue;
    const std::size_t end = std::min((b + 1) * kBlock, row.logits.size());
    for (std::size_t i = b * kBlock; i < end; ++i) {
      const float x = row.logits[i];
      if (x < floor || x == kMasked) continue;
      out.push_back({static_cast<TokenId>(i), static_cast<double>(x) / temperature, 0});
    }
  }
}

float selection_floor(const Row& row, float max, double temperature, float min_p, std::int32_t top_k,
                      SampleScratch& scratch) {
  float floor = kMasked;
  if (top_k > 0 && static_cast<std::size_t>(top_k) <= row.block_max.size()) {
    // The k largest maxima are k different logits: the k-th largest logit is not below the last of them.
    auto& m = scratch.maxima;
    std::copy(row.block_max.begin(), row.block_max.end(), m.begin());
    const auto end = m.begin() + static_cast<std::ptrdiff_t>(row.block_max.size());
    std::nth_element(m.begin(), m.begin() + (top_k - 1), end, std::greater<>());
    floor = m[static_cast<std::size_t>(top_k - 1)];
  }
  if (min_p > 0 && std::isfinite(max)) {
    const double depth = temperature * exact_log(static_cast<double>(min_p));
    // Off the bound of keep_min_p() by some roundings of f64: of the summands, which may cancel.
    const double bound = static_cast<double>(max) + depth - 1e-15 * (std::abs(max) - depth);
    const float below = std::nextafter(static_cast<float>(bound), kMasked);
    floor = std::max(floor, std::nextafter(below, kMasked));
  }
  return floor;
}

void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  if (min_p <= 0 || candidates.empty()) return;
  // p_i >= min_p * p_max, that is x_i - max >= log(min_p).
  double max = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates) max = std::max(max, c.value);
  const double floor = max + exact_log(static_cast<double>(min_p));
  std::erase_if(candidates, [&](const Candidate& c) { return c.value < floor && c.value != max; });
}

void keep_top_k(std::vector<Candidate>& candidates, std::int32_t k) {
  if (k <= 0 || candidates.size() <= static_cast<std::size_t>(k)) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), better<Candidate>);
  candidates.resize(static_cast<std::size_t>(k));
}

void keep_top_p(std::vector<Candidate>& candidates, float p) {
  const double top_p = p;
  if (top_p >= 1.0 || candidates.size() <= 1) return;
  double max = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates) max = std::max(max, c.value);
  std::uint64_t total = 0;
  for (Candidate& c : candidates) {
    const std::uint64_t units = mass_units(c.value - max);
    c.mass = static_cast<double>(units);  // exact: at most 2^44
    total += units;
  }
  // Smallest prefix of the descending order whose mass reaches p: weighted selection. [lo, hi) is where the
  // boundary lies, everything before lo is kept and weighs `kept`.
  const double goal = top_p * static_cast<double>(total);
  std::uint64_t kept = 0;
  auto lo = candidates.begin();
  auto hi = candidates.end();
  while (hi - lo > 64) {
    auto mid = lo + (hi - lo) / 2;
    std::nth_element(lo, mid, hi, better<Candidate>);
    std::uint64_t upper = 0;
    for (auto it = lo; it != mid; ++it) upper += static_cast<std::uint64_t>(it->mass);
    if (static_cast<double>(kept + upper) >= goal) {
      hi = mid;
    } else {
      kept += upper;
      lo = mid;
    }
  }
  std::sort(lo, hi, better<Candidate>);
  auto end = lo;
  while (end != hi && static_cast<double>(kept) < goal) kept += static_cast<std::uint64_t>((end++)->mass);
  if (end == candidates.begin()) ++end;
  candidates.erase(end, candidates.end());
}

bool gather_top_p(const Row& row, float max, double temperature, float top_p, SampleScratch& scratch) {
  const RoughMasses rough(row, max, temperature, scratch.maxima);
  const double top = static_cast<double>(max) / temperature;
  auto& candidates = scratch.candidates;
  for (const double depth : {5.0, 9.0, 14.0}) {  // in values below the largest
    const auto floor = static_cast<float>(static_cast<double>(max) - depth * temperature);
    const double tail = rough.below(floor);
    if (tail > (1 - static_cast<double>(top_p)) * rough.total()) continue;  // roughly: it would not decide
    gather(row, floor, temperature, candidates);
    double head = 0;
    for (Candidate& c : candidates) head += c.mass = exact_exp(c.value - top);
    const Goal goal = goal_of(top_p, head, tail, rough.unseen());
    if (goal.low > 0 && goal.high < head && cut_at(candidates, goal)) return true;
  }
  return false;
}

TokenId draw(const std::vector<Candidate>& candidates, const NoiseKey& key) {
  // Start from the largest value: its noised score prunes nearly everything that follows.
  const auto top = std::min_element(candidates.begin(), candidates.end(), better<Candidate>);
  TokenId best_id = top->id;
  double best = top->value + word_noise(noise_word(key, top->id));
  for (const Candidate& c : candidates) {
    if (c.value + kMaxNoise < best || c.id == top->id) continue;
    const std::uint32_t word = noise_word(key, c.id);
    if (c.value + word_noise_bound(word) < best) continue;
    const double score = c.value + word_noise(word);
    if (score > best || (score == best && c.id < best_id)) {
      best = score;
      best_id = c.id;
    }
  }
  return best_id;
}

// The filter's test, from what it must not miss. Let h = word >> 8, so v > h / 2^24, and noise <= -log v. A
// score of at least `best` needs log2 h <= 24 + (value - best) log2 e. The bits of float(h), as a number, are
// 2^23 times 127 plus an interpolation of log2 h that never exceeds it. So bits <= 2^23 (151 + (value - best)
// log2 e), where value - best = (x - max) / temperature + (value of max - best). h = 0 passes while the right
// side is positive, which covers all noise up to 2^(151 - ...). Roundings to f32 are together below 400 of
// these units.
TokenId draw_row(const Row& row, TokenId top, double temperature, const NoiseKey& key,
                 SampleScratch& scratch) {
  constexpr double kUnit = 8388608;  // 2^23
  constexpr double kSlack = 1024;
  const float max = row.logits[static_cast<std::size_t>(top)];
  const double top_value = static_cast<double>(max) / temperature;
  TokenId best_id = top;
  double best = top_value + word_noise(noise_word(key, top));
  ops::GumbelFilterParams filter{.x = row.logits.data(),
                                 .dim = static_cast<std::int32_t>(row.logits.size()),
                                 .blocks = scratch.blocks.data(),
                                 .num_blocks = 0,
                                 .seed = key.seed,
                                 .position = key.position,
                                 .choice = key.choice,
                                 .max = max,
                                 .slope = static_cast<float>(kUnit * kLog2e / temperature),
                                 .offset = 0,
                                 .hits = scratch.hits.data()};
  for (std::size_t b = 0; b < row.block_max.size();) {
    filter.num_blocks = 0;
    for (; b < row.block_max.size() && filter.num_blocks < static_cast<std::int32_t>(kDrawBlocks); ++b) {
      if (static_cast<double>(row.block_max[b]) / temperature + kMaxNoise < best) continue;
      scratch.blocks[static_cast<std::size_t>(filter.num_blocks++)] = static_cast<std::int32_t>(b);
    }
    filter.offset = static_cast<float>(kUnit * (151 + (top_value - best) * kLog2e) + kSlack);
    const std::int32_t hits = scratch.ops->gumbel_filter(filter);
    for (std::int32_t i = 0; i < hits; ++i) {
      const TokenId id = scratch.hits[static_cast<std::size_t>(i)];
      if (id == top) continue;
      const double value = static_cast<double>(row.logits[static_cast<std::size_t>(id)]) / temperature;
      const std::uint32_t word = noise_word(key, id);
      if (value + word_noise_bound(word) < best) continue;
      const double score = value + word_noise(word);
      if (score > best || (score == best && id < best_id)) {
        best = score;
        best_id = id;
      }
    }
  }
  return best_id;
}

}  // namespace barg::runtime
