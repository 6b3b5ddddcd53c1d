// TokenizerSpec: what a tokenizer.json or a GGUF vocabulary says, in one form. The readers fill it and refuse
// what Barg does not support; BpeTokenizer (tokenizer.cpp) is built from it and knows no container.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "barg/result.h"
#include "barg/tokenizer.h"
#include "text/bpe.h"
#include "text/split.h"
#include "text/tokenizer_added.h"

namespace barg::text {

struct PreTokenizerStep {
  /// Empty: not a split but "put a space before each piece that has none" (ByteLevel's add_prefix_space).
  std::optional<SplitStep> split;
};

struct TokenizerSpec {
  std::shared_ptr<Vocab> vocab = std::make_shared<Vocab>();  ///< of the model, which knows no added token
  std::vector<Merge> merges;
  BpeOptions bpe;
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<PreTokenizerStep> steps;
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
