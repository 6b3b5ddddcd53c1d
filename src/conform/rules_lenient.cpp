// What clients send though they need not, and must not be refused for.
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

Verdict accepted(Session& s, std::string_view probe) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  const Exchange& e = s.exchange(probe);
  if (!e.complete()) return failed("no answer: " + e.problem, e.request);
  return e.status == 200 ? pass() : failed("refused with " + std::to_string(e.status), e.request + " -> " + e.body);
}

Verdict tools(Session& s) { return accepted(s, "lenient.tools"); }
Verdict nulls(Session& s) { return accepted(s, "lenient.nulls"); }
Verdict unknown(Session& s) { return accepted(s, "lenient.unknown"); }
Verdict stream_options(Session& s) { return accepted(s, "lenient.stream_options"); }
Verdict max_tokens(Session& s) { return accepted(s, "lenient.max_tokens"); }
Verdict developer(Session& s) { return accepted(s, "lenient.developer"); }
Verdict system_later(Session& s) { return accepted(s, "lenient.system"); }
Verdict empty_calls(Session& s) { return accepted(s, "lenient.empty_calls"); }
Verdict tool_history(Session& s) { return accepted(s, "tools.history"); }
Verdict reasoning_history(Session& s) { return accepted(s, "reasoning.history"); }

Verdict parts(Session& s) {
  const Verdict verdict = accepted(s, "lenient.parts");
  if (verdict.kind != Verdict::Kind::kPass) return verdict;
  const std::int64_t as_text = int_at(s.json("chat"), "usage.prompt_tokens");
  const std::int64_t as_parts = int_at(s.json("lenient.parts"), "usage.prompt_tokens");
  return as_text == as_parts ? pass()
                             : failed("the same text is " + std::to_string(as_text) + " tokens as a string and " +
                                          std::to_string(as_parts) + " as a part",
                                      s.exchange("lenient.parts").body);
}

constexpr Rule kRules[] = {
    {"lenient.empty_tools", "tools: [] is as if it were absent.", "open-webui 26655: vLLM answers 400 to Open WebUI.",
     tools},
    {"lenient.nulls", "null is as if the field were absent.", "Clients send their whole record.", nulls},
    {"lenient.unknown_fields", "Fields that nobody knows are ignored.", "Codex, LiteLLM and Open WebUI send their own.",
     unknown},
    {"lenient.stream_options", "stream_options without a stream is ignored.", "vLLM answers 400.", stream_options},
    {"lenient.max_tokens", "max_tokens over the context is a cap, not an error.",
     "vLLM 42474: Zed and OpenCode send 65535.", max_tokens},
    {"lenient.content_parts", "content as a list of text parts is the text.",
     "Clients that can send images always do so.", parts},
    {"lenient.developer", "The role developer is taken as system.", "Cline and the OpenAI SDKs send it.", developer},
    {"lenient.system_later", "A system message behind others is no error.", "llama.cpp 20733: templates raise.",
     system_later},
    {"lenient.empty_calls", "tool_calls: [] in the history is no error.", "vLLM 13978: the template failed.",
     empty_calls},
    {"lenient.tool_history", "A history with a call, content: null and a result is no error.", "Every agent sends it.",
     tool_history},
    {"lenient.reasoning_history", "reasoning and reasoning_content in the history are no error.",
     "Clients send back what they got.", reasoning_history},
};

}  // namespace

const RuleGroup kLenientRules{"lenient", "Leniency", kRules};

}  // namespace barg::conform
