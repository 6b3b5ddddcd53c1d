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
  const CaseRun* it =
      std::upper_bound(table, end, c, [](char32_t x, const CaseRun& r) { return x < r.first; });
  for (int i = 0; i < 3 && it != table; ++i) {
    --it;
    if (c <= it->last && (c - it->first) % it->stride == 0) return it;
  }
  return nullptr;
}

bool append_special(std::string& out, const CaseSpecial* table, std::size_t count, char32_t c) {
  const CaseSpecial* end = table + count;
  const CaseSpecial* it =
      std::lower_bound(table, end, c, [](const CaseSpecial& s, char32_t x) { return s.code < x; });
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
         (c >= 0x1F98 && c <= 0x1F9F) || (c >= 0x1FA8 && c <= 0x1FAF) || c == 0x1FBC || c == 0x1FCC ||
         c == 0x1FFC;
}
bool is_printable(char32_t c) { return find_range(kUnprintable, kUnprintableCount, c) == nullptr; }

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

namespace {

struct CaseTable {
  const CaseSpecial* specials;
  const std::size_t& special_count;
  const CaseRun* runs;
  const std::size_t& run_count;
};

bool append_from(std::string& out, const CaseTable& table, char32_t c) {
  if (append_special(out, table.specials, table.special_count, c)) return true;
  const CaseRun* run = find_run(table.runs, table.run_count, c);
  if (run == nullptr) return false;
  append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(c) + run->delta));
  return true;
}

}  // namespace

void append_mapped(std::string& out, char32_t c, CaseMap map) {
  const CaseTable lower{kToLowerSpecials, kToLowerSpecialsCount, kToLowerRuns, kToLowerRunsCount};
  const CaseTable upper{kToUpperSpecials, kToUpperSpecialsCount, kToUpperRuns, kToUpperRunsCount};
  const CaseTable title{kToTitleSpecials, kToTitleSpecialsCount, kToTitleRuns, kToTitleRunsCount};
  const CaseTable fold{kToFoldSpecials, kToFoldSpecialsCount, kToFoldRuns, kToFoldRunsCount};
  // The title tables hold only what differs from upper case, those of folding what differs from lower case.
  if (map == CaseMap::kTitle && append_from(out, title, c)) return;
  if (map == CaseMap::kFold && append_from(out, fold, c)) return;
  const bool up = map == CaseMap::kUpper || map == CaseMap::kTitle;
  if (!append_from(out, up ? upper : lower, c)) append_utf8(out, c);
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
