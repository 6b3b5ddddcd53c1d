// What a model is held to: logits, hidden states and greedy tokens of transformers in float32, and equal bits
// for every way to cut the same tokens into steps. Shared by the tests of checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "model/golden_kit.h"

namespace barg::model::test {

/// Of the standard deviation of a row's logits.
inline constexpr float kBar = 1e-4f;

struct GoldenOptions {
  std::string set = {};  ///< prompts whose names begin so ("fixed_long."); empty: those without a dot
  std::size_t longest = 1 << 20;  ///< longer prompts are left out
  std::int32_t context = 0;       ///< HarnessOptions::context
  float bar = kBar;
};

/// Prompts of the set.
inline std::vector<std::string> prompts_of(const Goldens& g, const GoldenOptions& o) {
  std::vector<std::string> out;
  for (const std::string& p : g.prompts()) {
    const bool in_set = o.set.empty() ? p.find('.') == p.npos : p.starts_with(o.set);
    if (in_set && g.ids(p + ".input_ids").size() <= o.longest) out.push_back(p);
  }
  return out;
}

/// Ids below it have a token: NAME.json beside NAME.safetensors says so.
inline std::size_t tokens_of(const std::string& goldens) {
  const std::string path = goldens.substr(0, goldens.rfind('.')) + ".json";
  const auto text = read_file(path, 64 << 20);
  if (!text) return 0;
  const auto json = parse_json(*text, {.max_depth = 64, .max_members = 0});
  const Json* n = json ? json->find("vocab_in_tokenizer") : nullptr;
  return n == nullptr ? 0 : static_cast<std::size_t>(n->as_double());
}

/// logsumexp in double.
inline double logsumexp(const float* x, std::size_t n) {
  const float m = *std::max_element(x, x + n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - m);
  return m + std::log(sum);
}

/// Largest |difference| over the row's standard deviation, over all stored positions.
inline double worst_of(const Goldens& g, const std::string& p, const std::vector<float>& logits,
                       std::size_t vocab) {
  const auto positions = g.ids(p + ".positions");
  const auto want = g.floats(p + ".logits");
  const auto std_dev = g.floats(p + ".logit_std");
  double worst = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto at = static_cast<std::size_t>(positions[i]);
    for (std::size_t v = 0; v < vocab; ++v) {
      worst = std::max(
          worst, std::abs(static_cast<double>(logits[at * vocab + v]) - want[i * vocab + v]) / std_dev[at]);
    }
  }
  return worst;
}

/// worst_of, and what is stored of every position: the sum of exponentials and the best token.
inline double check_prompt(const Goldens& g, const std::string& p, const std::vector<float>& logits,
                           std::size_t vocab, float bar) {
  const auto std_dev = g.floats(p + ".logit_std");
  const auto argmax = g.ids(p + ".argmax");
  const auto lse = g.floats(p + ".logsumexp");
  for (std::size_t at = 0; at < lse.size(); ++at) {
    const float* row = &logits[at * vocab];
    EXPECT_NEAR(logsumexp(row, vocab), lse[at], bar * std_dev[at]) << p << " position " << at;
    const std::int32_t best = Harness::argmax(row, vocab);
    // A tie within the bar may fall either way.
    EXPECT_LE(row[best] - row[argmax[at]], 2 * bar * std_dev[at]) << p << " position " << at;
  }
  return worst_of(g, p, logits, vocab);
}

/// Logits and greedy tokens of the model at `path`.
inline void check_file_against_goldens(const std::string& path, const std::string& golden_path,
                                       const GoldenOptions& options) {
  const Goldens g(golden_path);
  Harness h(open_or_throw(path),
            {.max_tokens = 2048, .context = options.context, .token_limit = tokens_of(golden_path)});
  double worst = 0;
  const auto prompts = prompts_of(g, options);
  EXPECT_FALSE(prompts.empty());
  for (const std::string& p : prompts) {
    const auto ids = g.ids(p + ".input_ids");
    h.free_all();
    const auto hidden = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {ids.size()});
    worst = std::max(worst, check_prompt(g, p, h.logits(hidden), h.vocab(), options.bar));
    h.free_all();
    EXPECT_EQ(h.greedy(ids, 32, {ids.size()}), g.ids(p + ".greedy")) << p;
  }
  EXPECT_LE(worst, options.bar);
  ::testing::Test::RecordProperty("worst_over_std", std::to_string(worst));
}

/// The same; both names are relative to the data directory.
inline void check_against_goldens(const std::string& model, const std::string& goldens,
                                  const GoldenOptions& options = {}) {
  const std::string path = barg::test::shared_data(model), golden_path = barg::test::shared_data(goldens);
  if (path.empty() || golden_path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  check_file_against_goldens(path, golden_path, options);
}

/// The residual stream after the embedding, each layer and the final norm, if there is one. REQUIRES hidden states in the
/// goldens.
inline void check_hidden_states(const std::string& path, const GoldenOptions& options) {
  const Goldens g(path + "/goldens.safetensors");
  Harness h(open_or_throw(path), {.context = options.context});
  std::map<std::int32_t, std::vector<float>> seen;
  h.decoder().set_observer([&](std::int32_t layer, const float* x, std::int32_t rows) {
    seen[layer].insert(seen[layer].end(), x, x + static_cast<std::size_t>(rows) * h.hidden());  // all streams
  });
  const auto ids = g.ids("p17.input_ids");
  seen[-2] = h.prefill(h.new_sequence(17), ids, {17});
  const auto check = [&](const std::string& name, const std::vector<float>& got) {
    const auto want = g.floats(name);
    ASSERT_EQ(got.size(), want.size()) << name;
    double sum = 0, worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      sum += static_cast<double>(want[i]) * want[i];
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    }
    EXPECT_LE(worst, options.bar * std::sqrt(sum / static_cast<double>(want.size()))) << name;
  };
  check("hidden.embed", seen[-1]);
  if (g.has("hidden.norm")) check("hidden.norm", seen[-2]);
  for (std::int32_t i = 0; i < h.decoder().spec().num_layers; ++i)
    check("hidden.layer." + std::to_string(i), seen[i]);
}

