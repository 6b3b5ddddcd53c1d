// What ends an answer, and what makes two equal.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

std::string content(Session& s, std::string_view probe) { return text_at(s.json(probe), "choices.0.message.content"); }

Verdict deterministic(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.again"})) return *verdict;
  return s.deterministic() ? pass()
                           : failed("two equal requests at temperature 0 got different texts",
                                    content(s, "chat") + " | " + content(s, "chat.again"));
}

Verdict seed(Session& s) {
  if (auto verdict = blocked(s, {"chat.seed", "chat.seed.again"})) return *verdict;
  return content(s, "chat.seed") == content(s, "chat.seed.again")
             ? pass()
             : failed("the same seed at temperature 1 gave different texts",
                      content(s, "chat.seed") + " | " + content(s, "chat.seed.again"));
}

/// What must hold of an answer that a stop string ended; `text` and `finish` from either path.
Verdict ended_by_stop(Session& s, const std::string& text, const std::string& finish) {
  const Session::StopString stop = *s.stop_string();
  if (text.find(stop.stop) != std::string::npos)
    return failed("the stop string \"" + shown(stop.stop) + "\" is in the answer", text);
  if (s.deterministic() && text != stop.before) {
    const bool leak = text.size() > stop.before.size() && text.starts_with(stop.before);
    return failed(leak ? "a part of the stop string leaked" : "the answer is not the text before the stop string",
                  text + " | " + stop.before);
  }
  if (finish != "stop") return failed("finish_reason is \"" + finish + "\", not \"stop\"", text);
  return pass();
}

Verdict stop(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.again"})) return *verdict;
  if (!s.stop_string()) return not_applicable("the model's answer is too short to cut a stop string out");
  if (auto verdict = blocked(s, {"chat.stop"})) return *verdict;
  return ended_by_stop(s, content(s, "chat.stop"), text_at(s.json("chat.stop"), "choices.0.finish_reason"));
}

Verdict stop_stream(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.again"})) return *verdict;
  if (!s.stop_string()) return not_applicable("the model's answer is too short to cut a stop string out");
  if (auto verdict = blocked_stream(s, {"chat.stop.stream"})) return *verdict;
  const auto& choices = s.stream("chat.stop.stream").choices;
  const auto it = choices.find(0);
  if (it == choices.end() || it->second.finishes.empty())
    return failed("the stream does not finish", s.exchange("chat.stop.stream").body);
  return ended_by_stop(s, it->second.text, it->second.finishes.front());
}

/// An answer of at most three tokens where the model would say more.
Verdict cut_at_three(Session& s, const Json& whole, const std::string& finish, std::string_view evidence) {
  const std::int64_t counted = int_at(whole, "usage.completion_tokens");
  if (counted > 3) return failed("three tokens were asked for and " + std::to_string(counted) + " counted", evidence);
  if (counted >= 0 && counted < 3) return not_applicable("the model said less than three tokens");
  if (int_at(s.json("chat"), "usage.completion_tokens") <= 3 && finish == "stop")
    return not_applicable("the model's answer is too short");
  return finish == "length" ? pass() : failed("finish_reason is \"" + finish + "\", not \"length\"", evidence);
}

Verdict max_tokens(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.length"})) return *verdict;
  return cut_at_three(s, s.json("chat.length"), text_at(s.json("chat.length"), "choices.0.finish_reason"),
                      s.exchange("chat.length").body);
}

Verdict max_tokens_stream(Session& s) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  if (auto verdict = blocked_stream(s, {"chat.length.stream"})) return *verdict;
  const StreamView& view = s.stream("chat.length.stream");
  const auto it = view.choices.find(0);
  const std::string finish = it == view.choices.end() || it->second.finishes.empty() ? "" : it->second.finishes.front();
  return cut_at_three(s, Json::object({{"usage", view.usage}}), finish, s.exchange("chat.length.stream").body);
}

Verdict max_completion_tokens(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.max_completion"})) return *verdict;
  return cut_at_three(s, s.json("chat.max_completion"),
                      text_at(s.json("chat.max_completion"), "choices.0.finish_reason"),
                      s.exchange("chat.max_completion").body);
}

constexpr Rule kRules[] = {
    {"sampling.deterministic", "Equal requests at temperature 0 with a seed get equal texts.",
     "Tests, evaluations and caches of answers rest on it.", deterministic},
    {"sampling.seed", "Equal requests at temperature 1 with equal seeds get equal texts.", "OpenAI's field seed.",
     seed},
    {"sampling.stop", "A stop string ends an answer, is not in it, and finish_reason is stop.",
     "llama.cpp 11538: stop strings of several tokens were missed.", stop},
    {"sampling.stop_stream", "No part of a stop string is streamed before it is known to be none.",
     "llama.cpp 10914: partial stop strings leaked.", stop_stream},
    {"sampling.max_tokens", "max_tokens cuts an answer at that token, with finish_reason length.",
     "llama.cpp PR 10382: it said stop.", max_tokens},
    {"sampling.max_tokens_stream", "The same in a stream.", "vLLM 53269: the two paths differed.", max_tokens_stream},
    {"sampling.max_completion_tokens", "max_completion_tokens wins over max_tokens.", "OpenAI deprecated the other.",
     max_completion_tokens},
};

}  // namespace

const RuleGroup kSamplingRules{"sampling", "Ends and repetition", kRules};

}  // namespace barg::conform
