#include "text/grammar/code_set.h"

#include <utf8proc.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/utf8.h"

namespace barg::text::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

std::uint32_t bit(utf8proc_category_t category) { return 1U << category; }

// General categories by the names of ECMA-262 (table "Value aliases and canonical values for
// General_Category").
struct Category {
  std::string_view brief, name, other_name;
  std::uint32_t members;  // bits of utf8proc categories
};

std::vector<Category> make_categories() {
  const auto cn = bit(UTF8PROC_CATEGORY_CN), lu = bit(UTF8PROC_CATEGORY_LU), ll = bit(UTF8PROC_CATEGORY_LL),
             lt = bit(UTF8PROC_CATEGORY_LT), lm = bit(UTF8PROC_CATEGORY_LM), lo = bit(UTF8PROC_CATEGORY_LO),
             mn = bit(UTF8PROC_CATEGORY_MN), mc = bit(UTF8PROC_CATEGORY_MC), me = bit(UTF8PROC_CATEGORY_ME),
             nd = bit(UTF8PROC_CATEGORY_ND), nl = bit(UTF8PROC_CATEGORY_NL), no = bit(UTF8PROC_CATEGORY_NO),
             pc = bit(UTF8PROC_CATEGORY_PC), pd = bit(UTF8PROC_CATEGORY_PD), ps = bit(UTF8PROC_CATEGORY_PS),
             pe = bit(UTF8PROC_CATEGORY_PE), pi = bit(UTF8PROC_CATEGORY_PI), pf = bit(UTF8PROC_CATEGORY_PF),
             po = bit(UTF8PROC_CATEGORY_PO), sm = bit(UTF8PROC_CATEGORY_SM), sc = bit(UTF8PROC_CATEGORY_SC),
             sk = bit(UTF8PROC_CATEGORY_SK), so = bit(UTF8PROC_CATEGORY_SO), zs = bit(UTF8PROC_CATEGORY_ZS),
             zl = bit(UTF8PROC_CATEGORY_ZL), zp = bit(UTF8PROC_CATEGORY_ZP), cc = bit(UTF8PROC_CATEGORY_CC),
             cf = bit(UTF8PROC_CATEGORY_CF), cs = bit(UTF8PROC_CATEGORY_CS), co = bit(UTF8PROC_CATEGORY_CO);
  return {{"L", "Letter", {}, lu | ll | lt | lm | lo},
          {"LC", "Cased_Letter", {}, lu | ll | lt},
          {"Lu", "Uppercase_Letter", {}, lu},
          {"Ll", "Lowercase_Letter", {}, ll},
          {"Lt", "Titlecase_Letter", {}, lt},
          {"Lm", "Modifier_Letter", {}, lm},
          {"Lo", "Other_Letter", {}, lo},
          {"M", "Mark", "Combining_Mark", mn | mc | me},
          {"Mn", "Nonspacing_Mark", {}, mn},
          {"Mc", "Spacing_Mark", {}, mc},
          {"Me", "Enclosing_Mark", {}, me},
          {"N", "Number", {}, nd | nl | no},
          {"Nd", "Decimal_Number", "digit", nd},
          {"Nl", "Letter_Number", {}, nl},
          {"No", "Other_Number", {}, no},
          {"P", "Punctuation", "punct", pc | pd | ps | pe | pi | pf | po},
          {"Pc", "Connector_Punctuation", {}, pc},
          {"Pd", "Dash_Punctuation", {}, pd},
          {"Ps", "Open_Punctuation", {}, ps},
          {"Pe", "Close_Punctuation", {}, pe},
          {"Pi", "Initial_Punctuation", {}, pi},
          {"Pf", "Final_Punctuation", {}, pf},
          {"Po", "Other_Punctuation", {}, po},
          {"S", "Symbol", {}, sm | sc | sk | so},
          {"Sm", "Math_Symbol", {}, sm},
          {"Sc", "Currency_Symbol", {}, sc},
          {"Sk", "Modifier_Symbol", {}, sk},
          {"So", "Other_Symbol", {}, so},
          {"Z", "Separator", {}, zs | zl | zp},
          {"Zs", "Space_Separator", {}, zs},
          {"Zl", "Line_Separator", {}, zl},
          {"Zp", "Paragraph_Separator", {}, zp},
          {"C", "Other", {}, cc | cf | cs | co | cn},
          {"Cc", "Control", "cntrl", cc},
          {"Cf", "Format", {}, cf},
          {"Cs", "Surrogate", {}, cs},
          {"Co", "Private_Use", {}, co},
          {"Cn", "Unassigned", {}, cn}};
}

