// What the benchmarks of matrix products share: weights in huge pages that cycle through more memory than the
// caches hold, as in a real step, and the machine's ceilings measured in the same run.
#pragma once

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/limits.h"
#include "math.h"

namespace barg::bench_linear {

using ops::CpuDevice;
using ops::Isa;

/// What the measured read ceiling goes through at least; of less, a last cache of 32 MiB keeps a part.
inline constexpr std::size_t kCycleBytes = 256u << 20;
inline constexpr std::size_t kHugePage = 2u << 20;

/// Zeroed huge pages.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : mapped_((bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage) {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    madvise(base_, mapped_, MADV_HUGEPAGE);
    data = base_ + (kHugePage - reinterpret_cast<std::uintptr_t>(base_) % kHugePage) % kHugePage;
  }
  ~Memory() { munmap(base_, mapped_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data;

 private:
  std::size_t mapped_;
  std::byte* base_;
};

inline std::vector<float> random_floats(std::size_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

inline std::vector<std::uint8_t> random_matrix(DType type, std::int32_t n, std::int32_t k) {
  const std::size_t blocks = static_cast<std::size_t>(n) * k / block_elements(type);
  std::vector<std::uint8_t> raw(blocks * block_bytes(type));
  std::mt19937 random(1);
  for (std::uint8_t& b : raw) b = static_cast<std::uint8_t>(random());
  for (std::size_t i = 0; i < blocks; ++i) {  // the numbers that must be finite
    std::uint8_t* b = raw.data() + i * block_bytes(type);
    const float w = static_cast<float>(random() % 1000) * 1e-4f;
    const std::uint16_t half = type == DType::kBF16 ? ops::f32_to_bf16(w) : ops::f32_to_f16(w);
    std::memcpy(b, type == DType::kF32 ? static_cast<const void*>(&w) : &half, type == DType::kF32 ? 4 : 2);
    if (type == DType::kQ4_1) std::memcpy(b + 2, &half, 2);
  }
  return raw;
}

/// The same matrix many times over.
class Copies {
 public:
  Copies(CpuDevice& device, DType type, std::int32_t n, std::int32_t k,
         ops::Packing packing = ops::Packing::kStored)
      : bytes_(device.ops().packed_bytes(type, n, k, packing)),
        count_(std::max<std::size_t>(2, kCycleBytes / bytes_)),
        memory_(bytes_ * count_),
        view_{n, k, type, nullptr, packing} {
    const auto raw = random_matrix(type, n, k);
    device.ops().pack(device.stream(), {raw.data(), n, k, type, memory_.data, packing});
    for (std::size_t i = 1; i < count_; ++i) std::memcpy(memory_.data + i * bytes_, memory_.data, bytes_);
  }
  ops::PackedWeight next() {
    view_.data = memory_.data + at_ * bytes_;
    at_ = (at_ + 1) % count_;
    return view_;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_, count_, at_ = 0;
  Memory memory_;
  ops::PackedWeight view_;
};

/// The machine's ceilings, measured once for an instruction set and a number of threads.
inline const ops::Limits& limits(Isa isa, int threads) {
  static std::vector<std::pair<Isa, ops::Limits>> known;
  for (const auto& [i, l] : known) {
    if (i == isa && l.threads == threads) return l;
  }
  CpuDevice device({.threads = threads, .isa = isa});
  // Long enough for all threads to meet in some window also on a busy machine.
  known.emplace_back(isa, ops::measure_limits(device, 3.0));
  return known.back().second;
}

/// The arguments of a benchmark's name.
struct Shape {
  std::int32_t rows, k, n;
  int threads;
};

inline Shape shape_of(const benchmark::State& state) {
  return {static_cast<std::int32_t>(state.range(0)), static_cast<std::int32_t>(state.range(1)),
          static_cast<std::int32_t>(state.range(2)), static_cast<int>(state.range(3))};
}

/// Seconds of the fastest call: neighbours of a virtual machine only ever make a call slower.
template <class F>
double best_call(benchmark::State& state, F&& f) {
  double best = 1e9;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace barg::bench_linear
