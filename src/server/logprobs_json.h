// Log-probabilities in the shapes of chat completions, legacy completions and vLLM's prompt_logprobs. Pure.
//
// `token` strings are always valid UTF-8: bytes that are no character show as U+FFFD in chat (the exact ones
// are in `bytes`) and as "bytes:\xNN" in legacy completions, where the string is the only form. In both,
// concatenating all tokens gives the text: chat has no entries for tokens without text (markers, layout,
// reasoning, calls, the token that stopped), legacy completions show a hidden token as "".
#pragma once

#include <span>
#include <vector>

#include "barg/request.h"
#include "barg/tokenizer.h"
#include "base/json.h"
#include "server/choice_stream.h"
#include "server/answer_writer.h"

namespace barg::server {

/// One token of a text, with its `top` most likely alternatives.
Json chat_entry(const Tokenizer& tokenizer, const OutToken& token, std::int32_t top);
/// {"content":[...],"refusal":null} of those tokens that have text; null where none has.
Json chat_logprobs(const Tokenizer& tokenizer, std::span<const OutToken> tokens, std::int32_t top);

/// tokens, token_logprobs, top_logprobs, text_offset of a run of tokens. `first_null`: the first has no
/// value.
Json legacy_logprobs(const Tokenizer& tokenizer, std::span<const OutToken> tokens, std::int32_t top,
                     bool first_null);

/// The prompt as records, offsets counted in its text; values from `logprobs` (may be shorter or empty).
std::vector<OutToken> prompt_records(const Tokenizer& tokenizer, const PromptInfo& prompt,
                                     std::span<const TokenLogprobs> logprobs, bool skip_special_tokens);

/// [null, {"id": {"logprob","rank","decoded_token"}}, ...]
Json prompt_logprobs_json(const Tokenizer& tokenizer, std::span<const TokenLogprobs> logprobs);

/// Finite, at least -9999.
double clip_logprob(float value);

}  // namespace barg::server
