// TokenizerSpec: what a tokenizer.json or a GGUF vocabulary says, in one form. The readers fill it and refuse
// what Barg does not support; PipelineTokenizer (tokenizer.cpp) is built from it and knows no container.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "barg/result.h"
#include "barg/tokenizer.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/tokenizer_added.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace barg::text {

struct BpeSpec {
  std::vector<Merge> merges;
  BpeOptions options;
};
struct WordLevelSpec {
  TokenId unk = kNoToken;
};
using ModelSpec = std::variant<BpeSpec, UnigramOptions, WordPieceOptions, WordLevelSpec>;

struct TokenizerSpec {
  std::shared_ptr<Vocab> vocab;      ///< of the model, which knows no added token
  ModelSpec model;
  std::vector<AddedToken> added;
  std::size_t literal_bytes = 0;     ///< of `added`, once normalised; at most kMaxAllLiteralBytes
  std::vector<TokenId> controls;     ///< ids that the model must not make of text
  NormalizerPtr normalizer;          ///< may be null
  std::vector<PreTokenizerPtr> steps;
  TokenDecoder decoder;              ///< without steps, tokens are joined as they are
  std::vector<TokenId> prefix, suffix;  ///< ids that add_special_tokens puts around the text
  TokenId size = 0;                     ///< Tokenizer::size()
  std::optional<TokenId> bos, eos;
  std::vector<std::pair<std::string, std::string>> roles;  ///< {"bos_token", "<s>"}
};

/// VocabData with a tokenizer_json.
Result<TokenizerSpec> read_tokenizer_json(const VocabData& vocab);
/// VocabData with a ggml_model.
Result<TokenizerSpec> read_tokenizer_gguf(const VocabData& vocab);

}  // namespace barg::text
