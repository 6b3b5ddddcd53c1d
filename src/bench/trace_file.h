// Files of one JSON object a line, and traces in Mooncake's format in particular: {timestamp (ms),
// input_length, output_length, hash_ids}. An id stands for a block of 512 tokens; equal ids behind equal ids
// are equal blocks. Files are hostile: every value is checked, and an error names the line. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"

namespace barg::bench {

inline constexpr int kTraceBlock = 512;  ///< tokens a hash id stands for

struct TraceRow {
  double at_s = 0;
  int input_length = 0;
  int output_length = 0;
  std::vector<std::uint64_t> blocks;
};

/// Calls row(json) for every line that is not blank; its sentence, if any, is the error.
Result<void> read_rows(const std::string& path, const std::function<std::string(const Json&)>& row);

/// A whole number member in [low, 10 million], or -1.
int whole_member(const Json& row, std::string_view key, int low);

/// In order of time. kNotFound, kBadFile (with line number) or kTooLarge; a trace without rows is kBadFile.
Result<std::vector<TraceRow>> read_trace(const std::string& path);

}  // namespace barg::bench
