#include "cli/generate.h"

#include <charconv>
#include <limits>
#include <memory>
#include <ostream>
#include <type_traits>

#include "base/queue.h"
#include "cli/values.h"
#include "text/detokenizer.h"

namespace barg::cli {
namespace {

template <class T>
Result<T> number_flag(const Invocation& invocation, const CommandFlag& flag, T otherwise, T min, T max) {
  const std::string name(flag.name);
  if (!invocation.has(name)) return otherwise;
  const std::string text = invocation.get(name);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= min && value <= max)) {
    std::string range = std::string(std::is_integral_v<T> ? "a whole number" : "a number") + " from " +
                        show_number(static_cast<double>(min));
    if (max < std::numeric_limits<T>::max()) range += " to " + show_number(static_cast<double>(max));
    return fail(ErrorCode::kInvalidValue, name + " must be " + range + ", got '" + text.substr(0, 64) + "'.",
                name);
  }
  return value;
}

// One event's tokens as text; the token that ended the generation is not part of it.
std::string decode(const TokenEvent& event, text::Detokenizer& detokenizer) {
  std::string out;
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    const bool is_end = event.stop_token != kNoToken && i + 1 == event.tokens.size();
    if (!is_end) out += detokenizer.push(event.tokens[i].id);
  }
  if (event.finish != FinishReason::kNone) out += detokenizer.flush();
  return out;
}

}  // namespace

Result<SamplingParams> sampling_from_flags(const Invocation& invocation,
                                           const model::GenerationDefaults& defaults) {
  SamplingParams out;
  out.top_p = static_cast<float>(defaults.top_p.value_or(1));
  out.min_p = static_cast<float>(defaults.min_p.value_or(0));
  out.top_k = defaults.top_k.value_or(0);
  out.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(1));
  const auto temperature = number_flag(invocation, kTemperatureFlag,
                                       static_cast<float>(defaults.temperature.value_or(1)), 0.0F, 2.0F);
  if (!temperature) return std::unexpected(temperature.error());
  out.temperature = *temperature;
  const auto max_tokens =
      number_flag(invocation, kMaxTokensFlag, std::int32_t{0}, 1, std::numeric_limits<std::int32_t>::max());
  if (!max_tokens) return std::unexpected(max_tokens.error());
  out.max_tokens = *max_tokens;
  if (invocation.has(std::string(kSeedFlag.name))) {
    const auto seed = number_flag(invocation, kSeedFlag, std::uint64_t{0}, std::uint64_t{0},
                                  std::numeric_limits<std::uint64_t>::max());
    if (!seed) return std::unexpected(seed.error());
    out.seed = *seed;
  }
  return out;
}

Result<std::string> generate(const Bundle& bundle, std::vector<TokenId> prompt, SamplingParams sampling,
                             const TextSink& on_text) {
  if (prompt.empty()) return fail(ErrorCode::kInvalidValue, "the prompt is empty.");
  const auto room = bundle.engine->info().max_model_len - static_cast<std::int64_t>(prompt.size());
  if (room < 1) {
    return fail(ErrorCode::kContextLengthExceeded,
                "the text has " + std::to_string(prompt.size()) + " tokens, but the context holds " +
                    std::to_string(bundle.engine->info().max_model_len) + ".");
  }
  // 0 stands for "what the context holds".
  if (sampling.max_tokens == 0 || sampling.max_tokens > room)
    sampling.max_tokens = static_cast<std::int32_t>(room);

  Request request;
  request.id = bundle.engine->next_request_id();
  request.prompt = std::move(prompt);
  request.sampling = std::move(sampling);
  const auto events = std::make_shared<Queue<TokenEvent>>(1);
  const Result<void> submitted = bundle.engine->submit(
      std::move(request), [events](TokenEvent&& event) { events->push_always(std::move(event)); });
  if (!submitted) return std::unexpected(submitted.error());

  text::Detokenizer detokenizer(*bundle.tokenizer, true);
  detokenizer.continue_text();
  std::string all;
  while (true) {
    for (const TokenEvent& event : events->wait_drain()) {
      const std::string piece = decode(event, detokenizer);
      if (!piece.empty() && on_text) on_text(piece);
      all += piece;
      if (event.finish == FinishReason::kNone) continue;
      if (event.error) return std::unexpected(*event.error);
      return all;
    }
  }
}

LoadWatch quiet_watch(Io& io) {
  LoadWatch watch;
  if (!io.err_is_terminal) return watch;
  watch.progress = [&io](double share) {
    io.err << "\rloading " << static_cast<int>(share * 100) << " %" << (share < 1 ? "" : "\r\033[K")
           << std::flush;
  };
  return watch;
}

}  // namespace barg::cli
