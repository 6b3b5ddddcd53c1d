// `normalizer` and `pre_tokenizer` of tokenizer.json.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "text/tokenizer_json.h"
#include "text/unicode_classes.h"

namespace barg::text {
namespace {

using std::string;
using std::string_view;

constexpr std::size_t kMaxSteps = 64;
constexpr std::size_t kMaxContentBytes = 64;  // of what a normalizer writes for something, or in front

// ---- normalizer

Result<NormalizerPtr> read_replace(const Json& j, const string& field) {
  const Json* pattern = member(j, "pattern");
  if (!pattern) return bad_json(field + ".pattern", "is missing");
  auto matcher = read_pattern(*pattern, field + ".pattern");
  if (!matcher) return std::unexpected(matcher.error());
  const string_view content = text_of(j, "content");
  if (content.size() > kMaxContentBytes) return bad_json(field + ".content", "is above 64 bytes");
  return replace_normalizer(std::move(*matcher), string(content));
}

Result<NormalizerPtr> read_prepend(const Json& j, const string& field) {
  const string_view prefix = text_of(j, "prepend");
  if (prefix.size() > kMaxContentBytes) return bad_json(field + ".prepend", "is above 64 bytes");
  return prepend_normalizer(string(prefix));
}

Result<NormalizerPtr> read_bert(const Json& j, const string&) {
  const bool lowercase = flag_of(j, "lowercase", true);
  return bert_normalizer({.clean_text = flag_of(j, "clean_text", true),
                          .handle_chinese_chars = flag_of(j, "handle_chinese_chars", true),
                          .strip_accents = flag_of(j, "strip_accents", lowercase),
                          .lowercase = lowercase});
}

std::optional<string> decode_base64(string_view text) {
  string out;
  std::uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    constexpr string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = kDigits.find(c);
    if (digit == string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count);
  }
  return out;
}

Result<NormalizerPtr> read_precompiled(const Json& j, const string& field) {
  const string name = field + ".precompiled_charsmap";
  const auto blob = decode_base64(text_of(j, "precompiled_charsmap"));
  if (!blob) return bad_json(name, "is not base64");
  auto map = charsmap_normalizer(*blob);
  if (!map) return fail(map.error().code, "tokenizer.json: " + field + ": " + map.error().message, name);
  return map;
}

Result<NormalizerPtr> read_one_normalizer(const Json& j, const string& field) {
  using Read = Result<NormalizerPtr> (*)(const Json&, const string&);
  struct Kind {
    string_view type;
    Read read;
  };
  static constexpr Kind kKinds[] = {
      {"NFC", [](const Json&, const string&) -> Result<NormalizerPtr> { return form_normalizer(NormalForm::kNfc); }},
      {"NFD", [](const Json&, const string&) -> Result<NormalizerPtr> { return form_normalizer(NormalForm::kNfd); }},
      {"NFKC", [](const Json&, const string&) -> Result<NormalizerPtr> { return form_normalizer(NormalForm::kNfkc); }},
      {"NFKD", [](const Json&, const string&) -> Result<NormalizerPtr> { return form_normalizer(NormalForm::kNfkd); }},
      {"Lowercase", [](const Json&, const string&) -> Result<NormalizerPtr> { return lowercase_normalizer(); }},
      {"StripAccents", [](const Json&, const string&) -> Result<NormalizerPtr> { return strip_accents_normalizer(); }},
      {"Strip",
       [](const Json& s, const string&) -> Result<NormalizerPtr> {
         return strip_normalizer(flag_of(s, "strip_left", true), flag_of(s, "strip_right", true));
       }},
      {"Nmt", [](const Json&, const string&) -> Result<NormalizerPtr> { return nmt_normalizer(); }},
      {"ByteLevel", [](const Json&, const string&) -> Result<NormalizerPtr> { return byte_level_normalizer(); }},
      {"BertNormalizer", read_bert},
      {"Prepend", read_prepend},
      {"Replace", read_replace},
      {"Precompiled", read_precompiled}};
  const string_view type = text_of(j, "type");
  const auto* kind = std::ranges::find(kKinds, type, &Kind::type);
  if (kind == std::end(kKinds)) return unsupported_json(field + ".type", type);
  return kind->read(j, field);
}

// Sequences within sequences are one list.
Result<void> add_normalizers(const Json& j, const string& field, std::vector<NormalizerPtr>& out) {
  const Json* list = member(j, "normalizers");
  if (text_of(j, "type") != "Sequence") {
    if (out.size() >= kMaxSteps) return bad_json(field, "is one normalizer too many");
    auto one = read_one_normalizer(j, field);
    if (!one) return std::unexpected(one.error());
    out.push_back(std::move(*one));
    return {};
  }
  if (!list || !list->is_array()) return bad_json(field + ".normalizers", "is missing");
  for (const Json& part : list->as_array()) {
    if (auto r = add_normalizers(part, field + ".normalizers", out); !r) return r;
  }
  return {};
}

// ---- pre_tokenizer

Result<SplitBehavior> read_behavior(const Json& j, const string& field, string_view absent) {
  static constexpr std::array<std::pair<string_view, SplitBehavior>, 5> kBehaviors = {
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  const string_view name = member(j, "behavior") ? text_of(j, "behavior") : absent;
  const auto* behavior = std::find_if(kBehaviors.begin(), kBehaviors.end(), [&](auto& b) { return b.first == name; });
  if (behavior == kBehaviors.end()) return unsupported_json(field + ".behavior", name);
  return behavior->second;
}

class StepReader {
 public:
  StepReader(TokenizerSpec& spec, std::size_t last) : spec_(spec), last_(last) {}

  /// Sequences within sequences are one list.
  Result<void> read(const Json& j, const string& field) {
    if (text_of(j, "type") != "Sequence") {
      if (count_ >= kMaxSteps) return bad_json(field, "is one pre-tokenizer too many");
      ++count_;
      return one(j, field);
    }
    const Json* list = member(j, "pretokenizers");
    if (!list || !list->is_array()) return bad_json(field + ".pretokenizers", "is missing");
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (auto r = read(list->as_array()[i], field + ".pretokenizers[" + std::to_string(i) + "]"); !r) return r;
    }
    return {};
  }

 private:
  Result<void> one(const Json& j, const string& field) {
    struct Kind {
      string_view type;
      Result<void> (StepReader::*read)(const Json&, const string&);
    };
    static constexpr Kind kKinds[] = {{"Split", &StepReader::split},
                                      {"ByteLevel", &StepReader::byte_level},
                                      {"Metaspace", &StepReader::metaspace},
                                      {"Digits", &StepReader::digits},
                                      {"Punctuation", &StepReader::punctuation},
                                      {"Whitespace", &StepReader::words},
                                      {"WhitespaceSplit", &StepReader::spaces},
                                      {"BertPreTokenizer", &StepReader::bert},
                                      {"CharDelimiterSplit", &StepReader::delimiter},
                                      {"FixedLength", &StepReader::fixed_length}};
    const string_view type = text_of(j, "type");
    const auto* kind = std::ranges::find(kKinds, type, &Kind::type);
    if (kind == std::end(kKinds)) return unsupported_json(field + ".type", type);
    return (this->*kind->read)(j, field);
  }

  void add(std::unique_ptr<Matcher> matcher, SplitBehavior behavior, bool invert = false) {
    spec_.steps.push_back(split_step(SplitStep(std::move(matcher), behavior, invert)));
  }

  Result<void> split(const Json& j, const string& field) {
    const auto behavior = read_behavior(j, field, "");
    if (!behavior) return std::unexpected(behavior.error());
    const Json* pattern = member(j, "pattern");
    if (!pattern) return bad_json(field + ".pattern", "is missing");
    auto matcher = read_pattern(*pattern, field + ".pattern");
    if (!matcher) return std::unexpected(matcher.error());
    add(std::move(*matcher), *behavior, flag_of(j, "invert", false));
    return {};
  }

  Result<void> byte_level(const Json& j, const string&) {
    if (flag_of(j, "add_prefix_space", true)) spec_.steps.push_back(prefix_space_step());
    if (flag_of(j, "use_regex", true)) add(known_matcher(patterns::kGpt2), SplitBehavior::kIsolated);
    // A printable vocabulary is that of the bytes themselves.
    if (!spec_.vocab->printable() || count_ != last_) spec_.steps.push_back(printable_step());
    return {};
  }

  Result<void> metaspace(const Json& j, const string& field) {
    const string_view mark = text_of(j, "replacement");
    if (mark.empty() || decode_utf8(mark, 0).bytes != mark.size()) {
      return bad_json(field + ".replacement", "is not one character");
    }
    const bool unprefixed = !flag_of(j, "add_prefix_space", true);
    const string_view scheme = member(j, "prepend_scheme") ? text_of(j, "prepend_scheme") : unprefixed ? "never" : "always";
    if (unprefixed && scheme != "never") return bad_json(field + ".add_prefix_space", "contradicts prepend_scheme");
    static constexpr std::array<std::pair<string_view, PrependScheme>, 3> kSchemes = {
        {{"always", PrependScheme::kAlways}, {"first", PrependScheme::kFirst}, {"never", PrependScheme::kNever}}};
    const auto* known = std::find_if(kSchemes.begin(), kSchemes.end(), [&](auto& s) { return s.first == scheme; });
    if (known == kSchemes.end()) return unsupported_json(field + ".prepend_scheme", scheme);
    spec_.steps.push_back(metaspace_step(string(mark), known->second, flag_of(j, "split", true)));
    return {};
  }

  Result<void> digits(const Json& j, const string&) {
    const bool single = flag_of(j, "individual_digits", false);
    add(digit_matcher(), single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
    return {};
  }

  Result<void> punctuation(const Json& j, const string& field) {
    const auto behavior = read_behavior(j, field, "Isolated");
    if (!behavior) return std::unexpected(behavior.error());
    add(class_matcher(is_old_punctuation), *behavior);
    return {};
  }

  Result<void> words(const Json&, const string&) {
    add(word_matcher(), SplitBehavior::kRemoved, true);
    return {};
  }

  Result<void> spaces(const Json&, const string&) {
    add(class_matcher([](char32_t cp) { return (char_class(cp) & kSpace) != 0; }), SplitBehavior::kRemoved);
    return {};
  }

  Result<void> bert(const Json& j, const string& field) {
    if (auto r = spaces(j, field); !r) return r;
    add(class_matcher(is_old_punctuation), SplitBehavior::kIsolated);
    return {};
  }

  Result<void> delimiter(const Json& j, const string& field) {
    const string_view mark = text_of(j, "delimiter");
    if (mark.empty() || decode_utf8(mark, 0).bytes != mark.size()) {
      return bad_json(field + ".delimiter", "is not one character");
    }
    add(literal_matcher(string(mark)), SplitBehavior::kRemoved);
    return {};
  }

  Result<void> fixed_length(const Json& j, const string& field) {
    const auto length = count_of(j, "length", 5);
    if (!length || *length == 0) return bad_json(field + ".length", "is not a number of characters above 0");
    spec_.steps.push_back(fixed_length_step(*length));
    return {};
  }

  TokenizerSpec& spec_;
  std::size_t last_;       // number of steps in the file
  std::size_t count_ = 0;  // of them, read
};

// Leaves of the tree of sequences; `last` becomes the last one.
std::size_t count_steps(const Json& j, const Json*& last) {
  const Json* list = member(j, "pretokenizers");
  if (text_of(j, "type") != "Sequence" || !list || !list->is_array()) {
    last = &j;
    return 1;
  }
  std::size_t count = 0;
  for (const Json& part : list->as_array()) count += count_steps(part, last);
  return count;
}

}  // namespace

Result<std::unique_ptr<Matcher>> read_pattern(const Json& j, const string& field) {
  const Json* regex = member(j, "Regex");
  const Json* literal = member(j, "String");
  if (regex && regex->is_string()) {
    if (auto known = known_matcher(regex->as_string())) return known;
    auto matcher = regex_matcher(regex->as_string());
    if (!matcher) {
      return fail(matcher.error().code, "tokenizer.json: " + field + ".Regex: " + matcher.error().message,
                  field + ".Regex");
    }
    return matcher;
  }
  if (!literal || !literal->is_string()) return bad_json(field, "is neither {\"Regex\"} nor {\"String\"}");
  // Which matches everywhere.
  if (literal->as_string().empty()) return unsupported_json(field + ".String", "");
  return literal_matcher(literal->as_string());
}

bool ends_byte_level(const Json* pre_tokenizer) {
  const Json* last = nullptr;
  if (pre_tokenizer) count_steps(*pre_tokenizer, last);
  return last && text_of(*last, "type") == "ByteLevel";
}

Result<void> read_normalizer(const Json* j, TokenizerSpec& spec) {
  if (!j) return {};
  std::vector<NormalizerPtr> parts;
  if (auto r = add_normalizers(*j, "normalizer", parts); !r) return r;
  if (parts.size() == 1) {
    spec.normalizer = std::move(parts[0]);
  } else if (!parts.empty()) {
    spec.normalizer = sequence_normalizer(std::move(parts));
  }
  return {};
}

Result<void> read_pre_tokenizer(const Json* j, TokenizerSpec& spec) {
  if (!j) return {};
  const Json* last = nullptr;
  return StepReader(spec, count_steps(*j, last)).read(*j, "pre_tokenizer");
}

}  // namespace barg::text
