// The decoder against transformers float32 on tiny checkpoints (tests/data and ../shared/data, see its
// README): logits within 1e-4 of their standard deviation, hidden states, greedy tokens; and equal bits for
// every way to cut the same tokens into steps.
#include "math.h"
#include "model/golden_checks.h"
#include "model/hf_builder.h"

namespace barg::model::test::golden_test {
namespace {

class Checkpoint : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return barg::test::shared_data(std::string("models/") + GetParam()); }
};

TEST_P(Checkpoint, LogitsAndGreedyTokensEqualTransformers) {
  const std::string dir = std::string("models/") + GetParam(), goldens = dir + "/goldens.safetensors";
  check_against_goldens(dir, goldens);
}

TEST_P(Checkpoint, HiddenStatesEqualTransformers) {
  if (path().empty()) GTEST_SKIP() << barg::test::kNoShared;
  check_hidden_states(path(), {});
}

TEST_P(Checkpoint, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  if (path().empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path() + "/goldens.safetensors");
  const auto files = open_or_throw(path());
  const auto ids = longest_prompt(g, 257);  // crosses a split of 256 keys where there is such a prompt
  check_bits(files, ids, Recipe::kF32, DType::kF32);
  check_bits(files, ids, Recipe::kF32, DType::kBF16);
  check_bits(files, ids, Recipe::kF32, DType::kF8E4M3);
  check_bits(files, ids, Recipe::kF32, DType::kI8);
}

constexpr const char* kNoBf16 = "skipped: this machine has no AVX512-BF16";
bool has_bf16() { return ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16); }

TEST_P(Checkpoint, Bf16ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  if (path().empty()) GTEST_SKIP() << barg::test::kNoShared;
  if (!has_bf16()) GTEST_SKIP() << kNoBf16;
  const Goldens g(path() + "/goldens.safetensors");
  check_bits(open_or_throw(path()), longest_prompt(g, 257), Recipe::kBF16, DType::kF16);
}

/// The error of a logit against transformers, over the row's standard deviation (root mean square).
double error_over_deviation(const std::string& path, Recipe recipe, DType kv) {
  const Goldens g(path + "/goldens.safetensors");
  Harness h(open_or_throw(path), {.recipe = recipe, .kv_dtype = kv, .cpu = {.threads = 2}});
  double square = 0, count = 0;
  for (const std::string& p : g.prompts()) {
    const auto ids = g.ids(p + ".input_ids"), positions = g.ids(p + ".positions");
    h.free_all();
    const auto hidden = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {ids.size()});
    const auto logits = h.logits(hidden), want = g.floats(p + ".logits"),
               deviation = g.floats(p + ".logit_std");
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto at = static_cast<std::size_t>(positions[i]);
      for (std::size_t v = 0; v < h.vocab(); ++v, ++count) {
        const double d = static_cast<double>(logits[at * h.vocab() + v]) - want[i * h.vocab() + v];
        square += std::pow(d / deviation[at], 2);
      }
    }
  }
  return std::sqrt(square / count);
}

/// Eight bits of mantissa, two roundings a product: hundredths of a standard deviation.
TEST_P(Checkpoint, Bf16StaysNearTransformers) {
  if (path().empty()) GTEST_SKIP() << barg::test::kNoShared;
  if (!has_bf16()) GTEST_SKIP() << kNoBf16;
  const double error = error_over_deviation(path(), Recipe::kBF16, DType::kF16);
  RecordProperty("error_over_std", std::to_string(error));
  EXPECT_LE(error, 0.03);
  EXPECT_GE(error, kBar) << "bf16 is not f32";
}

/// Keys and values of four (fp8) and seven bits of significand, and weights drawn at random.
TEST_P(Checkpoint, EightBitKvStaysNearTransformers) {
  if (path().empty()) GTEST_SKIP() << barg::test::kNoShared;
  const double fp8 = error_over_deviation(path(), Recipe::kF32, DType::kF8E4M3);
  const double int8 = error_over_deviation(path(), Recipe::kF32, DType::kI8);
  RecordProperty("fp8_over_std", std::to_string(fp8));
  RecordProperty("int8_over_std", std::to_string(int8));
  EXPECT_LE(fp8, 0.25);
  EXPECT_LE(int8, 0.05);
  EXPECT_GE(int8, kBar) << "codes are not f32";
  EXPECT_LT(3 * int8, fp8);
}

