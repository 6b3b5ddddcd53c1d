#include "text/pre_tokenizer.h"

#include <utility>

#include "text/bpe.h"
#include "text/unicode.h"

namespace barg::text {
namespace {

class Split final : public PreTokenizer {
 public:
  explicit Split(SplitStep step) : step_(std::move(step)) {}
  void run(PreTokens& tokens) const override {
    std::vector<Span> out;
    if (!step_.run(tokens.text(), tokens.pieces(), out)) tokens.give_up(step_.pattern());
    tokens.cut(std::move(out));
  }
  bool removes() const override { return step_.removes(); }

 private:
  SplitStep step_;
};

/// The text of each piece by write(out, piece), pieces as they were.
template <class Write>
void rewrite(PreTokens& tokens, Write write) {
  std::string text;
  text.reserve(tokens.text().size() + tokens.pieces().size());
  std::vector<Span> pieces;
  pieces.reserve(tokens.pieces().size());
  for (const Span& p : tokens.pieces()) {
    const std::size_t begin = text.size();
    write(text, tokens.piece(p));
    pieces.push_back({begin, text.size()});
  }
  tokens.write(std::move(text), std::move(pieces));
}

class PrefixSpace final : public PreTokenizer {
 public:
  void run(PreTokens& tokens) const override {
    rewrite(tokens, [](std::string& out, std::string_view piece) {
      if (piece[0] != ' ') out += ' ';
      out += piece;
    });
  }
};

class Printable final : public PreTokenizer {
 public:
  void run(PreTokens& tokens) const override {
    rewrite(tokens, [](std::string& out, std::string_view piece) {
      for (const char c : piece) out += printable_of_byte(static_cast<unsigned char>(c));
    });
  }
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)), scheme_(scheme), split_(split) {}

  void run(PreTokens& tokens) const override {
    std::string text;
    text.reserve(tokens.text().size() + tokens.pieces().size() * mark_.size());
    std::vector<Span> pieces;
    bool first = tokens.at_start();
    for (const Span& p : tokens.pieces()) {
      const std::size_t begin = text.size();
      const std::string_view piece = tokens.piece(p);
      const bool prepends = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && first);
      if (prepends && piece[0] != ' ' && !piece.starts_with(mark_)) text += mark_;
      first = false;
      for (const char c : piece) {
        if (c == ' ') {
          text += mark_;
        } else {
          text += c;
        }
      }
      cut(text, begin, pieces);
    }
    tokens.write(std::move(text), std::move(pieces));
  }

 private:
  void cut(std::string_view text, std::size_t begin, std::vector<Span>& pieces) const {
    while (split_) {
      const std::size_t next = text.find(mark_, text.substr(begin).starts_with(mark_) ? begin + mark_.size() : begin);
      if (next == std::string_view::npos) break;
      if (next > begin) pieces.push_back({begin, next});
      begin = next;
    }
    if (begin < text.size()) pieces.push_back({begin, text.size()});
  }

  std::string mark_;
  PrependScheme scheme_;
  bool split_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}
  void run(PreTokens& tokens) const override {
    std::vector<Span> out;
    for (const Span& p : tokens.pieces()) {
      std::size_t begin = p.begin, characters = 0;
      for (std::size_t i = p.begin; i < p.end;) {
        i += decode_utf8(tokens.text(), i).bytes;
        if (++characters < length_ && i < p.end) continue;
        out.push_back({begin, i});
        begin = i;
        characters = 0;
      }
    }
    tokens.cut(std::move(out));
  }

 private:
  std::size_t length_;
};

}  // namespace

PreTokens::PreTokens(std::string_view text, bool at_start) : text_(text), at_start_(at_start) {
  if (!text.empty()) pieces_.push_back({0, text.size()});
}

void PreTokens::cut(std::vector<Span> pieces) { pieces_ = std::move(pieces); }

void PreTokens::write(std::string text, std::vector<Span> pieces) {
  at_start_ = at_start();  // by the old pieces: the new text has no gap in front
  own_ = std::move(text);
  text_ = own_;
  pieces_ = std::move(pieces);
}

PreTokenizerPtr split_step(SplitStep step) { return std::make_unique<Split>(std::move(step)); }
PreTokenizerPtr prefix_space_step() { return std::make_unique<PrefixSpace>(); }
PreTokenizerPtr printable_step() { return std::make_unique<Printable>(); }
PreTokenizerPtr metaspace_step(std::string mark, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(mark), scheme, split);
}
PreTokenizerPtr fixed_length_step(std::size_t length) { return std::make_unique<FixedLength>(length); }

}  // namespace barg::text
