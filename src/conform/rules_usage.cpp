// Token counts: when they come, and that both paths count alike.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

bool has_usage(const Json& chunk) {
  const Json* usage = at(chunk, "usage");
  return usage != nullptr && !usage->is_null();
}

Verdict total(Session& s) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  const auto wrong = [](const Json& usage) {
    const std::int64_t prompt = int_at(usage, "prompt_tokens");
    const std::int64_t completion = int_at(usage, "completion_tokens");
    return prompt < 1 || completion < 0 || int_at(usage, "total_tokens") != prompt + completion;
  };
  const Json* whole = at(s.json("chat"), "usage");
  if (whole == nullptr || wrong(*whole))
    return failed("usage of a whole answer does not add up", s.exchange("chat").body);
  if (blocked_stream(s, {"chat.usage"})) return pass("the stream with usage is not there");
  const StreamView& view = s.stream("chat.usage");
  if (!view.usage.is_null() && wrong(view.usage)) return failed("usage of a stream does not add up", shown(view.usage));
  return pass();
}

Verdict only_when_asked(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  const StreamView& view = s.stream("chat.stream");
  for (const Chunk& chunk : view.chunks) {
    if (has_usage(chunk.json)) return failed("a chunk has usage that nobody asked for", view.raw(chunk));
    if (list_at(chunk.json, "choices").empty())
      return failed("a chunk has no choices, and no usage was asked for", view.raw(chunk));
  }
  return pass();
}

Verdict last(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.usage"})) return *verdict;
  const StreamView& view = s.stream("chat.usage");
  std::size_t with_usage = 0;
  for (const Chunk& chunk : view.chunks) with_usage += has_usage(chunk.json) ? 1 : 0;
  const Chunk& end = view.chunks.back();
  if (with_usage != 1)
    return failed(std::to_string(with_usage) + " chunks have usage where one is asked for", view.raw(end));
  if (!has_usage(end.json)) return failed("the chunk with usage is not the last one", view.raw(end));
  const Json* choices = at(end.json, "choices");
  if (choices == nullptr || !choices->is_array() || choices->size() != 0)
    return failed("choices of the chunk with usage is not []", view.raw(end));
  return pass();
}

Verdict null_elsewhere(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.usage"})) return *verdict;
  const StreamView& view = s.stream("chat.usage");
  for (const Chunk& chunk : view.chunks) {
    if (&chunk != &view.chunks.back() && !null_at(chunk.json, "usage"))
      return failed("usage is asked for, and a chunk before the last has no \"usage\": null", view.raw(chunk));
  }
  return pass();
}

Verdict parity(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.again"})) return *verdict;
  if (auto verdict = blocked_stream(s, {"chat.usage"})) return *verdict;
  if (!s.deterministic()) return not_applicable("equal requests get different answers (sampling.deterministic)");
  const Json* whole = at(s.json("chat"), "usage");
  const Json& streamed = s.stream("chat.usage").usage;
  for (const char* key : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
    const Json* a = at(whole, key);
    const Json* b = at(streamed, key);
    if (a == nullptr || b == nullptr || !(*a == *b))
      return failed(std::string(key) + " of the stream is not the whole answer's",
                    shown(streamed) + " | " + (whole ? shown(*whole) : "none"));
  }
  return pass();
}

Verdict cached_tokens(Session& s) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  const std::int64_t cached = int_at(s.json("chat"), "usage.prompt_tokens_details.cached_tokens");
  if (cached < 0) return failed("usage.prompt_tokens_details.cached_tokens is missing", s.exchange("chat").body);
  if (cached > int_at(s.json("chat"), "usage.prompt_tokens"))
    return failed("more tokens are cached than there are", s.exchange("chat").body);
  return pass();
}

Verdict prompt_once(Session& s) {
  if (auto verdict = blocked(s, {"chat.seed", "chat.n"})) return *verdict;
  const std::int64_t one = int_at(s.json("chat.seed"), "usage.prompt_tokens");
  const std::int64_t two = int_at(s.json("chat.n"), "usage.prompt_tokens");
  return one == two ? pass()
                    : failed("n = 2 counts " + std::to_string(two) + " prompt tokens, n = 1 " + std::to_string(one),
                             s.exchange("chat.n").body);
}

constexpr Rule kRules[] = {
    {"usage.total", "total_tokens is prompt_tokens plus completion_tokens.", "Bills and limits are made of it.", total},
    {"usage.only_when_asked", "Without stream_options.include_usage no chunk has usage, or empty choices.",
     "Clients that take choices[0] crash; Continue holds back each chunk with usage.", only_when_asked},
    {"usage.last", "With include_usage one chunk has usage: the last one, with empty choices.",
     "openai-python overwrites usage with every chunk.", last},
    {"usage.null_elsewhere", "With include_usage all other chunks have \"usage\": null.", "OpenAI's reference says so.",
     null_elsewhere},
    {"usage.parity", "A stream counts what the whole answer counts.",
     "vLLM 8625: completion_tokens were wrong in streams.", parity},
    {"usage.cached_tokens", "Usage says how many tokens of the prompt were cached.",
     "aibrix 1607: users ask why it is missing; agents show it.", cached_tokens},
    {"usage.prompt_once", "With n = 2 the prompt is counted once.", "OpenAI's reference says so.", prompt_once},
};

}  // namespace

const RuleGroup kUsageRules{"usage", "Usage", kRules};

}  // namespace barg::conform
