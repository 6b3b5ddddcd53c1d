// The Device interface on the emulated device: what streams, events and graphs promise, and that what they do not promise
// does not happen by luck; arenas and the uploader on top of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "cuda/attention.cuh"
#include "cuda/device_emulated.h"
#include "cuda/device_kernel.h"
#include "cuda/device_memory.h"
#include "cuda/sampler.cuh"

namespace barg::cuda {
namespace {

using Code = Status::Code;
using emu::Order;

struct AddArgs {
  std::int32_t* x;
  std::int32_t count, add;
};
BARG_KERNEL add_kernel(AddArgs p) {
  const int i = block_x() * 32 + thread_id();
  if (i < p.count) p.x[i] += p.add;
}

struct LoadArgs {
  const std::byte* from;
};
BARG_KERNEL load_kernel(LoadArgs p) { load16(p.from + 16 * thread_id()); }

constexpr Order kOrders[] = {Order::kForward, Order::kReverse, Order::kRandom};

/// Two streams, an event and 64 numbers in pinned and in device memory.
struct Rig {
  explicit Rig(Order order = Order::kRandom, std::uint64_t seed = 1)
      : device(EmulatedDevice::create({.streams = order, .memory_bytes = 1 << 20, .seed = seed})) {
    ok(device->create_stream(a));
    ok(device->create_stream(b));
    ok(device->create_event(event));
    ok(device->allocate(kBytes, "numbers", numbers));
    ok(device->allocate_pinned(kBytes, from));
    ok(device->allocate_pinned(kBytes, to));
    set(from, 5);
  }
  static constexpr std::size_t kCount = 64, kBytes = kCount * sizeof(std::int32_t);

  static void ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.message; }
  static void set(std::byte* p, std::int32_t value) {
    std::fill_n(reinterpret_cast<std::int32_t*>(p), kCount, value);
  }
  static bool all(const std::byte* p, std::int32_t value) {
    const auto* const x = reinterpret_cast<const std::int32_t*>(p);
    return std::all_of(x, x + kCount, [&](std::int32_t v) { return v == value; });
  }
  Status add(StreamId s, std::int32_t n) {
    const AddArgs args{reinterpret_cast<std::int32_t*>(numbers), static_cast<std::int32_t>(kCount), n};
    return launch(*device, s, kernel<add_kernel>(), {.grid_x = 2, .threads = 32}, args);
  }

