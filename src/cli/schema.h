// The schema: one literal table that names every field of Config for people. From a row come the YAML key,
// the flag, the environment variable, the line of --help, configs/default.yaml and docs/options.md; nothing
// else knows an option's spelling. Defaults are those of a default-constructed Config and are written nowhere
// else.
//
// Invariants: every field of Config has exactly one row; keys and flags are unique; the variable of `--a-b`
// is BARG_A_B. Constant data, any thread. Adding an option: a field in barg/config.h and a row in schema.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "barg/config.h"

namespace barg::cli {

/// How an option's text is read and shown.
enum class Kind : std::uint8_t {
  kText,
  kPath,    // text; a leading ~/ is the home directory
  kChoice,  // one of Option::choices
  kList,    // YAML list; on the command line repeated or separated by commas
  kSpecs,   // the same of elements that have commas themselves: separated by semicolons
  kBool,    // flag --name and --no-name; elsewhere true or false
  kInteger,
  kBytes,     // whole number, or a number with KiB, MiB, GiB, TiB
  kDuration,  // seconds, or a number with ms, s, m
  kNumber,
};

/// The field itself, by its C++ type.
using FieldRef = std::variant<std::string*, std::vector<std::string>*, bool*, std::uint16_t*, std::int32_t*,
                              std::int64_t*, std::uint64_t*, double*>;

struct Option {
  std::string_view key;   ///< "kv.block_size": section and name in YAML
  std::string_view flag;  ///< "--block-size"
  Kind kind = Kind::kText;
  FieldRef (*field)(Config&) = nullptr;
  std::string_view help;          ///< one or two sentences: what it does, when to change it
  std::string_view choices = {};  ///< "f32|f16|auto"; empty unless the values are a fixed set
  double min = 0;                 ///< inclusive; bytes, seconds for durations
  double max = std::numeric_limits<double>::infinity();
  double unit = 1;      ///< a duration's field holds seconds times this (1000: milliseconds)
  bool secret = false;  ///< never printed
};

inline bool is_list(const Option& option) {
  return option.kind == Kind::kList || option.kind == Kind::kSpecs;
}

/// Every option, grouped by section in the order of Config.
std::span<const Option> schema();

/// "kv" of "kv.block_size".
std::string_view section_of(const Option& option);
/// "BARG_BLOCK_SIZE" of "--block-size".
std::string env_name(const Option& option);
/// What a section is about, for the headings of help and documents.
std::string_view section_title(std::string_view section);

/// nullptr if there is none. `flag` may be the --no- form of a switch.
const Option* find_key(std::string_view key);
const Option* find_flag(std::string_view flag);
const Option* find_env(std::string_view variable);

/// The candidate nearest to `text` by edit distance, empty if none is near enough to be meant.
std::string nearest(std::string_view text, const std::vector<std::string_view>& candidates);

}  // namespace barg::cli
