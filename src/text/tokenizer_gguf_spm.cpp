// The `llama` and `gemma4` kinds of GGUF vocabulary: SentencePiece's BPE over text whose spaces are U+2581, with the
// bytes of a character that has no token.
//
// A `llama` file has no merges. SentencePiece merges, again and again, the pair that makes the token of the highest
// score; so every cut of a token into two tokens is a merge, ranked by the score of what it makes. That is how
// transformers converts such vocabularies, and what this follows: of equal scores the lower id comes first.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "text/tokenizer_gguf.h"

namespace barg::text {
namespace {

using std::string_view;

constexpr string_view kMark = "\u2581";
constexpr std::size_t kMaxMergedBytes = 256;  // a token is cut at every place

// Literals that also take the white space behind them, which GGUF cannot say: Phi-3's.
struct Stripping {
  string_view architecture;
  string_view prefix;     ///< of literals that do
  string_view also;       ///< one more
  string_view but;        ///< one of them that does not
};
constexpr Stripping kStripping[] = {{"phi3", "<|", "</s>", "<|endoftext|>"}};

bool strips(const VocabData& v, string_view token) {
  return std::ranges::any_of(kStripping, [&](const Stripping& s) {
    return v.ggml_architecture == s.architecture && token != s.but && (token.starts_with(s.prefix) || token == s.also);
  });
}

Result<void> read_tokens(const VocabData& v, TokenizerSpec& spec) {
  if (auto r = check_gguf_lists(v); !r) return r;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    const std::int32_t type = gguf_type(v, i);
    if (is_gguf_padding(v, i)) continue;
    spec.vocab->add(static_cast<TokenId>(i), token);
    if (token.empty()) continue;
    // Runs of spaces are no literals: the text has no mark where they are looked for.
    const bool literal = type == kControl || type == kUnknown ||
                         (type == kUserDefined && token.find(kMark) == std::string::npos);
    if (!literal) continue;
    if (auto r = add_gguf_literal(v, i, spec); !r) return r;
    if (!strips(v, token)) continue;
    spec.added.back().rstrip = true;
    // transformers has them as special tokens, whatever the type.
    if (!spec.added.back().special) spec.controls.push_back(spec.added.back().id);
    spec.added.back().special = true;
  }
  spec.size = spec.vocab->size();
  return {};
}

// Every cut of `token` into two tokens, by the ids of the halves.
void add_cuts(const Vocab& vocab, TokenId id, string_view token, std::vector<Merge>& out) {
  const std::size_t first = out.size();
  for (std::size_t i = 1; i < token.size(); ++i) {
    if ((static_cast<unsigned char>(token[i]) & 0xC0) == 0x80) continue;
    const TokenId left = vocab.find_bytes(token.substr(0, i));
    const TokenId right = left == kNoToken ? kNoToken : vocab.find_bytes(token.substr(i));
    if (right != kNoToken) out.push_back({left, right, id});
  }
  const auto by_ids = [](const Merge& a, const Merge& b) {
    return std::pair(a.left, a.right) < std::pair(b.left, b.right);
  };
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), by_ids);
}

Result<void> make_merges(const VocabData& v, const Vocab& vocab, BpeSpec& bpe) {
  if (v.scores.size() != v.tokens.size()) return bad_gguf("scores", "missing, or not one for each token");
  std::vector<TokenId> order;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (!std::isfinite(v.scores[i])) return bad_gguf("scores", "entry " + std::to_string(i) + " is no number");
    const std::int32_t type = gguf_type(v, i);
    if ((type != kNormal && type != kUserDefined) || byte_of_token(v.tokens[i]) >= 0) continue;
    if (v.tokens[i].size() > kMaxMergedBytes) {
      return bad_gguf("tokens", "entry " + std::to_string(i) + " is longer than " + std::to_string(kMaxMergedBytes) +
                                    " bytes");
    }
    order.push_back(static_cast<TokenId>(i));
  }
  const auto score = [&](TokenId id) { return v.scores[static_cast<std::size_t>(id)]; };
  std::ranges::stable_sort(order, [&](TokenId a, TokenId b) { return score(a) > score(b); });
  for (const TokenId id : order) add_cuts(vocab, id, v.tokens[static_cast<std::size_t>(id)], bpe.merges);
  return {};
}

// What spaces become on the way in, and marks on the way out.
void add_spaces(TokenizerSpec& spec, bool prefix_space) {
  std::vector<NormalizerPtr> parts;
  if (prefix_space) parts.push_back(prepend_normalizer(std::string(kMark)));
  parts.push_back(replace_normalizer(literal_matcher(" "), std::string(kMark)));
  spec.normalizer = sequence_normalizer(std::move(parts));
  using Kind = TokenDecoder::Kind;
  spec.decoder.add({.kind = Kind::kReplace, .content = " ", .pattern = literal_matcher(std::string(kMark))});
  spec.decoder.add({.kind = Kind::kByteFallback});
  if (prefix_space) spec.decoder.add({.kind = Kind::kStripText, .content = " "});
}

Result<TokenizerSpec> read(const VocabData& v, bool prefix_space,
                           Result<void> (*merges)(const VocabData&, const Vocab&, BpeSpec&)) {
  TokenizerSpec spec;
  spec.vocab = std::make_shared<Vocab>(false);
  if (auto r = read_tokens(v, spec); !r) return std::unexpected(r.error());
  if (auto r = read_gguf_ids(v, v.bos.has_value(), false, spec); !r) return std::unexpected(r.error());
  const TokenId unk = v.unk.value_or(kNoToken);
  BpeSpec bpe{.merges = {}, .options = {.byte_level = false, .unk = unk, .fuse_unk = true, .byte_fallback = true}};
  if (auto r = merges(v, *spec.vocab, bpe); !r) return std::unexpected(r.error());
  spec.model = std::move(bpe);
  add_spaces(spec, prefix_space);
  return spec;
}

}  // namespace

Result<TokenizerSpec> read_gguf_llama(const VocabData& v) {
  return read(v, v.add_space_prefix.value_or(true), make_merges);
}

Result<TokenizerSpec> read_gguf_gemma4(const VocabData& v) {
  return read(v, v.add_space_prefix.value_or(false), read_gguf_merges);
}

}  // namespace barg::text
