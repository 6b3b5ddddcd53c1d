// The sampler: the token that the CPU's sampler takes of the same logits, whatever is asked; logarithms of probabilities
// against float64; accesses; seeded errors.
#include "cuda/sampler.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "cpu_reference.h"
#include "support.h"

namespace barg::cuda {
namespace {

using cpu::Choice;
using emu::Device;
using Seed = emu::Fault::Kind;

struct Sampled {
  std::vector<SampledToken> out;
  std::vector<TokenId> ids, top_ids;
  std::vector<float> top_logprobs;
  std::vector<std::vector<std::uint32_t>> counts;  ///< after the launch; of rows without penalties empty
  test::Findings findings;
};

struct SampleSetup {
  emu::Schedule schedule{};
  emu::Fault fault{};
  bool count_sites = false;
  TokenId forced = kNoToken;  ///< in every row
};

/// What a sequence's counts are before its next token.
std::uint32_t* prepared_counts(Device& device, const Choice& c) {
  auto* const counts = test::room<std::uint32_t>(device, c.logits.size(), "counts");
  std::vector<TokenId> prompt = c.prompt;
  std::sort(prompt.begin(), prompt.end());
  prompt.erase(std::unique(prompt.begin(), prompt.end()), prompt.end());
  const std::vector<SampleCounts> one = {{counts, test::uploaded(device, prompt, "prompt"),
                                          test::uploaded(device, c.outputs, "outputs"),
                                          static_cast<std::int32_t>(prompt.size()),
                                          static_cast<std::int32_t>(c.outputs.size())}};
  const SampleCountsArgs args{test::uploaded(device, one, "sequences"), static_cast<std::int32_t>(c.logits.size())};
  launch<sample_counts_kernel>(device.stream(), {.grid_x = 1, .threads = kSampleThreads}, args);
  return counts;
}

SampleRow row_of(Device& device, const Choice& c, TokenId forced) {
  SampleRow row{};
  if (c.has_penalties()) row.counts = prepared_counts(device, c);
  if (!c.mask.empty()) row.mask = test::uploaded(device, c.mask, "mask");
  if (!c.fits_mask.empty()) row.fits = test::uploaded(device, c.fits_mask, "fits");
  std::vector<SampleBias> biases;
  for (const auto& [id, bias] : c.biases) biases.push_back({id, bias});
  std::stable_sort(biases.begin(), biases.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  row.biases = test::uploaded(device, biases, "biases");
  row.num_biases = static_cast<std::int32_t>(biases.size());
  row.top_k = c.top_k;
  row.seed = c.seed;
  row.log_min_p = c.log_min_p;
  row.choice = c.number;
  row.position = c.position;
  row.temperature = c.temperature;
  row.top_p = c.top_p;
  row.repetition = c.repetition;
  row.frequency = c.frequency;
  row.presence = c.presence;
  row.forced = forced;
  row.top_logprobs = c.top_logprobs;
  return row;
}

/// One launch for all of them; they have vocabularies of one size.
Sampled sample(const std::vector<Choice>& choices, const SampleSetup& setup = {}) {
  Device device(setup.schedule);
  Sampled s;
  const std::size_t rows = choices.size(), vocab = choices.front().logits.size();
  const std::size_t stride = (vocab + 3) / 4 * 4 + 4;
  std::vector<SampleRow> all;
  SampleArgs args{};
  auto* const ids = test::room<TokenId>(device, rows, "ids");
  auto* const logits = test::room<float>(device, rows * stride, "logits");  // behind each row: nothing was written
  for (std::size_t i = 0; i < rows; ++i) {
    device.upload(logits + i * stride, choices[i].logits.data(), vocab * sizeof(float));
    all.push_back(row_of(device, choices[i], setup.forced));
    all.back().chosen = ids + i;
  }
  args.logits = logits;
  args.stride = static_cast<std::int64_t>(stride);
  args.vocab = static_cast<std::int32_t>(vocab);
  args.scratch = test::room<float>(device, rows * stride, "scratch");
  args.rows = test::uploaded(device, all, "rows");
  args.out = test::room<SampledToken>(device, rows, "out");
  args.top_ids = test::room<TokenId>(device, rows * kMaxTopLogprobs, "top ids");
  args.top_logprobs = test::room<float>(device, rows * kMaxTopLogprobs, "top logprobs");
  EXPECT_EQ(test::findings(device).text, "");
  device.set_fault(setup.fault);
  device.count_sites(setup.count_sites);
  launch<sample_kernel>(device.stream(), {.grid_x = static_cast<int>(rows), .threads = kSampleThreads}, args);
  s.findings = test::findings(device);
  s.out = test::downloaded(device, args.out, rows);
  s.ids = test::downloaded(device, ids, rows);
  s.top_ids = test::downloaded(device, args.top_ids, rows * kMaxTopLogprobs);
  s.top_logprobs = test::downloaded(device, args.top_logprobs, rows * kMaxTopLogprobs);
  for (const SampleRow& row : all) {
    s.counts.push_back(row.counts == nullptr ? std::vector<std::uint32_t>{} : test::downloaded(device, row.counts, vocab));
  }
  return s;
}

Sampled sample(Choice choice, const SampleSetup& setup = {}) { return sample(std::vector<Choice>{std::move(choice)}, setup); }

bool near(float a, float b) { return a == b || std::fabs(a - b) <= 2e-6F * (1 + std::fabs(b)); }

/// Row i is the CPU's answer.
bool is_the_cpus(const Choice& c, const Sampled& s, std::size_t i) {
  const SampledToken& out = s.out[i];
  if (out.id != c.id || s.ids[i] != std::max(c.id, 0)) return false;
  if (out.for_length != (c.for_length ? 1 : 0)) return false;
  if (c.id == kNoToken || c.top_logprobs < 0) return true;
  if (out.rank != c.rank || !near(out.logprob, c.logprob)) return false;
  for (std::size_t t = 0; t < c.top.size(); ++t) {
    const std::size_t at = i * kMaxTopLogprobs + t;
    if (s.top_ids[at] != c.top[t].first || !near(s.top_logprobs[at], c.top[t].second)) return false;
  }
  return true;
}

std::string text_of(const Choice& c) {
  std::string text = "temperature " + std::to_string(c.temperature) + " top_k " + std::to_string(c.top_k) + " top_p " +
                     std::to_string(c.top_p) + " min_p " + std::to_string(c.min_p) + " penalties " +
                     std::to_string(c.repetition) + " " + std::to_string(c.frequency) + " " + std::to_string(c.presence);
  return text + " biases " + std::to_string(c.biases.size()) + " mask " + std::to_string(c.mask.size()) + " logprobs " +
         std::to_string(c.top_logprobs) + " id " + std::to_string(c.id) + " rank " + std::to_string(c.rank);
}

void expect_the_cpus(const std::vector<Choice>& choices, const SampleSetup& setup = {}) {
  const Sampled s = sample(choices, setup);
  EXPECT_EQ(s.findings.text, "");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    EXPECT_TRUE(is_the_cpus(choices[i], s, i)) << text_of(choices[i]) << " got " << s.out[i].id << " rank " << s.out[i].rank
                                               << " logprob " << s.out[i].logprob << " for " << choices[i].logprob;
  }
}

/// Logits of a language model's kind: a few are likely.
std::vector<float> row(std::uint32_t seed, std::int32_t vocab, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(static_cast<std::size_t>(vocab));
  for (float& v : x) v = normal(random);
  return x;
}

Choice answered(Choice c) {
  cpu::answer(c);
  return c;
}

TEST(Sample, TakesTheCpusTokenWhateverIsAsked) {
  const int rows = emu::hooked() ? 12 : 60;
  int turn = 0, chosen = 0, drawn = 0, for_length = 0;
  for (const std::int32_t vocab : {9, 331, 1024, 5003}) {
    std::vector<Choice> choices;
    for (int i = 0; i < rows; ++i) {
      choices.push_back(cpu::random_choice(static_cast<std::uint64_t>(1000 * vocab + i), vocab));
      chosen += choices.back().id != kNoToken ? 1 : 0;
      drawn += choices.back().temperature > 0 ? 1 : 0;
      for_length += choices.back().for_length ? 1 : 0;
    }
    expect_the_cpus(choices, {.schedule = test::schedule(4 * turn++)});
  }
  EXPECT_GT(chosen, 3 * rows);
  EXPECT_GT(drawn, 2 * rows);
  EXPECT_GT(for_length, 0);
}

TEST(Sample, CutsWhereTheCpuCuts) {
  // Ties across every edge, heads that are too long for the list, and masses that reach the goal exactly.
  const std::int32_t vocab = 4099;
  std::vector<float> coarse = row(3, vocab, 2), flat(static_cast<std::size_t>(vocab), 1.5F);
  for (float& v : coarse) v = std::round(2 * v) / 2;
  std::vector<Choice> choices;
  std::uint64_t seed = 0;
  for (const auto& logits : {coarse, flat, row(4, vocab, 0.01F)}) {
    for (const std::int32_t top_k : {0, 1, 40, 2047, 2048, 2049, 4098}) {
      for (const float top_p : {1.0F, 0.5F, 0.97F}) {
        if (top_k == 0 && top_p == 1.0F) continue;
        Choice c;
        c.logits = logits;
        c.top_k = top_k;
        c.top_p = top_p;
        c.seed = ++seed;
        c.temperature = seed % 2 == 0 ? 1.0F : 1.7F;
        if (emu::hooked() && seed % 5 != 0) continue;
        choices.push_back(answered(c));
      }
    }
  }
  expect_the_cpus(choices);
}

TEST(Sample, ThousandsBesideTheHeadWeighNextToNothing) {
  // The goal lies among 2,000 logits far below the first; 2,999 are deeper still and weigh nothing. Together they are
  // more than the list holds.
  std::vector<Choice> choices;
  for (const float top_p : {0.99999F, 0.9999F, 0.5F}) {
    Choice c;
    c.logits.assign(5000, -1000.0F);
    std::fill_n(c.logits.begin() + 2999, 2000, -33.0F);
    c.logits.back() = 0;
    c.temperature = 2;
    c.top_p = top_p;
    c.seed = 5;
    choices.push_back(answered(c));
  }
  expect_the_cpus(choices);
}

TEST(Sample, ManySeedsDrawTheCpusTokens) {
  std::vector<Choice> choices;
  std::map<TokenId, int> drawn;
  for (std::uint32_t i = 0; i < (emu::hooked() ? 8U : 80U); ++i) {
    Choice c;
    c.logits = row(9, 700, 2);
    c.seed = i % 2 == 0 ? i : ~std::uint64_t{i};
    c.number = i % 3;
    c.outputs.assign(i % 5, 4);
    choices.push_back(answered(c));
    ++drawn[choices.back().id];
  }
  EXPECT_GT(drawn.size(), choices.size() / 4);
  expect_the_cpus(choices);
}

TEST(Sample, NumbersThatArePenalisedBeyondTheirRange) {
  std::vector<Choice> choices;
  for (const float top_p : {1.0F, 0.9F}) {
    Choice c;
    c.logits = row(5, 300, 1);
    c.logits[7] = c.logits[70] = 3e38F;
    c.repetition = 1e-3F;  // makes them infinite
    c.prompt = {7, 70, 8};
    c.top_p = top_p;
    choices.push_back(answered(c));
    c.temperature = 1e-25F;
    choices.push_back(answered(c));
    c.repetition = 1;
    choices.push_back(answered(c));
  }
  expect_the_cpus(choices);
}

TEST(Sample, SaysWhichRowsAreOfNoUse) {
  const float infinity = INFINITY;
  std::vector<Choice> choices(5);
  for (Choice& c : choices) c.logits = row(6, 100, 1);
  choices[0].logits[99] = NAN;
  choices[1].logits[0] = -NAN;
  choices[2].logits[50] = infinity;
  choices[3].logits.assign(100, -infinity);
  choices[4].banned.resize(100);
  for (int i = 0; i < 100; ++i) choices[4].banned[static_cast<std::size_t>(i)] = i;
  for (Choice& c : choices) cpu::answer(c);
  const Sampled s = sample(choices);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(is_the_cpus(choices[i], s, i));
    EXPECT_EQ(s.out[i].status, i < 4 ? SampleStatus::kNotFinite : SampleStatus::kNothing) << i;
  }
}

TEST(Sample, CountsWhatItTakes) {
  Choice c;
  c.logits = row(7, 200, 1);
  c.frequency = 0.5F;
  c.prompt = {5, 9};
  c.outputs = {9, 9, 11};
  cpu::answer(c);
  const Sampled s = sample(c);
  std::vector<std::uint32_t> want(200);
  want[5] = want[9] = kInPrompt;
  want[9] += 2;
  want[11] = 1;
  ++want[static_cast<std::size_t>(c.id)];
  EXPECT_EQ(s.counts[0], want);
}

TEST(Sample, WhatIsForcedIsTakenAndReported) {
  Choice c;
  c.logits = row(8, 200, 1);
  c.top_logprobs = 3;
  cpu::answer(c);
  const Sampled free = sample(c), forced = sample(c, {.forced = 123});
  EXPECT_EQ(forced.out[0].id, 123);
  EXPECT_EQ(forced.ids[0], 123);
  EXPECT_GT(forced.out[0].rank, 3);
  EXPECT_FLOAT_EQ(forced.out[0].logprob - c.logits[123],
                  free.out[0].logprob - c.logits[static_cast<std::size_t>(free.out[0].id)]);
}

TEST(Sample, LogarithmsAreThoseOfDoubles) {
  std::vector<Choice> choices;
  for (const float spread : {0.1F, 3.0F, 30.0F}) {
    Choice c;
    c.logits = row(10, 3001, spread);
    c.logits[17] = -INFINITY;
    c.top_logprobs = 20;
    choices.push_back(answered(c));
  }
  const Sampled s = sample(choices);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::vector<float>& x = choices[i].logits;
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(v - max);
    for (std::size_t t = 0; t < 20; ++t) {
      const std::size_t at = i * kMaxTopLogprobs + t;
      const double want = x[static_cast<std::size_t>(s.top_ids[at])] - max - std::log(sum);
      EXPECT_NEAR(s.top_logprobs[at], want, 1e-6 * (1 + std::fabs(max)));
      if (t > 0) {
        EXPECT_LE(s.top_logprobs[at], s.top_logprobs[at - 1]);
      }
    }
  }
}

