#include "server/response_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "server/protocol.h"
#include "server/tool_rules.h"

namespace barg::server {
namespace {

const char* finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

}  // namespace

ResponseStream::ResponseStream(ResponseMeta meta, OutputSpec spec, std::int32_t n, std::vector<PromptInfo> prompts,
                               const Tokenizer& tokenizer, std::shared_ptr<const text::BoundDialect> dialect)
    : spec_(std::move(spec)), n_(n), model_(meta.model), infos_(std::move(prompts)) {
  const auto tools = parser_tools(spec_.tools);
  choices_.reserve(infos_.size() * static_cast<std::size_t>(n_));
  const bool wanted = spec_.prompt_logprobs || (spec_.echo && spec_.logprobs);
  for (const PromptInfo& info : infos_) {
    const std::size_t chars = count_characters(info.text);
    // An echoed prompt shows its own unfinished character; there is nothing to complete.
    const auto tail = spec_.echo ? std::span<const TokenId>() : std::span<const TokenId>(info.ids);
    for (std::int32_t k = 0; k < n_; ++k) {
      ChoiceStart start{.prompt = tail,
                        .chars_before = chars,
                        .records = spec_.logprobs || spec_.return_token_ids,
                        .dialect = dialect,
                        .tools = tools,
                        .inside_reasoning = info.inside_reasoning};
      choices_.push_back({.stream = {tokenizer, spec_, std::move(start)}, .final_event = false, .waiting = {}});
    }
    prompts_.push_back({.logprobs = {}, .wanted = wanted, .shown = !wanted});
    usage_.prompt += static_cast<std::int64_t>(info.ids.size());
  }
  writer_ = protocol_of(spec_.api).writer(
      {.meta = std::move(meta), .spec = &spec_, .n = n_, .prompts = infos_, .tokenizer = &tokenizer});
}

std::string ResponseStream::begin() {
  std::string out;
  writer_->begin(out);
  return out;
}

/// Its log-probabilities are told, and then what its choices gave meanwhile.
void ResponseStream::show_prompt(std::size_t prompt, Step& step, std::string& out) {
  prompts_[prompt].shown = true;
  writer_->prompt(prompt, prompts_[prompt].logprobs, out);
  const std::size_t first = prompt * static_cast<std::size_t>(n_);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(n_); ++i) {
    for (TokenEvent& waiting : std::exchange(choices_[i].waiting, {})) take(i, std::move(waiting), step, out);
  }
}

ResponseStream::Step ResponseStream::push(std::size_t prompt, TokenEvent&& event, std::string& out) {
  Step step;
  if (failed_ || complete_ || prompt >= prompts_.size() || event.choice < 0 || event.choice >= n_)
    return step;
  Prompt& p = prompts_[prompt];
  if (p.wanted && event.choice == 0) {
    std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(), std::back_inserter(p.logprobs));
  }
  const std::size_t index = prompt * static_cast<std::size_t>(n_) + static_cast<std::size_t>(event.choice);
  const bool prompt_done =
      event.choice == 0 && (p.logprobs.size() >= infos_[prompt].ids.size() || !event.tokens.empty() ||
                            event.finish != FinishReason::kNone);
  if (!p.shown && prompt_done) show_prompt(prompt, step, out);
  if (!p.shown) {
    choices_[index].waiting.push_back(std::move(event));
  } else {
    take(index, std::move(event), step, out);
  }
  end_if_complete(step, out);
  return step;
}

void ResponseStream::take_stats(const TokenEvent& event) {
  preemptions_ += event.stats.preemptions;
  usage_.seconds = std::max(usage_.seconds, event.stats.last_token_s - event.stats.arrived_s);
  if (event.choice != 0) return;
  usage_.cached += event.stats.cached_tokens;
  for (std::size_t p = 0; p < usage_.by_place.size(); ++p) usage_.by_place[p] += event.stats.cached_by_place[p];
  queue_s_ = event.stats.first_scheduled_s > 0 ? event.stats.first_scheduled_s - event.stats.arrived_s : -1;
  ttft_s_ = event.stats.first_token_s > 0 ? event.stats.first_token_s - event.stats.arrived_s : -1;
}

void ResponseStream::take(std::size_t index, TokenEvent&& event, Step& step, std::string& out) {
  Choice& choice = choices_[index];
  if (failed_ || choice.final_event) return;
  if (event.finish != FinishReason::kNone) {
    choice.final_event = true;
    ++finals_;
    take_stats(event);
  }
  ChoiceStream& stream = choice.stream;
  if (stream.done()) return;
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kAbort) {
    failed_ = true;
    step.error = event.error.value_or(Error{ErrorCode::kCancelled, "the request was cancelled", "", 0});
    return;
  }
  const std::int32_t counted = stream.token_count(), reasoned = stream.reasoning_count();
  Piece& piece = stream.push(std::move(event.tokens), event.finish, event.stop_token);
  usage_.output += stream.token_count() - counted;
  usage_.reasoning += stream.reasoning_count() - reasoned;
  if (stream.done() && stream.stop_string() >= 0 && !choice.final_event) {
    step.finish_at.push_back({.prompt = index / static_cast<std::size_t>(n_),
                              .choice = event.choice,
                              .tokens = stream.token_count()});
  }
  write(index, piece, out);
}

void ResponseStream::write(std::size_t index, Piece& piece, std::string& out) {
  if (!piece.empty()) writer_->push(index, piece, usage_, out);
  const ChoiceStream& stream = choices_[index].stream;
  if (!stream.done()) return;
  writer_->finish_choice(index,
                         {.finish = stream.finish(),
                          .stop_string = stream.stop_string(),
                          .stop_id = stream.stop_id(),
                          .complete_calls = stream.complete_calls(),
                          .note = stream.note()},
                         usage_, out);
}

void ResponseStream::end_if_complete(Step& step, std::string& out) {
  if (failed_ || complete_ || finals_ < choices_.size()) return;
  complete_ = step.complete = true;
  writer_->end(usage_, out);
}

std::string ResponseStream::body() {
  CHECK(complete_);
  return writer_->body();
}

std::string ResponseStream::error_events(const Error& error) {
  std::string out;
  writer_->fail(error, out);
  return out;
}

void ResponseStream::fill(AccessNote& note) const {
  note.model = model_;
  note.cached_tokens = usage_.cached;
  note.preemptions = preemptions_;
  note.prompt_tokens += usage_.prompt;
  note.output_tokens += usage_.output;
  if (queue_s_ >= 0) note.queue_ms = queue_s_ * 1e3;
  if (ttft_s_ >= 0) note.ttft_ms = ttft_s_ * 1e3;
  note.finish_reason = complete_ ? finish_name(choices_[0].stream.finish()) : failed_ ? "error" : "abort";
}

}  // namespace barg::server
