// Reasoning beside the answer; not applicable where the model shows none.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

std::string whole_reasoning(Session& s, std::string_view probe) {
  const std::string out = text_at(s.json(probe), "choices.0.message.reasoning_content");
  return out.empty() ? text_at(s.json(probe), "choices.0.message.reasoning") : out;
}
const std::string& streamed_reasoning(const StreamedChoice& choice) {
  return choice.reasoning.empty() ? choice.reasoning_alias : choice.reasoning;
}

std::optional<Verdict> no_reasoning(Session& s) {
  if (auto verdict = blocked(s, {"reasoning"})) return verdict;
  if (whole_reasoning(s, "reasoning").empty()) return not_applicable("the answer has no reasoning");
  return std::nullopt;
}

Verdict apart(Session& s) {
  if (auto verdict = blocked(s, {"reasoning"})) return *verdict;
  const std::string content = text_at(s.json("reasoning"), "choices.0.message.content");
  for (const char* mark : {"<think>", "</think>", "<|channel|>", "<|start|>"}) {
    if (content.find(mark) != std::string::npos) return failed(std::string("content holds ") + mark, content);
  }
  return whole_reasoning(s, "reasoning").empty() ? not_applicable("the answer has no reasoning") : pass();
}

Verdict both_names(Session& s) {
  if (auto verdict = no_reasoning(s)) return *verdict;
  const Json& message = *at(s.json("reasoning"), "choices.0.message");
  const std::string& body = s.exchange("reasoning").body;
  if (text_at(message, "reasoning_content").empty())
    return failed("reasoning comes without the name reasoning_content", body);
  const std::string alias = text_at(message, "reasoning");
  if (!alias.empty() && alias != text_at(message, "reasoning_content"))
    return failed("the two names hold different texts", body);
  return pass(alias.empty() ? "under reasoning_content alone" : "");
}

Verdict first(Session& s) {
  if (auto verdict = no_reasoning(s)) return *verdict;
  if (auto verdict = blocked_stream(s, {"reasoning.stream"})) return *verdict;
  const auto& choices = s.stream("reasoning.stream").choices;
  const auto it = choices.find(0);
  if (it == choices.end() || streamed_reasoning(it->second).empty())
    return failed("the stream has no reasoning", s.exchange("reasoning.stream").body);
  return it->second.reasoning_after_text ? failed("reasoning comes behind content", s.exchange("reasoning.stream").body)
                                         : pass();
}

Verdict stream_equals(Session& s) {
  if (auto verdict = no_reasoning(s)) return *verdict;
  if (auto verdict = blocked_stream(s, {"reasoning.stream"})) return *verdict;
  if (blocked(s, {"chat", "chat.again"}) || !s.deterministic())
    return not_applicable("equal requests get different answers (sampling.deterministic)");
  const auto& choices = s.stream("reasoning.stream").choices;
  const auto it = choices.find(0);
  const std::string streamed = it == choices.end() ? "" : streamed_reasoning(it->second);
  if (streamed != whole_reasoning(s, "reasoning"))
    return failed("the streamed reasoning is another", streamed + " | " + whole_reasoning(s, "reasoning"));
  if (it->second.text != text_at(s.json("reasoning"), "choices.0.message.content"))
    return failed("the streamed content is another", it->second.text);
  return pass();
}

Verdict tokens(Session& s) {
  if (auto verdict = no_reasoning(s)) return *verdict;
  const Json* usage = at(s.json("reasoning"), "usage");
  const Json none;
  const std::int64_t count = int_at(usage ? *usage : none, "completion_tokens_details.reasoning_tokens");
  const std::string& body = s.exchange("reasoning").body;
  if (count < 1) return failed("usage does not count the tokens of reasoning", body);
  return count <= int_at(*usage, "completion_tokens") ? pass()
                                                      : failed("more tokens of reasoning than of the answer", body);
}

Verdict cut(Session& s) {
  if (auto verdict = no_reasoning(s)) return *verdict;
  if (auto verdict = blocked(s, {"reasoning.cut"})) return *verdict;
  const std::string content = text_at(s.json("reasoning.cut"), "choices.0.message.content");
  if (text_at(s.json("reasoning.cut"), "choices.0.finish_reason") != "length")
    return not_applicable("four tokens were enough");
  return content.empty() ? pass()
                         : failed("reasoning cut by max_tokens is shown as content", s.exchange("reasoning.cut").body);
}

constexpr Rule kRules[] = {
    {"reasoning.apart", "Reasoning and its marks are not in content.", "People see it, and tool parsers trip over it.",
     apart},
    {"reasoning.name", "Reasoning is in reasoning_content; reasoning, if there, is the same.",
     "vLLM PR 33402: renaming it broke LiteLLM, LangChain4j and OpenCode.", both_names},
    {"reasoning.first", "A stream has all reasoning before content.", "Clients close the one when the other begins.",
     first},
    {"reasoning.stream_equals", "A stream has the reasoning and the content of the whole answer.",
     "Both paths have parsers.", stream_equals},
    {"reasoning.tokens", "Usage counts reasoning_tokens, within completion_tokens.", "vLLM 50895: it was missing.",
     tokens},
    {"reasoning.cut", "Reasoning that max_tokens cuts stays reasoning.",
     "Without an end mark naive parsers call it content.", cut},
};

}  // namespace

const RuleGroup kReasoningRules{"reasoning", "Reasoning", kRules};

}  // namespace barg::conform
