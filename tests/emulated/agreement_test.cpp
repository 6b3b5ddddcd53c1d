// The emulated engine on the CPU's tokens: how far its logits are from the CPU's in f32, and that it keeps to the device's
// memory that it said it would take.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "cuda/device_emulated.h"
#include "emulated/random_model.h"
#include "model/golden_kit.h"
#include "runtime/batch.h"
#include "runtime/cuda_batch.h"
#include "runtime/cuda_memory.h"
#include "runtime/kv_memory.h"

namespace barg::test::agreement_test {
namespace {

using cuda::Status;

void expect_ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.message; }

/// A decoder on the emulated device, a step at a time.
class DeviceDecoder {
 public:
  static constexpr std::int32_t kRows = 160, kBlock = 16;

  DeviceDecoder(const std::string& path, cuda::Half activations, DType kv) : device_(cuda::EmulatedDevice::create({})) {
    expect_ok(cuda::Queue::create(*device_, queue_));
    memory_ = std::make_unique<runtime::CudaMemory>(*queue_);
    const auto files = model::ModelFiles::open(path);
    auto loaded = model::Decoder::load(**files, cuda::cuda_ops(activations), queue_->stream(),
                                       {.recipe = Recipe::kBF16, .context = 512, .memory = memory_.get()});
    if (!loaded) throw std::runtime_error(loaded.error().message);
    decoder_ = std::move(*loaded);
    peak_ = device_->peak_bytes();
    expect_ok(queue_->uploader().finish());
    std::vector<runtime::KvMemory::GroupSpec> specs;
    for (const auto& group : decoder_->groups()) {
      const auto head = cuda::cuda_ops(activations).kv_head_bytes(kv, kBlock, group.head_dim);
      specs.push_back({.group = &group, .num_blocks = 32, .head_bytes = static_cast<std::int64_t>(head), .block_tokens = kBlock});
    }
    kv_ = std::move(*runtime::KvMemory::create(specs, kv, *memory_));
    hidden_ = floats(kRows * decoder_->spec().hidden, "hidden");
    logits_ = floats(kRows * decoder_->spec().vocab_rows, "logits");
    workspace_ = memory_->allocate(decoder_->workspace_bytes(kRows), "workspace", false);
    staged_ = memory_->allocate(1 << 20, "batch", false);
    expect_ok(cuda::PinnedBuffer::create(*device_, 1 << 20, pinned_));
    expect_ok(cuda::PinnedBuffer::create(*device_, kRows * decoder_->spec().vocab_rows * sizeof(float), out_));
  }

  /// [tokens, vocab], in steps of `chunk` tokens.
  std::vector<float> logits(const std::vector<TokenId>& tokens, std::int32_t chunk) {
    std::vector<float> out;
    for (std::int32_t at = 0; at < std::ssize(tokens); at += chunk) {
      const auto count = std::min(chunk, static_cast<std::int32_t>(std::ssize(tokens)) - at);
      step(tokens, at, count);
      const auto* first = reinterpret_cast<const float*>(out_.data());
      out.insert(out.end(), first, first + std::int64_t{count} * decoder_->spec().vocab_rows);
    }
    return out;
  }

  void set_library(std::unique_ptr<cuda::GemmLt> library) { queue_->set_library(std::move(library)); }
  void set_fusing(cuda::Fusing f) { queue_->set_fusing(f); }
  std::size_t load_peak() const { return peak_; }
  std::size_t weight_bytes() const { return decoder_->weight_bytes(); }
  std::int64_t launches() const { return queue_->launches(); }

 private:
  float* floats(std::int64_t count, const char* name) {
    blocks_.push_back(memory_->allocate(static_cast<std::size_t>(count) * sizeof(float), name, false));
    return reinterpret_cast<float*>(blocks_.back()->data());
  }

