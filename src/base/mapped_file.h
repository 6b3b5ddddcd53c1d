// A read-only memory-mapped regular file. Owns the mapping; movable. Pages may be dropped again after use.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "barg/result.h"

namespace barg {

class MappedFile {
 public:
  /// Refuses anything but a non-empty regular file (kNotFound, kIo, kBadFile) with the path in the message.
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Tells the kernel that these bytes are not needed any more: their pages, and some around them, leave
  /// the process (and read back from the file if they are used again).
  void drop(std::span<const std::byte> range) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
};

/// Whole small file as a string; at most `max_bytes` (kTooLarge beyond).
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

}  // namespace barg
