#include "cpu/cpu.h"

#include <sched.h>

#include "cpu/layout.h"
#include "cpu/pool.h"

namespace barg::ops {
namespace {

struct IsaEntry {
  Isa isa;
  const char* name;
  const OpTable& (*table)();
  bool (*supported)();
};

// Best first; the last one runs everywhere.
constexpr IsaEntry kIsas[] = {
    {Isa::kAvx512, "avx512", cpu::avx512_ops,
     [] {
       return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
              __builtin_cpu_supports("f16c") != 0 && __builtin_cpu_supports("avx512f") != 0 &&
              __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
              __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
     }},
    {Isa::kAvx2, "avx2", cpu::avx2_ops,
     [] {
       return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
              __builtin_cpu_supports("f16c") != 0;
     }},
    {Isa::kScalar, "scalar", cpu::scalar_ops, [] { return true; }},
};

const IsaEntry& choose(Isa isa) {
  for (const IsaEntry& entry : kIsas) {
    if ((isa == Isa::kAuto || isa == entry.isa) && entry.supported()) return entry;
  }
  __builtin_trap();  // the caller broke REQUIRES isa_supported(isa)
}

}  // namespace

bool isa_supported(Isa isa) {
  for (const IsaEntry& entry : kIsas) {
    if (entry.isa == isa) return entry.supported();
  }
  return isa == Isa::kAuto;
}

bool recipe_supported(Isa isa, Recipe recipe) {
  if (recipe != Recipe::kBF16 || isa == Isa::kScalar) return true;
  return choose(isa).isa == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16") != 0;
}

Isa best_isa() { return choose(Isa::kAuto).isa; }

const char* isa_name(Isa isa) {
  for (const IsaEntry& entry : kIsas) {
    if (entry.isa == isa) return entry.name;
  }
  return "auto";
}

int cores_available() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());  // over 1024 cores
  return cores > 0 ? cores : 1;
}

CpuDevice::CpuDevice(const CpuOptions& options)
    : isa_(choose(options.isa).isa),
      threads_(options.threads > 0 ? options.threads : cores_available()),
      ops_(&choose(options.isa).table()),
      stream_(std::make_unique<Stream>(threads_)) {
  threads_ = stream_->pool.threads();  // the system may have refused some
}

CpuDevice::~CpuDevice() = default;

void CpuDevice::wake() { stream_->pool.wake(); }

}  // namespace barg::ops
