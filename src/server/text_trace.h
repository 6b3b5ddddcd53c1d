// TextTrace: which bytes of a choice's output became text of its answer, and where in that text they stand. Told from
// outside the OutputParser, by what goes in a character at a time and what comes out for it, so that no reader of a
// dialect has to carry positions.
//
//   in   <think> \n h m </think> \n \n Y e s .
//   text                              [0 1 2 3]
//
// Between two calls of took() the bytes that the parser decided about are a window; what it said in that time is looked
// for there. A window is nearly always one character, or as long as what came of it.
//
// Amortised linear; what is undecided is kept (the parser bounds it), and one run for each stretch of text that nobody
// has asked about yet. State of one choice; not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "text/output_events.h"

namespace barg::server {

class TextTrace {
 public:
  /// The end of a list of events.
  struct Mark {
    std::size_t events = 0, bytes = 0;  ///< `bytes` of the last one's text
  };
  static Mark end_of(const text::OutputEvents& events) {
    return {.events = events.size(), .bytes = events.empty() ? 0 : events.back().text.size()};
  }

  /// The parser is given these.
  void give(std::string_view bytes) { waiting_ += bytes; }
  /// Behind `since` came what it said of them; of all that it was given the last `held` bytes are undecided.
  void took(const text::OutputEvents& events, Mark since, std::size_t held);

  struct Range {
    std::size_t begin = 0, end = 0;  ///< in all text of the choice; equal: no byte is text
  };
  /// Of the bytes [begin, end) that went in. REQUIRES them decided, and `begin` not before that of an earlier call.
  Range find(std::size_t begin, std::size_t end);

 private:
  struct Run {
    std::size_t begin, end, text;
  };
  void add(std::size_t begin, std::size_t size);
  std::string_view window(std::size_t size) const { return std::string_view(waiting_).substr(head_, size); }

  std::string waiting_;        ///< went in and, from head_ on, is undecided
  std::size_t head_ = 0;
  std::size_t decided_ = 0;    ///< bytes that went in before head_
  std::size_t text_ = 0;       ///< bytes of text so far
  std::deque<Run> runs_;
};

}  // namespace barg::server
