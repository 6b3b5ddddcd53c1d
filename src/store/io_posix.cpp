// Files through POSIX calls, and a queue that reads one thing at a time.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <new>

#include "store/io_file.h"

namespace barg::store {
namespace {

class PosixFile final : public File {
 public:
  PosixFile(int fd, bool direct) : fd_(fd), direct_(direct) {}
  ~PosixFile() override { ::close(fd_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  std::int64_t read(std::uint64_t offset, std::span<std::byte> to) override {
    for (;;) {
      const ssize_t n = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
      if (n >= 0) return n;
      if (errno != EINTR) return -errno;
    }
  }
  std::int64_t write(std::uint64_t offset, std::span<const std::byte> from) override {
    for (;;) {
      const ssize_t n = ::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
      if (n >= 0) return n;
      if (errno != EINTR) return -errno;
    }
  }
  std::int64_t write_pieces(std::uint64_t offset, std::span<const iovec> pieces) override {
    const auto count = static_cast<int>(std::min<std::size_t>(pieces.size(), IOV_MAX));
    for (;;) {
      const ssize_t n = ::pwritev(fd_, pieces.data(), count, static_cast<off_t>(offset));
      if (n >= 0) return n;
      if (errno != EINTR) return -errno;
    }
  }
  int sync() override { return ::fdatasync(fd_) == 0 ? 0 : -errno; }
  int allocate(std::uint64_t bytes) override {
    for (;;) {
      if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
      if (errno == EINTR) continue;
      return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
    }
  }
  int truncate(std::uint64_t bytes) override {
    return ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : -errno;
  }
  std::int64_t size() override {
    struct stat s {};
    return ::fstat(fd_, &s) == 0 ? static_cast<std::int64_t>(s.st_size) : -errno;
  }
  bool direct() const override { return direct_; }
  int descriptor() const override { return fd_; }

 private:
  int fd_;
  bool direct_;
};

class PlainReadQueue final : public ReadQueue {
 public:
  void push(ReadOp* op) override { waiting_.push_back(op); }
  void wait(std::vector<ReadOp*>& done) override {
    if (waiting_.empty()) return;
    ReadOp* op = waiting_.front();
    waiting_.erase(waiting_.begin());
    do {
      const ssize_t n =
          ::preadv(op->file->descriptor(), op->pieces, op->num_pieces, static_cast<off_t>(op->offset));
      op->result = n >= 0 ? n : -errno;
    } while (op->result == -EINTR);
    done.push_back(op);
  }

 private:
  std::vector<ReadOp*> waiting_;
};

class SystemIo final : public Io {
 public:
  explicit SystemIo(bool rings) : rings_(rings && uring_read_queue(2) != nullptr) {}

  std::expected<FileRef, int> open(const std::string& path, OpenMode mode, bool direct) override {
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a pipe of that name would make open() wait
    flags |= mode == OpenMode::kRead ? O_RDONLY : O_RDWR;
    if (mode == OpenMode::kCreate) flags |= O_CREAT | O_EXCL;
    int fd = -1;
    if (direct) {
      fd = ::open(path.c_str(), flags | O_DIRECT, 0600);
      if (fd < 0 && errno != EINVAL) return std::unexpected(errno);
      // Refused after O_CREAT made the file: opened again without.
      if (fd < 0 && mode == OpenMode::kCreate) flags &= ~O_EXCL;
    }
    const bool got_direct = fd >= 0;
    if (fd < 0) fd = ::open(path.c_str(), flags, 0600);
    if (fd < 0) return std::unexpected(errno);
    struct stat s {};
    if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
      ::close(fd);
      return std::unexpected(EINVAL);
    }
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);  // a ring would answer EAGAIN
    if (!got_direct) ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    return std::make_shared<PosixFile>(fd, got_direct);
  }
  int remove(const std::string& path) override { return ::unlink(path.c_str()) == 0 ? 0 : -errno; }
  int rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : -errno;
  }
  int list(const std::string& directory, std::vector<std::string>& names) override {
    names.clear();
    DIR* d = ::opendir(directory.c_str());
    if (d == nullptr) return -errno;
    for (errno = 0; const dirent* entry = ::readdir(d); errno = 0) {
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
        names.emplace_back(entry->d_name);
      }
    }
    const int error = errno;
    ::closedir(d);
    return -error;
  }
  int sync_directory(const std::string& directory) override {
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    const int result =
        ::fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;  // some network file systems have no such thing
    ::close(fd);
    return result;
  }
  std::int64_t change_stamp(const std::string& directory) override {
    struct stat s {};
    if (::stat(directory.c_str(), &s) != 0) return -errno;
    return static_cast<std::int64_t>(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec;
  }
  std::unique_ptr<ReadQueue> read_queue(unsigned depth) override {
    if (rings_) {
      if (auto queue = uring_read_queue(depth)) return queue;
    }
    return std::make_unique<PlainReadQueue>();
  }
  bool deep_queues() const override { return rings_; }

 private:
  bool rings_;
};

}  // namespace

std::unique_ptr<Io> system_io(bool use_io_uring) { return std::make_unique<SystemIo>(use_io_uring); }

std::uint64_t system_unix_time() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(since).count()));
}

int read_fully(File& file, std::uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const std::int64_t n = file.read(offset, to);
    if (n < 0) return static_cast<int>(n);
    if (n == 0) return 1;
    offset += static_cast<std::uint64_t>(n);
    to = to.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

int write_fully(File& file, std::uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::int64_t n = file.write(offset, from);
    if (n < 0) return static_cast<int>(n);
    if (n == 0) return -EIO;
    offset += static_cast<std::uint64_t>(n);
    from = from.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

int write_fully(File& file, std::uint64_t offset, std::vector<iovec> pieces) {
  for (std::size_t first = 0; first < pieces.size();) {
    const std::int64_t n = file.write_pieces(offset, std::span(pieces).subspan(first));
    if (n < 0) return static_cast<int>(n);
    if (n == 0) return -EIO;
    offset += static_cast<std::uint64_t>(n);
    for (auto written = static_cast<std::size_t>(n); written > 0;) {
      iovec& piece = pieces[first];
      const std::size_t part = std::min(written, piece.iov_len);
      piece = {static_cast<std::byte*>(piece.iov_base) + part, piece.iov_len - part};
      written -= part;
      if (piece.iov_len == 0) ++first;
    }
  }
  return 0;
}

AlignedBuffer::AlignedBuffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kIoAlign}, std::nothrow))) {
  size_ = data_ ? bytes : 0;
}
void AlignedBuffer::Free::operator()(std::byte* p) const {
  ::operator delete (p, std::align_val_t{kIoAlign});
}

}  // namespace barg::store