TEST(Sample, FewerTokensThanAreToBeReported) {
  Choice c;
  c.logits = {1, -INFINITY, 3, 2};
  c.top_logprobs = 20;
  expect_the_cpus({answered(c)});
}

TEST(Sample, NoScheduleChangesABit) {
  std::vector<Choice> choices;
  for (std::uint64_t i = 0; i < 3; ++i) {
    Choice c = cpu::random_choice(500 + i, 600);
    c.temperature = 1;
    c.top_p = 0.9F;
    c.top_logprobs = 5;
    c.top.clear();
    choices.push_back(answered(c));
  }
  const Sampled first = sample(choices), alone = sample(choices[1]);
  EXPECT_EQ(alone.out[0].id, first.out[1].id);
  EXPECT_EQ(alone.out[0].logprob, first.out[1].logprob);
  for (int turn = 1; turn < 9; turn += emu::hooked() ? 4 : 1) {
    const Sampled again = sample(choices, {.schedule = test::schedule(turn)});
    EXPECT_EQ(again.findings.text, "");
    EXPECT_EQ(again.ids, first.ids);
    for (std::size_t i = 0; i < choices.size(); ++i) EXPECT_EQ(again.out[i].logprob, first.out[i].logprob);
    for (std::size_t i = 0; i < 15; ++i) {
      const std::size_t at = i / 5 * kMaxTopLogprobs + i % 5;
      EXPECT_EQ(again.top_logprobs[at], first.top_logprobs[at]);
    }
  }
}

