#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace barg::text {
namespace {

std::uint8_t class_of_category(char32_t cp) {
  if (cp == '\r' || cp == '\n') return kSpace | kNewline;
  if ((cp >= 0x09 && cp <= 0x0D) || cp == 0x85) return kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(cp))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kLetter | kUpper;
    case UTF8PROC_CATEGORY_LL: return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kLetter | kUpper | kLower;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark | kUpper | kLower;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return kSpace;
    default: return 0;
  }
}

constexpr std::array<std::uint8_t, 128> kAscii = [] {
  std::array<std::uint8_t, 128> t{};
  for (int c = 'A'; c <= 'Z'; ++c) t[c] = kLetter | kUpper;
  for (int c = 'a'; c <= 'z'; ++c) t[c] = kLetter | kLower;
  for (int c = '0'; c <= '9'; ++c) t[c] = kNumber;
  for (int c = 0x09; c <= 0x0D; ++c) t[c] = kSpace;
  t[' '] = kSpace;
  t['\r'] = t['\n'] = kSpace | kNewline;
  return t;
}();

constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

void decompose(std::string_view s, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> part;  // the longest canonical decomposition has 4 code points
  for (std::size_t i = 0; i < s.size();) {
    const CodePoint c = decode_utf8(s, i);
    i += c.bytes;
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), part.data(),
                                                       part.size(), kCompose, &boundary);
    CHECK(n >= 0 && n <= static_cast<utf8proc_ssize_t>(part.size()));
    out.insert(out.end(), part.begin(), part.begin() + n);
  }
}

// Canonical ordering. utf8proc sorts by exchanging neighbours, which is quadratic in the length of a run of
// marks; a stable sort of each run is the same order.
void order_marks(std::vector<utf8proc_int32_t>& cps) {
  const auto ccc = [](utf8proc_int32_t cp) { return utf8proc_get_property(cp)->combining_class; };
  for (std::size_t i = 0; i < cps.size();) {
    if (ccc(cps[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < cps.size() && ccc(cps[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(cps.begin() + static_cast<std::ptrdiff_t>(i), cps.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](auto a, auto b) { return ccc(a) < ccc(b); });
    }
    i = end;
  }
}

}  // namespace

std::uint8_t char_class(char32_t cp) { return cp < 0x80 ? kAscii[cp] : class_of_category(cp); }

bool is_word(char32_t cp) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(cp))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Join controls, and the symbols that are Alphabetic: circled and squared Latin letters.
  return cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
         (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

ClassAt class_at(std::string_view s, std::size_t i) {
  if (i >= s.size()) return {0, 0};
  const auto b = static_cast<unsigned char>(s[i]);
  if (b < 0x80) return {kAscii[b], 1};
  const CodePoint c = decode_utf8(s, i);
  return {class_of_category(c.value), c.bytes};
}

bool is_surely_nfc(std::string_view s) {
  // Everything below U+0300 is NFC on its own, and nothing there composes with what stands before it.
  return std::none_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

std::string to_nfc(std::string_view s) {
  std::vector<utf8proc_int32_t> cps;
  cps.reserve(s.size());
  decompose(s, cps);
  order_marks(cps);
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(cps.data(), static_cast<utf8proc_ssize_t>(cps.size()), kCompose);
  CHECK(n >= 0);
  std::string out;
  out.reserve(s.size());
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<char32_t>(cps[static_cast<std::size_t>(i)]));
  return out;
}

}  // namespace barg::text
