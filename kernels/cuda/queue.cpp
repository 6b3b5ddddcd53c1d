#include "cuda/queue.h"

#include <algorithm>
#include <utility>

namespace barg::cuda {

Status Queue::create(Device& device, std::unique_ptr<Queue>& out) {
  std::unique_ptr<Queue> queue(new Queue(device));
  Status status = device.create_stream(queue->stream_);
  if (status.ok()) status = Uploader::create(device, kUploadPiece, queue->uploader_);
  if (status.ok()) out = std::move(queue);
  return status;
}

Status Queue::take_status() { return std::exchange(status_, Status{}); }

void Queue::note(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void Queue::flush() {
  if (!held_.product && held_.norms == 0) return;
  const Held held = std::exchange(held_, Held{});
  if (held.product) held.multiply(*this, held.format, held.args);
  for (int i = 0; i < held.norms; ++i) held.normalise(*this, held.norm[i]);
}

void Queue::bind(const std::byte* host, std::size_t bytes, std::byte* device) {
  host_ = host;
  batch_bytes_ = bytes;
  batch_ = device;
}

const AttentionWork* Queue::attention(const ops::Segment* segments) const {
  const auto at = std::find_if(attention_.begin(), attention_.end(),
                               [&](const AttentionWork& w) { return w.segments == segments; });
  return at == attention_.end() ? nullptr : &*at;
}

void Queue::need(std::int64_t partial_bytes, std::int64_t counters) {
  partial_bytes_ = std::max(partial_bytes_, partial_bytes);
  num_counters_ = std::max(num_counters_, counters);
}

void Queue::need_library(std::size_t weight_bytes, std::size_t rows_bytes) {
  library_weight_bytes_ = std::max(library_weight_bytes_, weight_bytes);
  library_rows_bytes_ = std::max(library_rows_bytes_, rows_bytes);
}

Status Queue::reserve() {
  measuring_ = false;
  const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  constexpr std::int64_t kFloat = sizeof(float), kLeastSlot = 64;
  const std::size_t counters = bytes(num_counters_ * kFloat), slots = bytes(slot_floats() * kFloat);
  const std::size_t slot_counters = bytes(slot_floats() / kLeastSlot * kFloat);
  std::size_t all = 0;
  const std::size_t workspace = library_weight_bytes_ > 0 ? kLibraryWorkspace : 0;
  for (const std::size_t n : {bytes(partial_bytes_), counters, slots, slot_counters, library_weight_bytes_, library_rows_bytes_, workspace}) all += DeviceArena::part_bytes(n);
  Status status = DeviceArena::create(device_, all, "scratch of kernels", scratch_);
  if (!status.ok()) return status;
  partials_ = scratch_.take(bytes(partial_bytes_));
  counters_ = scratch_.take(counters);
  slots_ = scratch_.take(slots);
  slot_counters_ = scratch_.take(slot_counters);
  library_weight_ = scratch_.take(library_weight_bytes_);
  library_rows_ = scratch_.take(library_rows_bytes_);
  library_workspace_ = scratch_.take(workspace);
  if (counters > 0) status = device_.fill(stream_, counters_, 0, counters);
  if (status.ok()) status = device_.fill(stream_, slot_counters_, 0, slot_counters);
  return status;
}

}  // namespace barg::cuda
