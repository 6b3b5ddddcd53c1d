// One generation in this process, text delivered as it is decoded: what `chat` and `complete` share.
// Blocks the caller until the generation has ended; `on_text` runs on the caller's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "cli/bundle.h"
#include "cli/command.h"

namespace barg::cli {

using TextSink = std::function<void(std::string_view)>;

/// The flags below as sampling parameters over the model's own defaults. kInvalidValue names the flag.
Result<SamplingParams> sampling_from_flags(const Invocation& invocation,
                                           const model::GenerationDefaults& defaults);
inline constexpr CommandFlag kMaxTokensFlag{
    "--max-tokens", "N", "Tokens to generate at most. Without it: what the context holds."};
inline constexpr CommandFlag kTemperatureFlag{"--temperature", "T",
                                              "0 to 2; 0 is greedy. Without it: the model's own."};
inline constexpr CommandFlag kSeedFlag{"--seed", "N", "Makes sampling repeatable."};

/// Special tokens do not show. Fails with kContextLengthExceeded when `prompt` leaves no room, or with what
/// the engine reported. Returns the whole text.
Result<std::string> generate(const Bundle& bundle, std::vector<TokenId> prompt, SamplingParams sampling,
                             const TextSink& on_text);

/// Progress of loading on a terminal, nothing elsewhere.
LoadWatch quiet_watch(Io& io);

}  // namespace barg::cli
