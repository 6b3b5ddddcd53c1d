// The seam between the disk tier and the operating system: files, a directory, and many reads in flight.
//
// Every call answers a count or 0, or -errno; nothing throws, nothing is retried here but EINTR. Tests put an
// Io in front that refuses, tears and flips; production uses system_io(). A File may be used by several
// threads at once; a ReadQueue belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace barg::store {

/// What O_DIRECT wants of offsets, lengths and addresses, on every device we know.
inline constexpr std::size_t kIoAlign = 4096;
constexpr std::uint64_t io_padded(std::uint64_t bytes) {
  return (bytes + kIoAlign - 1) / kIoAlign * kIoAlign;
}

class File {
 public:
  virtual ~File() = default;
  /// May be short at the end of the file.
  virtual std::int64_t read(std::uint64_t offset, std::span<std::byte> to) = 0;
  /// May be short.
  virtual std::int64_t write(std::uint64_t offset, std::span<const std::byte> from) = 0;
  /// Pieces of memory that follow each other in the file, none of them empty. May be short.
  virtual std::int64_t write_pieces(std::uint64_t offset, std::span<const iovec> pieces) {
    return write(offset, {static_cast<const std::byte*>(pieces[0].iov_base), pieces[0].iov_len});
  }
  /// Data and what is needed to find it are durable.
  virtual int sync() = 0;
  /// Reserves space; a file system that cannot is no error.
  virtual int allocate(std::uint64_t bytes) = 0;
  virtual int truncate(std::uint64_t bytes) = 0;
  virtual std::int64_t size() = 0;
  /// True: addresses, offsets and lengths must be aligned to kIoAlign.
  virtual bool direct() const = 0;
  virtual int descriptor() const = 0;
};
using FileRef = std::shared_ptr<File>;

/// One read into at most two pieces of memory that follow each other in the file.
struct ReadOp {
  FileRef file;
  std::uint64_t offset = 0;
  iovec pieces[2] = {};
  int num_pieces = 0;
  std::int64_t result = 0;  ///< bytes or -errno, once done
};

class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  /// `op` must live until wait() hands it back. REQUIRES fewer than the queue's depth in flight.
  virtual void push(ReadOp* op) = 0;
  /// Starts what was pushed and waits until at least one has ended; appends those that have. Nothing in
  /// flight: returns.
  virtual void wait(std::vector<ReadOp*>& done) = 0;
};

enum class OpenMode : std::uint8_t { kRead, kWrite, kCreate };  ///< kCreate: must not exist

class Io {
 public:
  virtual ~Io() = default;
  /// `direct`: bypass the page cache if the file system lets us.
  virtual std::expected<FileRef, int> open(const std::string& path, OpenMode mode, bool direct) = 0;
  virtual int remove(const std::string& path) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  /// Names in the directory, without "." and "..".
  virtual int list(const std::string& directory, std::vector<std::string>& names) = 0;
  virtual int sync_directory(const std::string& directory) = 0;
  /// Changes when a name in the directory does (its mtime).
  virtual std::int64_t change_stamp(const std::string& directory) = 0;
  virtual std::unique_ptr<ReadQueue> read_queue(unsigned depth) = 0;
  /// True: a queue keeps `depth` reads in flight; false: one at a time, so use more threads.
  virtual bool deep_queues() const = 0;
};

/// The real thing. `use_io_uring` is a wish: containers often forbid it, then reads are plain ones.
std::unique_ptr<Io> system_io(bool use_io_uring);

/// A queue over io_uring, or nullptr where there is none.
std::unique_ptr<ReadQueue> uring_read_queue(unsigned depth);

/// Seconds since 1970 by the system's clock.
std::uint64_t system_unix_time();

/// Reads until full: 0, -errno, or 1 for a file that ended before.
int read_fully(File& file, std::uint64_t offset, std::span<std::byte> to);
int write_fully(File& file, std::uint64_t offset, std::span<const std::byte> from);
int write_fully(File& file, std::uint64_t offset, std::vector<iovec> pieces);

/// Memory for O_DIRECT. Empty if there was none.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> first(std::size_t bytes) const { return {data_.get(), bytes}; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace barg::store