class QuantisedBits : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantisedBits, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const std::string base = std::string("gguf/") + GetParam(), file = barg::test::shared_data(base + ".gguf");
  if (file.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(barg::test::shared_data(base + ".goldens.safetensors"));
  auto ids = longest_prompt(g, 1024);
  for (std::size_t i = 0; ids.size() < 270; ++i) ids.push_back(ids[i]);
  check_bits(open_or_throw(file), ids, Recipe::kInt8, DType::kF16);
  check_bits(open_or_throw(file), ids, Recipe::kInt8, DType::kF8E4M3);
  check_bits(open_or_throw(file), ids, Recipe::kInt8, DType::kI8);
  check_bits(open_or_throw(file), ids, Recipe::kF32, DType::kF16);
  if (has_bf16()) check_bits(open_or_throw(file), ids, Recipe::kBF16, DType::kF16);
}

/// Heads of 16 values: attention cannot prepare its rows, so the product after it does.
TEST_P(QuantisedBits, Int8StaysNearF32) {
  const std::string base = std::string("gguf/") + GetParam(), file = barg::test::shared_data(base + ".gguf");
  if (file.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(barg::test::shared_data(base + ".goldens.safetensors"));
  EXPECT_LT(int8_distance(open_or_throw(file), longest_prompt(g, 1024)), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Files, QuantisedBits, ::testing::Values("llama-q4_0", "llama31-q4_1", "llama-q8_0"),
                         [](const auto& info) {
                           std::string s = info.param;
                           std::replace(s.begin(), s.end(), '-', '_');
                           return s;
                         });

TEST_P(Checkpoint, BatchMatesDoNotChangeABit) {
  if (path().empty()) GTEST_SKIP() << barg::test::kNoShared;
  check_batch_mates(open_or_throw(path()), Goldens(path() + "/goldens.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Models, Checkpoint,
                         ::testing::Values("llama", "llama31", "smollm2", "mistral", "mistral-nemo",
                                           "llama-bias", "llama-linear", "llama-256"),
                         [](const auto& info) {
                           std::string s = info.param;
                           std::replace(s.begin(), s.end(), '-', '_');
                           return s;
                         });

class GgufFileGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufFileGoldens, LogitsAndGreedyTokensEqualTransformersOnDequantisedWeights) {
  const std::string base = std::string("gguf/") + GetParam(), file = base + ".gguf",
                    goldens = base + ".goldens.safetensors";
  check_against_goldens(file, goldens);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufFileGoldens,
                         ::testing::Values("llama-f32", "llama-f16", "llama-q8_0", "llama-q4_0",
                                           "llama31-f16", "llama31-q8_0", "llama31-q4_1", "llama-linear-f16"),
                         [](const auto& info) {
                           std::string s = info.param;
                           std::replace(s.begin(), s.end(), '-', '_');
                           return s;
                         });

/// A window layer never reads a block that lies wholly before the window of every row in the step.
TEST(SlidingWindow, BlocksThatLeftTheWindowAreNotRead) {
  const std::string path = barg::test::shared_data("models/mistral");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path + "/goldens.safetensors");
  Harness h(open_or_throw(path), {});
  const auto ids = g.ids("p200.input_ids");
  ASSERT_EQ(h.decoder().groups().size(), 1u);
  EXPECT_EQ(h.decoder().groups()[0].kind, StateKind::kSlidingWindow);
  const std::int32_t window = h.decoder().groups()[0].window;
  EXPECT_EQ(window, 24);
  const auto want = h.prefill(h.new_sequence(200), ids, {200});
  const std::int32_t seq = h.new_sequence(200);
  std::size_t dropped = 0;
  for (std::int32_t pos = 0; pos < 200; ++pos) {
    // A block is dead for good once its last token is at or before pos - window.
    while (static_cast<std::int32_t>(dropped + 1) * 16 - 1 <= pos - window) h.drop_block(seq, 0, dropped++);
    const auto got = h.step({{seq, pos, {ids[static_cast<std::size_t>(pos)]}}});
    ASSERT_TRUE(same_bits(got, h.row(want, static_cast<std::size_t>(pos)))) << "position " << pos;
  }
  EXPECT_EQ(dropped, 11u);
}

/// models/`name` again, as a directory of its own: config.json changed by `edit`, and the tensors for which
/// `widen` says so stored as F32 (their values stay).
struct Rewritten {
  TempDir dir;
  Rewritten(const std::string& source, const std::function<std::string(std::string)>& edit,
            const std::function<bool(const std::string&)>& widen) {
    const auto model = open_or_throw(source);
    dir.write("config.json", edit(read_file(source + "/config.json", 1 << 20).value()));
    std::string header = "{", data;
    for (const Tensor& t : model->tensors()) {
      const std::size_t begin = data.size();
      const bool wide = widen(t.name);
      if (wide) {
        for (std::size_t i = 0; i < t.elements(); ++i) {
          std::uint16_t h;
          std::memcpy(&h, t.bytes.data() + 2 * i, 2);
          data += Bytes().put(ops::bf16_to_f32(h)).data;
        }
      } else {
        data.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
      }
      std::string shape;
      for (const auto d : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
      header += (header.size() > 1 ? "," : "") + ("\"" + t.name + "\":{\"dtype\":\"") +
                (wide ? "F32" : t.type.name) + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    dir.write("model.safetensors", safetensors_file(header + "}", data));
  }
};

std::vector<float> p200_hidden(const std::string& model, const std::string& goldens) {
  const auto ids = Goldens(goldens).ids("p200.input_ids");
  Harness h(open_or_throw(model), {});
  return h.prefill(h.new_sequence(200), ids, {150, 50});
}

TEST(MixedFile, PartsOfOneProjectionMayHaveDifferentTypes) {
  const std::string path = barg::test::shared_data("models/llama");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto same = [](std::string s) { return s; };
  const auto want = p200_hidden(path, path + "/goldens.safetensors");
  for (const char* part : {"q_proj", "k_proj", "v_proj", "up_proj", "down_proj", "norm", "embed"}) {
    const Rewritten mixed(path, same, [&](const std::string& name) { return name.find(part) != name.npos; });
    EXPECT_TRUE(same_bits(p200_hidden(mixed.dir.path(), path + "/goldens.safetensors"), want))
        << part << " as F32 among BF16";
  }
}

TEST(MixedFile, LayersOfTwoGroupsUseTheirOwnKv) {
  const std::string path = barg::test::shared_data("models/mistral");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto hidden = [&](const std::string& fields, std::size_t groups) {
    const Rewritten m(
        path,
        [&](std::string s) {
          const std::size_t at = s.find("\"sliding_window\": 24");
          return s.replace(at, std::string_view("\"sliding_window\": 24").size(), fields);
        },
        [](const std::string&) { return false; });
    EXPECT_EQ(layer_groups(open_or_throw(m.dir.path())->spec().value()).size(), groups);
    return p200_hidden(m.dir.path(), path + "/goldens.safetensors");
  };
  const auto full = hidden("\"sliding_window\": null", 1);
  // A window that is longer than the prompt hides nothing.
  EXPECT_TRUE(same_bits(
      hidden(
          R"("sliding_window": 300, "layer_types": ["full_attention", "sliding_attention", "full_attention"])",
          2),
      full));
  EXPECT_TRUE(same_bits(
      hidden(
          R"("sliding_window": 300, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"])",
          2),
      full));
  EXPECT_FALSE(same_bits(
      hidden(
          R"("sliding_window": 199, "layer_types": ["full_attention", "sliding_attention", "full_attention"])",
          2),
      full));
}

}  // namespace
}  // namespace barg::model::test::golden_test
