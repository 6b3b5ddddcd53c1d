// Reads a server-sent event stream: bytes in any split, the payload of each `data:` event out. One stream,
// one thread. An event beyond 1 MiB, or "[DONE]", ends it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace barg::cli {

class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view)> on_data) : on_data_(std::move(on_data)) {}

  /// False when nothing more is wanted. Only the forms an OpenAI server sends: one `data:` line an event, LF
  /// or CR LF; comments and other fields are skipped.
  bool push(std::string_view bytes) {
    buffer_ += bytes;
    std::size_t end = 0;
    while ((end = buffer_.find('\n')) != std::string::npos) {
      std::string_view line = std::string_view(buffer_).substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!take(line)) return false;
      buffer_.erase(0, end + 1);
    }
    return buffer_.size() <= kMaxLine;
  }

 private:
  static constexpr std::size_t kMaxLine = 1 << 20;

  bool take(std::string_view line) {
    if (!line.starts_with("data:")) return true;
    line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
    if (line == "[DONE]") return false;
    on_data_(line);
    return true;
  }

  std::function<void(std::string_view)> on_data_;
  std::string buffer_;
};

}  // namespace barg::cli
