#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/unicode_classes.h"

namespace barg::text {
namespace {

constexpr std::size_t kMaxGrowth = 32;  ///< of the whole normalizer, in bytes for a byte
// Normalizer::shrinks(). Four bytes of a mathematical letter are one of a plain one (NFKC), nine of three Hangul jamo
// three (NFC); three of the Kelvin sign are a k.
constexpr std::size_t kFormShrinks = 4;
constexpr std::size_t kLowerShrinks = 3;
constexpr std::size_t kMostShrinks = 1 << 16;  ///< more is as good as any number

bool is_ascii(std::string_view s) {
  return std::none_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

bool is_space(char32_t cp) { return (char_class(cp) & kSpace) != 0; }

/// edit(out, code point) for each character; `cut` is set when the first ones leave nothing.
template <class Edit>
void rewrite(std::string& text, Normalizing& state, Edit edit) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    i += c.bytes;
    edit(out, c.value);
    if (out.empty()) state.cut = true;
  }
  text = std::move(out);
}

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  bool leaves(std::string_view text) const override { return is_surely(form_, text); }
  void run(std::string& text, Normalizing&) const override {
    if (!is_surely(form_, text)) text = to_form(form_, text);
  }
  std::optional<std::size_t> shrinks() const override { return kFormShrinks; }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  bool leaves(std::string_view) const override { return false; }
  void run(std::string& text, Normalizing& state) const override { rewrite(text, state, append_lower); }
  std::optional<std::size_t> shrinks() const override { return kLowerShrinks; }
};

class StripAccents final : public Normalizer {
 public:
  bool leaves(std::string_view text) const override { return is_ascii(text); }
  void run(std::string& text, Normalizing& state) const override {
    if (is_ascii(text)) return;
    rewrite(text, state, [](std::string& out, char32_t cp) {
      if (!is_old_mark(cp)) append_utf8(out, cp);
    });
  }
  std::optional<std::size_t> shrinks() const override { return std::nullopt; }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  bool leaves(std::string_view) const override { return false; }
  void run(std::string& text, Normalizing& state) const override {
    std::size_t begin = 0, end = left_ || right_ ? 0 : text.size();
    bool inside = !left_;
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      const bool space = is_space(c.value);
      if (!inside && !space) begin = i, inside = true;
      i += c.bytes;
      if (!space || !right_) end = i;
    }
    if (!inside) begin = end = text.size();
    if (begin > 0) state.cut = true;
    text = text.substr(begin, end > begin ? end - begin : 0);
  }
  std::optional<std::size_t> shrinks() const override {
    if (left_ || right_) return std::nullopt;
    return 1;
  }

 private:
  bool left_, right_;
};

