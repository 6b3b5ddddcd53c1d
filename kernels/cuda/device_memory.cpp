#include "cuda/device_memory.h"

#include <algorithm>

namespace barg::cuda {

Status DeviceArena::create(Device& device, std::size_t bytes, const char* name, DeviceArena& out) {
  DeviceArena arena;
  Status status = device.allocate(bytes, name, arena.data_);
  if (!status.ok()) return status;
  arena.device_ = &device;
  arena.size_ = bytes;
  out = std::move(arena);
  return {};
}

DeviceArena& DeviceArena::operator=(DeviceArena&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(used_, other.used_);
  other.reset();
  return *this;
}

void DeviceArena::reset() {
  if (device_ != nullptr) device_->release(data_);
  device_ = nullptr;
  data_ = nullptr;
  size_ = used_ = 0;
}

std::byte* DeviceArena::take(std::size_t bytes) {
  if (bytes > size_ - used_) return nullptr;
  std::byte* const part = data_ + used_;
  used_ += std::min(part_bytes(bytes), size_ - used_);
  return part;
}

Status PinnedBuffer::create(Device& device, std::size_t bytes, PinnedBuffer& out) {
  PinnedBuffer buffer;
  Status status = device.allocate_pinned(bytes, buffer.data_);
  if (!status.ok()) return status;
  buffer.device_ = &device;
  buffer.size_ = bytes;
  out = std::move(buffer);
  return {};
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  other.reset();
  return *this;
}

void PinnedBuffer::reset() {
  if (device_ != nullptr) device_->release_pinned(data_);
  device_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

Status Uploader::create(Device& device, std::size_t piece_bytes, Uploader& out) {
  Uploader uploader;
  uploader.device_ = &device;
  uploader.piece_bytes_ = piece_bytes;
  Status status = PinnedBuffer::create(device, kPieces * piece_bytes, uploader.pinned_);
  if (status.ok()) status = device.create_stream(uploader.stream_);
  for (EventId& event : uploader.free_) {
    if (status.ok()) status = device.create_event(event);
  }
  if (status.ok()) out = std::move(uploader);
  return status;
}

Status Uploader::stream_pieces(std::size_t bytes, std::size_t piece, const Read& read, const Use& use) {
  for (std::size_t offset = 0; offset < bytes;) {
    const std::size_t slot = next_++ % kPieces, count = std::min(piece, bytes - offset);
    std::byte* const data = pinned_.data() + slot * piece_bytes_;
    Status status = device_->synchronize(free_[slot]);
    if (!status.ok()) return status;
    read(offset, count, data);
    status = use(offset, count, data);
    if (status.ok()) status = device_->record(stream_, free_[slot]);
    if (!status.ok()) return status;
    offset += count;
  }
  return {};
}

Status Uploader::put(std::byte* to, std::size_t bytes, const Read& read) {
  return stream_pieces(bytes, piece_bytes_, read, [&](std::size_t offset, std::size_t count, const std::byte* piece) {
    return device_->upload(stream_, to + offset, piece, count);
  });
}

Status Uploader::repack(std::size_t bytes, std::size_t unit, const Read& read, const Repack& repack) {
  const std::size_t piece = unit == 0 ? 0 : piece_bytes_ / unit * unit;
  if (piece == 0 || bytes % unit != 0) {
    return {Status::Code::kInvalid, "a piece of " + std::to_string(piece_bytes_) + " bytes cannot bring " +
                                        std::to_string(bytes) + " bytes in units of " + std::to_string(unit)};
  }
  if (staged_ == nullptr) {
    Status status = DeviceArena::create(*device_, piece_bytes_, "upload staging", staging_);
    if (!status.ok()) return status;
    staged_ = staging_.take(piece_bytes_);
  }
  // One staging buffer suffices: the stream brings the next piece after the kernels that read this one.
  return stream_pieces(bytes, piece, read, [&](std::size_t offset, std::size_t count, const std::byte* data) {
    Status status = device_->upload(stream_, staged_, data, count);
    return status.ok() ? repack(stream_, offset, count, staged_) : status;
  });
}

Status Uploader::finish() { return device_->synchronize(stream_); }

}  // namespace barg::cuda
