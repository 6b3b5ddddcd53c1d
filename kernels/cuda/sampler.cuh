// The choice of the next token of each row of logits, one block of threads a row: to the bit the token that the CPU's
// sampler (src/runtime/sampler.h) takes of equal f32 logits, whatever the number of threads and their order.
//
// Masks -> biases -> repetition, frequency, presence -> temperature -> min_p -> top_k -> top_p over the renormalised
// survivors -> Gumbel draw, its noise keyed by (seed, choice, position, token id). What is kept is always the head of one
// order (larger logit, then lower id), so it is named by the rank word of its last token (`lower_`). Where the head ends
// is found by histograms: of the depth below the largest logit, over the row; then, over the few that are as deep as that
// needs, listed in shared memory, of the rank words' bytes, the highest first. Counts and masses (units of 2^-44) are
// integers, so that no sum depends on its order. A row whose head is too long for the list is read again instead.
//
// Logarithms of probabilities are those of the raw row: the sum is exact in those units, then rounded.
#pragma once

#include "cuda/sampler.h"
#include "cuda/sampler_math.cuh"

namespace barg::cuda {

inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kSampleListed = 2048;   ///< tokens that are listed in shared memory
/// Place of bin `b` of 256: eight that follow one another are a lane's, and lanes' bins lie in different banks.
BARG_DEVICE constexpr int bin_at(int b) { return b + b / 8; }
inline constexpr int kSampleBins = 256 + 32;

struct SampleShared {
  std::uint64_t weights[kSampleBins];
  std::uint32_t counts[kSampleBins];
  std::uint64_t partial[kSampleWarps];
  std::uint64_t top[kMaxTopLogprobs];
  // What locate() found: a bin, what lies above it, how many tokens are in it, and in it and above.
  std::uint64_t above;
  double goal;
  std::int32_t bin;  ///< -1: all together do not reach the goal
  std::uint32_t in_bin, down_to_bin;
  std::uint32_t listed, lowest_key;
  double noise;
  std::uint32_t list_key[kSampleListed];
  std::int32_t list_id[kSampleListed];
};

class SampleRun {
 public:
  BARG_DEVICE SampleRun(const SampleArgs& p, SampleShared& shared)
      : p_(p), row_(p.rows[block_x()]), s_(shared), raw_(p.logits + block_x() * p.stride), x_(raw_) {}

  BARG_DEVICE void run() {
    const std::uint64_t top = best_of_all_ = largest();
    SampledToken out{kNoToken, SampleStatus::kChosen, 0, 0, 0.0f};
    if (rank_key(top) <= kMaskedKey || rank_key(top) >= kInfinityKey) {
      out.status = SampleStatus::kNotFinite;
    } else if (row_.forced != kNoToken) {
      out.id = row_.forced;
    } else {
      choose(out);
      if (out.id == kNoToken) out.status = SampleStatus::kNothing;
    }
    if (out.id != kNoToken && row_.top_logprobs >= 0) report(top, out);
    if (thread_id() != 0) return;
    SampledToken& to = p_.out[block_x()];
    to.id = out.id;
    to.status = out.status;
    to.for_length = out.for_length;
    to.rank = out.rank;
    to.logprob = out.logprob;
    if (row_.chosen != nullptr) *row_.chosen = out.id == kNoToken ? 0 : out.id;
    if (out.id != kNoToken && row_.counts != nullptr) row_.counts[out.id] += 1;
  }

 private:
  enum class By : std::uint8_t { kCount, kMass };

  // ---- the row

