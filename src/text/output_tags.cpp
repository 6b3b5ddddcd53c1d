#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/output_call.h"

namespace barg::text {
namespace {

constexpr std::size_t kMaxSpaces = 64;  ///< between a closing tag and what makes it one
constexpr std::size_t kMaxNull = 256;   ///< of a value that may still be null; each byte reads it again

bool ends_with(const Symbols& symbols, const Literal& end) {
  return symbols.size() >= end.size() &&
         std::equal(end.begin(), end.end(), symbols.end() - static_cast<std::ptrdiff_t>(end.size()), same);
}

}  // namespace

void TagReader::begin(const BoundTags& tags, std::span<const Literal* const> ends) {
  tags_ = &tags;
  next_.assign(1, &tags.key_open);
  next_.insert(next_.end(), ends.begin(), ends.end());
  close_.assign(1, &tags.value_close);
  state_ = State::kBetween;
  matching_ = any_ = newline_ = streams_ = false;
  scan_.clear();
  look_.clear();
  waiting_.clear();
}

std::size_t TagReader::held() const {
  std::size_t bytes = waiting_.size() + (newline_ ? 1U : 0U) + dialect_.size_of(key_) + dialect_.size_of(look_);
  if (state_ == State::kConfirm) bytes += dialect_.size_of(tags_->value_close);
  if (scan_.holding()) bytes += dialect_.size_of(scan_.read());
  if (matching_) bytes += dialect_.size_of(match_.read());
  return bytes;
}

std::string TagReader::undecided() const {
  std::string out;
  const auto add = [&](const Symbols& symbols) {
    for (const Symbol s : symbols) dialect_.append(out, s);
  };
  if (state_ == State::kKey) add(key_);
  // Behind a string that has left stands at most the beginning of its closing tag.
  if (streams_ || (state_ != State::kValue && state_ != State::kConfirm)) return out;
  out = waiting_;
  if (newline_) out += '\n';
  if (scan_.holding()) add(scan_.read());
  if (state_ == State::kConfirm) {
    add(tags_->value_close);
    add(look_);
  }
  return out;
}

Step TagReader::push(Symbol s, Pushback& again) {
  switch (state_) {
    case State::kBetween: return between(s, again);
    case State::kKey: return key(s, again);
    case State::kValueOpen: {
      if (!matching_ && is_space(s)) return Step::kMore;
      if (!matching_) match_.begin(1);
      const Literal* const open[] = {&tags_->value_open};
      const int found = match_.push(open, s);
      matching_ = found == OneOf::kMore;
      if (found == OneOf::kNone) {
        give_back(again, match_.read());
        return Step::kBad;
      }
      if (found >= 0) state_ = State::kValueStart;
      return Step::kMore;
    }
    case State::kValueStart:
      state_ = State::kValue;
      if (tags_->lines && s == '\n') return Step::kMore;
      [[fallthrough]];
    case State::kValue: return value(s, again);
    case State::kConfirm: return confirm(s, again);
  }
  return Step::kBad;
}

Step TagReader::between(Symbol s, Pushback& again) {
  if (!matching_) {
    if (is_space(s)) return Step::kMore;
    match_.begin_all(next_.size());
    matching_ = true;
  }
  const int found = match_.push(next_, s);
  if (found == OneOf::kMore) return Step::kMore;
  matching_ = false;
  if (found >= 0) return after_match(found, again);
  give_back(again, match_.read());
  return Step::kBad;
}

Step TagReader::after_match(int which, Pushback& again) {
  if (which == 0) {
    key_.clear();
    state_ = State::kKey;
    return Step::kMore;
  }
  close_args();
  if (which == 1) return Step::kDone;
  give_back(again, match_.read());
  return Step::kBefore;
}

void TagReader::close_args() {
  call_.args(any_ ? "}" : "{}");
  call_.args_complete();
}

Step TagReader::key(Symbol s, Pushback& again) {
  key_.push_back(s);
  for (const auto& [end, typing] : tags_->key_ends) {
    if (!ends_with(key_, end)) continue;
    key_.resize(key_.size() - end.size());
    end_key(typing);
    return Step::kMore;
  }
  if (key_.size() <= kMaxName) return Step::kMore;
  give_back(again, key_);
  key_.clear();
  return Step::kBad;
}

void TagReader::end_key(Typing typing) {
  std::string name;
  for (const Symbol s : key_) dialect_.append(name, s);
  key_.clear();
  const ToolInfo* tool = call_.tool();
  types_ = tool && typing == Typing::kSchema ? value_types(tool->parameters, name) : ValueTypes{};
  typing_ = typing;
  call_.args((any_ ? ", " : "{") + json_quote(name) + ": ");
  any_ = true;
  waiting_.clear();
  newline_ = false;
  streams_ = false;
  if (typing != Typing::kJson && types_.surely_string()) stream_value();
  state_ = tags_->value_open.empty() ? State::kValueStart : State::kValueOpen;
}

/// From here on the value leaves as a string.
void TagReader::stream_value() {
  streams_ = true;
  call_.args("\"");
  std::string text = std::exchange(waiting_, {});
  value_bytes(text);
}

Step TagReader::value(Symbol s, Pushback& again) {
  Symbol plain = 0;
  const int found = scan_.push(close_, [](std::size_t) { return true; }, s, again, plain);
  if (found == LiteralScan::kHeld) return Step::kMore;
  if (found == LiteralScan::kPlain) {
    value_symbol(plain);
    return Step::kMore;
  }
  if (tags_->close_is_token) {
    end_value();
    return Step::kMore;
  }
  state_ = State::kConfirm;
  look_.clear();
  spaces_ = 0;
  match_.begin_all(next_.size());
  return Step::kMore;
}

Step TagReader::confirm(Symbol s, Pushback& again) {
  look_.push_back(s);
  if (is_space(s) && look_.size() == spaces_ + 1 && spaces_ < kMaxSpaces) {
    ++spaces_;
    return Step::kMore;
  }
  const int found = match_.push(next_, s);
  if (found == OneOf::kMore) return Step::kMore;
  if (found >= 0) {
    end_value();
    look_.clear();
    return after_match(found, again);
  }
  state_ = State::kValue;
  for (const Symbol c : tags_->value_close) value_symbol(c);
  give_back(again, look_);
  look_.clear();
  return Step::kMore;
}

void TagReader::settle_newline() {
  if (!std::exchange(newline_, false)) return;
  value_bytes("\n");
}

void TagReader::value_symbol(Symbol s) {
  settle_newline();
  if (s == '\n' && tags_->lines) {
    newline_ = true;
    return;
  }
  std::string bytes;
  dialect_.append(bytes, s);
  value_bytes(bytes);
}

void TagReader::value_bytes(std::string_view bytes) {
  if (streams_) {
    std::string json;
    for (const char c : bytes) append_json_byte(json, c);
    call_.args(json);
    return;
  }
  waiting_ += bytes;
  const bool nullable = typing_ == Typing::kSchema && types_.string_first();
  const bool null = nullable && waiting_.size() <= kMaxNull && may_become_null(waiting_);
  if (nullable ? !null : waiting_.size() > kMaxWaiting) stream_value();
}

void TagReader::end_value() {
  newline_ = false;
  state_ = State::kBetween;
  matching_ = false;
  if (streams_) {
    call_.args("\"");
    return;
  }
  call_.args(typing_ == Typing::kJson ? json_value(dialect_, waiting_) : typed_value(dialect_, waiting_, types_));
  waiting_.clear();
}

bool TagReader::finish() {
  if (state_ == State::kConfirm) end_value();
  if (state_ != State::kBetween || !any_) return false;
  close_args();
  return true;
}

}  // namespace barg::text
