// Models with recurrent layers against transformers float32: logits, hidden states and greedy tokens; equal bits for
// every way to cut the tokens into steps, also where one sequence goes on from the state that another has left.
#include "model/golden_checks.h"

namespace barg::model::test::recurrent_test {
namespace {

struct Kind {
  const char* name;
  float bar = kBar;
};
void PrintTo(const Kind& k, std::ostream* os) { *os << k.name; }

class RecurrentModel : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    path_ = barg::test::shared_data(std::string("models/") + GetParam().name);
    if (path_.empty()) GTEST_SKIP() << barg::test::kNoShared;
  }
  GoldenOptions options() const { return {.bar = GetParam().bar}; }
  std::string path_;
};

TEST_P(RecurrentModel, LogitsAndGreedyTokensEqualTransformers) {
  check_file_against_goldens(path_, path_ + "/goldens.safetensors", options());
}

TEST_P(RecurrentModel, HiddenStatesEqualTransformers) { check_hidden_states(path_, options()); }

TEST_P(RecurrentModel, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const auto ids = longest_prompt(Goldens(path_ + "/goldens.safetensors"), 257);
  check_bits(open_or_throw(path_), ids, Recipe::kF32, DType::kF32);
  check_bits(open_or_throw(path_), ids, Recipe::kF32, DType::kF8E4M3);
  if (ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16))
    check_bits(open_or_throw(path_), ids, Recipe::kBF16, DType::kF16);
}

TEST_P(RecurrentModel, BatchMatesAndUnwantedRowsDoNotChangeABit) {
  const auto ids = longest_prompt(Goldens(path_ + "/goldens.safetensors"), 257);
  const auto n = static_cast<std::int32_t>(ids.size());
  Harness h(open_or_throw(path_), {});
  const auto want = h.prefill(h.new_sequence(n), ids, {ids.size()});
  // Two copies a step apart, in one batch; of most rows nobody wants anything.
  const std::int32_t a = h.new_sequence(n), b = h.new_sequence(n);
  const std::int32_t cut = n / 2 + 3;
  h.step({{a, 0, {ids.begin(), ids.begin() + cut}, 0}});
  const auto both = h.step({{a, cut, {ids.begin() + cut, ids.end()}, 1}, {b, 0, {ids.begin(), ids.begin() + cut}, 2}});
  EXPECT_TRUE(same_bits(h.row(both, 0), h.row(want, static_cast<std::size_t>(n) - 1)));
  EXPECT_TRUE(same_bits(h.row(both, 2), h.row(want, static_cast<std::size_t>(cut) - 1)));
  const auto rest = h.step({{b, cut, {ids.begin() + cut, ids.end()}}});
  EXPECT_TRUE(same_bits(h.row(rest, 0), h.row(want, static_cast<std::size_t>(cut))));
}

constexpr Kind kKinds[] = {{"qwen3-next"}, {"qwen35", 5e-4f},  {"qwen35-moe"}, {"mamba2"},
                           {"bamba"},      {"granite-hybrid"}, {"falcon-h1"},  {"lfm2"}};
INSTANTIATE_TEST_SUITE_P(Models, RecurrentModel, ::testing::ValuesIn(kKinds), [](const auto& info) {
  std::string s = info.param.name;
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
});

}  // namespace
}  // namespace barg::model::test::recurrent_test
