// PreTokenizer: one step between the normalised text and the model. A step cuts pieces (split.h), or writes the text
// anew:
//
//   {"Hi  you"} --Metaspace--> "_Hi__you", {"_Hi", "_", "_you"}      (the underscore stands for U+2581)
//
// Immutable and safe from any thread; linear time. Text is valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/split.h"

namespace barg::text {

/// A text on its way. Pieces are not empty, ascending and separate.
class PreTokens {
 public:
  /// `text` must outlive this. `at_start`: it begins where the whole input begins.
  PreTokens(std::string_view text, bool at_start);

  std::string_view text() const { return text_; }
  const std::vector<Span>& pieces() const { return pieces_; }
  std::string_view piece(const Span& s) const { return text_.substr(s.begin, s.size()); }
  /// Does the first piece begin where the whole input begins?
  bool at_start() const { return at_start_ && !pieces_.empty() && pieces_[0].begin == 0; }

  /// Other pieces of the same text.
  void cut(std::vector<Span> pieces);
  /// Another text, and its pieces.
  void write(std::string text, std::vector<Span> pieces);
  /// `pattern` (of a step, which outlives this) left some of the text as it was.
  void give_up(std::string_view pattern) { gave_up_ = pattern; }
  /// Empty: none did.
  std::string_view gave_up() const { return gave_up_; }

 private:
  std::string_view text_;
  std::string own_;  ///< what text_ is a view of once a step has written it
  std::vector<Span> pieces_;
  bool at_start_;
  std::string_view gave_up_;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void run(PreTokens& tokens) const = 0;
  /// Some of the text may be in no piece. What does not remove any does not make it shorter either.
  virtual bool removes() const { return false; }
};
using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

enum class PrependScheme : std::uint8_t { kAlways, kFirst, kNever };

PreTokenizerPtr split_step(SplitStep step);
/// A space before each piece that has none (ByteLevel's add_prefix_space).
PreTokenizerPtr prefix_space_step();
/// The printable characters of the bytes (ByteLevel where it is not the last step).
PreTokenizerPtr printable_step();
/// Spaces become `mark`, and one is put before pieces that begin with none; with `split` each mark begins a piece.
PreTokenizerPtr metaspace_step(std::string mark, PrependScheme scheme, bool split);
/// Pieces of `length` > 0 characters.
PreTokenizerPtr fixed_length_step(std::size_t length);

}  // namespace barg::text
