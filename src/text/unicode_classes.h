// Classes of code points as the normalizers and the punctuation steps of Hugging Face tokenizers have them.
//
// Those are older than the ones split patterns use (unicode.h): categories of Unicode 8 to 10, so what was added later
// is neither mark, nor punctuation, nor control there; lower case alone is that of Unicode 17. Pure functions, any
// thread.
#pragma once

#include <string>

namespace barg::text {

/// M*: what StripAccents removes.
bool is_old_mark(char32_t cp);
/// Mn: what strip_accents of BertNormalizer removes.
bool is_old_nonspacing(char32_t cp);
/// Cc, Cf, Co: what clean_text of BertNormalizer removes, but for tab, CR and LF.
bool is_old_control(char32_t cp);
/// P*, and all of ASCII that is neither letter, digit, space nor control.
bool is_old_punctuation(char32_t cp);
/// Of one character by itself (no final sigma); U+0130 becomes two.
void append_lower(std::string& out, char32_t cp);

}  // namespace barg::text