std::optional<CodeSet> category_set(std::string_view name) {
  static const std::vector<Category> categories = make_categories();
  const auto at = std::ranges::find_if(categories, [&](const Category& c) {
    return name == c.brief || name == c.name || name == c.other_name;
  });
  if (name.empty() || at == categories.end()) return std::nullopt;
  std::vector<CodeSet::Range> ranges;
  for (char32_t cp = 0; cp <= kLastCodePoint; ++cp) {
    if ((at->members & bit(utf8proc_category(static_cast<utf8proc_int32_t>(cp)))) == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == cp) {
      ranges.back().last = cp;
    } else {
      ranges.push_back({cp, cp});
    }
  }
  return CodeSet(std::move(ranges));
}

// The binary properties of ECMA-262 that PCRE2 knows, by their names there.
constexpr std::string_view kBinary[] = {"ASCII",
                                        "ASCII_Hex_Digit",
                                        "AHex",
                                        "Alphabetic",
                                        "Alpha",
                                        "Bidi_Control",
                                        "Bidi_C",
                                        "Bidi_Mirrored",
                                        "Bidi_M",
                                        "Case_Ignorable",
                                        "CI",
                                        "Cased",
                                        "Changes_When_Casefolded",
                                        "CWCF",
                                        "Changes_When_Casemapped",
                                        "CWCM",
                                        "Changes_When_Lowercased",
                                        "CWL",
                                        "Changes_When_Titlecased",
                                        "CWT",
                                        "Changes_When_Uppercased",
                                        "CWU",
                                        "Dash",
                                        "Default_Ignorable_Code_Point",
                                        "DI",
                                        "Deprecated",
                                        "Dep",
                                        "Diacritic",
                                        "Dia",
                                        "Emoji",
                                        "Emoji_Component",
                                        "EComp",
                                        "Emoji_Modifier",
                                        "EMod",
                                        "Emoji_Modifier_Base",
                                        "EBase",
                                        "Emoji_Presentation",
                                        "EPres",
                                        "Extended_Pictographic",
                                        "ExtPict",
                                        "Extender",
                                        "Ext",
                                        "Grapheme_Base",
                                        "Gr_Base",
                                        "Grapheme_Extend",
                                        "Gr_Ext",
                                        "Hex_Digit",
                                        "Hex",
                                        "IDS_Binary_Operator",
                                        "IDSB",
                                        "IDS_Trinary_Operator",
                                        "IDST",
                                        "ID_Continue",
                                        "IDC",
                                        "ID_Start",
                                        "IDS",
                                        "Ideographic",
                                        "Ideo",
                                        "Join_Control",
                                        "Join_C",
                                        "Logical_Order_Exception",
                                        "LOE",
                                        "Lowercase",
                                        "Lower",
                                        "Math",
                                        "Noncharacter_Code_Point",
                                        "NChar",
                                        "Pattern_Syntax",
                                        "Pat_Syn",
                                        "Pattern_White_Space",
                                        "Pat_WS",
                                        "Quotation_Mark",
                                        "QMark",
                                        "Radical",
                                        "Regional_Indicator",
                                        "RI",
                                        "Sentence_Terminal",
                                        "STerm",
                                        "Soft_Dotted",
                                        "SD",
                                        "Terminal_Punctuation",
                                        "Term",
                                        "Unified_Ideograph",
                                        "UIdeo",
                                        "Uppercase",
                                        "Upper",
                                        "Variation_Selector",
                                        "VS",
                                        "White_Space",
                                        "space",
                                        "XID_Continue",
                                        "XIDC",
                                        "XID_Start",
                                        "XIDS"};

