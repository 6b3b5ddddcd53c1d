// The rows that several endpoints share. Ranges are OpenAI's, extensions are named and meant as in vLLM.
#include <algorithm>

#include "server/constraint_rules.h"
#include "server/request_rules.h"

namespace barg::server {
namespace {

constexpr unsigned kOpenAi = api_bit(Api::kChat) | api_bit(Api::kCompletions);
constexpr double kInt32Max = 2147483647;
constexpr double kMaxTokenIds = 1 << 18;
constexpr double kMaxIdentityBytes = 1024;
constexpr double kMaxPinSeconds = 7 * 86'400;

using enum FieldType;
using enum FieldEffect;

constexpr FieldSpec kStreamOptions[] = {
    {.name = "include_usage", .type = kBool, .about = "A last chunk with the usage of the whole request."},
    {.name = "continuous_usage_stats", .type = kBool, .about = "The usage so far on every chunk."},
    {.name = "include_obfuscation", .type = kBool, .about = "Accepted; nothing is padded."},
};

constexpr FieldSpec kShared[] = {
    {.name = "model", .type = kString, .about = "A name the server serves; the first model if absent.", .max = 4096},
    {.name = "stream", .type = kBool, .about = "Answer with server-sent events as tokens come."},
    {.name = "stream_options", .type = kObject, .about = "What a stream also carries; without effect otherwise.",
     .apis = kOpenAi, .members = kStreamOptions},
    {.name = "strict_params", .type = kBool, .about = "Refuse fields that would be ignored."},

    // Sampling.
    {.name = "temperature", .type = kNumber, .about = "0 is greedy.", .min = 0, .max = 2},
    {.name = "top_p", .type = kNumber, .about = "Keep the most likely tokens of this joint probability.", .min = 0,
     .max = 1, .min_open = true},
    {.name = "top_k", .type = kInteger, .about = "Keep so many most likely tokens; 0 or -1: all.", .min = -1},
    {.name = "min_p", .type = kNumber, .about = "Drop tokens below this share of the most likely one.", .min = 0,
     .max = 1},
    {.name = "repetition_penalty", .type = kNumber, .about = "Over prompt and output; 1 is none.", .min = 0.01,
     .max = 100},
    {.name = "frequency_penalty", .type = kNumber, .about = "Over the output, by count.", .min = -2, .max = 2},
    {.name = "presence_penalty", .type = kNumber, .about = "Over the output, once a token.", .min = -2, .max = 2},
    {.name = "seed", .type = kInteger, .about = "The same seed and request give the same answer; -1: one is drawn."},
    {.name = "logit_bias", .type = kObject, .about = "Token id to a value from -100 to 100 added to its logit."},
    {.name = "allowed_token_ids", .type = kTokenIds, .about = "Only these tokens are chosen.", .max = kMaxTokenIds},
    {.name = "banned_token_ids", .type = kTokenIds, .about = "These tokens are never chosen.", .max = kMaxTokenIds},
    {.name = "stop_token_ids", .type = kTokenIds, .about = "Each ends the answer, beside the model's own.",
     .max = 1024},
    {.name = "min_tokens", .type = kInteger, .about = "Nothing ends the answer before so many tokens.", .min = 0,
     .max = kInt32Max},
    {.name = "ignore_eos", .type = kBool, .about = "The model's own end tokens end nothing."},
    {.name = "stop", .type = kAny, .about = "A string or up to 16 strings, each of which ends the answer.",
     .apis = kOpenAi | api_bit(Api::kResponses)},
    {.name = "include_stop_str_in_output", .type = kBool, .about = "The stop string is part of the answer.",
     .apis = kOpenAi},
    {.name = "skip_special_tokens", .type = kBool, .about = "Special tokens are not shown (the default).",
     .apis = kOpenAi},
    {.name = "return_token_ids", .type = kBool, .about = "The ids of prompt and answer, too.", .apis = kOpenAi},
    {.name = "n", .type = kInteger, .about = "Choices; choice 0 is what n = 1 gives.", .min = 1, .max = kMaxChoices,
     .apis = kOpenAi},
    {.name = "best_of", .type = kInteger, .about = "Must equal n.", .min = 1, .max = kMaxChoices, .apis = kOpenAi},
    {.name = "prompt_logprobs", .type = kInteger, .about = "Log-probabilities of the prompt; not in a stream.",
     .min = 0, .max = kMaxLogprobs, .apis = kOpenAi},
    {.name = "add_special_tokens", .type = kBool, .about = "Add BOS where the prompt does not begin with it.",
     .apis = kOpenAi},
    {.name = "modalities", .type = kArray, .about = "Only [\"text\"].", .max = 8, .apis = kOpenAi},

    // Who asks, and how it is served.
    {.name = "priority", .type = kAny, .about = "interactive, standard, batch, or a number: lower is sooner."},
    {.name = "cache_salt", .type = kString, .about = "Prefixes are shared only among equal salts.", .max = 128},
    {.name = "cache_pin_s", .type = kNumber, .about = "Keep this prompt in the cache for so many seconds.", .min = 0,
     .max = kMaxPinSeconds},
    {.name = "user", .type = kString, .about = "Ignored.", .max = kMaxIdentityBytes, .effect = kIgnored,
     .apis = kOpenAi},
    {.name = "metadata", .type = kObject, .about = "Ignored.", .effect = kIgnored, .apis = kOpenAi},
    {.name = "safety_identifier", .about = "Ignored.", .effect = kIgnored, .apis = kOpenAi},
    {.name = "store", .about = "Ignored.", .effect = kIgnored, .apis = kOpenAi},
    {.name = "service_tier", .about = "Ignored.", .effect = kIgnored, .apis = kOpenAi},
    {.name = "verbosity", .about = "Ignored.", .effect = kIgnored, .apis = kOpenAi},
    {.name = "prediction", .about = "Ignored.", .effect = kIgnored, .apis = kOpenAi},
    {.name = "prompt_cache_key", .about = "Ignored: equal prefixes are found by themselves.", .effect = kIgnored,
     .apis = kOpenAi},
    {.name = "prompt_cache_retention", .about = "Ignored; see cache_pin_s.", .effect = kIgnored, .apis = kOpenAi},

    // Templates and reasoning.
    {.name = "chat_template_kwargs", .type = kObject, .about = "Extra variables of the chat template.",
     .apis = kChatLike},
    {.name = "thinking_token_budget", .type = kInteger,
     .about = "The reasoning is ended after so many tokens; -1: no limit.", .min = -1, .max = kInt32Max,
     .apis = kChatLike},
    {.name = "include_reasoning", .type = kBool, .about = "false: reasoning is counted and not returned.",
     .apis = kChatLike},
    {.name = "separate_reasoning", .type = kBool, .about = "false: reasoning stays in the text, as it was written.",
     .apis = kChatLike},
    {.name = "enable_thinking", .type = kBool,
     .about = "Whether the model reasons first, where it can be told; wins over an effort.", .apis = kChatLike},

    // Understood, and not built.
    {.name = "suffix", .about = "Not supported.", .effect = kRefused, .apis = kOpenAi},
    {.name = "use_beam_search", .about = "Not supported.", .effect = kRefused},
    {.name = "bad_words", .about = "Not supported.", .effect = kRefused},
    {.name = "logprob_token_ids", .about = "Not supported.", .effect = kRefused},
    {.name = "prompt_embeds", .about = "Not supported.", .effect = kRefused},
    {.name = "truncate_prompt_tokens", .about = "Not supported: a prompt is never cut.", .effect = kRefused},
    {.name = "stop_regex", .about = "Not supported.", .effect = kRefused},
    {.name = "chat_template", .about = "Not supported: the model's own is used.", .effect = kRefused},
};

}  // namespace

std::vector<FieldSpec> with_shared(Api api, std::span<const FieldSpec> own) {
  std::vector<FieldSpec> rows(own.begin(), own.end());
  for (const std::span<const FieldSpec> shared : {std::span<const FieldSpec>(kShared), kConstraintRows}) {
    for (const FieldSpec& row : shared) {
      const bool told = std::any_of(own.begin(), own.end(), [&](const FieldSpec& o) { return o.name == row.name; });
      if ((row.apis & api_bit(api)) != 0 && !told) rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace barg::server
