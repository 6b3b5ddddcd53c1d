#include "conform/sse.h"

#include <algorithm>

namespace barg::conform {
namespace {

// When the byte at `offset` of the body came.
double time_of(const Exchange& exchange, std::size_t offset) {
  const auto it = std::ranges::upper_bound(exchange.packets, offset, {}, &Packet::body_end);
  return it == exchange.packets.end() ? exchange.seconds : it->at;
}

// "data: x" is the field "data" with "x": one space behind the colon belongs to neither.
std::string_view value_of(std::string_view line, std::size_t name_size) {
  std::string_view value = line.substr(std::min(name_size + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

void take_line(SseEvent& event, std::string_view line) {
  if (!event.raw.empty()) event.raw += '\n';
  event.raw += line;
  const std::string_view name = line.substr(0, line.find(':'));
  if (name == "data") {
    if (event.data_lines++ > 0) event.data += '\n';
    event.data += value_of(line, name.size());
  } else if (name == "event") {
    ++event.event_lines;
    event.event = value_of(line, name.size());
  } else {
    event.others.emplace_back(line);
  }
}

}  // namespace

SseStream read_sse(const Exchange& exchange) {
  SseStream out;
  const std::string_view body = exchange.body;
  SseEvent event;
  std::size_t begin = 0;
  std::size_t blank = 0;  // behind the last blank line
  for (std::size_t end; (end = body.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    std::string_view line = body.substr(begin, end - begin);
    if (line.ends_with('\r')) {
      out.carriage_returns = true;
      line.remove_suffix(1);
    }
    if (line.empty()) {
      event.at = time_of(exchange, end);
      if (!event.raw.empty()) out.events.push_back(std::move(event));
      event = {};
      blank = end + 1;
    } else if (line.starts_with(':')) {
      out.comments.push_back(time_of(exchange, end));
    } else {
      take_line(event, line);
    }
  }
  out.rest = body.substr(blank);
  return out;
}

}  // namespace barg::conform
