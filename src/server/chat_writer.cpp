#include "server/chat_writer.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/hash.h"
#include "server/logprobs_json.h"
#include "server/openai_answer.h"

namespace barg::server {
namespace {

using text::OutputEvent;
using Kind = OutputEvent::Kind;

/// The extras of a chat request are its parser's.
bool uses_functions(const OutputSpec& spec) {
  const auto* extras = static_cast<const ChatExtras*>(spec.extras.get());
  return extras && extras->functions;
}

/// "call_" and 24 letters and digits; a function of the answer's id, so that both modes and every replay agree.
std::string mint_call_id(const std::string& answer, std::size_t choice, std::size_t call) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kLength = 24;
  const std::string seed = answer + "/" + std::to_string(choice) + "/" + std::to_string(call);
  const Digest digest = sha256(seed.data(), seed.size());
  std::string id = "call_";
  for (std::size_t i = 0; i < kLength; ++i) id += kDigits[static_cast<std::size_t>(digest[i]) % kDigits.size()];
  return id;
}

struct Call {
  std::string id, name, arguments;
  bool custom = false, declared = true;
  bool complete = true;  ///< the answer did not break off in its arguments
};

struct Choice {
  std::vector<Call> calls;  ///< of a streamed answer without their arguments
  bool said = false;        ///< some text
  // Unstreamed only.
  std::string text, reasoning;
  std::vector<OutToken> tokens;
  ChoiceEnd end;
};

class ChatWriter final : public AnswerWriter {
 public:
  explicit ChatWriter(AnswerContext context)
      : context_(std::move(context)),
        spec_(*context_.spec),
        functions_(uses_functions(spec_)),
        may_call_(!spec_.tools.tools.empty() && spec_.tools.mode != ToolMode::kNone),
        frame_(context_.meta, spec_, "chat.completion.chunk"),
        choices_(context_.prompts.size() * static_cast<std::size_t>(context_.n)),
        usage_(first_usage(context_)) {}

  void begin(std::string& out) override;
  void prompt(std::size_t, std::span<const TokenLogprobs> logprobs, std::string&) override {
    prompt_logprobs_.assign(logprobs.begin(), logprobs.end());
  }
  void push(std::size_t index, Piece& piece, const UsageCounts& usage, std::string& out) override;
  void finish_choice(std::size_t index, const ChoiceEnd& end, const UsageCounts& usage, std::string& out) override;
  void end(const UsageCounts& usage, std::string& out) override;
  std::string body() override;
  void fail(const Error& error, std::string& out) override { write_failure(error, out); }

 private:
  void start_call(std::size_t index, OutputEvent& event);
  bool says_something(const OutputEvent& event) const;
  void keep(Choice& choice, OutputEvent& event) const;
  void write_delta(const Choice& choice, const OutputEvent& event, std::string& out) const;
  void write_call_delta(const Choice& choice, const OutputEvent& event, std::string& out) const;
  Json piece_logprobs(const Piece& piece) const;
  Json call_json(const Call& call) const;
  Json message(const Choice& choice) const;
  Json finished(std::size_t index, const char* holder, Json content, const ChoiceEnd& end) const;

  const AnswerContext context_;
  const OutputSpec& spec_;
  const bool functions_;
  const bool may_call_;  ///< an answer may have calls and no text: its content is null
  const ChunkFrame frame_;
  std::vector<Choice> choices_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  UsageCounts usage_;
};

/// Clients join contents: behind null comes text or nothing, and behind "" it could not become null again.
void ChatWriter::begin(std::string& out) {
  if (!spec_.stream) return;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    frame_.open_choice(i, out);
    out += ",\"delta\":{\"role\":\"assistant\",\"content\":";
    out += may_call_ ? "null" : "\"\"";
    out += "},\"logprobs\":null,\"finish_reason\":null}";
    frame_.close(usage_, out);
  }
}

/// A native id that the model wrote is kept, unless it wrote it twice.
void ChatWriter::start_call(std::size_t index, OutputEvent& event) {
  std::vector<Call>& calls = choices_[index].calls;
  const bool usable = !event.native_id.empty() && std::none_of(calls.begin(), calls.end(), [&](const Call& c) {
    return c.id == event.native_id;
  });
  const auto& tools = spec_.tools.tools;
  Call call;
  call.id = usable ? event.native_id : mint_call_id(context_.meta.id, index, calls.size());
  call.name = event.text;
  call.declared = event.declared;
  call.custom = std::any_of(tools.begin(), tools.end(),
                            [&](const ToolSpec& t) { return t.custom && t.name == event.text; });
  calls.push_back(std::move(call));
}

