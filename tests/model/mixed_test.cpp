// A random model whose matrices are stored in every type, differently in each layer, so that every way for
// rows to get from one operation to the next is walked: prepared by the producer, prepared by linear, as
// floats, both at once; gate and up fused and apart. Recipes f32 and bf16 must give the bits of the same
// model stored as F32; int8 and bf16 must stay near f32; and each gives equal bits on every instruction set
// that computes in it, for 1, 2 and 3 threads and any number of rows.
#include <cmath>
#include <cstdlib>
#include <map>

#include "math.h"
#include "model/gguf_builder.h"
#include "model/golden_kit.h"

namespace barg::model::test::mixed_test {
namespace {

enum Type : std::uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBF16 = 30 };

constexpr std::uint64_t kHidden = 128, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kFfn = 96;
constexpr std::uint64_t kVocab = 203;  // the last panel and the last block of maxima are not full
constexpr std::size_t kTokens = 512;

struct LayerTypes {
  Type q, k, v, o, gate, up, down;
};
constexpr LayerTypes kLayers[] = {
    {kQ4_1, kQ4_1, kQ4_1, kQ4_1, kQ4_1, kQ4_1, kQ4_1},  // everything prepared by its producer
    {kQ4_0, kQ8_0, kF16, kQ8_0, kQ4_0, kQ8_0, kQ4_1},   // qkv reads both forms; gate and up apart
    {kBF16, kBF16, kQ8_0, kF32, kF16, kQ4_0, kF16},     // gate and up read different forms
    {kQ8_0, kQ8_0, kQ8_0, kBF16, kQ4_0, kQ4_0, kBF16},  // fused into floats
    {kF32, kF16, kBF16, kQ4_0, kF16, kF16, kQ8_0},      // floats fused into prepared rows
};
constexpr auto kNumLayers = static_cast<std::uint32_t>(std::size(kLayers));

struct TypeFacts {
  std::uint64_t elements, bytes;
};
TypeFacts facts(std::uint32_t type) {
  switch (type) {
    case kF16:
    case kBF16:
      return {1, 2};
    case kQ4_0:
      return {32, 18};
    case kQ4_1:
      return {32, 20};
    case kQ8_0:
      return {32, 34};
    default:
      return {1, 4};
  }
}

/// The model's file, or the same weights stored as F32.
GgufBuilder layout(bool all_f32) {
  GgufBuilder b = tiny_llama();
  b.tensors.clear();
  std::vector<std::string> tokens;
  for (std::uint64_t i = 0; i < kVocab; ++i) tokens.push_back("t" + std::to_string(i));
  b.u32("llama.block_count", kNumLayers).u32("llama.context_length", 1024);
  b.u32("llama.embedding_length", kHidden).u32("llama.feed_forward_length", kFfn);
  b.u32("llama.attention.head_count", kHeads).u32("llama.attention.head_count_kv", kKvHeads);
  b.u32("llama.rope.dimension_count", kHeadDim).strs("tokenizer.ggml.tokens", tokens);
  b.erase("tokenizer.ggml.token_type");
  const auto matrix = [&](const std::string& name, std::uint64_t n, std::uint64_t k, Type type) {
    const TypeFacts f = facts(all_f32 ? kF32 : type);
    b.tensor(name, {k, n}, all_f32 ? kF32 : type, n * k / f.elements * f.bytes);
  };
  matrix("token_embd.weight", kVocab, kHidden, kQ8_0);
  matrix("output.weight", kVocab, kHidden, kQ4_1);
  b.tensor("output_norm.weight", {kHidden});
  for (std::uint32_t i = 0; i < kNumLayers; ++i) {
    const LayerTypes& t = kLayers[i];
    const std::string blk = "blk." + std::to_string(i) + ".";
    b.tensor(blk + "attn_norm.weight", {kHidden}).tensor(blk + "ffn_norm.weight", {kHidden});
    matrix(blk + "attn_q.weight", kHeads * kHeadDim, kHidden, t.q);
    matrix(blk + "attn_k.weight", kKvHeads * kHeadDim, kHidden, t.k);
    matrix(blk + "attn_v.weight", kKvHeads * kHeadDim, kHidden, t.v);
    matrix(blk + "attn_output.weight", kHidden, kHeads * kHeadDim, t.o);
    matrix(blk + "ffn_gate.weight", kFfn, kHidden, t.gate);
    matrix(blk + "ffn_up.weight", kFfn, kHidden, t.up);
    matrix(blk + "ffn_down.weight", kHidden, kFfn, t.down);
  }
  return b;
}

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : state_(seed) {}
  std::uint32_t bits() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  /// Uniform in [-1, 1).
  float number() { return static_cast<float>(bits() % 65536) / 32768.0f - 1.0f; }

