// ChoiceStream: the tokens of one choice become events that may be shown, with each token's record attached to the
// events that show it.
//
//   OutputToken -> Detokenizer -> StopMatcher -> (OutputParser) -> Piece {events, tokens}
//
// Without a dialect, or where it has no reasoning and there are no tools, there is no parser and everything is text.
// Markers reach the parser as tokens although nobody is shown them, in order with text that the matcher holds
// back; the literal of a marker that would be shown passes the matcher, so that a stop string may be, or end in, one.
//
// Invariants:
//  1. However the tokens are split into pushes, the joined events, the list of all records and finish() are the same.
//  2. A record leaves with the events that its text decides, never before; none is lost (what is left leaves with the
//     last piece). It says which bytes of all text events are the token's own (text_trace.h): none of those of
//     reasoning, of calls, of markers and of layout.
//  3. After done() everything else is ignored: tokens that the engine computed past a stop string do not count.
//
// Without records (most requests want none), stop strings and parser a token costs a look-up and an append; nothing
// is allocated.
//
// State of one choice of one request; not thread-safe; the tokenizer outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/tokenizer.h"
#include "server/openai_json.h"
#include "server/text_trace.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"

namespace barg::server {

struct OutToken {
  TokenId id = kNoToken;
  std::optional<TokenLogprobs> logprobs;
  std::size_t char_start = 0;  ///< characters of visible text before it
  bool hidden = false;         ///< contributes no text: a skipped special token, or the token that stopped
  std::size_t text_begin = 0, text_end = 0;  ///< its bytes in the joined text events of the choice; equal: it has none

  bool has_text() const { return text_begin < text_end; }
};

struct Piece {
  text::OutputEvents events;
  std::vector<OutToken> tokens;
  bool empty() const { return events.empty() && tokens.empty(); }
};

struct ChoiceStart {
  std::span<const TokenId> prompt = {};  ///< its end primes the detokenizer: a character begun there is completed
  std::size_t chars_before = 0;          ///< where character offsets start
  bool records = false;                  ///< somebody wants Piece::tokens
  std::shared_ptr<const text::BoundDialect> dialect = {};
  std::shared_ptr<const std::vector<text::ToolInfo>> tools = {};
  bool inside_reasoning = false;  ///< the prompt ends there
};

class ChoiceStream {
 public:
  ChoiceStream(const Tokenizer& tokenizer, const OutputSpec& spec, ChoiceStart start);

  /// `finish`/`stop_token` as in TokenEvent. Nothing comes out while nothing new may be shown. The piece
  /// lasts until the next push; the caller may move from it.
  Piece& push(std::vector<OutputToken>&& tokens, FinishReason finish, TokenId stop_token);

  bool done() const { return finish_ != FinishReason::kNone; }
  FinishReason finish() const { return finish_; }
  std::int32_t token_count() const { return count_; }
  /// Of these, tokens that came while a block of reasoning was open, the marker that closes it included.
  std::int32_t reasoning_count() const { return reasoning_; }
  std::int32_t complete_calls() const { return parser_ ? parser_->complete_calls() : 0; }
  /// Why something that looked like a call is text; empty if nothing did.
  std::string note() const { return parser_ ? parser_->note() : std::string(); }
  /// Index into OutputSpec::stop of the string that ended it, -1 if none did.
  int stop_string() const { return stop_string_; }
  /// The id that ended it, if it is none of the model's own end tokens; else kNoToken.
  TokenId stop_id() const { return stop_id_; }

 private:
  // Positions count the bytes that the parser is given, in their order: visible text, and the literals of markers
  // whether they are visible or not.
  struct Held {
    OutToken token;
    std::size_t begin, end;  ///< its bytes; `end`: where its text is complete
  };
  struct Mark {
    TokenId id;
    std::size_t begin, end;
    bool shown;  ///< its literal is part of the visible text
  };
  void push_token(OutputToken& token, bool silent);
  void feed(std::string_view text);
  void release(std::string_view text);
  bool pass_mark(const Mark& mark, std::string_view& text);
  template <class Push>
  void traced(std::string_view bytes, Push push);
  void read_text(std::string_view text);
  TextTrace::Range text_of(const Held& held);
  void append_text(std::string_view text);
  void end(FinishReason finish, TokenId stop_token);
  void take_released(bool all);
  bool natural_end(TokenId stop_token) const;

  const Tokenizer& tokenizer_;
  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  std::shared_ptr<const text::BoundDialect> dialect_;
  std::optional<text::OutputParser> parser_;
  const bool skip_special_, include_stop_, records_, whole_;
  const std::int32_t min_tokens_;
  Piece out_;          ///< what the current push shows
  std::string spare_;  ///< memory of the last piece's text
  std::string text_;   ///< of the current token
  std::deque<Held> held_;
  TextTrace trace_;    ///< of the parser, where records are wanted
  std::deque<Mark> marks_;       ///< fed and not given to the parser yet
  std::size_t mark_seen_ = 0;    ///< bytes of the first one's literal that have been released
  std::size_t fed_ = 0, given_ = 0;  ///< positions: of what came in, of what the parser has (or was shown)
  std::size_t chars_;
  std::int32_t count_ = 0, reasoning_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  int stop_string_ = -1;
  bool for_length_ = false;  ///< a token was chosen so that the answer ends in time
  bool natural_ = false;     ///< the model ended it itself, or it is whole all the same
  TokenId stop_id_ = kNoToken;
};

/// Characters (code points) of valid UTF-8.
std::size_t count_characters(std::string_view s);
/// Characters of `text` that are not the new token's own: bytes held before it turned out to be none.
std::size_t broken_characters(std::size_t held, std::string_view text);

}  // namespace barg::server
