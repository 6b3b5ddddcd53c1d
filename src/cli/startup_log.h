// What `barg serve` tells while it starts: one line a phase with its milliseconds, as text for people or
// through the log as JSON. Nothing shows before release(): a start that fails at once is one sentence, not a
// story. Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "cli/command.h"

namespace barg::cli {

class StartupLog {
 public:
  StartupLog(Io& io, bool json) : io_(io), json_(json), start_(clock_.now()), last_(start_) {}

  /// Shows what was held back and everything that comes.
  void release();
  /// Ends the phase that began with the end of the last one.
  void phase(std::string_view name, const std::string& detail);
  /// A sentence without a duration.
  void note(std::string_view name, const std::string& sentence);
  /// Drawn over one line on a terminal, silent elsewhere. 0..1.
  void progress(double share);
  /// The last line: "ready in 412 ms; try: curl ...".
  void ready(const std::string& example);

 private:
  struct Line {
    std::string name, detail;
    double ms = 0;  ///< negative: a note
  };
  void add(Line line);
  void show(const Line& line);
  void clear_progress();

  Io& io_;
  bool json_;
  SteadyClock clock_;
  double start_, last_;
  int shown_percent_ = -1;
  bool released_ = false;
  std::vector<Line> held_;
};

}  // namespace barg::cli
