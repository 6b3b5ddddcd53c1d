// The real model: SmolLM2-135M-Instruct (Q4_1 GGUF) in recipe f32 against transformers' greedy tokens, int8
// against f32, and what loading costs in memory. Skipped where the file is not (scripts/run fetches it).
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "base/json.h"
#include "model/golden_kit.h"

namespace barg::model::test::smollm2_test {
namespace {

struct GoldenCase {
  std::string id;
  std::vector<std::int32_t> prompt, output;
  std::vector<double> gaps;
  std::vector<std::vector<std::int32_t>> top_ids;
  std::vector<std::vector<double>> top_logprobs;
};

std::vector<std::int32_t> ids_of(const Json& array) {
  std::vector<std::int32_t> out;
  for (const Json& v : array.as_array()) out.push_back(static_cast<std::int32_t>(v.as_int()));
  return out;
}

std::vector<GoldenCase> read_cases(const std::string& path) {
  auto text = read_file(path, 16 << 20);
  const Json root = parse_json(text.value(), {.max_members = 0}).value();
  std::vector<GoldenCase> out;
  for (const Json& c : root.find("cases")->as_array()) {
    GoldenCase g{
        c.find("id")->as_string(), ids_of(*c.find("prompt_ids")), ids_of(*c.find("output_ids")), {}, {}, {}};
    for (const Json& step : c.find("steps")->as_array()) {
      g.gaps.push_back(step.find("gap")->as_double());
      g.top_ids.push_back(ids_of(*step.find("ids")));
      g.top_logprobs.emplace_back();
      for (const Json& lp : step.find("logprobs")->as_array())
        g.top_logprobs.back().push_back(lp.as_double());
    }
    out.push_back(std::move(g));
  }
  return out;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // minutes instead of seconds; the tiny models walk the same code
#else
constexpr bool kSanitized = false;
#endif

struct Files {
  std::string model = barg::test::smollm2_gguf();
  std::string goldens = barg::test::shared_data("smollm2/goldens.json");
  bool here() const { return !model.empty() && !goldens.empty(); }
};

/// log(softmax) of one row, in double.
std::vector<double> log_softmax(const float* x, std::size_t n) {
  const double m = *std::max_element(x, x + n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::exp(x[i] - m);
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] - m - std::log(sum);
  return out;
}

/// Logits that predict each output token, the golden's own tokens being fed (one pass over everything).
std::vector<float> teacher_forced(Harness& h, const GoldenCase& c) {
  std::vector<std::int32_t> all = c.prompt;
  all.insert(all.end(), c.output.begin(), c.output.end() - 1);
  h.free_all();
  auto hidden = h.prefill(h.new_sequence(static_cast<std::int32_t>(all.size())), all, {256});
  hidden.erase(hidden.begin(),
               hidden.begin() + static_cast<std::ptrdiff_t>((c.prompt.size() - 1) * h.hidden()));
  return h.logits(hidden);
}

/// Every step's best token, and its five best log-probabilities.
void check_case(Harness& h, const GoldenCase& c) {
  const auto logits = teacher_forced(h, c);
  for (std::size_t t = 0; t < c.output.size(); ++t) {
    const float* row = &logits[t * h.vocab()];
    const std::int32_t best = Harness::argmax(row, h.vocab());
    if (c.gaps[t] > 1e-3) {
      EXPECT_EQ(best, c.output[t]) << c.id << " step " << t;
    }
    const auto lp = log_softmax(row, h.vocab());
    for (std::size_t i = 0; i < c.top_ids[t].size(); ++i) {
      EXPECT_NEAR(lp[static_cast<std::size_t>(c.top_ids[t][i])], c.top_logprobs[t][i], 1e-3)
          << c.id << " step " << t;
    }
  }
}

constexpr std::size_t kShortPrompt = 60;  ///< longer cases wait for the long run, but for one

TEST(SmolLm2, RecipeF32GivesTheGoldenTokens) {
  const Files files;
  if (!files.here() || kSanitized) GTEST_SKIP() << "skipped: no SmolLM2 file, or sanitizers";
  Harness h(open_or_throw(files.model), {});
  std::size_t checked = 0;
  for (const GoldenCase& c : read_cases(files.goldens)) {
    if (c.prompt.size() > kShortPrompt) continue;
    if (checked++ % 4 == 0) check_case(h, c);
  }
  EXPECT_GE(checked, 12u);
}

TEST(SmolLm2, AllGoldenTokens) {
  if (std::getenv("BARG_TEST_LONG") == nullptr) GTEST_SKIP() << "skipped: long, see scripts/test --full";
  const Files files;
  if (!files.here() || kSanitized) GTEST_SKIP() << "skipped: no SmolLM2 file, or sanitizers";
  Harness h(open_or_throw(files.model), {});
  for (const GoldenCase& c : read_cases(files.goldens)) check_case(h, c);
}

TEST(SmolLm2, DecodingOneByOneGivesTheGoldenTokens) {
  const Files files;
  if (!files.here() || kSanitized) GTEST_SKIP() << "skipped: no SmolLM2 file, or sanitizers";
  Harness h(open_or_throw(files.model), {});
  const auto cases = read_cases(files.goldens);
  const GoldenCase& c = cases.at(1);
  const std::vector<std::int32_t> want(c.output.begin(), c.output.begin() + 24);
  for (std::size_t t = 0; t < 24; ++t) ASSERT_GT(c.gaps[t], 1e-3);
  EXPECT_EQ(h.greedy(c.prompt, 24, {16, 5}), want);
}

/// The mean KL of `recipe` with `kv` to f32 with f32, and the share of rows with the same best token, as
/// properties of the test.
void check_kl(const Files& files, Recipe recipe, DType kv, double bound) {
  const auto model = open_or_throw(files.model);
  Harness exact(model, {}), fast(model, {.recipe = recipe, .kv_dtype = kv});
  double kl = 0;
  std::size_t rows = 0, agree = 0;
  const auto cases = read_cases(files.goldens);
  std::vector<std::size_t> chosen = {0, 3, 5, 8};
  if (std::getenv("BARG_TEST_LONG") != nullptr) {
    chosen.resize(cases.size());
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  }
  for (const std::size_t i : chosen) {
    const auto a = teacher_forced(exact, cases.at(i)), b = teacher_forced(fast, cases.at(i));
    const std::size_t v = exact.vocab();
    for (std::size_t r = 0; r * v < a.size(); ++r, ++rows) {
      const auto p = log_softmax(&a[r * v], v), q = log_softmax(&b[r * v], v);
      for (std::size_t k = 0; k < v; ++k) kl += std::exp(p[k]) * (p[k] - q[k]);
      agree += Harness::argmax(&a[r * v], v) == Harness::argmax(&b[r * v], v);
    }
  }
  kl /= static_cast<double>(rows);
  const double top1 = static_cast<double>(agree) / static_cast<double>(rows);
  const std::string what = std::string(recipe_name(recipe)) + "_kv_" + dtype_name(kv);
  ::testing::Test::RecordProperty("mean_kl_" + what, std::to_string(kl));
  ::testing::Test::RecordProperty("top1_" + what, std::to_string(top1));
  std::printf("%s: mean KL to f32 %.2e, the same best token in %.2f %% of %zu rows\n", what.c_str(), kl,
              100 * top1, rows);
  EXPECT_LE(kl, bound) << what;
  EXPECT_GT(kl, 1e-7) << what;  // the two are not one
}

TEST(SmolLm2, Int8StaysWithinTwoThousandthsOfKl) {
  const Files files;
  if (!files.here() || kSanitized) GTEST_SKIP() << "skipped: no SmolLM2 file, or sanitizers";
  check_kl(files, Recipe::kInt8, DType::kF16, 2e-3);
}

TEST(SmolLm2, Bf16StaysWithinTwoThousandthsOfKl) {
  const Files files;
  if (!files.here() || kSanitized) GTEST_SKIP() << "skipped: no SmolLM2 file, or sanitizers";
  const ops::Isa isa = barg::test::test_cpu(0).isa;
  if (!ops::recipe_supported(isa, Recipe::kBF16)) GTEST_SKIP() << "skipped: this machine has no AVX512-BF16";
  check_kl(files, Recipe::kBF16, DType::kF16, 2e-3);
}

/// What the KV dtype alone costs.
TEST(SmolLm2, KvDtypesStayWithinTheirKl) {
  const Files files;
  if (!files.here() || kSanitized) GTEST_SKIP() << "skipped: no SmolLM2 file, or sanitizers";
  check_kl(files, Recipe::kF32, DType::kI8, 2e-3);
  check_kl(files, Recipe::kF32, DType::kF8E4M3, 1e-2);
  if (std::getenv("BARG_TEST_LONG") == nullptr) return;
  check_kl(files, Recipe::kF32, DType::kF16, 2e-3);
  check_kl(files, Recipe::kF32, DType::kBF16, 2e-3);
  check_kl(files, Recipe::kInt8, DType::kI8, 4e-3);
  check_kl(files, Recipe::kInt8, DType::kF8E4M3, 1e-2);
}

/// Two bytes a weight; of a tied embedding once.
TEST(SmolLm2, Bf16WeightsAreAsLargeAsPlanned) {
  const Files files;
  if (files.model.empty()) GTEST_SKIP() << "skipped: no SmolLM2 file";
  const auto model = open_or_throw(files.model);
  ops::CpuDevice device({.threads = 2});
  const auto planned = Decoder::weight_bytes(*model, device.ops(), Recipe::kBF16).value();
  const auto d = Decoder::load(*model, device.ops(), device.stream(), {.recipe = Recipe::kBF16});
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ((*d)->weight_bytes(), planned);
  std::uint64_t weights = 0;
  for (const Tensor& t : model->tensors()) weights += t.elements();
  EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(weights), 2.0, 0.01);
}

/// Resident bytes of this process.
std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * 4096;
}

TEST(SmolLm2, WeightsTakeTheFilesSizeInMemory) {
  const Files files;
  if (files.model.empty()) GTEST_SKIP() << "skipped: no SmolLM2 file";
  const auto model = open_or_throw(files.model);
  ops::CpuDevice device({.threads = 1});
  const auto planned = Decoder::weight_bytes(*model, device.ops(), Recipe::kF32).value();
  const std::uint64_t before = resident_bytes();
  std::uint64_t last = 0, total = 0;
  const auto d =
      Decoder::load(*model, device.ops(), device.stream(), {}, [&](std::uint64_t done, std::uint64_t all) {
        EXPECT_GE(done, last);
        last = done;
        total = all;
      });
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(last, total);
  EXPECT_EQ((*d)->weight_bytes(), planned);
  EXPECT_LE(static_cast<double>(planned), 1.01 * static_cast<double>(model->total_bytes()));
  if (!kSanitized) {
    EXPECT_LE(static_cast<double>(resident_bytes() - before),
              1.15 * static_cast<double>(model->total_bytes()));
  }
}

}  // namespace
}  // namespace barg::model::test::smollm2_test
