// The ceilings: every figure is there, on every instruction set and several threads, and none is absurd.
#include "cpu/limits.h"

#include <gtest/gtest.h>

#include "fixture.h"

namespace barg::test::limits_test {
namespace {

std::vector<Isa> all_isas() {
  std::vector<Isa> isas = vector_isas();
  isas.push_back(Isa::kScalar);
  return isas;
}

TEST(Limits, EveryFigureIsPositiveAndPossible) {
  for (const Isa isa : all_isas()) {
    for (const int threads : {1, 3}) {
      const auto d = device(isa, threads);
      const ops::Limits l = ops::measure_limits(*d, 0.05);
      SCOPED_TRACE(std::string(ops::isa_name(isa)) + ", " + std::to_string(threads) + " threads");
      EXPECT_EQ(l.threads, threads);
      for (const double figure : {l.read_gbytes, l.f32_gflops, l.int8_gops, l.int4_gops}) {
        EXPECT_GT(figure, 0.01);
        EXPECT_LT(figure, 1e5);
      }
      EXPECT_GE(l.bf16_gflops, 0.0);
      if (isa != Isa::kAvx512) {
        EXPECT_EQ(l.bf16_gflops, 0.0);
      }
    }
  }
}

TEST(Limits, VectorsMultiplyMoreThanScalarCode) {
  const ops::Limits scalar = ops::measure_limits(*device(Isa::kScalar), 0.1);
  for (const Isa isa : vector_isas()) {
    const ops::Limits l = ops::measure_limits(*device(isa), 0.1);
    EXPECT_GT(l.f32_gflops, scalar.f32_gflops) << ops::isa_name(isa);
    EXPECT_GT(l.int8_gops, scalar.int8_gops) << ops::isa_name(isa);
    if (isa == Isa::kAvx512) {
      EXPECT_GT(l.int8_gops, l.f32_gflops);
    }
  }
}

}  // namespace
}  // namespace barg::test::limits_test
