// Server-sent events as they lie in a body, line by line: the rules ask about lines that a client would skip. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "conform/wire.h"

namespace barg::conform {

/// The lines up to one blank line.
struct SseEvent {
  std::string event;  ///< of the last event: line
  std::string data;   ///< data: lines, joined by LF
  int data_lines = 0;
  int event_lines = 0;
  std::vector<std::string> others;  ///< id:, retry:, and lines that are none of them
  std::string raw;                  ///< as sent, without the blank line
  double at = 0;                    ///< when its last byte came
};

struct SseStream {
  std::vector<SseEvent> events;  ///< comments alone make none
  std::vector<double> comments;  ///< when each came
  std::string rest;              ///< behind the last blank line
  bool carriage_returns = false;
};

SseStream read_sse(const Exchange& exchange);

}  // namespace barg::conform
