#include "cli/bench_terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "cli/exit_codes.h"

namespace barg::cli {
namespace {

// Columns of the terminal on stderr; a line that wraps could not be drawn over.
std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return !out.fail();
}

}  // namespace

void ProgressLine::draw(const std::string& name, double share, const std::string& rest) {
  if (!io_.err_is_terminal) return;
  const std::size_t width = terminal_width();
  const std::size_t bar = std::clamp<std::size_t>(width, 80, 96) - 72;
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(bar));
  const std::string line =
      name + " [" + std::string(filled, '#') + std::string(bar - filled, '.') + "] " + rest;
  io_.err << "\r" << line.substr(0, width - 1) << "\x1b[K" << std::flush;
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) io_.err << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

void ServeProgressLine::draw(const bench::ServeProgress& p) {
  double share = 0;
  if (p.total && *p.total > 0)
    share = static_cast<double>(p.answered + p.failed) / static_cast<double>(*p.total);
  if (!p.total && p.duration_s) share = p.elapsed_s / *p.duration_s;
  std::string rest = std::to_string(p.answered) + (p.total ? "/" + std::to_string(*p.total) : "") +
                     " answered, " + std::to_string(p.in_flight) + " in flight, ";
  if (p.failed > 0) rest += std::to_string(p.failed) + " failed, ";
  const double rate = p.elapsed_s > 0 ? static_cast<double>(p.pieces) / p.elapsed_s : 0;
  rest += std::to_string(static_cast<long>(rate)) + " chunks/s, " +
          std::to_string(static_cast<long>(p.elapsed_s)) + " s";
  line_.draw(name_, share, rest);
}

// Before the run: an hour of measuring must not end in a file that cannot be written. A run that fails leaves
// no empty file.
std::string unwritable(const Invocation& invocation) {
  std::error_code error;
  for (const char* flag : {"--json", "--csv"}) {
    if (!invocation.has(flag)) continue;
    const std::string path = invocation.get(flag);
    const bool there = std::filesystem::exists(path, error);
    if (!std::ofstream(path, std::ios::app)) return path;
    if (!there) std::filesystem::remove(path, error);
  }
  error.clear();
  if (invocation.has("--svg")) std::filesystem::create_directories(invocation.get("--svg"), error);
  return error ? invocation.get("--svg") : "";
}

int write_bench_files(Io& io, const std::vector<std::pair<std::string, std::string>>& files) {
  for (const auto& [path, text] : files) {
    if (!write_file(path, text)) return bench_failed(io, "cannot write " + path + ".", kExitCannotCreate);
  }
  return kExitOk;
}

int bench_failed(Io& io, const std::string& sentence, int code) {
  io.err << "error: " << sentence << (sentence.ends_with('.') ? "" : ".") << "\n";
  return code;
}

}  // namespace barg::cli
