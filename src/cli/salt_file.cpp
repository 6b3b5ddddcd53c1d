#include "cli/salt_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/check.h"

namespace barg::cli {
namespace {

constexpr std::size_t kLeastBytes = 16, kMostBytes = 4096, kMadeBytes = 32;

std::unexpected<Error> refused(const std::string& path, const char* what, int error) {
  return fail(ErrorCode::kIo, std::string("the secret file ") + path + " cannot be " + what + ": " + std::strerror(error),
              "kv.salt_file");
}

/// A descriptor that closes itself.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

/// nullopt: there is no such file.
Result<std::optional<SaltFile>> read_salt(const std::string& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0) {
    if (errno == ENOENT) return std::nullopt;
    return refused(path, "opened", errno);
  }
  struct stat facts {};
  if (::fstat(file.fd(), &facts) != 0) return refused(path, "read", errno);
  SaltFile out{.secret = std::string(kMostBytes + 1, '\0'), .path = path, .made = false, .exposed = false};
  out.exposed = (facts.st_mode & (S_IRGRP | S_IROTH)) != 0;
  std::size_t size = 0;
  while (size < out.secret.size()) {
    const ssize_t n = ::read(file.fd(), out.secret.data() + size, out.secret.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refused(path, "read", errno);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  out.secret.resize(size);
  if (size >= kLeastBytes && size <= kMostBytes) return out;
  return fail(ErrorCode::kBadFile,
              "the secret file " + path + " must have 16 to 4096 bytes: head -c 32 /dev/urandom > " + path,
              "kv.salt_file");
}

std::optional<std::string> random_bytes() {
  std::string out(kMadeBytes, '\0');
  if (::getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size())) return std::nullopt;
  return out;
}

/// Written whole under a name of its own and linked to the final one, which fails if another process was first.
Result<bool> make_salt(const std::string& path) {
  const std::optional<std::string> secret = random_bytes();
  if (!secret) return refused(path, "made", errno);
  std::string temporary = path + ".XXXXXX";
  const File file(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (file.fd() < 0) return refused(path, "made", errno);
  int error = 0;
  if (::write(file.fd(), secret->data(), secret->size()) != static_cast<ssize_t>(secret->size()) ||
      ::fsync(file.fd()) != 0) {
    error = errno == 0 ? EIO : errno;
  } else if (::link(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  ::unlink(temporary.c_str());
  if (error != 0 && error != EEXIST) return refused(path, "made", error);
  return error == 0;
}

}  // namespace

Result<SaltFile> open_salt_file(const std::string& configured, const std::string& state_directory) {
  if (configured.empty() && state_directory.empty()) {
    return fail(ErrorCode::kNotFound,
                "stored KV blocks need a secret, and there is no home directory to keep one in; give kv.salt_file",
                "kv.salt_file");
  }
  const std::string directory = state_directory + "/barg";
  const std::string path = configured.empty() ? directory + "/kv-salt" : configured;
  auto found = read_salt(path);
  if (!found) return std::unexpected(found.error());
  if (*found) return std::move(**found);
  if (!configured.empty()) {
    return fail(ErrorCode::kNotFound,
                "there is no " + path + " (kv.salt_file); make it with: (umask 077; head -c 32 /dev/urandom > " + path +
                    ")",
                "kv.salt_file");
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return refused(path, "made", error.value());
  const Result<bool> made = make_salt(path);
  if (!made) return std::unexpected(made.error());
  auto again = read_salt(path);
  if (!again) return std::unexpected(again.error());
  if (!*again) return refused(path, "read", ENOENT);
  (*again)->made = *made;
  return std::move(**again);
}

std::string passing_secret() {
  std::optional<std::string> secret = random_bytes();
  CHECK(secret.has_value());  // 32 bytes are never refused once a machine is up
  return std::move(*secret);
}

}  // namespace barg::cli