TEST(Sample, AccessesAreWide) {
  Choice c;
  c.logits = row(12, 8192, 3);
  c.top_p = 0.9F;
  c.min_p = 0.001F;
  c.frequency = 0.1F;
  c.top_logprobs = 8;
  c.banned = {3};
  c.biases = {{5, 1.0F}};
  cpu::answer(c);
  const Sampled s = sample(c, {.count_sites = true});
  EXPECT_TRUE(is_the_cpus(c, s, 0));
  const auto at = [](const char* marker, const char* call) {
    return "sampler.cuh:" + std::to_string(test::line_after("sampler.cuh", marker, call));
  };
  // Where a token's number meets chance: its bin, and its place in a list that is filled in any order.
  test::expect_wide(s.findings, {at("void add(int bin", "counts[bin_at(bin)]"), at("void add(int bin", "weights[bin_at(bin)]"),
                                 at("void list()", "list_key[at]"), at("void list()", "list_id[at]"),
                                 at("void report_top(", "s_.top[at] = word"),
                                 at("void report_top(", "p_.top_ids[at]"), at("void report_top(", "p_.top_logprobs[at]")});
}

struct Mutant {
  const char* name;
  test::Kind detector;  ///< kDeadlock: another answer than the CPU's
  emu::Fault fault;
};

