#include "text/output_form.h"

#include <algorithm>

namespace barg::text {
namespace {

/// Tools have names like get_weather, mcp__files__read, web.search or a/b.
bool is_name_symbol(Symbol s) {
  constexpr std::string_view kNot = "<>\"'(){}[],;=|`";
  return !is_token(s) && s > ' ' && s != 0x7F && (s >= 128 || kNot.find(static_cast<char>(s)) == kNot.npos);
}

const Literal kBrace = {'{'};

}  // namespace

void FormReader::begin(const BoundForm& form) {
  form_ = &form;
  ended_ = 0;
  index_ = 0;
  matching_ = false;
  call_.reset();
  if (!form.trigger_opens) {
    begin_call(true);
  } else if (form.open.empty()) {
    begin_call(false);
  } else {
    phase_ = Phase::kOpening;
  }
}

FormReader::Status FormReader::push(Symbol s, Pushback& again) {
  switch (phase_) {
    case Phase::kOpening: return opening(s);
    case Phase::kCall: return in_parts(s, again);
    case Phase::kBetween: return between(s, again);
    case Phase::kClosing: return closing(s, again);
  }
  return Status::kFail;
}

FormReader::Status FormReader::opening(Symbol s) {
  if (!matching_) {
    if (is_space(s)) return Status::kMore;
    match_.begin(1);
    matching_ = true;
  }
  const Literal* const open[] = {&form_->open[index_]};
  const int found = match_.push(open, s);
  if (found == OneOf::kMore) return Status::kMore;
  matching_ = false;
  if (found == OneOf::kNone) return Status::kFail;
  if (++index_ == form_->open.size()) begin_call(false);
  return Status::kMore;
}

// ---- the parts of a call ----

void FormReader::begin_call(bool trigger_read) {
  call_.reset();
  phase_ = Phase::kCall;
  matching_ = false;
  args_begun_ = gave_back_ = false;
  if (!trigger_read) return enter(Part::kCallOpen);
  if (!form_->call_open.empty()) {
    part_ = Part::kCallOpen;
    next_part();
  } else if (form_->form->head == Head::kObject) {
    part_ = Part::kObject;
    object_.begin(*form_->form, true);
  } else {
    part_ = Part::kLead;
    next_part();
  }
}

bool FormReader::absent(Part part) const {
  const bool named = form_->form->head == Head::kNamed;
  switch (part) {
    case Part::kCallOpen: return form_->call_open.empty();
    case Part::kAside: return form_->aside_close.empty();
    case Part::kObject: return named;
    case Part::kLead: return !named || form_->lead.empty();
    case Part::kName:
    case Part::kArgs: return !named;
    case Part::kIdMark: return !named || form_->id_mark.empty();
    case Part::kId: return true;  // entered behind its mark only
    case Part::kNameEnd: return !named || form_->name_end.empty();
    case Part::kArgsOpen: return !named || form_->args_open.empty();
    case Part::kArgsClose: return !named || form_->args_close.empty() || form_->form->arguments == Arguments::kTags;
    case Part::kCallClose: return form_->call_close.empty();
    case Part::kEnd: return false;
  }
  return false;
}

/// Goes to `part`, or to the first behind it that this form has.
void FormReader::enter(Part part) {
  while (absent(part)) part = static_cast<Part>(static_cast<int>(part) + 1);
  part_ = part;
  matching_ = false;
  word_.clear();
  if (part == Part::kObject) object_.begin(*form_->form, false);
  if (part != Part::kArgs) return;
  switch (form_->form->arguments) {
    case Arguments::kTags: {
      std::vector<const Literal*> ends;
      for (const Literal* end : {&form_->args_close, &form_->call_close}) {
        if (!end->empty()) ends.push_back(end);
      }
      if (!form_->close.empty()) ends.push_back(&form_->close.front());
      tags_.begin(form_->tags, ends);
      return;
    }
    case Arguments::kJson: return value_.begin(Lexis::kJson, ValueReader::Top::kObject);
    case Arguments::kPython: return value_.begin(Lexis::kPython, ValueReader::Top::kKeywords);
    case Arguments::kGemma: return value_.begin(Lexis::kGemma, ValueReader::Top::kObject);
  }
}

FormReader::Status FormReader::in_parts(Symbol s, Pushback& again) {
  Took took = Took::kNo;
  while (took == Took::kNo && part_ != Part::kEnd) took = part(s, again);
  if (took == Took::kBad) return bad(s, again);
  if (part_ != Part::kEnd) return Status::kMore;
  const Status status = end_call();
  if (took == Took::kNo) again.push_front(s);
  return took == Took::kYes || status == Status::kMore ? status : Status::kLeft;
}

FormReader::Took FormReader::part(Symbol s, Pushback& again) {
  const CallForm& form = *form_->form;
  switch (part_) {
    case Part::kCallOpen: return literal(form_->call_open, true, s, again);
    case Part::kAside: return aside(s, again);
    case Part::kObject: return object(s);
    case Part::kLead: return literal(form_->lead, true, s, again);
    case Part::kName: return name(s);
    case Part::kIdMark: return id_mark(s);
    case Part::kId: return id(s);
    case Part::kNameEnd: return literal(form_->name_end, !form.name_end_optional, s, again);
    case Part::kArgsOpen: return literal(form_->args_open, true, s, again);
    case Part::kArgs: return arguments(s, again);
    case Part::kArgsClose: return literal(form_->args_close, false, s, again);
    case Part::kCallClose: return literal(form_->call_close, false, s, again);
    case Part::kEnd: return Took::kNo;
  }
  return Took::kBad;
}

FormReader::Took FormReader::literal(const Literal& literal, bool required, Symbol s, Pushback& again) {
  if (!matching_) {
    if (is_space(s)) return Took::kYes;
    match_.begin(1);
    matching_ = true;
  }
  const Literal* const one[] = {&literal};
  const int found = match_.push(one, s);
  if (found == OneOf::kMore) return Took::kYes;
  matching_ = false;
  if (found >= 0) {
    next_part();
    return Took::kYes;
  }
  const bool partly = match_.read().size() > 1;
  if (required || (partly && !call_.started())) return Took::kBad;
  next_part();
  if (!partly) return Took::kNo;
  give_back(again, match_.read());
  return Took::kGaveBack;
}

/// An id may stand here, or what ends the name; spelled as text they may begin alike.
FormReader::Took FormReader::id_mark(Symbol s) {
  if (!matching_) {
    if (is_space(s)) return Took::kYes;
    match_.begin_all(2);
    matching_ = true;
  }
  const Literal* const either[] = {&form_->id_mark, &form_->name_end};
  const int found = match_.push(either, s);
  if (found == OneOf::kMore) return Took::kYes;
  matching_ = false;
  if (found == OneOf::kNone) {
    if (match_.read().size() > 1) return Took::kBad;
    next_part();
    return Took::kNo;
  }
  part_ = found == 0 ? Part::kId : Part::kNameEnd;
  word_.clear();
  if (found == 1) next_part();
  return Took::kYes;
}

/// What stands here is read over. Nothing in it may look like its end.
FormReader::Took FormReader::aside(Symbol s, Pushback& again) {
  if (matching_ || same(form_->aside_close[0], s)) return literal(form_->aside_close, true, s, again);
  if (is_token(s) || word_.size() == kMaxName) return Took::kBad;
  word_ += static_cast<char>(s);
  return Took::kYes;
}

FormReader::Took FormReader::object(Symbol s) {
  switch (object_.push(s)) {
    case Step::kMore: return Took::kYes;
    case Step::kDone: next_part(); return Took::kYes;
    case Step::kBefore: next_part(); return Took::kNo;
    case Step::kBad: break;
  }
  if (!call_.has_args()) return Took::kBad;
  next_part();  // the arguments are there, whatever becomes of the rest of the object
  return Took::kNo;
}

FormReader::Took FormReader::name(Symbol s) {
  if (is_space(s) && word_.empty()) return Took::kYes;
  if (is_name_symbol(s)) {
    word_ += static_cast<char>(s);
    return word_.size() > kMaxName ? Took::kBad : Took::kYes;
  }
  if (!end_name()) return Took::kBad;
  next_part();
  return Took::kNo;
}

bool FormReader::end_name() {
  const CallForm& form = *form_->form;
  std::string_view name = word_;
  if (!form.name_suffix.empty()) {
    if (!name.ends_with(form.name_suffix)) return false;
    name.remove_suffix(form.name_suffix.size());
  }
  if (!form.name_prefix.empty() && name.starts_with(form.name_prefix)) name.remove_prefix(form.name_prefix.size());
  if (form.indexed) {
    const std::size_t colon = name.rfind(':');
    const bool index = colon != name.npos && colon + 1 < name.size() &&
                       name.find_first_not_of("0123456789", colon + 1) == name.npos;
    if (index) {
      call_.id = word_;
      name = name.substr(0, colon);
    }
  }
  call_.name = name;
  return !name.empty() && (!form.declared_only || call_.tool());
}

FormReader::Took FormReader::id(Symbol s) {
  if (is_space(s) && word_.empty()) return Took::kYes;
  if (is_name_symbol(s)) {
    word_ += static_cast<char>(s);
    return word_.size() > kMaxName ? Took::kBad : Took::kYes;
  }
  call_.id = word_;
  next_part();
  return Took::kNo;
}

/// JSON arguments may be left out altogether: what closes the call follows at once.
bool FormReader::no_arguments(Symbol s) const {
  if (form_->form->arguments != Arguments::kJson || args_begun_) return false;
  const auto begins = [&](const Literal& end) { return !end.empty() && same(end[0], s); };
  return begins(form_->args_close) || begins(form_->call_close);
}

FormReader::Took FormReader::arguments(Symbol s, Pushback& again) {
  if (form_->form->arguments == Arguments::kTags) {
    const std::size_t before = again.size();
    switch (tags_.push(s, again)) {
      case Step::kMore: return Took::kYes;
      case Step::kDone: next_part(); return Took::kYes;
      case Step::kBefore: next_part(); return Took::kGaveBack;
      case Step::kBad: break;
    }
    // Before the call has started the parser has all of it, and gives it to who is next.
    gave_back_ = call_.started();
    if (!gave_back_) again.erase(again.begin(), again.begin() + static_cast<std::ptrdiff_t>(again.size() - before));
    return Took::kBad;
  }
  if (no_arguments(s)) {
    call_.args("{}");
    call_.args_complete();
    next_part();
    return Took::kNo;
  }
  args_begun_ = args_begun_ || !is_space(s);
  std::string json;
  const ValueReader::Status status = value_.push(s, json);
  call_.args(json);
  if (status == ValueReader::Status::kMore) return Took::kYes;
  if (status != ValueReader::Status::kDone) return Took::kBad;
  call_.args_complete();
  next_part();
  return Took::kYes;
}

// ---- behind a call ----

FormReader::Status FormReader::end_call() {
  call_.end(true);
  call_.reset();
  ++ended_;
  phase_ = Phase::kBetween;
  matching_ = separated_ = false;
  return form_->trigger_opens || !form_->separator.empty() ? Status::kMore : Status::kDone;
}

FormReader::Status FormReader::bad(Symbol s, Pushback& again) {
  if (!call_.started()) return Status::kFail;
  sink_.note("the arguments of a tool call broke off: " + call_.name);
  if (!gave_back_) {
    again.push_front(s);
    const std::string rest = undecided();
    again.insert(again.begin(), rest.size(), 0);
    std::transform(rest.begin(), rest.end(), again.begin(), byte_symbol);
  }
  call_.end(call_.has_args());
  call_.reset();
  return Status::kBroken;
}

const Literal& FormReader::call_start() const {
  if (!form_->call_open.empty()) return form_->call_open;
  return form_->form->head == Head::kObject ? kBrace : form_->lead;
}

FormReader::Status FormReader::between(Symbol s, Pushback& again) {
  static const Literal kNone;
  const Literal& close = form_->close.empty() ? kNone : form_->close.front();
  const Literal* const next[] = {&close, &form_->separator, &call_start()};
  constexpr std::uint32_t kClose = 1, kSeparator = 2, kCall = 4;
  if (!matching_) {
    if (is_space(s)) return Status::kMore;
    const bool more = parallel_ || sink_.complete_calls() == 0;
    const bool closes = !close.empty() && same(close[0], s);
    const bool named = form_->separator.empty() && call_start().empty() && is_name_symbol(s);
    if (more && !closes && (separated_ || named)) {
      begin_call(false);
      return in_parts(s, again);
    }
    const std::uint32_t then = form_->separator.empty() ? kCall : separated_ ? 0 : kSeparator;
    match_.begin(kClose | (more ? then : 0));
    matching_ = true;
  }
  const int found = match_.push(next, s);
  if (found == OneOf::kMore) return Status::kMore;
  matching_ = false;
  switch (found) {
    case 0:
      phase_ = Phase::kClosing;
      index_ = 1;
      return index_ < form_->close.size() ? Status::kMore : Status::kDone;
    case 1: separated_ = true; return Status::kMore;
    case 2: begin_call(true); return Status::kMore;
    default: give_back(again, match_.read()); return Status::kLeft;
  }
}

FormReader::Status FormReader::closing(Symbol s, Pushback& again) {
  if (!matching_) {
    if (is_space(s)) return Status::kMore;
    match_.begin(1);
    matching_ = true;
  }
  const Literal* const close[] = {&form_->close[index_]};
  const int found = match_.push(close, s);
  if (found == OneOf::kMore) return Status::kMore;
  matching_ = false;
  if (found == OneOf::kNone) {
    give_back(again, match_.read());
    return Status::kLeft;
  }
  return ++index_ < form_->close.size() ? Status::kMore : Status::kDone;
}

void FormReader::finish(bool natural) {
  if (natural && phase_ == Phase::kCall && part_ == Part::kObject) object_.finish();
  if (!call_.started()) return;
  if (natural && part_ == Part::kArgs && form_->form->arguments == Arguments::kTags) tags_.finish();
  const bool complete = natural && call_.has_args();
  if (!complete) sink_.note("the answer ended inside a tool call: " + call_.name);
  call_.end(complete);
  ++ended_;
  if (!call_.has_args()) sink_.text(undecided());
  call_.reset();
}

std::string FormReader::undecided() const {
  if (call_.has_args()) return {};
  if (part_ == Part::kObject) return object_.undecided();
  if (part_ != Part::kArgs) return {};
  return form_->form->arguments == Arguments::kTags ? tags_.undecided() : value_.undecided();
}

std::size_t FormReader::held() const {
  if (!call_.started()) return 0;
  const std::size_t match = matching_ ? dialect_.size_of(match_.read()) : 0;
  switch (part_) {
    case Part::kObject: return object_.held();
    case Part::kArgs: return form_->form->arguments == Arguments::kTags ? tags_.held() : value_.held();
    default: return match;
  }
}

}  // namespace barg::text
