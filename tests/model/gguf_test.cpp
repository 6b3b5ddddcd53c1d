// GGUF files that are cut, flipped and crafted: each is one clear error, never a crash (run under ASan, the
// parser sees heap buffers of exactly the file's size). Then typed reads and what a valid file says.
#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>

#include "cpu/cpu.h"
#include "model/decoder.h"
#include "model/gguf_builder.h"
#include "model/inspect.h"
#include "model/model_files.h"

namespace barg::model::test::gguf_test {
namespace {

using ::testing::HasSubstr;

/// A buffer without slack behind its last byte.
struct Exact {
  explicit Exact(std::string_view s) : size(s.size()), data(new std::byte[s.size()]) {
    std::memcpy(data.get(), s.data(), size);
  }
  std::span<const std::byte> span() const { return {data.get(), size}; }
  std::size_t size;
  std::unique_ptr<std::byte[]> data;
};

std::string parse_error(std::string_view bytes) {
  const Exact e(bytes);
  const auto r = GgufFile::parse(e.span());
  return r ? "" : r.error().message;
}

/// Everything the command line may ask of a file; the first error.
std::string whole_error(const std::string& path) {
  const auto m = ModelFiles::open(path);
  if (!m) return m.error().message;
  static ops::CpuDevice device({.threads = 1});
  if (const auto v = (*m)->vocab(); !v) return v.error().message;
  if (const auto d = (*m)->generation_defaults(); !d) return d.error().message;
  const auto i = inspect(**m);
  if (!i) return i.error().message;
  (void)to_text(*i, **m, DType::kF16, true);
  const auto loaded = Decoder::load(**m, device.ops(), device.stream(), {});
  return loaded ? "" : loaded.error().message;
}

TEST(Gguf, TinyFileIsReadWhole) {
  const std::string bytes = tiny_llama().build();
  const Exact e(bytes);
  const auto f = GgufFile::parse(e.span());
  ASSERT_TRUE(f) << f.error().message;
  EXPECT_EQ(f->tensors().size(), 11u);
  EXPECT_EQ(f->tensors()[0].shape, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(f->integer("llama.block_count").value(), 1);
  EXPECT_FALSE(f->integer("nothing").value().has_value());
  EXPECT_EQ(f->string("general.name").value().value(), "tiny");
  EXPECT_EQ(f->strings("tokenizer.ggml.tokens").value()->at(3), "<|end|>");
  EXPECT_EQ(f->integers("tokenizer.ggml.token_type").value()->at(3), 3);
  EXPECT_THAT(f->integer("general.name").error().message,
              HasSubstr("general.name is string, expected an integer"));
  EXPECT_THAT(f->string("llama.block_count").error().message, HasSubstr("expected a string"));
  EXPECT_THAT(f->strings("tokenizer.ggml.token_type").error().message,
              HasSubstr("expected an array of strings"));
}

TEST(Gguf, IntegersOfAnyWidthAreAccepted) {
  const auto read = [](std::string encoded) {
    const std::string bytes = GgufBuilder().raw("k", std::move(encoded)).build();
    const Exact e(bytes);
    return GgufFile::parse(e.span())->integer("k");
  };
  EXPECT_EQ(read(Bytes().put(kMetaU8).put<std::uint8_t>(200).data).value(), 200);
  EXPECT_EQ(read(Bytes().put(kMetaI8).put<std::int8_t>(-3).data).value(), -3);
  EXPECT_EQ(read(Bytes().put(kMetaU16).put<std::uint16_t>(60000).data).value(), 60000);
  EXPECT_EQ(read(Bytes().put(kMetaI16).put<std::int16_t>(-30000).data).value(), -30000);
  EXPECT_EQ(read(Bytes().put(kMetaU64).put<std::uint64_t>(1ULL << 40).data).value(), 1LL << 40);
  EXPECT_EQ(read(Bytes().put(kMetaI64).put<std::int64_t>(-5).data).value(), -5);
  EXPECT_FALSE(read(Bytes().put(kMetaU64).put<std::uint64_t>(1ULL << 63).data));
  EXPECT_FALSE(read(Bytes().put(kMetaF32).put<float>(1).data));
}

TEST(Gguf, TruncatedAtEveryByteIsOneError) {
  const std::string bytes = tiny_llama().build();
  for (std::size_t n = 0; n < bytes.size(); ++n)
    ASSERT_NE(parse_error(std::string_view(bytes).substr(0, n)), "") << n;
  EXPECT_EQ(parse_error(bytes), "");
}

TEST(Gguf, CountsOfTwoToThe63) {
  for (const auto& [tensors, keys, what] : {std::tuple{1ULL << 63, 1ULL, "tensors"}, {1ULL, 1ULL << 63, "metadata keys"},
                                            {~0ULL, 1ULL, "tensors"}}) {
    Bytes b;
    b.data = "GGUF";
    b.put<std::uint32_t>(3).put<std::uint64_t>(tensors).put<std::uint64_t>(keys);
    b.data.resize(4096, '\0');
    EXPECT_THAT(parse_error(b.data), HasSubstr(std::string(what) + ", more than the file can hold"));
  }
}

TEST(Gguf, FlippedBitsNeverCrash) {
  GgufBuilder b = tiny_llama();
  const std::string bytes = b.build();
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < b.header_bytes * 8; ++bit) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    refused += !parse_error(bad).empty();
  }
  EXPECT_GT(refused, b.header_bytes);
}

TEST(Gguf, FlippedBitsOfAWholeModelAreErrorsOrModels) {
  TempDir dir;
  GgufBuilder b = tiny_llama();
  const std::string bytes = b.build();
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < b.header_bytes * 8; bit += 3) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const std::string e = whole_error(dir.write("m.gguf", bad));
    EXPECT_EQ(e.find('\n'), e.npos);
    refused += !e.empty();
  }
  EXPECT_GT(refused, b.header_bytes);
}