/// One reference run; then every other way to compute the same rows must give the same bits.
inline void check_bits(const std::shared_ptr<const ModelFiles>& files, const std::vector<std::int32_t>& ids,
                       Recipe recipe, DType kv) {
  const auto n = static_cast<std::int32_t>(ids.size());
  Harness h(files, {.recipe = recipe, .kv_dtype = kv, .cpu = {.threads = 1}});
  const auto want = h.prefill(h.new_sequence(n), ids, {ids.size()});
  const auto want_logits = h.logits(want);
  const auto again = [&](Harness& other, const std::vector<std::size_t>& chunks) {
    other.free_all();
    return other.prefill(other.new_sequence(n), ids, chunks);
  };
  EXPECT_TRUE(same_bits(again(h, {1}), want)) << "one by one";
  EXPECT_TRUE(same_bits(again(h, {7, 1, 33, 64, 2, 128, 31}), want)) << "odd chunks";
  Harness wide(files, {.recipe = recipe, .kv_dtype = kv, .block_tokens = 64, .cpu = {.threads = 3}});
  EXPECT_TRUE(same_bits(again(wide, {100, 57}), want)) << "64-token blocks, 3 threads";
  Harness scalar(files, {.recipe = recipe,
                         .kv_dtype = kv,
                         .block_tokens = 32,
                         .cpu = {.threads = 2, .isa = ops::Isa::kScalar}});
  EXPECT_TRUE(same_bits(again(scalar, {200, 3}), want)) << "scalar, 32-token blocks, 2 threads";
  EXPECT_TRUE(same_bits(scalar.logits(want), want_logits)) << "scalar logits";
  for (std::size_t row : {std::size_t{0}, ids.size() / 2, ids.size() - 1}) {
    const auto alone = h.logits(h.row(want, row));
    EXPECT_EQ(std::memcmp(alone.data(), &want_logits[row * h.vocab()], alone.size() * sizeof(float)), 0)
        << "logits of row " << row << " alone";
  }
}

/// The longest stored prompt of at most `most` tokens.
inline std::vector<std::int32_t> longest_prompt(const Goldens& g, std::size_t most) {
  std::vector<std::int32_t> best;
  for (const std::string& p : g.prompts()) {
    const auto ids = g.ids(p + ".input_ids");
    if (ids.size() <= most && ids.size() > best.size()) best = ids;
  }
  return best;
}

/// |int8 - f32| / |f32| over the logits of these ids.
inline double int8_distance(const std::shared_ptr<const ModelFiles>& files, const std::vector<std::int32_t>& ids) {
  const auto logits = [&](Recipe recipe) {
    Harness h(files, {.recipe = recipe});
    return h.logits(h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {ids.size()}));
  };
  const auto exact = logits(Recipe::kF32), fast = logits(Recipe::kInt8);
  double difference = 0, square = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(static_cast<double>(fast[i]) - exact[i], 2);
    square += std::pow(static_cast<double>(exact[i]), 2);
  }
  return std::sqrt(difference / square);
}

/// Two prompts in shared steps, one of them cut in the middle, against each alone.
inline void check_batch_mates(const std::shared_ptr<const ModelFiles>& files, const Goldens& g) {
  Harness h(files, {});
  const auto a = longest_prompt(g, 64), b = longest_prompt(g, 200);
  const int na = static_cast<int>(a.size()), nb = static_cast<int>(b.size()), cut = nb / 2;
  const auto want_a = h.prefill(h.new_sequence(na), a, {a.size()}),
             want_b = h.prefill(h.new_sequence(nb), b, {b.size()});
  h.free_all();
  const std::int32_t sa = h.new_sequence(na), sb = h.new_sequence(nb);
  const auto slice = [](const std::vector<std::int32_t>& v, int from, int to) {
    return std::vector<std::int32_t>(v.begin() + from, v.begin() + to);
  };
  h.step({{sb, 0, slice(b, 0, cut)}, {sa, 0, slice(a, 0, na - 1)}});
  const auto mixed = h.step({{sa, na - 1, slice(a, na - 1, na)}, {sb, cut, slice(b, cut, nb)}});
  EXPECT_TRUE(same_bits(h.row(mixed, 0), h.row(want_a, a.size() - 1)));
  EXPECT_TRUE(same_bits(h.row(mixed, static_cast<std::size_t>(nb - cut)), h.row(want_b, b.size() - 1)));
}

}  // namespace barg::model::test
