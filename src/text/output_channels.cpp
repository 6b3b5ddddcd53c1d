#include "text/output_channels.h"

#include <algorithm>

namespace barg::text {
namespace {

constexpr std::size_t kMaxHeader = 512;

std::string_view first_word(std::string_view s) {
  const std::size_t begin = s.find_first_not_of(" \t\r\n");
  if (begin == s.npos) return {};
  s.remove_prefix(begin);
  return s.substr(0, s.find_first_of(" \t\r\n"));
}

}  // namespace

ChannelReader::ChannelReader(const BoundDialectImpl& dialect, OutputSink& sink, const ParserOptions& options)
    : dialect_(dialect), channels_(*dialect.channels().channels), sink_(sink), call_(sink), value_(dialect),
      parallel_(options.parallel),
      separate_reasoning_(options.read_reasoning && !dialect.dialect().keep_reasoning_in_text) {
  for (const Literal& control : dialect.channels().controls) controls_.push_back(&control);
  if (options.inside_reasoning) {
    first_ = false;
    state_ = State::kReasoning;
  }
}

void ChannelReader::push(Symbol s, Pushback& again) {
  if (state_ == State::kArguments) return argument_symbol(s, again);
  Symbol other = 0;
  const int found = scan_.push(controls_, [](std::size_t) { return true; }, s, again, other);
  if (found == LiteralScan::kHeld) return;
  if (found == LiteralScan::kPlain) return plain(other, again);
  control(found, again);
}

void ChannelReader::control(int which, Pushback& again) {
  if (state_ == State::kHeader) return header_control(which);
  if (which == kConstrain || which == kMessage) {
    for (const Symbol s : Symbols(scan_.read())) plain(s, again);  // a stray one
    return;
  }
  body_ended(which);
}

void ChannelReader::plain(Symbol s, Pushback& again) {
  switch (state_) {
    case State::kHeader: return header_symbol(s, again);
    case State::kBetween:
      if (is_space(s)) return;
      state_ = State::kText;
      return emit(s);
    case State::kAfterCall:
      if (is_space(s)) return;
      call_.end(true);
      call_.reset();
      state_ = State::kText;
      return emit(s);
    default: return emit(s);
  }
}

void ChannelReader::emit(Symbol s) {
  if (is_token(s) && !is_shown(s)) return;
  std::string text;
  dialect_.append(text, s);
  if (state_ == State::kPlainInput) return sink_.plain_input(text);
  if (state_ == State::kReasoning && separate_reasoning_) return sink_.reasoning(text);
  sink_.text(text);
}

// ---- headers ----

void ChannelReader::begin_header(int which) {
  state_ = State::kHeader;
  first_ = false;
  in_channel_ = which == kChannel;
  role_.clear();
  channel_.clear();
  kept_ = scan_.read();
}

void ChannelReader::header_control(int which) {
  if (which == kStart && role_.empty() && !in_channel_) return begin_header(which);
  kept_.insert(kept_.end(), scan_.read().begin(), scan_.read().end());
  if (which == kChannel && !in_channel_) {
    in_channel_ = true;
  } else if (which == kConstrain && kept_.size() < kMaxHeader) {
    (in_channel_ ? channel_ : role_) += ' ';
  } else if (which == kMessage) {
    begin_body();
  } else {
    no_header();
  }
}

void ChannelReader::header_symbol(Symbol s, Pushback& again) {
  std::string& part = in_channel_ ? channel_ : role_;
  if (is_token(s)) {
    no_header();
    return emit(s);
  }
  part += static_cast<char>(s);
  const bool fits = kept_.size() < kMaxHeader && (!first_ || in_channel_ || plausible_role());
  if (fits) {
    kept_.push_back(s);
    return;
  }
  no_header();
  again.push_front(s);
}

/// Behind the role of the prompt stands nothing but a recipient; anything else is an answer without a header.
bool ChannelReader::plausible_role() const {
  const std::size_t begin = role_.find_first_not_of(' ');
  if (begin == role_.npos) return true;
  const std::string_view rest = std::string_view(role_).substr(begin);
  if (!channels_.recipient.starts_with(rest.substr(0, channels_.recipient.size()))) return false;
  const std::string_view word = first_word(rest);
  return rest.substr(word.size()).find_first_not_of(' ') == rest.npos;
}

void ChannelReader::no_header() {
  if (!first_) sink_.note("a message header was not understood");
  first_ = false;
  keep_as_text();
  state_ = State::kText;
}

void ChannelReader::keep_as_text() {
  std::string text;
  for (const Symbol s : kept_) dialect_.append(text, s);
  kept_.clear();
  sink_.text(text);
}

/// Of the channel's part or the role's.
std::string ChannelReader::recipient() const {
  for (const std::string* part : {&channel_, &role_}) {
    const std::size_t at = part->find(channels_.recipient);
    if (at == part->npos) continue;
    std::string_view name = first_word(std::string_view(*part).substr(at + channels_.recipient.size()));
    if (std::find(channels_.nobody.begin(), channels_.nobody.end(), name) != channels_.nobody.end()) return {};
    if (name.starts_with(channels_.function_prefix)) name.remove_prefix(channels_.function_prefix.size());
    return std::string(name.substr(0, kMaxName));
  }
  return {};
}

void ChannelReader::begin_body() {
  first_ = false;
  const std::string to = recipient();
  if (!to.empty() && sink_.has_tools() && (parallel_ || sink_.complete_calls() == 0)) {
    call_.reset();
    call_.name = to;
    value_.begin(Lexis::kJson, ValueReader::Top::kObject);
    state_ = State::kArguments;
    return;
  }
  kept_.clear();
  state_ = first_word(channel_) == channels_.reasoning_channel && to.empty() ? State::kReasoning : State::kText;
}

// ---- bodies ----

void ChannelReader::body_ended(int which) {
  if (state_ == State::kAfterCall || state_ == State::kPlainInput) {
    call_.end(true);
    call_.reset();
  }
  state_ = State::kBetween;
  if (which == kStart || which == kChannel) begin_header(which);
}

void ChannelReader::argument_symbol(Symbol s, Pushback& again) {
  std::string json;
  const bool untouched = !call_.started();
  const ValueReader::Status status = value_.push(s, json);
  call_.args(json);
  if (call_.started()) kept_.clear();
  if (status == ValueReader::Status::kDone) {
    call_.args_complete();
    state_ = State::kAfterCall;
    return;
  }
  if (status == ValueReader::Status::kMore) {
    if (!call_.started()) kept_.push_back(s);
    return;
  }
  again.push_front(s);
  if (!untouched) {
    sink_.note("the arguments of a tool call broke off: " + call_.name);
    const std::string rest = value_.undecided();
    again.insert(again.begin(), rest.size(), 0);
    std::transform(rest.begin(), rest.end(), again.begin(), byte_symbol);
    call_.end(false);
    call_.reset();
    state_ = State::kText;
    return;
  }
  const ToolInfo* tool = call_.tool();
  const auto ends = [&](const Literal* control) { return !control->empty() && same((*control)[0], s); };
  if (std::any_of(controls_.begin(), controls_.end(), ends)) {  // no arguments
    kept_.clear();
    call_.args("{}");
    call_.args_complete();
    state_ = State::kAfterCall;
  } else if (tool && tool->custom) {
    kept_.clear();
    call_.start();
    state_ = State::kPlainInput;
  } else {
    sink_.note("the arguments of a tool call are no JSON object: " + call_.name);
    keep_as_text();
    state_ = State::kText;
  }
}

void ChannelReader::finish(bool natural) {
  if (scan_.holding()) {
    const Symbols held = scan_.read();
    scan_.clear();
    // Behind a call and in a header it is the beginning of a marker.
    if (state_ != State::kHeader && state_ != State::kAfterCall) {
      for (const Symbol s : held) emit(s);
    }
  }
  switch (state_) {
    case State::kHeader:
      if (first_ && !in_channel_) keep_as_text();
      break;
    case State::kArguments:
      if (!call_.started() && natural) {
        call_.args("{}");
        call_.args_complete();
      }
      call_.start();
      [[fallthrough]];
    case State::kAfterCall:
    case State::kPlainInput: {
      const bool complete = natural && (call_.has_args() || state_ == State::kPlainInput);
      if (!complete) sink_.note("the answer ended inside a tool call: " + call_.name);
      call_.end(complete);
      if (state_ == State::kArguments && !call_.has_args()) sink_.text(value_.undecided());
      break;
    }
    default: break;
  }
  kept_.clear();
}

std::size_t ChannelReader::held() const {
  const std::size_t scanned = scan_.holding() ? dialect_.size_of(scan_.read()) : 0;
  return dialect_.size_of(kept_) + scanned + (state_ == State::kArguments && call_.started() ? value_.held() : 0);
}

}  // namespace barg::text
