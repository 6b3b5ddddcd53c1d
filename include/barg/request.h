// What goes into the engine and what comes out of it: Request and TokenEvent. Plain data, moved between
// threads; nothing here refers to text, JSON or HTTP.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "barg/result.h"
#include "barg/types.h"

namespace barg {

class Constraint;  // barg/constraint.h

/// Lower value = served first. Waiting ages a request into the next class.
enum class Priority : std::uint8_t { kInteractive = 0, kStandard = 1, kBatch = 2 };

/// A bound on the tokens of a model's reasoning block. Tokens inside are counted, its markers are not; when `budget`
/// of them have been sampled and the block is still open, the ids of `close` are the next tokens whatever the logits
/// say. A block that opens again goes on with the same count.
struct ReasoningLimit {
  std::int32_t budget = 0;     ///< >= 0
  bool open = false;           ///< the prompt ends inside the block
  std::vector<TokenId> begin;  ///< what opens a block in the output; empty: nothing does
  std::vector<TokenId> close;  ///< what ends it, at least one id; begin and close in [0, vocab), at most 64 each
};

/// How one token is chosen. Order of operations (src/README.md, numerics): masks (constraint, allowed, banned,
/// min_tokens) -> logit_bias -> repetition, frequency, presence -> temperature -> min_p -> top_k -> top_p -> Gumbel draw.
struct SamplingParams {
  float temperature = 1.0F;         ///< [0, 2]; 0 = greedy
  float top_p = 1.0F;               ///< (0, 1]
  float min_p = 0.0F;               ///< [0, 1]; 0 = off
  std::int32_t top_k = 0;           ///< 0 or -1 = off
  float repetition_penalty = 1.0F;  ///< > 0; over prompt and output
  float frequency_penalty = 0.0F;   ///< [-2, 2]; over output
  float presence_penalty = 0.0F;    ///< [-2, 2]; over output
  std::optional<std::uint64_t> seed;  ///< absent: the engine draws one and reports it
  std::vector<std::pair<TokenId, float>> logit_bias;  ///< id in [0, vocab), value in [-100, 100]
  std::vector<TokenId> allowed_token_ids;             ///< empty = all
  std::vector<TokenId> banned_token_ids;
  std::int32_t min_tokens = 0;   ///< EOS and stop ids are masked before this many output tokens
  std::int32_t max_tokens = 16;  ///< >= 0; 0 only to score a prompt (prompt_logprobs)
  bool ignore_eos = false;       ///< the model's own end tokens do not stop (stop_token_ids still do)
  std::vector<TokenId> stop_token_ids;
  std::optional<ReasoningLimit> reasoning;      ///< comes before all masks
  /// The whole output belongs to its language, behind the reasoning block where `reasoning` says that there may be one:
  /// the model may open one only with its first token, may not end inside it, and has to close it while max_tokens
  /// leave room for the shortest output. Not with min_tokens or ignore_eos; max_tokens >= min_tokens() of it.
  std::shared_ptr<const Constraint> constraint;
  std::optional<std::int32_t> logprobs;         ///< top alternatives per output token, 0..20; absent = none
  std::optional<std::int32_t> prompt_logprobs;  ///< the same for the prompt; bypasses cache reads
};

/// A part of the prompt that is not plain text tokens (an image, later). `digest` enters the KV key.
struct PromptSpan {
  std::int32_t offset = 0;  ///< first token position
  std::int32_t length = 0;  ///< tokens
  std::string digest;       ///< 32 bytes
  std::shared_ptr<const void> payload;
};

struct Request {
  RequestId id{};                          ///< set by the submitter, see Engine::next_request_id
  std::vector<TokenId> prompt;             ///< 1 .. max_model_len tokens, each in [0, vocab)
  std::vector<PromptSpan> spans;           ///< must be empty for text models
  SamplingParams sampling;
  std::int32_t n = 1;                      ///< choices, 1..128; choice 0 of n equals n = 1
  Priority priority = Priority::kStandard;
  std::string cache_salt;                  ///< prefix blocks are shared only among equal salts
  double cache_pin_s = 0;                  ///< the tiers keep the prompt's blocks for so long; 0 = as all others
  bool follows = false;                    ///< a further prompt of a batch whose first one was admitted
  /// The prompt's vector is wanted and nothing is generated: what an embedding model does, and only that
  /// (EmbeddingInfo). With n = 1, and sampling.max_tokens = 0.
  bool embeds = false;
};

/// How an embedding model answers.
struct EmbeddingInfo {
  std::int32_t size = 0;  ///< numbers of a vector; 0: the model generates and embeds nothing
  bool normalise = true;  ///< vectors are meant to have length 1; TokenEvent::embedding has not been brought there
  /// The first numbers of a vector are one of their own (Matryoshka): `sizes` of them, or any number if that is empty.
  bool matryoshka = false;
  std::vector<std::int32_t> sizes{};  ///< ascending
};

enum class FinishReason : std::uint8_t {
  kNone,    // still running
  kStop,    // an end token or a stop id or finish_at() (stop string); an embedding is there
  kLength,  // max_tokens or the model's length
  kAbort,   // cancelled
  kError,   // see TokenEvent::error
};

struct TopLogprob {
  TokenId id = kNoToken;
  float logprob = 0;
};

/// Log-probabilities of the raw model distribution (before bias, penalties and temperature).
struct TokenLogprobs {
  TokenId id = kNoToken;
  float logprob = 0;
  std::int32_t rank = 0;          ///< 1 = most likely
  std::vector<TopLogprob> top;    ///< descending, ties by lower id; at most what was asked
};

struct OutputToken {
  TokenId id = kNoToken;
  std::optional<TokenLogprobs> logprobs;
  /// What would have been drawn could not have been completed within max_tokens, or would have let reasoning take the
  /// answer's room: this was drawn among the rest (only with a constraint). The output was shaped by its length, also
  /// if it ends with an end token.
  bool for_length = false;
};

/// Timing and counts of one request, complete in its last event. Times are seconds of the engine's clock.
struct RequestStats {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  ///< prompt tokens of choice 0 that were not computed
  /// Of these, by where they lay: device, DRAM, disk, remote pool.
  std::array<std::int32_t, 4> cached_by_place{};
  std::int32_t preemptions = 0;
  double arrived_s = 0;
  double first_scheduled_s = 0;
  double first_token_s = 0;
  double last_token_s = 0;
  std::uint64_t seed = 0;
};

/// Events of one choice come in order; `tokens` continue where the last event ended. Exactly one event per
/// choice has finish != kNone, and none follows it.
struct TokenEvent {
  RequestId request{};
  std::int32_t choice = 0;
  std::int32_t first_index = 0;  ///< output index of tokens[0]
  std::vector<OutputToken> tokens;
  std::vector<TokenLogprobs> prompt_logprobs;  ///< choice 0 only, entry 0 has id set and no value (rank 0)
  std::vector<float> embedding{};  ///< of Request::embeds: in the last event, EmbeddingInfo::size numbers
  FinishReason finish = FinishReason::kNone;
  TokenId stop_token = kNoToken;  ///< the id that stopped it (also the last of `tokens`), else kNoToken
  std::optional<Error> error;     ///< with FinishReason::kError
  RequestStats stats;
};

}  // namespace barg
