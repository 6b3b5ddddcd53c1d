// Loading weights: what lies in memory afterwards, byte for byte, also where rows are reordered or joined;
// and that the peak of a load is the packed size and little more.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "base/pages.h"
#include "cpu/cpu.h"
#include "model/gguf_builder.h"

namespace barg::model::test::weights_test {
namespace {

struct Shape {
  std::uint64_t hidden, heads, kv_heads, ffn, layers;
  std::uint32_t type = 0;  ///< ggml: 0 = F32, 8 = Q8_0, 12 = Q4_K
};

GgufBuilder llama(const Shape& s) {
  GgufBuilder b = tiny_llama();
  const auto u32 = [&](const char* key, std::uint64_t v) { b.u32(key, static_cast<std::uint32_t>(v)); };
  u32("llama.block_count", s.layers);
  u32("llama.embedding_length", s.hidden);
  u32("llama.feed_forward_length", s.ffn);
  u32("llama.attention.head_count", s.heads);
  u32("llama.attention.head_count_kv", s.kv_heads);
  u32("llama.rope.dimension_count", s.hidden / s.heads);
  b.tensors.clear();
  const std::uint64_t kv = s.hidden / s.heads * s.kv_heads;
  const auto matrix = [&](const std::string& name, std::uint64_t k, std::uint64_t n) {
    b.tensor(name, {k, n}, s.type,
             s.type == 8    ? n * (k / 32) * 34
             : s.type == 12 ? n * (k / 256) * 144
                            : n * k * 4);
  };
  matrix("token_embd.weight", s.hidden, 4);
  b.tensor("output_norm.weight", {s.hidden});
  for (std::uint64_t i = 0; i < s.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    b.tensor(blk + "attn_norm.weight", {s.hidden});
    matrix(blk + "attn_q.weight", s.hidden, s.hidden);
    matrix(blk + "attn_k.weight", s.hidden, kv);
    matrix(blk + "attn_v.weight", s.hidden, kv);
    matrix(blk + "attn_output.weight", s.hidden, s.hidden);
    b.tensor(blk + "ffn_norm.weight", {s.hidden});
    matrix(blk + "ffn_gate.weight", s.hidden, s.ffn);
    matrix(blk + "ffn_up.weight", s.hidden, s.ffn);
    matrix(blk + "ffn_down.weight", s.ffn, s.hidden);
  }
  return b;
}

/// The rows of a tensor; with `heads`, from interleaved to halves order inside each head.
std::vector<std::byte> rows(const ModelFiles& files, const char* name, std::int64_t heads) {
  const Tensor& t = *files.find(name);
  const std::int64_t n = t.shape[0], d = heads > 0 ? n / heads : n;
  const std::size_t row = t.bytes.size() / static_cast<std::size_t>(n);
  std::vector<std::byte> out;
  for (std::int64_t r = 0; r < n; ++r) {
    const std::int64_t in = r % d;
    const std::int64_t stored = heads == 0 ? r : r - in + (in < d / 2 ? 2 * in : 2 * (in - d / 2) + 1);
    const auto from = t.bytes.subspan(static_cast<std::size_t>(stored) * row, row);
    out.insert(out.end(), from.begin(), from.end());
  }
  return out;
}

TEST(Weights, JoinedAndReorderedRowsArriveWhereTheyBelong) {
  // 1008 rows of q in heads of 48, then 48 of k and of v: tensors end inside runs of 64 rows, and q is more
  // than one slab.
  TempDir dir;
  std::string bytes = llama({.hidden = 1008, .heads = 21, .kv_heads = 1, .ffn = 64, .layers = 1}).build();
  for (std::size_t i = bytes.size() % 4; i + 4 <= bytes.size(); i += 4) {
    float w;
    std::memcpy(&w, bytes.data() + i, 4);
    if (w == 0.25f) w = static_cast<float>(i % 1000003);
    std::memcpy(bytes.data() + i, &w, 4);
  }
  const auto files = ModelFiles::open(dir.write("m.gguf", bytes));
  ASSERT_TRUE(files) << files.error().message;
  const auto spec = (*files)->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  ASSERT_EQ(spec->interleaved_qk, 48);
  std::vector<std::byte> qkv = rows(**files, "blk.0.attn_q.weight", 21);
  for (const auto& [name, heads] : {std::pair{"blk.0.attn_k.weight", 1}, {"blk.0.attn_v.weight", 0}}) {
    const auto more = rows(**files, name, heads);
    qkv.insert(qkv.end(), more.begin(), more.end());
  }
  for (const int threads : {1, 3}) {
    ops::CpuDevice device({.threads = threads});
    std::uint64_t last = 0, total = 0;
    const auto w = load_weights(*spec, **files, device.ops(), device.stream(), Recipe::kF32,
                                [&](std::uint64_t done, std::uint64_t all) {
                                  EXPECT_GE(done, last);
                                  last = done;
                                  total = all;
                                });
    ASSERT_TRUE(w) << w.error().message;
    EXPECT_EQ(last, (*files)->total_bytes());
    EXPECT_EQ(total, (*files)->total_bytes());
    ASSERT_EQ((*w)->layers[0].qkv.parts.size(), 1U);
    const ops::PackedWeight& got = (*w)->layers[0].qkv.parts[0].weight;
    const auto want = Pages::map(device.ops().packed_bytes(got.dtype, got.n, got.k, got.packing), true);
    device.ops().pack(device.stream(), {qkv.data(), got.n, got.k, got.dtype, want->data()});
    EXPECT_EQ(std::memcmp(got.data, want->data(), want->size()), 0);
  }
}

std::uint64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow memory counts as resident
#else
constexpr bool kSanitized = false;
#endif

/// About 200 MB in memory. As in the factory, the digest reads every byte at the same time.
void check_peak(std::uint32_t type, std::uint64_t layers) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory hides what is measured";
  TempDir dir;
  const auto files = ModelFiles::open(dir.write(
      "m.gguf",
      llama({.hidden = 1024, .heads = 16, .kv_heads = 4, .ffn = 4096, .layers = layers, .type = type})
          .build()));
  ASSERT_TRUE(files) << files.error().message;
  const auto spec = (*files)->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  ops::CpuDevice device({.threads = 3});
  const auto packed = plan_weights(*spec, **files, device.ops(), Recipe::kF32);
  ASSERT_TRUE(packed);
  ASSERT_GT(*packed, 180'000'000U);
  {
    std::ofstream reset("/proc/self/clear_refs");
    reset << 5 << std::flush;  // the peak is the present size again
    if (!reset) GTEST_SKIP() << "this kernel does not let the peak be measured";
  }
  const std::uint64_t before = status_bytes("VmRSS");
  std::jthread hashing([&] { (*files)->weights_digest(); });
  const auto w = load_weights(*spec, **files, device.ops(), device.stream(), Recipe::kF32, {});
  hashing.join();
  ASSERT_TRUE(w) << w.error().message;
  const std::uint64_t peak = status_bytes("VmHWM") - before;
  EXPECT_GE(peak, *packed * 95 / 100);  // the measurement sees the arena
  EXPECT_LE(peak, *packed * 110 / 100) << "packed " << *packed;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*w)->arena->data()) % Pages::kHuge, 0U);
}

TEST(Weights, ThePeakOfALoadIsThePackedSizeAndLittleMore) { check_peak(8, 12); }
TEST(Weights, ThePeakOfAConvertingLoadIsThePackedSizeAndLittleMore) { check_peak(12, 17); }

}  // namespace
}  // namespace barg::model::test::weights_test
