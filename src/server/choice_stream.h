// ChoiceStream: the tokens of one choice become text that may be shown, with each token's record attached to
// the text that shows it.
//
//   OutputToken -> Detokenizer -> StopMatcher -> Piece {text, tokens}
//
// Invariants:
//  1. However the tokens are split into pushes, the concatenation of all texts, the list of all records and
//     finish() are the same.
//  2. A record leaves with the text that completes it, never before; none is lost (what is left leaves with
//  the
//     last piece).
//  3. After done() everything else is ignored: tokens that the engine computed past a stop string do not
//  count.
//
// Without records (most requests want none) and stop strings a token costs a look-up and an append; nothing
// is allocated.
//
// State of one choice of one request; not thread-safe; the tokenizer outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/tokenizer.h"
#include "server/openai_json.h"
#include "text/detokenizer.h"

namespace barg::server {

struct OutToken {
  TokenId id = kNoToken;
  std::optional<TokenLogprobs> logprobs;
  std::size_t char_start = 0;  ///< characters of visible text before it
  bool hidden = false;         ///< contributes no text: a skipped special token, or the token that stopped
};

struct Piece {
  std::string text;
  std::vector<OutToken> tokens;
  bool empty() const { return text.empty() && tokens.empty(); }
};

class ChoiceStream {
 public:
  /// `prompt`: its last tokens prime the detokenizer, so that a character begun there is completed, not
  /// broken. `chars_before`: where character offsets start. `records`: somebody wants Piece::tokens.
  ChoiceStream(const Tokenizer& tokenizer, const OutputSpec& spec, std::span<const TokenId> prompt,
               std::size_t chars_before, bool records);

  /// `finish`/`stop_token` as in TokenEvent. Nothing comes out while nothing new may be shown. The piece
  /// lasts until the next push; the caller may move from it.
  Piece& push(std::vector<OutputToken>&& tokens, FinishReason finish, TokenId stop_token);

  bool done() const { return finish_ != FinishReason::kNone; }
  FinishReason finish() const { return finish_; }
  std::int32_t token_count() const { return count_; }
  /// Index into OutputSpec::stop of the string that ended it, -1 if none did.
  int stop_string() const { return stop_string_; }
  /// The id that ended it, if it is none of the model's own end tokens; else kNoToken.
  TokenId stop_id() const { return stop_id_; }

 private:
  struct Held {
    OutToken token;
    std::size_t end;  ///< bytes fed to the matcher when its text is complete
  };
  void push_token(OutputToken& token, bool silent);
  void feed(std::string_view text);
  void take_released(bool all);

  const Tokenizer& tokenizer_;
  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  const bool skip_special_, include_stop_, records_;
  const std::int32_t min_tokens_;
  Piece out_;         ///< what the current push shows
  std::string text_;  ///< of the current token
  std::deque<Held> held_;
  std::size_t fed_ = 0;  ///< bytes of visible text so far, held back ones included
  std::size_t chars_;
  std::int32_t count_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  int stop_string_ = -1;
  TokenId stop_id_ = kNoToken;
};

/// Characters (code points) of valid UTF-8.
std::size_t count_characters(std::string_view s);
/// Characters of `text` that are not the new token's own: bytes held before it turned out to be none.
std::size_t broken_characters(std::size_t held, std::string_view text);

}  // namespace barg::server