struct CodeFree {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct MatchFree {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

// What PCRE2's tables say: the runs of a text of all code points that \p{name} matches.
std::optional<CodeSet> pcre_property(std::string_view name) {
  const std::string pattern = "\\p{" + std::string(name) + "}+";
  int error = 0;
  std::size_t offset = 0;
  const std::unique_ptr<pcre2_code, CodeFree> code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &offset, nullptr));
  if (!code) return std::nullopt;
  const std::unique_ptr<pcre2_match_data, MatchFree> match(pcre2_match_data_create(1, nullptr));
  std::vector<CodeSet::Range> ranges;
  constexpr char32_t kChunk =
      0x4000;  // surrogates are a part of one chunk, and whole chunks need little memory
  for (char32_t chunk = 0; chunk <= kLastCodePoint; chunk += kChunk) {
    std::string text;
    std::vector<std::uint32_t> code_points;  // by offset of their first byte
    for (char32_t cp = chunk; cp < chunk + kChunk; ++cp) {
      if (cp >= kFirstSurrogate && cp <= kLastSurrogate) continue;
      append_utf8(text, cp);
      code_points.resize(text.size() + 1, cp + 1);
      code_points[text.size()] = cp + 1;
    }
    std::size_t at = 0;
    while (at < text.size() && pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                           at, PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0) {
      const std::size_t* span = pcre2_get_ovector_pointer(match.get());
      std::size_t first = span[0];
      const char32_t first_cp = next_code_point(text, first);
      ranges.push_back({first_cp, static_cast<char32_t>(code_points[span[1]] - 1)});
      at = span[1];
    }
  }
  return CodeSet(std::move(ranges));
}

// Words_Of_Letters: PCRE2 itself takes any case, blanks, and prefixes of its own.
bool is_script_name(std::string_view name) {
  char before = '_';
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool lower = c >= 'a' && c <= 'z';
    if (before == '_' ? !upper : !upper && !lower && c != '_') return false;
    before = c;
  }
  return before != '_';
}

std::optional<CodeSet> make_property(std::string_view expression) {
  const std::size_t equals = expression.find('=');
  if (equals == std::string_view::npos) {
    if (expression == "Any") return CodeSet::all();
    if (expression == "Assigned") return category_set("Cn")->negated();
    if (auto set = category_set(expression)) return set;
    if (std::ranges::find(kBinary, expression) == std::end(kBinary)) return std::nullopt;
    return pcre_property(expression);
  }
  const std::string_view name = expression.substr(0, equals);
  const std::string_view value = expression.substr(equals + 1);
  if (name == "General_Category" || name == "gc") return category_set(value);
  if (!is_script_name(value)) return std::nullopt;
  if (name == "Script" || name == "sc") return pcre_property("sc:" + std::string(value));
  if (name == "Script_Extensions" || name == "scx") return pcre_property("scx:" + std::string(value));
  return std::nullopt;
}

}  // namespace

CodeSet::CodeSet(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  const auto push = [&](char32_t first, char32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const Range& r : ranges) {
    push(r.first, std::min<char32_t>(r.last, kFirstSurrogate - 1));
    push(std::max<char32_t>(r.first, kLastSurrogate + 1), r.last);
  }
}

bool CodeSet::contains(char32_t cp) const {
  const auto at = std::ranges::lower_bound(ranges_, cp, {}, &Range::last);
  return at != ranges_.end() && at->first <= cp;
}

CodeSet CodeSet::negated() const {
  std::vector<Range> gaps;
  char32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) gaps.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) gaps.push_back({next, kLastCodePoint});
  return CodeSet(std::move(gaps));
}

CodeSet digit_set() { return {{'0', '9'}}; }

CodeSet word_set() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }

CodeSet space_set() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

CodeSet line_break_set() { return {{0x0A, 0x0A}, {0x0D, 0x0D}, {0x2028, 0x2029}}; }

std::optional<CodeSet> property_set(std::string_view expression) {
  constexpr std::size_t kLongestName = 100;
  if (expression.size() > kLongestName) return std::nullopt;
  static std::mutex mutex;
  static std::map<std::string, CodeSet, std::less<>> known;
  constexpr std::size_t kMostKnown = 600;  // over all names of ECMA-262; PCRE2 takes some spellings more
  const std::scoped_lock lock(mutex);
  const auto at = known.find(expression);
  if (at != known.end()) return at->second;
  auto set = make_property(expression);
  if (set && known.size() < kMostKnown) known.emplace(expression, *set);
  return set;
}

}  // namespace barg::text::grammar
