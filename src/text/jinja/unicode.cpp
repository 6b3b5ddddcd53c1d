#include "text/jinja/unicode.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/unicode_tables.h"

namespace barg::text::jinja {

namespace {

template <class T>
const T* find_range(const T* table, std::size_t count, char32_t c) {
  const T* end = table + count;
  const T* it = std::upper_bound(table, end, c, [](char32_t x, const T& r) { return x < r.first; });
  if (it == table) return nullptr;
  --it;
  return c <= it->last ? it : nullptr;
}

// Runs with stride 2 may interleave with their neighbours, so the one before is looked at as well.
const CaseRun* find_run(const CaseRun* table, std::size_t count, char32_t c) {
  const CaseRun* end = table + count;
  const CaseRun* it = std::upper_bound(table, end, c, [](char32_t x, const CaseRun& r) { return x < r.first; });
  for (int i = 0; i < 3 && it != table; ++i) {
    --it;
    if (c <= it->last && (c - it->first) % it->stride == 0) return it;
  }
  return nullptr;
}

bool append_special(std::string& out, const CaseSpecial* table, std::size_t count, char32_t c) {
  const CaseSpecial* end = table + count;
  const CaseSpecial* it = std::lower_bound(table, end, c, [](const CaseSpecial& s, char32_t x) { return s.code < x; });
  if (it == end || it->code != c) return false;
  for (char32_t to : it->to) {
    if (to != 0) append_utf8(out, to);
  }
  return true;
}

}  // namespace

using namespace tables;

bool is_alpha(char32_t c) { return find_range(kAlpha, kAlphaCount, c) != nullptr; }
bool is_numeric(char32_t c) { return find_range(kNumeric, kNumericCount, c) != nullptr; }
bool is_digit(char32_t c) { return find_range(kDigit, kDigitCount, c) != nullptr; }
bool is_decimal(char32_t c) { return find_range(kDecimal, kDecimalCount, c) != nullptr; }
bool is_lower(char32_t c) { return find_run(kLower, kLowerCount, c) != nullptr; }
bool is_upper(char32_t c) { return find_run(kUpper, kUpperCount, c) != nullptr; }
bool is_title(char32_t c) {
  return c == 0x1C5 || c == 0x1C8 || c == 0x1CB || c == 0x1F2 || (c >= 0x1F88 && c <= 0x1F8F) ||
         (c >= 0x1F98 && c <= 0x1F9F) || (c >= 0x1FA8 && c <= 0x1FAF) || c == 0x1FBC || c == 0x1FCC || c == 0x1FFC;
}
bool is_printable(char32_t c) { return find_range(kUnprintable, kUnprintableCount, c) == nullptr; }

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

void append_mapped(std::string& out, char32_t c, CaseMap map) {
  const CaseRun* run = nullptr;
  if (map == CaseMap::kLower) {
    if (append_special(out, kToLowerSpecials, kToLowerSpecialsCount, c)) return;
    run = find_run(kToLowerRuns, kToLowerRunsCount, c);
  } else {
    // The title tables hold only what differs from upper case.
    if (map == CaseMap::kTitle) {
      if (append_special(out, kToTitleSpecials, kToTitleSpecialsCount, c)) return;
      run = find_run(kToTitleRuns, kToTitleRunsCount, c);
    }
    if (run == nullptr) {
      if (append_special(out, kToUpperSpecials, kToUpperSpecialsCount, c)) return;
      run = find_run(kToUpperRuns, kToUpperRunsCount, c);
    }
  }
  append_utf8(out, run == nullptr ? c : static_cast<char32_t>(static_cast<std::int32_t>(c) + run->delta));
}

std::size_t count_code_points(std::string_view s) {
  std::size_t n = 0;
  for (char c : s) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

char32_t decode(std::string_view s, std::size_t& i) {
  const auto b = static_cast<unsigned char>(s[i]);
  if (b < 0x80) {
    ++i;
    return b;
  }
  return next_code_point(s, i);
}

}  // namespace barg::text::jinja
