#include "server/completions_writer.h"

#include <iterator>
#include <utility>

#include "server/logprobs_json.h"
#include "server/openai_answer.h"

namespace barg::server {
namespace {

const char* finish_name(const ChoiceEnd& end) { return end.finish == FinishReason::kLength ? "length" : "stop"; }

class CompletionsWriter final : public AnswerWriter {
 public:
  explicit CompletionsWriter(AnswerContext context)
      : context_(std::move(context)),
        spec_(*context_.spec),
        frame_(context_.meta, spec_, "text_completion"),
        prompt_logprobs_(context_.prompts.size()),
        choices_(context_.prompts.size() * static_cast<std::size_t>(context_.n)),
        usage_(first_usage(context_)) {}

  void begin(std::string& out) override;
  void prompt(std::size_t prompt, std::span<const TokenLogprobs> logprobs, std::string& out) override;
  void push(std::size_t index, Piece& piece, const UsageCounts& usage, std::string& out) override;
  void finish_choice(std::size_t index, const ChoiceEnd& end, const UsageCounts& usage, std::string& out) override;
  void end(const UsageCounts& usage, std::string& out) override;
  std::string body() override;
  void fail(const Error& error, std::string& out) override { write_failure(error, out); }

 private:
  struct Choice {  // unstreamed
    std::string text;
    std::vector<OutToken> tokens;
    ChoiceEnd end;
  };
  std::size_t prompt_of(std::size_t index) const { return index / static_cast<std::size_t>(context_.n); }
  void write_piece(std::size_t index, std::string_view text, const Json& logprobs, std::span<const OutToken> tokens,
                   const UsageCounts& usage, std::string& out) const;
  Json finished(std::size_t index, std::string text, const ChoiceEnd& end) const;
  Json whole_choice(std::size_t index) const;

  const AnswerContext context_;
  const OutputSpec& spec_;
  const ChunkFrame frame_;
  std::vector<std::vector<TokenLogprobs>> prompt_logprobs_;  ///< unstreamed
  std::vector<Choice> choices_;
  UsageCounts usage_;
};

void CompletionsWriter::write_piece(std::size_t index, std::string_view text, const Json& logprobs,
                                    std::span<const OutToken> tokens, const UsageCounts& usage,
                                    std::string& out) const {
  frame_.open_choice(index, out);
  out += ",\"text\":";
  append_json_quoted(out, text);
  frame_.close_piece(logprobs, tokens, usage, out);
}

void CompletionsWriter::begin(std::string& out) {
  if (!spec_.stream || !spec_.echo || spec_.logprobs) return;
  for (std::size_t i = 0; i < choices_.size(); ++i)
    write_piece(i, context_.prompts[prompt_of(i)].text, nullptr, {}, usage_, out);
}

/// The prompt of an echo with log-probabilities goes out as the first chunk of every choice.
void CompletionsWriter::prompt(std::size_t prompt, std::span<const TokenLogprobs> logprobs, std::string& out) {
  if (!spec_.stream) {
    prompt_logprobs_[prompt].assign(logprobs.begin(), logprobs.end());
    return;
  }
  const PromptInfo& info = context_.prompts[prompt];
  const auto records = prompt_records(*context_.tokenizer, info, logprobs, spec_.skip_special_tokens);
  const Json shown = legacy_logprobs(*context_.tokenizer, records, *spec_.logprobs, true);
  for (std::int32_t k = 0; k < context_.n; ++k)
    write_piece(prompt * static_cast<std::size_t>(context_.n) + static_cast<std::size_t>(k), info.text, shown, {}, usage_,
                out);
}

void CompletionsWriter::push(std::size_t index, Piece& piece, const UsageCounts& usage, std::string& out) {
  if (!spec_.stream) {
    for (const text::OutputEvent& event : piece.events) choices_[index].text += event.text;
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(choices_[index].tokens));
    return;
  }
  Json logprobs;
  if (spec_.logprobs && !piece.tokens.empty())
    logprobs = legacy_logprobs(*context_.tokenizer, piece.tokens, *spec_.logprobs, false);
  write_piece(index, piece.events.empty() ? std::string_view() : piece.events.front().text, logprobs, piece.tokens,
              usage, out);
}

Json CompletionsWriter::finished(std::size_t index, std::string text, const ChoiceEnd& end) const {
  return Json::object({{"index", static_cast<std::int64_t>(index)},
                       {"text", std::move(text)},
                       {"logprobs", nullptr},
                       {"finish_reason", finish_name(end)},
                       {"stop_reason", stop_reason(spec_, end)}});
}

void CompletionsWriter::finish_choice(std::size_t index, const ChoiceEnd& end, const UsageCounts& usage,
                                      std::string& out) {
  if (spec_.stream) return frame_.write(finished(index, "", end), usage, out);
  choices_[index].end = end;
}

void CompletionsWriter::end(const UsageCounts& usage, std::string& out) {
  usage_ = usage;
  if (spec_.stream) frame_.write_end(usage, out);
}

Json CompletionsWriter::whole_choice(std::size_t index) const {
  const Choice& c = choices_[index];
  const PromptInfo& info = context_.prompts[prompt_of(index)];
  const auto& scores = prompt_logprobs_[prompt_of(index)];
  Json choice = finished(index, spec_.echo ? info.text + c.text : c.text, c.end);
  if (spec_.logprobs) {
    std::vector<OutToken> all;
    if (spec_.echo) all = prompt_records(*context_.tokenizer, info, scores, spec_.skip_special_tokens);
    all.insert(all.end(), c.tokens.begin(), c.tokens.end());
    *choice.find("logprobs") = legacy_logprobs(*context_.tokenizer, all, *spec_.logprobs, spec_.echo);
  }
  if (spec_.prompt_logprobs) choice.set("prompt_logprobs", prompt_logprobs_json(*context_.tokenizer, scores));
  if (spec_.return_token_ids) {
    choice.set("token_ids", ids_json(c.tokens));
    choice.set("prompt_token_ids", ids_json(info.ids));
  }
  return choice;
}

std::string CompletionsWriter::body() {
  std::string out = document_begin(context_.meta, "text_completion");
  for (std::size_t i = 0; i < choices_.size(); ++i) out += (i > 0 ? "," : "") + dump_json(whole_choice(i));
  document_end(usage_, Json::object(), out);
  return out;
}

}  // namespace

std::unique_ptr<AnswerWriter> make_completions_writer(AnswerContext context) {
  return std::make_unique<CompletionsWriter>(std::move(context));
}

}  // namespace barg::server
