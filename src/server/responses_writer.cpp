#include "server/responses_writer.h"

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "server/api_error.h"
#include "server/logprobs_json.h"
#include "server/responses_ids.h"
#include "server/responses_seal.h"

namespace barg::server {
namespace {

using text::OutputEvent;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxNativeId = 128;

std::string quoted(std::string_view text) { return json_quote(text); }

Json failure_json(const Error& error) {
  const Json shown = error_json(error);  // what is our own fault says no more than that
  return Json::object({{"code", std::string(response_failure_code(error_shape(error.code).status))},
                       {"message", *shown.find("error")->find("message")}});
}

Json usage_json(const UsageCounts& usage) {
  const auto& [device, dram, disk, remote] = usage.by_place;
  const Json by_tier = Json::object({{"device", device}, {"dram", dram}, {"disk", disk}, {"remote", remote}});
  return Json::object({{"input_tokens", usage.prompt},
                       {"input_tokens_details", Json::object({{"cached_tokens", usage.cached},
                                                              {"cache_write_tokens", 0},
                                                              {"cached_tokens_by_tier", by_tier}})},
                       {"output_tokens", usage.output},
                       {"output_tokens_details", Json::object({{"reasoning_tokens", usage.reasoning}})},
                       {"total_tokens", usage.prompt + usage.output}});
}

enum class Kind : std::uint8_t { kNone, kReasoning, kMessage, kFunction, kCustom };

/// What is known of a kind of item before it has any content.
struct KindRow {
  std::string_view prefix, type, delta, done,
      field;  ///< names of its delta and done events and of the text in the latter
};
constexpr std::array<KindRow, 5> kKinds = {{
    {"", "", "", "", ""},
    {"rs", "reasoning", "response.reasoning_text.delta", "response.reasoning_text.done", "text"},
    {"msg", "message", "response.output_text.delta", "response.output_text.done", "text"},
    {"fc", "function_call", "response.function_call_arguments.delta", "response.function_call_arguments.done",
     "arguments"},
    {"ctc", "custom_tool_call", "response.custom_tool_call_input.delta",
     "response.custom_tool_call_input.done", "input"},
}};

class ResponsesWriter final : public AnswerWriter {
 public:
  explicit ResponsesWriter(AnswerContext context)
      : context_(std::move(context)),
        stream_(context_.spec->stream),
        extras_(std::dynamic_pointer_cast<const ResponsesExtras>(context_.spec->extras)) {
    CHECK(extras_ && context_.n == 1);
    members_ = dump_json(extras_->object).substr(1);
  }
  ~ResponsesWriter() override;

  void begin(std::string& out) override;
  void prompt(std::size_t, std::span<const TokenLogprobs>, std::string&) override {}
  void push(std::size_t, Piece& piece, const UsageCounts&, std::string& out) override;
  void finish_choice(std::size_t, const ChoiceEnd& end, const UsageCounts&, std::string& out) override;
  void end(const UsageCounts& usage, std::string& out) override;
  std::string body() override { return final_object_; }
  void fail(const Error& error, std::string& out) override;

 private:
  /// The item that is being written.
  struct Open {
    Kind kind = Kind::kNone;
    std::string id, where;  ///< `where`: "item_id" and indices, as all its events have them
    std::string text;
    std::string name, space, call_id;
    bool declared = true;
    std::size_t text_begin = 0;  ///< of a message, in all text of the choice
    std::string logprobs;        ///< entries, with commas between them
  };
  /// A token's log-probability on its way to the delta that shows the token.
  struct Entry {
    std::size_t begin, end;  ///< of its text, in all text of the choice
    std::string json;
  };

