// Who is alive in a shared directory: one lock file a writer, held by flock for as long as the process lives,
// and let go by the kernel when it dies in any way. Any thread.
#pragma once

#include <optional>
#include <string>

#include "barg/result.h"
#include "store/segment_format.h"

namespace barg::store {

class WriterLock {
 public:
  /// A writer id that nobody has, locked.
  static Result<WriterLock> create(const std::string& directory);
  /// The lock of a writer that is dead; nullopt if it lives. Makes a lock file that was lost.
  static Result<std::optional<WriterLock>> take(const std::string& directory, const WriterId& writer);

  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&& other) noexcept;
  ~WriterLock();

  const WriterId& writer() const { return writer_; }
  /// Removes the file as well: for a writer that owns no segment any more.
  void remove();

 private:
  WriterLock(std::string path, int fd, const WriterId& writer)
      : path_(std::move(path)), fd_(fd), writer_(writer) {}
  std::string path_;
  int fd_ = -1;
  WriterId writer_{};
};

}  // namespace barg::store
