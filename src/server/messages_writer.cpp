#include "server/messages_writer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "server/messages_error.h"
#include "server/messages_ids.h"
#include "server/partial_json.h"

namespace barg::server {
namespace {

using text::OutputEvent;
constexpr std::string_view kSpace = " \t\r\n";

void append_event(std::string_view type, std::string_view rest, std::string& out) {
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += '"';
  out += rest;
  out += "}\n\n";
}

Json usage_json(std::int64_t prompt, const UsageCounts& usage) {
  return Json::object({{"input_tokens", prompt - usage.cached},
                       {"cache_creation_input_tokens", 0},
                       {"cache_read_input_tokens", usage.cached},
                       {"output_tokens", usage.output},
                       {"output_tokens_details", Json::object({{"thinking_tokens", usage.reasoning}})}});
}

class MessagesWriter final : public AnswerWriter {
 public:
  explicit MessagesWriter(AnswerContext context)
      : context_(std::move(context)),
        stream_(context_.spec->stream),
        extras_(std::static_pointer_cast<const MessagesExtras>(context_.spec->extras)) {
    CHECK(context_.n == 1 && context_.prompts.size() == 1);
  }

  void begin(std::string& out) override;
  void prompt(std::size_t, std::span<const TokenLogprobs>, std::string&) override {}
  void push(std::size_t, Piece& piece, const UsageCounts&, std::string& out) override;
  void finish_choice(std::size_t, const ChoiceEnd& end, const UsageCounts&, std::string& out) override;
  void end(const UsageCounts& usage, std::string& out) override;
  std::string body() override;
  void fail(const Error& error, std::string& out) override;

 private:
  enum class Block : std::uint8_t { kNone, kThinking, kText, kTool };

  void take(OutputEvent& event, std::string& out);
  void take_text(std::string& text, std::string& out);
  void start_tool(const OutputEvent& event, std::string& out);
  void open(Block block, Json content, std::string& out);
  void delta(std::string_view type, std::string_view field, std::string_view text, std::string& out);
  void close(bool complete, std::string& out);
  Json message(Json usage) const;
  const char* stop_reason() const;
  Json own_members() const;

  const AnswerContext context_;
  const bool stream_;
  const std::shared_ptr<const MessagesExtras> extras_;

  Block block_ = Block::kNone;
  std::string index_;          ///< of the open block, or of the next one, as text
  std::size_t blocks_ = 0;     ///< started
  std::string space_;          ///< white space that may begin a text block
  bool arguments_ = false;     ///< of the open call have begun
  std::string use_id_;         ///< of the open call
  Json::Array incomplete_;     ///< ids of calls that the answer broke off in
  std::optional<Sha256> thought_;
  ChoiceEnd end_;
  Json usage_;

