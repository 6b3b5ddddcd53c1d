// What the benchmarks show while they run and leave behind: one line on a terminal that is drawn over, and
// files that are known to be writable before anything is measured. One thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/serve_loop.h"
#include "cli/command.h"

namespace barg::cli {

/// Draws nothing unless stderr is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(Io& io) : io_(io) {}
  /// "name [###...] rest", cut to the terminal's width.
  void draw(const std::string& name, double share, const std::string& rest);
  void clear();

 private:
  Io& io_;
  bool drawn_ = false;
};

/// The same for a load on a server or an engine.
class ServeProgressLine {
 public:
  explicit ServeProgressLine(Io& io) : line_(io) {}
  void begin(std::string name) { name_ = std::move(name); }
  void draw(const bench::ServeProgress& progress);
  void clear() { line_.clear(); }

 private:
  ProgressLine line_;
  std::string name_;
};

/// The first of --json and --csv, or --svg's folder, that cannot be written; empty if there is none.
/// Makes the folder, and leaves no empty file.
std::string unwritable(const Invocation& invocation);

/// Paths with their contents. kExitCannotCreate, with a sentence, for the first that cannot be written.
int write_bench_files(Io& io, const std::vector<std::pair<std::string, std::string>>& files);

/// Prints the sentence and returns the code.
int bench_failed(Io& io, const std::string& sentence, int code);

}  // namespace barg::cli