  /// Logits of the ids 4 i .. 4 i + 3, adjusted; -infinity beyond the vocabulary.
  BARG_DEVICE void load(int i, float (&x)[4]) const {
    const bool whole = 4 * i + 4 <= p_.vocab;
    if (whole) {
      const Vec16 v = load16(x_ + 4 * i);
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = bits_float(v.x[e]);
    } else {
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = 4 * i + e < p_.vocab ? x_[4 * i + e] : -infinity();
    }
    if (!adjusted_) return;
    if (row_.counts != nullptr) {
      Vec16 counts{};
      if (whole) counts = load16(row_.counts + 4 * i);
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (!whole && 4 * i + e < p_.vocab) counts.x[e] = row_.counts[4 * i + e];
        x[e] = penalised(x[e], counts.x[e]);
      }
    }
    if (mask_ != nullptr) {
      const std::uint32_t bits = mask_[i / 8] >> (4 * (i % 8));
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = (bits >> e & 1u) != 0 ? x[e] : -infinity();
    }
  }

  BARG_DEVICE float penalised(float x, std::uint32_t count) const {
    if (count == 0) return x;
    x = x > 0 ? divide(x, row_.repetition) : x * row_.repetition;
    const std::uint32_t outputs = seeded("sample.outputs", count & ~kInPrompt);
    if (outputs == 0) return x;
    x = x - row_.frequency * static_cast<float>(outputs);
    return x - row_.presence;
  }

