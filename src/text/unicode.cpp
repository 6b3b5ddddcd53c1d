#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace barg::text {
namespace {

constexpr CharBits kUpperCase = kLetter | kUpper;
constexpr CharBits kLowerCase = kLetter | kLower;
constexpr CharBits kCaseless = kLetter | kUpper | kLower;
constexpr CharBits kMarks = kMark | kUpper | kLower;
constexpr CharBits kNumbers = kNumber | kDigitStep;
constexpr CharBits kDigitsOnly = kDigitStep;

struct Range {
  char32_t first, last;
  CharBits bits;
};

// What Unicode 15.1 and 16.0 added to 15.0 (kDigitsOnly: 17.0).
constexpr Range kNewer[] = {
    {0x897, 0x897, kMarks}, {0x1B4E, 0x1B4F, kPunctuation}, {0x1B7F, 0x1B7F, kPunctuation},
    {0x1C89, 0x1C89, kUpperCase}, {0x1C8A, 0x1C8A, kLowerCase}, {0x2427, 0x2429, kSymbol},
    {0x2FFC, 0x2FFF, kSymbol}, {0x31E4, 0x31E5, kSymbol}, {0x31EF, 0x31EF, kSymbol},
    {0xA7CB, 0xA7CC, kUpperCase}, {0xA7CD, 0xA7CD, kLowerCase}, {0xA7DA, 0xA7DA, kUpperCase},
    {0xA7DB, 0xA7DB, kLowerCase}, {0xA7DC, 0xA7DC, kUpperCase}, {0x105C0, 0x105F3, kCaseless},
    {0x10D40, 0x10D49, kNumbers}, {0x10D4A, 0x10D4F, kCaseless}, {0x10D50, 0x10D65, kUpperCase},
    {0x10D69, 0x10D6D, kMarks}, {0x10D6E, 0x10D6E, kPunctuation}, {0x10D6F, 0x10D6F, kCaseless},
    {0x10D70, 0x10D85, kLowerCase}, {0x10D8E, 0x10D8F, kSymbol}, {0x10EC2, 0x10EC4, kCaseless},
    {0x10EFC, 0x10EFC, kMarks}, {0x11380, 0x11389, kCaseless}, {0x1138B, 0x1138B, kCaseless},
    {0x1138E, 0x1138E, kCaseless}, {0x11390, 0x113B5, kCaseless}, {0x113B7, 0x113B7, kCaseless},
    {0x113B8, 0x113C0, kMarks}, {0x113C2, 0x113C2, kMarks}, {0x113C5, 0x113C5, kMarks},
    {0x113C7, 0x113CA, kMarks}, {0x113CC, 0x113D0, kMarks}, {0x113D1, 0x113D1, kCaseless},
    {0x113D2, 0x113D2, kMarks}, {0x113D3, 0x113D3, kCaseless}, {0x113D4, 0x113D5, kPunctuation},
    {0x113D7, 0x113D8, kPunctuation}, {0x113E1, 0x113E2, kMarks}, {0x116D0, 0x116E3, kNumbers},
    {0x11BC0, 0x11BE0, kCaseless}, {0x11BE1, 0x11BE1, kPunctuation}, {0x11BF0, 0x11BF9, kNumbers},
    {0x11DE0, 0x11DE9, kDigitsOnly}, {0x11F5A, 0x11F5A, kMarks}, {0x13460, 0x143FA, kCaseless},
    {0x16100, 0x1611D, kCaseless}, {0x1611E, 0x1612F, kMarks}, {0x16130, 0x16139, kNumbers},
    {0x16D40, 0x16D6C, kCaseless}, {0x16D6D, 0x16D6F, kPunctuation}, {0x16D70, 0x16D79, kNumbers},
    {0x16FF4, 0x16FF6, kDigitsOnly}, {0x18CFF, 0x18CFF, kCaseless}, {0x1CC00, 0x1CCEF, kSymbol},
    {0x1CCF0, 0x1CCF9, kNumbers}, {0x1CD00, 0x1CEB3, kSymbol}, {0x1E5D0, 0x1E5ED, kCaseless},
    {0x1E5EE, 0x1E5EF, kMarks}, {0x1E5F0, 0x1E5F0, kCaseless}, {0x1E5F1, 0x1E5FA, kNumbers},
    {0x1E5FF, 0x1E5FF, kPunctuation}, {0x1F8B2, 0x1F8BB, kSymbol}, {0x1F8C0, 0x1F8C1, kSymbol},
    {0x1FA89, 0x1FA89, kSymbol}, {0x1FA8F, 0x1FA8F, kSymbol}, {0x1FABE, 0x1FABE, kSymbol},
    {0x1FAC6, 0x1FAC6, kSymbol}, {0x1FADC, 0x1FADC, kSymbol}, {0x1FADF, 0x1FADF, kSymbol},
    {0x1FAE9, 0x1FAE9, kSymbol}, {0x1FBCB, 0x1FBEF, kSymbol}, {0x2EBF0, 0x2EE5D, kCaseless},
};

CharBits newer_class(char32_t cp) {
  const auto* r = std::lower_bound(std::begin(kNewer), std::end(kNewer), cp,
                                   [](const Range& range, char32_t c) { return range.last < c; });
  return r != std::end(kNewer) && r->first <= cp ? r->bits : CharBits{0};
}

CharBits class_of_category(char32_t cp) {
  if (cp == 0x85) return kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(cp))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kUpperCase;
    case UTF8PROC_CATEGORY_LL: return kLowerCase;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kCaseless;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMarks;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumbers;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return kSpace;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kSymbol;
    case UTF8PROC_CATEGORY_CN: return newer_class(cp);
    default: return 0;
  }
}