class Nmt final : public Normalizer {
 public:
  bool leaves(std::string_view) const override { return false; }
  void run(std::string& text, Normalizing& state) const override {
    rewrite(text, state, [](std::string& out, char32_t cp) {
      const bool control = (cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F ||
                           cp == 0x8F || cp == 0x9F;
      const bool space = cp == 9 || cp == 0xA || cp == 0xC || cp == 0xD || cp == 0x1680 ||
                         (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
                         cp == 0xFEFF || cp == 0xFFFD;
      if (!control) append_utf8(out, space ? U' ' : cp);
    });
  }
  std::optional<std::size_t> shrinks() const override { return std::nullopt; }
};

bool is_chinese(char32_t cp) {
  return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
         (cp >= 0x2A700 && cp <= 0x2B73F) || (cp >= 0x2B740 && cp <= 0x2B81F) ||
         (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

class Bert final : public Normalizer {
 public:
  explicit Bert(BertRules rules) : rules_(rules) {}
  bool leaves(std::string_view) const override { return false; }
  void run(std::string& text, Normalizing& state) const override {
    if (rules_.clean_text) {
      rewrite(text, state, [](std::string& out, char32_t cp) {
        if (cp == 0 || cp == 0xFFFD || is_old_control(cp)) return;
        append_utf8(out, is_space(cp) ? U' ' : cp);
      });
    }
    if (rules_.handle_chinese_chars && !is_ascii(text)) {
      rewrite(text, state, [](std::string& out, char32_t cp) {
        const bool chinese = is_chinese(cp);
        if (chinese) out += ' ';
        append_utf8(out, cp);
        if (chinese) out += ' ';
      });
    }
    if (rules_.strip_accents && !is_surely(NormalForm::kNfd, text)) {
      text = to_form(NormalForm::kNfd, text);
      rewrite(text, state, [](std::string& out, char32_t cp) {
        if (!is_old_nonspacing(cp)) append_utf8(out, cp);
      });
    }
    if (rules_.lowercase) rewrite(text, state, append_lower);
  }
  std::optional<std::size_t> shrinks() const override {
    if (rules_.clean_text || rules_.strip_accents) return std::nullopt;
    return rules_.lowercase ? kLowerShrinks : 1;
  }

 private:
  BertRules rules_;
};

class ByteLevel final : public Normalizer {
 public:
  bool leaves(std::string_view text) const override { return text.empty(); }
  void run(std::string& text, Normalizing&) const override {
    std::string out;
    for (const char c : text) out += printable_of_byte(static_cast<unsigned char>(c));
    text = std::move(out);
  }
  std::optional<std::size_t> shrinks() const override { return 1; }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  bool leaves(std::string_view text) const override { return text.empty(); }
  void run(std::string& text, Normalizing&) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }
  std::optional<std::size_t> shrinks() const override { return 1; }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Matcher> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  bool leaves(std::string_view) const override { return false; }
  void run(std::string& text, Normalizing& state) const override {
    std::vector<Span> matches;
    if (!pattern_->find_all(text, matches)) state.gave_up = pattern_->pattern();
    if (matches.empty()) return;
    if (matches[0].begin == 0 && matches[0].size() > 0) {
      // The content stands for the last character of the match.
      const bool several = matches[0].size() > decode_utf8(text, 0).bytes;
      if (several || content_.empty()) state.cut = true;
    }
    std::string out;
    std::size_t at = 0;
    for (const Span& m : matches) {
      if (out.size() + (m.begin - at) + content_.size() + (text.size() - m.end) > state.limit) break;
      out.append(text, at, m.begin - at);
      out += content_;
      at = m.end;
    }
    out.append(text, at);
    text = std::move(out);
  }
  std::optional<std::size_t> shrinks() const override {
    const auto bytes = pattern_->match_bytes();
    if (!bytes || content_.empty()) return std::nullopt;
    return std::max<std::size_t>((*bytes + content_.size() - 1) / content_.size(), 1);
  }

 private:
  std::unique_ptr<Matcher> pattern_;
  std::string content_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<NormalizerPtr> parts) : parts_(std::move(parts)) {}
  bool leaves(std::string_view text) const override {
    return std::ranges::all_of(parts_, [&](const NormalizerPtr& p) { return p->leaves(text); });
  }
  void run(std::string& text, Normalizing& state) const override {
    for (const NormalizerPtr& p : parts_) p->run(text, state);
  }
  std::optional<std::size_t> shrinks() const override {
    std::size_t all = 1;
    for (const NormalizerPtr& p : parts_) {
      const auto one = p->shrinks();
      if (!one || all > kMostShrinks / *one) return std::nullopt;
      all *= *one;
    }
    return all;
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

}  // namespace

NormalizerPtr form_normalizer(NormalForm form) { return std::make_unique<Form>(form); }
NormalizerPtr lowercase_normalizer() { return std::make_unique<Lowercase>(); }
NormalizerPtr strip_accents_normalizer() { return std::make_unique<StripAccents>(); }
NormalizerPtr strip_normalizer(bool left, bool right) { return std::make_unique<Strip>(left, right); }
NormalizerPtr nmt_normalizer() { return std::make_unique<Nmt>(); }
NormalizerPtr bert_normalizer(BertRules rules) { return std::make_unique<Bert>(rules); }
NormalizerPtr byte_level_normalizer() { return std::make_unique<ByteLevel>(); }
NormalizerPtr prepend_normalizer(std::string prefix) { return std::make_unique<Prepend>(std::move(prefix)); }
NormalizerPtr replace_normalizer(std::unique_ptr<Matcher> pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
NormalizerPtr sequence_normalizer(std::vector<NormalizerPtr> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

Normalizing normalizing(std::string_view text) { return {.limit = kMaxGrowth * text.size() + 4096}; }

std::string normalized(const Normalizer* normalizer, std::string_view text) {
  std::string out(text);
  Normalizing state = normalizing(text);
  if (normalizer) normalizer->run(out, state);
  return out;
}

}  // namespace barg::text