/// Does an event leave a trace in the answer? The older API has one call.
bool ChatWriter::says_something(const OutputEvent& event) const {
  switch (event.kind) {
    case Kind::kReasoning:
      return spec_.reasoning.show && !event.text.empty();
    case Kind::kText:
      return !event.text.empty();
    case Kind::kToolStart:
      return !functions_ || event.call == 0;
    case Kind::kToolArgs:
      return !event.text.empty() && (!functions_ || event.call == 0);
    case Kind::kToolEnd:
      break;
  }
  return false;
}

void ChatWriter::keep(Choice& choice, OutputEvent& event) const {
  if (event.kind == Kind::kReasoning) choice.reasoning += event.text;
  if (event.kind == Kind::kText) choice.text += event.text;
  if (event.kind == Kind::kToolArgs) choice.calls.back().arguments += event.text;
}

void ChatWriter::write_call_delta(const Choice& choice, const OutputEvent& event, std::string& out) const {
  const Call& call = choice.calls.back();
  const bool start = event.kind == Kind::kToolStart;
  if (functions_) {
    out += "{\"function_call\":{";
  } else {
    out += "{\"tool_calls\":[{\"index\":";
    char digits[24];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, choice.calls.size() - 1).ptr);
    if (start) {
      out += ",\"id\":";
      append_json_quoted(out, call.id);
      out += call.custom ? ",\"type\":\"custom\"" : ",\"type\":\"function\"";
    }
    out += call.custom ? ",\"custom\":{" : ",\"function\":{";
  }
  if (start) {
    out += "\"name\":";
    append_json_quoted(out, call.name);
    out += ',';
  }
  out += call.custom ? "\"input\":" : "\"arguments\":";
  append_json_quoted(out, start ? std::string_view() : std::string_view(event.text));
  out += functions_ ? "}}" : "}}]}";
}

void ChatWriter::write_delta(const Choice& choice, const OutputEvent& event, std::string& out) const {
  switch (event.kind) {
    case Kind::kText:
      out += "{\"content\":";
      append_json_quoted(out, event.text);
      out += '}';
      return;
    case Kind::kReasoning:
      out += "{\"reasoning_content\":";
      append_json_quoted(out, event.text);
      out += ",\"reasoning\":";
      append_json_quoted(out, event.text);
      out += '}';
      return;
    default:
      return write_call_delta(choice, event, out);
  }
}

Json ChatWriter::piece_logprobs(const Piece& piece) const {
  if (!spec_.logprobs || piece.tokens.empty()) return nullptr;
  return chat_logprobs(*context_.tokenizer, piece.tokens, *spec_.logprobs);
}

/// The ids of a piece go out with its first chunk, log-probabilities with its first text; there is a chunk for them alone
/// where nothing is to be said.
void ChatWriter::push(std::size_t index, Piece& piece, const UsageCounts& usage, std::string& out) {
  static const Json kNone;
  Choice& choice = choices_[index];
  std::span<const OutToken> records = piece.tokens;
  Json logprobs = spec_.stream ? piece_logprobs(piece) : Json();
  const auto is_text = [](const OutputEvent& e) { return e.kind == Kind::kText && !e.text.empty(); };
  const bool has_text = std::any_of(piece.events.begin(), piece.events.end(), is_text);
  choice.said = choice.said || has_text;
  const auto chunk = [&](const OutputEvent* event) {
    const bool here = !has_text || event == nullptr || event->kind == Kind::kText;
    frame_.open_choice(index, out);
    out += ",\"delta\":";
    if (event != nullptr) {
      write_delta(choice, *event, out);
    } else {
      out += "{}";
    }
    frame_.close_piece(here ? logprobs : kNone, records, usage, out);
    if (here) logprobs = nullptr;
    records = {};
  };
  for (OutputEvent& event : piece.events) {
    if (event.kind == Kind::kToolStart && says_something(event)) start_call(index, event);
    const bool ends = event.kind == Kind::kToolEnd && (!functions_ || event.call == 0);
    if (ends) choice.calls.back().complete = event.complete;
    if (!says_something(event)) continue;
    if (spec_.stream) {
      chunk(&event);
    } else {
      keep(choice, event);
    }
  }
  if (!logprobs.is_null() || (spec_.stream && spec_.return_token_ids && !records.empty())) chunk(nullptr);
  if (!spec_.stream) std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(choice.tokens));
}

