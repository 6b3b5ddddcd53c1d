#include "text/split.h"

#include <utility>

#include "text/unicode.h"

namespace barg::text {
namespace {

class LiteralMatcher final : public Matcher {
 public:
  explicit LiteralMatcher(std::string needle) : needle_(std::move(needle)) {}
  bool find_all(std::string_view text, std::vector<Span>& matches) const override {
    if (needle_.empty()) return true;
    for (std::size_t at = text.find(needle_); at != std::string_view::npos;
         at = text.find(needle_, at + needle_.size())) {
      matches.push_back({at, at + needle_.size()});
    }
    return true;
  }
  std::optional<std::size_t> match_bytes() const override { return needle_.size(); }

 private:
  std::string needle_;
};

class DigitMatcher final : public Matcher {
 public:
  bool find_all(std::string_view text, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < text.size();) {
      const ClassAt c = class_at(text, i);
      if (c.bits & kDigitStep) matches.push_back({i, i + c.bytes});
      i += c.bytes;
    }
    return true;
  }
};

class ClassMatcher final : public Matcher {
 public:
  explicit ClassMatcher(bool (*contains)(char32_t)) : contains_(contains) {}
  bool find_all(std::string_view text, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      if (contains_(c.value)) matches.push_back({i, i + c.bytes});
      i += c.bytes;
    }
    return true;
  }

 private:
  bool (*contains_)(char32_t);
};

class WordRuns final : public Matcher {
 public:
  bool find_all(std::string_view text, std::vector<Span>& matches) const override {
    enum class Kind : std::uint8_t { kSpaces, kWord, kOther };
    Kind before = Kind::kSpaces;
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      const Kind kind = is_word(c.value)                       ? Kind::kWord
                        : (char_class(c.value) & kSpace) != 0 ? Kind::kSpaces
                                                               : Kind::kOther;
      if (kind != Kind::kSpaces) {
        if (kind == before) {
          matches.back().end = i + c.bytes;
        } else {
          matches.push_back({i, i + c.bytes});
        }
      }
      before = kind;
      i += c.bytes;
    }
    return true;
  }
};

struct Part {
  Span span;
  bool match;
};

// Matches and the gaps between them, in order.
void tile(std::size_t size, const std::vector<Span>& matches, bool invert, std::vector<Part>& out) {
  std::size_t at = 0;
  for (const Span& m : matches) {
    if (at != m.begin) out.push_back({{at, m.begin}, invert});
    out.push_back({m, !invert});
    at = m.end;
  }
  if (at != size) out.push_back({{at, size}, invert});
}

// Joins each lone match to its neighbour on the left, or (reversed) on the right; of several matches in a row
// only the first met is joined. This is tokenizers' rule to the letter.
std::vector<Span> merge_matches(const std::vector<Part>& parts, bool with_next) {
  std::vector<Span> out;
  bool previous_match = false;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Part& p = parts[with_next ? parts.size() - 1 - k : k];
    if (p.match && !previous_match && !out.empty()) {
      (with_next ? out.back().begin : out.back().end) = with_next ? p.span.begin : p.span.end;
    } else {
      out.push_back(p.span);
    }
    previous_match = p.match;
  }
  if (with_next) return {out.rbegin(), out.rend()};
  return out;
}

std::vector<Span> merge_runs(const std::vector<Part>& parts) {
  std::vector<Span> out;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (k > 0 && parts[k].match == parts[k - 1].match) {
      out.back().end = parts[k].span.end;
    } else {
      out.push_back(parts[k].span);
    }
  }
  return out;
}

std::vector<Span> pieces_of(SplitBehavior behavior, const std::vector<Part>& parts) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious: return merge_matches(parts, false);
    case SplitBehavior::kMergedWithNext: return merge_matches(parts, true);
    case SplitBehavior::kContiguous: return merge_runs(parts);
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated: break;
  }
  std::vector<Span> out;
  for (const Part& p : parts) {
    if (!(p.match && behavior == SplitBehavior::kRemoved)) out.push_back(p.span);
  }
  return out;
}

}  // namespace

std::unique_ptr<Matcher> literal_matcher(std::string text) {
  return std::make_unique<LiteralMatcher>(std::move(text));
}

std::unique_ptr<Matcher> digit_matcher() { return std::make_unique<DigitMatcher>(); }

std::unique_ptr<Matcher> class_matcher(bool (*contains)(char32_t)) {
  return std::make_unique<ClassMatcher>(contains);
}

std::unique_ptr<Matcher> word_matcher() { return std::make_unique<WordRuns>(); }

Result<SplitStep> SplitStep::from_pattern(std::string_view pattern, SplitBehavior behavior, bool invert) {
  if (auto known = known_matcher(pattern)) return SplitStep(std::move(known), behavior, invert);
  auto regex = regex_matcher(pattern);
  if (!regex) return std::unexpected(regex.error());
  return SplitStep(std::move(*regex), behavior, invert);
}

bool SplitStep::run(std::string_view text, const std::vector<Span>& pieces, std::vector<Span>& out) const {
  bool whole = true;
  std::vector<Span> matches;
  std::vector<Part> parts;
  for (const Span& piece : pieces) {
    matches.clear();
    whole = matcher_->find_all(text.substr(piece.begin, piece.size()), matches) && whole;
    if (behavior_ == SplitBehavior::kIsolated) {  // the usual case: matches and gaps, nothing to join
      std::size_t at = piece.begin;
      for (const Span& m : matches) {
        if (at != piece.begin + m.begin) out.push_back({at, piece.begin + m.begin});
        if (m.size() > 0) out.push_back({piece.begin + m.begin, piece.begin + m.end});
        at = piece.begin + m.end;
      }
      if (at != piece.end) out.push_back({at, piece.end});
      continue;
    }
    parts.clear();
    tile(piece.size(), matches, invert_, parts);
    for (const Span& s : pieces_of(behavior_, parts)) {
      if (s.size() > 0) out.push_back({piece.begin + s.begin, piece.begin + s.end});
    }
  }
  return whole;
}

}  // namespace barg::text
