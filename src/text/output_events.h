// OutputEvent: what a model's answer is made of, once its markers have been read. The one event stream that
// every protocol translates (server/answer_writer.h).
//
// The events of a choice read: (kReasoning | kText | kToolStart kToolArgs* kToolEnd)*. Calls neither nest nor
// interleave and are numbered from 0. Texts are whole characters. The kToolArgs of a call that ended complete
// are, joined, one JSON object (of a custom tool: the plain input); of another they are a prefix of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace barg::text {

struct OutputEvent {
  enum class Kind : std::uint8_t { kReasoning, kText, kToolStart, kToolArgs, kToolEnd };

  Kind kind = Kind::kText;
  std::string text;        ///< kReasoning, kText, kToolArgs: a piece; kToolStart: the tool's name
  std::int32_t call = -1;  ///< kTool*: which call
  std::string native_id;   ///< kToolStart: the id that the model wrote, empty if its format has none
  bool declared = true;    ///< kToolStart: the request declares a tool of that name
  bool complete = true;    ///< kToolEnd: false where the answer was cut or broke off inside the call

  bool operator==(const OutputEvent&) const = default;
};

using OutputEvents = std::vector<OutputEvent>;

}  // namespace barg::text
