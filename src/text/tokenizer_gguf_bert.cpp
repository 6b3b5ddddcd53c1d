// The `bert` kind of GGUF vocabulary: WordPiece. A file marks the tokens that begin a word (U+2581), where the model's
// own vocabulary marks those that do not ("##"); and it does not say whether text is made lower case: it is, unless
// some word of the vocabulary has a capital letter.
#include <algorithm>
#include <utility>

#include "text/tokenizer_gguf.h"
#include "text/unicode_classes.h"

namespace barg::text {
namespace {

using std::string_view;

constexpr string_view kMark = "\u2581";
constexpr string_view kInside = "##";

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

Result<void> read_tokens(const VocabData& v, bool& cased, TokenizerSpec& spec) {
  if (auto r = check_gguf_lists(v); !r) return r;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const string_view token = v.tokens[i];
    const auto id = static_cast<TokenId>(i);
    const std::int32_t type = gguf_type(v, i);
    if (is_gguf_padding(v, i)) continue;
    const bool literal = type == kControl || type == kUnknown || (type == kUserDefined && !token.starts_with(kMark));
    if (literal || token.empty()) {
      spec.vocab->add(id, token);
    } else if (token.starts_with(kMark)) {
      spec.vocab->add(id, token.substr(kMark.size()));
      cased = cased || std::ranges::any_of(token, is_capital);
    } else {
      spec.vocab->add(id, std::string(kInside) + std::string(token));
    }
    if (!literal || token.empty()) continue;
    if (auto r = add_gguf_literal(v, i, spec); !r) return r;
  }
  spec.size = spec.vocab->size();
  return {};
}

}  // namespace

Result<TokenizerSpec> read_gguf_bert(const VocabData& v) {
  TokenizerSpec spec;
  spec.vocab = std::make_shared<Vocab>(false);
  bool cased = false;
  if (auto r = read_tokens(v, cased, spec); !r) return std::unexpected(r.error());
  // CLS and SEP go around a text as BOS and EOS do elsewhere, and files name them by either key.
  VocabData ids = v;
  if (!ids.bos) ids.bos = v.cls;
  if (!ids.eos) ids.eos = v.sep;
  if (auto r = read_gguf_ids(ids, true, true, spec); !r) return std::unexpected(r.error());
  const auto unk = v.unk ? v.unk : spec.vocab->find("[UNK]");
  if (!unk) return bad_gguf("unknown_token_id", "missing");
  spec.model = WordPieceOptions{.prefix = std::string(kInside), .unk = *unk};
  spec.normalizer = bert_normalizer({.strip_accents = !cased, .lowercase = !cased});
  const auto is_white = [](char32_t cp) { return (char_class(cp) & kSpace) != 0; };
  spec.steps.push_back(split_step(SplitStep(class_matcher(is_white), SplitBehavior::kRemoved, false)));
  spec.steps.push_back(split_step(SplitStep(class_matcher(is_old_punctuation), SplitBehavior::kIsolated, false)));
  spec.decoder.add({.kind = TokenDecoder::Kind::kWordPiece, .content = std::string(kInside), .flag = true});
  return spec;
}

}  // namespace barg::text
