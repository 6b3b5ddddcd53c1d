// The address of a Redis server, from text. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "barg/result.h"

namespace barg::store {

struct RedisUrl {
  std::string host;  ///< name or address (no brackets); empty for a unix socket
  std::uint16_t port = 6379;
  std::string socket_path;  ///< absolute, if the server is reached through a unix socket
  bool tls = false;
  std::string user, password;
  std::int32_t db = 0;

  /// "redis:host:port", "rediss:...", "redis:/path": for people, without secrets.
  std::string name() const;
  /// Reached without leaving this machine, as far as the text tells.
  bool local() const;
};

/// Messages never repeat the text: it may hold a password.
Result<RedisUrl> parse_redis_url(std::string_view text);

}  // namespace barg::store