 private:
  std::uint32_t state_;
};

/// A random block of `type`, and its values as ggml defines them.
std::string draw_block(std::uint32_t type, Draw& draw, std::vector<float>& values) {
  Bytes b;
  if (type == kF32 || type == kF16 || type == kBF16) {
    const float w = 0.2f * draw.number();
    if (type == kF32) b.put(w);
    if (type == kF16) b.put(ops::f32_to_f16(w));
    if (type == kBF16) b.put(ops::f32_to_bf16(w));
    if (type == kF16) return values = {ops::f16_to_f32(ops::f32_to_f16(w))}, b.data;
    if (type == kBF16) return values = {ops::bf16_to_f32(ops::f32_to_bf16(w))}, b.data;
    return values = {w}, b.data;
  }
  const float step = 0.2f / (type == kQ8_0 ? 127.0f : 8.0f) * (1.0f + 0.5f * draw.number());
  const std::uint16_t d = ops::f32_to_f16(step), m = ops::f32_to_f16(-8.0f * step);
  b.put(d);
  if (type == kQ4_1) b.put(m);
  values.assign(32, 0.0f);
  for (std::size_t i = 0; i < (type == kQ8_0 ? 32u : 16u); ++i) {
    const auto byte = static_cast<std::uint8_t>(draw.bits());
    b.put(byte);
    const auto value = [&](int q) {
      const float scaled = ops::f16_to_f32(d) * static_cast<float>(q);
      return type == kQ4_1 ? scaled + ops::f16_to_f32(m) : scaled;
    };
    const int offset = type == kQ4_0 ? 8 : 0;
    if (type == kQ8_0) {
      values[i] = value(static_cast<std::int8_t>(byte));
    } else {
      values[i] = value((byte & 15) - offset);
      values[i + 16] = value((byte >> 4) - offset);
    }
  }
  return b.data;
}

/// Both files, written once.
struct Files {
  TempDir dir;
  std::shared_ptr<const ModelFiles> mixed, wide;
  std::vector<std::int32_t> ids;

  Files() {
    const GgufBuilder narrow = layout(false), floats = layout(true);
    std::string narrow_bytes = narrow.build(), wide_bytes = floats.build();
    const auto data = [](const GgufBuilder& b) {
      return (b.header_bytes + b.alignment - 1) / b.alignment * b.alignment;
    };
    Draw draw(7);
    for (std::size_t t = 0; t < narrow.tensors.size(); ++t) {
      const GgufTensorInfo &from = narrow.tensors[t], &to = floats.tensors[t];
      std::size_t at = data(narrow) + from.offset, wide_at = data(floats) + to.offset;
      for (const std::size_t end = at + from.bytes; at < end; at += facts(from.type).bytes) {
        std::vector<float> values;
        const std::string block = draw_block(from.type, draw, values);
        narrow_bytes.replace(at, block.size(), block);
        std::memcpy(wide_bytes.data() + wide_at, values.data(), values.size() * sizeof(float));
        wide_at += values.size() * sizeof(float);
      }
    }
    mixed = open_or_throw(dir.write("mixed.gguf", narrow_bytes));
    wide = open_or_throw(dir.write("wide.gguf", wide_bytes));
    while (ids.size() < kTokens) ids.push_back(static_cast<std::int32_t>(draw.bits() % kVocab));
  }
};

const Files& files() {
  static const Files all;
  return all;
}

