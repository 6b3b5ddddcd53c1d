// Step 1: what the device can do at most: bytes and launches a second.
#include <algorithm>

#include "cuda/device_kernel.h"
#include "device/check.h"
#include "device/probe.cuh"

namespace barg::check {

void ceilings(Check& check) {
  Lab lab(check);
  const std::size_t bytes = check.small() ? std::size_t{1} << 16 : std::size_t{4} << 30;
  std::byte* const from = lab.allocate(bytes);
  std::byte* const to = lab.allocate(bytes);
  const int grid = 8 * lab.queue().workers();
  const auto words = static_cast<std::int64_t>(bytes / 4);
  const cuda::LaunchShape shape{.grid_x = grid, .threads = cuda::kProbeThreads};
  lab.queue().launch(cuda::kernel<cuda::fill_kernel>(), shape,
                     cuda::FillArgs{.words = reinterpret_cast<std::uint32_t*>(from),
                                    .count = words,
                                    .unit = 1,
                                    .scales_at = 1,
                                    .supers_at = 1,
                                    .codes = cuda::FillKind::kBits,
                                    .scales = cuda::FillKind::kIgnored,
                                    .supers = cuda::FillKind::kIgnored,
                                    .seed = 1});
  lab.sync();
  const cuda::StreamArgs args{from, to, static_cast<std::int64_t>(bytes)};
  const auto rate = [&](double moved, double seconds) { return moved / seconds / 1e12; };
  const auto all = static_cast<double>(bytes);
  check.measured("read stream", rate(all, lab.seconds(4, [&](int) {
                   lab.queue().launch(cuda::kernel<cuda::stream_read_kernel>(), shape, args);
                 })), "TB/s");
  check.measured("copy kernel: read and written", rate(2 * all, lab.seconds(4, [&](int) {
                   lab.queue().launch(cuda::kernel<cuda::stream_copy_kernel>(), shape, args);
                 })), "TB/s");
  const auto ends = std::min<std::size_t>(bytes, 1 << 20);
  check.right("what was copied is what was read", lab.get(from, ends) == lab.get(to, ends));
  check.measured("the driver's copy: read and written", rate(2 * all, lab.seconds(4, [&](int) {
                   check.must(lab.device().copy(lab.queue().id(), to, from, bytes));
                 })), "TB/s");
  check.measured("the driver's fill", rate(all, lab.seconds(4, [&](int) {
                   check.must(lab.device().fill(lab.queue().id(), to, 0, bytes));
                 })), "TB/s");
  check.measured("a node of a graph", 1e6 * lab.seconds(1000, [&](int) {
                   lab.queue().launch(cuda::kernel<cuda::nothing_kernel>(), {.grid_x = 1}, cuda::NothingArgs{0});
                 }), "us");
}

}  // namespace barg::check
