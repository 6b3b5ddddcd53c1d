// OutputSink: where the readers of a dialect put what they found. It numbers calls, looks names up, joins neighbours
// of one kind, and unwraps the input of custom tools. Private to src/text; one parser owns it, not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/output_events.h"
#include "text/output_parser.h"

namespace barg::text {

/// The plain input of a custom tool, out of JSON arguments: templates show such a tool as a function with one string
/// parameter. The first member, if it is a string, is the input; arguments of another shape are passed as they are.
class CustomInput {
 public:
  void begin();
  /// REQUIRES a prefix of a JSON object as ValueReader writes it.
  void push(std::string_view json, std::string& out);

 private:
  enum class State : std::uint8_t { kOpen, kFirst, kKey, kColon, kValue, kText, kRaw, kDone };
  void push(char c, std::string& out);
  void text(char c, std::string& out);
  State state_ = State::kOpen;
  std::string before_;  ///< what was read before the first value was known
  std::string escape_;
};

class OutputSink {
 public:
  explicit OutputSink(std::shared_ptr<const std::vector<ToolInfo>> tools) : tools_(std::move(tools)) {}

  /// Where events go until the next call.
  void bind(OutputEvents& out) { out_ = &out; }

  void reasoning(std::string_view text) { append(OutputEvent::Kind::kReasoning, text); }
  void text(std::string_view text) { append(OutputEvent::Kind::kText, text); }

  bool has_tools() const { return tools_ && !tools_->empty(); }
  /// nullptr: none of that name.
  const ToolInfo* find_tool(std::string_view name) const;

  void start(std::string_view name, std::string_view native_id);
  void args(std::string_view json);
  /// Input of a custom tool that came as it is.
  void plain_input(std::string_view text) { append(OutputEvent::Kind::kToolArgs, text); }
  void end(bool complete);

  std::int32_t complete_calls() const { return complete_; }
  void note(std::string_view why) {
    if (note_.empty()) note_ = why;
  }
  const std::string& note() const { return note_; }

 private:
  void append(OutputEvent::Kind kind, std::string_view text);

  std::shared_ptr<const std::vector<ToolInfo>> tools_;
  OutputEvents* out_ = nullptr;
  std::int32_t call_ = -1;
  std::int32_t complete_ = 0;
  bool custom_ = false;
  CustomInput custom_input_;
  std::string note_;
};

}  // namespace barg::text