  std::unique_ptr<EmulatedDevice> device;
  StreamId a{}, b{};
  EventId event{};
  std::byte *numbers = nullptr, *from = nullptr, *to = nullptr;
};

// Names as nvcc gave them.
TEST(Kernel, HasTheSymbolOfTheDevicesCode) {
  EXPECT_STREQ(kernel<sample_kernel>().name, "_ZN4barg4cuda13sample_kernelENS0_10SampleArgsE");
  using Shape = NarrowAttention<KvType::kFp8, 128>;
  const Kernel& attention = kernel<attention_kernel<Shape>>();
  EXPECT_STREQ(attention.name, "_ZN4barg4cuda16attention_kernelINS0_14AttentionShapeILNS0_6KvTypeE2ELi128ELi1ELi1ELb0EEEEEv"
                               "NS0_13AttentionArgsE");
  EXPECT_EQ(attention.params_bytes, sizeof(AttentionArgs));
  EXPECT_EQ(kernel_text(attention.name), "attention_kernel");
  EXPECT_EQ(kernel_symbol("N4barg4cuda9KernelTagIXadL_ZNS0_8a_kernelINS0_1AEEEvT_S3_EEEE"),
            "_ZN4barg4cuda8a_kernelINS0_1AEEEvT_S2_");
}

TEST(EmulatedDevice, AStreamKeepsItsOrder) {
  for (const Order order : kOrders) {
    Rig r(order);
    r.ok(r.device->upload(r.a, r.numbers, r.from, Rig::kBytes));
    r.ok(r.add(r.a, 2));
    r.ok(r.device->download(r.a, r.to, r.numbers, Rig::kBytes));
    r.ok(r.device->fill(r.a, r.numbers, 0, Rig::kBytes));
    EXPECT_TRUE(Rig::all(r.to, -1)) << "nothing may have come yet";
    r.ok(r.device->synchronize(r.a));
    EXPECT_TRUE(Rig::all(r.to, 7));
  }
}

TEST(EmulatedDevice, OnlyEventsOrderStreams) {
  int right_by_luck = 0, runs = 0;
  for (const bool waits : {true, false}) {
    for (const Order order : kOrders) {
      for (std::uint64_t seed = 1; seed < 6; ++seed) {
        Rig r(order, seed);
        r.ok(r.device->upload(r.a, r.numbers, r.from, Rig::kBytes));
        r.ok(r.add(r.a, 3));
        r.ok(r.device->record(r.a, r.event));
        if (waits) r.ok(r.device->wait(r.b, r.event));
        r.ok(r.device->download(r.b, r.to, r.numbers, Rig::kBytes));
        r.ok(r.device->synchronize(r.b));
        if (waits) {
          EXPECT_TRUE(Rig::all(r.to, 8));
        } else {
          right_by_luck += Rig::all(r.to, 8) ? 1 : 0;
          ++runs;
        }
      }
    }
  }
  EXPECT_LE(right_by_luck, 2 * runs / 3) << "who goes first is not always the right one";
}

TEST(EmulatedDevice, AnUploadReadsWhenItRuns) {
  Rig r;
  r.ok(r.device->upload(r.a, r.numbers, r.from, Rig::kBytes));
  r.ok(r.device->record(r.a, r.event));
  Rig::set(r.from, 6);  // too early
  r.ok(r.device->synchronize(r.event));
  Rig::set(r.from, 9);  // its turn is over
  r.ok(r.device->download(r.a, r.to, r.numbers, Rig::kBytes));
  r.ok(r.device->synchronize(r.a));
  EXPECT_TRUE(Rig::all(r.to, 6));
}

TEST(EmulatedDevice, EventsHappen) {
  Rig r;
  bool happened = false;
  r.ok(r.device->query(r.event, happened));
  EXPECT_TRUE(happened) << "nothing was recorded";
  r.ok(r.device->upload(r.a, r.numbers, r.from, Rig::kBytes));
  r.ok(r.device->record(r.a, r.event));
  r.ok(r.device->query(r.event, happened));
  EXPECT_FALSE(happened);
  for (int i = 0; i < 5 && !happened; ++i) r.ok(r.device->query(r.event, happened));
  EXPECT_TRUE(happened);
  r.ok(r.add(r.a, 1));
  r.ok(r.device->record(r.a, r.event));
  r.ok(r.device->query(r.event, happened));
  EXPECT_FALSE(happened) << "a later record replaces the first";
}

TEST(EmulatedDevice, AGraphRepeatsWhatWasIssued) {
  for (const Order order : kOrders) {
    Rig r(order);
    r.ok(r.device->upload(r.a, r.numbers, r.from, Rig::kBytes));
    GraphId graph{};
    r.ok(r.device->begin_capture(r.a));
    r.ok(r.add(r.a, 10));
    r.ok(r.device->download(r.a, r.to, r.numbers, Rig::kBytes));
    r.ok(r.device->end_capture(r.a, graph));
    r.ok(r.device->synchronize(r.a));
    EXPECT_TRUE(Rig::all(r.to, -1)) << "capturing runs nothing";
    for (int i = 1; i <= 3; ++i) {
      r.ok(r.device->launch(r.a, graph));
      EXPECT_TRUE(Rig::all(r.to, -1)) << "who reads before it has run reads nothing of the last time";
      r.ok(r.device->synchronize(r.a));
      EXPECT_TRUE(Rig::all(r.to, 5 + 10 * i));
    }
  }
}

TEST(EmulatedDevice, ACaptureTakesNothingElse) {
  Rig r;
  std::byte* p = nullptr;
  StreamId s{};
  GraphId graph{};
  bool happened = false;
  r.ok(r.device->begin_capture(r.a));
  for (const Status& status :
       {r.device->allocate(16, "x", p), r.device->allocate_pinned(16, p), r.device->create_stream(s), r.add(r.b, 1),
        r.device->record(r.a, r.event), r.device->wait(r.a, r.event), r.device->query(r.event, happened),
        r.device->synchronize(r.a), r.device->synchronize(r.event), r.device->begin_capture(r.b),
        r.device->end_capture(r.b, graph)}) {
    EXPECT_EQ(status.code, Code::kInvalid);
  }
  r.ok(r.device->end_capture(r.a, graph));
  r.ok(r.device->synchronize(r.a));
}

TEST(EmulatedDevice, RefusesWhatCannotBe) {
  Rig r;
  std::vector<std::byte> pageable(Rig::kBytes);
  std::byte* p = nullptr;
  EXPECT_EQ(r.device->upload(r.a, r.numbers, pageable.data(), Rig::kBytes).code, Code::kInvalid);
  EXPECT_EQ(r.device->download(r.a, pageable.data(), r.numbers, Rig::kBytes).code, Code::kInvalid);
  EXPECT_EQ(r.device->upload(r.a, r.numbers + 8, r.from, Rig::kBytes).code, Code::kInvalid);
  EXPECT_EQ(r.device->fill(r.a, r.numbers, 0, Rig::kBytes + 1).code, Code::kInvalid);
  EXPECT_EQ(r.device->synchronize(StreamId{99}).code, Code::kInvalid);
  EXPECT_EQ(r.device->record(r.a, EventId{99}).code, Code::kInvalid);
  EXPECT_EQ(r.device->launch(r.a, GraphId{0}).code, Code::kInvalid);
  EXPECT_EQ(launch(*r.device, r.a, kernel<add_kernel>(), {}, LoadArgs{}).code, Code::kInvalid);
  EXPECT_EQ(launch(*r.device, r.a, kernel<load_kernel>(), {.grid_x = 0}, LoadArgs{}).code, Code::kInvalid);
  EXPECT_EQ(launch(*r.device, r.a, kernel<load_kernel>(), {.threads = 33}, LoadArgs{}).code, Code::kInvalid);
  const Status full = r.device->allocate(1 << 20, "everything", p);
  EXPECT_EQ(full.code, Code::kOutOfMemory);
  EXPECT_NE(full.message.find("everything takes 1048576 bytes"), std::string::npos) << full.message;
  EXPECT_EQ(p, nullptr);
}

TEST(EmulatedDevice, AForbiddenAccessLosesItForGood) {
  Rig r;
  r.ok(r.device->upload(r.a, r.numbers, r.from, Rig::kBytes));
  r.ok(launch(*r.device, r.a, kernel<load_kernel>(), {.threads = 32}, LoadArgs{r.numbers}));
  const Status lost = r.device->synchronize(r.a);
  EXPECT_EQ(lost.code, Code::kLost);
  EXPECT_NE(lost.message.find("load_kernel: outside"), std::string::npos) << lost.message;
  std::byte* p = nullptr;
  EXPECT_EQ(r.add(r.b, 1).message, lost.message);
  EXPECT_EQ(r.device->allocate(16, "x", p).code, Code::kLost);
  EXPECT_EQ(r.device->synchronize(r.b).code, Code::kLost);
}

TEST(DeviceArena, GivesOutAndFrees) {
  Rig r;
  std::size_t before = 0, now = 0;
  r.ok(r.device->free_bytes(before));
  {
    DeviceArena arena;
    r.ok(DeviceArena::create(*r.device, 1000, "arena", arena));
    std::byte* const first = arena.take(1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % DeviceArena::kAlignment, 0U);
    EXPECT_EQ(arena.take(400), first + 256);
    EXPECT_EQ(arena.take(300), nullptr) << "768 are taken";
    EXPECT_EQ(arena.take(232), first + 768);
    EXPECT_EQ(arena.take(1), nullptr);
    EXPECT_EQ(arena.used(), 1000U);
    DeviceArena moved = std::move(arena);
    EXPECT_EQ(moved.size(), 1000U);
    r.ok(r.device->free_bytes(now));
    EXPECT_EQ(now, before - 1000);
  }
  r.ok(r.device->free_bytes(now));
  EXPECT_EQ(now, before);
  DeviceArena none;
  EXPECT_EQ(DeviceArena::create(*r.device, 2 << 20, "too much", none).code, Code::kOutOfMemory);
}

std::vector<std::byte> pattern(std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

Uploader::Read reading(const std::vector<std::byte>& data) {
  return [&data](std::size_t offset, std::size_t bytes, std::byte* out) { std::memcpy(out, data.data() + offset, bytes); };
}

TEST(Uploader, BringsAllOfIt) {
  for (const Order order : kOrders) {
    for (const std::size_t bytes : {0, 1, 99, 100, 101, 250, 1000}) {
      Rig r(order, bytes + 1);
      const std::vector<std::byte> data = pattern(bytes);
      Uploader up;
      std::byte *first = nullptr, *second = nullptr;
      r.ok(Uploader::create(*r.device, 100, up));
      r.ok(r.device->allocate(bytes, "first", first));
      r.ok(r.device->allocate(bytes, "second", second));
      r.ok(up.put(first, bytes, reading(data)));
      r.ok(up.put(second, bytes, reading(data)));
      r.ok(up.finish());
      std::vector<std::byte> got(bytes);
      r.device->machine().download(got.data(), first, bytes);
      EXPECT_EQ(got, data);
      r.device->machine().download(got.data(), second, bytes);
      EXPECT_EQ(got, data);
    }
  }
}

TEST(Uploader, RepacksOnTheDeviceInBoundedMemory) {
  for (const Order order : kOrders) {
    Rig r(order);
    const std::vector<std::byte> data = pattern(48 * 40);
    Uploader up;
    std::byte* packed = nullptr;
    r.ok(Uploader::create(*r.device, 200, up));
    r.ok(r.device->allocate(data.size(), "packed", packed));
    const std::size_t before = r.device->peak_bytes();
    std::vector<std::size_t> pieces;
    r.ok(up.repack(data.size(), 48, reading(data),
                   [&](StreamId s, std::size_t offset, std::size_t bytes, const std::byte* staged) {
                     pieces.push_back(bytes);
                     return r.device->copy(s, packed + data.size() - offset - bytes, staged, bytes);
                   }));
    r.ok(up.finish());
    EXPECT_EQ(r.device->peak_bytes(), before + 200);
    EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::size_t{0}), data.size());
    for (const std::size_t p : pieces) EXPECT_EQ(p, 192U);
    std::vector<std::byte> got(data.size()), want;
    r.device->machine().download(got.data(), packed, got.size());
    for (std::size_t at = data.size(); at > 0; at -= 192)
      want.insert(want.end(), data.begin() + static_cast<std::ptrdiff_t>(at - 192), data.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_EQ(got, want);
  }
}

TEST(Uploader, SaysWhatItCannotDo) {
  Rig r;
  const std::vector<std::byte> data = pattern(96);
  Uploader up;
  r.ok(Uploader::create(*r.device, 40, up));
  const auto nothing = [](StreamId, std::size_t, std::size_t, const std::byte*) { return Status{}; };
  EXPECT_EQ(up.repack(96, 48, reading(data), nothing).code, Code::kInvalid);
  EXPECT_EQ(up.repack(96, 36, reading(data), nothing).code, Code::kInvalid);
  EXPECT_EQ(up.repack(96, 0, reading(data), nothing).code, Code::kInvalid);
  const auto fails = [](StreamId, std::size_t, std::size_t, const std::byte*) {
    return Status{Code::kInvalid, "no kernel for it"};
  };
  EXPECT_EQ(up.repack(96, 32, reading(data), fails).message, "no kernel for it");
  Uploader too_large;
  EXPECT_EQ(Uploader::create(*r.device, 1 << 20, too_large).code, Code::kOk) << "pinned memory is the host's";
  EXPECT_EQ(too_large.repack(96, 32, reading(data), nothing).code, Code::kOutOfMemory);
}

}  // namespace
}  // namespace barg::cuda
