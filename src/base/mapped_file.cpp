#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace barg {
namespace {

/// Opens a regular file for reading; O_NONBLOCK so that a FIFO cannot hang us before we refuse it.
Result<std::pair<int, std::size_t>> open_regular(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int e = errno;
    return fail(e == ENOENT || e == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
                path + ": " + std::strerror(e));
  }
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::kBadFile, path + " is not a regular file");
  }
  return std::pair{fd, static_cast<std::size_t>(st.st_size)};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  auto file = open_regular(path);
  if (!file) return std::unexpected(file.error());
  const auto [fd, size] = *file;
  if (size == 0) {
    ::close(fd);
    return fail(ErrorCode::kBadFile, path + " is empty");
  }
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int e = errno;
  ::close(fd);
  if (p == MAP_FAILED) return fail(ErrorCode::kIo, path + ": cannot map: " + std::strerror(e));
  MappedFile out;
  out.data_ = static_cast<const std::byte*>(p);
  out.size_ = size;
  out.path_ = path;
  return out;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void MappedFile::drop(std::span<const std::byte> range) const {
  // A page fault maps the pages around it as well, by default of these 64 KiB.
  constexpr std::size_t kAround = 64 << 10;
  if (range.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<std::size_t>(range.data() - data_) / kAround * kAround;
  const auto end = static_cast<std::size_t>(range.data() - data_) + range.size();
  const std::size_t stop =
      std::min((end + kAround - 1) / kAround * kAround, (size_ + page - 1) / page * page);
  ::madvise(const_cast<std::byte*>(data_) + begin, stop - begin, MADV_DONTNEED);
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  auto file = open_regular(path);
  if (!file) return std::unexpected(file.error());
  const auto [fd, size] = *file;
  if (size > max_bytes) {
    ::close(fd);
    return fail(ErrorCode::kTooLarge, path + " has " + std::to_string(size) + " bytes, at most " +
                                          std::to_string(max_bytes) + " are read");
  }
  std::string out(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, out.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  ::close(fd);
  if (done != size) return fail(ErrorCode::kIo, path + ": cannot read");
  return out;
}

}  // namespace barg
