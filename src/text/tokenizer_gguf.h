// The kinds of GGUF vocabulary (tokenizer.ggml.model), one reader each, and what they share.
//
//   gpt2    byte-level BPE; what a file leaves out is implied by tokenizer.ggml.pre         tokenizer_gguf.cpp
//   llama   SentencePiece BPE: merges follow from the scores                                tokenizer_gguf_spm.cpp
//   gemma4  the same text rules, with merges of its own                                     tokenizer_gguf_spm.cpp
//   bert    WordPiece                                                                       tokenizer_gguf_bert.cpp
//   t5      Unigram with SentencePiece's compiled map                                       tokenizer_gguf_t5.cpp
//
// A file keeps less than a tokenizer.json: lstrip, rstrip and normalized of literals are lost. Where llama.cpp and the
// model's tokenizer.json differ, the readers follow the latter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer_spec.h"

namespace barg::text {

/// Values of tokenizer.ggml.token_type.
enum GgufTokenType : std::int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

inline std::unexpected<Error> bad_gguf(std::string_view field, const std::string& what) {
  const std::string name = "tokenizer.ggml." + std::string(field);
  return fail(ErrorCode::kBadFile, name + ": " + what, name);
}

inline std::int32_t gguf_type(const VocabData& v, std::size_t i) {
  return v.token_types.empty() ? kNormal : v.token_types[i];
}

/// The lists are there and of equal length.
Result<void> check_gguf_lists(const VocabData& v);
/// "[PAD50254]": a row that a converter invented to fill the embedding; no token stands behind it.
bool is_gguf_padding(const VocabData& v, std::size_t i);
/// Token i: matched in raw text, not normalised. Failure: kBadFile, what could not be cut out of text.
Result<void> add_gguf_literal(const VocabData& v, std::size_t i, TokenizerSpec& spec);
/// tokenizer.ggml.merges, for tokens of spec.vocab.
Result<void> read_gguf_merges(const VocabData& v, const Vocab& vocab, BpeSpec& bpe);
/// Ids of roles, and what goes around a text; `add_bos`, `add_eos` where the file does not say.
Result<void> read_gguf_ids(const VocabData& v, bool add_bos, bool add_eos, TokenizerSpec& spec);

Result<TokenizerSpec> read_gguf_llama(const VocabData& v);
Result<TokenizerSpec> read_gguf_gemma4(const VocabData& v);
Result<TokenizerSpec> read_gguf_bert(const VocabData& v);
Result<TokenizerSpec> read_gguf_t5(const VocabData& v);

}  // namespace barg::text
