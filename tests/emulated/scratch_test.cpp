// What products use of the kernels' scratch is what was measured for as many rows or more.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/env.h"
#include "cuda/device_emulated.h"
#include "cuda/queue.h"
#include "emulated/random_model.h"

namespace barg::test::scratch_test {
namespace {

using cuda::Status;

constexpr int kN = 128, kK = 512, kRows = 384;

/// One matrix and kRows rows on the emulated device.
class Scratch : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cuda::Queue::create(*device_, queue_).ok());
    ASSERT_TRUE(cuda::PinnedBuffer::create(*device_, kRows * kN * sizeof(float), result_).ok());
    Rng rng(7);
    const std::vector<float> weight = numbers(kN * kK, rng), x = numbers(kRows * kK, rng);
    weight_ = allocated(ops_.packed_bytes(DType::kF32, kN, kK, ops::Packing::kStored));
    ops::PackParams pack{};
    pack.src = reinterpret_cast<const std::byte*>(weight.data());
    pack.dst = weight_;
    pack.dtype = DType::kF32;
    pack.n = kN;
    pack.k = kK;
    ops_.pack(queue_->stream(), pack);
    x_ = allocated(x.size() * sizeof(float));
    workspace_ = allocated(ops_.prepared_bytes(kRows, kK, Recipe::kBF16));
    out_ = allocated(kRows * kN * sizeof(float));
    const auto* const from = reinterpret_cast<const std::byte*>(x.data());
    ok(queue_->uploader().put(x_, x.size() * sizeof(float), [&](std::size_t at, std::size_t bytes, std::byte* to) {
      std::memcpy(to, from + at, bytes);
    }));
    ok(queue_->uploader().finish());
  }
  static void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message; }
  static std::vector<float> numbers(int count, Rng& rng) {
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& x : all) x = uniform(rng);
    return all;
  }
  std::byte* allocated(std::size_t bytes) {
    std::byte* p = nullptr;
    ok(device_->allocate(bytes, "test", p));
    return p;
  }
  void measure(int rows) {
    queue_->begin_measure();
    issue(rows);
    ok(queue_->reserve());
  }
  void issue(int rows) {
    ops_.linear(queue_->stream(), {.weight = {.n = kN, .k = kK, .dtype = DType::kF32, .data = weight_},
                                   .recipe = Recipe::kBF16,
                                   .x = reinterpret_cast<const float*>(x_),
                                   .rows = rows,
                                   .x_stride = kK,
                                   .bias = nullptr,
                                   .out = reinterpret_cast<float*>(out_),
                                   .out_stride = kN,
                                   .workspace = workspace_});
    queue_->flush();
  }
  std::vector<float> product(int rows) {
    ok(device_->fill(queue_->id(), out_, 0xFF, kRows * kN * sizeof(float)));
    issue(rows);
    ok(queue_->take_status());
    ok(device_->download(queue_->id(), result_.data(), out_, kRows * kN * sizeof(float)));
    ok(device_->synchronize(queue_->id()));
    std::vector<float> got(static_cast<std::size_t>(rows) * kN);
    std::memcpy(got.data(), result_.data(), got.size() * sizeof(float));
    return got;
  }

  std::unique_ptr<cuda::Device> device_ = cuda::EmulatedDevice::create({});
  std::unique_ptr<cuda::Queue> queue_;
  const ops::OpTable& ops_ = cuda::cuda_ops(cuda::Half::kBF16);
  cuda::PinnedBuffer result_;
  std::byte *weight_ = nullptr, *x_ = nullptr, *workspace_ = nullptr, *out_ = nullptr;
};

// With 200 rows blocks share the slices out, with 384 no longer: the 200 need more.
TEST_F(Scratch, IsEnoughForFewerRowsThanWereMeasured) {
  measure(kRows);
  const std::vector<float> all = product(kRows);
  for (const int rows : {1, 8, 64, 128, 200, 256, 128, 384}) {
    const std::vector<float> some = product(rows);
    EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0) << rows << " rows";
  }
}

TEST_F(Scratch, MoreThanWasMeasuredIsRefused) {
  measure(8);
  issue(200);
  const Status status = queue_->take_status();
  EXPECT_EQ(status.code, Status::Code::kInvalid);
  EXPECT_NE(status.message.find("larger than was measured"), std::string::npos) << status.message;
}

}  // namespace
}  // namespace barg::test::scratch_test
