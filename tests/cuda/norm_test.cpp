// RMSNorm against float64, and alone against among others.
#include "cuda/norm.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "emu/emu.h"

namespace barg::cuda {
namespace {

using emu::Device;
using emu::Order;

struct Rows {
  std::vector<float> x, weight, out;
  std::vector<std::uint16_t> half;
};

Rows normed(int rows, int dim, const emu::Schedule& schedule) {
  std::mt19937 random(static_cast<unsigned>(dim));
  std::normal_distribution<float> normal(0, 3);
  Rows r;
  for (int i = 0; i < dim; ++i) r.weight.push_back(normal(random));
  for (int i = 0; i < rows * dim; ++i) r.x.push_back(normal(random));
  const std::size_t n = r.x.size();
  Device device(schedule);
  RmsNormArgs args{};
  args.x = static_cast<float*>(device.allocate(n * 4, "x"));
  args.weight = static_cast<float*>(device.allocate(r.weight.size() * 4, "weight"));
  args.out = static_cast<float*>(device.allocate(n * 4, "out"));
  args.half = static_cast<std::uint16_t*>(device.allocate(n * 2, "half"));
  args.offset = 1;
  args.eps = 1e-5f;
  args.dim = dim;
  device.upload(const_cast<float*>(args.x), r.x.data(), n * 4);
  device.upload(const_cast<float*>(args.weight), r.weight.data(), r.weight.size() * 4);
  launch<rms_norm_kernel<Half::kBF16>>(device.stream(), {.grid_x = rows, .threads = kNormThreads}, args);
  for (const auto& f : device.take_findings()) ADD_FAILURE() << kind_name(f.kind) << " at " << f.where << ": " << f.what;
  r.out.resize(n);
  r.half.resize(n);
  device.download(r.out.data(), args.out, n * 4);
  device.download(r.half.data(), args.half, n * 2);
  return r;
}

class Norm : public testing::TestWithParam<int> {};

TEST_P(Norm, IsThatOfDoubles) {
  const int dim = GetParam(), rows = 3;
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    const Rows r = normed(rows, dim, {.threads = order, .blocks = order});
    double error = 0, size = 0;
    for (int row = 0; row < rows; ++row) {
      double sum = 0;
      for (int i = 0; i < dim; ++i) sum += std::pow(static_cast<double>(r.x[static_cast<std::size_t>(row * dim + i)]), 2);
      for (int i = 0; i < dim; ++i) {
        const auto at = static_cast<std::size_t>(row * dim + i);
        const double want = r.x[at] / std::sqrt(sum / dim + 1e-5) * (static_cast<double>(r.weight[static_cast<std::size_t>(i)]) + 1);
        error += std::pow(r.out[at] - want, 2);
        size += want * want;
        EXPECT_EQ(r.half[at], ops::f32_to_bf16(r.out[at]));
      }
    }
    EXPECT_LT(std::sqrt(error / size), 3e-7);
  }
}

TEST_P(Norm, ARowIsTheSameAloneAndAmongOthers) {
  const int dim = GetParam();
  const Rows alone = normed(1, dim, {}), among = normed(5, dim, {.blocks = Order::kRandom});
  EXPECT_EQ(alone.out, std::vector<float>(among.out.begin(), among.out.begin() + dim));
}

INSTANTIATE_TEST_SUITE_P(Dims, Norm, testing::Values(1, 31, 256, 576, 1000));

}  // namespace
}  // namespace barg::cuda
