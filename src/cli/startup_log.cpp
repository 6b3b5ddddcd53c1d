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

void StartupLog::phase(std::string_view name, const std::string& detail) {
  clear_progress();
  const double now = clock_.now();
  const double ms = std::round((now - last_) * 10'000) / 10;
  last_ = now;
  if (json_) {
    log::info("startup", {{"phase", name}, {"ms", ms}, {"detail", detail}});
    return;
  }
  const std::string shown = std::to_string(static_cast<std::int64_t>(std::lround(ms)));
  io_.err << padded(shown, 6, true) << " ms  " << padded(std::string(name), 10, false) << detail << std::endl;
}

void StartupLog::note(std::string_view name, const std::string& sentence) {
  clear_progress();
  if (json_) {
    log::info("startup", {{"phase", name}, {"detail", sentence}});
  } else {
    io_.err << padded("", 11, false) << padded(std::string(name), 10, false) << sentence << std::endl;
  }
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