  /// f(rank word) of every candidate, each by one thread.
  template <class F>
  BARG_DEVICE void for_each(const F& f) const {
    if (listed_ >= 0) {
      for (int i = thread_id(); i < listed_; i += kSampleThreads) {
        const std::uint64_t word = rank_word(s_.list_key[i], s_.list_id[i]);
        if (word >= lower_) f(word);
      }
      return;
    }
    for (int i = thread_id(); 4 * i < p_.vocab; i += kSampleThreads) {
      float x[4];
      load(i, x);
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) {
        const std::uint64_t word = rank_word(sort_key(x[e]), 4 * i + e);
        if (4 * i + e < p_.vocab && word >= lower_ && depth(x[e]) <= deepest_) f(word);
      }
    }
  }

  /// Eighths below the largest logit; 255 is all that is deeper. Never larger for a larger x.
  BARG_DEVICE int depth(float x) const {
    const float below = max_ - x;
    if (below >= 31.875f) return 255;
    return below > 0 ? static_cast<int>(8.0f * below) : 0;  // 0 also of two infinities
  }

  // ---- what all threads learn together

  template <class F>
  BARG_DEVICE std::uint64_t reduce(std::uint64_t v, const F& join) {
    for (int width = 16; width >= 1; width /= 2) v = join(v, exchanged(v, width));
    if (lane_id() == 0) s_.partial[warp_id()] = v;
    // The parts are there.
    sync_block();
    v = s_.partial[0];
    for (int w = 1; w < kSampleWarps; ++w) v = join(v, s_.partial[w]);
    // The next parts may come.
    sync_block();
    return v;
  }
  static BARG_DEVICE std::uint64_t exchanged(std::uint64_t v, int width) {
    const std::uint32_t low = shuffle_xor(static_cast<std::uint32_t>(v), width);
    const std::uint32_t high = shuffle_xor(static_cast<std::uint32_t>(v >> 32), width);
    return std::uint64_t{high} << 32 | low;
  }
  BARG_DEVICE std::uint64_t most(std::uint64_t v) {
    return reduce(v, [](std::uint64_t a, std::uint64_t b) { return b > a ? b : a; });
  }
  BARG_DEVICE std::uint64_t sum(std::uint64_t v) {
    return reduce(v, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  }

  /// The best token of the row as it is now; a NaN has the largest key.
  BARG_DEVICE std::uint64_t largest() {
    std::uint64_t best = 0;
    for (int i = thread_id(); 4 * i < p_.vocab; i += kSampleThreads) {
      float x[4];
      load(i, x);
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) {
        const std::uint64_t word = rank_word(x[e] == x[e] ? sort_key(x[e]) : 0xffffffffu, 4 * i + e);
        if (4 * i + e < p_.vocab && word > best) best = word;
      }
    }
    return most(best);
  }

  // ---- the choice

  BARG_DEVICE void choose(SampledToken& out) {
    if (row_.num_biases > 0) add_biases();
    adjusted_ = true;
    out.id = choose_among(row_.mask);
    if (out.id == kNoToken || row_.fits == nullptr) return;
    if ((row_.fits[out.id / 32] >> (out.id % 32) & 1u) != 0) return;
    out.for_length = 1;
    out.id = choose_among(row_.fits);
  }

  BARG_DEVICE void add_biases() {
    float* const x = p_.scratch + block_x() * p_.stride;
    for (int i = thread_id(); i < p_.vocab; i += kSampleThreads) x[i] = raw_[i];
    // The copy is whole.
    sync_block();
    for (int i = thread_id(); i < row_.num_biases; i += kSampleThreads) {
      const TokenId id = row_.biases[i].id;
      if (i > 0 && row_.biases[i - 1].id == id) continue;
      float y = x[id];
      for (int j = i; j < row_.num_biases && row_.biases[j].id == id; ++j) y = y + row_.biases[j].value;
      x[id] = y;
    }
    // The biases are added.
    sync_block();
    x_ = x;
  }

  BARG_DEVICE TokenId choose_among(const std::uint32_t* mask) {
    mask_ = mask;
    start(kMaskedKey + 1, row_.temperature);
    const bool as_it_was = mask == nullptr && row_.counts == nullptr && x_ == raw_;
    const std::uint64_t top = as_it_was ? best_of_all_ : largest();
    if (top < lower_) return kNoToken;
    if (row_.temperature == 0.0f) return rank_id(top);
    set_largest(top);
    if (row_.log_min_p > static_cast<double>(-infinity())) keep_min_p();
    if (row_.top_k > 0) cut<By::kCount>(static_cast<double>(row_.top_k));
    if (row_.top_p < 1.0f) cut<By::kMass>(static_cast<double>(row_.top_p));
    return draw(top);
  }

  BARG_DEVICE void start(std::uint32_t lowest_key, float temperature) {
    lower_ = std::uint64_t{lowest_key} << 32;
    deepest_ = 255;
    listed_ = -1;
    temperature_ = static_cast<double>(temperature);
  }
  BARG_DEVICE void set_largest(std::uint64_t top) {
    max_ = rank_float(top);
    top_value_ = value(max_);
  }
  BARG_DEVICE double value(float x) const { return static_cast<double>(x) / temperature_; }

  /// value >= value of the largest + log min_p, which holds from some key on.
  BARG_DEVICE void keep_min_p() {
    if (thread_id() == 0) {
      const double floor = top_value_ + seeded("sample.min_p", row_.log_min_p);
      std::uint32_t low = kMaskedKey + 1, high = sort_key(max_);
      while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        const double v = value(sorted_float(middle));
        if (v < floor && v != top_value_) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      s_.lowest_key = low;
    }
    // The bound is there.
    sync_block();
    lower_ = std::uint64_t{s_.lowest_key} << 32;
  }

  // ---- the head of the order

  template <By kBy>
  BARG_DEVICE std::uint64_t weight(std::uint64_t word) const {
    return kBy == By::kCount ? 1 : mass_units(value(rank_float(word)) - top_value_);
  }

  /// Keeps the shortest head that has `amount` candidates, or that share of their mass (and at least one candidate).
  template <By kBy>
  BARG_DEVICE void cut(double amount) {
    bool first = true;
    if (listed_ < 0) {
      if (!narrow<kBy>(amount)) return;
      first = false;
    }
    std::uint64_t prefix = 0, above = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
      clear();
      for_each([&](std::uint64_t word) {
        if (shift == 56 || word >> (shift + 8) == prefix) add(static_cast<int>(word >> shift & 255u), weight<kBy>(word));
      });
      // All are in their bins.
      sync_block();
      locate<kBy>(amount, above, first);
      first = false;
      if (s_.bin < 0) return;
      prefix = prefix << 8 | static_cast<std::uint32_t>(s_.bin);
      above = s_.above;
      const bool whole = kBy == By::kCount && static_cast<double>(above + s_.in_bin) == s_.goal;
      if (shift == 0 || whole || s_.in_bin == 1) {
        const std::uint64_t last = prefix << shift;
        lower_ = last > lower_ ? last : lower_;
        return;
      }
    }
  }

  /// Lets go of what is deeper than the head's end, and lists the rest where it fits. False: all are kept.
  template <By kBy>
  BARG_DEVICE bool narrow(double amount) {
    clear();
    for_each([&](std::uint64_t word) {
      const int bin = 255 - depth(rank_float(word));
      const std::uint64_t w = weight<kBy>(word);
      if (w != 0 || bin != 0) add(bin, w);  // most of a row is nothing, and would meet in one bin
    });
    // All are in their bins.
    sync_block();
    locate<kBy>(amount, 0, true);
    if (s_.bin < 0) return false;
    deepest_ = 255 - s_.bin;
    // Of the deepest bin of masses only those that weigh something were counted.
    const bool counted = kBy == By::kCount || s_.bin != 0;
    if (!counted || s_.down_to_bin > kSampleListed) return true;
    list();
    return true;
  }

  BARG_DEVICE void list() {
    if (thread_id() == 0) s_.listed = 0;
    // The list is empty.
    sync_block();
    for_each([&](std::uint64_t word) {
      const std::uint32_t at = shared_atomic_add(&s_.listed, 1u);
      if (at >= kSampleListed) return;  // cannot be; nothing else is overwritten if it is
      s_.list_key[at] = rank_key(word);
      s_.list_id[at] = rank_id(word);
    });
    // The list is whole.
    sync_block();
    listed_ = static_cast<int>(s_.listed);
  }

  BARG_DEVICE void clear() {
    for (int i = thread_id(); i < kSampleBins; i += kSampleThreads) {
      s_.weights[i] = 0;
      s_.counts[i] = 0;
    }
    // The bins are empty.
    sync_block();
  }
  BARG_DEVICE void add(int bin, std::uint64_t weight) {
    shared_atomic_add(&s_.counts[bin_at(bin)], 1u);
    shared_atomic_add(&s_.weights[bin_at(bin)], weight);
  }

  /// The highest bin with which the weight from above on reaches the goal; the first histogram of a cut also says what
  /// the goal is. The first warp looks, lane l at bins 255 - 8 l and the seven below it.
  template <By kBy>
  BARG_DEVICE void locate(double amount, std::uint64_t above, bool first) {
    if (warp_id() == 0) {
      std::uint64_t weights = 0;
      std::uint32_t count = 0;
      for (int j = 0; j < 8; ++j) {
        const int bin = 255 - 8 * lane_id() - j;
        count += s_.counts[bin_at(bin)];
        weights += s_.weights[bin_at(bin)];
      }
      std::uint64_t weights_here = weights;  // of this lane and those before it
      std::uint32_t count_here = count;
      for (int distance = 1; distance < 32; distance *= 2) {
        const std::uint32_t low = shuffle_up(static_cast<std::uint32_t>(weights_here), distance);
        const std::uint32_t high = shuffle_up(static_cast<std::uint32_t>(weights_here >> 32), distance);
        const std::uint32_t before = shuffle_up(count_here, distance);
        if (lane_id() >= distance) {
          weights_here += std::uint64_t{high} << 32 | low;
          count_here += before;
        }
      }
      const std::uint32_t low = shuffle(static_cast<std::uint32_t>(weights_here), 31);
      const std::uint32_t high = shuffle(static_cast<std::uint32_t>(weights_here >> 32), 31);
      double goal = amount;
      if (kBy == By::kMass) goal = first ? amount * static_cast<double>(std::uint64_t{high} << 32 | low) : s_.goal;
      const auto reached = [&](std::uint64_t w, std::uint32_t c) { return c > 0 && static_cast<double>(above + w) >= goal; };
      const std::uint32_t lanes = ballot(reached(weights_here, count_here));
      if (lanes == 0 && lane_id() == 0) s_.bin = -1;
      if (lanes != 0 && lane_id() == lowest_bit(lanes)) {
        std::uint64_t w = weights_here - weights;
        std::uint32_t c = count_here - count;
        int bin = 255 - 8 * lane_id();
        for (int j = 0; j < 7 && !reached(w + s_.weights[bin_at(bin)], c + s_.counts[bin_at(bin)]); ++j, --bin) {
          w += s_.weights[bin_at(bin)];
          c += s_.counts[bin_at(bin)];
        }
        s_.bin = seeded("sample.bin", bin);
        s_.above = above + w;
        s_.in_bin = s_.counts[bin_at(bin)];
        s_.down_to_bin = c + s_.in_bin;
        if (first) s_.goal = goal;  // later calls read it, and no barrier of theirs lies between
      }
    }
    // What was found is there, and the bins are free.
    sync_block();
  }

  // ---- the draw

  /// The candidate with the largest noised value, of equal ones that with the lowest id.
  BARG_DEVICE TokenId draw(std::uint64_t top) {
    const TokenId top_id = rank_id(top);
    if (thread_id() == 0) s_.noise = word_noise(noise_of(top_id));
    // The noise of the largest is there.
    sync_block();
    best_id_ = top_id;
    best_ = top_value_ + s_.noise;
    set_filter(-s_.noise);
    if (listed_ >= 0) {
      for_each([&](std::uint64_t word) { offer(rank_float(word), rank_id(word), noise_of(rank_id(word))); });
    } else {
      draw_from_row();
    }
    const std::uint64_t score = sort_key(best_), winner = most(score);
    return static_cast<TokenId>(~most(score == winner ? ~static_cast<std::uint64_t>(best_id_) : 0));
  }

  BARG_DEVICE void draw_from_row() {
    for (int i = thread_id(); 4 * i < p_.vocab; i += kSampleThreads) {
      float x[4];
      load(i, x);
      const NoiseWords words = noise_words(row_.seed, row_.choice, row_.position, static_cast<std::uint32_t>(i));
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) {
        const std::uint64_t word = rank_word(sort_key(x[e]), 4 * i + e);
        if (word >= lower_ && depth(x[e]) <= deepest_) offer(x[e], 4 * i + e, words.x[e]);
      }
    }
  }

  BARG_DEVICE std::uint32_t noise_of(TokenId id) const {
    const NoiseWords w = noise_words(row_.seed, row_.choice, row_.position, static_cast<std::uint32_t>(id) / 4);
    const int e = seeded("sample.noise", id % 4);
    return e < 2 ? (e == 0 ? w.x[0] : w.x[1]) : (e == 2 ? w.x[2] : w.x[3]);
  }

  /// The test that spares most candidates their logarithms, and loses none that could win: ops::GumbelFilterParams and
  /// draw_row() in src/runtime/selection.cpp say why. `below`: the value of the largest less its score.
  BARG_DEVICE void set_filter(double below) {
    constexpr double kLog2e = 1.4426950408889634074, kUnit = 8388608, kSlack = 1024;
    filtered_ = max_ < infinity() && row_.temperature >= 1e-20f;
    if (!filtered_) return;
    slope_ = static_cast<float>(kUnit * kLog2e / temperature_);
    offset_ = static_cast<float>(kUnit * (151 + below * kLog2e) + kSlack);
  }

  BARG_DEVICE void offer(float x, TokenId id, std::uint32_t word) {
    if (filtered_) {
      const auto level = static_cast<float>(static_cast<std::int32_t>(word >> 8));
      const auto bits = static_cast<float>(static_cast<std::int32_t>(float_bits(level)));
      if (!(bits <= fma(x - max_, slope_, offset_))) return;
    }
    const double v = value(x);
    if (v + word_noise_bound(word) < best_) return;
    const double score = v + word_noise(word);
    if (score > best_ || (score == best_ && id < best_id_)) {
      best_ = score;
      best_id_ = id;
    }
  }

  // ---- logarithms of probabilities

  BARG_DEVICE void report(std::uint64_t top, SampledToken& out) {
    adjusted_ = false;
    x_ = raw_;
    start(0, 1.0f);
    set_largest(top);
    const float own = raw_[out.id];
    const std::uint64_t own_word = rank_word(sort_key(own), out.id);
    std::uint64_t mass = 0, better = 0;
    for_each([&](std::uint64_t word) {
      mass += weight<By::kMass>(word);
      better += word > own_word ? 1 : 0;
    });
    const auto units = static_cast<double>(sum(mass));
    const auto total = static_cast<float>(top_value_ + exact_log(units * (1 / kMassUnits)));
    out.rank = static_cast<std::int32_t>(sum(better)) + 1;
    out.logprob = own - total;
    const int wanted = row_.top_logprobs < p_.vocab ? row_.top_logprobs : p_.vocab;
    if (wanted > 0) report_top(wanted, total);
  }

  BARG_DEVICE void report_top(int wanted, float total) {
    cut<By::kCount>(static_cast<double>(wanted));
    if (thread_id() == 0) s_.listed = 0;
    // Nothing is reported yet.
    sync_block();
    for_each([&](std::uint64_t word) {
      const std::uint32_t at = shared_atomic_add(&s_.listed, 1u);
      if (at < kMaxTopLogprobs) s_.top[at] = word;
    });
    // The best are there, in any order.
    sync_block();
    if (thread_id() >= wanted) return;
    const std::uint64_t mine = s_.top[thread_id()];
    int place = 0;
    for (int i = 0; i < wanted; ++i) place += s_.top[i] > mine ? 1 : 0;
    const int at = block_x() * kMaxTopLogprobs + place;
    p_.top_ids[at] = rank_id(mine);
    p_.top_logprobs[at] = rank_float(mine) - total;
  }

  const SampleArgs& p_;
  const SampleRow& row_;
  SampleShared& s_;
  const float* const raw_;
  const float* x_;                    ///< raw_, or the scratch with biases
  const std::uint32_t* mask_ = nullptr;
  bool adjusted_ = false;             ///< load() applies penalties and mask_
  std::uint64_t best_of_all_ = 0;     ///< of the raw row
  std::uint64_t lower_ = 0;           ///< candidates: rank words from here on,
  int deepest_ = 255;                 ///< no deeper than this
  int listed_ = -1;                   ///< candidates are in the list, so many; -1: in the row
  float max_ = 0;                     ///< the largest logit
  double temperature_ = 1, top_value_ = 0;
  // Of this thread, in draw().
  double best_ = 0;
  TokenId best_id_ = kNoToken;
  bool filtered_ = false;
  float slope_ = 0, offset_ = 0;
};

BARG_KERNEL sample_kernel(SampleArgs p) {
  BARG_SHARED(SampleShared, shared, 1);
  SampleRun(p, shared[0]).run();
}

BARG_KERNEL sample_counts_kernel(SampleCountsArgs p) {
  const SampleCounts& s = p.sequences[block_x()];
  for (int i = thread_id(); i < p.vocab; i += kSampleThreads) s.counts[i] = 0;
  // All are zero.
  sync_block();
  for (int i = thread_id(); i < s.num_prompt; i += kSampleThreads) s.counts[s.prompt[i]] = kInPrompt;
  // The prompt is marked.
  sync_block();
  for (int i = thread_id(); i < s.num_outputs; i += kSampleThreads)
    atomic_add(reinterpret_cast<std::int32_t*>(s.counts + s.outputs[i]), 1);
}

}  // namespace barg::cuda
