#include "server/choice_stream.h"

#include <algorithm>
#include <bit>

namespace barg::server {
namespace {

constexpr std::size_t kPrimeTokens = 4;  // a character is at most four bytes, so at most three tokens back

bool contains(std::span<const TokenId> ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// Is there anything to read in the output but text?
bool wants_parser(const OutputSpec& spec, const ChoiceStart& start) {
  if (!start.dialect || spec.api == Api::kCompletions) return false;
  const text::ReasoningMarkers& markers = start.dialect->reasoning();
  return start.tools || !markers.open.empty() || !markers.close.empty();
}

/// The first character of text that is whole characters.
std::string_view first_character(std::string_view text) {
  const int ones = std::countl_one(static_cast<unsigned char>(text.front()));
  return text.substr(0, static_cast<std::size_t>(std::max(ones, 1)));
}

}  // namespace

std::size_t count_characters(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::size_t broken_characters(std::size_t held, std::string_view text) {
  return held > 0 && text.starts_with("\xEF\xBF\xBD") ? 1 : 0;
}

ChoiceStream::ChoiceStream(const Tokenizer& tokenizer, const OutputSpec& spec, ChoiceStart start)
    : tokenizer_(tokenizer),
      detokenizer_(tokenizer, spec.skip_special_tokens),
      matcher_(spec.stop, spec.include_stop),
      skip_special_(spec.skip_special_tokens),
      include_stop_(spec.include_stop),
      records_(start.records),
      whole_(spec.whole),
      min_tokens_(spec.min_tokens),
      chars_(start.chars_before) {
  detokenizer_.continue_text();  // what is shown is what the masks of a constraint allowed, byte for byte
  for (const TokenId id : start.prompt.last(std::min(start.prompt.size(), kPrimeTokens))) detokenizer_.push(id);
  if (!wants_parser(spec, start)) return;
  dialect_ = start.dialect;
  parser_.emplace(dialect_, text::ParserOptions{.tools = std::move(start.tools),
                                                .inside_reasoning = start.inside_reasoning,
                                                .read_reasoning = spec.reasoning.separate,
                                                .parallel = spec.tools.parallel});
}

/// Text goes to the one event of a piece that is being written, in memory that was used before.
void ChoiceStream::append_text(std::string_view text) {
  if (text.empty()) return;
  if (out_.events.empty()) {
    out_.events.emplace_back();
    out_.events.back().text = std::move(spare_);
    out_.events.back().text.clear();
  }
  out_.events.back().text += text;
}

/// Text of the first min_tokens tokens cannot stop anything.
void ChoiceStream::feed(std::string_view text) {
  fed_ += text.size();
  if (count_ <= min_tokens_ || matcher_.idle()) return release(text);
  const auto matched = matcher_.push(text);
  release(matched.text);
  if (matched.stop < 0) return;
  stop_string_ = matched.stop;
  finish_ = FinishReason::kStop;
}

/// Gives the parser `bytes` by `push`. Where records are wanted, what becomes of them is noted.
template <class Push>
void ChoiceStream::traced(std::string_view bytes, Push push) {
  if (!records_) return push();
  const TextTrace::Mark since = TextTrace::end_of(out_.events);
  trace_.give(bytes);
  push();
  trace_.took(out_.events, since, parser_->held());
}

/// Ordinary text to the parser: by characters where somebody will ask what became of each.
void ChoiceStream::read_text(std::string_view text) {
  while (!text.empty()) {
    const std::string_view next = records_ ? first_character(text) : text;
    traced(next, [&] { parser_->push_text(next, out_.events); });
    text.remove_prefix(next.size());
  }
}

/// What the matcher lets go: to the parser, with the markers where they stand.
void ChoiceStream::release(std::string_view text) {
  if (!parser_) {
    given_ += text.size();
    return append_text(text);
  }
  while (!marks_.empty()) {
    const Mark mark = marks_.front();
    if (given_ < mark.begin) {
      const std::string_view before = text.substr(0, mark.begin - given_);
      read_text(before);
      given_ += before.size();
      text.remove_prefix(before.size());
      if (given_ < mark.begin) return;
    }
    if (!pass_mark(mark, text)) return;
  }
  read_text(text);
  given_ += text.size();
}

/// Gives the parser a marker once all of its literal is released, and takes that from `text`. False: some is missing.
bool ChoiceStream::pass_mark(const Mark& mark, std::string_view& text) {
  if (mark.shown) {
    const std::size_t size = mark.end - mark.begin;
    const std::size_t taken = std::min(size - mark_seen_, text.size());
    text.remove_prefix(taken);
    mark_seen_ += taken;
    if (mark_seen_ < size) return false;
  }
  const std::string_view literal = tokenizer_.token_bytes(mark.id);
  traced(literal, [&] { parser_->push_token(mark.id, literal, mark.shown, out_.events); });
  given_ = mark.end;
  mark_seen_ = 0;
  marks_.pop_front();
  return true;
}

TextTrace::Range ChoiceStream::text_of(const Held& held) {
  if (parser_) return trace_.find(held.begin, held.end);
  return {.begin = std::min(held.begin, given_), .end = std::min(held.end, given_)};  // everything is text
}

void ChoiceStream::take_released(bool all) {
  const std::size_t undecided = parser_ ? parser_->held() : 0;
  const std::size_t decided = given_ - std::min(given_, undecided);
  while (!held_.empty() && (all || held_.front().end <= decided)) {
    const TextTrace::Range text = text_of(held_.front());
    OutToken& token = out_.tokens.emplace_back(std::move(held_.front().token));
    token.text_begin = text.begin;
    token.text_end = text.end;
    token.hidden = token.hidden && !token.has_text();  // a marker that was none after all is text
    held_.pop_front();
  }
}

void ChoiceStream::push_token(OutputToken& token, bool silent) {
  ++count_;
  for_length_ = for_length_ || token.for_length;
  const bool marker = parser_ && dialect_->is_marker(token.id);
  if (parser_ && parser_->in_reasoning()) ++reasoning_;
  const std::size_t held = detokenizer_.held();
  text_.clear();
  if (!silent) detokenizer_.push(token.id, text_);
  const bool hidden = silent || (skip_special_ && tokenizer_.is_special(token.id));
  const std::size_t literal = marker ? tokenizer_.token_bytes(token.id).size() : 0;
  const std::size_t own = fed_ + text_.size() - (hidden ? 0 : std::min(text_.size(), literal));  // a marker's place
  if (marker) marks_.push_back({.id = token.id, .begin = own, .end = own + literal, .shown = !hidden});
  if (records_) {
    OutToken record{.id = token.id, .logprobs = std::move(token.logprobs), .char_start = chars_, .hidden = hidden};
    record.char_start += broken_characters(held, text_);
    const std::size_t open = detokenizer_.held() > 0 ? 1 : 0;  // its character is not complete yet
    const std::size_t end = fed_ + text_.size() + open + (hidden ? literal : 0);
    held_.push_back({.token = std::move(record), .begin = marker ? own : hidden ? end : fed_, .end = end});
    chars_ += count_characters(text_);
  }
  feed(text_);
  if (marker && hidden) fed_ += literal;
}

/// The model was through: it gave one of its end tokens, or one after which it waits for a call's result.
bool ChoiceStream::natural_end(TokenId stop_token) const {
  return contains(tokenizer_.end_ids(), stop_token) || (dialect_ && contains(dialect_->call_end_ids(), stop_token));
}

void ChoiceStream::end(FinishReason finish, TokenId stop_token) {
  feed(detokenizer_.flush());
  if (done()) return;
  release(matcher_.flush().text);
  const bool ended = finish == FinishReason::kStop && natural_end(stop_token);
  if (finish == FinishReason::kStop && !ended) stop_id_ = stop_token;
  natural_ = ended || whole_;
  finish_ = ended && for_length_ ? FinishReason::kLength : finish;
}

Piece& ChoiceStream::push(std::vector<OutputToken>&& tokens, FinishReason finish, TokenId stop_token) {
  if (!out_.events.empty()) spare_ = std::move(out_.events.front().text);
  out_.events.clear();
  out_.tokens.clear();
  if (done()) return out_;
  for (std::size_t i = 0; i < tokens.size() && !done(); ++i) {
    const bool stops = finish == FinishReason::kStop && stop_token != kNoToken && i + 1 == tokens.size();
    push_token(tokens[i], stops && !include_stop_);
  }
  if (!done() && finish != FinishReason::kNone) end(finish, stop_token);
  if (done() && parser_) {
    // A stop string ended inside a marker: what was released of it is text.
    if (mark_seen_ > 0) read_text(tokenizer_.token_bytes(marks_.front().id).substr(0, mark_seen_));
    traced({}, [&] { parser_->finish(natural_, out_.events); });
  }
  if (done() || !out_.events.empty()) take_released(done());
  return out_;
}

}  // namespace barg::server
