// Readers of one call, from behind what marks it to its end. Private to src/text.
//
// Each takes a symbol at a time and tells what became of it (Step). What they find goes to a CallSink: a call starts
// there once its name and the beginning of its arguments are certain. Until then a reader is strict and the parser
// keeps every symbol, so that a call that is none is text as it was written; afterwards a reader is lenient about
// everything but the arguments.
//
// Linear and bounded: held names, ids and keys are short, values wait only where their type asks for it. State of one
// parser, not thread-safe; what they are given to read by outlives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/output_scan.h"
#include "text/output_schema.h"
#include "text/output_sink.h"
#include "text/output_values.h"

namespace barg::text {

enum class Step : std::uint8_t {
  kMore,
  kDone,    ///< the symbol ended what is read here
  kBefore,  ///< it had ended before the symbol
  kBad,     ///< the symbol cannot stand here; it is not consumed
};

inline constexpr std::size_t kMaxName = 256;
inline constexpr std::size_t kMaxWaiting = 1 << 20;  ///< bytes of a value that waits for its type

/// One call on its way to the sink.
class CallSink {
 public:
  explicit CallSink(OutputSink& sink) : sink_(&sink) {}

  void reset() { *this = CallSink(*sink_); }

  std::string name, id;  ///< as far as known

  void start() {
    if (!started_) sink_->start(name, id);
    started_ = true;
  }
  void args(std::string_view json) {
    if (json.empty()) return;
    start();
    sink_->args(json);
  }
  void args_complete() { args_complete_ = true; }
  void end(bool complete) { sink_->end(complete); }

  bool started() const { return started_; }
  bool has_args() const { return args_complete_; }
  const ToolInfo* tool() const { return sink_->find_tool(name); }

 private:
  OutputSink* sink_;
  bool started_ = false;
  bool args_complete_ = false;
};

/// {"name": ..., "arguments": {...}}; arguments may be JSON text in a string, and stand before the name.
class ObjectReader {
 public:
  ObjectReader(const BoundDialectImpl& dialect, CallSink& call) : dialect_(dialect), call_(call), value_(dialect) {}

  /// `opened`: the "{" has been read.
  void begin(const CallForm& form, bool opened);
  Step push(Symbol s);
  /// The model ended its answer here: arguments that waited for an id are given.
  void finish();
  std::size_t held() const { return text_.size() + waiting_.size() + value_.held(); }
  std::string undecided() const { return streams_ ? value_.undecided() : std::string(); }

 private:
  enum class State : std::uint8_t { kOpen, kKeyOrEnd, kKey, kInKey, kColon, kValue, kInValue, kNext };
  enum class Role : std::uint8_t { kName, kArguments, kId, kOther };

  Step structure(Symbol s);
  Step begin_value(Symbol s);
  Step value_symbol(Symbol s);
  bool end_key();
  bool end_value();
  bool end_name();
  bool end_arguments();
  void give_waiting();
  Step close();

  const BoundDialectImpl& dialect_;
  CallSink& call_;
  ValueReader value_;
  const CallForm* form_ = nullptr;
  State state_ = State::kOpen;
  Role role_ = Role::kOther;
  int nested_ = 0;        ///< inside {"function": {...}}
  bool nests_ = false;    ///< the key may open one
  bool streams_ = false;  ///< the value being read is arguments on their way out
  std::string text_;      ///< of a key or value that is not
  std::string waiting_;   ///< arguments that came before the name or wait for the id
};

/// <parameter=KEY>VALUE</parameter> ... and what ends them. A closing tag inside a value is text unless what may
/// follow a value follows it.
class TagReader {
 public:
  TagReader(const BoundDialectImpl& dialect, CallSink& call) : dialect_(dialect), call_(call) {}

  /// REQUIRES call.name. `ends`: what ends the arguments, the proper one first.
  void begin(const BoundTags& tags, std::span<const Literal* const> ends);
  /// kDone: the first of `ends` was read. kBefore: another stood there; it, and with kBad what cannot stand here, is
  /// given back through `again`.
  Step push(Symbol s, Pushback& again);
  /// The model ended its answer here; true: the arguments are complete.
  bool finish();
  std::size_t held() const;
  std::string undecided() const;  ///< content that is in no event, as written

 private:
  enum class State : std::uint8_t { kBetween, kKey, kValueOpen, kValueStart, kValue, kConfirm };

  Step between(Symbol s, Pushback& again);
  Step key(Symbol s, Pushback& again);
  Step value(Symbol s, Pushback& again);
  Step confirm(Symbol s, Pushback& again);
  Step after_match(int which, Pushback& again);
  void end_key(Typing typing);
  void value_symbol(Symbol s);
  void value_bytes(std::string_view bytes);
  void settle_newline();
  void stream_value();
  void end_value();
  void close_args();

  const BoundDialectImpl& dialect_;
  CallSink& call_;
  const BoundTags* tags_ = nullptr;
  std::vector<const Literal*> next_;  ///< key_open, then the ends
  std::vector<const Literal*> close_; ///< value_close
  OneOf match_;
  bool matching_ = false;
  LiteralScan scan_;
  State state_ = State::kBetween;
  bool any_ = false;        ///< a parameter has begun
  Symbols key_;
  Typing typing_ = Typing::kSchema;
  ValueTypes types_;
  bool streams_ = false;    ///< the value is a string and leaves as it comes
  bool newline_ = false;    ///< one that may be layout
  std::string waiting_;     ///< the value, until its type is known
  Symbols look_;            ///< behind a closing tag that is not believed yet
  std::size_t spaces_ = 0;
};

}  // namespace barg::text
