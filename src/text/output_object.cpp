#include <algorithm>

#include "text/output_call.h"

namespace barg::text {
namespace {

using Status = ValueReader::Status;

constexpr std::size_t kMaxIdWait = 16 << 10;

template <std::size_t N>
bool among(std::string_view key, const std::array<std::string_view, N>& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

void ObjectReader::begin(const CallForm& form, bool opened) {
  form_ = &form;
  state_ = opened ? State::kKeyOrEnd : State::kOpen;
  nested_ = 0;
  streams_ = false;
  text_.clear();
  waiting_.clear();
}

Step ObjectReader::push(Symbol s) {
  if (state_ == State::kInKey || state_ == State::kInValue) return value_symbol(s);
  if (is_space(s)) return Step::kMore;
  return structure(s);
}

Step ObjectReader::structure(Symbol s) {
  switch (state_) {
    case State::kOpen:
      if (s != '{') return Step::kBad;
      state_ = State::kKeyOrEnd;
      return Step::kMore;
    case State::kKeyOrEnd:
      if (s == '}') return close();
      [[fallthrough]];
    case State::kKey:
      if (s != '"') return call_.has_args() ? Step::kBefore : Step::kBad;
      text_.clear();
      value_.begin(Lexis::kJson, ValueReader::Top::kAny);
      value_.push(s, text_);
      state_ = State::kInKey;
      return Step::kMore;
    case State::kColon:
      if (s != ':') return Step::kBad;
      state_ = State::kValue;
      return Step::kMore;
    case State::kValue: return begin_value(s);
    case State::kNext:
      if (s == '}') return close();
      if (s != ',') return call_.has_args() ? Step::kBefore : Step::kBad;
      state_ = State::kKeyOrEnd;
      return Step::kMore;
    default: return Step::kBad;
  }
}

bool ObjectReader::end_key() {
  const auto parsed = parse_json(text_);
  if (!parsed || !parsed->is_string()) return false;
  const std::string& key = parsed->as_string();
  nests_ = key == "function";
  if (among(key, kNameKeys)) {
    role_ = Role::kName;
  } else if (among(key, kArgumentKeys)) {
    role_ = Role::kArguments;
  } else if (among(key, kIdKeys)) {
    role_ = Role::kId;
  } else {
    role_ = Role::kOther;
    return !form_->bare || call_.started() || key == kTypeKey;
  }
  return true;
}

Step ObjectReader::begin_value(Symbol s) {
  if (s == '{' && nests_ && nested_ == 0) {
    nested_ = 1;
    state_ = State::kKeyOrEnd;
    return Step::kMore;
  }
  const bool object = s == '{' && role_ == Role::kArguments && !call_.has_args();
  streams_ = object && !call_.name.empty() && (!form_->late_id || !call_.id.empty());
  text_.clear();
  value_.begin(Lexis::kJson, object ? ValueReader::Top::kObject : ValueReader::Top::kAny);
  state_ = State::kInValue;
  return value_symbol(s);
}

Step ObjectReader::value_symbol(Symbol s) {
  const Status status = value_.push(s, text_);
  if (status == Status::kBad) return Step::kBad;
  if (streams_) {
    call_.args(text_);
    text_.clear();
  }
  if (text_.size() + waiting_.size() > kMaxWaiting) return Step::kBad;
  const bool waits = form_->late_id && state_ == State::kInValue && role_ == Role::kArguments;
  if (waits && text_.size() > kMaxIdWait && text_.front() == '{' && !call_.name.empty() && !call_.has_args()) {
    streams_ = true;  // too long to wait for an id
    call_.args(text_);
    text_.clear();
  }
  const bool key = state_ == State::kInKey;
  // A key has ended with its ":" in sight, so its last symbol may be a quote only.
  if (status == Status::kMore) return Step::kMore;
  if (!(key ? end_key() : end_value())) return Step::kBad;
  state_ = key ? State::kColon : State::kNext;
  return status == Status::kBefore ? push(s) : Step::kMore;
}

bool ObjectReader::end_value() {
  switch (role_) {
    case Role::kName: return end_name();
    case Role::kArguments: return end_arguments();
    case Role::kId:
      if (const auto id = parse_json(text_); id && !call_.started() && text_.size() <= kMaxName) {
        call_.id = id->is_string() ? id->as_string() : id->is_integer() ? dump_json(*id) : std::string();
      }
      give_waiting();
      return true;
    case Role::kOther: return true;
  }
  return true;
}

bool ObjectReader::end_name() {
  if (call_.started()) return true;
  const auto name = parse_json(text_);
  if (!name || !name->is_string() || name->as_string().empty() || name->as_string().size() > kMaxName) return false;
  call_.name = name->as_string();
  if (form_->declared_only && !call_.tool()) return false;
  if (!form_->late_id || !call_.id.empty()) give_waiting();
  return true;
}

void ObjectReader::give_waiting() {
  if (waiting_.empty() || call_.name.empty()) return;
  call_.args(waiting_);
  call_.args_complete();
  waiting_.clear();
}

void ObjectReader::finish() { give_waiting(); }

/// Of arguments that did not stream: they came first, they are JSON in a string, or there are none.
bool ObjectReader::end_arguments() {
  if (streams_) {
    streams_ = false;
    call_.args_complete();
    return true;
  }
  if (call_.has_args() || !waiting_.empty()) return true;  // a second time
  if (text_.starts_with('"')) {
    const auto inner = parse_json(text_);
    if (!inner) return false;
    const std::string& json = inner->as_string();
    const bool empty = json.find_first_not_of(" \t\r\n") == json.npos;
    auto value = value_as_json(dialect_, empty ? "{}" : json, Lexis::kJson, ValueReader::Top::kObject);
    if (!value) return false;
    text_ = std::move(*value);
  } else if (text_ == "null") {
    text_ = "{}";
  } else if (!text_.starts_with('{')) {
    return false;
  }
  if (call_.name.empty() || (form_->late_id && call_.id.empty())) {
    waiting_ = std::move(text_);
    text_.clear();
    return true;
  }
  call_.args(text_);
  call_.args_complete();
  return true;
}

Step ObjectReader::close() {
  if (nested_ > 0) {
    nested_ = 0;
    state_ = State::kNext;
    return Step::kMore;
  }
  give_waiting();
  if (call_.has_args()) return Step::kDone;
  if (call_.name.empty() || form_->bare) return Step::kBad;
  call_.args("{}");
  call_.args_complete();
  return Step::kDone;
}

}  // namespace barg::text
