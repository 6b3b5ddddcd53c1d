#include "text/grammar/machine_text.h"

namespace barg::text::grammar::pushdown {
namespace {

constexpr char32_t kHigh = 0xD800, kLow = 0xDC00, kBehindSurrogates = 0xE000, kBeyondBmp = 0x10000;

struct ShortEscape {
  std::uint8_t letter, character;
};
constexpr ShortEscape kShort[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                  {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};

int hex_digit(std::uint8_t b) {
  if (b >= '0' && b <= '9') return b - '0';
  if (b >= 'a' && b <= 'f') return b - 'a' + 10;
  if (b >= 'A' && b <= 'F') return b - 'A' + 10;
  return -1;
}

/// `missing`: digits until the first unit is whole.
void add_units(CodeRanges& out, char32_t lo, char32_t hi, int missing) {
  out.add(lo, std::min<char32_t>(hi, kHigh - 1), missing);
  out.add(std::max(lo, kBehindSurrogates), hi, missing);
  const char32_t first = std::max(lo, kHigh), last = std::min<char32_t>(hi, kLow - 1);
  if (first > last) return;
  out.add(kBeyondBmp + ((first - kHigh) << 10), kBeyondBmp + ((last - kHigh) << 10) + 0x3FF, missing + 6);
}

void add_pair(CodeRanges& out, Escape escape) {
  const char32_t base = kBeyondBmp + (static_cast<char32_t>(escape.value >> 6) << 10),
                 low = escape.value & 63;
  switch (escape.kind) {
    case Escape::kPair2:
      return out.add(base + (low << 8), base + (low << 8) + 0xFF, 2);
    case Escape::kPair3:
      return out.add(base + (low << 4), base + (low << 4) + 0xF, 1);
    default:
      return out.add(base, base + 0x3FF, 6 - (escape.kind - Escape::kPairBackslash));
  }
}

EscapeStep pending(Escape::Kind kind, unsigned value) {
  return {EscapeStep::kPending, {kind, static_cast<std::uint16_t>(value)}, 0};
}
EscapeStep done(char32_t code_point) { return {EscapeStep::kDone, {}, code_point}; }

EscapeStep behind_backslash(std::uint8_t byte) {
  if (byte == 'u') return pending(Escape::kU0, 0);
  for (const ShortEscape& e : kShort) {
    if (e.letter == byte) return done(e.character);
  }
  return {};
}

EscapeStep unit_digit(Escape escape, unsigned digit) {
  const unsigned value = escape.value * 16U + digit;
  if (escape.kind != Escape::kU3) return pending(static_cast<Escape::Kind>(escape.kind + 1), value);
  if (value < kHigh || value >= kBehindSurrogates) return done(value);
  if (value >= kLow) return {};
  return pending(Escape::kPairBackslash, (value - kHigh) << 6);
}

EscapeStep pair_digit(Escape escape, unsigned digit) {
  switch (escape.kind) {
    case Escape::kPair0:
      return digit == 0xD ? pending(Escape::kPair1, escape.value) : EscapeStep{};
    case Escape::kPair1:
      return digit >= 0xC ? pending(Escape::kPair2, escape.value | (digit - 0xC)) : EscapeStep{};
    case Escape::kPair2:
      return pending(Escape::kPair3, (escape.value & ~63U) | (escape.value & 3U) << 4 | digit);
    default:
      return done(kBeyondBmp + ((escape.value >> 6U) << 10) + ((escape.value & 63U) << 4) + digit);
  }
}

}  // namespace

CodeRanges escape_ranges(Escape escape) {
  CodeRanges out;
  if (escape.kind == Escape::kBackslash) {
    for (const ShortEscape& e : kShort) out.add(e.character, e.character, 1);
    add_units(out, 0, 0xFFFF, 5);
  } else if (escape.kind >= Escape::kPairBackslash) {
    add_pair(out, escape);
  } else {
    const int missing = 4 - (escape.kind - Escape::kU0);
    const char32_t lo = static_cast<char32_t>(escape.value) << (4 * missing);
    add_units(out, lo, lo + (1U << (4 * missing)) - 1, missing);
  }
  return out;
}

EscapeStep escape_step(Escape escape, std::uint8_t byte) {
  switch (escape.kind) {
    case Escape::kBackslash:
      return behind_backslash(byte);
    case Escape::kPairBackslash:
      return byte == '\\' ? pending(Escape::kPairU, escape.value) : EscapeStep{};
    case Escape::kPairU:
      return byte == 'u' ? pending(Escape::kPair0, escape.value) : EscapeStep{};
    default:
      break;
  }
  const int digit = hex_digit(byte);
  if (digit < 0) return {};
  return escape.kind <= Escape::kU3 ? unit_digit(escape, digit) : pair_digit(escape, digit);
}

int encode_utf8(char32_t cp, std::array<std::uint8_t, 4>& out) {
  const auto tail = [&](int shift) { return static_cast<std::uint8_t>(0x80 | (cp >> shift & 0x3F)); };
  if (cp < 0x80) {
    out = {static_cast<std::uint8_t>(cp)};
    return 1;
  }
  if (cp < 0x800) {
    out = {static_cast<std::uint8_t>(0xC0 | cp >> 6), tail(0)};
    return 2;
  }
  if (cp < 0x10000) {
    out = {static_cast<std::uint8_t>(0xE0 | cp >> 12), tail(6), tail(0)};
    return 3;
  }
  out = {static_cast<std::uint8_t>(0xF0 | cp >> 18), tail(12), tail(6), tail(0)};
  return 4;
}

}  // namespace barg::text::grammar::pushdown
