// The generated tables behind unicode.h, sorted by code point. Constant data; only unicode.cpp reads them.
#pragma once

#include <cstddef>

#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace tables {
extern const CodeRange kAlpha[], kNumeric[], kDigit[], kDecimal[], kUnprintable[];
extern const std::size_t kAlphaCount, kNumericCount, kDigitCount, kDecimalCount, kUnprintableCount;
extern const CaseRun kLower[], kUpper[], kToLowerRuns[], kToUpperRuns[], kToTitleRuns[], kToFoldRuns[];
extern const std::size_t kLowerCount, kUpperCount, kToLowerRunsCount, kToUpperRunsCount,
    kToTitleRunsCount, kToFoldRunsCount;
extern const CaseSpecial kToLowerSpecials[], kToUpperSpecials[], kToTitleSpecials[], kToFoldSpecials[];
extern const std::size_t kToLowerSpecialsCount, kToUpperSpecialsCount, kToTitleSpecialsCount, kToFoldSpecialsCount;
}  // namespace tables

}  // namespace barg::text::jinja
