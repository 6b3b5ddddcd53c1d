// `model` of tokenizer.json: BPE, Unigram, WordPiece, WordLevel.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "text/tokenizer_json.h"

namespace barg::text {
namespace {

using std::string;
using std::string_view;

Result<void> read_vocab(const Json* j, TokenizerSpec& spec) {
  if (!j || !j->is_object()) return bad_json("model.vocab", "is not an object");
  for (const auto& [spelling, value] : j->as_object()) {
    const auto id = id_of(&value, "model.vocab");
    if (!id) return std::unexpected(id.error());
    if (spec.vocab->has(*id)) return bad_json("model.vocab", "has id " + std::to_string(*id) + " twice");
    spec.vocab->add(*id, spelling);
  }
  return {};
}

Result<void> read_merges(const Json* j, const Vocab& vocab, BpeSpec& spec) {
  const string field = "model.merges";
  if (!j || !j->is_array()) return bad_json(field, "is not a list");
  spec.merges.reserve(j->size());
  for (const Json& m : j->as_array()) {
    string_view left, right;
    if (m.is_string()) {
      const string_view line = m.as_string();
      const std::size_t space = line.find(' ');
      if (space == string_view::npos || line.find(' ', space + 1) != string_view::npos) {
        return bad_json(field, "entry " + std::to_string(spec.merges.size()) + " is not two tokens with a space between");
      }
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (m.is_array() && m.size() == 2 && m.as_array()[0].is_string() && m.as_array()[1].is_string()) {
      left = m.as_array()[0].as_string();
      right = m.as_array()[1].as_string();
    } else {
      return bad_json(field, "entry " + std::to_string(spec.merges.size()) + " is neither a string nor a pair");
    }
    const auto a = vocab.find(left), b = vocab.find(right);
    // Inside a word tokens are spelled with the prefix, which the joined one has only if its left half has.
    const bool prefixed = right.size() >= spec.options.prefix.size();
    const auto joined = a && b && prefixed
                            ? vocab.find(string(left) + string(right.substr(spec.options.prefix.size())))
                            : std::nullopt;
    if (!joined) return bad_json(field, "entry " + std::to_string(spec.merges.size()) + " is not made of known tokens");
    spec.merges.push_back({*a, *b, *joined});
  }
  return {};
}

/// The id of `unk_token`, which must be a token if the file names one.
Result<TokenId> read_unk(const Json& j, const Vocab& vocab) {
  const string_view unk = text_of(j, "unk_token");
  if (unk.empty()) return kNoToken;
  const auto id = vocab.find(unk);
  if (!id) return bad_json("model.unk_token", "is not in the vocabulary");
  return *id;
}

/// The same where a model cannot do without.
Result<TokenId> need_unk(const Json& j, const Vocab& vocab) {
  auto unk = read_unk(j, vocab);
  if (unk && *unk == kNoToken) return bad_json("model.unk_token", "is missing");
  return unk;
}

/// Pieces that a trie is made of: bounded, so that its memory is, and the time of a search. `usable`: of how many bytes
/// a piece can be met.
Result<void> check_pieces(const Vocab& vocab, auto usable) {
  std::size_t bytes = 0;
  for (TokenId id = 0; id < vocab.size(); ++id) {
    if (!usable(vocab.bytes(id).size())) continue;
    if (vocab.bytes(id).size() > kMaxPieceBytes) {
      return bad_json("model.vocab", "has a token above " + std::to_string(kMaxPieceBytes) + " bytes");
    }
    bytes += vocab.bytes(id).size();
  }
  if (bytes > ByteTrie::kMaxBytes) return bad_json("model.vocab", "is too large");
  return {};
}

Result<void> read_bpe(const Json& j, TokenizerSpec& spec) {
  BpeSpec bpe;
  bpe.options.byte_level = spec.vocab->printable();
  bpe.options.ignore_merges = flag_of(j, "ignore_merges", false);
  bpe.options.fuse_unk = flag_of(j, "fuse_unk", false);
  bpe.options.byte_fallback = flag_of(j, "byte_fallback", false);
  bpe.options.prefix = text_of(j, "continuing_subword_prefix");
  bpe.options.suffix = text_of(j, "end_of_word_suffix");
  // They are added to every symbol.
  if (bpe.options.prefix.size() > 64) return bad_json("model.continuing_subword_prefix", "is above 64 bytes");
  if (bpe.options.suffix.size() > 64) return bad_json("model.end_of_word_suffix", "is above 64 bytes");
  if (auto r = read_vocab(member(j, "vocab"), spec); !r) return r;
  if (auto r = read_merges(member(j, "merges"), *spec.vocab, bpe); !r) return r;
  const auto unk = read_unk(j, *spec.vocab);
  if (!unk) return std::unexpected(unk.error());
  bpe.options.unk = *unk;
  spec.model = std::move(bpe);
  return {};
}

Result<void> read_unigram(const Json& j, TokenizerSpec& spec) {
  const string field = "model.vocab";
  UnigramOptions unigram{.byte_fallback = flag_of(j, "byte_fallback", false)};
  const Json* list = member(j, "vocab");
  if (!list || !list->is_array()) return bad_json(field, "is not a list");
  if (list->size() > static_cast<std::size_t>(kMaxTokens)) return bad_json(field, "has too many tokens");
  for (const Json& entry : list->as_array()) {
    const bool pair = entry.is_array() && entry.size() == 2 && entry.as_array()[0].is_string() &&
                      entry.as_array()[1].is_number() && std::isfinite(entry.as_array()[1].as_double());
    if (!pair) return bad_json(field, "entry " + std::to_string(unigram.scores.size()) + " is not [piece, score]");
    spec.vocab->add(static_cast<TokenId>(unigram.scores.size()), entry.as_array()[0].as_string());
    unigram.scores.push_back(entry.as_array()[1].as_double());
  }
  // Without it tokenizers fails on the first character that is no piece.
  const Json* unk = member(j, "unk_id");
  if (!unk) return bad_json("model.unk_id", "is missing");
  const auto id = id_of(unk, "model.unk_id");
  if (!id) return std::unexpected(id.error());
  if (!spec.vocab->has(*id)) return bad_json("model.unk_id", "is not in the vocabulary");
  unigram.unk = *id;
  if (auto r = check_pieces(*spec.vocab, [](std::size_t) { return true; }); !r) return r;
  spec.model = std::move(unigram);
  return {};
}

Result<void> read_word_piece(const Json& j, TokenizerSpec& spec) {
  if (auto r = read_vocab(member(j, "vocab"), spec); !r) return r;
  WordPieceOptions pieces;
  const Json* prefix = member(j, "continuing_subword_prefix");
  if (prefix && prefix->is_string()) pieces.prefix = prefix->as_string();
  const auto most = count_of(j, "max_input_chars_per_word", pieces.max_chars);
  if (!most) return bad_json("model.max_input_chars_per_word", "is not a number of characters");
  pieces.max_chars = *most;
  const auto usable = [&](std::size_t bytes) { return WordPiece::usable(pieces, bytes); };
  if (auto r = check_pieces(*spec.vocab, usable); !r) return r;
  const auto unk = need_unk(j, *spec.vocab);
  if (!unk) return std::unexpected(unk.error());
  pieces.unk = *unk;
  spec.model = std::move(pieces);
  return {};
}

Result<void> read_word_level(const Json& j, TokenizerSpec& spec) {
  if (auto r = read_vocab(member(j, "vocab"), spec); !r) return r;
  const auto unk = need_unk(j, *spec.vocab);
  if (!unk) return std::unexpected(unk.error());
  spec.model = WordLevelSpec{.unk = *unk};
  return {};
}

/// The oldest files have no type.
string_view type_of(const Json& model) {
  const string_view type = text_of(model, "type");
  if (!type.empty()) return type;
  return member(model, "merges") ? "BPE" : "";
}

}  // namespace

bool may_be_bytes(const Json& model) {
  return type_of(model) == "BPE" && !flag_of(model, "byte_fallback", false) &&
         text_of(model, "continuing_subword_prefix").empty() && text_of(model, "end_of_word_suffix").empty();
}

Result<void> read_model(const Json* j, TokenizerSpec& spec) {
  struct Kind {
    string_view type;
    Result<void> (*read)(const Json&, TokenizerSpec&);
  };
  static constexpr Kind kKinds[] = {
      {"BPE", read_bpe}, {"Unigram", read_unigram}, {"WordPiece", read_word_piece}, {"WordLevel", read_word_level}};
  const auto* kind = std::ranges::find(kKinds, type_of(*j), &Kind::type);
  if (kind == std::end(kKinds)) return unsupported_json("model.type", type_of(*j));
  return kind->read(*j, spec);
}

}  // namespace barg::text
