// barg_device_check: whether a CUDA device does with Barg's kernels what the emulated device says, and how fast. Usage:
//
//   barg_device_check [--emulated] [--image FILE]... [--steps NAME,...] [--predictions DIR] [--results FILE] [--fault NAME]
//
// Each step runs in a process of its own, for so long at most; a table of everything comes last. Exit code: 0 when all is
// as it should be, 1 when something is wrong, 2 when figures are worse than predicted. FILE is written on a real device
// only. scripts/device-check builds, prepares machine code and calls this.
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

#include "device/check.h"

namespace barg::check {
namespace {

using Seconds = std::chrono::duration<double>;

struct Step {
  const char* name;
  int seconds;  ///< at most
  void (*run)(Check&);
};
// Six minutes together.
constexpr Step kSteps[] = {{"ceilings", 15, ceilings},     {"conformance", 15, conformance}, {"correctness", 45, correctness},
                           {"invariance", 25, invariance}, {"timing", 60, timing},           {"end-to-end", 140, end_to_end}};
constexpr int kSanitizerSeconds = 30;  ///< of each of two tools

struct Arguments {
  Options options;
  std::vector<std::string> steps;
  std::string only;  ///< this process is that step
  std::string results;
};

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr, "error: %s (see the head of benchmarks/device/main.cpp)\n", why.c_str());
  std::exit(64);
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--emulated") {
      a.options.emulated = true;
      continue;
    }
    if (name == "--small") {
      a.options.small = true;
      continue;
    }
    if (i + 1 == argc) usage("unknown or incomplete argument " + name);
    const std::string value = argv[++i];
    if (name == "--image") {
      a.options.images.push_back(value);
    } else if (name == "--step") {
      a.only = value;
    } else if (name == "--steps") {
      std::istringstream in(value);
      for (std::string step; std::getline(in, step, ',');) a.steps.push_back(step);
    } else if (name == "--predictions") {
      a.options.predictions = value;
    } else if (name == "--results") {
      a.results = value;
    } else if (name == "--fault") {
      a.options.fault = value;
    } else {
      usage("unknown argument " + name);
    }
  }
  return a;
}

/// A process and what it prints, line by line, until it ends or its time is over.
struct Ran {
  bool ended = false;
  int code = 0;  ///< -1: killed by a signal
};
template <class F>
Ran run(const std::vector<std::string>& command, int seconds, const F& on_line) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[1]);
  std::vector<char*> words;
  for (const std::string& w : command) words.push_back(const_cast<char*>(w.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::string text;
  bool open = failed == 0;
  while (open) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd waits{.fd = pipe_ends[0], .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&waits, 1, static_cast<int>(left)) <= 0) break;
    char buffer[4096];
    const ssize_t n = ::read(pipe_ends[0], buffer, sizeof buffer);
    open = n > 0;
    if (open) text.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n')) {
      on_line(text.substr(0, at));
      text.erase(0, at + 1);
    }
  }
  ::close(pipe_ends[0]);
  if (failed != 0) return {.ended = true, .code = 127};
  if (open) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {.ended = !open, .code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

class Table {
 public:
  void add(const std::string& step, const Row& row) {
    rows_.emplace_back(step, row);
    std::printf("%-12s %-8s %s%s%s\n", step.c_str(), verdict_name(row.verdict), row.name.c_str(),
                row.note.empty() ? "" : ": ", row.note.c_str());
    std::fflush(stdout);
  }
  void set_device(const std::string& device) { device_ = device; }
  bool has(Verdict v) const {
    return std::any_of(rows_.begin(), rows_.end(), [v](const auto& r) { return r.second.verdict == v; });
  }
  std::string text(const char* edge, const char* line_after_head) const {
    std::vector<std::vector<std::string>> cells = {{"step", "what", "measured", "predicted", "", "note"}};
    for (const auto& [step, r] : rows_) cells.push_back({step, r.name, r.measured, r.predicted, verdict_name(r.verdict), r.note});
    std::vector<std::size_t> widths(cells[0].size());
    for (const auto& row : cells) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (std::size_t r = 0; r < cells.size(); ++r) {
      out += edge;
      for (std::size_t i = 0; i < cells[r].size(); ++i)
        out += cells[r][i] + std::string(widths[i] - cells[r][i].size() + 1, ' ') + (i + 1 < cells[r].size() ? edge : "");
      out += std::string(edge) + "\n";
      if (r == 0) out += line_after_head;
    }
    return out;
  }
  /// For people, with date and card.
  void write(const std::string& path, const std::string& verdict) const {
    const std::time_t now = std::time(nullptr);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    std::ofstream out(path);
    out << "# Device check\n\nMeasured on " << date << " on " << device_ << " by `scripts/device-check`: " << verdict
        << "\n\n" << text("| ", "|---|---|---|---|---|---|\n");
  }
  const std::string& device() const { return device_; }

 private:
  std::vector<std::pair<std::string, Row>> rows_;
  std::string device_;
};

std::vector<std::string> step_command(const Arguments& a, const std::string& step) {
  std::vector<std::string> c = {"/proc/self/exe"};
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n > 0) c[0] = std::string(self, static_cast<std::size_t>(n));
  c.insert(c.end(), {"--step", step, "--predictions", a.options.predictions});
  if (a.options.emulated) c.emplace_back("--emulated");
  if (!a.options.fault.empty()) c.insert(c.end(), {"--fault", a.options.fault});
  for (const std::string& image : a.options.images) c.insert(c.end(), {"--image", image});
  return c;
}