  // Unstreamed only.
  Json content_;               ///< of the open block, as it began
  std::string text_;           ///< what it has become
  std::string finished_;       ///< blocks, as JSON, with commas between them
};

Json MessagesWriter::message(Json usage) const {
  return Json::object({{"id", context_.meta.id},
                       {"type", "message"},
                       {"role", "assistant"},
                       {"model", context_.meta.model},
                       {"content", Json::array()},
                       {"stop_reason", nullptr},
                       {"stop_sequence", nullptr},
                       {"usage", std::move(usage)}});
}

/// What is cached is not known yet: message_delta says it.
void MessagesWriter::begin(std::string& out) {
  if (!stream_) return;
  const auto prompt = static_cast<std::int64_t>(context_.prompts[0].ids.size());
  append_event("message_start", ",\"message\":" + dump_json(message(usage_json(prompt, {}))), out);
}

void MessagesWriter::open(Block block, Json content, std::string& out) {
  block_ = block;
  index_ = std::to_string(blocks_++);
  if (block == Block::kThinking) thought_.emplace();
  arguments_ = false;
  if (stream_) {
    append_event("content_block_start", ",\"index\":" + index_ + ",\"content_block\":" + dump_json(content), out);
  } else {
    content_ = std::move(content);
  }
}

/// The event of nearly every token: put together as text.
void MessagesWriter::delta(std::string_view type, std::string_view field, std::string_view text, std::string& out) {
  if (text.empty()) return;
  if (!stream_) {
    text_ += text;
    return;
  }
  out += "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
  out += index_;
  out += ",\"delta\":{\"type\":\"";
  out += type;
  out += "\",\"";
  out += field;
  out += "\":";
  append_json_quoted(out, text);
  out += "}}\n\n";
}

/// `complete`: a call's arguments are whole.
void MessagesWriter::close(bool complete, std::string& out) {
  const Block block = std::exchange(block_, Block::kNone);
  if (block == Block::kNone) return;
  std::string signature;
  if (block == Block::kThinking) {
    signature = thought_signature(extras_ ? extras_->thought_key : std::string(), thought_->finish());
    thought_.reset();
  }
  if (stream_) {
    if (!signature.empty()) delta("signature_delta", "signature", signature, out);
    append_event("content_block_stop", ",\"index\":" + index_, out);
    return;
  }
  std::string text = std::exchange(text_, {});
  std::string json;
  if (block == Block::kTool) {
    const std::string input = complete && arguments_ ? std::move(text) : closed_json_object(text);
    json = dump_json(content_);
    json.pop_back();
    json += ",\"input\":" + input + "}";
  } else {
    content_.set(block == Block::kText ? "text" : "thinking", std::move(text));
    if (block == Block::kThinking) content_.set("signature", std::move(signature));
    json = dump_json(content_);
  }
  finished_ += (finished_.empty() ? "" : ",") + json;
}

void MessagesWriter::take_text(std::string& text, std::string& out) {
  if (block_ == Block::kText) return delta("text_delta", "text", text, out);
  space_ += text;  // white space so far: only what is new is looked at
  if (text.find_first_not_of(kSpace) == std::string::npos) return;
  close(false, out);
  open(Block::kText, Json::object({{"type", "text"}, {"text", ""}}), out);
  delta("text_delta", "text", std::exchange(space_, {}), out);
}

void MessagesWriter::start_tool(const OutputEvent& event, std::string& out) {
  close(false, out);
  Json content = Json::object(
      {{"type", "tool_use"},
       {"id", tool_use_id(context_.meta.id, static_cast<std::size_t>(std::max(event.call, 0)), event.native_id)},
       {"name", event.text}});
  use_id_ = content.find("id")->as_string();
  if (!event.declared) content.set("undeclared", true);
  if (stream_) content.set("input", Json::object());
  open(Block::kTool, std::move(content), out);
}

void MessagesWriter::take(OutputEvent& event, std::string& out) {
  if (event.kind == OutputEvent::Kind::kText) return take_text(event.text, out);
  space_.clear();
  switch (event.kind) {
    case OutputEvent::Kind::kReasoning:
      if (!context_.spec->reasoning.show) return;
      if (block_ != Block::kThinking) {
        close(false, out);
        open(Block::kThinking, Json::object({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}), out);
      }
      thought_->update(event.text);
      return delta("thinking_delta", "thinking", event.text, out);
    case OutputEvent::Kind::kToolStart:
      return start_tool(event, out);
    case OutputEvent::Kind::kToolArgs: {
      // Clients parse what has come so far: it has to begin with the object.
      const std::size_t start = arguments_ ? 0 : event.text.find_first_not_of(kSpace);
      if (start == std::string::npos || block_ != Block::kTool) return;
      arguments_ = true;
      return delta("input_json_delta", "partial_json", std::string_view(event.text).substr(start), out);
    }
    case OutputEvent::Kind::kToolEnd:
      if (!event.complete) incomplete_.emplace_back(use_id_);
      return close(event.complete, out);
    case OutputEvent::Kind::kText:
      return;
  }
}

void MessagesWriter::push(std::size_t, Piece& piece, const UsageCounts&, std::string& out) {
  for (OutputEvent& event : piece.events) take(event, out);
}

void MessagesWriter::finish_choice(std::size_t, const ChoiceEnd& end, const UsageCounts&, std::string& out) {
  if (!space_.empty() && blocks_ == 0) {  // all that the model said
    open(Block::kText, Json::object({{"type", "text"}, {"text", ""}}), out);
    delta("text_delta", "text", space_, out);
  }
  close(false, out);
  end_ = end;
}

const char* MessagesWriter::stop_reason() const {
  if (end_.stop_string >= 0) return "stop_sequence";
  if (end_.finish == FinishReason::kLength) return "max_tokens";
  return end_.complete_calls > 0 ? "tool_use" : "end_turn";
}

/// What is ours, beside the usage.
Json MessagesWriter::own_members() const {
  Json out = Json::object();
  if (!end_.note.empty()) out.set("tool_parse_error", end_.note);
  if (!incomplete_.empty()) out.set("incomplete_tool_uses", Json(incomplete_));
  return out;
}

void MessagesWriter::end(const UsageCounts& usage, std::string& out) {
  usage_ = usage_json(usage.prompt, usage);
  if (!stream_) return;
  Json delta = Json::object({{"stop_reason", stop_reason()}, {"stop_sequence", nullptr}});
  if (end_.stop_string >= 0)
    delta.set("stop_sequence", context_.spec->stop[static_cast<std::size_t>(end_.stop_string)]);
  std::string rest = ",\"delta\":" + dump_json(delta) + ",\"usage\":" + dump_json(usage_);
  const Json ours = own_members();
  for (const auto& [name, value] : ours.as_object()) rest += "," + json_quote(name) + ":" + dump_json(value);
  append_event("message_delta", rest, out);
  append_event("message_stop", "", out);
}

std::string MessagesWriter::body() {
  Json out = message(usage_);
  out.set("stop_reason", stop_reason());
  if (end_.stop_string >= 0)
    out.set("stop_sequence", context_.spec->stop[static_cast<std::size_t>(end_.stop_string)]);
  const Json ours = own_members();
  for (const auto& [name, value] : ours.as_object()) out.set(name, value);
  // The blocks are JSON already: as a tree, an answer takes many times the memory of its text.
  std::string text = dump_json(out);
  constexpr std::string_view kContent = "\"content\":[";
  text.insert(text.find(kContent) + kContent.size(), finished_);
  return text;
}

void MessagesWriter::fail(const Error& error, std::string& out) {
  out += "event: error\ndata: " + dump_json(messages_error_json(error)) + "\n\n";
}

}  // namespace

std::unique_ptr<AnswerWriter> make_messages_writer(AnswerContext context) {
  return std::make_unique<MessagesWriter>(std::move(context));
}

}  // namespace barg::server
