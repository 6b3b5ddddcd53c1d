// barg: flags and environment to a command, nothing else. The only place that reads the environment.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli.h"
#include "cli/exit_codes.h"

extern char** environ;

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a client that leaves is an error of one write, not the end of the process
  barg::cli::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    const bool wanted = text.starts_with("BARG_") || text.starts_with("HOME=") || text.starts_with("XDG_STATE_HOME=");
    if (equals == std::string_view::npos || !wanted) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  barg::cli::Io io{.in = std::cin,
                   .out = std::cout,
                   .err = std::cerr,
                   .err_is_terminal = isatty(STDERR_FILENO) != 0,
                   .in_is_terminal = isatty(STDIN_FILENO) != 0};
  const int code = barg::cli::run(std::vector<std::string>(argv + 1, argv + argc), environment, io);
  std::cout.flush();
  // Threads may still wait for the device: nothing that they use may go before them.
  if (code == barg::cli::kExitDeviceLost) std::_Exit(code);
  return code;
}
