#include "server/response_stream.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "server/api_error.h"
#include "server/logprobs_json.h"

namespace barg::server {
namespace {

std::string sse(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }

const char* finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

Json ids_json(std::span<const OutToken> tokens) {
  Json::Array out;
  for (const OutToken& t : tokens) out.emplace_back(t.id);
  return Json(std::move(out));
}

Json ids_json(const std::vector<TokenId>& ids) {
  Json::Array out;
  for (const TokenId id : ids) out.emplace_back(id);
  return Json(std::move(out));
}

}  // namespace

ResponseStream::ResponseStream(ResponseMeta meta, OutputSpec spec, std::int32_t n,
                               std::vector<PromptInfo> prompts, const Tokenizer& tokenizer)
    : meta_(std::move(meta)), spec_(std::move(spec)), n_(n), tokenizer_(tokenizer) {
  for (PromptInfo& info : prompts) {
    const std::size_t chars = count_characters(info.text);
    for (std::int32_t k = 0; k < n_; ++k) {
      // An echoed prompt shows its own unfinished character; there is nothing to complete.
      const auto tail = spec_.echo ? std::span<const TokenId>() : std::span<const TokenId>(info.ids);
      const bool records = spec_.logprobs || spec_.return_token_ids;
      choices_.push_back({.stream = {tokenizer_, spec_, tail, chars, records},
                          .text = {},
                          .tokens = {},
                          .final_event = false,
                          .waiting = {}});
    }
    const bool wait = spec_.stream && spec_.echo && spec_.logprobs;
    prompts_.push_back({.info = std::move(info), .logprobs = {}, .shown = !wait});
  }
  const bool chat = spec_.api == Api::kChat;
  const char* object = chat ? "chat.completion.chunk" : "text_completion";
  prefix_ = "data: " + dump_json(Json::object({{"id", meta_.id},
                                    {"object", object},
                                    {"created", meta_.created},
                                    {"model", meta_.model},
                                    {"system_fingerprint", meta_.fingerprint}}));
  prefix_.pop_back();
  prefix_ += ",\"choices\":[";
}

/// Ends an event. usage: null on every one where a usage was asked for, as OpenAI does.
void ResponseStream::write_end(bool with_usage, std::string& out) const {
  out += ']';
  if (with_usage || spec_.continuous_usage) {
    out += ",\"usage\":";
    out += dump_json(usage());
  } else if (spec_.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

void ResponseStream::write_event(const Json& choice, bool with_usage, std::string& out) const {
  out += prefix_;
  if (!choice.is_null()) out += dump_json(choice);
  write_end(with_usage, out);
}

/// The event of nearly every token: appended as text, for a tree would cost more than all the rest.
void ResponseStream::write_piece(std::size_t index, std::string_view text, const Json& logprobs,
                                 std::span<const OutToken> tokens, std::string& out) const {
  const bool chat = spec_.api == Api::kChat;
  out += prefix_;
  out += "{\"index\":";
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, index).ptr);
  out += chat ? ",\"delta\":{\"content\":" : ",\"text\":";
  append_json_quoted(out, text);
  out += chat ? "},\"logprobs\":" : ",\"logprobs\":";
  if (logprobs.is_null()) {
    out += "null";
  } else {
    out += dump_json(logprobs);
  }
  out += ",\"finish_reason\":null";
  if (spec_.return_token_ids) {
    out += ",\"token_ids\":";
    out += dump_json(ids_json(tokens));
  }
  out += '}';
  write_end(false, out);
}

std::string ResponseStream::begin() {
  std::string out;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (spec_.api == Api::kChat) {
      Json delta = Json::object({{"role", "assistant"}, {"content", ""}});
      write_event(Json::object({{"index", static_cast<std::int64_t>(i)},
                                {"delta", std::move(delta)},
                                {"logprobs", nullptr},
                                {"finish_reason", nullptr}}),
                  false, out);
    } else if (spec_.echo && !spec_.logprobs) {
      write_piece(i, prompts_[i / static_cast<std::size_t>(n_)].info.text, nullptr, {}, out);
    }
  }
  return out;
}

Json ResponseStream::piece_logprobs(const Piece& piece) const {
  if (!spec_.logprobs || piece.tokens.empty()) return nullptr;
  return spec_.api == Api::kChat ? chat_logprobs(tokenizer_, piece.tokens, *spec_.logprobs)
                                 : legacy_logprobs(tokenizer_, piece.tokens, *spec_.logprobs, false);
}

