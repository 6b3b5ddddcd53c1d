// StreamView: a streamed answer of chat completions or completions as a strict client accumulates it, with what it had
// to notice on the way. Made once, then constant. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "conform/sse.h"

namespace barg::conform {

struct StreamedCall {
  std::string id, name, arguments;
  int ids = 0, names = 0;  ///< deltas that carry one
};

struct StreamedChoice {
  std::string text;
  std::string reasoning;        ///< of reasoning_content
  std::string reasoning_alias;  ///< of reasoning
  bool reasoning_after_text = false;
  int roles = 0;
  std::vector<std::string> finishes;
  std::vector<StreamedCall> calls;
  std::string call_problem;  ///< "" or how the indices of the calls are wrong
  Json::Array logprobs;      ///< entries of chat
};

struct Chunk {
  Json json;
  std::size_t event = 0;  ///< of sse.events
};

struct StreamView {
  SseStream sse;
  std::vector<Chunk> chunks;          ///< events that are JSON objects
  std::optional<std::size_t> broken;  ///< the first event that is neither that nor [DONE]
  int done = 0;                       ///< how many [DONE]
  std::map<std::int64_t, StreamedChoice> choices;
  const std::string& raw(const Chunk& chunk) const { return sse.events[chunk.event].raw; }
  /// The usage object that came last; null if none.
  Json usage;
};

StreamView view_stream(const Exchange& exchange);

/// JSON of a server: bounded, duplicates tolerated. Nothing unless it is one document.
std::optional<Json> read_json(std::string_view bytes);

}  // namespace barg::conform
