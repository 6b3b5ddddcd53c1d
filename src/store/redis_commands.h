// Commands as bytes of RESP. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace barg::store {

inline void append_bulk(std::string& out, std::string_view s) {
  out += '$';
  out += std::to_string(s.size());
  out += "\r\n";
  out += s;
  out += "\r\n";
}

inline std::string resp_command(std::initializer_list<std::string_view> words) {
  std::string out = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string_view w : words) append_bulk(out, w);
  return out;
}

/// What stands before and after the bytes of the value in SET name value [EX ttl].
struct SetCommand {
  std::string head, tail;
};
inline SetCommand resp_set(std::string_view name, std::uint64_t value_bytes, std::uint64_t ttl_s) {
  SetCommand c;
  c.head = ttl_s > 0 ? "*5\r\n" : "*3\r\n";
  append_bulk(c.head, "SET");
  append_bulk(c.head, name);
  c.head += "$" + std::to_string(value_bytes) + "\r\n";
  c.tail = "\r\n";
  if (ttl_s > 0) {
    append_bulk(c.tail, "EX");
    append_bulk(c.tail, std::to_string(ttl_s));
  }
  return c;
}

}  // namespace barg::store