Json ResponseStream::finish_choice(std::size_t index) const {
  const ChoiceStream& stream = choices_[index].stream;
  Json choice = Json::object({{"index", static_cast<std::int64_t>(index)}});
  if (spec_.api == Api::kChat) {
    choice.set("delta", Json::object());
  } else {
    choice.set("text", "");
  }
  choice.set("logprobs", nullptr);
  choice.set("finish_reason", finish_name(stream.finish()));
  Json reason;
  if (stream.stop_string() >= 0)
    reason = spec_.stop[static_cast<std::size_t>(stream.stop_string())];
  else if (stream.stop_id() != kNoToken)
    reason = stream.stop_id();
  choice.set("stop_reason", std::move(reason));
  return choice;
}

/// The prompt of an echo with log-probabilities goes out as the first chunk of every choice.
void ResponseStream::show_prompt(std::size_t prompt, Step& step, std::string& out) {
  Prompt& p = prompts_[prompt];
  p.shown = true;
  const auto records = prompt_records(tokenizer_, p.info, p.logprobs, spec_.skip_special_tokens);
  const std::size_t first = prompt * static_cast<std::size_t>(n_);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(n_); ++i) {
    write_piece(i, p.info.text, legacy_logprobs(tokenizer_, records, *spec_.logprobs, true), {}, out);
  }
  for (std::size_t i = first; i < first + static_cast<std::size_t>(n_); ++i) {
    for (TokenEvent& waiting : std::exchange(choices_[i].waiting, {})) take(i, std::move(waiting), step, out);
  }
}

ResponseStream::Step ResponseStream::push(std::size_t prompt, TokenEvent&& event, std::string& out) {
  Step step;
  if (failed_ || complete_ || prompt >= prompts_.size() || event.choice < 0 || event.choice >= n_)
    return step;
  Prompt& p = prompts_[prompt];
  if (event.choice == 0) {
    std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(), std::back_inserter(p.logprobs));
  }
  const std::size_t index = prompt * static_cast<std::size_t>(n_) + static_cast<std::size_t>(event.choice);
  const bool prompt_done =
      event.choice == 0 && (p.logprobs.size() >= p.info.ids.size() || !event.tokens.empty() ||
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

void ResponseStream::take(std::size_t index, TokenEvent&& event, Step& step, std::string& out) {
  Choice& choice = choices_[index];
  if (failed_ || choice.final_event) return;
  const bool was_done = choice.stream.done();
  if (event.finish != FinishReason::kNone) {
    choice.final_event = true;
    ++finals_;
    if (event.choice == 0) {
      cached_tokens_ += event.stats.cached_tokens;
      for (std::size_t p = 0; p < cached_by_place_.size(); ++p) cached_by_place_[p] += event.stats.cached_by_place[p];
      queue_s_ =
          event.stats.first_scheduled_s > 0 ? event.stats.first_scheduled_s - event.stats.arrived_s : -1;
      ttft_s_ = event.stats.first_token_s > 0 ? event.stats.first_token_s - event.stats.arrived_s : -1;
    }
    preemptions_ += event.stats.preemptions;
  }
  if (was_done) return;
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kAbort) {
    failed_ = true;
    step.error = event.error.value_or(Error{ErrorCode::kCancelled, "the request was cancelled", "", 0});
    return;
  }
  Piece& piece = choice.stream.push(std::move(event.tokens), event.finish, event.stop_token);
  if (choice.stream.done() && choice.stream.stop_string() >= 0 && !choice.final_event) {
    step.finish_at.push_back({.prompt = index / static_cast<std::size_t>(n_),
                              .choice = event.choice,
                              .tokens = choice.stream.token_count()});
  }
  if (spec_.stream) {
    const bool worth =
        !piece.text.empty() || (!piece.tokens.empty() && (spec_.logprobs || spec_.return_token_ids));
    if (worth) write_piece(index, piece.text, piece_logprobs(piece), piece.tokens, out);
    if (choice.stream.done()) write_event(finish_choice(index), false, out);
  } else {
    choice.text += piece.text;
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(choice.tokens));
  }
}

void ResponseStream::end_if_complete(Step& step, std::string& out) {
  if (failed_ || complete_ || finals_ < choices_.size()) return;
  complete_ = step.complete = true;
  if (!spec_.stream) return;
  if (spec_.include_usage) write_event(nullptr, true, out);
  out += "data: [DONE]\n\n";
}

