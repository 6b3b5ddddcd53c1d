// Step 2: every wrapper of the prelude on the device against its twin of the emulator, on the same inputs.
#include "device/conformance.cuh"

#include <algorithm>
#include <cmath>

#include "base/env.h"
#include "cuda/device_emulated.h"
#include "cuda/device_kernel.h"
#include "device/check.h"

namespace barg::check {
namespace {

using Words = std::vector<std::uint32_t>;
using cuda::ConformanceArgs;
using cuda::Kernel;
using cuda::LaunchShape;

/// Half of them any bits; the others numbers of moderate size, and the corners of each format.
Words random_words(std::size_t count, std::uint64_t seed) {
  constexpr std::uint32_t kCorners[] = {0,          0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x00000001u,
                                        0x007fffffu, 0x7f7fffffu, 0x477fe000u, 0x477ff000u, 0x33000000u, 0x33000001u,
                                        0x43e00000u, 0x43e80000u, 0x3a800000u, 0x3f808000u, 0x3f818000u, 0x7c007c00u};
  Rng rng(seed);
  Words out(count);
  for (std::uint32_t& w : out) {
    const auto r = static_cast<std::uint32_t>(rng.next());
    switch (rng.below(4)) {
      case 0: w = (r & 0x80ffffffu) | 0x3f000000u; break;
      case 1: w = kCorners[rng.below(std::size(kCorners))]; break;
      default: w = r;
    }
  }
  return out;
}

Words run_on(Check& check, cuda::Device& device, const Kernel& kernel, const LaunchShape& shape, const Words& in,
             std::size_t out_words, std::int32_t count) {
  cuda::StreamId stream{};
  cuda::PinnedBuffer pinned;
  std::byte *from = nullptr, *to = nullptr;
  const std::size_t in_bytes = 4 * in.size(), out_bytes = 4 * out_words;
  check.must(device.create_stream(stream));
  check.must(cuda::PinnedBuffer::create(device, std::max(in_bytes, out_bytes), pinned));
  check.must(device.allocate(in_bytes, "in", from));
  check.must(device.allocate(out_bytes, "out", to));
  std::copy_n(reinterpret_cast<const std::byte*>(in.data()), in_bytes, pinned.data());
  check.must(device.upload(stream, from, pinned.data(), in_bytes));
  check.must(device.fill(stream, to, 0, out_bytes));
  const ConformanceArgs args{reinterpret_cast<const std::uint32_t*>(from), reinterpret_cast<std::uint32_t*>(to), count};
  check.must(cuda::launch(device, stream, kernel, shape, args));
  check.must(device.synchronize(stream));
  check.must(device.download(stream, pinned.data(), to, out_bytes));
  check.must(device.synchronize(stream));
  Words out(out_words);
  std::copy_n(pinned.data(), out_bytes, reinterpret_cast<std::byte*>(out.data()));
  device.release(from);
  device.release(to);
  return out;
}

struct Pair {
  Words device, host;
};

class Conformance {
 public:
  explicit Conformance(Check& check)
      : check_(check), device_(check.open_device()), host_(cuda::EmulatedDevice::create({})) {}

  Pair run(const Kernel& kernel, const LaunchShape& shape, const Words& in, std::size_t out_words, std::int32_t count) {
    return {run_on(check_, *device_, kernel, shape, in, out_words, count),
            run_on(check_, *host_, kernel, shape, in, out_words, count)};
  }
  /// Equal words; `width` of them to a thread, whose number within it is what people look up.
  void equal(const std::string& name, const Pair& p, std::size_t width) {
    const auto at = std::mismatch(p.device.begin(), p.device.end(), p.host.begin());
    const auto i = static_cast<std::size_t>(at.first - p.device.begin());
    check_.right(name, i == p.device.size(),
                 i == p.device.size() ? std::to_string(i) + " words"
                                      : "word " + std::to_string(i % width) + " of " + std::to_string(i / width) + " is " +
                                            std::to_string(p.device[i]) + ", not " + std::to_string(p.host[i]));
  }
  cuda::Device& device() { return *device_; }
  Check& check() { return check_; }
  int blocks(int most) const { return check_.small() ? 2 : most; }