std::vector<Mutant> mutants() {
  const auto no_barrier = [](const char* marker) {
    return test::fault_at(Seed::kNoBarrier, "sampler.cuh", marker, "sync_block();");
  };
  const test::Kind race = test::Kind::kRace, answer = test::Kind::kDeadlock;
  return {
      {"no barrier behind the parts of a reduction", race, no_barrier("The parts are there.")},
      {"no barrier before the next reduction", race, no_barrier("The next parts may come.")},
      {"no barrier behind the copy", race, no_barrier("The copy is whole.")},
      {"no barrier behind the biases", race, no_barrier("The biases are added.")},
      {"no barrier behind the bound of min_p", race, no_barrier("The bound is there.")},
      {"no barrier before the bins are filled", race, no_barrier("The bins are empty.")},
      {"no barrier behind the bins", race, no_barrier("All are in their bins.")},
      {"no barrier behind what was found", race, no_barrier("What was found is there")},
      {"no barrier before the list", race, no_barrier("The list is empty.")},
      {"no barrier behind the list", race, no_barrier("The list is whole.")},
      {"no barrier behind the first noise", race, no_barrier("The noise of the largest is there.")},
      {"no barrier before the report", race, no_barrier("Nothing is reported yet.")},
      {"no barrier behind the report", race, no_barrier("The best are there")},
      {"the head one bin too short", answer, test::value("sample.bin", [](double x) { return x < 255 ? x + 1 : x; })},
      {"another token's noise", answer, test::value("sample.noise", [](double x) { return x < 3 ? x + 1 : 0; })},
      {"min_p too low", answer, test::value("sample.min_p", [](double x) { return 3 * x; })},
      {"an output too many", answer, test::value("sample.outputs", [](double x) { return x + 1; })},
  };
}