Json ResponseStream::whole_choice(std::size_t index) const {
  const Choice& c = choices_[index];
  const Prompt& prompt = prompts_[index / static_cast<std::size_t>(n_)];
  const bool chat = spec_.api == Api::kChat;
  Json choice = finish_choice(index);
  Json::Object& members = choice.as_object();
  Json content = chat ? Json::object({{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}})
                      : Json(spec_.echo ? prompt.info.text + c.text : c.text);
  members[1] = {chat ? "message" : "text", std::move(content)};
  if (spec_.logprobs && chat) {
    *choice.find("logprobs") = chat_logprobs(tokenizer_, c.tokens, *spec_.logprobs);
  } else if (spec_.logprobs) {
    std::vector<OutToken> all;
    if (spec_.echo) all = prompt_records(tokenizer_, prompt.info, prompt.logprobs, spec_.skip_special_tokens);
    all.insert(all.end(), c.tokens.begin(), c.tokens.end());
    *choice.find("logprobs") = legacy_logprobs(tokenizer_, all, *spec_.logprobs, spec_.echo);
  }
  if (spec_.prompt_logprobs && !chat)
    choice.set("prompt_logprobs", prompt_logprobs_json(tokenizer_, prompt.logprobs));
  if (spec_.return_token_ids) {
    choice.set("token_ids", ids_json(c.tokens));
    if (!chat) choice.set("prompt_token_ids", ids_json(prompt.info.ids));
  }
  return choice;
}

std::string ResponseStream::body() const {
  CHECK(complete_);
  const bool chat = spec_.api == Api::kChat;
  Json out = Json::object({{"id", meta_.id},
                           {"object", chat ? "chat.completion" : "text_completion"},
                           {"created", meta_.created},
                           {"model", meta_.model},
                           {"system_fingerprint", meta_.fingerprint}});
  // One choice at a time: as a tree, an answer takes many times the memory of its text.
  std::string text = dump_json(out);
  text.back() = ',';
  text += "\"choices\":[";
  for (std::size_t i = 0; i < choices_.size(); ++i) text += (i > 0 ? "," : "") + dump_json(whole_choice(i));
  text += "],";
  out = Json::object({{"usage", usage()}});
  if (chat && spec_.prompt_logprobs)
    out.set("prompt_logprobs", prompt_logprobs_json(tokenizer_, prompts_[0].logprobs));
  if (chat && spec_.return_token_ids) out.set("prompt_token_ids", ids_json(prompts_[0].info.ids));
  text.append(dump_json(out), 1);
  return text;
}

/// Prompts count once whatever n is; every counted output token is billed, the one that stopped included.
Json ResponseStream::usage() const {
  std::int64_t prompt = 0, output = 0;
  for (const Prompt& p : prompts_) prompt += static_cast<std::int64_t>(p.info.ids.size());
  for (const Choice& c : choices_) output += c.stream.token_count();
  const auto& [device, dram, disk, remote] = cached_by_place_;
  const Json by_tier = Json::object({{"device", device}, {"dram", dram}, {"disk", disk}, {"remote", remote}});
  return Json::object({{"prompt_tokens", prompt},
                       {"completion_tokens", output},
                       {"total_tokens", prompt + output},
                       {"prompt_tokens_details",
                        Json::object({{"cached_tokens", cached_tokens_}, {"cached_tokens_by_tier", by_tier}})},
                       {"completion_tokens_details", Json::object({{"reasoning_tokens", 0}})}});
}

std::string ResponseStream::error_events(const Error& error) {
  return sse(dump_json(error_json(error))) + "data: [DONE]\n\n";
}

void ResponseStream::fill(AccessNote& note) const {
  note.model = meta_.model;
  note.cached_tokens = cached_tokens_;
  note.preemptions = preemptions_;
  for (const Prompt& p : prompts_) note.prompt_tokens += static_cast<std::int64_t>(p.info.ids.size());
  for (const Choice& c : choices_) note.output_tokens += c.stream.token_count();
  if (queue_s_ >= 0) note.queue_ms = queue_s_ * 1e3;
  if (ttft_s_ >= 0) note.ttft_ms = ttft_s_ * 1e3;
  note.finish_reason = complete_ ? finish_name(choices_[0].stream.finish()) : failed_ ? "error" : "abort";
}

}  // namespace barg::server