std::vector<float> hidden_states(Harness& h, const std::vector<std::size_t>& chunks) {
  h.free_all();
  return h.prefill(h.new_sequence(kTokens), files().ids, chunks);
}

/// The fastest instruction set that computes in `recipe`.
ops::Isa best_isa(Recipe recipe) {
  return ops::recipe_supported(ops::Isa::kAuto, recipe) ? ops::Isa::kAuto : ops::Isa::kScalar;
}

/// What one thread of it computes in one step.
struct Expected {
  std::vector<float> hidden, logits;
};

const Expected& expected(Recipe recipe) {
  static std::map<Recipe, Expected> known;
  const auto [at, missing] = known.try_emplace(recipe);
  if (missing) {
    Harness h(files().mixed,
              {.recipe = recipe, .kv_dtype = DType::kF16, .cpu = {.threads = 1, .isa = best_isa(recipe)}});
    at->second.hidden = hidden_states(h, {kTokens});
    at->second.logits = h.logits(at->second.hidden);
  }
  return at->second;
}

TEST(MixedTypes, RecipesOfFloatsGiveTheBitsOfTheSameWeightsStoredAsF32) {
  for (const Recipe recipe : {Recipe::kF32, Recipe::kBF16}) {
    Harness h(files().wide,
              {.recipe = recipe, .kv_dtype = DType::kF16, .cpu = {.threads = 0, .isa = best_isa(recipe)}});
    const auto hidden = hidden_states(h, {100, 1, 33});
    EXPECT_TRUE(same_bits(hidden, expected(recipe).hidden)) << recipe_name(recipe);
    EXPECT_TRUE(same_bits(h.logits(hidden), expected(recipe).logits)) << recipe_name(recipe);
  }
}

