// ValueReader: one value as a model writes it, symbol by symbol, becomes JSON as soon as it is certain.
//
// Three notations. kJson: what is JSON passes as it stands, white space included; small slips of models are mended
// (raw control characters and unknown escapes in strings, lone surrogates, trailing commas, True/False/None).
// kPython: literals, with ' " and ''' strings, tuples as arrays. kGemma: strings between <|"|>, bare keys.
// What has been appended is always a prefix of valid JSON: at most 64 deep, numbers and words only when they have
// ended. A marker token inside a string is its text.
//
// Linear; holds a word, a key or a comma back, at most kMaxWord bytes. Not thread-safe; `dialect` outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialect_bound.h"

namespace barg::text {

enum class Lexis : std::uint8_t { kJson, kPython, kGemma };

class ValueReader {
 public:
  enum class Top : std::uint8_t {
    kObject,
    kAny,
    kKeywords,  ///< KEY=VALUE, ... and the ")" of a call whose "(" has been read
  };
  enum class Status : std::uint8_t {
    kMore,
    kDone,    ///< the symbol ended the value
    kBefore,  ///< the value had ended before it
    kBad,     ///< the symbol cannot stand here; it is not consumed
  };
  static constexpr std::size_t kMaxDepth = 64, kMaxWord = 1024;

  explicit ValueReader(const BoundDialectImpl& dialect) : dialect_(&dialect) {}

  void begin(Lexis lexis, Top top);
  Status push(Symbol s, std::string& out);
  std::size_t held() const { return word_.size() + pending_.size() + escape_.size() + delimiter_at_; }
  /// Content read that is not in the JSON yet, as written: a word, a key, part of an escape. For what broke off.
  std::string undecided() const;

 private:
  enum class State : std::uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kNext, kString, kWord, kBareKey };
  struct Frame {
    char closer;
    char emits;
    bool keys;
  };

  Status structure(Symbol s, std::string& out);
  Status open_value(Symbol s, std::string& out);
  Status open_key(Symbol s, std::string& out);
  Status open_frame(Frame frame, char emits, std::string& out);
  Status close_frame(std::string& out);
  Status value_done();
  Status word_symbol(Symbol s);
  bool end_word(std::string& out);
  bool starts_string(Symbol s) const;
  Status begin_string(Symbol s, bool key, std::string& out);
  Status string_symbol(Symbol s, std::string& out);
  Status gemma_symbol(Symbol s, std::string& out);
  Status plain_symbol(Symbol s, std::string& out);
  Status end_string(std::string& out);
  bool quote_symbol(Symbol s, std::string& out, Status& status);
  Status escape_symbol(Symbol s, std::string& out);
  bool simple_escape(char c, std::string& out);
  void code_point(char32_t cp, std::string& out);
  void settle_surrogate(std::string& out);
  void settle_pending(std::string& out);
  bool closes(Symbol s) const { return !stack_.empty() && s == byte_symbol(stack_.back().closer); }

  const BoundDialectImpl* dialect_;
  Lexis lexis_ = Lexis::kJson;
  Top top_ = Top::kAny;
  State state_ = State::kValue;
  std::vector<Frame> stack_;
  std::string pending_;  ///< a comma that a value must follow; "{" of keywords
  std::string word_;     ///< number, word or bare key so far
  std::string gap_;      ///< white space behind a bare key
  // -- of the string being read
  Symbol delimiter_ = 0;  ///< quote byte; 0 = Gemma's
  bool is_key_ = false;
  bool triple_ = false;
  int quotes_ = 0;             ///< Python: quotes seen in a row; at the start of a string, after its first
  bool at_start_ = false;      ///< Python: no content yet
  std::size_t delimiter_at_ = 0;  ///< symbols of Gemma's quote matched
  std::string escape_;
  char32_t high_ = 0;  ///< a high surrogate that waits for its other half
};

/// A number or word as JSON; nullopt if it is none.
std::optional<std::string> word_as_json(std::string_view word, Lexis lexis);
/// One byte of a string's content.
void append_json_byte(std::string& out, char c);
/// All of `text` as one value, or nullopt.
std::optional<std::string> value_as_json(const BoundDialectImpl& dialect, std::string_view text, Lexis lexis,
                                         ValueReader::Top top);

}  // namespace barg::text
