#include "cli/listen_probe.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace barg::cli {

Result<void> probe_listen(const std::string& host, std::uint16_t port) {
  const std::string where = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0) {
    return fail(ErrorCode::kIo, "cannot listen on " + where + ": " + gai_strerror(code) + ".", "server.host");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (fd < 0)
    return fail(ErrorCode::kIo, "cannot listen on " + where + ": " + std::strerror(errno) + ".",
                "server.host");
  const int on = 1;  // as the server does: a port whose last connections still linger is free
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool ok = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = errno;
  close(fd);
  if (ok) return {};
  const std::string hint =
      error == EADDRINUSE ? "; stop what uses it or choose another one with --port." : ".";
  return fail(ErrorCode::kIo, "cannot listen on " + where + ": " + std::strerror(error) + hint,
              "server.port");
}

}  // namespace barg::cli
