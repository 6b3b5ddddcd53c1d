// The `t5` kind of GGUF vocabulary: Unigram with the scores of the file and SentencePiece's compiled map, as T5 and
// XLM-RoBERTa have it. White space at the ends and in runs goes, unless the file says otherwise.
#include <algorithm>
#include <cmath>
#include <utility>

#include "text/tokenizer_gguf.h"
#include "text/unicode_classes.h"

namespace barg::text {
namespace {

using std::string_view;

constexpr string_view kWordMark = "\u2581";

/// Of a token that is no piece, converters write any score; it must not be what unknown characters are measured by.
void set_scores(const VocabData& v, UnigramOptions& unigram) {
  double lowest = 0;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (gguf_type(v, i) == kNormal) lowest = std::min(lowest, static_cast<double>(v.scores[i]));
  }
  for (const float score : v.scores) unigram.scores.push_back(std::max(static_cast<double>(score), lowest));
}

Result<void> read_tokens(const VocabData& v, TokenizerSpec& spec) {
  if (auto r = check_gguf_lists(v); !r) return r;
  if (v.scores.size() != v.tokens.size()) return bad_gguf("scores", "missing, or not one for each token");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    const std::int32_t type = gguf_type(v, i);
    if (!std::isfinite(v.scores[i])) return bad_gguf("scores", "entry " + std::to_string(i) + " is no number");
    if (token.size() > kMaxPieceBytes) {
      return bad_gguf("tokens", "entry " + std::to_string(i) + " is longer than " + std::to_string(kMaxPieceBytes) +
                                    " bytes");
    }
    bytes += token.size();
    if (is_gguf_padding(v, i)) continue;
    spec.vocab->add(static_cast<TokenId>(i), token);
    if (token.empty() || (type != kControl && type != kUnknown && type != kUserDefined)) continue;
    if (auto r = add_gguf_literal(v, i, spec); !r) return r;
  }
  if (bytes > ByteTrie::kMaxBytes) return bad_gguf("tokens", "too large");
  spec.size = spec.vocab->size();
  return {};
}

std::optional<TokenId> unknown_of(const VocabData& v) {
  if (v.unk) return v.unk;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (gguf_type(v, i) == kUnknown) return static_cast<TokenId>(i);
  }
  return std::nullopt;
}

}  // namespace

Result<TokenizerSpec> read_gguf_t5(const VocabData& v) {
  TokenizerSpec spec;
  spec.vocab = std::make_shared<Vocab>(false);
  if (auto r = read_tokens(v, spec); !r) return std::unexpected(r.error());
  if (auto r = read_gguf_ids(v, false, v.eos.has_value(), spec); !r) return std::unexpected(r.error());
  UnigramOptions unigram;
  set_scores(v, unigram);
  const auto unk = unknown_of(v);
  if (!unk) return bad_gguf("unknown_token_id", "missing");
  if (!spec.vocab->has(*unk)) return bad_gguf("unknown_token_id", "has no token");
  unigram.unk = *unk;
  spec.model = std::move(unigram);
  if (!v.ggml_charsmap.empty()) {
    auto map = charsmap_normalizer(v.ggml_charsmap);
    if (!map) return bad_gguf("precompiled_charsmap", map.error().message);
    spec.normalizer = std::move(*map);
  }
  if (v.remove_extra_whitespaces.value_or(true)) {
    const auto is_white = [](char32_t cp) { return (char_class(cp) & kSpace) != 0; };
    spec.steps.push_back(split_step(SplitStep(class_matcher(is_white), SplitBehavior::kRemoved, false)));
  }
  const bool prefix = v.add_space_prefix.value_or(true);
  spec.steps.push_back(metaspace_step(std::string(kWordMark), prefix ? PrependScheme::kAlways : PrependScheme::kNever, true));
  spec.decoder.add({.kind = TokenDecoder::Kind::kMetaspace, .content = std::string(kWordMark), .flag = prefix});
  return spec;
}

}  // namespace barg::text