  void step(const std::vector<TokenId>& tokens, std::int32_t at, std::int32_t count) {
    sched::StepPlan plan;
    plan.tokens.assign(tokens.begin() + at, tokens.begin() + at + count);
    plan.items.push_back({.start = at, .count = count, .want = sched::Want::kLogits});
    for (BlockId b = 0; b < 32; ++b) plan.block_ids.push_back(31 - b);
    plan.num_groups = static_cast<std::int32_t>(kv_.num_groups());
    plan.tables.assign(kv_.num_groups(), {0, 32});
    runtime::BatchBuilder builder;
    const std::vector<TokenId> last{0};
    const model::ForwardBatch& built = builder.build(plan, last, kv_);
    runtime::StagedMemory staged(pinned_.data(), staged_->data(), 1 << 20);
    runtime::CudaBatch batch({.kv_dtype = DType::kF16,
                              .num_q_heads = decoder_->spec().num_q_heads,
                              .workers = 4,
                              .slot_floats = queue_->slot_floats(),
                              .groups = decoder_->groups()});
    const model::ForwardBatch& ready = batch.stage(built, plan, 0, staged);
    ASSERT_FALSE(staged.full());
    expect_ok(device_->upload(queue_->id(), staged_->data(), pinned_.data(), staged.used()));
    queue_->bind(pinned_.data(), 1 << 20, staged_->data());
    queue_->set_attention(batch.attention());
    model::Workspace space(workspace_->data(), workspace_->size());
    if (!measured_) {
      queue_->begin_measure();
      measure(kRows, space);
      expect_ok(queue_->reserve());
      measured_ = true;
    }
    decoder_->forward(ready, space, hidden_);
    decoder_->logits(hidden_, count, space, logits_);
    queue_->flush();
    expect_ok(queue_->take_status());
    const std::size_t bytes = static_cast<std::size_t>(std::int64_t{count} * decoder_->spec().vocab_rows) * sizeof(float);
    expect_ok(device_->download(queue_->id(), out_.data(), reinterpret_cast<std::byte*>(logits_), bytes));
    expect_ok(device_->synchronize(queue_->id()));
  }

  void measure(std::int32_t rows, model::Workspace& space) {
    const std::vector<std::int32_t> zeros(static_cast<std::size_t>(rows), 0);
    const ops::Segment segment{0, rows, 0, nullptr};
    model::ForwardBatch all;
    all.rows = rows;
    all.tokens = all.positions = zeros.data();
    all.wanted = zeros;
    for (std::size_t g = 0; g < kv_.num_groups(); ++g)
      all.groups.push_back({.layers = kv_.layers(g), .states = {}, .segments = {&segment, 1}, .wanted_segments = {&segment, 1}});
    decoder_->forward(all, space, hidden_);
    decoder_->logits(hidden_, rows, space, logits_);
  }

  std::unique_ptr<cuda::EmulatedDevice> device_;
  std::unique_ptr<cuda::Queue> queue_;
  std::unique_ptr<runtime::CudaMemory> memory_;
  std::unique_ptr<model::Decoder> decoder_;
  runtime::KvMemory kv_;
  std::vector<std::unique_ptr<model::MemoryBlock>> blocks_;
  std::unique_ptr<model::MemoryBlock> workspace_, staged_;
  cuda::PinnedBuffer pinned_, out_;
  float *hidden_ = nullptr, *logits_ = nullptr;
  std::size_t peak_ = 0;
  bool measured_ = false;
};

struct Agreement {
  double rms = 0;   ///< of the difference, over the standard deviation of the CPU's logits
  double kl = 0;    ///< mean, of the CPU's distribution from the device's
  int rows = 0, clear = 0, same = 0;  ///< rows whose two best are more than 4 rms apart, and those with the CPU's best
};

Agreement compare(const std::vector<float>& cpu, const std::vector<float>& device, std::size_t vocab) {
  Agreement out;
  double square = 0, sum = 0, sum2 = 0;
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    const double x = cpu[i], d = device[i] - x;
    square += d * d;
    sum += x;
    sum2 += x * x;
  }
  const double n = static_cast<double>(cpu.size()), mean = sum / n;
  const double rms = std::sqrt(square / n);
  out.rms = rms / std::sqrt(sum2 / n - mean * mean);
  for (std::size_t r = 0; r < cpu.size() / vocab; ++r, ++out.rows) {
    const float *a = cpu.data() + r * vocab, *b = device.data() + r * vocab;
    const auto log_sum = [&](const float* x) {
      const double most = *std::max_element(x, x + vocab);
      double total = 0;
      for (std::size_t i = 0; i < vocab; ++i) total += std::exp(x[i] - most);
      return most + std::log(total);
    };
    const double la = log_sum(a), lb = log_sum(b);
    for (std::size_t i = 0; i < vocab; ++i) out.kl += std::exp(a[i] - la) * ((a[i] - la) - (b[i] - lb));
    std::vector<float> sorted(a, a + vocab);
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    const float second = sorted[1], first = *std::max_element(a, a + vocab);
    if (first - second <= 4 * rms) continue;
    ++out.clear;
    out.same += std::max_element(a, a + vocab) - a == std::max_element(b, b + vocab) - b ? 1 : 0;
  }
  out.kl /= out.rows;
  return out;
}

