// Reads the flags of a `barg bench` command, checked. One thread.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/values.h"

namespace barg::cli {

/// Reads one flag after another and remembers the first sentence that is wrong.
class BenchFlags {
 public:
  explicit BenchFlags(const Invocation& invocation) : invocation_(invocation) {}

  bool has(const char* flag) const { return invocation_.has(flag); }
  std::string text(const char* flag) const { return invocation_.get(flag); }
  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  void refuse(std::string sentence) {
    if (problem_.empty()) problem_ = std::move(sentence);
  }

  template <class T>
  void number(const char* flag, T& out, double low, double high) {
    if (has(flag)) out = read<T>(flag, text(flag), low, high).value_or(out);
  }

  template <class T>
  std::vector<T> numbers(const char* flag, double low, double high) {
    std::vector<T> out;
    if (!has(flag)) return out;
    for (const std::string& item : split_list(text(flag)))
      out.push_back(read<T>(flag, item, low, high).value_or(T(1)));
    if (out.empty()) refuse(std::string(flag) + " is an empty list.");
    return out;
  }

  std::optional<double> seconds(const char* flag, const std::string& value) {
    const std::optional<double> s = read_seconds(value);
    if (!s || *s <= 0) refuse(std::string(flag) + ": expected a time as 30s or 500ms, got '" + value + "'.");
    return s;
  }

 private:
  template <class T>
  std::optional<T> read(const char* flag, const std::string& value, double low, double high) {
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc{} && end == value.data() + value.size() && static_cast<double>(number) >= low &&
        static_cast<double>(number) <= high)
      return number;
    refuse(std::string(flag) + ": expected a number from " + show_number(low) + " to " + show_number(high) +
           ", got '" + value.substr(0, 64) + "'.");
    return std::nullopt;
  }

  const Invocation& invocation_;
  std::string problem_;
};

}  // namespace barg::cli
