#include "cpu/limits.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "cpu/limit_loops.h"
#include "cpu/pool.h"

namespace barg::ops {
namespace {

using cpu::LimitLoop;
using cpu::LimitLoops;

constexpr double kWindow = 0.001;  // seconds: shorter than the slices in which a busy core changes hands
constexpr int kMinWindows = 3;
constexpr std::size_t kHugePage = 2u << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
void on_every_thread(WorkerPool& pool, F&& f) {
  pool.run(
      pool.threads(), [](void* context, int i) { (*static_cast<F*>(context))(i); }, &f);
}

/// The shortest of the calls that fit the budget.
template <class F>
double best_seconds(double budget, F&& f) {
  const double begin = now();
  double best = 1e30;
  double last = begin;
  for (int i = 0; i < kMinWindows || last - begin < budget; ++i) {
    f();
    const double end = now();
    if (end - last < best) best = end - last;
    last = end;
  }
  return best;
}

// --- scalar ----------------------------------------------------------------------------------------------

void f32_scalar(std::int64_t rounds) {
  float acc[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const float x = 0.999f;
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (float& a : acc) {
      a = a * x + x;
      asm volatile("" : "+x"(a));  // also keeps the compiler from vectorising
    }
  }
}

void int8_scalar(std::int64_t rounds) {
  std::int32_t acc[6] = {1, 2, 3, 4, 5, 6};
  std::int32_t x = 77;
  asm volatile("" : "+r"(x));
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 6
    for (std::int32_t& a : acc) {
      std::int32_t product = x;
      asm volatile("" : "+r"(product));
      product *= x;
      asm volatile("" : "+r"(product));
      a = static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(product));
      asm volatile("" : "+r"(a));
    }
  }
}

LimitLoops loops_of(Isa isa) {
  if (isa == Isa::kAvx512) return cpu::limit_loops_avx512();
  if (isa == Isa::kAvx2) return cpu::limit_loops_avx2();
  const LimitLoop int8{int8_scalar, 12};
  return {.f32 = {f32_scalar, 16}, .int8 = int8, .int4 = int8, .bf16 = {}};
}

/// Operations a second, in units of 1e9.
double measure_loop(WorkerPool& pool, const LimitLoop& loop, double budget) {
  if (loop.run == nullptr) return 0;
  std::int64_t rounds = 1024;  // grows to one window
  const auto window = [&] { on_every_thread(pool, [&](int) { loop.run(rounds); }); };
  for (double took = 0; took < kWindow / 2; rounds *= 2) {
    const double begin = now();
    window();
    took = now() - begin;
  }
  const double seconds = best_seconds(budget, window);
  return loop.operations * static_cast<double>(rounds) * pool.threads() / seconds * 1e-9;
}

// --- memory ----------------------------------------------------------------------------------------------

typedef long long Vector __attribute__((vector_size(16)));

/// Reads [p, p + bytes) as `Streams` sequences side by side.
template <int Streams>
void read_streams(const std::byte* p, std::size_t bytes) {
  const std::size_t part = bytes / Streams / 64 * 64;
  Vector acc[Streams] = {};
  for (std::size_t i = 0; i < part; i += 64) {
#pragma GCC unroll 8
    for (int s = 0; s < Streams; ++s) {
      const auto* line = reinterpret_cast<const Vector*>(p + static_cast<std::size_t>(s) * part + i);
      acc[s] ^= (line[0] ^ line[1]) ^ (line[2] ^ line[3]);
    }
  }
#pragma GCC unroll 8
  for (Vector& a : acc) asm volatile("" : "+x"(a));
}

/// So much larger than the last cache that none of it is left when its turn comes again, within reason: caches
/// that do not forget the oldest line first keep a tenth of what is only five times their size.
std::size_t read_bytes() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t bytes = cache > 0 ? static_cast<std::size_t>(cache) * 8 : 0;
  return std::clamp<std::size_t>(bytes, 256u << 20, 1u << 30);
}

double measure_read(WorkerPool& pool, double budget) {
  const std::size_t bytes = read_bytes();
  void* map = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return 0;
  auto* memory = static_cast<std::byte*>(map);
  memory += kHugePage - reinterpret_cast<std::uintptr_t>(memory) % kHugePage;
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  const auto threads = static_cast<std::size_t>(pool.threads());
  const std::size_t share = bytes / threads / 4096 * 4096;
  on_every_thread(pool, [&](int i) { std::memset(memory + share * static_cast<std::size_t>(i), 1, share); });
  // All of it at once: a step of a model reads as much, and in short windows one thread often has the memory to itself.
  int pass = 0;
  const double seconds = best_seconds(budget, [&] {
    const int streams = pass++ % 3;
    on_every_thread(pool, [&](int i) {
      const std::byte* mine = memory + share * static_cast<std::size_t>(i);
      if (streams == 0) return read_streams<2>(mine, share);
      if (streams == 1) return read_streams<4>(mine, share);
      return read_streams<1>(mine, share);
    });
  });
  ::munmap(map, bytes + kHugePage);
  return static_cast<double>(share * threads) / seconds * 1e-9;
}

}  // namespace

Limits measure_limits(CpuDevice& device, double seconds) {
  WorkerPool& pool = device.stream().pool;
  const LimitLoops loops = loops_of(device.isa());
  const double share = seconds / 6;
  Limits l{.threads = device.threads(),
           .read_gbytes = measure_read(pool, 2 * share),
           .f32_gflops = measure_loop(pool, loops.f32, share),
           .int8_gops = measure_loop(pool, loops.int8, share)};
  l.int4_gops = loops.int4.run == loops.int8.run ? l.int8_gops : measure_loop(pool, loops.int4, share);
  l.bf16_gflops = measure_loop(pool, loops.bf16, share);
  return l;
}

}  // namespace barg::ops