/// Rows that each mutant shows in.
std::vector<Choice> faulty_rows() {
  std::vector<Choice> choices;
  for (std::uint64_t i = 0; i < 6; ++i) {
    Choice c;
    c.logits = row(static_cast<std::uint32_t>(20 + i), 400, 1.5F);
    c.seed = i;
    c.biases = {{5, 1.0F}, {77, 2.0F}};
    c.prompt = {5, 6};
    if (i % 2 == 0) {
      c.top_k = 30;
      c.top_p = 0.7F;
      c.top_logprobs = 4;
    } else {
      c.min_p = 0.3F;
      c.frequency = 1.5F;
      const auto best = std::max_element(c.logits.begin(), c.logits.end()) - c.logits.begin();
      c.outputs = {static_cast<std::int32_t>(best)};
    }
    choices.push_back(answered(c));
  }
  Choice once;  // the best token came once; after a second time another would be the best
  once.logits = row(30, 400, 0.01F);
  once.logits[9] = 3.5F;
  once.logits[90] = 2;
  once.temperature = 0;
  once.frequency = 1;
  once.outputs = {9};
  choices.push_back(answered(once));
  return choices;
}

bool all_the_cpus(const std::vector<Choice>& choices, const Sampled& s) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!is_the_cpus(choices[i], s, i)) return false;
  }
  return true;
}

TEST(SampleFaults, EachIsSeenByItsDetector) {
  const std::vector<Choice> choices = faulty_rows();
  const Sampled right = sample(choices);
  EXPECT_EQ(right.findings.text, "");
  EXPECT_TRUE(all_the_cpus(choices, right));
  for (const Mutant& m : mutants()) {
    if (m.detector == test::Kind::kRace && !emu::hooked()) continue;
    // Thread 0 last: what it sets up for the others is then late.
    const Sampled s = sample(choices, {.schedule = {.threads = emu::Order::kReverse}, .fault = m.fault});
    EXPECT_TRUE(m.detector == test::Kind::kDeadlock ? !all_the_cpus(choices, s) : s.findings.kinds.contains(m.detector))
        << m.name << "; found instead: " << s.findings.text;
  }
}

}  // namespace
}  // namespace barg::cuda