void run_step(const Arguments& a, const Step& step, Table& table) {
  const auto begin = std::chrono::steady_clock::now();
  // The emulated device takes its time on a busy machine.
  const int seconds = a.options.emulated ? 10 * step.seconds : step.seconds;
  const Ran ran = run(step_command(a, step.name), seconds, [&](const std::string& line) {
    if (line.starts_with("device\t")) table.set_device(line.substr(7));
    if (const auto row = from_line(line)) table.add(step.name, *row);
  });
  const double took = Seconds(std::chrono::steady_clock::now() - begin).count();
  if (!ran.ended)
    table.add(step.name, {Verdict::kFailed, "the step", "", "", "it did not end within " + std::to_string(seconds) + " s"});
  else if (ran.code != 0 && ran.code != 1)
    table.add(step.name, {Verdict::kFailed, "the step", "", "", "it ended with code " + std::to_string(ran.code)});
  else
    std::printf("%-12s took %.1f s\n", step.name, took);
}

/// Step 7: kernels at small shapes under NVIDIA's checker.
void run_sanitizer(const Arguments& a, Table& table) {
  const std::string step = "sanitizer";
  if (a.options.emulated) return table.add(step, {Verdict::kSkipped, "compute-sanitizer", "", "", "skipped: no real device"});
  std::string tool = "compute-sanitizer";
  for (const char* place : {"/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer"}) {
    if (::access(place, X_OK) == 0) tool = place;
  }
  for (const char* what : {"memcheck", "racecheck"}) {
    std::vector<std::string> command = {tool, "--tool", what, "--error-exitcode", "99"};
    for (const std::string& word : step_command(a, "correctness")) command.push_back(word);
    command.emplace_back("--small");
    std::string failed;
    const Ran ran = run(command, kSanitizerSeconds, [&](const std::string& line) {
      if (const auto row = from_line(line); row && row->verdict == Verdict::kFailed) failed = row->name;
    });
    if (ran.ended && ran.code == 127)
      return table.add(step, {Verdict::kSkipped, "compute-sanitizer", "", "", "skipped: it is not on this machine"});
    if (!ran.ended)
      table.add(step, {Verdict::kSkipped, what, "", "", "skipped: not done within its time"});
    else
      table.add(step, {ran.code == 0 && failed.empty() ? Verdict::kOk : Verdict::kFailed, what, "", "",
                       ran.code == 99 ? "it found errors" : failed});
  }
}

int run_all(const Arguments& a) {
  const auto wanted = [&](const std::string& name) {
    return a.steps.empty() || std::find(a.steps.begin(), a.steps.end(), name) != a.steps.end();
  };
  for (const std::string& s : a.steps) {
    if (s != "sanitizer" && std::none_of(std::begin(kSteps), std::end(kSteps), [&](const Step& k) { return s == k.name; }))
      usage("there is no step " + s);
  }
  Table table;
  for (const Step& step : kSteps) {
    if (wanted(step.name)) run_step(a, step, table);
  }
  if (wanted("sanitizer")) run_sanitizer(a, table);
  const bool wrong = table.has(Verdict::kFailed), missed = table.has(Verdict::kMissed);
  const std::string verdict = wrong    ? "something is wrong."
                              : missed ? "all is right; some figures are worse than predicted."
                                       : "all is right, and as fast as predicted.";
  std::printf("\n%s\n%s\n", table.text("", "").c_str(), a.options.emulated ? (wrong ? "something is wrong." : "all is right.") : verdict.c_str());
  if (!a.results.empty() && !a.options.emulated && !table.device().empty()) table.write(a.results, verdict);
  return wrong ? 1 : missed ? 2 : 0;
}

int run_only(const Arguments& a) {
  for (const Step& step : kSteps) {
    if (a.only != step.name) continue;
    Check check(a.options);
    step.run(check);
    return 0;
  }
  usage("there is no step " + a.only);
}

}  // namespace
}  // namespace barg::check

int main(int argc, char** argv) {
  const auto arguments = barg::check::parse(argc, argv);
  return arguments.only.empty() ? barg::check::run_all(arguments) : barg::check::run_only(arguments);
}
