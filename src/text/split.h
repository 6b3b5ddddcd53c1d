// Splitting text into pre-tokens: the steps of a `pre_tokenizer`, each cutting the pieces of the step before.
//
//   "a 12"  --Digits-->  "a ", "1", "2"  --GPT-2 pattern-->  "a", " ", "1", "2"
//
// A pattern known by its exact text runs as hand-written code (several times faster, no limits); any other is
// compiled by PCRE2 with Oniguruma's meaning of \s, ^ and $. What PCRE2 cannot express is an error at load, and so is
// a pattern that needs more steps for a hundred characters than any published one for as many thousand.
//
// Steps are immutable and safe from any thread. Time is linear in the text for the hand-written ones. A PCRE2 pattern
// has limits of steps and memory for one match, and of steps for all long ones of a text; where it would need more it
// gives up, and says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"

namespace barg::text {

struct Span {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

/// What becomes of the matches of a pattern (names of tokenizer.json).
enum class SplitBehavior : std::uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Finds matches of one pattern.
class Matcher {
 public:
  virtual ~Matcher() = default;
  /// Appends the matches in `text`, left to right, not overlapping; offsets are those in `text`. Valid UTF-8.
  /// False: it gave up, and `matches` are those up to there.
  [[nodiscard]] virtual bool find_all(std::string_view text, std::vector<Span>& matches) const = 0;
  /// What can give up, for people; empty for what cannot.
  virtual std::string_view pattern() const { return {}; }
  /// Bytes of every match, where all are equally long.
  virtual std::optional<std::size_t> match_bytes() const { return std::nullopt; }
};

/// Hand-written matcher for a published pattern, nullptr if the text is none of them.
std::unique_ptr<Matcher> known_matcher(std::string_view pattern);
/// PCRE2. Failure: kUnsupported with the reason, also where matching takes steps by the thousand for each character.
Result<std::unique_ptr<Matcher>> regex_matcher(std::string_view pattern);
/// Every occurrence of a string.
std::unique_ptr<Matcher> literal_matcher(std::string text);
/// Every numeric character (N*), one match each.
std::unique_ptr<Matcher> digit_matcher();
/// Every character of a class, one match each.
std::unique_ptr<Matcher> class_matcher(bool (*contains)(char32_t));
/// Runs of word characters, and runs of what is neither those nor white space.
std::unique_ptr<Matcher> word_matcher();

/// The text of the published patterns, keys of known_matcher.
namespace patterns {
extern const char kGpt2[];
extern const char kLlama3[];
extern const char kQwen2[];
extern const char kQwen35[];
extern const char kO200k[];
extern const char kTekken[];
extern const char kDeepSeekV3[];
extern const char kDeepSeekV3Raw[];
extern const char kDigits3[];
extern const char kSpaceLetters[];
extern const char kSpacePunctuation[];
extern const char kKimi[];
extern const char kTrailingSpaces[];
extern const char kDeepSeekLetters[];
extern const char kDeepSeekPunctuation[];
extern const char kSeedCoder[];
}  // namespace patterns

/// Cuts pieces at the matches of one pattern.
class SplitStep {
 public:
  SplitStep(std::unique_ptr<Matcher> matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)), behavior_(behavior), invert_(invert) {}
  /// known_matcher, else regex_matcher.
  static Result<SplitStep> from_pattern(std::string_view pattern, SplitBehavior behavior, bool invert);

  /// Cuts each of `pieces` (spans of `text`) and appends the non-empty results to `out`.
  /// False: the pattern gave up, and what it left of a piece is one.
  [[nodiscard]] bool run(std::string_view text, const std::vector<Span>& pieces, std::vector<Span>& out) const;
  std::string_view pattern() const { return matcher_->pattern(); }
  /// Some of the text may be in no piece.
  bool removes() const { return behavior_ == SplitBehavior::kRemoved; }

 private:
  std::unique_ptr<Matcher> matcher_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace barg::text
