#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/utf8.h"

namespace barg::log {
namespace {

constexpr std::size_t kMaxValueBytes = 256;

struct Sink {
  std::shared_ptr<spdlog::logger> logger;
  bool json = false;
};

/// Before configure() nothing is printed: a library does not choose where lines go.
Sink& sink() {
  static Sink s;
  return s;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace: return spdlog::level::trace;
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

Json cut(const Json& value) {
  if (!value.is_string() || value.as_string().size() <= kMaxValueBytes) return value;
  std::string_view head = std::string_view(value.as_string()).substr(0, kMaxValueBytes);
  head = head.substr(0, complete_utf8_prefix(head));
  return Json(std::string(head) + "…");
}

bool plain(std::string_view s) {
  if (s.empty()) return false;
  for (const char c : s) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == '"' || c == '=' || c == '\\' || c == 0x7F) return false;
  }
  return is_valid_utf8(s);
}

template <class Fields>
std::string line_of(std::string_view event, const Fields& fields, bool json) {
  if (json) {
    Json object = Json::object();
    object.set("event", std::string(event));
    for (const auto& [key, value] : fields) object.set(std::string(key), cut(value));
    return dump_json(object);
  }
  std::string line(event);
  for (const auto& [key, value] : fields) {
    const Json v = cut(value);
    line += ' ';
    line += key;
    line += '=';
    line += v.is_string() && plain(v.as_string()) ? v.as_string() : dump_json(v);
  }
  return line;
}

template <class Fields>
void write_any(Level level, std::string_view event, const Fields& fields) {
  if (!enabled(level)) return;
  sink().logger->log(to_spdlog(level), "{}", line_of(event, fields, sink().json));
}

}  // namespace

void configure(Level level, bool json) {
  auto logger = std::make_shared<spdlog::logger>("barg", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::info);
  if (json) {
    logger->set_pattern(R"({"ts":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","line":%v})");
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
  }
  sink() = {std::move(logger), json};
}

bool enabled(Level level) { return sink().logger != nullptr && sink().logger->should_log(to_spdlog(level)); }

void write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  write_any(level, event, fields);
}

void write(Level level, std::string_view event, const std::vector<Field>& fields) {
  write_any(level, event, fields);
}

}  // namespace barg::log
