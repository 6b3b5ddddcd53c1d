#include "text/output_sink.h"

#include "base/check.h"
#include "base/utf8.h"

namespace barg::text {

const ToolInfo* OutputSink::find_tool(std::string_view name) const {
  if (!tools_) return nullptr;
  for (const ToolInfo& tool : *tools_) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

void OutputSink::append(OutputEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  CHECK(out_ != nullptr);
  const std::int32_t call = kind == OutputEvent::Kind::kToolArgs ? call_ : -1;
  if (!out_->empty() && out_->back().kind == kind && out_->back().call == call) {
    out_->back().text += text;
    return;
  }
  OutputEvent event;
  event.kind = kind;
  event.text = text;
  event.call = call;
  out_->push_back(std::move(event));
}

void OutputSink::start(std::string_view name, std::string_view native_id) {
  const ToolInfo* tool = find_tool(name);
  custom_ = tool && tool->custom;
  if (custom_) custom_input_.begin();
  OutputEvent event;
  event.kind = OutputEvent::Kind::kToolStart;
  event.text = name;
  event.call = ++call_;
  event.native_id = native_id;
  event.declared = tool != nullptr;
  out_->push_back(std::move(event));
}

void OutputSink::args(std::string_view json) {
  if (!custom_) return append(OutputEvent::Kind::kToolArgs, json);
  std::string input;
  custom_input_.push(json, input);
  append(OutputEvent::Kind::kToolArgs, input);
}

void OutputSink::end(bool complete) {
  OutputEvent event;
  event.kind = OutputEvent::Kind::kToolEnd;
  event.call = call_;
  event.complete = complete;
  if (complete) ++complete_;
  out_->push_back(std::move(event));
}

void CustomInput::begin() {
  state_ = State::kOpen;
  before_.clear();
  escape_.clear();
}

void CustomInput::push(std::string_view json, std::string& out) {
  for (const char c : json) push(c, out);
}

void CustomInput::push(char c, std::string& out) {
  if (state_ == State::kText) return text(c, out);
  if (state_ == State::kDone) return;
  if (state_ == State::kRaw) {
    out += c;
    return;
  }
  before_ += c;
  const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
  switch (state_) {
    case State::kOpen:
      if (c == '{') state_ = State::kFirst;
      return;
    case State::kFirst:
      if (c == '"') state_ = State::kKey;
      if (c == '}') state_ = State::kDone;
      return;
    case State::kKey:
      if (!escape_.empty()) {
        escape_.clear();
      } else if (c == '\\') {
        escape_ = c;
      } else if (c == '"') {
        state_ = State::kColon;
      }
      return;
    case State::kColon:
      if (c == ':') state_ = State::kValue;
      return;
    case State::kValue:
      if (space) return;
      state_ = c == '"' ? State::kText : State::kRaw;
      if (state_ == State::kRaw) out += before_;
      before_.clear();
      return;
    default: return;
  }
}

/// Escapes are those that ValueReader writes: short ones, and \u00XX of control characters.
void CustomInput::text(char c, std::string& out) {
  if (escape_.empty()) {
    if (c == '\\') {
      escape_ = c;
    } else if (c == '"') {
      state_ = State::kDone;
    } else {
      out += c;
    }
    return;
  }
  escape_ += c;
  if (escape_[1] == 'u') {
    if (escape_.size() < 6) return;
    append_utf8(out, static_cast<char32_t>(std::stoul(escape_.substr(2), nullptr, 16)));
  } else {
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
  }
  escape_.clear();
}

}  // namespace barg::text