  StoredResponse* record() const { return stored_ ? extras_->record.get() : nullptr; }
  const KindRow& row() const { return kKinds[static_cast<std::size_t>(open_.kind)]; }
  void event(std::string_view type, std::string_view members, std::string& out);
  void response_event(std::string_view type, const std::string& object, std::string& out);
  std::string object(std::string_view status, const Json& usage, const Json& error = nullptr) const;
  void keep(const std::string& shown);
  void start_work(std::string& out);
  void take(OutputEvent& event, std::string& out);
  void take_blank_or(Kind kind, std::string& text, std::string& out);
  void open(Kind kind, std::string& out);
  void open_call(const OutputEvent& event, std::string& out);
  void delta(std::string_view text, std::string& out);
  void close(bool complete, std::string& out);
  std::string part_json() const;
  std::string item_json(std::string_view status, bool whole) const;
  std::string call_id(const OutputEvent& event);
  void take_logprobs(const Piece& piece);
  std::string shown_logprobs();
  void finish(std::string_view type, std::string_view status, const Json& usage, const Json& error,
              std::string& out);
  void cancel(std::string& out);
  /// Tells the record of events from `start` on.
  void tell(const std::string& out, std::size_t start, std::size_t before);

  const AnswerContext context_;
  const bool stream_;
  const std::shared_ptr<const ResponsesExtras> extras_;
  std::string members_;  ///< of the object, as the request decided them, up to the closing brace
  double seconds_ = 0;  ///< that the answer took
  bool stored_ = false, begun_ = false, working_ = false, over_ = false;
  std::size_t sequence_ = 0;  ///< of the next event

