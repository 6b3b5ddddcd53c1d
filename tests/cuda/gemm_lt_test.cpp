// What is asked of cuBLASLt, by a library with its functions that computes on the host.
#include "cuda/gemm_lt.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "math.h"

namespace barg::cuda {
namespace {

constexpr int kRows = 5, kN = 6, kK = 8, kXStride = 16, kOutStride = 10;

struct Product {
  explicit Product(DType type, int rows = kRows) {
    const auto half = [&](float x) { return type == DType::kF16 ? ops::f32_to_f16(x) : ops::f32_to_bf16(x); };
    for (int i = 0; i < kN * kK; ++i) weight.push_back(half(static_cast<float>(i % 7 - 3)));
    for (int i = 0; i < rows * kXStride; ++i) x.push_back(i % kXStride < kK ? half(static_cast<float>(i % 5 - 2)) : 0x7fff);
    out.assign(static_cast<std::size_t>(rows * kOutStride), 100.0f);
    p.type = type;
    p.weight = weight.data();
    p.x = x.data();
    p.x_stride = kXStride;
    p.rows = rows;
    p.n = kN;
    p.k = kK;
    p.out = out.data();
    p.out_stride = kOutStride;
  }
  float want(int row, int n) const {
    int sum = 0;
    for (int k = 0; k < kK; ++k) sum += ((n * kK + k) % 7 - 3) * ((row * kXStride + k) % 5 - 2);
    return static_cast<float>(sum);
  }

  std::vector<std::uint16_t> weight, x;
  std::vector<float> out;
  GemmLtParams p;
};

std::unique_ptr<GemmLt> opened() {
  std::string error;
  auto lt = GemmLt::open({"libno_such_cublasLt.so.0", BARG_FAKE_CUBLASLT}, &error);
  EXPECT_EQ(error, "");
  return lt;
}

TEST(GemmLt, MultipliesRowsByTheTransposedMatrix) {
  const auto lt = opened();
  ASSERT_NE(lt, nullptr);
  EXPECT_EQ(lt->version(), 130100U);
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const bool accumulate : {false, true, true}) {
      Product product(type);
      product.p.accumulate = accumulate;
      EXPECT_EQ(lt->multiply(product.p), "");
      for (int i = 0; i < kRows * kOutStride; ++i) {
        const int row = i / kOutStride, n = i % kOutStride;
        const float want = n >= kN ? 100 : product.want(row, n) + (accumulate ? 100 : 0);
        EXPECT_EQ(product.out[static_cast<std::size_t>(i)], want) << row << " " << n;
      }
    }
  }
}

TEST(GemmLt, TakesAnAlgorithmForTheAddressesThatItGets) {
  const auto lt = opened();
  ASSERT_NE(lt, nullptr);
  alignas(256) static std::uint16_t weight[kN * kK + 256], x[kRows * kXStride + 256];
  alignas(256) static float out[kRows * kOutStride + 256];
  const auto place = [](auto* base, int at) { return base + static_cast<std::size_t>(at) / sizeof(*base); };
  struct At {
    int factors, out;
  };
  for (const auto& [factors, at_out] : {At{256, 256}, {16, 256}, {256, 16}, {32, 64}, {16, 16}}) {
    Product product(DType::kBF16);
    std::copy(product.weight.begin(), product.weight.end(), place(weight, factors));
    std::copy(product.x.begin(), product.x.end(), place(x, factors));
    product.p.weight = place(weight, factors);
    product.p.x = place(x, factors);
    product.p.out = place(out, at_out);
    EXPECT_EQ(lt->multiply(product.p), "") << factors << " " << at_out;
    EXPECT_EQ(product.p.out[kOutStride + 3], product.want(1, 3));
  }
}

TEST(GemmLt, SaysWhatIsMissing) {
  std::string error;
  EXPECT_EQ(GemmLt::open({"libno_such_cublasLt.so.0"}, &error), nullptr);
  EXPECT_NE(error.find("invariant: false needs cuBLASLt, which could not be opened (libno_such_cublasLt.so.0:"),
            std::string::npos)
      << error;
  EXPECT_EQ(GemmLt::open({"libm.so.6"}, &error), nullptr);
  EXPECT_EQ(error, "cuBLASLt has no cublasLtCreate: it is too old");
}

TEST(GemmLt, PassesOnWhatTheLibrarySays) {
  const auto lt = opened();
  ASSERT_NE(lt, nullptr);
  EXPECT_EQ(lt->multiply(Product(DType::kBF16, 13).p), "cuBLASLt: cublasLtMatmul: execution failed");
  EXPECT_EQ(lt->multiply(Product(DType::kBF16, 11).p), "cuBLASLt has no algorithm for 11 x 6 x 8");
  EXPECT_EQ(lt->multiply(Product(DType::kF32).p), "cuBLASLt is not given f32");
  Product narrow(DType::kF16);
  narrow.p.x_stride = 4;
  EXPECT_EQ(lt->multiply(narrow.p), "cuBLASLt: describing a product: invalid value");
  EXPECT_EQ(lt->multiply(Product(DType::kF16).p), "") << "after errors it still works";
}

TEST(GemmLt, GivesBackWhatItMade) {
  void* const library = ::dlopen(BARG_FAKE_CUBLASLT, RTLD_NOW);
  ASSERT_NE(library, nullptr);
  const auto objects = reinterpret_cast<int (*)()>(::dlsym(library, "fake_objects"));
  ASSERT_NE(objects, nullptr);
  {
    const auto lt = opened();
    Product product(DType::kBF16);
    EXPECT_EQ(lt->multiply(product.p), "");
    const int made = objects();
    EXPECT_EQ(made, 5);  // the handle, a product and its three layouts
    EXPECT_EQ(lt->multiply(product.p), "");
    EXPECT_EQ(objects(), made) << "described once";
    EXPECT_NE(lt->multiply(Product(DType::kBF16, 11).p), "");
    EXPECT_EQ(objects(), made);
  }
  EXPECT_EQ(objects(), 0);
  ::dlclose(library);
}

}  // namespace
}  // namespace barg::cuda
