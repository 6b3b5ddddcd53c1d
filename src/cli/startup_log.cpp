#include "cli/startup_log.h"

#include <cmath>
#include <ostream>

#include "base/log.h"

namespace barg::cli {
namespace {

std::string padded(std::string text, std::size_t width, bool right) {
  const std::string fill(text.size() < width ? width - text.size() : 0, ' ');
  return right ? fill + text : text + fill;
}

}  // namespace

void StartupLog::release() {
  released_ = true;
  for (const Line& line : held_) show(line);
  held_.clear();
}

void StartupLog::phase(std::string_view name, const std::string& detail) {
  const double now = clock_.now();
  add({.name = std::string(name), .detail = detail, .ms = std::round((now - last_) * 10'000) / 10});
  last_ = now;
}

void StartupLog::note(std::string_view name, const std::string& sentence) {
  add({.name = std::string(name), .detail = sentence, .ms = -1});
}

void StartupLog::add(Line line) {
  clear_progress();
  if (released_) {
    show(line);
  } else {
    held_.push_back(std::move(line));
  }
}

void StartupLog::show(const Line& line) {
  if (json_) {
    std::vector<log::Field> fields{{"phase", line.name}, {"detail", line.detail}};
    if (line.ms >= 0) fields.emplace_back("ms", line.ms);
    return log::write(log::Level::kInfo, "startup", fields);
  }
  const std::string ms = line.ms < 0 ? "" : std::to_string(std::lround(line.ms)) + " ms";
  io_.err << padded(ms, 9, true) << "  " << padded(line.name, 9, false) << line.detail << std::endl;
}

void StartupLog::progress(double share) {
  const int percent = static_cast<int>(share * 100);
  if (!io_.err_is_terminal || json_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  io_.err << "\r           weights   " << percent << " %" << std::flush;
}

void StartupLog::ready(const std::string& example) {
  const double ms = std::round((clock_.now() - start_) * 10'000) / 10;
  if (json_) {
    log::info("ready", {{"ms", ms}, {"try", example}});
  } else {
    io_.err << "ready in " << std::lround(ms) << " ms; try: " << example << std::endl;
  }
}

void StartupLog::clear_progress() {
  if (shown_percent_ >= 0) io_.err << "\r\033[K";
  shown_percent_ = -1;
}

}  // namespace barg::cli