struct AgreementCase {
  const char* name;
  RandomModel model;
  cuda::Half activations = cuda::Half::kBF16;
  DType kv = DType::kF16;
};
void PrintTo(const AgreementCase& c, std::ostream* os) { *os << c.name; }

class EmulatedAgreement : public ::testing::TestWithParam<AgreementCase> {};

TEST_P(EmulatedAgreement, TeacherForcedLogitsAreTheCpusWithinTheBar) {
  const AgreementCase& c = GetParam();
  TempDir dir;
  const std::string path = dir.write("m.gguf", c.model.build());
  model::test::Harness cpu(model::test::open_or_throw(path), {.kv_dtype = c.kv, .context = 512});
  std::vector<TokenId> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back(3 + i * i * 7 % 590);
  const auto more = cpu.greedy(tokens, 40, {100});
  tokens.insert(tokens.end(), more.begin(), more.end());
  cpu.free_all();
  const auto seq = cpu.new_sequence(static_cast<std::int32_t>(tokens.size()));
  const auto expected = cpu.logits(cpu.prefill(seq, tokens, {tokens.size()}));
  DeviceDecoder device(path, c.activations, c.kv);
  const auto got = device.logits(tokens, 64);
  ASSERT_EQ(got.size(), expected.size());
  const Agreement a = compare(expected, got, c.model.vocab);
  std::cout << c.name << ": rms " << a.rms << " of the deviation, KL " << a.kl << ", the best of " << a.same << " of " << a.clear
            << " clear rows of " << a.rows << "\n";
  EXPECT_LE(a.rms, 0.05);
  EXPECT_LE(a.kl, 1e-3);
  EXPECT_GT(a.clear, a.rows / 2);
  EXPECT_EQ(a.same, a.clear);
  EXPECT_LE(static_cast<double>(device.load_peak()),
            1.05 * static_cast<double>(device.weight_bytes()) + static_cast<double>(2 * cuda::Queue::kUploadPiece));
}

std::vector<TokenId> some_tokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(3 + i * 37 % 590);
  return tokens;
}

/// What norms and rotations do by themselves, and what they do in the product's kernel; also how a prompt is cut.
TEST(EmulatedDecoder, FusingAndChunksChangeNoBit) {
  const bool all = std::getenv("BARG_TEST_LONG") != nullptr;
  std::vector<RandomModel> models{{.architecture = "qwen3", .type = Stored::kQ8_0, .kv_heads = 3}};
  if (all) models.insert(models.end(), {RandomModel{}, RandomModel{.architecture = "qwen2", .type = Stored::kQ4_0}});
  const std::vector<std::int32_t> chunks = all ? std::vector{1, 7, 8, 9, 33, 64, 75} : std::vector{1, 9, 64};
  for (const RandomModel& model : models) {
    TempDir dir;
    const std::string path = dir.write("m.gguf", model.build());
    const auto tokens = some_tokens(75);
    DeviceDecoder plain(path, cuda::Half::kBF16, DType::kF16);
    plain.set_fusing(cuda::Fusing::kNever);
    const auto expected = plain.logits(tokens, 75);
    for (const auto fusing : {cuda::Fusing::kNever, cuda::Fusing::kWhereItPays, cuda::Fusing::kAlways}) {
      for (const std::int32_t chunk : chunks) {
        DeviceDecoder d(path, cuda::Half::kBF16, DType::kF16);
        d.set_fusing(fusing);
        EXPECT_EQ(d.logits(tokens, chunk), expected) << model.architecture << ", chunk " << chunk << ", fusing "
                                                     << static_cast<int>(fusing);
      }
    }
  }
}

