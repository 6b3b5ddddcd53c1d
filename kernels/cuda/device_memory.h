// Memory of a Device in the form in which it is used: arenas that are cut up once, pinned buffers, and Uploader, which
// brings any amount of data to the device through a pinned buffer of a fixed size. Each owns what it has and outlives no
// Device. Threads: as the Device.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "cuda/device.h"

namespace barg::cuda {

/// One allocation, given out from the front and freed as a whole.
class DeviceArena {
 public:
  static constexpr std::size_t kAlignment = 256;
  /// What a part of so many bytes takes of an arena.
  static constexpr std::size_t part_bytes(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  DeviceArena() = default;
  static Status create(Device& device, std::size_t bytes, const char* name, DeviceArena& out);
  ~DeviceArena() { reset(); }
  DeviceArena(DeviceArena&& other) noexcept { *this = std::move(other); }
  DeviceArena& operator=(DeviceArena&& other) noexcept;

  /// The next part, aligned; nullptr if that much is not left.
  std::byte* take(std::size_t bytes);
  std::size_t size() const { return size_; }
  std::size_t used() const { return used_; }

 private:
  void reset();

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
};

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static Status create(Device& device, std::size_t bytes, PinnedBuffer& out);
  ~PinnedBuffer() { reset(); }
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void reset();

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Streams data to the device in pieces: while one piece is copied, the next is read.
class Uploader {
 public:
  /// Writes bytes [offset, offset + bytes) of the data to `out`.
  using Read = std::function<void(std::size_t offset, std::size_t bytes, std::byte* out)>;
  /// Issues to the uploader's stream what makes of bytes [offset, offset + bytes), which lie at `staged` on the device
  /// until then, what shall stay.
  using Repack = std::function<Status(StreamId s, std::size_t offset, std::size_t bytes, const std::byte* staged)>;

  Uploader() = default;
  /// Takes 2 * piece_bytes of pinned memory, and piece_bytes of the device's once repack() is called.
  static Status create(Device& device, std::size_t piece_bytes, Uploader& out);

  /// Data to `to` as it is.
  Status put(std::byte* to, std::size_t bytes, const Read& read);
  /// Pieces are multiples of `unit` bytes, of which the data is one. kInvalid: a piece cannot hold one unit.
  Status repack(std::size_t bytes, std::size_t unit, const Read& read, const Repack& repack);
  /// All of it has arrived.
  Status finish();
  StreamId stream() const { return stream_; }

 private:
  static constexpr std::size_t kPieces = 2;
  using Use = std::function<Status(std::size_t offset, std::size_t bytes, const std::byte* piece)>;
  Status stream_pieces(std::size_t bytes, std::size_t piece, const Read& read, const Use& use);

  Device* device_ = nullptr;
  StreamId stream_{};
  PinnedBuffer pinned_;
  DeviceArena staging_;
  std::byte* staged_ = nullptr;
  std::size_t piece_bytes_ = 0, next_ = 0;
  EventId free_[kPieces] = {};  ///< happen when a piece has been copied
};

}  // namespace barg::cuda