 private:
  Check& check_;
  std::unique_ptr<cuda::Device> device_, host_;
};

std::size_t size(int n) { return static_cast<std::size_t>(n); }

void numbers(Conformance& c) {
  const int count = c.blocks(64) * cuda::kNumberThreads;
  const Pair p = c.run(cuda::kernel<cuda::conform_numbers_kernel>(),
                       {.grid_x = count / cuda::kNumberThreads, .threads = cuda::kNumberThreads},
                       random_words(size(3 * count), 1), size(cuda::kNumberWords * count), count);
  c.equal("conversions, exp2, exp, sin_cos, divide, sqrt, fma", p, cuda::kNumberWords);
}

void exchange_and_moves(Conformance& c) {
  const int blocks = c.blocks(64);
  c.equal("shuffles, ballot, bit counts",
          c.run(cuda::kernel<cuda::conform_exchange_kernel>(), {.grid_x = blocks, .threads = cuda::kExchangeThreads},
                random_words(size(blocks * cuda::kExchangeThreads), 2),
                size(blocks * cuda::kExchangeThreads * cuda::kExchangeWords), blocks),
          cuda::kExchangeWords);
  c.equal("loads and stores of 16 and 8 bytes",
          c.run(cuda::kernel<cuda::conform_moves_kernel>(), {.grid_x = blocks, .threads = cuda::kMoveThreads},
                random_words(size(blocks * cuda::kMoveThreads * cuda::kMoveIn), 3),
                size(blocks * cuda::kMoveThreads * cuda::kMoveWords), blocks),
          cuda::kMoveWords);
  c.equal("ldmatrix x4, as it is and transposed",
          c.run(cuda::kernel<cuda::conform_ldmatrix_kernel>(), {.grid_x = blocks, .threads = 32},
                random_words(size(blocks * 32 * 4), 5), size(blocks * 32 * cuda::kMatrixWords), blocks),
          cuda::kMatrixWords);
}

/// A small integer as 16 bits, exact in both formats.
std::uint32_t half_integer(cuda::Half type, std::uint64_t r) {
  const float x = static_cast<float>(r % 33) - 16;
  return type == cuda::Half::kF16 ? ops::f32_to_f16(x) : ops::f32_to_bf16(x);
}
std::uint32_t half_fraction(cuda::Half type, std::uint64_t r) {
  const float x = static_cast<float>(r % 65536) / 32768.0F - 1;
  return type == cuda::Half::kF16 ? ops::f32_to_f16(x) : ops::f32_to_bf16(x);
}

/// Integers, whose sums are exact in any order, to the bit; fractions within the rounding of 16 additions.
void mma(Conformance& c, cuda::Half type, const Kernel& kernel, const std::string& name) {
  const int blocks = c.blocks(64);
  for (const bool integers : {true, false}) {
    Rng rng(integers ? 6 : 7);
    Words in(size(blocks * 32 * cuda::kMmaIn));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto pair = [&] { return integers ? half_integer(type, rng.next()) : half_fraction(type, rng.next()); };
      const bool sum = i % cuda::kMmaIn >= 6;
      const float x = integers ? static_cast<float>(rng.below(2001)) - 1000 : static_cast<float>(rng.uniform());
      in[i] = sum ? ops::float_bits(x) : pair() | pair() << 16;
    }
    const Pair p = c.run(kernel, {.grid_x = blocks, .threads = 32}, in, size(blocks * 32 * 4), blocks);
    if (integers) {
      c.equal("mma.sync " + name + " of integers", p, 4);
      continue;
    }
    double worst = 0;
    for (std::size_t i = 0; i < p.host.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(ops::bits_float(p.device[i])) - ops::bits_float(p.host[i])));
    c.check().right("mma.sync " + name + " of fractions", worst <= 4e-6, "off by " + std::to_string(worst * 1e6) + "e-6");
  }
}

void atomics_and_shared(Conformance& c) {
  const int blocks = c.blocks(100);
  Words in = random_words(size(blocks * cuda::kAtomicThreads), 8);
  for (std::uint32_t& w : in) w &= 0xffffu;
  const Pair p = c.run(cuda::kernel<cuda::conform_atomics_kernel>(), {.grid_x = blocks, .threads = cuda::kAtomicThreads}, in,
                       size(4 + 4 * blocks), blocks);
  c.equal("atomics, publish_count", p, 4);
  constexpr int kMost = 227 << 10;
  c.equal("227 KiB of dynamic shared memory",
          c.run(cuda::kernel<cuda::conform_shared_kernel>(), {.threads = cuda::kSharedThreads, .dynamic_shared = kMost},
                random_words(kMost / 4, 9), kMost / 4, kMost / 4),
          1);
}

/// Last of all: what is not asked for has an address that is none.
void copies(Conformance& c) {
  const int rounds = 2 * cuda::kRingStages + 3, words = rounds * cuda::kRingThreads * 4;
  c.equal("cp.async: groups, waits, zeros", c.run(cuda::kernel<cuda::conform_copies_kernel>(), {.threads = cuda::kRingThreads},
                                                  random_words(size(words), 4), size(words), rounds),
          4 * cuda::kRingThreads);
}

/// Each launch reads what the one before wrote, though it may begin before that has ended.
void chain(Conformance& c) {
  constexpr int kLinks = 40;
  const int count = c.blocks(2000) * cuda::kNumberThreads;
  cuda::Device& device = c.device();
  Check& check = c.check();
  cuda::StreamId stream{};
  cuda::PinnedBuffer pinned;
  std::byte* memory[2] = {};
  const std::size_t bytes = 4 * size(count);
  check.must(device.create_stream(stream));
  check.must(cuda::PinnedBuffer::create(device, bytes, pinned));
  for (std::byte*& m : memory) check.must(device.allocate(bytes, "link", m));
  Words words = random_words(size(count), 10);
  std::copy_n(reinterpret_cast<const std::byte*>(words.data()), bytes, pinned.data());
  check.must(device.upload(stream, memory[0], pinned.data(), bytes));
  for (int i = 0; i < kLinks; ++i) {
    const ConformanceArgs args{reinterpret_cast<const std::uint32_t*>(memory[i % 2]),
                               reinterpret_cast<std::uint32_t*>(memory[1 - i % 2]), count};
    check.must(cuda::launch(device, stream, cuda::kernel<cuda::conform_chain_kernel>(),
                            {.grid_x = count / cuda::kNumberThreads, .threads = cuda::kNumberThreads}, args, true));
    for (std::uint32_t& w : words) w = 3 * w + 1;
  }
  check.must(device.synchronize(stream));
  check.must(device.download(stream, pinned.data(), memory[kLinks % 2], bytes));
  check.must(device.synchronize(stream));
  check.right("launches that overlap", std::equal(words.begin(), words.end(), reinterpret_cast<std::uint32_t*>(pinned.data())),
              std::to_string(kLinks) + " links");
}

}  // namespace

void conformance(Check& check) {
  Conformance c(check);
  numbers(c);
  exchange_and_moves(c);
  mma(c, cuda::Half::kF16, cuda::kernel<cuda::conform_mma_f16_kernel>(), "f16");
  mma(c, cuda::Half::kBF16, cuda::kernel<cuda::conform_mma_bf16_kernel>(), "bf16");
  atomics_and_shared(c);
  chain(c);
  copies(c);
}

}  // namespace barg::check
