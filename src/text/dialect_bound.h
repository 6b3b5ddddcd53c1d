// What a dialect looks like to one tokenizer. Private to src/text; immutable, any thread.
//
// The parser reads symbols: a byte of ordinary text, or a marker that came as one token. A literal of a description
// becomes symbols once, when the tokenizer is known: added tokens in it as tokens, the rest as bytes. So a marker
// that is a token never matches its spelling, and one that the tokenizer does not know matches nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/dialect.h"
#include "text/dialect_spec.h"

namespace barg::text {

using Symbol = std::int32_t;
inline constexpr Symbol kFirstToken = 512;  ///< below: a byte

constexpr Symbol byte_symbol(char c) { return static_cast<unsigned char>(c); }
/// `shown`: a client would see the token if it marked nothing.
constexpr Symbol token_symbol(TokenId id, bool shown) { return kFirstToken + 2 * id + (shown ? 1 : 0); }
constexpr bool is_token(Symbol s) { return s >= kFirstToken; }
constexpr TokenId token_of(Symbol s) { return (s - kFirstToken) / 2; }
constexpr bool is_shown(Symbol s) { return ((s - kFirstToken) & 1) != 0; }
constexpr bool same(Symbol a, Symbol b) {
  return a == b || (is_token(a) && is_token(b) && token_of(a) == token_of(b));
}
constexpr bool is_space(Symbol s) { return s == ' ' || s == '\n' || s == '\t' || s == '\r'; }

using Literal = std::vector<Symbol>;  ///< empty: there is none

/// The longest added token at each place counts, as when the text is tokenised; the rest are bytes. `added`, if any, is
/// given those tokens with their texts.
Literal bind_literal(std::string_view text, const Tokenizer& tokenizer,
                     std::unordered_map<TokenId, std::string>* added = nullptr);

struct BoundTags {
  Literal key_open, value_open, value_close;
  std::vector<std::pair<Literal, Typing>> key_ends;  ///< longest first
  bool lines = false;
  bool close_is_token = false;
};

struct BoundForm {
  const CallForm* form = nullptr;
  Literal trigger;                 ///< what starts a run
  bool trigger_opens = false;      ///< it is open[0], else it starts the first call
  std::vector<Literal> open;       ///< behind open[0]
  Literal separator;
  std::vector<Literal> close;
  Literal call_open, aside_close, lead, id_mark, name_end, args_open, args_close, call_close;
  BoundTags tags;
};

struct BoundChannels {
  const Channels* channels = nullptr;
  std::vector<Literal> controls;   ///< start, channel, constrain, message, ends...
};

class BoundDialectImpl final : public BoundDialect {
 public:
  BoundDialectImpl(const DetectedDialect& detected, const Tokenizer& tokenizer);

  const Dialect& dialect() const override { return *dialect_; }
  const ReasoningMarkers& reasoning() const override { return markers_; }
  bool is_marker(TokenId id) const override { return tokens_.contains(id); }
  std::span<const TokenId> call_end_ids() const override { return call_ends_; }

  const std::vector<BoundForm>& forms() const { return forms_; }
  const BoundChannels& channels() const { return channels_; }
  const Literal& reasoning_open() const { return reasoning_open_; }
  const Literal& reasoning_close() const { return reasoning_close_; }
  const Literal& answer_open() const { return answer_open_; }
  const Literal& answer_close() const { return answer_close_; }
  const Literal& quote() const { return quote_; }  ///< of Gemma's strings
  /// A symbol's text, whoever sees it.
  void append(std::string& out, Symbol s) const;
  std::size_t size_of(Symbol s) const;
  std::size_t size_of(const std::vector<Symbol>& symbols) const;

 private:
  Literal bind(std::string_view text);
  BoundForm bind_form(const CallForm& form);

  const Dialect* dialect_;
  ReasoningMarkers markers_;
  const Tokenizer* tokenizer_;  ///< of the constructor's duration: append() has its own texts
  std::unordered_map<TokenId, std::string> tokens_;
  std::vector<TokenId> call_ends_;
  std::vector<BoundForm> forms_;
  BoundChannels channels_;
  Literal reasoning_open_, reasoning_close_, answer_open_, answer_close_, quote_;
};

}  // namespace barg::text