Json ChatWriter::finished(std::size_t index, const char* holder, Json content, const ChoiceEnd& end) const {
  Json choice = Json::object({{"index", static_cast<std::int64_t>(index)},
                              {holder, std::move(content)},
                              {"logprobs", nullptr},
                              {"finish_reason", chat_finish_reason(spec_, end)},
                              {"stop_reason", stop_reason(spec_, end)}});
  if (!end.note.empty()) choice.set("tool_parse_error", end.note);
  Json::Array undeclared, incomplete;
  for (const Call& call : choices_[index].calls) {
    if (!call.declared) undeclared.emplace_back(call.name);
    if (!call.complete) incomplete.emplace_back(functions_ ? call.name : call.id);
  }
  if (!undeclared.empty()) choice.set("undeclared_tools", Json(std::move(undeclared)));
  if (!incomplete.empty()) choice.set("incomplete_tool_calls", Json(std::move(incomplete)));
  return choice;
}

void ChatWriter::finish_choice(std::size_t index, const ChoiceEnd& end, const UsageCounts& usage, std::string& out) {
  Choice& choice = choices_[index];
  choice.end = end;
  if (!spec_.stream) return;
  if (may_call_ && !choice.said && choice.calls.empty()) {  // neither: an empty text, as unstreamed
    frame_.open_choice(index, out);
    out += ",\"delta\":{\"content\":\"\"}";
    frame_.close_piece(nullptr, {}, usage, out);
  }
  frame_.write(finished(index, "delta", Json::object(), end), usage, out);
}

void ChatWriter::end(const UsageCounts& usage, std::string& out) {
  usage_ = usage;
  if (spec_.stream) frame_.write_end(usage, out);
}

Json ChatWriter::call_json(const Call& call) const {
  Json inner = Json::object({{"name", call.name}, {call.custom ? "input" : "arguments", call.arguments}});
  if (functions_) return inner;
  const char* type = call.custom ? "custom" : "function";
  return Json::object({{"id", call.id}, {"type", type}, {type, std::move(inner)}});
}

Json ChatWriter::message(const Choice& choice) const {
  const bool only_calls = choice.text.empty() && !choice.calls.empty();
  Json message = Json::object({{"role", "assistant"},
                               {"content", only_calls ? Json(nullptr) : Json(choice.text)},
                               {"refusal", nullptr}});
  if (!choice.reasoning.empty()) {
    message.set("reasoning_content", choice.reasoning);
    message.set("reasoning", choice.reasoning);
  }
  if (choice.calls.empty()) return message;
  if (functions_) {
    message.set("function_call", call_json(choice.calls.front()));
    return message;
  }
  Json::Array calls;
  for (const Call& call : choice.calls) calls.push_back(call_json(call));
  message.set("tool_calls", Json(std::move(calls)));
  return message;
}

std::string ChatWriter::body() {
  std::string out = document_begin(context_.meta, "chat.completion");
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& c = choices_[i];
    Json choice = finished(i, "message", message(c), c.end);
    if (spec_.logprobs) *choice.find("logprobs") = chat_logprobs(*context_.tokenizer, c.tokens, *spec_.logprobs);
    if (spec_.return_token_ids) choice.set("token_ids", ids_json(c.tokens));
    out += (i > 0 ? "," : "") + dump_json(choice);
  }
  Json more = Json::object();
  if (spec_.prompt_logprobs) more.set("prompt_logprobs", prompt_logprobs_json(*context_.tokenizer, prompt_logprobs_));
  if (spec_.return_token_ids) more.set("prompt_token_ids", ids_json(context_.prompts[0].ids));
  document_end(usage_, more, out);
  return out;
}

}  // namespace

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context) {
  return std::make_unique<ChatWriter>(std::move(context));
}

/// A call counts where it is complete and the model was through with it: cut answers and stop strings are no calls.
std::string_view chat_finish_reason(const OutputSpec& spec, const ChoiceEnd& end) {
  if (end.finish == FinishReason::kLength) return "length";
  const bool natural = end.stop_string < 0 && end.stop_id == kNoToken;
  if (end.complete_calls == 0 || !natural || spec.tools.mode == ToolMode::kNamed) return "stop";
  return uses_functions(spec) ? "function_call" : "tool_calls";
}

}  // namespace barg::server
