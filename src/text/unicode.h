// Unicode facts the tokenizer needs: classes of code points as the published split patterns use them, and
// the normal forms.
//
// The classes are those of Unicode 16.0, which the Oniguruma inside Hugging Face tokenizers has: utf8proc's
// categories plus a table of what its version (15.0 in Debian 12) does not know. Normal forms are older there; see
// to_form. Everything is a pure function,
// safe from any thread. Text is valid UTF-8 everywhere below (the tokenizer repairs it once at its door); nothing
// here checks again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace barg::text {

/// Bits of a code point. A letter is L, a case-less letter is also kUpper and kLower: those two are the sets
/// [Lu Lt Lm Lo M] and [Ll Lm Lo M] of the o200k pattern.
enum CharClass : std::uint16_t {
  kLetter = 1,   // L*
  kNumber = 2,   // N*
  kSpace = 4,    // White_Space
  kMark = 8,     // M*
  kUpper = 16,
  kLower = 32,
  kNewline = 64,        // CR, LF
  kPunctuation = 128,   // P*
  kSymbol = 256,        // S*
  kDigitStep = 512      // numeric for the Digits pre-tokenizer: N* of Rust's newer Unicode
};
using CharBits = std::uint16_t;

CharBits char_class(char32_t cp);
/// \w of Rust's regex crate: Alphabetic, marks, decimal digits, connector punctuation, join controls.
bool is_word(char32_t cp);

struct CodePoint {
  char32_t value;
  std::uint32_t bytes;
};
/// REQUIRES valid UTF-8 and i < s.size().
inline CodePoint decode_utf8(std::string_view s, std::size_t i) {
  const auto b = [&](std::size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(s[i + k])); };
  const char32_t b0 = b(0);
  if (b0 < 0x80) return {b0, 1};
  if (b0 < 0xE0) return {(b0 & 0x1F) << 6 | (b(1) & 0x3F), 2};
  if (b0 < 0xF0) return {(b0 & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F), 3};
  return {(b0 & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F), 4};
}

/// Class and length of the code point at s[i]; {0, 0} at the end.
struct ClassAt {
  CharBits bits;
  std::uint32_t bytes;
};
ClassAt class_at(std::string_view s, std::size_t i);

/// A code point that Unicode 15.1 or later brought.
bool is_after_unicode15(char32_t cp);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// True when the form would change nothing, by a quick test that may say false for normal text.
bool is_surely(NormalForm form, std::string_view s);
/// A normal form as Hugging Face tokenizers make it: with the data of Unicode 9. O(n log n) also for endless runs of
/// combining marks.
std::string to_form(NormalForm form, std::string_view s);

}  // namespace barg::text
