// FormReader: one run of calls in one form of a dialect (dialect_spec.h), from behind its trigger. Private to src/text;
// state of one parser, not thread-safe.
//
//   opening -> { call -> between }* -> closing
//
// A run that breaks before its first call starts is no run (kFail): the parser tries the next form, or makes text of
// all it kept. Every call that has started ends.
#pragma once

#include <cstdint>
#include <string>

#include "text/output_call.h"

namespace barg::text {

class FormReader {
 public:
  enum class Status : std::uint8_t {
    kMore,
    kDone,      ///< the run has ended with this symbol
    kLeft,      ///< it had ended before; what is not its own is given back through `again`
    kFail,      ///< the call being read is none; the symbol is not consumed
    kBroken,    ///< a started call broke off and has ended; the symbol is given back
  };

  FormReader(const BoundDialectImpl& dialect, OutputSink& sink, bool parallel)
      : call_(sink), sink_(sink), dialect_(dialect), parallel_(parallel), object_(dialect, call_), tags_(dialect, call_),
        value_(dialect) {}

  void begin(const BoundForm& form);
  Status push(Symbol s, Pushback& again);
  /// The answer ends here. A started call ends.
  void finish(bool natural);

  /// A call has started and not ended. While none has, what was read may still be text and the parser keeps it.
  bool in_call() const { return call_.started(); }
  /// Behind a call, before the next.
  bool between() const { return phase_ == Phase::kBetween || phase_ == Phase::kClosing; }
  /// Calls of this run that have ended.
  int ended() const { return ended_; }
  /// Bytes of the call being read that are in no event yet.
  std::size_t held() const;

 private:
  enum class Phase : std::uint8_t { kOpening, kCall, kBetween, kClosing };
  enum class Part : std::uint8_t {
    kCallOpen, kAside, kObject, kLead, kName, kIdMark, kId, kNameEnd, kArgsOpen, kArgs, kArgsClose, kCallClose, kEnd
  };
  enum class Took : std::uint8_t { kYes, kNo, kGaveBack, kBad };

  Status opening(Symbol s);
  Status in_parts(Symbol s, Pushback& again);
  Status between(Symbol s, Pushback& again);
  Status closing(Symbol s, Pushback& again);
  Status bad(Symbol s, Pushback& again);
  Status end_call();
  void begin_call(bool trigger_read);

  Took part(Symbol s, Pushback& again);
  Took id_mark(Symbol s);
  std::string undecided() const;
  Took literal(const Literal& literal, bool required, Symbol s, Pushback& again);
  Took aside(Symbol s, Pushback& again);
  Took object(Symbol s);
  Took name(Symbol s);
  Took id(Symbol s);
  Took arguments(Symbol s, Pushback& again);
  bool end_name();
  bool no_arguments(Symbol s) const;
  bool absent(Part part) const;
  void enter(Part part);
  void next_part() { enter(static_cast<Part>(static_cast<int>(part_) + 1)); }
  const Literal& call_start() const;

  CallSink call_;
  OutputSink& sink_;
  const BoundDialectImpl& dialect_;
  const bool parallel_;
  ObjectReader object_;
  TagReader tags_;
  ValueReader value_;
  const BoundForm* form_ = nullptr;
  Phase phase_ = Phase::kOpening;
  Part part_ = Part::kCallOpen;
  std::size_t index_ = 0;    ///< of open or close
  int ended_ = 0;
  bool separated_ = false;   ///< between calls: the separator was read
  bool matching_ = false;
  bool args_begun_ = false;
  bool gave_back_ = false;   ///< the tags gave a bad symbol back themselves
  OneOf match_;
  std::string word_;         ///< name, id or aside as written
};

}  // namespace barg::text
