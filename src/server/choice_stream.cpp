#include "server/choice_stream.h"

#include <algorithm>

namespace barg::server {
namespace {

constexpr std::size_t kPrimeTokens = 4;  // a character is at most four bytes, so at most three tokens back

}  // namespace

std::size_t count_characters(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::size_t broken_characters(std::size_t held, std::string_view text) {
  return held > 0 && text.starts_with("\xEF\xBF\xBD") ? 1 : 0;
}

ChoiceStream::ChoiceStream(const Tokenizer& tokenizer, const OutputSpec& spec,
                           std::span<const TokenId> prompt, std::size_t chars_before, bool records)
    : tokenizer_(tokenizer),
      detokenizer_(tokenizer, spec.skip_special_tokens),
      matcher_(spec.stop, spec.include_stop),
      skip_special_(spec.skip_special_tokens),
      include_stop_(spec.include_stop),
      records_(records),
      min_tokens_(spec.min_tokens),
      chars_(chars_before) {
  for (const TokenId id : prompt.last(std::min(prompt.size(), kPrimeTokens))) detokenizer_.push(id);
}

/// Text of the first min_tokens tokens cannot stop anything.
void ChoiceStream::feed(std::string_view text) {
  fed_ += text.size();
  if (count_ <= min_tokens_ || matcher_.idle()) {
    out_.text += text;
    return;
  }
  auto matched = matcher_.push(text);
  out_.text += matched.text;
  if (matched.stop < 0) return;
  stop_string_ = matched.stop;
  finish_ = FinishReason::kStop;
}

void ChoiceStream::take_released(bool all) {
  const std::size_t released = fed_ - std::min(fed_, matcher_.held());
  while (!held_.empty() && (all || held_.front().end <= released)) {
    out_.tokens.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
}

void ChoiceStream::push_token(OutputToken& token, bool silent) {
  ++count_;
  const std::size_t held = detokenizer_.held();
  text_.clear();
  if (!silent) detokenizer_.push(token.id, text_);
  if (records_) {
    OutToken record{
        .id = token.id, .logprobs = std::move(token.logprobs), .char_start = chars_, .hidden = silent};
    record.hidden = record.hidden || (skip_special_ && tokenizer_.is_special(token.id));
    record.char_start += broken_characters(held, text_);
    const std::size_t open = detokenizer_.held() > 0 ? 1 : 0;  // its character is not complete yet
    held_.push_back({std::move(record), fed_ + text_.size() + open});
    chars_ += count_characters(text_);
  }
  feed(text_);
}

Piece& ChoiceStream::push(std::vector<OutputToken>&& tokens, FinishReason finish, TokenId stop_token) {
  out_.text.clear();
  out_.tokens.clear();
  for (std::size_t i = 0; i < tokens.size() && !done(); ++i) {
    const bool stops = finish == FinishReason::kStop && stop_token != kNoToken && i + 1 == tokens.size();
    push_token(tokens[i], stops && !include_stop_);
  }
  if (!done() && finish != FinishReason::kNone) {
    feed(detokenizer_.flush());
    if (!done()) {
      out_.text += matcher_.flush().text;
      finish_ = finish;
      const auto& ends = tokenizer_.end_ids();
      if (finish == FinishReason::kStop && std::find(ends.begin(), ends.end(), stop_token) == ends.end()) {
        stop_id_ = stop_token;
      }
    }
  }
  if (done() || !out_.text.empty()) take_released(done());
  return out_;
}

}  // namespace barg::server