/// Up to 64 rows nothing is different; above, a library multiplies, and its order of additions is its own.
TEST(EmulatedDecoder, ALibraryMayMultiplyManyRows) {
  for (const RandomModel& model :
       {RandomModel{}, RandomModel{.type = Stored::kQ4_K, .hidden = 256, .heads = 4, .kv_heads = 2, .ffn = 256, .down = Stored::kQ6_K},
        RandomModel{.architecture = "qwen2", .type = Stored::kF16}}) {
    TempDir dir;
    const std::string path = dir.write("m.gguf", model.build());
    const cuda::Half activations = model.type == Stored::kF16 ? cuda::Half::kF16 : cuda::Half::kBF16;
    const auto tokens = some_tokens(100);
    DeviceDecoder own(path, activations, DType::kF16), other(path, activations, DType::kF16), few(path, activations, DType::kF16);
    std::string error;
    for (DeviceDecoder* d : {&other, &few}) {
      d->set_library(cuda::GemmLt::open({BARG_FAKE_CUBLASLT}, &error));
      ASSERT_EQ(error, "");
    }
    const auto expected = own.logits(tokens, 100);
    EXPECT_EQ(few.logits(tokens, 64), expected);
    const auto got = other.logits(tokens, 100);
    EXPECT_NE(got, expected);
    const Agreement a = compare(expected, got, model.vocab);
    EXPECT_LE(a.rms, 0.03) << model.architecture;
    EXPECT_EQ(a.same, a.clear);
    EXPECT_GT(other.launches(), own.launches()) << "weights are spelt out";
  }
}

/// Kernels of a layer, for steps of so many rows.
std::int64_t nodes_of_a_layer(const RandomModel& model, std::int32_t rows, cuda::Fusing fusing) {
  std::int64_t launches[2];
  for (const std::uint32_t layers : {2U, 3U}) {
    TempDir dir;
    RandomModel deeper = model;
    deeper.layers = layers;
    DeviceDecoder d(dir.write("m.gguf", deeper.build()), cuda::Half::kBF16, DType::kF16);
    d.set_fusing(fusing);
    d.logits(some_tokens(rows), rows);
    launches[layers - 2] = d.launches();
  }
  return launches[1] - launches[0];
}

TEST(EmulatedDecoder, ALayerOfUpTo64RowsIsFiveKernels) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    const RandomModel model{.architecture = architecture};
    for (const std::int32_t rows : {1, 5, 8, 9, 64})
      EXPECT_EQ(nodes_of_a_layer(model, rows, cuda::Fusing::kAlways), 5) << architecture << ", " << rows;
    EXPECT_EQ(nodes_of_a_layer(model, 1, cuda::Fusing::kWhereItPays), 5) << architecture;
    EXPECT_EQ(nodes_of_a_layer(model, 65, cuda::Fusing::kAlways), 8) << architecture;
    EXPECT_EQ(nodes_of_a_layer(model, 1, cuda::Fusing::kNever), 8) << architecture;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, EmulatedAgreement,
    ::testing::Values(AgreementCase{"llama_bf16", {}},
                      AgreementCase{"llama_f16", {.type = Stored::kF16}, cuda::Half::kF16},
                      AgreementCase{"llama_q8_0_kv_bf16", {.type = Stored::kQ8_0}, cuda::Half::kBF16, DType::kBF16},
                      AgreementCase{"llama_q4_k_m",
                                    {.type = Stored::kQ4_K, .hidden = 256, .heads = 4, .kv_heads = 2, .ffn = 256, .down = Stored::kQ6_K}},
                      AgreementCase{"llama_f32_rounded", {.type = Stored::kF32}},
                      AgreementCase{"qwen3_q4_0", {.architecture = "qwen3", .type = Stored::kQ4_0}},
                      AgreementCase{"gemma3_bf16", {.architecture = "gemma3", .layers = 6, .tied = true}},
                      AgreementCase{"qwen2_q4_1", {.architecture = "qwen2", .type = Stored::kQ4_1, .tied = true}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace barg::test::agreement_test