TEST(MixedTypes, OtherRecipesStayNearF32) {
  const auto& exact = expected(Recipe::kF32).logits;
  for (const Recipe recipe : {Recipe::kInt8, Recipe::kBF16}) {
    const auto& fast = expected(recipe).logits;
    double difference = 0, square = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      difference += std::pow(static_cast<double>(fast[i]) - exact[i], 2);
      square += std::pow(static_cast<double>(exact[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / square), 0.03) << recipe_name(recipe);
    EXPECT_GT(std::sqrt(difference / square), 1e-4) << recipe_name(recipe) << " is another recipe";
  }
}

class EveryIsa : public ::testing::TestWithParam<std::tuple<Recipe, ops::Isa, int>> {
 protected:
  void SetUp() override {
    const auto [recipe, isa, threads] = GetParam();
    if (!ops::isa_supported(isa)) GTEST_SKIP() << "skipped: this machine has no " << ops::isa_name(isa);
    if (!ops::recipe_supported(isa, recipe)) GTEST_SKIP() << "skipped: this machine has no AVX512-BF16";
    // The slowest, and least likely to differ from its neighbours.
    if (isa == ops::Isa::kScalar && threads != 2 && std::getenv("BARG_TEST_LONG") == nullptr)
      GTEST_SKIP() << "skipped: long, see scripts/test --full";
    harness_ = std::make_unique<Harness>(
        files().mixed,
        HarnessOptions{.recipe = recipe, .kv_dtype = DType::kF16, .max_tokens = 4096, .cpu = {threads, isa}});
  }
  const Expected& want() const { return expected(std::get<0>(GetParam())); }
  std::unique_ptr<Harness> harness_;
};

TEST_P(EveryIsa, AnyNumberOfRowsInAStepGivesTheSameBits) {
  Harness& h = *harness_;
  EXPECT_TRUE(same_bits(hidden_states(h, {kTokens}), want().hidden));
  EXPECT_TRUE(same_bits(hidden_states(h, {1, 2, 7, 33, 130}), want().hidden));
}

TEST_P(EveryIsa, DecodingManySequencesAtOnceGivesTheSameBits) {
  Harness& h = *harness_;
  for (const std::size_t rows : {1u, 2u, 7u, 33u}) {
    h.free_all();
    std::vector<Harness::Run> prompts, next;
    for (std::size_t i = 0; i < rows; ++i) {
      const auto length = static_cast<std::int32_t>(1 + i * 5 % 70);
      const auto begin = files().ids.begin();
      const std::int32_t seq = h.new_sequence(length + 1);
      prompts.push_back({seq, 0, {begin, begin + length}});
      next.push_back({seq, length, {begin[length]}});
    }
    h.step(prompts);
    const auto got = h.step(next);
    for (std::size_t i = 0; i < rows; ++i) {
      EXPECT_TRUE(same_bits(h.row(got, i), h.row(want().hidden, static_cast<std::size_t>(next[i].pos))))
          << "row " << i << " of " << rows;
    }
  }
}

TEST_P(EveryIsa, RowsThatNobodyWantsChangeNoBitOfTheOthers) {
  Harness& h = *harness_;
  h.free_all();
  const auto begin = files().ids.begin();
  const std::int32_t seqs[] = {h.new_sequence(kTokens), h.new_sequence(kTokens), h.new_sequence(kTokens)};
  const auto run = [&](int seq, std::int32_t from, std::int32_t count, std::int32_t wanted) {
    return Harness::Run{seqs[seq], from, {begin + from, begin + from + count}, wanted};
  };
  const auto expect = [&](const std::vector<float>& got, const std::vector<std::size_t>& positions) {
    ASSERT_EQ(got.size(), positions.size() * h.hidden());
    for (std::size_t i = 0; i < positions.size(); ++i)
      EXPECT_TRUE(same_bits(h.row(got, i), h.row(want().hidden, positions[i]))) << "row " << i;
  };
  expect(h.step({run(0, 0, 40, 0)}), {});
  expect(h.step({run(0, 40, 3, 1), run(1, 0, 33, 0), run(2, 0, 70, 2)}), {42, 68, 69});
  // Their K and V are there.
  expect(h.step({run(0, 43, 1, -1), run(1, 33, 2, 1), run(2, 70, 1, 1)}), {43, 34, 70});
}

TEST_P(EveryIsa, AnyNumberOfLogitsRowsGivesTheSameBitsAndTheirBlockMaxima) {
  Harness& h = *harness_;
  constexpr std::size_t kBlocks = (kVocab + ops::kBlockMax - 1) / ops::kBlockMax;
  for (const std::size_t rows : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{33}, kTokens}) {
    Workspace workspace(h.decoder().workspace_bytes(static_cast<std::int32_t>(rows)));
    std::vector<float> logits(rows * kVocab), maxima(rows * kBlocks), want_maxima;
    h.decoder().logits(want().hidden.data(), static_cast<std::int32_t>(rows), workspace, logits.data(),
                       maxima.data());
    EXPECT_TRUE(same_bits(
        logits, {want().logits.begin(), want().logits.begin() + static_cast<std::ptrdiff_t>(logits.size())}))
        << rows << " rows";
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t at = 0; at < kVocab; at += ops::kBlockMax) {
        const float* row = &want().logits[r * kVocab];
        want_maxima.push_back(
            *std::max_element(row + at, row + std::min<std::size_t>(at + ops::kBlockMax, kVocab)));
      }
    }
    EXPECT_TRUE(same_bits(maxima, want_maxima)) << rows << " rows";
  }
}

constexpr auto kName = [](const auto& info) {
  const auto& [recipe, isa, threads] = info.param;
  return std::string(recipe_name(recipe)) + "_" + ops::isa_name(isa) + "_" + std::to_string(threads);
};
INSTANTIATE_TEST_SUITE_P(MixedTypes, EveryIsa,
                         ::testing::Combine(::testing::Values(Recipe::kF32, Recipe::kInt8),
                                            ::testing::Values(ops::Isa::kScalar, ops::Isa::kAvx2,
                                                              ops::Isa::kAvx512),
                                            ::testing::Values(1, 2, 3)),
                         kName);
INSTANTIATE_TEST_SUITE_P(MixedTypesBf16, EveryIsa,
                         ::testing::Combine(::testing::Values(Recipe::kBF16),
                                            ::testing::Values(ops::Isa::kScalar, ops::Isa::kAvx512),
                                            ::testing::Values(1, 2, 3)),
                         kName);

}  // namespace
}  // namespace barg::model::test::mixed_test
