// Calls of tools, whole and streamed. The model is urged to call; if it does not, and cannot be made to, the rules do
// not apply.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

/// The pair of probes whose whole answer holds a call: as the model likes, else required.
struct CallProbes {
  std::string_view whole, stream;
};

std::optional<Verdict> find_calls(Session& s, CallProbes& out) {
  if (auto verdict = blocked(s, {"tools"})) return verdict;
  for (const CallProbes& pair :
       {CallProbes{"tools", "tools.stream"}, CallProbes{"tools.required", "tools.required.stream"}}) {
    if (s.exchange(pair.whole).status == 200 && !list_at(s.json(pair.whole), "choices.0.message.tool_calls").empty()) {
      out = pair;
      return blocked_stream(s, {pair.stream});
    }
  }
  return not_applicable("the model called no tool, though urged");
}

/// Choice 0 of the stream, if it holds a call: a model that calls only in the whole answer is another rule's matter.
std::optional<Verdict> find_streamed(Session& s, CallProbes& probes, const StreamedChoice*& choice) {
  if (auto verdict = find_calls(s, probes)) return verdict;
  const auto& choices = s.stream(probes.stream).choices;
  const auto it = choices.find(0);
  if (it == choices.end() || (it->second.calls.empty() && it->second.call_problem.empty()))
    return not_applicable("the stream holds no call (tools.stream_equals)");
  choice = &it->second;
  return std::nullopt;
}

Verdict call_shape(Session& s) {
  CallProbes probes;
  if (auto verdict = find_calls(s, probes)) return *verdict;
  for (const Json& call : list_at(s.json(probes.whole), "choices.0.message.tool_calls")) {
    if (text_at(call, "id").empty() || text_at(call, "type") != "function")
      return failed("a call lacks id or type \"function\"", shown(call));
    if (text_at(call, "function.name") != "get_weather")
      return failed("a call names a tool that was not declared", shown(call));
    const std::optional<Json> arguments = read_json(text_at(call, "function.arguments"));
    if (!arguments || !arguments->is_object())
      return failed("arguments is not a string that holds a JSON object", shown(call));
  }
  return pass();
}

Verdict finish(Session& s) {
  CallProbes probes;
  const StreamedChoice* choice = nullptr;
  if (auto verdict = find_calls(s, probes)) return *verdict;
  const std::string whole = text_at(s.json(probes.whole), "choices.0.finish_reason");
  if (whole == "length") return not_applicable("max_tokens ended the call");
  if (whole != "tool_calls")
    return failed("finish_reason is \"" + whole + "\", not \"tool_calls\"", s.exchange(probes.whole).body);
  if (auto verdict = find_streamed(s, probes, choice)) return pass();
  if (choice->finishes.empty() || choice->finishes.front() != "tool_calls")
    return failed("finish_reason of the stream is not \"tool_calls\"", s.exchange(probes.stream).body);
  return pass();
}

Verdict id_once(Session& s) {
  CallProbes probes;
  const StreamedChoice* choice = nullptr;
  if (auto verdict = find_streamed(s, probes, choice)) return *verdict;
  for (const StreamedCall& call : choice->calls) {
    if (call.ids != 1 || call.id.empty())
      return failed("the id of a call comes " + std::to_string(call.ids) + " times", s.exchange(probes.stream).body);
    if (call.names != 1 || call.name != "get_weather")
      return failed("the name of a call comes " + std::to_string(call.names) + " times",
                    s.exchange(probes.stream).body);
  }
  return pass();
}

Verdict indices(Session& s) {
  CallProbes probes;
  const StreamedChoice* choice = nullptr;
  if (auto verdict = find_streamed(s, probes, choice)) return *verdict;
  return choice->call_problem.empty() ? pass() : failed(choice->call_problem, s.exchange(probes.stream).body);
}

Verdict stream_arguments(Session& s) {
  CallProbes probes;
  const StreamedChoice* choice = nullptr;
  if (auto verdict = find_streamed(s, probes, choice)) return *verdict;
  for (const StreamedCall& call : choice->calls) {
    const std::optional<Json> arguments = read_json(call.arguments);
    if (!arguments || !arguments->is_object())
      return failed("the streamed arguments, joined, are no JSON object", call.arguments);
  }
  return pass();
}

Verdict stream_equals(Session& s) {
  CallProbes probes;
  if (auto verdict = find_calls(s, probes)) return *verdict;
  if (blocked(s, {"chat", "chat.again"}) || !s.deterministic())
    return not_applicable("equal requests get different answers (sampling.deterministic)");
  const Json::Array& whole = list_at(s.json(probes.whole), "choices.0.message.tool_calls");
  const auto& choices = s.stream(probes.stream).choices;
  const auto it = choices.find(0);
  const std::size_t streamed = it == choices.end() ? 0 : it->second.calls.size();
  const std::string& body = s.exchange(probes.stream).body;
  if (streamed != whole.size())
    return failed(
        "the stream has " + std::to_string(streamed) + " calls, the whole answer " + std::to_string(whole.size()),
        body);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const StreamedCall& call = it->second.calls[i];
    if (call.name != text_at(whole[i], "function.name") || call.arguments != text_at(whole[i], "function.arguments"))
      return failed("call " + std::to_string(i) + " of the stream is another",
                    call.arguments + " | " + shown(whole[i]));
  }
  return pass();
}

Verdict none(Session& s) {
  if (auto verdict = blocked(s, {"tools", "tools.none"})) return *verdict;
  return list_at(s.json("tools.none"), "choices.0.message.tool_calls").empty()
             ? pass()
             : failed("tool_choice none, and a tool is called", s.exchange("tools.none").body);
}

Verdict unknown(Session& s) {
  if (auto verdict = blocked(s, {"tools"})) return *verdict;
  const Exchange& e = s.exchange("tools.unknown");
  if (!e.complete()) return failed("no answer: " + e.problem, e.request);
  return e.status == 400 ? pass() : failed("answered with " + std::to_string(e.status), e.body);
}

constexpr Rule kRules[] = {
    {"tools.call",
     "A call has an id, type function, a declared name, and arguments: a string that holds a JSON object.",
     "LiteLLM PR 37792: arguments came as an object.", call_shape},
    {"tools.finish_reason", "An answer that calls finishes with tool_calls, streamed too.", "Agents go on only then.",
     finish},
    {"tools.id_once", "A streamed call has its id and its name once.", "lmdeploy 3412: call_1call_1.", id_once},
    {"tools.indices", "Indices of streamed calls are integers, dense, from 0, in order.",
     "SGLang 7117: all calls were 0.", indices},
    {"tools.stream_arguments", "Streamed arguments, joined, are a JSON object.", "SGLang 35564: parts were lost.",
     stream_arguments},
    {"tools.stream_equals", "A stream has the calls of the whole answer.", "Ollama 12557: dropped in streams.",
     stream_equals},
    {"tools.none", "tool_choice none: no call.", "OpenAI's reference says so.", none},
    {"tools.unknown_choice", "A tool_choice that names no declared tool is 400.", "It can never be kept.", unknown},
};

}  // namespace

const RuleGroup kToolRules{"tools", "Tools", kRules};

}  // namespace barg::conform
