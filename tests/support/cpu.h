// Where the tests of the decoder, the runner and the engine compute, unless they say so themselves: CTest
// runs them again for every instruction set and for 1, 2 and 3 threads with BARG_TEST_ISA and
// BARG_TEST_THREADS.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cpu/cpu.h"

namespace barg::test {

inline ops::CpuOptions test_cpu(int threads) {
  ops::CpuOptions options{.threads = threads};
  if (const char* text = std::getenv("BARG_TEST_THREADS")) options.threads = std::atoi(text);
  const char* name = std::getenv("BARG_TEST_ISA");
  for (const ops::Isa isa : {ops::Isa::kScalar, ops::Isa::kAvx2, ops::Isa::kAvx512}) {
    if (name != nullptr && name == std::string(ops::isa_name(isa))) options.isa = isa;
  }
  return options;
}

/// Skips everything where the machine lacks the instruction set asked for.
class NeedsTestIsa : public ::testing::Environment {
  void SetUp() override {
    const ops::Isa isa = test_cpu(1).isa;
    if (!ops::isa_supported(isa)) GTEST_SKIP() << "skipped: this machine has no " << ops::isa_name(isa);
  }
};
inline ::testing::Environment* const kNeedsTestIsa =
    ::testing::AddGlobalTestEnvironment(new NeedsTestIsa);  // owned by the framework

}  // namespace barg::test
