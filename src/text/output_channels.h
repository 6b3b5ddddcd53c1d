// ChannelReader: an answer made of messages with headers (Channels of dialect_spec.h: Harmony). Private to src/text;
// state of one parser, not thread-safe.
//
//   header -> body (reasoning | text | arguments of a call) -> between -> header ...
//
// The prompt ends inside the first header, behind the role. What is no header where one is due, and what stands between
// messages, is text. A body ends with any of the ends, or with the header of the next message. Headers are no text, also
// where the answer is cut inside one.
#pragma once

#include <cstdint>
#include <string>

#include "text/output_call.h"

namespace barg::text {

class ChannelReader {
 public:
  ChannelReader(const BoundDialectImpl& dialect, OutputSink& sink, const ParserOptions& options);

  void push(Symbol s, Pushback& again);
  void finish(bool natural);
  bool in_reasoning() const { return state_ == State::kReasoning; }
  std::size_t held() const;

 private:
  enum class State : std::uint8_t { kHeader, kReasoning, kText, kArguments, kPlainInput, kAfterCall, kBetween };
  enum Control : int { kStart, kChannel, kConstrain, kMessage, kFirstEnd };

  void control(int which, Pushback& again);
  void plain(Symbol s, Pushback& again);
  void header_control(int which);
  void header_symbol(Symbol s, Pushback& again);
  void begin_header(int which);
  void no_header();
  bool plausible_role() const;
  void begin_body();
  void argument_symbol(Symbol s, Pushback& again);
  void body_ended(int which);
  void emit(Symbol s);
  void keep_as_text();
  std::string recipient() const;

  const BoundDialectImpl& dialect_;
  const Channels& channels_;
  OutputSink& sink_;
  CallSink call_;
  ValueReader value_;
  std::vector<const Literal*> controls_;
  LiteralScan scan_;
  const bool parallel_, separate_reasoning_;
  State state_ = State::kHeader;
  bool first_ = true;       ///< the header that the prompt began
  bool in_channel_ = false;
  std::string role_, channel_;
  Symbols kept_;            ///< of a header, and of a call that has not started
};

}  // namespace barg::text
