// Scripts: what a model of tests says, by name. A prompt names its script, "[[script NAME]]", and the last
// name in it counts, so that the newest turn of a conversation decides; a prompt without one gets "default",
// or a short sentence.
//
// The file is one JSON object, {NAME: TEXT or SCRIPT}:
//   SCRIPT  {"pieces": [PIECE...],            what is said, or
//            "choices": [[PIECE...]...],      what choice k says (the list repeats)
//            "end": "<|eot_id|>" or null,     the token that ends it (default: the tokenizer's EOS); null: it
//            repeats "delay_ms": 0,                   before each token but the first "first_delay_ms": 0,
//            before the first "fail_after": N}                 the device gives no numbers for output token N
//   PIECE   "text"                as the tokenizer encodes it, added tokens recognised
//           {"token": "<think>"}  that added token
//           {"plain": "<think>"}  the same characters as ordinary tokens: what a user typed, repeated by the
//           model
//           {"byte": 255}         the token of that byte alone, which need not be UTF-8
//
// Immutable after read(); any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "barg/tokenizer.h"

namespace barg::test {

struct Script {
  std::vector<std::vector<TokenId>> choices;  ///< at least one; choice k says choices[k % size]
  TokenId end = kNoToken;                     ///< kNoToken: it never ends by itself
  double delay_s = 0, first_delay_s = 0;
  std::int32_t fail_after = -1;  ///< -1: never
};

class Scripts {
 public:
  /// Errors name the script. `tokenizer` lives as long as the result.
  static Result<std::shared_ptr<const Scripts>> read(std::string_view json,
                                                     std::shared_ptr<const Tokenizer> tokenizer);

  const Script& of_prompt(std::span<const TokenId> prompt) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, Script, std::less<>> scripts_;
};

}  // namespace barg::test