  Open open_;
  std::string blank_;  ///< white space that may begin an item
  Kind blank_kind_ = Kind::kNone;
  std::size_t text_ = 0;      ///< bytes of all text events so far
  std::deque<Entry> entries_;  ///< of text that no delta has shown
  std::size_t items_ = 0;       ///< begun
  std::string finished_;        ///< items, as JSON, with commas between them
  std::set<std::string> call_ids_;
  ChoiceEnd end_;
  std::string final_object_;
};

// ---- events

void ResponsesWriter::event(std::string_view type, std::string_view members, std::string& out) {
  if (!stream_) return;
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += "\",\"sequence_number\":";
  out += std::to_string(sequence_++);
  out += ',';
  out += members;
  out += "}\n\n";
}

void ResponsesWriter::response_event(std::string_view type, const std::string& object, std::string& out) {
  if (stream_) event(type, "\"response\":" + object, out);
}

void ResponsesWriter::tell(const std::string& out, std::size_t start, std::size_t before) {
  if (!record() || sequence_ == before) return;
  if (record()->append(std::string_view(out).substr(start), sequence_ - before))
    extras_->store->recharge(context_.meta.id);
}

/// The output is text already, and the one part that grows; the rest is put around it.
std::string ResponsesWriter::object(std::string_view status, const Json& usage, const Json& error) const {
  const bool ended = status != "queued" && status != "in_progress";
  Json head = Json::object({{"id", context_.meta.id},
                            {"object", "response"},
                            {"created_at", context_.meta.created},
                            {"status", std::string(status)},
                            {"background", extras_->background},
                            {"completed_at", status == "completed" ? Json(context_.meta.created + static_cast<std::int64_t>(seconds_)) : Json(nullptr)},
                            {"error", error},
                            {"incomplete_details", nullptr},
                            {"model", context_.meta.model},
                            {"store", stored_}});
  if (status == "incomplete") head.set("incomplete_details", Json::object({{"reason", "max_output_tokens"}}));
  if (ended && !end_.note.empty()) head.set("tool_parse_error", end_.note);
  std::string out = dump_json(head);
  out.pop_back();
  out += ",\"output\":[" + (ended ? finished_ : std::string()) + "],\"usage\":" + dump_json(usage) + ",";
  return out += members_;
}

// ---- items

std::string ResponsesWriter::part_json() const {
  if (open_.kind == Kind::kReasoning)
    return "{\"type\":\"reasoning_text\",\"text\":" + quoted(open_.text) + "}";
  return "{\"type\":\"output_text\",\"text\":" + quoted(open_.text) + ",\"annotations\":[],\"logprobs\":[" +
         open_.logprobs + "]}";
}

std::string ResponsesWriter::item_json(std::string_view status, bool whole) const {
  std::string out = "{\"id\":" + quoted(open_.id) + ",\"type\":\"" + std::string(row().type) +
                    "\",\"status\":\"" + std::string(status) + "\"";
  if (open_.kind == Kind::kReasoning) {
    const bool shown = whole && context_.spec->reasoning.show;
    out += ",\"summary\":[],\"content\":[" + (shown ? part_json() : std::string()) + "]";
    if (whole && extras_->seal) {
      const std::string sealed = seal_reasoning(extras_->secret, extras_->owner, open_.text);
      if (!sealed.empty()) out += ",\"encrypted_content\":" + quoted(sealed);
    }
  } else if (open_.kind == Kind::kMessage) {
    out += ",\"role\":\"assistant\",\"content\":[" + (whole ? part_json() : std::string()) + "]";
  } else {
    out += ",\"call_id\":" + quoted(open_.call_id) + ",\"name\":" + quoted(open_.name);
    if (!open_.space.empty()) out += ",\"namespace\":" + quoted(open_.space);
    if (!open_.declared) out += ",\"undeclared\":true";
    out += ",\"" + std::string(row().field) + "\":" + quoted(open_.text);
  }
  return out += "}";
}

void ResponsesWriter::open(Kind kind, std::string& out) {
  open_.kind = kind;
  open_.id = item_id(row().prefix, context_.meta.id, items_);
  const std::string index = std::to_string(items_++);
  const bool parted = kind == Kind::kReasoning || kind == Kind::kMessage;
  open_.where = "\"item_id\":" + quoted(open_.id) + ",\"output_index\":" + index +
                (parted ? ",\"content_index\":0" : "");
  if (!stream_) return;
  event("response.output_item.added",
        "\"output_index\":" + index + ",\"item\":" + item_json("in_progress", false), out);
  if (parted && !(kind == Kind::kReasoning && !context_.spec->reasoning.show))
    event("response.content_part.added", open_.where + ",\"part\":" + part_json(), out);
}

/// The model's own id where it can serve as one: it comes back in the history. Two calls never share one.
std::string ResponsesWriter::call_id(const OutputEvent& event) {
  std::string id = event.native_id;
  if (id.empty() || id.size() > kMaxNativeId || call_ids_.contains(id))
    id = item_id("call", context_.meta.id, items_);
  call_ids_.insert(id);
  return id;
}

void ResponsesWriter::open_call(const OutputEvent& event, std::string& out) {
  close(true, out);
  open_.call_id = call_id(event);
  open_.name = event.text;
  open_.declared = event.declared;
  const auto& tools = context_.spec->tools.tools;
  const bool custom = std::any_of(tools.begin(), tools.end(),
                                  [&](const ToolSpec& t) { return t.custom && t.name == event.text; });
  for (const NamespacedTool& tool : extras_->spaces) {
    if (tool.flat != event.text) continue;
    open_.space = tool.space;
    open_.name = tool.name;
  }
  open(custom ? Kind::kCustom : Kind::kFunction, out);
}

/// Entries of tokens that the message has shown by now; those before it were of white space that makes no item.
std::string ResponsesWriter::shown_logprobs() {
  std::string out;
  for (; !entries_.empty() && entries_.front().begin < text_; entries_.pop_front()) {
    if (entries_.front().end <= open_.text_begin) continue;
    if (!out.empty()) out += ',';
    out += entries_.front().json;
  }
  if (!open_.logprobs.empty() && !out.empty()) open_.logprobs += ',';
  open_.logprobs += out;
  return out;
}

/// The event of nearly every token: put together as text.
void ResponsesWriter::delta(std::string_view text, std::string& out) {
  open_.text += text;
  std::string logprobs;
  if (open_.kind == Kind::kMessage) logprobs = shown_logprobs();
  if (!stream_ || (text.empty() && logprobs.empty()) ||
      (open_.kind == Kind::kReasoning && !context_.spec->reasoning.show))
    return;
  std::string members = open_.where + ",\"delta\":";
  append_json_quoted(members, text);
  if (open_.kind == Kind::kMessage) members += ",\"logprobs\":[" + logprobs + "]";
  event(row().delta, members, out);
}

void ResponsesWriter::close(bool complete, std::string& out) {
  if (open_.kind == Kind::kNone) return;
  const Kind kind = open_.kind;
  if (kind == Kind::kMessage) delta("", out);  // entries that came after their text
  const std::string item = item_json(complete ? "completed" : "incomplete", true);
  if (stream_) {
    const bool hidden = kind == Kind::kReasoning && !context_.spec->reasoning.show;
    std::string done = open_.where + ",\"" + std::string(row().field) + "\":" + quoted(open_.text);
    if (kind == Kind::kMessage) done += ",\"logprobs\":[" + open_.logprobs + "]";
    if (kind == Kind::kFunction) done += ",\"name\":" + quoted(open_.name);
    if (!hidden) event(row().done, done, out);
    if (!hidden && (kind == Kind::kReasoning || kind == Kind::kMessage))
      event("response.content_part.done", open_.where + ",\"part\":" + part_json(), out);
    event("response.output_item.done", "\"output_index\":" + std::to_string(items_ - 1) + ",\"item\":" + item,
          out);
  }
  if (!finished_.empty()) finished_ += ',';
  finished_ += item;
  open_ = {};
}

/// Text or reasoning. White space waits until something follows it in the same run.
void ResponsesWriter::take_blank_or(Kind kind, std::string& text, std::string& out) {
  if (open_.kind == kind) {
    blank_.clear();
    return delta(text, out);
  }
  if (blank_kind_ != kind) blank_.clear();
  blank_kind_ = kind;
  blank_ += text;  // white space so far: only what is new is looked at
  if (text.find_first_not_of(kSpace) == std::string::npos) return;
  close(true, out);
  open_.text_begin = text_ - std::min(text_, blank_.size());
  open(kind, out);
  delta(std::exchange(blank_, {}), out);
}

void ResponsesWriter::take(OutputEvent& event, std::string& out) {
  switch (event.kind) {
    case OutputEvent::Kind::kReasoning:
      return take_blank_or(Kind::kReasoning, event.text, out);
    case OutputEvent::Kind::kText:
      text_ += event.text.size();
      return take_blank_or(Kind::kMessage, event.text, out);
    case OutputEvent::Kind::kToolStart:
      blank_.clear();
      return open_call(event, out);
    case OutputEvent::Kind::kToolArgs:
      return delta(event.text, out);
    case OutputEvent::Kind::kToolEnd:
      return close(event.complete, out);
  }
}

/// Log-probabilities belong to messages: other tokens have no place.
void ResponsesWriter::take_logprobs(const Piece& piece) {
  if (!context_.spec->logprobs) return;
  for (const OutToken& token : piece.tokens) {
    if (!token.has_text()) continue;
    entries_.push_back({.begin = token.text_begin,
                        .end = token.text_end,
                        .json = dump_json(chat_entry(*context_.tokenizer, token, *context_.spec->logprobs))});
  }
}

// ---- the answer

/// What a GET shows is charged when it changes.
void ResponsesWriter::keep(const std::string& shown) {
  record()->begin(shown);
  extras_->store->recharge(context_.meta.id);
}

void ResponsesWriter::begin(std::string& out) {
  const std::size_t start = out.size();
  begun_ = true;
  stored_ = extras_->record && extras_->record->kept();
  const char* status = extras_->background ? "queued" : "in_progress";
  const std::string shown = object(status, nullptr);
  if (record()) {
    keep(shown);
    record()->set_finisher([this](std::string& events) { cancel(events); });
  }
  response_event("response.created", shown, out);
  if (extras_->background) {
    response_event("response.queued", shown, out);
  } else {
    response_event("response.in_progress", shown, out);
    working_ = true;
  }
  tell(out, start, 0);
}

void ResponsesWriter::start_work(std::string& out) {
  if (std::exchange(working_, true)) return;
  const std::string shown = object("in_progress", nullptr);
  if (record()) keep(shown);
  response_event("response.in_progress", shown, out);
}

void ResponsesWriter::push(std::size_t, Piece& piece, const UsageCounts&, std::string& out) {
  if (over_) return;
  const std::size_t start = out.size(), before = sequence_;
  start_work(out);
  take_logprobs(piece);
  for (OutputEvent& event : piece.events) take(event, out);
  tell(out, start, before);
}

void ResponsesWriter::finish_choice(std::size_t, const ChoiceEnd& end, const UsageCounts&, std::string& out) {
  if (over_) return;
  const std::size_t start = out.size(), before = sequence_;
  start_work(out);
  end_ = end;
  if (!blank_.empty() && items_ == 0 && blank_kind_ == Kind::kMessage) {  // all that the model said
    open_.text_begin = text_ - std::min(text_, blank_.size());
    open(Kind::kMessage, out);
    delta(std::exchange(blank_, {}), out);
  }
  close(end.finish != FinishReason::kLength, out);
  tell(out, start, before);
}

void ResponsesWriter::finish(std::string_view type, std::string_view status, const Json& usage,
                             const Json& error, std::string& out) {
  over_ = true;
  const std::size_t start = out.size(), before = sequence_;
  final_object_ = object(status, usage, error);
  response_event(type, final_object_, out);
  tell(out, start, before);
  if (!record()) return;
  record()->finish(final_object_, "[" + finished_ + "]");
  extras_->store->recharge(context_.meta.id);
}

void ResponsesWriter::end(const UsageCounts& usage, std::string& out) {
  if (over_) return;
  const bool cut = end_.finish == FinishReason::kLength;
  seconds_ = usage.seconds;
  finish(cut ? "response.incomplete" : "response.completed", cut ? "incomplete" : "completed",
         usage_json(usage), nullptr, out);
}

void ResponsesWriter::fail(const Error& error, std::string& out) {
  if (over_) return;
  if (!begun_) {
    const Json shown = failure_json(error);
    return event("error",
                 "\"code\":" + dump_json(*shown.find("code")) +
                     ",\"message\":" + dump_json(*shown.find("message")) + ",\"param\":null",
                 out);
  }
  const std::size_t start = out.size(), before = sequence_;
  close(false, out);
  tell(out, start, before);
  finish("response.failed", "failed", nullptr, failure_json(error), out);
}

/// The protocol has no event of its own for it: an answer that ends before its end, and says why in its
/// status.
void ResponsesWriter::cancel(std::string& out) {
  if (over_) return;
  const std::size_t start = out.size(), before = sequence_;
  close(false, out);
  tell(out, start, before);
  finish("response.incomplete", "cancelled", nullptr, nullptr, out);
}

/// Nobody finished it: the server stops.
ResponsesWriter::~ResponsesWriter() {
  if (!record()) return;
  std::string nobody;
  cancel(nobody);
  record()->set_finisher(nullptr);
}

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(AnswerContext context) {
  return std::make_unique<ResponsesWriter>(std::move(context));
}

std::string_view response_failure_code(int status) {
  return status == 429 ? "rate_limit_exceeded" : status < 500 ? "invalid_prompt" : "server_error";
}

std::string failed_response_object(std::string_view object, std::string_view code, std::string_view message) {
  auto parsed = parse_json(object, {.max_members = 0});
  Json out = parsed && parsed->is_object() ? std::move(*parsed) : Json::object();
  out.set("status", "failed");
  out.set("error", Json::object({{"code", std::string(code)}, {"message", std::string(message)}}));
  return dump_json(out);
}

}  // namespace barg::server