constexpr std::array<CharBits, 128> kAscii = [] {
  std::array<CharBits, 128> t{};
  for (const char c : std::string_view("!\"#%&'()*,-./:;?@[\\]_{}")) t[static_cast<std::size_t>(c)] = kPunctuation;
  for (const char c : std::string_view("$+<=>^`|~")) t[static_cast<std::size_t>(c)] = kSymbol;
  for (int c = 'A'; c <= 'Z'; ++c) t[c] = kUpperCase;
  for (int c = 'a'; c <= 'z'; ++c) t[c] = kLowerCase;
  for (int c = '0'; c <= '9'; ++c) t[c] = kNumbers;
  for (int c = 0x09; c <= 0x0D; ++c) t[c] = kSpace;
  t[' '] = kSpace;
  t['\r'] = t['\n'] = kSpace | kNewline;
  return t;
}();

// Code points that combine since Unicode 10. The normalizer of Hugging Face tokenizers knows Unicode 9: to it they
// are unassigned, so they stay where they are and nothing moves or composes across them.
constexpr struct {
  char32_t first, last;
} kInert[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

// Also what a later utf8proc may know: all of it is in kNewer.
bool is_inert(char32_t cp) {
  if (cp < kInert[0].first) return false;
  const auto* r = std::lower_bound(std::begin(kInert), std::end(kInert), cp,
                                   [](const auto& range, char32_t c) { return range.last < c; });
  return (r != std::end(kInert) && r->first <= cp) || newer_class(cp) != 0;
}

// Compatibility decompositions since Unicode 10. None of these characters composes with anything.
constexpr struct {
  char32_t first, last;
} kUndecomposed[] = {
    {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x107BA},
    {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

bool stays_whole(char32_t cp) {
  if (cp < kUndecomposed[0].first) return false;
  const auto* r = std::lower_bound(std::begin(kUndecomposed), std::end(kUndecomposed), cp,
                                   [](const auto& range, char32_t c) { return range.last < c; });
  return r != std::end(kUndecomposed) && r->first <= cp;
}

bool is_compatible(NormalForm form) { return form == NormalForm::kNfkc || form == NormalForm::kNfkd; }
bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

void decompose(char32_t cp, bool compatible, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> part;  // the longest decomposition has 18 code points
  int boundary = 0;
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(cp), part.data(), part.size(),
                                                     static_cast<utf8proc_option_t>(options), &boundary);
  CHECK(n >= 0 && n <= static_cast<utf8proc_ssize_t>(part.size()));
  out.insert(out.end(), part.begin(), part.begin() + n);
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

CharBits char_class(char32_t cp) { return cp < 0x80 ? kAscii[cp] : class_of_category(cp); }

bool is_word(char32_t cp) {
  if (const CharBits newer = newer_class(cp)) return (newer & (kLetter | kMark | kNumber)) != 0;
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

bool is_after_unicode15(char32_t cp) { return newer_class(cp) != 0; }

bool is_surely(NormalForm form, std::string_view s) {
  // Below U+0300 everything is NFC on its own, and nothing there composes with what stands before it; below U+00C0
  // nothing is decomposed; below U+00A0 nothing has a compatible form.
  const unsigned char end = form == NormalForm::kNfc ? 0xCC : form == NormalForm::kNfd ? 0xC3 : 0xC2;
  return std::none_of(s.begin(), s.end(), [&](char c) { return static_cast<unsigned char>(c) >= end; });
}

std::string to_form(NormalForm form, std::string_view s) {
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::string out;
  out.reserve(s.size());
  std::vector<utf8proc_int32_t> cps;
  const auto finish = [&] {
    order_marks(cps);
    auto n = static_cast<utf8proc_ssize_t>(cps.size());
    if (composes(form)) n = utf8proc_normalize_utf32(cps.data(), n, kCompose);
    CHECK(n >= 0);
    for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<char32_t>(cps[static_cast<std::size_t>(i)]));
    cps.clear();
  };
  const bool compatible = is_compatible(form);
  for (std::size_t i = 0; i < s.size();) {
    const CodePoint c = decode_utf8(s, i);
    i += c.bytes;
    if (is_inert(c.value) || (compatible && stays_whole(c.value))) {
      finish();
      append_utf8(out, c.value);
    } else {
      decompose(c.value, compatible, cps);
    }
  }
  finish();
  return out;
}

}  // namespace barg::text