struct Crafted {
  const char* name;
  std::function<void(GgufBuilder&)> change;
  const char* expected;  ///< part of the error
};

void PrintTo(const Crafted& c, std::ostream* out) { *out << c.name; }

class CraftedGguf : public ::testing::TestWithParam<Crafted> {};

TEST_P(CraftedGguf, IsRefusedByName) {
  TempDir dir;
  GgufBuilder b = tiny_llama();
  GetParam().change(b);
  const std::string path = dir.write("m.gguf", b.build());
  const std::string e = whole_error(path);
  EXPECT_THAT(e, HasSubstr(GetParam().expected));
  EXPECT_THAT(e, HasSubstr(path));
  EXPECT_EQ(e.find('\n'), e.npos);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(Container, CraftedGguf, ::testing::Values(
    Crafted{"keys_2_63", [](GgufBuilder& b) { b.claim_keys = std::numeric_limits<std::int64_t>::max(); }, "metadata keys, more than the file can hold"},
    Crafted{"tensors_2_63", [](GgufBuilder& b) { b.claim_tensors = std::numeric_limits<std::int64_t>::max(); }, "tensors, more than the file can hold"},
    Crafted{"one_key_too_many", [](GgufBuilder& b) { b.claim_keys = static_cast<std::int64_t>(b.meta.size()) + 1; }, ""},
    Crafted{"one_tensor_too_many", [](GgufBuilder& b) { b.claim_tensors = static_cast<std::int64_t>(b.tensors.size()) + 1; }, ""},
    Crafted{"version_1", [](GgufBuilder& b) { b.version = 1; }, "GGUF version 1 is not supported (known: 2, 3)"},
    Crafted{"version_4", [](GgufBuilder& b) { b.version = 4; }, "GGUF version 4"},
    Crafted{"big_endian", [](GgufBuilder& b) { b.version = 0x03000000; }, "big-endian"},
    Crafted{"string_beyond_end", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaString).put<std::uint64_t>(1 << 20).data); }, "metadata key x does not fit"},
    Crafted{"string_2_64", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaString).put<std::uint64_t>(~0ULL).data); }, "metadata key x does not fit"},
    Crafted{"array_2_60", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaArray).put(kMetaF64).put<std::uint64_t>(1ULL << 60).data); }, "array of metadata key x does not fit"},
    Crafted{"array_overflow", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaArray).put(kMetaU64).put<std::uint64_t>((1ULL << 61) + 1).data); }, "array of metadata key x does not fit"},
    Crafted{"string_in_array_beyond_end", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaArray).put(kMetaString).put<std::uint64_t>(1).put<std::uint64_t>(1 << 20).data); }, "string 0 of metadata key x does not fit"},
    Crafted{"nested_array", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaArray).put(kMetaArray).put<std::uint64_t>(1).put(kMetaU8).put<std::uint64_t>(0).data); }, "metadata key x is a nested array"},
    Crafted{"unknown_value_type", [](GgufBuilder& b) { b.raw("x", Bytes().put<std::uint32_t>(13).data); }, "metadata key x has the unknown type 13"},
    Crafted{"unknown_element_type", [](GgufBuilder& b) { b.raw("x", Bytes().put(kMetaArray).put<std::uint32_t>(99).put<std::uint64_t>(0).data); }, "array of the unknown type 99"},
    Crafted{"bool_of_2", [](GgufBuilder& b) { b.set<std::uint8_t>("x", kMetaBool, 2); }, "neither 0 nor 1"},
    Crafted{"empty_key", [](GgufBuilder& b) { b.u32("", 1); }, "is empty"},
    Crafted{"duplicate_key", [](GgufBuilder& b) { b.meta.push_back(b.meta[3]); }, "appears twice"},
    Crafted{"dims_5", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").dims = {8, 8, 1, 1, 1}; }, "5 dimensions"},
    Crafted{"dim_0", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").dims = {0, 8}; }, "a dimension of zero"},
    Crafted{"dim_2_63", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").dims = {1ULL << 63, 1}; }, "overflow"},
    Crafted{"product_overflow", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").dims = {1ULL << 32, 1ULL << 32, 2}; }, "overflow"},
    Crafted{"bytes_overflow", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").dims = {1ULL << 62, 1}; }, "overflow"},
    Crafted{"size_beyond_end", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").dims = {8, 1ULL << 30}; }, "beyond the end of the file"},
    Crafted{"offset_unaligned", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").offset += 4; }, "not a multiple of the alignment"},
    Crafted{"offset_beyond_end", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").offset = 1ULL << 40; b.at("blk.0.attn_q.weight").bytes = 0 - (1ULL << 40); }, "beyond the end of the file"},
    Crafted{"offset_2_64", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").offset = ~0ULL - 31; b.at("blk.0.attn_q.weight").bytes = 32; }, "beyond the end of the file"},
    Crafted{"overlap", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").offset = b.at("blk.0.attn_output.weight").offset; }, "overlap"},
    Crafted{"alignment_0", [](GgufBuilder& b) { b.u32("general.alignment", 0); }, "general.alignment is 0"},
    Crafted{"alignment_3", [](GgufBuilder& b) { b.u32("general.alignment", 3); }, "general.alignment is 3"},
    Crafted{"alignment_huge", [](GgufBuilder& b) { b.u32("general.alignment", 1U << 31); }, "general.alignment is 2147483648"},
    Crafted{"alignment_text", [](GgufBuilder& b) { b.str("general.alignment", "32"); }, "general.alignment is string"},
    Crafted{"removed_type", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").type = 4; }, "unknown type id 4"},
    Crafted{"foreign_type", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").type = 139; }, "unknown type id 139"},
    Crafted{"partial_block", [](GgufBuilder& b) { b.at("blk.0.attn_q.weight").type = 8; }, "not a multiple of the block of Q8_0"},
    Crafted{"duplicate_tensor", [](GgufBuilder& b) { b.at("blk.0.attn_k.weight").name = "blk.0.attn_v.weight"; }, "blk.0.attn_v.weight appears twice"},
    Crafted{"empty_tensor_name", [](GgufBuilder& b) { b.at("blk.0.attn_k.weight").name = ""; }, "name of tensor 4 is empty"},
    Crafted{"control_bytes_in_name", [](GgufBuilder& b) { b.at("blk.0.attn_k.weight").name = "a\nb\x1b[31m"; b.at("blk.0.attn_v.weight").name = "a\nb\x1b[31m"; }, "tensor a?b?[31m appears twice"},
    Crafted{"split_file", [](GgufBuilder& b) { b.set<std::uint16_t>("split.count", kMetaU16, 3); }, "split.count: a model split over 3 GGUF files"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(HyperParameters, CraftedGguf, ::testing::Values(
    Crafted{"no_architecture", [](GgufBuilder& b) { b.erase("general.architecture"); }, "general.architecture is missing"},
    Crafted{"unknown_architecture", [](GgufBuilder& b) { b.str("general.architecture", "rwkv"); }, "general.architecture: \"rwkv\" is not supported yet (known: llama, "},
    Crafted{"layers_0", [](GgufBuilder& b) { b.u32("llama.block_count", 0); }, "llama.block_count is 0"},
    Crafted{"layers_more_than_stored", [](GgufBuilder& b) { b.u32("llama.block_count", 2); }, "blk.1.attn_norm.weight is missing"},
    Crafted{"layers_4096", [](GgufBuilder& b) { b.u32("llama.block_count", 4096); }, "promises 4096 layers"},
    Crafted{"layers_2_32", [](GgufBuilder& b) { b.u32("llama.block_count", 0xffffffff); }, "llama.block_count is 4294967295"},
    Crafted{"heads_0", [](GgufBuilder& b) { b.u32("llama.attention.head_count", 0); }, "llama.attention.head_count is 0"},
    Crafted{"kv_heads_0", [](GgufBuilder& b) { b.u32("llama.attention.head_count_kv", 0); }, "llama.attention.head_count_kv is 0"},
    Crafted{"kv_heads_not_a_divisor", [](GgufBuilder& b) { b.u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 3).erase("llama.rope.dimension_count"); }, "4 attention heads are not a multiple of 3"},
    Crafted{"heads_differ_by_layer", [](GgufBuilder& b) { b.raw("llama.attention.head_count", Bytes().put(kMetaArray).put(kMetaU32).put<std::uint64_t>(2).put<std::uint32_t>(2).put<std::uint32_t>(4).data); }, "differs between layers"},
    Crafted{"heads_empty_array", [](GgufBuilder& b) { b.raw("llama.attention.head_count", Bytes().put(kMetaArray).put(kMetaU32).put<std::uint64_t>(0).data); }, "empty array"},
    Crafted{"hidden_0", [](GgufBuilder& b) { b.u32("llama.embedding_length", 0); }, "llama.embedding_length is 0"},
    Crafted{"hidden_wrong", [](GgufBuilder& b) { b.u32("llama.embedding_length", 16).erase("llama.rope.dimension_count"); }, "token_embd.weight has shape [4, 8], the config says [4, 16]"},
    Crafted{"hidden_negative", [](GgufBuilder& b) { b.set<std::int32_t>("llama.embedding_length", kMetaI32, -8); }, "llama.embedding_length is -8"},
    Crafted{"hidden_text", [](GgufBuilder& b) { b.str("llama.embedding_length", "8"); }, "llama.embedding_length is string"},
    Crafted{"ffn_missing", [](GgufBuilder& b) { b.erase("llama.feed_forward_length"); }, "llama.feed_forward_length is missing"},
    Crafted{"ffn_wrong", [](GgufBuilder& b) { b.u32("llama.feed_forward_length", 9); }, "ffn_gate.weight has shape"},
    Crafted{"context_0", [](GgufBuilder& b) { b.u32("llama.context_length", 0); }, "llama.context_length is 0"},
    Crafted{"eps_nan", [](GgufBuilder& b) { b.f32("llama.attention.layer_norm_rms_epsilon", kNaN); }, "layer_norm_rms_epsilon is nan"},
    Crafted{"eps_negative", [](GgufBuilder& b) { b.f32("llama.attention.layer_norm_rms_epsilon", -1e-5f); }, "layer_norm_rms_epsilon is -"},
    Crafted{"theta_nan", [](GgufBuilder& b) { b.f32("llama.rope.freq_base", kNaN); }, "rope.freq_base is nan"},
    Crafted{"theta_inf", [](GgufBuilder& b) { b.f32("llama.rope.freq_base", kInf); }, "rope.freq_base is inf"},
    Crafted{"theta_0", [](GgufBuilder& b) { b.f32("llama.rope.freq_base", 0); }, "rope.freq_base is 0"},
    Crafted{"scaling_nan", [](GgufBuilder& b) { b.str("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", kNaN); }, "rope.scaling.factor is nan"},
    Crafted{"beta_0", [](GgufBuilder& b) { b.str("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.yarn_beta_fast", 0); }, "yarn_beta_fast is 0"},
    Crafted{"original_context_0", [](GgufBuilder& b) { b.str("llama.rope.scaling.type", "yarn").u32("llama.rope.scaling.original_context_length", 0); }, "original_context_length is 0"},
    Crafted{"rope_freqs_0", [](GgufBuilder& b) { b.tensor("rope_freqs.weight", {2}, 0, 8); b.at("rope_freqs.weight").type = 26; }, "rope_freqs.weight is not F32"},
    Crafted{"experts_chosen_0", [](GgufBuilder& b) { b.u32("llama.expert_count", 8).u32("llama.expert_used_count", 0); }, "llama.expert_used_count is 0"},
    Crafted{"rope_dim_above_head", [](GgufBuilder& b) { b.u32("llama.rope.dimension_count", 8); }, "rope.dimension_count is 8, expected 0 to 4"},
    Crafted{"rope_unknown", [](GgufBuilder& b) { b.str("llama.rope.scaling.type", "xpos"); }, "rope.scaling.type: \"xpos\" is not supported yet (known: none, linear, yarn, longrope)"},
    Crafted{"rope_dim_odd", [](GgufBuilder& b) { b.u32("llama.rope.dimension_count", 3); }, "rope.dimension_count 3 is not an even number"},
    Crafted{"yarn_base_1", [](GgufBuilder& b) { b.str("llama.rope.scaling.type", "yarn").f32("llama.rope.freq_base", 1); }, "rope.freq_base is not above 1"},
    Crafted{"longrope_half", [](GgufBuilder& b) { b.tensor("rope_factors_long.weight", {2}); }, "one of the tensors rope_factors_short.weight and rope_factors_long.weight is missing"},
    Crafted{"rope_freqs_short", [](GgufBuilder& b) { b.tensor("rope_freqs.weight", {1}); }, "rope_freqs.weight is not F32 with 2 elements"},
    Crafted{"head_dim_odd", [](GgufBuilder& b) { b.u32("llama.attention.key_length", 3).u32("llama.attention.value_length", 3).u32("llama.rope.dimension_count", 3); }, "is not an even number"},
    Crafted{"head_dim_huge", [](GgufBuilder& b) { b.u32("llama.attention.key_length", 1 << 20); }, "attention.key_length is 1048576"},
    Crafted{"value_length_differs", [](GgufBuilder& b) { b.u32("llama.attention.value_length", 8); }, "attention.value_length differs"},
    Crafted{"experts", [](GgufBuilder& b) { b.u32("llama.expert_count", 8); }, "llama.expert_used_count is missing"},
    Crafted{"softcap", [](GgufBuilder& b) { b.f32("llama.attn_logit_softcapping", 50); }, "attn_logit_softcapping is set"},
    Crafted{"vocab_unlike_tokens", [](GgufBuilder& b) { b.strs("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>", "x"}).erase("tokenizer.ggml.token_type"); }, "5 tokens but the embedding has 4 rows"},
    Crafted{"vocab_unlike_rows", [](GgufBuilder& b) { b.u32("llama.vocab_size", 7); }, "7 tokens but the embedding has 4 rows"},
    Crafted{"tensor_of_another_graph", [](GgufBuilder& b) { b.tensor("blk.0.attn_q_norm.weight", {4}); }, "tensor blk.0.attn_q_norm.weight is not part of a llama"},
    Crafted{"bias_of_one_part", [](GgufBuilder& b) { b.tensor("blk.0.attn_k.bias", {4}); }, "tensor blk.0.attn_q.bias is missing"},
    Crafted{"bias_of_down", [](GgufBuilder& b) { b.tensor("blk.0.ffn_down.bias", {8}); }, "tensor blk.0.ffn_gate.bias is missing"},
    Crafted{"window_pattern", [](GgufBuilder& b) { b.u32("llama.attention.sliding_window_pattern", 2); }, "llama.attention.sliding_window_pattern is set, but there is no window"},
    Crafted{"no_embedding", [](GgufBuilder& b) { b.at("token_embd.weight").name = "embd"; }, "token_embd.weight is missing"},
    Crafted{"no_norm", [](GgufBuilder& b) { b.at("output_norm.weight").name = "norm"; }, "output_norm.weight is missing"},
    Crafted{"eos_outside", [](GgufBuilder& b) { b.u32("tokenizer.ggml.eos_token_id", 4); }, "eos_token_id is 4, outside the vocabulary of 4 tokens"},
    Crafted{"no_tokens", [](GgufBuilder& b) { b.erase("tokenizer.ggml.tokens"); }, "tokenizer.ggml.tokens is missing"},
    Crafted{"token_types_short", [](GgufBuilder& b) { b.raw("tokenizer.ggml.token_type", Bytes().put(kMetaArray).put(kMetaI32).put<std::uint64_t>(1).put<std::int32_t>(1).data); }, "different lengths"},
    Crafted{"template_not_utf8", [](GgufBuilder& b) { b.str("tokenizer.chat_template", "\xff\xfe"); }, "not valid UTF-8"},
    Crafted{"norm_quantised", [](GgufBuilder& b) { b.at("output_norm.weight").type = 26; }, "tensor output_norm.weight: type I32 is not supported yet"}),
    [](const auto& info) { return info.param.name; });

TEST(GgufModel, TinyFileLoadsAndSaysWhatItIs) {
  TempDir dir;
  const std::string path = dir.write("m.gguf", tiny_llama().build());
  EXPECT_EQ(whole_error(path), "");
  const auto m = ModelFiles::open(path).value();
  EXPECT_EQ(m->container(), "gguf");
  EXPECT_EQ(m->display_name(), "tiny");
  const auto spec = m->spec().value();
  EXPECT_EQ(spec.family, "llama");
  EXPECT_TRUE(spec.tied);
  EXPECT_EQ(spec.interleaved_qk, spec.head_dim);
  EXPECT_EQ(kv_bytes_per_token(spec, DType::kF16), 2u * 1 * 4 * 2);
  EXPECT_EQ(kv_bytes_per_token(spec, DType::kF8E4M3), 2u * 1 * (4 + 4)) << "with the scales";
  EXPECT_EQ(kv_bytes_per_token(spec, DType::kI8), 2u * 1 * (4 + 4));
  EXPECT_EQ(parameter_count(spec), 4u * 8 + 8 + 2 * 8 + 8 * 8 * 2 + 2 * 4 * 8 + 3 * 8 * 8);
  const auto vocab = m->vocab().value();
  EXPECT_EQ(vocab.ggml_pre, "smollm");
  EXPECT_EQ(vocab.eos, 3);
  EXPECT_EQ(vocab.eos_ids, std::vector<TokenId>{3});
  EXPECT_EQ(vocab.chat_template, "{{ messages }}");
  EXPECT_FALSE(m->is_quantised());
}

TEST(GgufModel, NameIsWholeCharactersWithoutControls) {
  TempDir dir;
  const auto name = [&](std::string_view text) {
    return ModelFiles::open(dir.write("m.gguf", tiny_llama().str("general.name", text).build()))
        .value()
        ->display_name();
  };
  EXPECT_EQ(name("a\x1b[31m\nb\x7f"), "a?[31m?b?");
  EXPECT_EQ(name(std::string(255, 'x') + "\u00e9"), std::string(255, 'x'));
  EXPECT_EQ(name("caf\u00e9"), "caf\u00e9");
  EXPECT_EQ(name(""), "m");
}

TEST(Gguf, ArraysThatNobodyNeedsAreNotRead) {
  // Zeros cost nothing in a sparse file; as integers they would take eight times its length.
  const std::uint64_t n = (1 << 24) + 1;
  std::string bytes =
      GgufBuilder().raw("k", Bytes().put(kMetaArray).put(kMetaU8).put(n).data + std::string(n, '\0')).build();
  const auto f = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(f) << f.error().message;
  EXPECT_THAT(f->integers("k").error().message, HasSubstr("metadata key k is an array of 16777217 elements"));
  EXPECT_FALSE(f->reals("k"));
}

TEST(GgufModel, WhatOnlyUnigramVocabulariesHave) {
  TempDir dir;
  const auto vocab = [&](std::uint8_t last) {
    Bytes map;
    map.put(kMetaArray).put(kMetaU8).put<std::uint64_t>(3).put<std::uint8_t>('a').put<std::uint8_t>(0).put(last);
    return ModelFiles::open(dir.write("m.gguf", tiny_llama()
                                                    .raw("tokenizer.ggml.precompiled_charsmap", map.data)
                                                    .set<std::uint8_t>("tokenizer.ggml.remove_extra_whitespaces", kMetaBool, 0)
                                                    .build()))
        .value()
        ->vocab()
        .value();
  };
  EXPECT_EQ(vocab(0xff).ggml_charsmap, std::string("a\0\xff", 3));
  EXPECT_EQ(vocab(1).remove_extra_whitespaces, std::optional(false));
}

TEST(GgufModel, NamedTemplatesAreKept) {
  TempDir dir;
  const auto m =
      ModelFiles::open(dir.write("m.gguf", tiny_llama().str("tokenizer.chat_template.tool_use", "T").build()))
          .value();
  const auto v = m->vocab().value();
  ASSERT_EQ(v.named_chat_templates.size(), 1u);
  EXPECT_EQ(v.named_chat_templates[0], (std::pair<std::string, std::string>{"tool_use", "T"}));
}

TEST(GgufModel, DigestSeesEveryByteAndName) {
  TempDir dir;
  GgufBuilder b = tiny_llama();
  const std::string bytes = b.build();
  const auto digest = [&](const std::string& s) {
    return ModelFiles::open(dir.write("m.gguf", s)).value()->weights_digest();
  };
  const Digest base = digest(bytes);
  EXPECT_EQ(digest(bytes), base);
  std::string flipped = bytes;
  flipped.back() ^= 1;
  EXPECT_NE(digest(flipped), base);
  b.at("blk.0.attn_q.weight").name = "blk.0.attn_r.weight";
  EXPECT_NE(digest(b.build()), base);
}

}  // namespace
}  // namespace barg::model::test::gguf_test
