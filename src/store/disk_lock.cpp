#include "store/disk_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace barg::store {
namespace {

constexpr int kHeld = -1, kGone = -2;

/// A descriptor that holds the lock, kHeld, kGone (removed by another before we had it: try again), or an
/// errno + 1000.
int lock_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1000 - errno;
  int result = 0;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const int error = errno;
    ::close(fd);
    return error == EWOULDBLOCK ? kHeld : -1000 - error;
  }
  struct stat ours {
  }, named{};
  if (::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
      ours.st_dev == named.st_dev) {
    return fd;
  }
  ::close(fd);
  return kGone;
}

std::unexpected<Error> lock_error(const std::string& path, int code) {
  return fail(ErrorCode::kIo, "cannot lock " + path + ": " + std::strerror(-1000 - code));
}

}  // namespace

Result<WriterLock> WriterLock::create(const std::string& directory) {
  std::random_device random;
  for (int attempt = 0;; ++attempt) {
    WriterId writer;
    for (auto& byte : writer) byte = static_cast<std::uint8_t>(random());
    const std::string path = directory + "/" + lock_name(writer);
    const int fd = lock_file(path);
    if (fd >= 0) {
      const std::string text = std::to_string(::getpid()) + "\n";
      // For people only, so a full disk is no reason to fail.
      [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
      return WriterLock(path, fd, writer);
    }
    if (fd <= -1000) return lock_error(path, fd);
    if (attempt == 100) return fail(ErrorCode::kIo, "cannot lock a writer's file in " + directory);
  }
}

Result<std::optional<WriterLock>> WriterLock::take(const std::string& directory, const WriterId& writer) {
  const std::string path = directory + "/" + lock_name(writer);
  const int fd = lock_file(path);
  if (fd >= 0) return WriterLock(path, fd, writer);
  if (fd <= -1000) return lock_error(path, fd);
  return std::nullopt;  // alive, or somebody else has just adopted it
}

WriterLock::WriterLock(WriterLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), writer_(other.writer_) {}

WriterLock& WriterLock::operator=(WriterLock&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    writer_ = other.writer_;
  }
  return *this;
}

WriterLock::~WriterLock() {
  if (fd_ >= 0) ::close(fd_);
}

void WriterLock::remove() {
  if (fd_ >= 0) ::unlink(path_.c_str());
}

}  // namespace barg::store
