// The GEMM against float64 over the bytes of a file, and against itself: a row alone and among up to a thousand others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <tuple>

#include "cuda/gemm_repack.cuh"
#include "cuda/gemm_unpack.cuh"
#include "gemm_case.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Copies;
using emu::Device;
using emu::Order;

constexpr int kGate = 1, kUp = 2, kBias = 3, kUpBias = 4, kOld = 5;

/// About normal, of a place.
float number(int what, std::int64_t row, int column) {
  const std::uint64_t x =
      static_cast<std::uint64_t>(what) << 56 ^ static_cast<std::uint64_t>(row) << 28 ^ static_cast<std::uint64_t>(column);
  return test::normal_of(x);
}

std::uint16_t to_half(Half type, float x) { return type == Half::kF16 ? ops::f32_to_f16(x) : ops::f32_to_bf16(x); }
float from_half(Half type, std::uint16_t h) { return type == Half::kF16 ? ops::f16_to_f32(h) : ops::bf16_to_f32(h); }

std::uint16_t activation(const GemmCase& c, int row, int k) {
  if (row == c.bad_row && k == c.k / 2) return to_half(c.type, INFINITY);
  return to_half(c.type, number(0, row, k));
}

// ---- matrices as files have them

class FileMatrix {
 public:
  FileMatrix(GemmFormat format, int what, int n, int k) : format_(format), layout_(gemm_layout(format)), k_(k) {
    bytes.resize(static_cast<std::size_t>(n) * row_bytes());
    std::mt19937 random(static_cast<unsigned>(what * 100 + static_cast<int>(format)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    const auto block = static_cast<std::size_t>(layout_.block_bytes);
    for (std::size_t i = 0; i * block < bytes.size(); ++i) {
      std::byte* const b = bytes.data() + i * block;
      const float size = 0.004f + 0.01f * static_cast<float>(random() % 1000) / 1000;
      switch (format) {
        case GemmFormat::kF16: put(b, ops::f32_to_f16(10 * (size - 0.009f))); break;
        case GemmFormat::kBF16: put(b, ops::f32_to_bf16(10 * (size - 0.009f))); break;
        case GemmFormat::kQ8_0:
        case GemmFormat::kQ4_0: put(b, ops::f32_to_f16(size)); break;
        case GemmFormat::kQ4_1:
        case GemmFormat::kQ4_K:
          put(b, ops::f32_to_f16(size));
          put(b + 2, ops::f32_to_f16(format == GemmFormat::kQ4_1 ? -8 * size : size));
          break;
        case GemmFormat::kQ6_K: put(b + 208, ops::f32_to_f16(size / 30)); break;
      }
    }
  }

  std::size_t row_bytes() const { return static_cast<std::size_t>(k_ / layout_.block * layout_.block_bytes); }

  /// As ggml dequantises it.
  double weight(int row, int k) const {
    const std::byte* const b =
        bytes.data() + static_cast<std::size_t>(row) * row_bytes() + k / layout_.block * layout_.block_bytes;
    const auto u8 = [&](int i) { return std::to_integer<int>(b[i]); };
    const auto s8 = [&](int i) { return static_cast<int>(static_cast<std::int8_t>(b[i])); };
    const auto f16 = [&](int i) { return static_cast<double>(ops::f16_to_f32(get(b + i))); };
    const int e = k % layout_.block;
    switch (format_) {
      case GemmFormat::kF16: return f16(0);
      case GemmFormat::kBF16: return static_cast<double>(ops::bf16_to_f32(get(b)));
      case GemmFormat::kQ8_0: return f16(0) * s8(2 + e);
      case GemmFormat::kQ4_0: return f16(0) * ((e < 16 ? u8(2 + e) & 15 : u8(2 + e - 16) >> 4) - 8);
      case GemmFormat::kQ4_1: return f16(0) * (e < 16 ? u8(4 + e) & 15 : u8(4 + e - 16) >> 4) + f16(2);
      case GemmFormat::kQ4_K: {
        const int j = e / 32;
        int scale = u8(4 + j) & 63, minimum = u8(4 + j + 4) & 63;
        if (j >= 4) {
          scale = (u8(4 + j + 4) & 15) | (u8(4 + j - 4) >> 6) << 4;
          minimum = u8(4 + j + 4) >> 4 | (u8(4 + j) >> 6) << 4;
        }
        const int two = u8(16 + e / 64 * 32 + e % 32);
        return f16(0) * scale * (j % 2 == 0 ? two & 15 : two >> 4) - f16(2) * minimum;
      }
      case GemmFormat::kQ6_K: {
        const int half = e / 128, i = e % 32, quarter = e % 128 / 32;
        const int low = u8(64 * half + i + quarter % 2 * 32) >> (quarter >= 2 ? 4 : 0) & 15;
        const int high = u8(128 + 32 * half + i) >> 2 * quarter & 3;
        return f16(208) * s8(192 + e / 16) * ((low | high << 4) - 32);
      }
    }
    return 0;
  }

  std::vector<std::byte> bytes;

 private:
  static void put(std::byte* to, std::uint16_t h) { std::memcpy(to, &h, 2); }
  static std::uint16_t get(const std::byte* from) {
    std::uint16_t h;
    std::memcpy(&h, from, 2);
    return h;
  }
  GemmFormat format_;
  GemmLayout layout_;
  int k_;
};

// ---- launches

template <class T>
T* uploaded(Device& device, const std::vector<T>& data, const char* name) {
  auto* const p = static_cast<T*>(device.allocate(std::max<std::size_t>(data.size() * sizeof(T), 1), name));
  device.upload(p, data.data(), data.size() * sizeof(T));
  return p;
}

template <GemmFormat F>
void repack(Device& device, const GemmCase& c, const FileMatrix& matrix, std::byte* weight) {
  const std::size_t row = matrix.row_bytes();
  for (int begin = 0; begin < c.n; begin += c.staging_rows) {
    const int count = std::min(c.staging_rows, c.n - begin);
    auto* const staging = static_cast<std::byte*>(device.allocate(static_cast<std::size_t>(count) * row, "staging"));
    device.upload(staging, matrix.bytes.data() + static_cast<std::size_t>(begin) * row,
                  static_cast<std::size_t>(count) * row);
    launch<gemm_repack_kernel<F>>(device.stream(),
                                  {.grid_x = gemm_repack_grid(F, count, c.k), .threads = kGemmRepackThreads},
                                  GemmRepackArgs{staging, count, c.k, weight, begin / 16});
    device.release(staging);
  }
}

void repack(Device& device, const GemmCase& c, const FileMatrix& matrix, std::byte* weight) {
  switch (c.format) {
    case GemmFormat::kF16: return repack<GemmFormat::kF16>(device, c, matrix, weight);
    case GemmFormat::kBF16: return repack<GemmFormat::kBF16>(device, c, matrix, weight);
    case GemmFormat::kQ8_0: return repack<GemmFormat::kQ8_0>(device, c, matrix, weight);
    case GemmFormat::kQ4_0: return repack<GemmFormat::kQ4_0>(device, c, matrix, weight);
    case GemmFormat::kQ4_1: return repack<GemmFormat::kQ4_1>(device, c, matrix, weight);
    case GemmFormat::kQ4_K: return repack<GemmFormat::kQ4_K>(device, c, matrix, weight);
    case GemmFormat::kQ6_K: return repack<GemmFormat::kQ6_K>(device, c, matrix, weight);
  }
}

std::size_t weight_bytes(const GemmCase& c) { return static_cast<std::size_t>(gemm_weight_bytes(c.format, c.n, c.k)); }

std::byte* packed(Device& device, const GemmCase& c, const FileMatrix& matrix) {
  auto* const weight = test::room<std::byte>(device, weight_bytes(c), "weight");
  repack(device, c, matrix, weight);
  return weight;
}

std::vector<float> numbers(int what, int n) {
  std::vector<float> v;
  for (int i = 0; i < n; ++i) v.push_back(number(what, 0, i));
  return v;
}

/// [rows, n] out of rows with a stride, and whether the numbers between them are as they were.
template <class T>
std::vector<T> downloaded(Device& device, const T* from, int rows, int n, int stride, bool* gaps) {
  std::vector<T> all(static_cast<std::size_t>(rows * stride)), out;
  device.download(all.data(), from, all.size() * sizeof(T));
  for (int i = 0; i < rows * stride; ++i) {
    const T v = all[static_cast<std::size_t>(i)];
    if (i % stride < n) {
      out.push_back(v);
    } else if (constexpr std::uint64_t kPoison = ~std::uint64_t{0}; std::memcmp(&v, &kPoison, sizeof(T)) != 0) {
      *gaps = false;
    }
  }
  return out;
}

}  // namespace

GemmResult run_gemm(const GemmCase& c) {
  GemmResult result;
  const GemmPlanParams params{c.format, c.n, c.k, c.gated, c.rows, c.workers};
  result.plan = plan_gemm(params);
  if (c.tile || c.shared_out) {
    result.plan = plan_gemm(params, c.tile.value_or(result.plan.tile), c.shared_out.value_or(result.plan.work.shared_out));
  }
  const GemmPlan& plan = result.plan;
  Device device(c.schedule);
  device.set_fault(c.fault);

  GemmArgs args{};
  std::vector<std::byte*> weights;
  for (const int what : {kGate, kUp}) {
    if (what == kUp && !c.gated) continue;
    weights.push_back(packed(device, c, FileMatrix(c.format, what, c.n, c.k)));
  }
  args.weight = weights[0];
  if (c.gated) args.up = weights[1];

  args.x_stride = c.k + 16;
  std::vector<std::uint16_t> x(static_cast<std::size_t>((c.rows - 1) * args.x_stride + c.k), 0x7fff);
  for (int row = 0; row < c.rows; ++row) {
    for (int k = 0; k < c.k; ++k) {
      x[static_cast<std::size_t>(row * args.x_stride + k)] = activation(c, c.first_row + row, k);
    }
  }
  args.x = uploaded(device, x, "x");
  args.rows = c.rows;
  args.n = c.n;
  args.k = c.k;
  if (c.bias) args.bias = uploaded(device, numbers(kBias, c.n), "bias");
  if (c.bias && c.gated) args.up_bias = uploaded(device, numbers(kUpBias, c.n), "up bias");
  const int stride = (c.n + 15) / 16 * 16 + 16;
  const auto places = static_cast<std::size_t>(c.rows * stride);
  if (c.out) args.out = static_cast<float*>(device.allocate(places * 4, "out"));
  args.half = static_cast<std::uint16_t*>(device.allocate(places * 2, "half"));
  args.out_stride = args.half_stride = stride;
  args.accumulate = c.accumulate;
  for (int row = 0; row < c.rows && c.accumulate; ++row) {
    for (int n = 0; n < c.n; ++n) {
      const float old = number(kOld, c.first_row + row, n);
      device.upload(args.out + row * stride + n, &old, 4);
    }
  }
  args.gated = c.gated;
  args.activation = c.activation;
  args.work = plan.work;
  BehindLaunch behind(device, c, plan, args);
  std::vector<std::int32_t> counters(static_cast<std::size_t>(plan.counters));
  if (plan.partial_bytes > 0) {
    args.partials = static_cast<float*>(device.allocate(static_cast<std::size_t>(plan.partial_bytes), "partials"));
  }
  if (plan.counters > 0) args.counters = uploaded(device, counters, "counters");
  for (std::byte* const w : weights) device.take_traffic(w);
  device.count_sites(c.count_sites);
  const bool launched = with_gemm_shape(c.format, c.type, plan.tile, [&]<class S>() {
    EXPECT_EQ(S::kBlockTiles, gemm::tile_size(plan.tile).tiles);
    EXPECT_EQ(S::kBlockCols, gemm::tile_size(plan.tile).cols);
    launch<gemm_kernel<S>>(device.stream(), S::launch(plan.grid), args);
  });
  EXPECT_TRUE(launched);
  if (c.out) result.out_read = device.take_traffic(args.out).read;
  if (c.behind.alone) behind.launch();
  for (std::byte* const w : weights) result.weight_read += device.take_traffic(w).read;
  result.x_read = device.take_traffic(const_cast<std::uint16_t*>(args.x)).read;
  for (const emu::Finding& f : device.take_findings()) {
    result.kinds.insert(f.kind);
    result.text += std::string(emu::kind_name(f.kind)) + " at " + f.where + " in " + f.kernel + ": " + f.what + "\n";
  }
  if (c.count_sites) result.sites = device.take_sites();
  for (const std::byte* const w : weights) {
    const std::vector<std::byte> bytes = test::downloaded(device, w, weight_bytes(c));
    result.weight.insert(result.weight.end(), bytes.begin(), bytes.end());
  }
  device.download(counters.data(), args.counters, counters.size() * 4);
  result.counters_are_zero = std::count(counters.begin(), counters.end(), 0) == plan.counters;
  behind.take(result);
  result.gaps_are_untouched = true;
  if (c.out) result.out = downloaded(device, args.out, c.rows, c.n, stride, &result.gaps_are_untouched);
  result.half = downloaded(device, args.half, c.rows, c.n, stride, &result.gaps_are_untouched);
  return result;
}

double worst_error(const GemmCase& c, const std::vector<float>& out) {
  const auto weights = [&](int what) {
    const FileMatrix matrix(c.format, what, c.n, c.k);
    std::vector<double> w;
    for (int n = 0; n < c.n; ++n) {
      for (int k = 0; k < c.k; ++k) w.push_back(matrix.weight(n, k));
    }
    return w;
  };
  const auto activate = [&](double x) {
    if (c.activation == ops::Activation::kSilu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  const std::vector<double> gate = weights(kGate), up = c.gated ? weights(kUp) : std::vector<double>{};
  double worst = 0;
  for (int row = 0; row < c.rows; ++row) {
    std::vector<double> x;
    for (int k = 0; k < c.k; ++k) x.push_back(static_cast<double>(from_half(c.type, activation(c, c.first_row + row, k))));
    const auto product = [&](const std::vector<double>& w, int n, int bias) {
      double sum = c.bias ? static_cast<double>(number(bias, 0, n)) : 0;
      for (std::size_t k = 0; k < x.size(); ++k) sum += w[static_cast<std::size_t>(n) * x.size() + k] * x[k];
      return sum;
    };
    double error = 0, size = 0;
    for (int n = 0; n < c.n; ++n) {
      double want = product(gate, n, kBias);
      if (c.gated) want = activate(want) * product(up, n, kUpBias);
      if (c.accumulate) want += static_cast<double>(number(kOld, c.first_row + row, n));
      error += std::pow(static_cast<double>(out[static_cast<std::size_t>(row * c.n + n)]) - want, 2);
      size += want * want;
    }
    const double relative = std::sqrt(error / size);
    worst = relative <= worst ? worst : relative;  // so that a NaN is the worst of all
  }
  return worst;
}

std::string name_of(const GemmCase& c) {
  return std::string(gemm_layout(c.format).name) + (c.type == Half::kF16 ? "_f16" : "_bf16");
}

namespace {

void expect_right(const GemmCase& c) {
  SCOPED_TRACE(testing::Message() << name_of(c) << " n " << c.n << " k " << c.k << " rows " << c.rows << " gated "
                                  << c.gated);
  const GemmResult r = run_gemm(c);
  EXPECT_EQ(r.text, "");
  EXPECT_TRUE(r.counters_are_zero);
  EXPECT_TRUE(r.gaps_are_untouched);
  for (std::size_t i = 0; i < r.out.size(); ++i) ASSERT_EQ(r.half[i], to_half(c.type, r.out[i])) << i;
  EXPECT_LT(worst_error(c, r.out), kGemmTolerance);
}

constexpr std::pair<GemmFormat, Half> kPairs[] = {
    {GemmFormat::kF16, Half::kF16},   {GemmFormat::kBF16, Half::kBF16}, {GemmFormat::kQ8_0, Half::kF16},
    {GemmFormat::kQ8_0, Half::kBF16}, {GemmFormat::kQ4_0, Half::kF16},  {GemmFormat::kQ4_0, Half::kBF16},
    {GemmFormat::kQ4_1, Half::kF16},  {GemmFormat::kQ4_1, Half::kBF16}, {GemmFormat::kQ4_K, Half::kF16},
    {GemmFormat::kQ4_K, Half::kBF16}, {GemmFormat::kQ6_K, Half::kF16},  {GemmFormat::kQ6_K, Half::kBF16},
};

/// Every kernel that there is: (format and type, tile).
class GemmKernel : public testing::TestWithParam<std::tuple<std::pair<GemmFormat, Half>, GemmTile>> {
 protected:
  GemmCase shape() const {
    GemmCase c;
    const auto& [pair, tile] = GetParam();
    std::tie(c.format, c.type) = pair;
    c.tile = tile;
    const Order orders[] = {Order::kForward, Order::kReverse, Order::kRandom};
    const Copies copies[] = {Copies::kLate, Copies::kRandom, Copies::kEarly};
    const auto t = static_cast<std::size_t>(turn());
    c.schedule = {orders[t % 3], orders[(t + 1) % 3], copies[t / 3 % 3], t};
    c.rows = tile == GemmTile::kNarrow   ? std::array{1, 7, 8, 10}[t % 4]
             : tile == GemmTile::kMiddle ? std::array{9, 33, 64, 66}[t % 4]
                                         : std::array{65, 129, 5, 128}[t % 4];
    return c;
  }
  /// Differs from kernel to kernel, so that together they cover what all of them need not.
  int turn() const {
    const auto& [pair, tile] = GetParam();
    return static_cast<int>(pair.first) + 3 * static_cast<int>(tile) + (pair.second == Half::kF16 ? 1 : 0);
  }
  /// Whole blocks of the file, but not of the kernel where the file can do that.
  int odd_columns() const {
    const int block = gemm_layout(std::get<0>(GetParam()).first).block;
    return block == 1 ? 72 + 8 * (turn() % 3) : block == 32 ? 96 : 256;
  }
};

TEST_P(GemmKernel, IsThatOfDoubles) {
  GemmCase c = shape();
  c.n = std::array{40, 17, 80, 33}[static_cast<std::size_t>(turn()) % 4];
  c.k = odd_columns();
  c.bias = turn() % 2 == 0;
  c.accumulate = turn() % 3 == 0;
  expect_right(c);
}

TEST_P(GemmKernel, FoldsSlices) {
  GemmCase c = shape();
  c.n = 48;
  c.k = 768;
  c.rows = std::min(c.rows, 40);
  c.shared_out = turn() % 2 == 0;
  EXPECT_EQ(gemm_slices(c.format, c.n, c.k, false), 3);
  expect_right(c);
}

TEST_P(GemmKernel, MultipliesGateAndUp) {
  GemmCase c = shape();
  c.gated = true;
  c.n = std::array{16, 24, 31, 40}[static_cast<std::size_t>(turn()) % 4];
  c.k = turn() % 2 == 0 ? odd_columns() : 512;
  c.rows = std::min(c.rows, 20);
  c.bias = turn() % 3 != 0;
  c.activation = turn() % 2 == 0 ? ops::Activation::kGeluTanh : ops::Activation::kSilu;
  c.staging_rows = 16;
  expect_right(c);
}

std::string kernel_name(const std::tuple<std::pair<GemmFormat, Half>, GemmTile>& kernel) {
  const auto& [pair, tile] = kernel;
  GemmCase c;
  std::tie(c.format, c.type) = pair;
  return name_of(c) + (tile == GemmTile::kNarrow ? "_narrow" : tile == GemmTile::kMiddle ? "_middle" : "_wide");
}

INSTANTIATE_TEST_SUITE_P(Kernels, GemmKernel,
                         testing::Combine(testing::ValuesIn(kPairs),
                                          testing::Values(GemmTile::kNarrow, GemmTile::kMiddle, GemmTile::kWide)),
                         [](const auto& info) { return kernel_name(info.param); });

TEST(Gemm, RandomShapesAreRight) {
  std::mt19937 random(21);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 10; ++i) {
    GemmCase c;
    std::tie(c.format, c.type) = kPairs[below(12)];
    c.n = 1 + below(150);
    c.k = std::max(gemm_layout(c.format).block, 8) * (1 + below(gemm_layout(c.format).block == 256 ? 2 : 12));
    c.rows = 1 + below(i % 3 == 0 ? 90 : 12);
    c.first_row = below(1000);
    c.bias = below(2) == 0;
    c.accumulate = below(3) == 0;
    c.gated = below(3) == 0;
    c.workers = 1 + below(200);
    c.staging_rows = 16 * (1 + below(4));
    c.schedule = {static_cast<Order>(below(3)), static_cast<Order>(below(3)), static_cast<Copies>(below(3)), random()};
    expect_right(c);
  }
}

TEST(Gemm, NoScheduleChangesABit) {
  GemmCase c;
  c.format = GemmFormat::kQ4_K;
  c.n = 80;
  c.k = 768;
  c.rows = 9;
  const GemmResult first = run_gemm(c);
  EXPECT_TRUE(first.plan.work.shared_out);
  std::uint64_t seed = 1;
  for (const Order threads : {Order::kForward, Order::kReverse, Order::kRandom}) {
    for (const Copies copies : {Copies::kLate, Copies::kEarly, Copies::kRandom}) {
      c.schedule = {threads, seed % 2 == 0 ? Order::kReverse : Order::kRandom, copies, ++seed};
      const GemmResult r = run_gemm(c);
      EXPECT_EQ(r.text, "");
      EXPECT_EQ(r.out, first.out);
    }
  }
}

TEST(Gemm, HalfAloneIsTheSame) {
  GemmCase c;
  const GemmResult both = run_gemm(c);
  c.out = false;
  const GemmResult half = run_gemm(c);
  EXPECT_EQ(half.text, "");
  EXPECT_EQ(half.half, both.half);
}

class GemmBits : public testing::TestWithParam<std::pair<GemmFormat, Half>> {
 protected:
  GemmCase shape() const {
    GemmCase c;
    std::tie(c.format, c.type) = GetParam();
    c.n = 42;
    c.k = 768;
    return c;
  }
  /// The row's numbers in a result that begins with row `first`.
  static std::vector<float> row(const GemmCase& c, const GemmResult& r, int which) {
    const auto at = r.out.begin() + (which - c.first_row) * c.n;
    return {at, at + c.n};
  }
  static void expect_rows_of(const GemmCase& whole, const GemmResult& all, const GemmCase& part) {
    const GemmResult r = run_gemm(part);
    EXPECT_EQ(r.text, "");
    for (int i = part.first_row; i < part.first_row + part.rows; ++i) {
      ASSERT_EQ(row(part, r, i), row(whole, all, i)) << "row " << i << " among " << part.rows << " from " << part.first_row;
    }
  }
};

TEST_P(GemmBits, OfARowAreThoseOfTheRowAlone) {
  GemmCase whole = shape();
  whole.rows = 65;
  const GemmResult all = run_gemm(whole);
  EXPECT_EQ(all.plan.tile, GemmTile::kWide);
  EXPECT_LT(worst_error(whole, all.out), kGemmTolerance);
  const std::vector<int> counts = emu::hooked() ? std::vector{1, 9} : std::vector{1, 8, 9, 64};
  for (const int rows : counts) {
    for (const bool shared_out : {false, true}) {
      GemmCase part = whole;
      part.rows = rows;
      part.first_row = 65 - rows;
      part.shared_out = shared_out;
      part.schedule.blocks = Order::kReverse;
      expect_rows_of(whole, all, part);
    }
  }
  GemmCase shared = whole;
  shared.shared_out = !all.plan.work.shared_out;
  EXPECT_EQ(run_gemm(shared).out, all.out);
}

TEST_P(GemmBits, DoNotSeeAnotherRowsBadNumbers) {
  GemmCase good = shape(), bad = good;
  good.k = bad.k = 256;
  bad.bad_row = 3;
  const GemmResult a = run_gemm(good), b = run_gemm(bad);
  for (int i = 0; i < good.rows; ++i) EXPECT_EQ(row(good, a, i) == row(bad, b, i), i != 3) << i;
}

INSTANTIATE_TEST_SUITE_P(Formats, GemmBits, testing::ValuesIn(kPairs), [](const auto& info) {
  GemmCase c;
  std::tie(c.format, c.type) = info.param;
  return name_of(c);
});

TEST(GemmBits, AreThoseOfOneRowForEveryNumberOfRows) {
  for (const GemmFormat format : {GemmFormat::kBF16, GemmFormat::kQ4_K}) {
    GemmCase whole;
    whole.format = format;
    whole.n = 42;
    whole.k = 512;
    whole.rows = 1000;
    const GemmResult all = run_gemm(whole);
    EXPECT_EQ(all.plan.work.slices, 2);
    std::vector<int> counts;
    for (int m = 1; m <= 64; m += emu::hooked() ? 9 : 1) counts.push_back(m);
    counts.insert(counts.end(), {65, 128});
    int first = 0;
    for (const int m : counts) {
      GemmCase part = whole;
      part.rows = m;
      part.first_row = first = (first + 97) % (1000 - m);
      part.shared_out = m % 2 == 0;
      const GemmResult r = run_gemm(part);
      const auto at = all.out.begin() + first * whole.n;
      EXPECT_EQ(r.out, std::vector<float>(at, at + m * whole.n)) << m << " rows from " << first;
    }
  }
}

TEST(GemmRepack, MayBeDoneInPieces) {
  for (const auto& [format, type] : kPairs) {
    GemmCase c;
    c.format = format;
    c.type = type;
    c.n = 55;
    c.gated = true;
    c.rows = 1;
    c.staging_rows = 64;
    const GemmResult whole = run_gemm(c);
    for (const int rows : {16, 48}) {
      c.staging_rows = rows;
      EXPECT_EQ(run_gemm(c).weight, whole.weight) << name_of(c) << " by " << rows;
    }
  }
  EXPECT_EQ(gemm_staging_rows(GemmFormat::kQ4_0, 4096, 2 << 20), 896);  // 2,304 bytes each
  EXPECT_EQ(gemm_staging_rows(GemmFormat::kBF16, 8192, 100000), 0);
}

TEST(GemmUnpack, GivesBackTheRowsOfTheFile) {
  for (const auto& [format, type] : kPairs) {
    GemmCase c;
    c.format = format;
    c.type = type;
    c.n = 21;
    c.k = gemm_layout(format).block == 256 ? 512 : 96;
    Device device({.threads = Order::kRandom});
    const FileMatrix matrix(format, kGate, c.n, c.k);
    const std::byte* const weight = packed(device, c, matrix);
    auto* const to = test::room<std::uint16_t>(device, static_cast<std::size_t>(c.n * c.k), "rows");
    with_gemm_shape(format, type, GemmTile::kNarrow, [&]<class S>() {
      launch<gemm_unpack_kernel<S::kFormat, S::kHalf>>(
          device.stream(), {.grid_x = gemm_unpack_grid(format, c.n, c.k), .threads = kGemmUnpackThreads},
          GemmUnpackArgs{weight, c.n, c.k, to});
    });
    for (const auto& f : device.take_findings()) ADD_FAILURE() << kind_name(f.kind) << " at " << f.where << ": " << f.what;
    const std::vector<std::uint16_t> out = test::downloaded(device, to, static_cast<std::size_t>(c.n * c.k));
    for (int i = 0; i < c.n * c.k; ++i) {
      ASSERT_EQ(out[static_cast<std::size_t>(i)], to_half(type, static_cast<float>(matrix.weight(i / c.k, i % c.k))))
          << name_of(c) << " " << i / c.k << " " << i % c.k;
    }
  }
}

TEST(GemmRefusal, NamesWhatIsMissing) {
  EXPECT_EQ(gemm_refusal("Q4_K", Half::kBF16, 4096, 4096), "");
  EXPECT_EQ(gemm_refusal("BF16", Half::kBF16, 151936, 896), "");
  EXPECT_EQ(gemm_refusal("Q5_K", Half::kF16, 64, 256),
            "weights of type Q5_K have no CUDA kernel; there are F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K");
  EXPECT_EQ(gemm_refusal("F16", Half::kBF16, 64, 256),
            "weights of type F16 are not multiplied with activations in bf16, only with their own type");
  for (const auto& [name, n, k] : {std::tuple{"F16", 64, 12},
                                   {"F16", 0, 64},
                                   {"F16", 64, 0},
                                   {"Q4_0", 64, 48},
                                   {"Q6_K", 64, 384},
                                   {"F16", 64, 1 << 25},
                                   {"F16", 1 << 25, 64}}) {
    EXPECT_NE(gemm_refusal(name, Half::kF16, n, k).find("there must be"), std::string::npos)
        << name << " " << n << " " << k;
  }
  EXPECT_FALSE(with_gemm_shape(GemmFormat::kF16, Half::kBF16, GemmTile::kWide, []<class S>() {}));
}

TEST(GemmPlan, SlicesAreTheMatrixsOwn) {
  struct Shape {
    int n, k;
    bool gated;
    int slices;
  };
  // Of Llama 8B: q, k and v; output of attention; gate and up; down; logits. Of Qwen3 0.6B: the first, the second, down.
  for (const Shape& s : {Shape{6144, 4096, false, 3},
                         {4096, 4096, false, 4},
                         {14336, 4096, true, 1},
                         {4096, 14336, false, 4},
                         {128256, 4096, false, 1},
                         {4096, 1024, false, 4},
                         {1024, 2048, false, 8},
                         {1024, 3072, false, 8},
                         {64, 128, false, 1}}) {
    EXPECT_EQ(gemm_slices(GemmFormat::kBF16, s.n, s.k, s.gated), s.slices) << s.n << " x " << s.k;
    for (const int rows : {1, 8, 9, 64, 65, 1000}) {
      for (const int workers : {1, 20, 132}) {
        const GemmPlan plan = plan_gemm({GemmFormat::kBF16, s.n, s.k, s.gated, rows, workers});
        EXPECT_EQ(plan.work.slices, s.slices);
        EXPECT_EQ(plan.grid, plan.work.row_blocks * plan.work.col_blocks * (plan.work.shared_out ? s.slices : 1));
        EXPECT_EQ(plan.counters > 0, plan.work.shared_out);
      }
    }
  }
  // One row of Llama 8B keeps two blocks on each of an H200's multiprocessors.
  EXPECT_EQ(plan_gemm({GemmFormat::kBF16, 4096, 4096, false, 1, 132}).grid, 256);
}

TEST(GemmPlan, ScratchIsThatOfEveryNumberOfRows) {
  constexpr int kMost = 4096;
  struct Shape {
    int n, k;
    bool gated;
  };
  for (const Shape& s : {Shape{6144, 4096, false}, {4096, 14336, false}, {14336, 4096, true}, {1024, 2048, false},
                         {3072, 1024, true}, {1152, 896, false}, {3584, 18944, false}, {192, 512, false}, {64, 128, false}}) {
    for (const int workers : {4, 108, 132, 148, 170, 188}) {
      std::int64_t partial_bytes = 0, counters = 0;  // of up to so many rows
      for (int rows = 1; rows <= kMost; ++rows) {
        const GemmPlanParams p{GemmFormat::kBF16, s.n, s.k, s.gated, rows, workers};
        const GemmPlan plan = plan_gemm(p);
        partial_bytes = std::max(partial_bytes, plan.partial_bytes);
        const int behind = std::max(gemm_norm_counters(plan), gemm_rope_counters(plan, s.n / 64, 0));
        counters = std::max<std::int64_t>(counters, plan.counters + (gemm_has_behind(plan) ? behind : 0));
        if (rows > 200 && rows % 128 != 0) continue;
        const GemmScratch scratch = gemm_scratch(p);
        EXPECT_EQ(scratch.partial_bytes, partial_bytes) << s.n << " x " << s.k << ", " << rows << " rows, " << workers;
        EXPECT_GE(scratch.counters, counters) << s.n << " x " << s.k << ", " << rows << " rows, " << workers;
      }
    }
  }
}

/// No line is excepted. Repacking is not counted: it gathers bytes, while a bus that is a hundred times slower brings them.
TEST(GemmLint, ReadsEachWeightOnceAndWideAccessesStayWide) {
  for (const auto& [format, type] : kPairs) {
    for (const int rows : {5, 64, 70}) {
      // Both 16-bit types lie alike; what the larger tiles copy differs with the columns of a unit alone.
      const bool widest = format == GemmFormat::kBF16 || format == GemmFormat::kQ6_K;
      if (type == Half::kF16 || (rows != 5 && !widest)) continue;
      GemmCase c;
      c.format = format;
      c.type = type;
      c.n = 96;
      c.k = 512;
      c.rows = rows;
      c.bias = c.accumulate = true;
      c.count_sites = true;
      const GemmResult r = run_gemm(c);
      EXPECT_EQ(r.weight_read, r.weight.size());
      EXPECT_EQ(r.x_read,
                static_cast<std::uint64_t>(r.plan.work.row_blocks) * static_cast<std::uint64_t>(c.rows * c.k * 2));
      EXPECT_GT(r.sites.size(), 6U);
      for (const emu::SiteCount& s : r.sites) {
        EXPECT_LE(static_cast<double>(s.units), (s.shared ? 2.0 : 1.1) * static_cast<double>(s.ideal))
            << name_of(c) << (s.shared ? ": bank cycles at " : ": sectors at ") << s.where;
      }
    }
  }
}

}  // namespace
}  // namespace barg::cuda
