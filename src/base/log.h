// Structured lines: an event name and key/value pairs. A thin cover over spdlog, which only log.cpp sees.
// The library never configures sinks; the command line does, through configure().
//
//   log::info("model_loaded", {{"ms", 41}, {"path", path}});
//
// Any thread. Values that came from a client are escaped and cut to 256 bytes.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace barg::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError };
using Field = std::pair<std::string_view, Json>;

/// Once, before threads start. `json`: one JSON object a line instead of text. Lines go to stderr.
void configure(Level level, bool json);
bool enabled(Level level);
void write(Level level, std::string_view event, std::initializer_list<Field> fields);
void write(Level level, std::string_view event, const std::vector<Field>& fields);

inline void debug(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kDebug, e, f); }
inline void info(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kInfo, e, f); }
inline void warn(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kWarn, e, f); }
inline void error(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kError, e, f); }

}  // namespace barg::log
