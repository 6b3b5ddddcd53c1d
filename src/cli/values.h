// One option's value as text: reading it into Config, and showing it. The only place that knows what "64MiB",
// "500ms" or "a,b" mean. Pure functions, any thread. Text may be hostile: numbers are range-checked before
// they are narrowed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/schema.h"

namespace barg::cli {

/// A problem in one sentence without subject ("expected a whole number, got 'x'"), or nothing when all is
/// well.
using Problem = std::optional<std::string>;

/// Reads `text` into the option's field. A list option takes the single element `text`. On a problem the
/// field keeps its value.
Problem assign(const Option& option, std::string_view text, Config& config);
/// For lists only: replaces the whole list.
Problem assign_list(const Option& option, std::vector<std::string> items, Config& config);
/// "a,b" -> {"a", "b"}: how lists are written in flags and variables.
std::vector<std::string> split_list(std::string_view text, char separator = ',');
/// The same with the separator of the option's kind.
std::vector<std::string> split_list(const Option& option, std::string_view text);

/// The value as it would be written in YAML: "512MiB", "30s", "[a, b]", "\"\"".
std::string show(const Option& option, const Config& config);
/// As show(), but a secret becomes "<2 hidden>", and a password in a URL "***".
std::string show_public(const Option& option, const Config& config);

/// "500ms", "30s", "5m", "2h" or a plain number of seconds.
std::optional<double> read_seconds(std::string_view text);
/// "1073741824", "512MiB": as options write sizes.
std::optional<double> read_size(std::string_view text);
/// "2.5 MiB": for people, one decimal.
std::string show_size(std::uint64_t bytes);
/// Shortest text of a number that reads back equal: "0.02".
std::string show_number(double value);

}  // namespace barg::cli
